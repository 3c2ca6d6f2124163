"""Compares the contracts of a code location with what its assets require, and with their tables."""

from collections.abc import Iterable, Iterator

import dagster as dg
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from dagster_iceberg_spark.assets.address import plain_value
from dagster_iceberg_spark.assets.definition_checks import check_table
from dagster_iceberg_spark.assets.stored_tables import stored_members
from dagster_iceberg_spark.check.findings import Finding
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError
from dagster_iceberg_spark.features.checks.data_checks import build_data_checks
from dagster_iceberg_spark.features.contracts.contract_files import read_contract
from dagster_iceberg_spark.features.contracts.options import CONTRACT, REQUIRES, ContractOptions
from dagster_iceberg_spark.features.contracts.plan import Contract
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata
from dagster_iceberg_spark.timeouts import STEP_SECONDS


def require_contracts(definitions: dg.Definitions) -> dg.Definitions:
    """Return the definitions, if the contracts of their assets fit those that require them.

    Call it where the code location is defined. A breaking version then fails when the code location is loaded.

    Raises:
        ConfigurationError: A contract cannot be read, or an asset requires another version of it.

    Example:
        >>> import dagster as dg
        >>> defs = require_contracts(dg.Definitions(assets=[]))
    """
    failed = [finding for finding in check_requirements(definitions) if finding.outcome == "failed"]
    if failed:
        raise ConfigurationError.refusing(
            "load",
            "the code location",
            expected="contracts that fit their readers",
            found="; ".join(f"{finding.subject}: {finding.found}" for finding in failed),
        )
    return definitions


def check_requirements(definitions: dg.Definitions) -> Iterator[Finding]:
    """Yield a finding for each asset with a contract, and for each contract that an asset requires."""
    specs = [spec for assets in definitions.resolve_asset_graph().assets_defs for spec in assets.specs]
    contracts = dict[str, Contract]()
    for spec in specs:
        subject, place = spec.key.to_user_string(), plain_value(spec.metadata.get(CONTRACT))
        if place is None:
            continue
        try:
            contract = read_contract(str(place))
        except IcebergSparkError as error:
            yield Finding(subject, "contract", "failed", str(error), f"`{CONTRACT}` of the asset")
            continue
        contracts |= dict.fromkeys((*contract.names, subject), contract)
        unheld = f"; not checked: {'; '.join(contract.unheld)}" if contract.unheld else ""
        yield Finding(subject, "contract", "ok", f"{contract.title}{unheld}")
    for spec in specs:
        if plain_value(spec.metadata.get(REQUIRES)) is not None:
            yield from _required(spec, contracts)


def _required(spec: dg.AssetSpec, contracts: dict[str, Contract]) -> Iterator[Finding]:
    subject, setting = spec.key.to_user_string(), f"`{REQUIRES}` of the asset"
    try:
        options = read_metadata(ContractOptions, {REQUIRES: plain_value(spec.metadata.get(REQUIRES))}, subject=subject)
    except IcebergSparkError as error:
        yield Finding(subject, "requires", "failed", str(error), setting)
        return
    for requirement in options.requires:
        contract = contracts.get(requirement.name)
        if contract is None:
            found = f"no asset has the contract {requirement.name!r}"
            yield Finding(subject, "requires", "failed", found, setting)
        elif not _fits(contract.version, requirement.versions):
            yield Finding(subject, "requires", "failed", f"requires {requirement}, found {contract.title}", setting)
        else:
            yield Finding(subject, "requires", "ok", f"{requirement}: {contract.title}")


def _fits(version: str, versions: str) -> bool:
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def check_contracts(definitions: dg.Definitions) -> Iterator[Finding]:
    """Yield the findings of contracts, and of the tables that have one. This starts no session."""
    yield from check_requirements(definitions)
    with stored_members(definitions, action="check the contracts of") as members:
        for io_manager, spec in members:
            if plain_value(spec.metadata.get(CONTRACT)) is not None:
                yield check_table(io_manager, spec, seconds=STEP_SECONDS)


def build_contract_checks(assets: Iterable[dg.AssetsDefinition]) -> list[dg.AssetChecksDefinition]:
    """Build an asset check of the age of rows for each asset whose contract has a service level for it.

    The audits of a contract are asset checks too, by `build_audit_checks`.

    Args:
        assets: Assets, those without a contract among them.

    Raises:
        ConfigurationError: A contract cannot be used.

    Example:
        >>> build_contract_checks([])
        []
    """
    found = [(asset, plain_value(spec.metadata.get(CONTRACT))) for asset in assets for spec in asset.specs]
    ages = [(asset, read_contract(str(place)).fresh) for asset, place in found if place is not None]
    return [build_data_checks(asset, fresh=age) for asset, age in ages if age is not None]
