"""Comparisons of results of different programs, whose floats may be rounded differently."""

import chex
import jax
import jax.numpy as jnp
import numpy as np


def assert_agree(found, expected, tolerance=1e-5):
    """Asserts that two trees have the same structure, shapes, and dtypes, and are close."""
    chex.assert_trees_all_equal_structs(found, expected)
    chex.assert_trees_all_equal_shapes_and_dtypes(found, expected)
    assert_close(found, expected, tolerance)


def assert_same(found, expected):
    """Asserts that two trees have the same shapes, dtypes, and bits, also of keys."""

    def plain(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    chex.assert_trees_all_equal_shapes_and_dtypes(found, expected)
    chex.assert_trees_all_equal(jax.tree.map(plain, found), jax.tree.map(plain, expected))


def assert_close(found, expected, tolerance=1e-5):
    """Asserts that floats agree to `tolerance`, absolute and relative, and all else exactly."""

    def check(path, a, b):
        where = jax.tree_util.keystr(path)
        if jnp.issubdtype(getattr(b, "dtype", None), jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=where)
        else:
            np.testing.assert_array_equal(a, b, err_msg=where)

    jax.tree_util.tree_map_with_path(check, found, expected)
