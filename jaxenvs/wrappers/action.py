"""Wrappers of actions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.errors import WrapperError
from jaxenvs.spaces import Box, Discrete, MultiDiscrete, Space
from jaxenvs.wrappers._checks import checked_box, is_count
from jaxenvs.wrappers.transform import Transform


class TransformAction(Transform):
    """Applies a function to every action.

    `func` takes an action of one instance, a member of `action_space`, and returns the action for
    the wrapped environment. Both fields are static: another function compiles again, and so does a
    lambda that is created again.

    Raises:
        WrapperError: `func` is not callable, or `action_space` is not a `Space`.
    """

    func: Callable[[Any], Any] = struct.static()
    action_space: Space = struct.static()  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.func):
            raise WrapperError(f"TransformAction got func={self.func!r}; it must be a function.")
        if not isinstance(self.action_space, Space):
            raise WrapperError(
                f"TransformAction got action_space={self.action_space!r}; it must be the space of"
                " what func takes.  Pass env.action_space if that stays."
            )

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        return memory, self.func(action)


class ClipAction(Transform):
    """Takes any action and clips it to the bounds of the wrapped action space.

    Raises:
        WrapperError: the wrapped action space is not a `Box`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_space("action_space")

    @property
    def action_space(self) -> Box:
        box = checked_box(self, "action_space", self.env.action_space)
        return Box(-np.inf, np.inf, box.shape, box.dtype)

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        box = checked_box(self, "action_space", self.env.action_space)
        return memory, jnp.clip(action, box.low, box.high)


class RescaleAction(Transform):
    """Maps [min_action, max_action] linearly to the bounds of the wrapped action space.

    Both are numbers or arrays of the shape of an action, and leaves. The ends map exactly. Actions
    beyond them are mapped the same way and leave the wrapped space.

    Raises:
        WrapperError: `min_action` is not below `max_action`, one is infinite, or the wrapped
            action space is not a `Box` with finite bounds.
    """

    min_action: chex.Numeric
    max_action: chex.Numeric

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.min_action, self.max_action
        if not struct.is_traced(low, high) and not np.all(
            (low < high) & np.isfinite(low) & np.isfinite(high)
        ):
            raise WrapperError(
                f"RescaleAction got min_action={self.min_action} and max_action={self.max_action};"
                " both must be finite, and the first below the second.  Were the two swapped?"
            )
        self._check_space("action_space")

    @property
    def action_space(self) -> Box:
        box = self._inner_box
        return Box(self.min_action, self.max_action, box.shape, box.dtype)

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        box = self._inner_box
        low, high = (jnp.asarray(x, box.dtype) for x in (self.min_action, self.max_action))
        # Measured from the nearer end, so that both ends map exactly.
        slope = (high - low) / (box.high - box.low)
        from_low = jnp.minimum(box.low + (action - low) / slope, box.high)
        return memory, jnp.where(action < high, from_low, box.high + (action - high) / slope)

    @property
    def _inner_box(self) -> Box:
        return checked_box(self, "action_space", self.env.action_space, bounded=True)


class DiscretizeAction(Transform):
    """Replaces a bounded `Box` of actions with the centers of equal bins.

    `bins` is the number of bins of every element, or one number for each element. The action is
    one integer in Discrete(product of the bins), in which the last element varies fastest; with
    `multidiscrete`, it is an array of integers, one for each element.

    Raises:
        WrapperError: `bins` is not a positive integer or one for each element, or the wrapped
            action space is not a `Box` with finite bounds.
    """

    bins: int | Sequence[int] = struct.static()
    multidiscrete: bool = struct.static(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.bins
        each = tuple(given) if isinstance(given, Sequence | np.ndarray) else (given,)
        if not all(is_count(n, 1) for n in each):
            raise WrapperError(
                f"DiscretizeAction got bins={given!r}; it must be an integer of at least 1, or one"
                " for each element of an action."
            )
        numbers = tuple(int(n) for n in each)  # static fields are hashed
        bins = numbers[0] if isinstance(given, int | np.integer) else numbers
        object.__setattr__(self, "bins", bins)
        self._check_space("action_space")

    @property
    def action_space(self) -> Space:
        bins = self._bins_of(self._inner_box)
        return MultiDiscrete(bins) if self.multidiscrete else Discrete(math.prod(bins.ravel()))

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        box = self._inner_box
        bins = self._bins_of(box)
        index = action
        if not self.multidiscrete:
            flat = bins.ravel().astype(np.int32)
            stride = (math.prod(flat) // np.cumprod(flat)).astype(np.int32)
            index = (action[None] // stride % flat).reshape(box.shape)
        index = jnp.clip(index, 0, bins - 1)
        per_unit = bins.astype(box.dtype) / (box.high - box.low)
        return memory, box.low + (index.astype(box.dtype) + box.dtype.type(0.5)) / per_unit

    def _bins_of(self, box: Box) -> np.ndarray:
        """Returns the number of bins of each element, int32 of the shape of an action."""
        if not isinstance(self.bins, int) and len(self.bins) != box.flat_dim:
            raise WrapperError(
                f"DiscretizeAction got bins={self.bins} for actions of {box.flat_dim} elements."
                "  Pass one number for all of them, or one for each."
            )
        bins = np.asarray(self.bins, np.int32)
        return np.broadcast_to(bins if bins.ndim == 0 else bins.reshape(box.shape), box.shape)

    @property
    def _inner_box(self) -> Box:
        return checked_box(self, "action_space", self.env.action_space, bounded=True)
