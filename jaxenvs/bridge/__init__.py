"""Pools of environments that are not JAX, and `HostEnv`, through which programs step them."""
