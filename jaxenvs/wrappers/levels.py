"""Wrappers that decide in which level the next episode starts, see `Environment.level`."""

from collections.abc import Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import prng
from jaxenvs.core import TimeStep, Wrapper
from jaxenvs.errors import WrapperError, check_parameters, describe
from jaxenvs.parameters import is_static_parameter
from jaxenvs.struct import is_traced


@chex.dataclass(frozen=True)
class LevelsState:
    """The wrapped state and which level it is in."""

    inner: chex.ArrayTree  # the wrapped state
    index: jax.Array  # int32[], of the level in the list


class Levels(Wrapper[LevelsState]):
    """Starts each episode in a level drawn from a list, and adds its index to `info["level"]`.

    The list and the weights are leaves: a program does not compile again when they change, as in
    `vector_env.replace(weights=...)`. The level of this wrapper is the index, int32[].

    Raises:
        WrapperError: there are no levels, their leaves differ in K, a weight is negative, no weight
            is positive, or `info` already has an entry "level".
    """

    levels: Any  # K levels of `env`, stacked: each leaf is [K, ...]
    weights: jax.Array | None = None  # float32[K], relative frequencies; None: all are equal

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(self.levels)}
        if len(sizes) != 1 or sizes <= {(), (0,)}:
            shapes = jax.tree.map(describe, self.levels)
            raise WrapperError(
                f"Levels got levels of {shapes!s:.200}; expected arrays with the same first axis,"
                " the number of levels."
            )
        if self.weights is None:
            return
        if np.shape(self.weights)[-1:] != sizes.pop():
            raise WrapperError(
                f"Levels got weights of {describe(self.weights)} for {self._number} levels;"
                f" expected float32[{self._number}]."
            )
        if not is_traced(self.weights):
            weights = np.asarray(self.weights)
            if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any(-1).all()):
                raise WrapperError(
                    f"Levels got weights {weights!s:.100}; expected numbers that are at least 0,"
                    " not all of them 0."
                )

    @property
    def _number(self) -> int:
        return jax.tree.leaves(self.levels)[0].shape[0]

    def inner(self, state: LevelsState) -> Any:
        return state.inner

    def level(self, key: chex.PRNGKey) -> jax.Array:
        if self.weights is None:
            return prng.randint(key, (), np.int32(self._number))
        sums = jnp.cumsum(jnp.asarray(self.weights, jnp.float32))
        # From (0, 1], so that a level without weight is never drawn.
        point = sums[-1] * (1 - jax.random.uniform(key, (), jnp.float32))
        return jnp.searchsorted(sums, point).astype(jnp.int32)

    def reset(self, key: chex.PRNGKey) -> tuple[LevelsState, TimeStep]:
        return self.reset_to(self.level(key))

    def reset_to(self, level: Any) -> tuple[LevelsState, TimeStep]:
        index = jnp.asarray(level, jnp.int32)
        chosen = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], self.levels)
        return self._with_index(*self.env.reset_to(chosen), index)

    def step(
        self, state: LevelsState, action: Any, key: chex.PRNGKey
    ) -> tuple[LevelsState, TimeStep]:
        return self._with_index(*self.env.step(state.inner, action, key), state.index)

    def _with_index(
        self, inner: Any, timestep: TimeStep, index: jax.Array
    ) -> tuple[LevelsState, TimeStep]:
        if "level" in timestep.info:
            raise WrapperError('Levels got an info that already has the entry "level".')
        info = {**timestep.info, "level": index}
        return LevelsState(inner=inner, index=index), timestep.replace(info=info)


@chex.dataclass(frozen=True)
class RandomizedLevel:
    """A level of `RandomizeParameters`."""

    parameters: dict[str, Any]
    level: Any  # of the wrapped environment


@chex.dataclass(frozen=True)
class RandomizedState:
    """The wrapped state and the parameters of its episode."""

    inner: chex.ArrayTree  # the wrapped state
    parameters: dict[str, Any]


