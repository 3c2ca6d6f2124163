"""The tree of errors: its shape, its messages, and which errors allow retries."""

import inspect
import re

import pytest

from dagster_iceberg_spark import errors
from dagster_iceberg_spark.errors import IcebergSparkError

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, IcebergSparkError)
}
BUILTINS = {
    "ConfigurationError": ValueError,
    "SparkEnvironmentError": RuntimeError,
    "DataError": ValueError,
    "OutputTypeError": TypeError,
    "UnauditedReleaseError": RuntimeError,
    "UpstreamMissingError": LookupError,
    "CatalogUnavailableError": ConnectionError,
    "InvestigationError": RuntimeError,
}
RETRIED = {
    "CatalogUnavailableError",
    "ChangesConsumedError",
    "CommitConflictError",
    "CredentialsExpiredError",
    "JobFailedError",
    "MirrorFailedError",
    "RetryableError",
    "WriteFailedError",
}


def drawing() -> dict[str, str]:
    """Return each class in the docstring's tree with its parent."""
    parents: list[tuple[int, str]] = []
    tree = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^ {4}((?:[|` ] {3})*)(?:[|`]-- )?([A-Z]\w+Error)\b", line)
        if match is None:
            continue
        depth = match.start(2)
        parents = [(level, name) for level, name in parents if level < depth]
        tree[match[2]] = parents[-1][1] if parents else "Exception"
        parents.append((depth, match[2]))
    return tree


def test_the_tree_is_as_the_docstring_draws_it() -> None:
    assert drawing() == {name: cls.__bases__[0].__name__ for name, cls in CLASSES.items()}


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_says_whether_it_allows_retries(name: str) -> None:
    assert CLASSES[name].allows_retries == (name in RETRIED)


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items())
def test_an_error_is_also_the_builtin_that_users_catch(name: str, builtin: type[Exception]) -> None:
    assert builtin in CLASSES[name].__bases__


@pytest.mark.parametrize("name", CLASSES)
def test_a_refusal_is_one_sentence_and_a_hint(name: str) -> None:
    error = CLASSES[name].refusing("write", "nyc.flights", expected="this", found="that", hint="do so.")
    assert type(error) is CLASSES[name]
    assert str(error) == "Cannot write nyc.flights: expected this, found that. Hint: do so."


def test_a_refusal_without_a_hint_ends_with_what_was_found() -> None:
    error = IcebergSparkError.refusing("read", "t", expected="a", found="b")
    assert str(error) == "Cannot read t: expected a, found b."


def test_a_missing_package_is_named_with_what_to_install() -> None:
    error = errors.ConfigurationError.missing_package("read", "t", package="s3fs", install="dagster-iceberg-spark[s3]")
    assert str(error) == (
        "Cannot read t: expected the Python package s3fs, found none. Hint: install `dagster-iceberg-spark[s3]`."
    )


def test_a_metadata_key_is_named_with_its_subject() -> None:
    error = errors.MetadataKeyError.of_value("iceberg/limit", "the input", expected="a number of rows", found="'x'")
    assert str(error) == "Cannot use `iceberg/limit` of the input: expected a number of rows, found 'x'."
