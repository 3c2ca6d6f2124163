"""The package's errors, grouped by what the reader does next.

    IcebergSparkError
    |-- ConfigurationError            fix the configuration or the asset's metadata; not retried
    |   |-- MetadataKeyError          a metadata key or its value
    |   |-- PartitioningError         partitions definition, `partition_expr` and table do not fit together
    |   |-- TableOwnershipError       the table belongs to another asset
    |   |-- NotAnIcebergTableError    something else has the table's name
    |   |-- EngineUnfitError          `iceberg/engine` names an engine that cannot write the asset
    |   `-- SparkEnvironmentError     Java, the Iceberg runtime or the session's own configuration
    |-- DataError                     fix the data that the asset returns; not retried
    |   |-- OutputTypeError           neither a Spark DataFrame nor rows that Arrow holds
    |   |-- SchemaMismatchError       columns or types that the table cannot take
    |   |-- RowsOutsidePartitionError rows that do not belong to the run's partitions
    |   |-- NullValueError            NULL in a required column
    |   |-- MergeKeyError             NULL or repeated merge keys in the batch
    |   `-- AuditFailedError          rows that fail an audit; they are staged, and not published
    |-- UpstreamMissingError          materialize the upstream asset, or correct what is read; not retried
    |-- ConcurrentWriteError          another run has written the same partitions first, and is to win; not retried
    |-- UnauditedReleaseError         run the blocking checks with the assets that a release publishes; not retried
    |-- ReplayFailedError             a step of a replayed run failed: read the log; not retried
    |-- JobFailedError                a job committed no snapshot: read its log; a RetryPolicy may launch another one
    |-- RetryableError                run it again; a RetryPolicy may. During a write the IO manager plans again first
    |   |-- CommitConflictError       another writer committed first
    |   |-- ChangesConsumedError      another materialization has taken the changes that were read; not planned again
    |   |-- MirrorFailedError         the rows are committed, and a mirror does not show them yet; not planned again
    |   |-- CatalogUnavailableError   the catalog, the store or the server does not answer
    |   `-- CredentialsExpiredError   the catalog or the store no longer takes the credentials
    `-- InvestigationError            look at the table first; not retried, with one exception
        |-- CommitOutcomeUnknownError the commit may or may not have happened
        |-- DuplicateCommitError      two snapshots carry one commit token
        |-- OrphanedCommitError       an earlier append is in the table, and no event records it
        |-- UnreadableCommitError     a snapshot is in the table, but its files are missing
        |-- DisplacedCommitError      another writer's snapshot is no longer in the table
        |-- ChangesUnknownError       what is new in an upstream table cannot be determined
        `-- WriteFailedError          the engine failed: read the cause, often the asset's own code. The exception: a
                                      RetryPolicy may try again, as after a lost executor; the IO manager does not

Each class also inherits the builtin that people already catch.
"""

from typing import Any

from typing_extensions import Self


class IcebergSparkError(Exception):
    """Base of every error that the package raises on purpose.

    Attributes:
        allows_retries: Whether trying again, with nothing changed, may help.
    """

    allows_retries: bool = False

    @classmethod
    def refusing(cls, action: str, subject: str, *, expected: str, found: str, hint: str | None = None) -> Self:
        """Build the message `Cannot <action> <subject>: expected X, found Y. Hint: ...`."""
        message = f"Cannot {action} {subject}: expected {expected}, found {found}."
        return cls(f"{message} Hint: {hint}" if hint else message)


class ConfigurationError(IcebergSparkError, ValueError):
    """Fix the configuration or the asset's metadata."""

    @classmethod
    def missing_package(
        cls, action: str, subject: str, *, package: str, install: str | None, found: str = "none"
    ) -> Self:
        """Build the error for a missing Python package. What to install is None if it is unknown."""
        hint = f"install `{install}`." if install else None
        return cls.refusing(action, subject, expected=f"the Python package {package}", found=found, hint=hint)


class MetadataKeyError(ConfigurationError):
    """An `iceberg/` metadata key that does not exist, or a value that it does not take."""

    @classmethod
    def of_value(cls, key: str, place: str, *, expected: str, found: str, hint: str | None = None) -> Self:
        """Build the error for an invalid value of a key, in the metadata that the place names."""
        return cls.refusing("use", f"`{key}` of {place}", expected=expected, found=found, hint=hint)


class PartitioningError(ConfigurationError):
    """The partitions definition, `partition_expr` and the table's columns do not fit together."""


class TableOwnershipError(ConfigurationError):
    """The table belongs to another asset."""


