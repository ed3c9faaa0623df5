"""Convolutions as products of windows, against those of flax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training.layers import Conv, NarrowDense, convolution, window_convolution
from tests.ids import diagonal

KEY = jax.random.key(0)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("sizes", "padding"),
    diagonal(
        [
            ((8, 8), (4, 4), (21, 20)),
            ((4, 4), (2, 2), (9, 10)),
            ((3, 3), (1, 1), (5, 7)),
            ((3, 2), (2, 1), (8, 6)),  # not a whole number of strides
            ((1, 3), (3, 2), (7, 9)),  # and shorter than one
        ],
        ["SAME", "VALID"],
    ),
)
def test_window_convolution_and_gradients_match_flax_conv(sizes, padding):
    kernel_size, strides, sides = sizes
    x = normal(2, *sides, 3)
    theirs = nn.Conv(4, kernel_size, strides, padding=padding)
    ours = Conv(4, kernel_size, strides, padding=padding)
    params, own = (jax.eval_shape(each.init, KEY, x) for each in (theirs, ours))
    assert own == params

    @jax.jit
    def everything(x):
        params = theirs.init(KEY, x)
        made = [
            jax.vjp(apply, params, x)
            for apply in (theirs.apply, ours.apply, _by_xla(strides, padding))
        ]
        return [(y, *pull(jnp.sin(y))) for y, pull in made]

    expected, *rest = everything(x)
    for got in rest:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, expected)


def _by_xla(strides, padding):
    def apply(params, x):
        kernel, bias = params["params"]["kernel"], params["params"]["bias"]
        return convolution(x, kernel, strides, padding) + bias[None, None, None]

    return apply


def test_window_convolution_supports_vmap_and_empty_batches():
    kernels, x = normal(3, 3, 3, 2, 4), normal(3, 5, 6, 6, 2)

    @jax.jit
    def both(x, kernels):
        vmapped = jax.vmap(lambda x, kernel: window_convolution(x, kernel, (1, 1), "VALID"))
        alone = [convolution(x[i], kernels[i], (1, 1), "VALID") for i in range(3)]
        empty = window_convolution(x[0, :0], kernels[0], (1, 1), "SAME")
        return vmapped(x, kernels), jnp.stack(alone), empty

    together, alone, empty = both(x, kernels)
    np.testing.assert_allclose(together, alone, atol=2e-5)
    assert empty.shape == (0, 6, 6, 4)


@pytest.mark.parametrize(("features", "shape"), [(2, (7, 4)), (3, (600, 4)), (1, (2, 3, 4))])
def test_narrow_dense_matches_flax_dense(features, shape):
    x = normal(*shape)
    ours, theirs = NarrowDense(features), nn.Dense(features)

    def loss(layer):
        return lambda params, x: (jnp.sin(layer.apply(params, x)) ** 2).sum()

    @jax.jit
    def both(x):
        params = theirs.init(KEY, x)
        return [
            (layer.init(KEY, x), layer.apply(params, x), jax.grad(loss(layer), (0, 1))(params, x))
            for layer in (ours, theirs)
        ]

    (drawn, y, mine), (params, expected, their) = both(x)
    jax.tree.map(np.testing.assert_array_equal, drawn, params)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), mine, their)
