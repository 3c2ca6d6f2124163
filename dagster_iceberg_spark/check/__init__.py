"""Whether a catalog and a session can be used: asked before an asset finds out."""
