"""Vectorization: batching, resets, devices, and the random keys behind them."""
