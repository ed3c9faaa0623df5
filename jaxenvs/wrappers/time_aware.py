"""A wrapper that adds the elapsed time to observations."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers.transform import Transform


class TimeAwareObservation(Transform):
    """Adds the number of steps taken in the current episode to the observation.

    The time is int32[1] from 0 to the limit, or, with `normalize_time`, float32[1] from 0 to 1. A
    dict gains the key `dict_time_key`, a tuple gains a last element, and any other observation
    becomes `{"obs": ..., "time": ...}`. With `flatten`, the result is flattened to one vector as by
    `FlattenObservation`; it is float32 if the parts differ in dtype.

    The limit is the `time_limit` of the wrapped environment. Pass `default_time_limit` to override
    it, or if there is none, as for a batch whose instances are not accessible.

    Raises:
        WrapperError: there is no time limit, or the dict already has the key.

    Source: Gymnasium's TimeAwareObservation.
    """

    flatten: bool = struct.static(True)
    normalize_time: bool = struct.static(False)
    dict_time_key: str = struct.static("time", kw_only=True)
    default_time_limit: chex.Numeric | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_space("observation_space")

    @property
    def observation_space(self) -> spaces.Space:
        whole = self._whole_space
        return whole.flatten_space() if self.flatten else whole

    @property
    def _limit(self) -> chex.Numeric:
        limit = self.env.time_limit if self.default_time_limit is None else self.default_time_limit
        if limit is None:
            raise WrapperError(
                f"TimeAwareObservation got {self.env!r}, which has no known time limit."
                "  Wrap it in TimeLimit first, or pass default_time_limit=<number of steps>."
            )
        return limit

    @property
    def _whole_space(self) -> spaces.Space:
        inner = self.env.observation_space
        if isinstance(inner, spaces.Dict) and self.dict_time_key in inner.spaces:
            raise WrapperError(
                f'TimeAwareObservation got dict_time_key="{self.dict_time_key}", but observations'
                f" already have that key: {list(inner)}.  Pass a different one."
            )
        time = spaces.Box(0, self._limit, (1,), jnp.int32)
        if self.normalize_time:
            time = spaces.Box(0.0, 1.0, (1,))
        whole = self._add_time(getattr(inner, "spaces", inner), time)
        return spaces.Tuple(whole) if isinstance(whole, tuple) else spaces.Dict(whole)

    def on_reset(self, timestep: TimeStep) -> tuple[jax.Array, TimeStep]:
        return self._with_time(jnp.int32(0), timestep)

    def on_step(self, memory: jax.Array, timestep: TimeStep) -> tuple[jax.Array, TimeStep]:
        return self._with_time(memory + 1, timestep)

    def _with_time(self, elapsed: jax.Array, timestep: TimeStep) -> tuple[jax.Array, TimeStep]:
        time: Any = elapsed[None]
        if self.normalize_time:
            time = time.astype(jnp.float32) / jnp.asarray(self._limit, jnp.float32)
        observation = self._add_time(timestep.observation, time)
        if self.flatten:
            observation = self._whole_space.flatten(observation)
        return elapsed, timestep.replace(observation=observation)

    def _add_time(self, inner: Any, time: Any) -> Any:
        """Adds `time` to an observation, or to the space or spaces of observations."""
        match self.env.observation_space:
            case spaces.Dict():
                return {**inner, self.dict_time_key: time}
            case spaces.Tuple():
                return (*inner, time)
        return {"obs": inner, "time": time}
