"""Environments of other JAX libraries as native environments, one module for each library."""
