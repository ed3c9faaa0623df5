"""A native environment with the interface of Envelope."""

from functools import cached_property
from typing import Any, Literal, cast

import chex
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import missing_extra
from jaxenvs.faces._third_party import make_env_for, reset_with_half, step_with_half
from jaxenvs.registry import find, registry

try:
    import envelope.spaces as envelope_spaces
    from envelope.environment import Environment as EnvelopeEnvironment
    from envelope.environment import InfoContainer
    from envelope.struct import FrozenPyTreeNode, static_field
except ImportError as error:
    raise missing_extra(__name__, "jax-envelope", "envelope") from error


class EnvelopeState(FrozenPyTreeNode):
    """The native state, and the key of the next step."""

    native: chex.ArrayTree
    key: chex.PRNGKey


class EnvelopeEnv(EnvelopeEnvironment):
    """A native environment as an `envelope.Environment`, whose parameters are leaves.

    `init` and `step` return the entries of the native info as fields of their info.
    """

    native: Environment
    max_steps: int | None = static_field(default=None)

    @classmethod
    def from_name(cls, env_name: str, env_kwargs: dict[str, Any] | None = None) -> "EnvelopeEnv":
        """Makes an id for `envelope.create("jaxenvs::CartPole-v1")`, which sets the time limit."""
        limit = find(env_name).time_limit
        own = "default" if limit is None else None
        env = make_env_for("EnvelopeEnv.from_name", env_name, own, env_kwargs or {})
        return cls(native=env, max_steps=limit)

    @classmethod
    def registered_names(cls) -> tuple[str, ...]:
        """Returns all ids."""
        return tuple(registry)

    @property
    def default_max_steps(self) -> int | None:
        """The time limit of the id, which the environment itself does not have."""
        return self.max_steps

    def init(self, key: chex.PRNGKey) -> tuple[EnvelopeState, InfoContainer]:
        """Starts an episode."""
        return _to_envelope(*reset_with_half(self.native, key))

    def step(self, state: EnvelopeState, action: Any) -> tuple[EnvelopeState, InfoContainer]:
        """Takes an action."""
        return _to_envelope(*step_with_half(self.native, state.native, action, state.key))

    @cached_property
    def observation_space(self) -> envelope_spaces.Space:
        """The space of observations."""
        return _space_to_envelope(self.native.observation_space)

    @cached_property
    def action_space(self) -> envelope_spaces.Space:
        """The space of actions."""
        return _space_to_envelope(self.native.action_space)


def make_envelope(
    id: str | Environment,
    *,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> EnvelopeEnv:
    """Makes a native environment with the interface of Envelope.

    Args:
        id: a native id or an `Environment`.
        time_limit: see `make`.
        **params: parameters of the environment, such as `gravity=3.7`.

    Raises:
        ParameterError: `id` is neither.
    """
    return EnvelopeEnv(native=make_env_for("make_envelope", id, time_limit, params))


def _to_envelope(
    native: Any, timestep: TimeStep, key: chex.PRNGKey
) -> tuple[EnvelopeState, InfoContainer]:
    info = InfoContainer(
        obs=timestep.observation,
        reward=timestep.reward,
        terminated=timestep.terminated,
        truncated=timestep.truncated,
    )
    return EnvelopeState(native=native, key=key), info.update(**timestep.info)


def _space_to_envelope(space: Any) -> envelope_spaces.Space:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return envelope_spaces.PyTreeSpace(_tree_of_spaces(space))
    # NumPy's arrays, because a space may be made inside a program and kept.
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and not np.any(space.start):
        n = space.n if isinstance(space, spaces.Discrete) else space.nvec
        return envelope_spaces.Discrete(n=np.asarray(n, np.int32))
    low, high = cast("Any", space.bounds)
    return envelope_spaces.Continuous(low=low, high=high)


def _tree_of_spaces(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _tree_of_spaces(each) for name, each in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree_of_spaces(each) for each in space.spaces)
    return _space_to_envelope(space)
