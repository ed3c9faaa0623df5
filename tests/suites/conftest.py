"""Tests of other libraries run with JAX's default promotion rules, which their code relies on."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _usual_promotion():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
