"""Values for identifiers, schemas, partition specs, scopes and snapshots. They use the standard library only."""
