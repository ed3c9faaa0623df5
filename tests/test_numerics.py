import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.numerics import sincos, wrap_angle

pytestmark = pytest.mark.optimized


@pytest.mark.parametrize(("reach", "bound"), [(1.0, 1.2e-7), (100.0, 1.2e-7), (1e4, 2e-7)])
def test_sincos_stays_within_its_error_bound(reach, bound):
    x = np.linspace(-reach, reach, 1_000_001).astype(np.float32)
    sin, cos = jax.jit(sincos)(x)
    exact = x.astype(np.float64)
    assert np.abs(sin - np.sin(exact)).max() < bound
    assert np.abs(cos - np.cos(exact)).max() < bound
    assert max(np.abs(sin).max(), np.abs(cos).max()) <= 1


def test_sincos_near_multiples_of_a_quarter_turn():
    quarters = np.arange(-64, 65)[:, None] * (np.pi / 2)
    x = (quarters + np.linspace(-1e-4, 1e-4, 2001)[None]).astype(np.float32)
    sin, cos = jax.jit(sincos)(x)
    np.testing.assert_allclose(sin, np.sin(x.astype(np.float64)), rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(cos, np.cos(x.astype(np.float64)), rtol=0, atol=1.2e-7)


def test_sincos_of_zero_and_tiny_angles():
    sin, cos = sincos(jnp.array([0.0, 1e-8, -1e-8, 1e-30]))
    np.testing.assert_array_equal(sin, np.float32([0.0, 1e-8, -1e-8, 1e-30]))
    np.testing.assert_array_equal(cos, np.ones(4))


def test_sincos_of_nan_and_infinity_is_nan():
    for value in sincos(jnp.array([jnp.nan, jnp.inf, -jnp.inf])):
        assert jnp.isnan(value).all()


def test_sincos_has_the_same_bits_under_jit_vmap_and_scan():
    x = jnp.linspace(-100, 100, 4096)
    whole = jax.jit(sincos)(x)
    mapped = jax.jit(jax.vmap(sincos))(x)
    _, scanned = jax.jit(lambda x: jax.lax.scan(lambda _, v: (None, sincos(v)), None, x))(x)
    for others in (mapped, scanned):
        for one, other in zip(whole, others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_sincos_derivatives():
    x = jnp.linspace(-20, 20, 101)
    sin, cos = sincos(x)
    first = jax.vmap(jax.grad(lambda v: sincos(v)[0]))(x)
    second = jax.vmap(jax.grad(jax.grad(lambda v: sincos(v)[0])))(x)
    np.testing.assert_array_equal(first, cos)
    np.testing.assert_array_equal(second, -sin)
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda v: sincos(v)[1]))(x), -sin)


def test_sincos_in_float64():
    with jax.enable_x64(True):
        x = jnp.linspace(-100.0, 100.0, 10_001, dtype=jnp.float64)
        sin, cos = sincos(x)
        assert sin.dtype == cos.dtype == jnp.float64
        np.testing.assert_allclose(sin, np.sin(np.asarray(x)), rtol=0, atol=1e-15)
        np.testing.assert_allclose(cos, np.cos(np.asarray(x)), rtol=0, atol=1e-15)


def test_wrap_angle_range_and_direction():
    angle = jnp.linspace(-80, 80, 100_001)
    wrapped = jax.jit(wrap_angle)(angle)
    assert wrapped.dtype == jnp.float32
    assert jnp.abs(wrapped).max() <= math.pi + 1e-5
    exact = np.asarray(angle, np.float64)
    turned = np.asarray(wrapped, np.float64)
    np.testing.assert_allclose(np.cos(turned), np.cos(exact), atol=1e-5)
    np.testing.assert_allclose(np.sin(turned), np.sin(exact), atol=1e-5)


def test_wrap_angle_keeps_angles_in_range():
    angle = jnp.linspace(-3.14, 3.14, 1001)
    np.testing.assert_array_equal(wrap_angle(angle), angle)
