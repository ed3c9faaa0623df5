"""Pools of environments not written in JAX, and `HostEnv` for using them in compiled programs."""
