"""From an OutputContext to one write request, and from a commit to what Dagster shows of it."""
