"""Reports the version of the contract that a write has kept."""

from typing import Any

from dagster_iceberg_spark.assets.observers import ObservedWrite, Observer
from dagster_iceberg_spark.features.contracts.contract_files import read_contract
from dagster_iceberg_spark.features.contracts.options import CONTRACT


class ContractObserver(Observer):
    """Adds the version of the contract to the metadata of a materialization."""

    def wrote(self, write: ObservedWrite) -> dict[str, Any]:
        """Return the version."""
        place = write.table.metadata.get(CONTRACT)
        return {} if place is None else {"iceberg/contract_version": read_contract(str(place)).title}