class RandomizeParameters(Wrapper[RandomizedState]):
    """Draws new parameters of the environment for each episode: domain randomization.

    The bounds are leaves. A level is a `RandomizedLevel`, so that a list of `Levels` can hold
    parameters that somebody chose. To fix parameters for each instance of a batch instead, see
    `batched` of `vectorize`.

    Values are uniform between the bounds in `ranges`, such as `{"gravity": (5.0, 15.0)}`; if the
    parameter is an integer, they are integers, and both bounds are included.

    Raises:
        UnknownParameterError: the environment has no such parameter.
        WrapperError: the parameter is static, which decides the program, or is not a number, or the
            bounds are not a pair in order.
    """

    ranges: dict[str, tuple[Any, Any]]  # low and high by parameter

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.ranges, Mapping) or not self.ranges:
            raise WrapperError(
                f"RandomizeParameters got ranges={self.ranges!r:.60}; expected bounds by parameter,"
                ' such as {"gravity": (5.0, 15.0)}.'
            )
        check_parameters(repr(self.env), self.ranges, self.env.parameters)
        for name, bounds in self.ranges.items():
            self._check(name, bounds)

    def _check(self, name: str, bounds: Any) -> None:
        default = self.env.parameters[name]
        is_number = isinstance(default, int | float | np.ndarray | np.generic | jax.Array)
        if not is_number or isinstance(default, bool) or is_static_parameter(self.env, name):
            raise WrapperError(
                f"RandomizeParameters got the parameter {name}={default!r:.60}, which is not a"
                " number that a compiled program can change."
            )
        is_pair = isinstance(bounds, tuple | list) and len(bounds) == 2
        if not is_pair or (not is_traced(*bounds) and np.any(np.less(bounds[1], bounds[0]))):
            raise WrapperError(
                f"RandomizeParameters got {name}={bounds!r:.60}; expected (low, high)."
            )

    def inner(self, state: RandomizedState) -> Any:
        return state.inner

    def level(self, key: chex.PRNGKey) -> RandomizedLevel:
        own_key, inner_key = jax.random.split(key)
        parameters = {
            name: self._draw(name, bounds, jax.random.fold_in(own_key, i))
            for i, (name, bounds) in enumerate(sorted(self.ranges.items()))
        }
        return RandomizedLevel(parameters=parameters, level=self.env.level(inner_key))

    def _draw(self, name: str, bounds: tuple[Any, Any], key: chex.PRNGKey) -> jax.Array:
        is_integer = jnp.issubdtype(jnp.result_type(self.env.parameters[name]), np.integer)
        low, high = (jnp.asarray(bound, np.int32 if is_integer else np.float32) for bound in bounds)
        shape = np.broadcast_shapes(low.shape, high.shape)
        if is_integer:
            return low + prng.randint(key, shape, high - low + 1)
        return jax.random.uniform(key, shape, np.float32, low, high)

    def reset(self, key: chex.PRNGKey) -> tuple[RandomizedState, TimeStep]:
        return self.reset_to(self.level(key))

    def reset_to(self, level: Any) -> tuple[RandomizedState, TimeStep]:
        inner, timestep = self._env(level.parameters).reset_to(level.level)
        return RandomizedState(inner=inner, parameters=level.parameters), timestep

    def step(
        self, state: RandomizedState, action: Any, key: chex.PRNGKey
    ) -> tuple[RandomizedState, TimeStep]:
        inner, timestep = self._env(state.parameters).step(state.inner, action, key)
        return RandomizedState(inner=inner, parameters=state.parameters), timestep

    def mutate(self, level: RandomizedLevel, key: chex.PRNGKey) -> RandomizedLevel:
        """Returns a level with slightly different parameters, for curricula such as ACCEL.

        Each parameter moves by a normal step of a tenth of its range, an integer by at least 1,
        and stays in the range. The rest of the level stays as it is.
        """
        parameters = {}
        for i, (name, (low, high)) in enumerate(sorted(self.ranges.items())):
            value = level.parameters[name]
            step = jax.random.normal(jax.random.fold_in(key, i), value.shape, jnp.float32)
            step = step * (jnp.asarray(high, jnp.float32) - jnp.asarray(low, jnp.float32)) / 10
            if jnp.issubdtype(value.dtype, np.integer):
                step = jnp.where(step > 0, jnp.ceil(step), jnp.floor(step))
            moved = (value + step.astype(value.dtype)).astype(value.dtype)
            bounds = (jnp.asarray(bound, value.dtype) for bound in (low, high))
            parameters[name] = jnp.clip(moved, *bounds)
        return RandomizedLevel(parameters=parameters, level=level.level)

    def redraw(self, level: RandomizedLevel, key: chex.PRNGKey) -> RandomizedLevel:
        """Returns another start with the same parameters, for `Trials`."""
        return RandomizedLevel(parameters=level.parameters, level=self.env.level(key))

    def render(self, state: RandomizedState) -> jax.Array:
        return self._env(state.parameters).render(state.inner)

    def _env(self, parameters: dict[str, Any]) -> Any:
        return self.env.replace(**parameters)
