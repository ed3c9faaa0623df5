"""What steps the environments of a pool: one module each."""
