"""Opens, shares and ends sessions. Everything else takes a session that is open."""
