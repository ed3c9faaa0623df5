"""Environments that are not JAX: pools of them, and the way from a jitted program to a pool."""
