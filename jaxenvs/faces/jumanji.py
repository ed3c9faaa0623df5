"""A native environment with the interface of jumanji."""

from collections import namedtuple
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import SpaceError, missing_extra
from jaxenvs.faces._third_party import make_env_for, reset_with_half, step_with_half

try:
    from jumanji import specs
    from jumanji.env import Environment as BaseEnvironment
    from jumanji.types import StepType
    from jumanji.types import TimeStep as JumanjiTimeStep
except ImportError as error:
    raise missing_extra(__name__, "jumanji", "jumanji") from error


class JumanjiState(NamedTuple):
    """The native state, and the key of the next step, which jumanji's wrappers read."""

    native: chex.ArrayTree
    key: chex.PRNGKey  # uint32[2]


class JumanjiEnv(BaseEnvironment):
    """A native environment as a `jumanji.Environment`, without a reset after an episode.

    Observations that are dicts or tuples become named tuples; the fields of a tuple are `item_0`,
    `item_1` and so on. `extras` is the info. The last step of an episode has discount 0 if the task
    terminated, and 1 if the episode was only truncated.
    """

    def __init__(self, env: Environment) -> None:
        self.native = env
        with jax.ensure_compile_time_eval():  # jumanji computes bounds with JAX, and keeps them
            super().__init__()

    def __repr__(self) -> str:
        return f"JumanjiEnv({self.native!r})"

    def reset(self, key: chex.PRNGKey) -> tuple[JumanjiState, JumanjiTimeStep]:
        """Starts an episode."""
        return self._to_jumanji(StepType.FIRST, *reset_with_half(self.native, key))

    def step(self, state: JumanjiState, action: Any) -> tuple[JumanjiState, JumanjiTimeStep]:
        """Takes an action."""
        results = step_with_half(self.native, state.native, action, state.key)
        return self._to_jumanji(StepType.MID, *results)

    @cached_property
    def observation_spec(self) -> specs.Spec:
        """The spec of observations."""
        return _to_spec(self.native.observation_space, "observation")

    @cached_property
    def action_spec(self) -> specs.Array:
        """The spec of actions."""
        return _to_spec(self.native.action_space, "action")

    def render(self, state: JumanjiState) -> jax.Array:
        """Draws `state` as uint8[H, W, 3]."""
        return self.native.render(state.native)

    def _to_jumanji(
        self, otherwise: jax.Array, native: Any, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[JumanjiState, JumanjiTimeStep]:
        return JumanjiState(native=native, key=jax.random.key_data(key)), JumanjiTimeStep(
            step_type=jnp.where(timestep.done, StepType.LAST, otherwise),
            reward=timestep.reward,
            discount=timestep.discount,
            observation=_to_named_tuples(self.observation_spec, timestep.observation),
            extras=dict(timestep.info),
        )


def make_jumanji(
    id: str | Environment,
    *,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> JumanjiEnv:
    """Makes a native environment with the interface of jumanji.

    Args:
        id: a native id or an `Environment`.
        time_limit: see `make`.
        **params: parameters of the environment, such as `gravity=3.7`.

    Raises:
        ParameterError: `id` is neither.
        SpaceError: actions are dicts or tuples, or an entry of observations has a name that cannot
            be a field.
    """
    env = make_env_for("make_jumanji", id, time_limit, params)
    if isinstance(env.action_space, spaces.Dict | spaces.Tuple):
        raise SpaceError(
            f"make_jumanji got an environment whose action_space is {env.action_space}; the actions"
            " of jumanji are arrays.  Wrap it in TransformAction."
        )
    return JumanjiEnv(env)


def _to_spec(space: Any, name: str) -> Any:
    if isinstance(space, spaces.Dict):
        return _named_tuple_spec(space.spaces, name)
    if isinstance(space, spaces.Tuple):
        return _named_tuple_spec({f"item_{i}": each for i, each in enumerate(space.spaces)}, name)
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return specs.DiscreteArray(space.n, space.dtype, name)
    if isinstance(space, spaces.MultiDiscrete) and not space.start.any():
        return specs.MultiDiscreteArray(jnp.asarray(space.nvec), space.dtype, name)
    # jumanji can compare and print specs with one bound for all elements.
    low, high = (each.ravel()[0] if (each == each.min()).all() else each for each in space.bounds)
    if np.isneginf(low).all() and np.isposinf(high).all():
        return specs.Array(space.shape, space.dtype, name)
    return specs.BoundedArray(space.shape, space.dtype, low, high, name)


def _named_tuple_spec(parts: Mapping[str, spaces.Space], name: str) -> specs.Spec:
    """Returns the spec of named tuples, the only containers that jumanji validates."""
    inner = {part: _to_spec(space, part) for part, space in parts.items()}
    try:
        return specs.Spec(namedtuple(name.capitalize(), parts), name, **inner)
    except (TypeError, ValueError) as error:
        raise SpaceError(
            f"make_jumanji got observations with the entries {', '.join(parts)}; they become the"
            f" fields of a named tuple, but {error}.  Rename them with TransformObservation."
        ) from error


def _to_named_tuples(spec: Any, value: Any) -> Any:
    if isinstance(spec, specs.Array):
        return value
    parts = value if isinstance(value, tuple) else [value[part] for part in spec._specs]
    parts = [_to_named_tuples(*pair) for pair in zip(spec._specs.values(), parts, strict=True)]
    return spec._constructor(*parts)
