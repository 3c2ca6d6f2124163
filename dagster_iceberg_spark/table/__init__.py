"""The vocabulary: identifiers, schemas, partition specs, scopes, snapshots, updates, lineage. Standard library only."""
