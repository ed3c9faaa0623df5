"""Box2D's engine. The tests of its tasks compare whole motions with Gymnasium's."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.box2d.lunar_lander import WORLD
from jaxenvs.physics.box2d.impact import Sweep, time_of_impact
from jaxenvs.physics.box2d.lanes import in_batches


def test_nested_batches_are_one_batch():
    scale = in_batches(lambda rows, factor: rows * factor[:, None])
    rows, factors = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4), np.float32([2, 3, 5])
    found = jax.jit(jax.vmap(jax.vmap(scale), (0, None)))(rows, factors)
    np.testing.assert_array_equal(found, rows * factors[:, None])


@jax.jit
def impact(start, end, turn):
    """Returns when a leg that moves from `start` to `end` hits an edge from (0, 0) to (2, 0)."""
    shape = jax.tree.map(lambda x: x[1:2, :, None], WORLD._shape())
    one = jnp.ones((1, 1, 1), jnp.float32)
    start, end = (tuple(c * one for c in point) for point in (start, end))
    sweep = Sweep(start, 0 * one, end, turn * one, shape.center)
    return time_of_impact([(0 * one, 0 * one), (2 * one, 0 * one)], shape, sweep)


def test_impacts_are_found_even_within_a_step():
    half = 8 / 30  # m, from a leg's center to its lower side
    assert impact((1.0, 1.0), (1.0, 0.5), 0.0) == 1  # stops above
    time = impact((1.0, 1.0), (1.0, -1.0), 0.0)  # passes through
    assert abs(1 - 2 * time - half - 0.005) < 0.002
    assert impact((1.0, 1.0), (3.0, 1.0), 0.0) == 1
    # A leg that overlaps has no first time.
    assert impact((0.1, 0.1), (0.1, 0.1), 0.01) == 1
