"""Environments and the names of their branches."""

import pytest

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions
from dagster_iceberg_spark.plan.publication.branch import Environment, is_environment_branch


@pytest.mark.parametrize(("name", "branch"), [("pr-7", "env_pr-7"), ("dev_2", "env_dev_2")])
def test_a_branch_has_the_name_of_its_environment(name: str, branch: str) -> None:
    assert Environment(name).branch == branch
    assert is_environment_branch(branch)


def test_other_characters_are_replaced_and_names_stay_apart() -> None:
    branches = {Environment(name).branch for name in ("feature/a.b", "feature_a_b", "feature.a.b")}
    assert len(branches) == 3
    assert all(branch.startswith("env_feature_a_b") for branch in branches)
    assert not is_environment_branch("main")


def test_writes_go_to_the_branch_and_name_no_other() -> None:
    own = Environment("pr")
    assert own.options(WriteOptions(), subject="t").branch == "env_pr"
    with pytest.raises(ConfigurationError, match="`iceberg/branch`: 'audit', in the environment 'pr'"):
        own.options(WriteOptions(branch="audit"), subject="t")
