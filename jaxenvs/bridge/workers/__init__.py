"""What runs beside the environments, in the caller's process or in a worker's.

It must import neither JAX nor anything above it: a worker process starts with these modules alone.
"""
