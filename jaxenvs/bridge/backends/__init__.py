"""How the environments of a pool are run, one module for each backend.

Pools know only `backend`; nothing here knows pools or JAX.
"""
