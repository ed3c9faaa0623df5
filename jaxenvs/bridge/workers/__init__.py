"""The code that runs environments, in the caller or in a worker process.

It does not import JAX, so that worker processes start quickly.
"""
