"""The calls of Dagster that are not part of its public API. Each has a test that fails when Dagster changes it."""

from typing import Any

from dagster import InputContext, OutputContext


def step_context(context: OutputContext | InputContext) -> Any:
    """Return the context of the step, or None if the context was built by hand or belongs to a script."""
    return context._step_context
