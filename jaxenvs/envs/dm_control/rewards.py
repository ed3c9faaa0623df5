"""The reward function of the Control Suite."""

import math
from typing import Any

import jax
import jax.numpy as jnp


def tolerance(
    x: jax.Array,
    bounds: tuple[Any, Any] = (0.0, 0.0),
    margin: Any = 0.0,
    sigmoid: str = "gaussian",
    value_at_margin: float = 0.1,
) -> jax.Array:
    """Returns 1 where `x` is within the bounds, and less outside.

    Args:
        x: any shape.
        bounds: the smallest and the largest value that give 1.
        margin: the distance from the bounds at which the result is `value_at_margin`; 0, if not an
            array, gives 0 everywhere outside.
        sigmoid: how the result falls: "gaussian", "long_tail", "linear", or "quadratic".
        value_at_margin: the result at the margin.

    Source: Y. Tassa et al., DeepMind Control Suite, 2018, `dm_control.utils.rewards`.
    """
    lower, upper = bounds
    is_inside = (lower <= x) & (x <= upper)
    if not isinstance(margin, jax.Array) and margin == 0:
        return is_inside.astype(x.dtype)
    distance = jnp.where(x < lower, lower - x, x - upper) / margin
    if sigmoid == "gaussian":
        outside = jnp.exp(math.log(value_at_margin) * distance**2)
    elif sigmoid == "long_tail":
        outside = 1 / ((1 / value_at_margin - 1) * distance**2 + 1)
    elif sigmoid == "linear":
        outside = jnp.maximum(1 - (1 - value_at_margin) * distance, 0)
    else:
        outside = jnp.maximum(1 - (1 - value_at_margin) * distance**2, 0)
    return jnp.where(is_inside, 1, outside)
