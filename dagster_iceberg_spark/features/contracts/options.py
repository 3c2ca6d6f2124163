"""The metadata keys of the feature."""

import re
from dataclasses import dataclass
from typing import Any, Final

from dagster_iceberg_spark.plan.options.metadata_key import PREFIX, Options, key, list_of_text, text

CONTRACT: Final = f"{PREFIX}contract"
REQUIRES: Final = f"{PREFIX}requires"
_REQUIREMENT: Final = re.compile(r"(?P<name>\S+)\s+(?P<versions>[<>=!~].*)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """The versions of a contract that an asset can read, such as `>= 2, < 3`."""

    name: str
    versions: str

    def __str__(self) -> str:
        return f"{self.name} {self.versions}"


def _requirements(value: Any) -> tuple[Requirement, ...]:
    return tuple(map(_requirement, list_of_text(value)))


def _requirement(value: str) -> Requirement:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    found = _REQUIREMENT.fullmatch(value)
    if found is None:
        raise ValueError(repr(value))
    try:
        SpecifierSet(found["versions"])
    except InvalidSpecifier as error:
        raise ValueError(repr(value)) from error
    return Requirement(found["name"], found["versions"])


class ContractOptions(Options):
    """The contract of an asset, and those of other assets that it relies on."""

    contract: str | None = key(
        "path of a file in the Open Data Contract Standard, relative to the working directory; with `#name` for one of "
        "several tables",
        text,
        default_text="none",
    )
    requires: tuple[Requirement, ...] = key(
        "list of contracts with the versions that the asset can read, such as `orders >= 2, < 3`",
        _requirements,
        expected="a contract and its versions, such as `orders >= 2`",
        default=(),
        default_text="none",
    )
