"""The Spark resource and the IO manager of a code location, in YAML."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import Field

from dagster_iceberg_spark.config.configuration import selection
from dagster_iceberg_spark.features.components.models import (
    ConfigurationModel,
    configuration,
    configure,
    described,
    given_values,
    model_of,
    refusal,
)
from dagster_iceberg_spark.features.maintenance.options import MaintenancePolicy, MaintenanceSettings, parse_maintenance
from dagster_iceberg_spark.io_manager import IcebergPySparkIOManager
from dagster_iceberg_spark.resource import IcebergSparkResource
from dagster_iceberg_spark.table.identifier import NotationError

SPARK_MODEL: Final = model_of(IcebergSparkResource, leave_out=("pyspark",))
IO_MANAGER_MODEL: Final = model_of(IcebergPySparkIOManager, leave_out=("spark",))
_EXAMPLE: Final = {
    "spark": {"catalog": {"kind": "sql", "name": "lake", "uri": "sqlite:///lake/catalog.db", "warehouse": "lake"}},
    "io_manager": {"namespace": "public"},
}


class IcebergLakeScaffolder(dg.Scaffolder):
    """Writes a component with a catalog in a SQLite file."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write `defs.yaml`."""
        scaffold_component(request, _EXAMPLE)


def resolved_spark(context: dg.ResolutionContext, model: ConfigurationModel | str) -> IcebergSparkResource:
    """Return the resource that YAML describes, or that an expression such as `context.load_component` returns."""
    if isinstance(model, str):
        found = context.resolve_value(model)
        if not isinstance(found, IcebergSparkResource):
            raise refusal(context, "the fields of an IcebergSparkResource, or an expression", type(found).__name__)
        return found
    fields = selection(given_values(context, model))
    return configure(context, model, lambda: IcebergSparkResource(**fields))


def _fields(context: dg.ResolutionContext, model: ConfigurationModel) -> Mapping[str, Any]:
    fields: dict[str, Any] = selection(given_values(context, model))
    configure(context, model, lambda: IcebergPySparkIOManager(**fields))
    return fields


def _policy(context: dg.ResolutionContext, model: Any) -> MaintenancePolicy:
    try:
        settings = parse_maintenance(context.resolve_value(model)) or MaintenanceSettings()
        return MaintenancePolicy().overridden_by(settings)
    except (NotationError, ValueError) as error:
        raise refusal(context, "settings of a MaintenancePolicy", str(error)) from error


class MaintenanceSchedule(dg.Model, dg.Resolvable):
    """When the tables of the code location are maintained, and how."""

    schedule: Annotated[str, described("The cron schedule. Start it in the UI.")] = "0 3 * * *"
    timezone: Annotated[str, described("The time zone of the schedule.")] = "UTC"
    policy: Annotated[
        Any,  # a MaintenancePolicy
        dg.Resolver(
            _policy,
            model_field_type=Mapping[str, Any],
            description="What differs from the MaintenancePolicy's defaults, such as `{older_than: 30 days}`.",
        ),
    ] = Field(default_factory=MaintenancePolicy)
    name: Annotated[str, described("Name of the job.")] = "iceberg_maintenance"


@dg.scaffold_with(IcebergLakeScaffolder)
class IcebergLakeComponent(dg.Component, dg.Resolvable, dg.Model):
    """Makes the Spark resource and the IO manager of a code location.

    Its assets then use `io_manager_key="iceberg"`, and the session as the resource `spark`.
    """

    spark: Annotated[
        Any,  # an IcebergSparkResource; Dagster takes no other models of pydantic
        configuration(
            resolved_spark, SPARK_MODEL | str, "The Spark session and the catalog: the fields of IcebergSparkResource."
        ),
    ] = Field(default_factory=IcebergSparkResource)
    io_manager: Annotated[
        Mapping[str, Any],
        configuration(_fields, IO_MANAGER_MODEL, "How assets are stored: the fields of IcebergPySparkIOManager."),
    ] = Field(default_factory=dict)
    maintenance: Annotated[
        MaintenanceSchedule | None, described("What maintains the tables of the IO manager's assets. Default: nothing.")
    ] = None
    spark_key: Annotated[str, described("Key of the resource with the Spark session.")] = "spark"
    io_manager_key: Annotated[str, described("Key of the IO manager.")] = "iceberg"

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002 - Dagster's signature
        """Return the two resources, and the job that maintains the tables."""
        io_manager = IcebergPySparkIOManager(spark=self.spark, **self.io_manager)
        resources = dg.Definitions(resources={self.spark_key: self.spark, self.io_manager_key: io_manager})
        if self.maintenance is None:
            return resources
        from dagster_iceberg_spark.features.maintenance.job import build_location_maintenance

        job = build_location_maintenance(
            self.io_manager_key,
            policy=self.maintenance.policy,
            schedule=self.maintenance.schedule,
            timezone=self.maintenance.timezone,
            name=self.maintenance.name,
        )
        return dg.Definitions.merge(resources, job)
