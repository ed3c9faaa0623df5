"""Programs that run in few kernels around what cannot be in one."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from jaxenvs.vector.kernels import in_kernels


def test_sorts_stand_between_kernels():
    def call(x, key):
        noise = jax.random.normal(key, x.shape)
        rank = jnp.sort(x + noise)
        total = jnp.cumsum(jnp.sort(rank * x) ** 2)
        return {"total": total, "same": x, "one": 1.0, "noise": noise, "unused": None}

    given = jnp.arange(8.0)[::-1], jax.random.key(3)
    found, expected = jax.jit(in_kernels(call))(*given), jax.jit(call)(*given)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    text = jax.jit(in_kernels(call)).lower(*given).as_text()
    assert text.count("call @kernel") == 3  # before, between, and after the sorts


def test_a_step_with_a_foreign_call_has_two_kernels():
    envs = jaxenvs.make_vec("InvertedPendulum-v5", 2, time_limit=2)
    state, _ = jax.jit(envs.reset)(jax.random.key(0))
    action = np.ones((2, 1), np.float32)
    plain, ours = jax.jit(envs.step), jax.jit(in_kernels(envs.step))
    assert ours.lower(state, action, jax.random.key(0)).as_text().count("call @kernel") == 2
    other = state
    for i in range(5):
        state, timestep = plain(state, action, jax.random.key(i))
        other, found = ours(other, action, jax.random.key(i))
        for a, b in zip(
            jax.tree.leaves((state, timestep)), jax.tree.leaves((other, found)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_constants_are_inside_the_kernels_that_read_them():
    table = jnp.arange(3_000.0).reshape(-1, 3)

    def call(x, i):
        return jnp.sort(x * table[i]) + table[i + 1], table[0]

    given = jnp.array([1.0, -1.0, 2.0]), jnp.int32(2)
    found = jax.jit(in_kernels(call))(*given)  # XLA would abort
    for ours, theirs in zip(found, jax.jit(call)(*given), strict=True):
        np.testing.assert_array_equal(ours, theirs)
