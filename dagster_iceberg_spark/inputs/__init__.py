"""From an InputContext to one read request, to rows as the input is annotated, and how far an asset has read."""
