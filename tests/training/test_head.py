import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training.head import Head


@pytest.mark.parametrize(("features", "shape"), [(2, (7, 4)), (3, (600, 4)), (1, (2, 3, 4))])
def test_a_head_is_a_dense_layer(features, shape):
    x = jax.random.normal(jax.random.key(0), shape)
    ours, theirs = Head(features), nn.Dense(features)
    params = theirs.init(jax.random.key(1), x)

    def loss(layer):
        return lambda params, x: (jnp.sin(layer.apply(params, x)) ** 2).sum()

    def both(params, x):
        return [(jax.grad(loss(layer), (0, 1))(params, x)) for layer in (ours, theirs)]

    jax.tree.map(np.testing.assert_array_equal, ours.init(jax.random.key(1), x), params)
    np.testing.assert_allclose(ours.apply(params, x), theirs.apply(params, x), atol=1e-6)
    mine, their = jax.jit(both)(params, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), mine, their)
