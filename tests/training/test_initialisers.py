"""Initial weights are flax's, in every batch."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from jaxenvs.training.initialisers import orthogonal

KEYS = jax.random.split(jax.random.key(0), 3)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 2, 3, 4), (1, 6)])
def test_draws_are_flaxs_alone_and_batched(shape):
    ours, flaxs = orthogonal(1.5), nn.initializers.orthogonal(1.5)
    expected = [flaxs(key, shape, jnp.float32) for key in KEYS]
    for key, each in zip(KEYS, expected, strict=True):
        chex.assert_trees_all_close(ours(key, shape, jnp.float32), each, atol=1e-6)
    batched = jax.vmap(lambda key: ours(key, shape))(KEYS)
    chex.assert_trees_all_close(batched, jnp.stack(expected), atol=1e-6)
    twice = jax.vmap(jax.vmap(lambda key: ours(key, shape)))(KEYS.reshape(3, 1))
    chex.assert_trees_all_close(twice[:, 0], jnp.stack(expected), atol=1e-6)


def test_no_batch_is_factorised_at_once():
    """Up to jax 0.10 several at once wait for each other for ever."""
    text = jax.jit(jax.vmap(lambda key: orthogonal()(key, (8, 8)))).lower(KEYS).as_text()
    factorisations = [line for line in text.splitlines() if "geqrf" in line.lower()]
    assert factorisations and not any("tensor<3x8x8" in line for line in factorisations)
    batched = jax.vmap(lambda key: nn.initializers.orthogonal()(key, (8, 8)))
    text = jax.jit(batched).lower(KEYS).as_text()
    assert any("geqrf" in line.lower() and "tensor<3x8x8" in line for line in text.splitlines())
