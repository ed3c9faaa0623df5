"""Vectorization: batching, resets, devices, and the random keys behind them."""

from jaxenvs.vector.vectorize import vectorize as vectorize
from jaxenvs.vector.vectorized_env import VectorizedEnv as VectorizedEnv
