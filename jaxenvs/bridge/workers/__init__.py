"""The code that runs the environments, in the caller's process or in a worker's.

It imports neither JAX nor a room above: a worker process starts with these modules alone.
"""
