"""The vocabulary: identifiers, schemas, partition specs, scopes, snapshots. Standard library only."""
