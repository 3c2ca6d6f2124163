"""Tests of the assets, as `docs/testing.md` shows them: each has an empty lake of its own."""
