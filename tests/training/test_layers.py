"""Convolutions as products of windows, against those of flax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training.layers import Conv, NarrowDense, convolution, window_convolution

KEY = jax.random.key(0)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("kernel_size", "strides", "sides"),
    [
        ((8, 8), (4, 4), (21, 20)),
        ((4, 4), (2, 2), (9, 10)),
        ((3, 3), (1, 1), (5, 7)),
        ((3, 2), (2, 1), (8, 6)),  # not a whole number of strides
        ((1, 3), (3, 2), (7, 9)),  # and shorter than one
    ],
)
def test_window_convolution_and_gradients_match_flax_conv(kernel_size, strides, sides, padding):
    x = jax.random.normal(KEY, (2, *sides, 3))
    theirs = nn.Conv(4, kernel_size, strides, padding=padding)
    ours = Conv(4, kernel_size, strides, padding=padding)
    params = theirs.init(KEY, x)
    assert jax.tree.map(jnp.shape, ours.init(KEY, x)) == jax.tree.map(jnp.shape, params)

    @jax.jit
    def everything(params, x):
        made = [
            jax.vjp(apply, params, x)
            for apply in (theirs.apply, ours.apply, _by_xla(strides, padding))
        ]
        return [(y, *pull(jnp.sin(y))) for y, pull in made]

    expected, *rest = everything(params, x)
    for got in rest:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, expected)


def _by_xla(strides, padding):
    def apply(params, x):
        kernel, bias = params["params"]["kernel"], params["params"]["bias"]
        return convolution(x, kernel, strides, padding) + bias[None, None, None]

    return apply


def test_window_convolution_supports_vmap_and_empty_batches():
    kernels = jax.random.normal(KEY, (3, 3, 3, 2, 4))
    x = jax.random.normal(KEY, (3, 5, 6, 6, 2))
    together = jax.vmap(lambda x, kernel: window_convolution(x, kernel, (1, 1), "VALID"))(
        x, kernels
    )
    for i in range(3):
        alone = convolution(x[i], kernels[i], (1, 1), "VALID")
        np.testing.assert_allclose(together[i], alone, atol=2e-5)
    assert window_convolution(x[0, :0], kernels[0], (1, 1), "SAME").shape == (0, 6, 6, 4)


@pytest.mark.parametrize(("features", "shape"), [(2, (7, 4)), (3, (600, 4)), (1, (2, 3, 4))])
def test_narrow_dense_matches_flax_dense(features, shape):
    x = jax.random.normal(jax.random.key(0), shape)
    ours, theirs = NarrowDense(features), nn.Dense(features)
    params = theirs.init(jax.random.key(1), x)

    def loss(layer):
        return lambda params, x: (jnp.sin(layer.apply(params, x)) ** 2).sum()

    def both(params, x):
        return [(jax.grad(loss(layer), (0, 1))(params, x)) for layer in (ours, theirs)]

    jax.tree.map(np.testing.assert_array_equal, ours.init(jax.random.key(1), x), params)
    np.testing.assert_allclose(ours.apply(params, x), theirs.apply(params, x), atol=1e-6)
    mine, their = jax.jit(both)(params, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), mine, their)