class NotAnIcebergTableError(ConfigurationError):
    """Something that is not an Iceberg table has the name."""


class EngineUnfitError(ConfigurationError):
    """Arrow cannot write the asset.

    Attributes:
        reason: Why the write needs Spark, as the end of a sentence.
    """

    reason: str = ""

    @classmethod
    def because(cls, subject: str, reason: str) -> Self:
        """Build the error for a table that Arrow cannot write."""
        error = cls.refusing(
            "write",
            f"{subject} by Arrow",
            expected="a write that needs no Spark",
            found=f"that {reason}",
            hint='set `iceberg/engine` to "auto" or "spark".',
        )
        error.reason = reason
        return error


class SparkEnvironmentError(ConfigurationError, RuntimeError):
    """Java, the Iceberg runtime or a setting of the Spark session is missing or does not fit."""


class DataError(IcebergSparkError, ValueError):
    """Fix the data that the asset returns."""


class OutputTypeError(DataError, TypeError):
    """The output is neither a Spark DataFrame nor rows that Arrow can hold."""


class SchemaMismatchError(DataError):
    """The frame's columns or types cannot be stored in the table."""


class RowsOutsidePartitionError(DataError):
    """The output holds rows that do not belong to the run's partitions."""


class NullValueError(DataError):
    """A required column holds NULL."""


class MergeKeyError(DataError):
    """The batch repeats a merge key, or holds NULL in one."""


class AuditFailedError(DataError):
    """The staged rows fail an audit.

    Attributes:
        results: The results of all audits, each an `AuditResult`.
    """

    results: tuple[Any, ...] = ()


class UpstreamMissingError(IcebergSparkError, LookupError):
    """The table, snapshot or column that an input reads does not exist."""


class ConcurrentWriteError(IcebergSparkError, RuntimeError):
    """Another run has written the same partitions since this run began, and `iceberg/concurrent_writes` lets it win."""


class UnauditedReleaseError(IcebergSparkError, RuntimeError):
    """A blocking check of an asset has not passed on the rows that a release would publish."""


class JobFailedError(IcebergSparkError, RuntimeError):
    """A job that runs elsewhere has committed no snapshot of its output."""

    allows_retries = True


class ReplayFailedError(IcebergSparkError, RuntimeError):
    """A step of the run that is replayed has failed."""


class RetryableError(IcebergSparkError):
    """The same work may succeed when it is tried again."""

    allows_retries = True


class CommitConflictError(RetryableError):
    """Another writer committed first."""

    @classmethod
    def to_plan_again(cls, action: str, subject: object, *, expected: str, found: str) -> Self:
        """Build the error of a write that has to be planned again."""
        return cls.refusing(action, str(subject), expected=expected, found=found, hint="run the asset again.")


class ChangesConsumedError(RetryableError):
    """Another materialization of the asset has taken the changes that this one read; the next load reads on."""


class MirrorFailedError(RetryableError):
    """The rows are committed, but a mirror does not show them yet."""

    @classmethod
    def after_commit(cls, table: object, found: str) -> Self:
        """Build the error. What was found is the error of the mirror."""
        return cls(
            f"The rows of {table} are committed, but its mirror does not show them yet. {found} The next "
            "materialization catches up, or `dagster-iceberg-spark mirror sync`."
        )


class CatalogUnavailableError(RetryableError, ConnectionError):
    """The catalog or the object store does not answer."""


class CredentialsExpiredError(RetryableError, PermissionError):
    """The catalog or the store no longer takes the credentials."""


class InvestigationError(IcebergSparkError, RuntimeError):
    """Look at the table before doing anything else."""


class CommitOutcomeUnknownError(InvestigationError):
    """The commit may or may not have happened."""


class DuplicateCommitError(InvestigationError):
    """Two snapshots carry one commit token."""


class OrphanedCommitError(InvestigationError):
    """An earlier attempt's append is in the table, written by other code, and no event records it."""


class UnreadableCommitError(InvestigationError):
    """A snapshot is in the table, but its files are missing."""


class DisplacedCommitError(InvestigationError):
    """Another writer's snapshot is no longer in the table's history: the engine has taken it out."""


class ChangesUnknownError(InvestigationError):
    """What is new in an upstream table cannot be determined: rows were removed, or snapshots have expired."""


class WriteFailedError(InvestigationError):
    """The engine failed for the reason that is this error's cause; a `RetryPolicy` may try again."""

    allows_retries = True


def in_words(error: Exception) -> str:
    """Return the message of an error. The name of the class shows where an error of another package comes from."""
    return str(error) if isinstance(error, IcebergSparkError) else f"{type(error).__name__}: {error}"
