"""How tables and their namespaces are created."""

import pytest

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.write.placement import TableCreation


@pytest.mark.parametrize(
    ("key", "hint"), [("location", "place tables by `table_location`."), ("owner", "Spark sets it to its user.")]
)
def test_properties_that_namespaces_cannot_share_are_refused(key: str, hint: str) -> None:
    assert TableCreation(namespace_properties={"team": "nyc"}).namespace_properties == {"team": "nyc"}
    with pytest.raises(ConfigurationError) as caught:
        TableCreation(namespace_properties={"team": "nyc", key: "x"})
    assert str(caught.value) == (
        f"Cannot use `namespace_properties`: expected properties that suit every namespace, found {key!r}. Hint: {hint}"
    )
