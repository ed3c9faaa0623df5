"""Vectorization: batching, resets, devices, and the random keys behind them."""

from jaxenvs.vector.vectorize import VectorizedEnv as VectorizedEnv
from jaxenvs.vector.vectorize import vectorize as vectorize
