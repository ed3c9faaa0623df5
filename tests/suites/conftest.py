"""Tests of other libraries run with JAX's default promotion rules, which their code relies on."""

import ctypes.util
import os

import jax
import pytest

# Suites draw without a display. Not for all tests: a process that has loaded EGL crashes when it
# imports Triton, which torchrl does.
if ctypes.util.find_library("EGL"):
    os.environ.setdefault("MUJOCO_GL", "egl")


@pytest.fixture(autouse=True)
def _usual_promotion():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
