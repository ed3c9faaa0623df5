"""Functions that several tasks of this family share."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.rendering.raster import BLACK, GRAY, TEAL, YELLOW, box, disc, paint, pixel_grid

BANDIT_SHAPE = (160, 160)  # height, width of a bandit's image


def heading(action: chex.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the change of row and column by moving up (0), right (1), down (2), or left (3)."""
    up, right, down, left = np.arange(4, dtype=np.int32)
    rows = (action == down).astype(jnp.int32) - (action == up).astype(jnp.int32)
    columns = (action == right).astype(jnp.int32) - (action == left).astype(jnp.int32)
    return rows, columns


def one_hot(index: jax.Array, size: int) -> jax.Array:
    """Returns float32[size] with 1 at `index`."""
    return (np.arange(size, dtype=np.int32) == index).astype(jnp.float32)


def clock(
    time: jax.Array,
    t_max: chex.Numeric,
    low: chex.Numeric = -1.0,
    high: chex.Numeric = 1.0,
) -> jax.Array:
    """Returns a time in steps, scaled to `low` at the start and `high` after `t_max` steps."""
    steps = time.astype(jnp.float32) / jnp.asarray(t_max, jnp.float32)
    return jnp.asarray((high - low) * steps + low, jnp.float32)


def draw_bandit(heights: jax.Array, last_action: jax.Array, reward: jax.Array) -> jax.Array:
    """Draws a bar per arm, the last arm with a dot that is bright after a reward: uint8[H, W, 3].

    Args:
        heights: float32[2], expected rewards, scaled to 0 at the lower and 1 at the upper edge.
        last_action: int32[], the arm that was pulled last.
        reward: float32[], how bright the dot is, from 0 to 1.
    """
    height, width = BANDIT_SHAPE
    x, y = pixel_grid(BANDIT_SHAPE)
    bars = []
    for arm, level in enumerate(heights):
        top = height * (0.1 + 0.75 * jnp.clip(level, 0.0, 1.0))
        bars.append((box(x, y, ((0.5 * arm + 0.25) * width, top / 2), (0.3 * width, top)), TEAL))
    center = (0.5 * last_action.astype(jnp.float32) + 0.25) * width
    dot = disc(x, y, (center, 0.93 * height), 0.05 * height)
    return paint(BLACK, *bars, (dot, GRAY), (dot * jnp.clip(reward, 0.0, 1.0), YELLOW))
