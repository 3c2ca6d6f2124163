"""The vocabulary: identifiers, schemas, partition specs, scopes, snapshots, updates, lineage. Only values."""
