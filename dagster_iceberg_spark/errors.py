"""The package's errors, grouped by what the reader does next.

    IcebergSparkError
    |-- ConfigurationError            fix the configuration or the asset's metadata; never retried
    |   |-- MetadataKeyError          a metadata key or its value
    |   |-- PartitioningError         partitions definition, `partition_expr` and table do not fit together
    |   |-- TableOwnershipError       the table belongs to another asset
    |   |-- NotAnIcebergTableError    something else lives under the table's name
    |   `-- SparkEnvironmentError     Java, the Iceberg runtime or the session's own configuration
    |-- DataError                     fix the data that the asset returns; never retried
    |   |-- OutputTypeError           not a Spark DataFrame
    |   |-- SchemaMismatchError       columns or types that the table cannot take
    |   |-- RowsOutsidePartitionError rows that the run does not own
    |   |-- NullValueError            NULL in a required column
    |   `-- MergeKeyError             NULL or repeated merge keys in the batch
    |-- UpstreamMissingError          materialize the upstream asset first; never retried
    |-- RetryableError                try again: a RetryPolicy may
    |   |-- CommitConflictError       another writer committed first
    |   |-- ChangesConsumedError      another materialization has taken the changes that this one has read
    |   |-- CatalogUnavailableError   the catalog, the store or the server does not answer
    |   `-- CredentialsExpiredError   the catalog or the store took the credentials before, and does not any more
    `-- InvestigationError            look before you do anything; never retried
        |-- CommitOutcomeUnknownError the commit may or may not have happened
        |-- DuplicateCommitError      two snapshots carry one commit token
        |-- OrphanedCommitError       an earlier append is in the table that no event records
        |-- UnreadableCommitError     a snapshot is in the table whose files are not
        |-- DisplacedCommitError      another writer's snapshot is not in the table any more
        |-- ChangesUnknownError       what is new in an upstream table cannot be told
        `-- WriteFailedError          the engine failed for a reason of its own; a RetryPolicy may try again

Each class also inherits the builtin that people already catch.
"""

from typing import ClassVar, TypeVar

from typing_extensions import Self

_ErrorT = TypeVar("_ErrorT", bound="IcebergSparkError")


class IcebergSparkError(Exception):
    """Base of every error that the package raises on purpose.

    Attributes:
        allows_retries: Whether trying again, with nothing changed, may help.
    """

    allows_retries: ClassVar[bool] = False

    @classmethod
    def refusing(cls, action: str, subject: str, *, expected: str, found: str, hint: str | None = None) -> Self:
        """Build the message `Cannot <action> <subject>: expected X, found Y. Hint: ...`.

        Args:
            action: The verb, such as "write".
            subject: The table, asset or setting that the sentence is about.
            expected: What would have been right.
            found: What was there.
            hint: What to do about it.
        """
        message = f"Cannot {action} {subject}: expected {expected}, found {found}."
        return cls(f"{message} Hint: {hint}" if hint else message)


class ConfigurationError(IcebergSparkError, ValueError):
    """Fix the configuration or the asset's metadata."""


class MetadataKeyError(ConfigurationError):
    """An `iceberg/` metadata key that does not exist, or a value that it does not take."""


class PartitioningError(ConfigurationError):
    """The partitions definition, `partition_expr` and the table's columns do not fit together."""


class TableOwnershipError(ConfigurationError):
    """The table belongs to another asset."""


class NotAnIcebergTableError(ConfigurationError):
    """The name is taken by something that is not an Iceberg table."""


class SparkEnvironmentError(ConfigurationError, RuntimeError):
    """Java, the Iceberg runtime, or a setting of the Spark session is missing or unfit."""


class DataError(IcebergSparkError, ValueError):
    """Fix the data that the asset returns."""


class OutputTypeError(DataError, TypeError):
    """The output is not a Spark DataFrame that can be written."""


class SchemaMismatchError(DataError):
    """The frame's columns or types cannot be stored in the table."""


class RowsOutsidePartitionError(DataError):
    """The frame holds rows that the run's partitions do not own."""


class NullValueError(DataError):
    """A required column holds NULL."""


class MergeKeyError(DataError):
    """The batch repeats a merge key, or holds NULL in one."""


class UpstreamMissingError(IcebergSparkError, LookupError):
    """The table, snapshot or column that an input reads does not exist."""


class RetryableError(IcebergSparkError):
    """The same work may succeed when it is tried again."""

    allows_retries = True


class CommitConflictError(RetryableError):
    """Another writer committed first."""


class ChangesConsumedError(RetryableError):
    """Another materialization of the asset has taken the changes that this one has read; the next load reads on."""


class CatalogUnavailableError(RetryableError, ConnectionError):
    """The catalog or the object store does not answer."""


class CredentialsExpiredError(RetryableError, PermissionError):
    """The catalog or the store took the credentials before, and does not any more."""


class InvestigationError(IcebergSparkError, RuntimeError):
    """Look at the table before doing anything else."""


class CommitOutcomeUnknownError(InvestigationError):
    """The commit may or may not have happened."""


class DuplicateCommitError(InvestigationError):
    """Two snapshots carry one commit token."""


class OrphanedCommitError(InvestigationError):
    """An append of an earlier attempt is in the table, written by other code, and no event records it."""


class UnreadableCommitError(InvestigationError):
    """A snapshot is in the table whose files are not."""


class DisplacedCommitError(InvestigationError):
    """The engine has taken another writer's snapshot out of the table's history."""


class ChangesUnknownError(InvestigationError):
    """What is new in an upstream table cannot be told: rows were removed, or snapshots have expired."""


class WriteFailedError(InvestigationError):
    """The engine failed for a reason of its own, which is this error's cause."""

    allows_retries = True
