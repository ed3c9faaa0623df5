"""Wrappers that map actions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.errors import SpaceError, WrapperError, check_integer
from jaxenvs.spaces import Box, Discrete, MultiDiscrete, Space
from jaxenvs.wrappers._checks import check_function, check_given_space, wrapped_box
from jaxenvs.wrappers.transform import Transform


class TransformAction(Transform):
    """Applies a function to every action.

    `func` takes the action of one instance, a member of `action_space`, and returns the action for
    the wrapped environment. Both fields are static: a different function triggers recompilation,
    and so does the same lambda if it is created again.

    Raises:
        WrapperError: `func` is not callable, or `action_space` is not a space.
    """

    func: Callable[[Any], Any] = struct.static()
    action_space: Space = struct.static()  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_function(self)
        check_given_space(self, "action_space")

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        return memory, self.func(action)


class ClipAction(Transform):
    """Clips actions to the bounds of the wrapped action space.

    Its own space has no bounds, or those of the dtype for integers.

    Raises:
        WrapperError: the wrapped action space is not a `Box`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_space("action_space")

    @property
    def action_space(self) -> Box:
        box = wrapped_box(self, "action_space")
        if np.issubdtype(box.dtype, np.integer):
            limits = np.iinfo(box.dtype)
            return Box(limits.min, limits.max, box.shape, box.dtype)
        return Box(-np.inf, np.inf, box.shape, box.dtype)

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        box = wrapped_box(self, "action_space")
        return memory, jnp.clip(action, box.low, box.high)


class RescaleAction(Transform):
    """Maps [min_action, max_action] linearly onto the bounds of the wrapped action space.

    Both bounds are leaves: numbers, or arrays of the shape of an action. The end points map to the
    inner bounds exactly. Actions outside the interval are mapped linearly too, to values outside
    the wrapped space.

    Raises:
        WrapperError: `min_action` is not below `max_action`, one is infinite or has another shape,
            or the wrapped action space is not a floating-point `Box` with finite bounds.
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
                " both must be finite, and min_action below max_action.  Are they swapped?"
            )
        self._check_space("action_space")

    @property
    def action_space(self) -> Box:
        box = wrapped_box(self, "action_space", scales=True)
        try:
            return Box(self.min_action, self.max_action, box.shape, box.dtype)
        except SpaceError as error:
            raise WrapperError(
                f"RescaleAction got min_action={self.min_action} and max_action={self.max_action}:"
                f" {error}"
            ) from error

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        box = wrapped_box(self, "action_space", scales=True)
        low, high = (jnp.asarray(x, box.dtype) for x in (self.min_action, self.max_action))
        # Compute from the nearer end, so that both ends are exact. Divide instead of multiplying:
        # XLA fuses a product and a sum in some programs only, and the results would round
        # differently.
        slope = (high - low) / (box.high - box.low)
        from_low = jnp.minimum(box.low + (action - low) / slope, box.high)
        return memory, jnp.where(action < high, from_low, box.high + (action - high) / slope)


class DiscretizeAction(Transform):
    """Divides a bounded `Box` of actions into equal bins and uses the bins' midpoints as actions.

    `bins` is the number of bins for every element of an action, or a sequence with one number per
    element. An action is one integer in Discrete(product of the bins), where the last element
    varies fastest. With `multidiscrete`, it is an array with one integer per element.

    Raises:
        WrapperError: `bins` is neither a positive integer nor one positive integer per element, the
            wrapped action space is not a floating-point `Box` with finite bounds, or the product of
            the bins does not fit into int32.
    """

    bins: int | Sequence[int] = struct.static()
    multidiscrete: bool = struct.static(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.bins
        counts = tuple(given) if isinstance(given, Sequence | np.ndarray) else (given,)
        counts = tuple(check_integer(WrapperError, "DiscretizeAction got bins", n) for n in counts)
        bins = counts[0] if isinstance(given, int | np.integer) else counts
        object.__setattr__(self, "bins", bins)
        self._check_space("action_space")

    @property
    def action_space(self) -> Space:
        bins = self._bins_per_element(wrapped_box(self, "action_space", scales=True))
        if self.multidiscrete:
            return MultiDiscrete(bins)
        count = math.prod(bins.ravel().tolist())  # Python integers do not overflow
        if count > np.iinfo(np.int32).max:
            raise WrapperError(
                f"DiscretizeAction got bins={self.bins} for actions of {bins.size} elements, which"
                f" makes {count} actions, more than int32 can number.  Pass multidiscrete=True."
            )
        return Discrete(count)

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        box = wrapped_box(self, "action_space", scales=True)
        bins = self._bins_per_element(box)
        index = action
        if not self.multidiscrete:
            flat = bins.ravel().astype(np.int32)
            stride = (math.prod(flat) // np.cumprod(flat)).astype(np.int32)
            index = (action[None] // stride % flat).reshape(box.shape)
        index = jnp.clip(index, 0, bins - 1)
        # Divide for the same reason as in `RescaleAction`.
        per_unit = bins.astype(box.dtype) / (box.high - box.low)
        return memory, box.low + (index.astype(box.dtype) + box.dtype.type(0.5)) / per_unit

    def _bins_per_element(self, box: Box) -> np.ndarray:
        """Returns the number of bins for each element, as int32 in the shape of an action."""
        if not isinstance(self.bins, int) and len(self.bins) != box.flat_dim:
            raise WrapperError(
                f"DiscretizeAction got bins={self.bins} for actions of {box.flat_dim} elements."
                "  Pass one number for all elements, or one number per element."
            )
        bins = np.asarray(self.bins, np.int32)
        return np.broadcast_to(bins if bins.ndim == 0 else bins.reshape(box.shape), box.shape)
