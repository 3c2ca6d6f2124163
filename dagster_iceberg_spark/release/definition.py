"""The definition of an asset of a release."""

from dataclasses import dataclass

import dagster as dg


@dataclass(frozen=True, slots=True)
class MemberDefinition:
    """The definition of an asset of a release."""

    spec: dg.AssetSpec
    io_manager_key: str

    @property
    def name(self) -> str:
        """The key of the asset, with slashes between its parts."""
        return "/".join(self.spec.key.path)
