"""A required field of an optional struct is taken for a field that is never NULL.

pyiceberg 0.12.0 binds `IsNull` of a required field to `AlwaysFalse`, and `NotNull` to `AlwaysTrue`. The field is NULL
where its struct is, so rows are lost or kept. It should look at the field's structs too, as Iceberg's Java library does
since https://github.com/apache/iceberg/pull/13804. Not reported for pyiceberg as of 0.12.0.

The predicates of this file are bound as those of an optional field.
"""

from abc import ABC

from pyiceberg.expressions import BoundIsNull, BoundNotNull, BoundTerm, BoundUnaryPredicate, IsNull, NotNull
from typing_extensions import Self


class _BoundInStruct(BoundUnaryPredicate, ABC):
    """A predicate of a field of a struct, which is NULL also where its struct is."""

    def __new__(cls, term: BoundTerm) -> Self:  # noqa: ARG004 - as those of pyiceberg
        """Return the predicate also for a required field."""
        return BoundUnaryPredicate.__new__(cls)


class BoundIsNullInStruct(_BoundInStruct, BoundIsNull):
    """A field of a struct that is NULL."""

    @property
    def as_unbound(self) -> type[IsNull]:
        """The class that is bound to a file's columns."""
        return IsNullInStruct


class BoundNotNullInStruct(_BoundInStruct, BoundNotNull):
    """A field of a struct that has a value."""

    @property
    def as_unbound(self) -> type[NotNull]:
        """The class that is bound to a file's columns."""
        return NotNullInStruct


class IsNullInStruct(IsNull):
    """A field of a struct that is NULL, not bound yet."""

    @property
    def as_bound(self) -> type[BoundIsNull]:
        """The class of what is bound."""
        return BoundIsNullInStruct


class NotNullInStruct(NotNull):
    """A field of a struct that has a value, not bound yet."""

    @property
    def as_bound(self) -> type[BoundNotNull]:
        """The class of what is bound."""
        return BoundNotNullInStruct
