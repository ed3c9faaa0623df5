"""Optimizers that are shown small weights as one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxenvs.training.optimizers import adam, linear_decay, with_packed_weights

SHAPES = {
    "small and large": {"a": {"kernel": (3, 5), "bias": (5,)}, "b": (80, 90), "c": (), "d": (2,)},
    "small": {"a": (7,), "b": (4, 2)},
    "large": {"a": (100, 100), "b": (70, 80)},
    "one": {"a": (1,)},
    "none": {},
}


def drawn(shapes, seed):
    leaves, structure = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    random = np.random.default_rng(seed)
    return structure.unflatten(
        [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in leaves]
    )


@functools.partial(jax.jit, static_argnums=0)
def taken(optimizer, params, gradients):
    state = optimizer.init(params)
    for each in gradients:
        with jax.numpy_dtype_promotion("standard"):  # as `Algorithm.apply_gradients`
            changes, state = optimizer.update(each, state, params)
        assert jax.tree.structure(changes) == jax.tree.structure(params)
        params = optax.apply_updates(params, changes)
    return params


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_packed_weights_take_the_same_steps_as_unpacked(shapes):
    inner = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(linear_decay(0.1, 5)))
    params, gradients = drawn(shapes, 0), [drawn(shapes, seed) for seed in range(1, 4)]
    expected, got = (taken(each, params, gradients) for each in (inner, with_packed_weights(inner)))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-7), got, expected)
    own = taken(adam(linear_decay(0.1, 5), 0.5), params, gradients)
    jax.tree.map(np.testing.assert_array_equal, own, got)


def test_packed_weights_decay_as_unpacked_ones_do():
    params, gradients = drawn(SHAPES["small and large"], 0), [drawn(SHAPES["small and large"], 1)]
    expected, got = (
        taken(each, params, gradients)
        for each in (optax.adamw(0.1), with_packed_weights(optax.adamw(0.1)))
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-7), got, expected)


def test_packed_weights_keep_their_dtypes():
    params = {"a": jnp.ones(3, jnp.bfloat16), "b": jnp.ones(2), "c": jnp.ones((2, 2))}
    after = taken(with_packed_weights(optax.sgd(0.5)), params, [params])
    assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, params)
    assert all((leaf == 0.5).all() for leaf in jax.tree.leaves(after))


def test_small_weights_are_one_vector_and_large_ones_their_own():
    state = with_packed_weights(optax.trace(0.9)).init(drawn(SHAPES["small and large"], 0))
    assert [leaf.shape for leaf in jax.tree.leaves(state)] == [(15 + 5 + 1 + 2,), (80, 90)]
