"""The backends of a pool, one module each."""
