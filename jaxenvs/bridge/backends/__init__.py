"""How the environments of a pool are run, one module for each backend.

Only `base` is known to pools; nothing here knows pools or JAX.
"""
