"""Wrappers that map, filter, flatten, rescale and convert observations."""

from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxenvs import spaces, struct
from jaxenvs.errors import SpaceError, WrapperError
from jaxenvs.spaces.space import ArraySpace
from jaxenvs.wrappers._checks import check_function, check_given_space
from jaxenvs.wrappers._observation import ObservationTransform


class TransformObservation(ObservationTransform):
    """Applies a function to every observation. The result is a member of `observation_space`.

    `func` is pure and takes the observation of one instance. It is static: a different function
    triggers recompilation, and so does the same lambda if it is created again.

    Raises:
        WrapperError: `func` is not callable, `observation_space` is not a space, or the result of
            `func` has a different structure or shape than the members of `observation_space`.

    Source: Gymnasium's TransformObservation, where the space is optional.
    """

    func: Callable[[Any], Any] = struct.static()
    observation_space: spaces.Space = struct.static()  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        check_function(self)
        check_given_space(self, "observation_space")
        super().__post_init__()

    def map_observation(self, observation: Any) -> Any:
        mapped = self.func(observation)
        found, expected = (
            jax.tree.map(jnp.shape, tree)
            for tree in (mapped, jax.eval_shape(self.observation_space.sample, jax.random.key(0)))
        )
        if found != expected:
            raise WrapperError(
                f"TransformObservation got a func that returned {found}; members of"
                f" {self.observation_space} have {expected}.  Change func or the space."
            )
        return mapped


class FilterObservation(ObservationTransform):
    """Keeps the parts of a dict or tuple that `filter_keys` names and drops all others.

    For a tuple, the result has the order of `filter_keys`.

    Raises:
        WrapperError: observations are neither dicts nor tuples, or `filter_keys` is empty, contains
            duplicates, or names a part that does not exist.

    Source: Gymnasium's FilterObservation.
    """

    filter_keys: Sequence[str | int] = struct.static()

    def __post_init__(self) -> None:
        if isinstance(self.filter_keys, str) or not isinstance(self.filter_keys, Sequence):
            raise WrapperError(
                f"FilterObservation got filter_keys={self.filter_keys!r}; it must be a list of dict"
                " keys or of tuple indices."
            )
        object.__setattr__(self, "filter_keys", tuple(self.filter_keys))  # hashable
        super().__post_init__()

    @property
    def observation_space(self) -> spaces.Space:
        inner = self.env.observation_space
        if not isinstance(inner, spaces.Dict | spaces.Tuple):
            raise WrapperError(
                f"FilterObservation needs observations that are dicts or tuples, got {inner}."
            )
        parts = list(inner.spaces) if isinstance(inner, spaces.Dict) else list(range(len(inner)))
        given = list(self.filter_keys)
        if not given or len(set(given)) < len(given) or not set(given) <= set(parts):
            raise WrapperError(
                f"FilterObservation got filter_keys={given}; it must name one or more of {parts},"
                " without duplicates."
            )
        kept = self._keep(inner.spaces)
        return spaces.Dict(kept) if isinstance(inner, spaces.Dict) else spaces.Tuple(kept)

    def map_observation(self, observation: Any) -> Any:
        return self._keep(observation)

    def _keep(self, parts: Any) -> Any:
        if isinstance(parts, tuple):
            return tuple(parts[index] for index in self.filter_keys)  # pyright: ignore
        return {key: parts[key] for key in self.filter_keys}


class FlattenObservation(ObservationTransform):
    """Flattens every observation to one vector.

    Arrays are raveled, integers of a `Discrete` or `MultiDiscrete` become one-hot vectors, and the
    parts of a dict are concatenated in the order of their keys. If all parts have the same dtype,
    the result has that dtype; otherwise it is float32, where Gymnasium may use float64.

    Source: Gymnasium's FlattenObservation.
    """

    @property
    def observation_space(self) -> spaces.Space:
        return self.env.observation_space.flatten_space()

    def map_observation(self, observation: Any) -> jax.Array:
        return self.env.observation_space.flatten(observation)


