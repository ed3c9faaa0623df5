"""Comparison of results of different programs, whose floats may be rounded differently."""

import chex
import jax
import jax.numpy as jnp
import numpy as np


def assert_agree(found, expected, tolerance=1e-5):
    """Asserts that floats agree up to `tolerance`, relative or absolute, and all else is equal."""
    chex.assert_trees_all_equal_structs(found, expected)
    leaves = jax.tree_util.tree_leaves_with_path(found)
    for (path, a), b in zip(leaves, jax.tree.leaves(expected), strict=True):
        where = jax.tree_util.keystr(path)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if jnp.issubdtype(a.dtype, np.floating):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=where)
        else:
            np.testing.assert_array_equal(a, b, err_msg=where)
