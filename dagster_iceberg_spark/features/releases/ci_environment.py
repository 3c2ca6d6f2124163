"""The environment of a branch deployment or of a run of CI, by the variables of the service."""

import os
import re
from collections.abc import Mapping
from typing import Final

_IS_BRANCH_DEPLOYMENT: Final = "DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT"
_NUMBERS: Final = (
    "DAGSTER_CLOUD_PULL_REQUEST_ID",
    "CI_MERGE_REQUEST_IID",
    "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER",
    "BITBUCKET_PR_ID",
)
"""The number of the pull request in Dagster+, GitLab, Azure Pipelines and Bitbucket."""
_ADDRESSES: Final = ("GITHUB_REF", "CIRCLE_PULL_REQUEST")
"""Where the pull request is, in GitHub Actions (`refs/pull/7/merge`) and in CircleCI (`https://.../pull/7`)."""
_PULL_REQUEST: Final = re.compile(r"(?:^refs|^https://.*)/pull/(\d+)(?:/|$)")


def ci_environment(variables: Mapping[str, str] | None = None) -> str | None:
    """Return the name of the environment of a pull request, such as `pr-7`, or None outside of one.

    Dagster+, GitHub Actions, GitLab, Azure Pipelines, Bitbucket and CircleCI set its number. A branch deployment of
    Dagster+ without a pull request has the name of its deployment.

    Args:
        variables: The environment variables, by default those of the process.

    Example:
        >>> ci_environment({"GITHUB_REF": "refs/pull/7/merge"})
        'pr-7'
        >>> ci_environment({"GITHUB_REF": "refs/heads/main"})
    """
    known = os.environ if variables is None else variables
    for name in _NUMBERS:
        if known.get(name):
            return f"pr-{known[name]}"
    for name in _ADDRESSES:
        found = _PULL_REQUEST.search(known.get(name, ""))
        if found is not None:
            return f"pr-{found[1]}"
    if known.get(_IS_BRANCH_DEPLOYMENT) == "1":
        return known.get("DAGSTER_CLOUD_DEPLOYMENT_NAME")
    return None