class RescaleObservation(ObservationTransform):
    """Maps observations linearly from the bounds of their space to [`min_obs`, `max_obs`].

    Each bound is a number or an array in the shape of an observation. If an element has no lower
    (upper) bound, `min_obs` (`max_obs`) must be infinite there too. An element with only one bound
    is shifted. The result never exceeds the new bounds, neither through rounding nor if an
    observation lies outside its own bounds.

    Raises:
        WrapperError: observations are not a floating-point `Box`, or the bounds have a different
            shape, are in the wrong order, or are finite where the observation's bounds are not.

    Source: Gymnasium's RescaleObservation.
    """

    min_obs: chex.Numeric
    max_obs: chex.Numeric

    @property
    def observation_space(self) -> spaces.Box:
        inner = self.env.observation_space
        if not isinstance(inner, spaces.Box) or not jnp.issubdtype(inner.dtype, jnp.floating):
            raise WrapperError(
                f"RescaleObservation needs a floating-point Box, got {inner}."
                "  Apply DtypeObservation first."
            )
        for name in ("min_obs", "max_obs"):
            if np.shape(getattr(self, name)) not in ((), inner.shape):
                raise WrapperError(
                    f"RescaleObservation got {name} of shape {np.shape(getattr(self, name))}; it"
                    f" must be a number or have the shape of an observation, {inner.shape}."
                )
        try:
            outer = spaces.Box(self.min_obs, self.max_obs, inner.shape, inner.dtype)
        except SpaceError as error:
            raise WrapperError(
                f"RescaleObservation got min_obs={self.min_obs} and max_obs={self.max_obs}: {error}"
            ) from error
        for name in ("low", "high"):
            new, old = getattr(outer, name), getattr(inner, name)
            known = isinstance(new, np.ndarray) and isinstance(old, np.ndarray)
            if known and not np.array_equal(np.isfinite(new), np.isfinite(old)):
                raise WrapperError(
                    f"RescaleObservation got {name} bounds {new} around {inner}; they must be"
                    " infinite exactly where the observation's bounds are."
                )
        return outer

    def map_observation(self, observation: jax.Array) -> jax.Array:
        inner, outer = self.env.observation_space, self.observation_space
        assert isinstance(inner, spaces.Box)
        low, high = jnp.asarray(inner.low), jnp.asarray(inner.high)
        new_low, new_high = jnp.asarray(outer.low), jnp.asarray(outer.high)
        floored, capped = jnp.isfinite(low), jnp.isfinite(high)

        # Halve the bounds, because the difference of two large bounds overflows. Keep the branches
        # that are not selected finite, because infinities would make gradients NaN.
        both = floored & capped & (high > low)
        span = jnp.where(both, high, 1) / 2 - jnp.where(both, low, -1) / 2
        new_span = jnp.where(both, new_high, 1) / 2 - jnp.where(both, new_low, -1) / 2
        gain = new_span / span
        least, most = gain * low, gain * high
        shift = jnp.where(
            floored,
            jnp.where(floored, new_low, 0) - jnp.where(floored, least, 0),
            jnp.where(capped, new_high, 0) - jnp.where(capped, most, 0),
        )
        # The inner clip also keeps compilers from fusing the product and the sum, which would round
        # differently in different programs.
        return jnp.clip(jnp.clip(gain * observation, least, most) + shift, new_low, new_high)


class DtypeObservation(ObservationTransform):
    """Converts observations to `dtype`. Conversion from float to integer truncates toward zero.

    A `Box` keeps its bounds, as far as `dtype` can represent them. A `Discrete`, `MultiDiscrete` or
    `MultiBinary` space becomes a `Box` with the same values.

    Raises:
        WrapperError: observations are dicts or tuples, or `dtype` is unknown, has 64 bits without
            `jax_enable_x64`, or cannot represent the values.

    Source: Gymnasium's DtypeObservation.
    """

    dtype: DTypeLike = struct.static()

    def __post_init__(self) -> None:
        try:
            dtype = np.dtype(self.dtype)  # pyright: ignore[reportArgumentType]
        except TypeError:
            raise WrapperError(
                f"DtypeObservation got dtype={self.dtype!r}; expected one such as jnp.float32."
            ) from None
        object.__setattr__(self, "dtype", dtype)  # one spelling
        super().__post_init__()

    @property
    def observation_space(self) -> spaces.Box:
        inner, dtype = self.env.observation_space, np.dtype(self.dtype)  # pyright: ignore
        if not isinstance(inner, ArraySpace):
            raise WrapperError(
                f"DtypeObservation needs observations that are single arrays, got {inner}."
                "  Apply FlattenObservation or FilterObservation first."
            )
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise WrapperError(
                f"DtypeObservation got dtype={dtype}, which needs jax_enable_x64."
                "  Pass a 32-bit dtype, or enable x64 for the whole program."
            )
        low, high = inner.bounds
        if not jnp.issubdtype(dtype, jnp.floating):
            xp: Any = jnp if struct.is_traced(low, high) else np
            low, high = (xp.trunc(bound) for bound in (low, high))
        try:
            return spaces.Box(low, high, inner.shape, dtype)
        except SpaceError as error:
            raise WrapperError(
                f"DtypeObservation got dtype={dtype}, which cannot represent {inner}: {error}"
            ) from error

    def map_observation(self, observation: jax.Array) -> jax.Array:
        return observation.astype(self.dtype)
