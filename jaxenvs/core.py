"""The contract: environments, timesteps, wrappers and batches of environments.

    state, timestep = env.reset(key)
    state, timestep = env.step(state, action, key)

Both calls are pure, describe one instance, and return the same tree.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, dataclass_transform

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs import struct
from jaxenvs.errors import (
    ParameterError,
    RenderError,
    UnknownParameterError,
    WrapperError,
    closest,
    describe,
)
from jaxenvs.spaces import Space

S = TypeVar("S")
AutoresetMode = Literal["same_step", "next_step", "disabled"]


@chex.dataclass(frozen=True)
class TimeStep:
    """The result of `reset` or `step` that an agent sees.

    Shapes are those of one instance; a `VectorEnv` adds a leading [num_envs] axis to each.
    """

    observation: chex.ArrayTree
    reward: jax.Array  # float32[], 0 from reset
    terminated: jax.Array  # bool[], the task ended
    truncated: jax.Array  # bool[], the episode was cut, by a time limit for instance
    info: Mapping[str, chex.ArrayTree]  # the same keys on every step
    # Set by a VectorEnv: the result of the step itself. They differ from `observation` and `info`
    # only where an episode ended and the next one started in the same step.
    final_observation: chex.ArrayTree = None
    final_info: Any = None

    if TYPE_CHECKING:  # chex adds it, unseen by type checkers

        def replace(self, **changes: Any) -> Self: ...

    @property
    def done(self) -> jax.Array:
        """bool[]: whether the episode is over, for either reason."""
        return self.terminated | self.truncated

    @property
    def discount(self) -> jax.Array:
        """float32[]: 0 if the task terminated, else 1, also after a truncation."""
        return 1 - self.terminated.astype(jnp.float32)

    @classmethod
    def first(
        cls,
        observation: chex.ArrayTree,
        *,
        info: Mapping[str, chex.ArrayTree] | None = None,
    ) -> "TimeStep":
        """Returns the timestep of a reset: reward 0, both flags false."""
        return cls.transition(observation, reward=0.0, terminated=False, info=info)

    @classmethod
    def transition(
        cls,
        observation: chex.ArrayTree,
        *,
        reward: chex.Numeric,
        terminated: chex.Numeric,
        truncated: chex.Numeric = False,
        info: Mapping[str, chex.ArrayTree] | None = None,
    ) -> "TimeStep":
        """Returns the timestep of a step."""
        # A state that was cast to float64, to prove parity, is rewarded in float64.
        dtypes = [getattr(leaf, "dtype", None) for leaf in jax.tree.leaves(observation)]
        return cls(
            observation=observation,
            reward=jnp.asarray(reward, np.float64 if np.float64 in dtypes else np.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=jnp.asarray(truncated, bool),
            info=dict(info or {}),
        )


@dataclass_transform(frozen_default=True, eq_default=False)
class Environment(abc.ABC, Generic[S]):
    """One instance of a task: an immutable pytree whose fields are its parameters.

    Fields are leaves, so they can be replaced, mapped over and differentiated without recompiling.
    A field that determines shapes is declared `size: int = struct.static(8)`. Subclasses become
    dataclasses without a decorator. `step` never resets.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        struct.pytree_dataclass(cls)

    @property
    @abc.abstractmethod
    def observation_space(self) -> Space:
        """The space of observations."""

    @property
    @abc.abstractmethod
    def action_space(self) -> Space:
        """The space of actions."""

    @abc.abstractmethod
    def reset(self, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        """Starts an episode; returns the state and `TimeStep.first(...)`."""

    @abc.abstractmethod
    def step(self, state: S, action: Any, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        """Takes one action; returns the state and `TimeStep.transition(...)`.

        Both have the same structure, shapes and dtypes as those of `reset`.
        """

    def render(self, state: S) -> jax.Array:
        """Draws `state` as uint8[H, W, 3]; optional."""
        raise RenderError(
            f"{type(self).__name__} does not define render(state).  Give it one that returns"
            " uint8[H, W, 3]."
        )

    def wrap(
        self, wrapper: "Callable[..., Environment]", *args: Any, **kwargs: Any
    ) -> "Environment":
        """Returns `wrapper(self, *args, **kwargs)`; a `VectorEnv` has the same method."""
        return wrapper(self, *args, **kwargs)

    @property
    def unwrapped(self) -> "Environment":
        """The environment inside all wrappers; itself if there are none."""
        return self

    @property
    def time_limit(self) -> chex.Numeric | None:
        """The number of steps after which a wrapper truncates an episode; None if none does."""
        return None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, those of wrapped environments included."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._changed_parameters())})"

    def _changed_parameters(self) -> list[str]:
        """Returns `name=value` for every parameter that differs from its default."""
        return [
            f"{field.name}={_brief(getattr(self, field.name))}"
            for field in dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
            if getattr(self, field.name) is not field.default
        ]

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other parameters: `env.replace(gravity=3.7)`.

        Nothing is recompiled as long as the field is not static and the new value has the type of
        the old one. To jit, a Python float and a `jnp.float32` are two types.

        Raises:
            UnknownParameterError: there is no such field; the message names the closest one.
            ParameterError: a parameter that is a number is given something else.
        """
        names = [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        for name in changes:
            if name not in names:
                raise UnknownParameterError(
                    f'{type(self).__name__} has no parameter "{name}".{closest(name, names)}'
                    f"  It has: {', '.join(names) or 'none'}."
                )
        return dataclasses.replace(self, **as_numbers(type(self), changes))  # pyright: ignore[reportArgumentType]


class Wrapper(Environment[S]):
    """An environment that changes what another one does.

    A wrapper with memory defines a state whose field `inner` is the wrapped state, and the
    method `inner`; one without memory passes the state through. A wrapper takes one instance;
    `vector_env.wrap(TimeLimit, 100)` wraps a batch. A subclass with a `__post_init__` of its own
    calls this one.

    Raises:
        WrapperError: `env` is not an `Environment`.
    """

    env: Environment

    def __post_init__(self) -> None:
        if not isinstance(self.env, Environment):
            raise WrapperError(_not_an_environment(type(self).__name__, self.env))

    @classmethod
    def wrap_batch(cls, batch: "VectorEnv", *args: Any, **kwargs: Any) -> "VectorEnv":
        """Returns `batch` inside this wrapper, for `VectorEnv.wrap`: around every instance."""
        return batch.wrap_instances(lambda env: cls(env, *args, **kwargs))

    def _check_space(self, name: str) -> None:
        """Makes the space `name`, so that an environment that does not fit is refused here.

        Where a parameter differs between instances there is no space of one instance yet.
        """
        if not any(np.ndim(leaf) for leaf in jax.tree.leaves(self.env)):
            getattr(self, name)

    def inner(self, state: S) -> Any:
        """The state of the wrapped environment."""
        return state

    @property
    def observation_space(self) -> Space:
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        return self.env.action_space

    def render(self, state: S) -> jax.Array:
        return self.env.render(self.inner(state))

    @property
    def unwrapped(self) -> Environment:
        return self.env.unwrapped

    @property
    def time_limit(self) -> chex.Numeric | None:
        return self.env.time_limit

    @property
    def parameters(self) -> dict[str, Any]:
        own = super().parameters
        return {**self.env.parameters, **{name: own[name] for name in own if name != "env"}}

    def __repr__(self) -> str:
        own = [text for text in self._changed_parameters() if not text.startswith("env=")]
        return f"{type(self).__name__}({', '.join([repr(self.env), *own])})"

    def replace(self, **changes: Any) -> Self:
        """Works like `Environment.replace`; other names are passed to the wrapped environment."""
        own = {field.name for field in dataclasses.fields(self)}  # pyright: ignore[reportArgumentType]
        inner = {name: value for name, value in changes.items() if name not in own}
        outer = {name: value for name, value in changes.items() if name in own}
        if inner:
            outer["env"] = outer.get("env", self.env).replace(**inner)
        return super().replace(**outer)


class VectorEnv(abc.ABC, Generic[S]):
    """A batch of `num_envs` instances with the same two methods, native or hosted.

    N is `num_envs`. Everything except the key has a leading [N] axis. `timestep.observation` and
    `timestep.info` are those to act on next; `timestep.final_observation` and `timestep.final_info`
    are the result of the step itself. They differ only where an episode ended and the instance was
    reset in the same step.

    Methods take either one key, from which instance i derives its own by its index, or [N] keys,
    one per instance. With [N] keys, an instance depends on its own key only, not on how many others
    there are.
    """

    num_envs: int
    autoreset_mode: AutoresetMode  # what happens after an episode ends, see `vectorize`

    @property
    def is_staggered(self) -> bool:
        """Whether `reset` leaves instances in mid-episode, see `vectorize`."""
        return False

    @property
    @abc.abstractmethod
    def single_observation_space(self) -> Space:
        """The observation space of one instance."""

    @property
    @abc.abstractmethod
    def single_action_space(self) -> Space:
        """The action space of one instance."""

    @property
    def observation_space(self) -> Space:
        """The space of N observations."""
        return self.single_observation_space.batch(self.num_envs)

    @property
    def action_space(self) -> Space:
        """The space of N actions: `sample(key)` draws one for each instance at once."""
        return self.single_action_space.batch(self.num_envs)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name; empty if they are not accessible."""
        return {}

    @abc.abstractmethod
    def reset(self, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        """Starts an episode in every instance."""

    @abc.abstractmethod
    def step(self, state: S, action: Any, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        """Takes one action in every instance."""

    def reset_where(
        self, mask: jax.Array, state: S, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[S, TimeStep]:
        """Starts an episode where `mask`, bool[N], is true; other rows are returned as given."""
        raise NotImplementedError(f"{type(self).__name__} cannot reset some of its instances.")

    def render(self, state: S, index: int = 0) -> jax.Array:
        """Draws instance `index` as uint8[H, W, 3]; optional."""
        raise RenderError(f"{type(self).__name__} cannot draw its instances.")

    def replace(self, **changes: Any) -> Any:
        """Returns a copy with other parameters."""
        raise UnknownParameterError(f"{type(self).__name__} has no parameters to replace.")

    def wrap(self, wrapper: Callable[..., Any], *args: Any, **kwargs: Any) -> "VectorEnv":
        """Returns this batch with a wrapper around every instance: `wrap(TimeLimit, 100)`.

        A wrapper class may also go around the batch as a whole: `NormalizeObservation` shares its
        statistics between the instances, and a `Transform` needs no access to them.

        Args:
            wrapper: a `Wrapper` class, or a `functools.partial` of one. Any other function is
                called with this batch and returns another.
            *args: further arguments of the wrapper.
            **kwargs: likewise.

        Raises:
            WrapperError: the wrapper does not fit, or needs access to the instances of a batch
                that gives none.
        """
        if isinstance(wrapper, partial) and not wrapper.args:
            return self.wrap(wrapper.func, *args, **{**wrapper.keywords, **kwargs})
        if isinstance(wrapper, type) and issubclass(wrapper, Wrapper):
            return wrapper.wrap_batch(self, *args, **kwargs)
        return wrapper(self, *args, **kwargs)

    def wrap_instances(self, wrapper: Callable[[Environment], Environment]) -> "VectorEnv":
        """Returns this batch with `wrapper` around every instance; optional."""
        raise WrapperError(
            f"{type(self).__name__} does not let a wrapper reach its instances.  Wrap the single"
            " environment before it is vectorized; one that is not JAX where it is made, with"
            " Gymnasium's wrappers."
        )


Policy = Callable[[chex.ArrayTree, chex.PRNGKey], Any]  # (observation, key) -> action


def as_numbers(cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters of `cls`; numbers in float64 become float32, as states are.

    Raises:
        ParameterError: a parameter that is a number by default is given something else.
    """
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        if isinstance(field.default, int | float) and not struct.is_static(field)
    }
    numbers = dict(params)
    for name in defaults.keys() & numbers.keys():
        value = params[name]
        dtype = getattr(value, "dtype", None)
        is_number = not isinstance(
            value, str | bytes | complex | dict | set | list | tuple | type(None)
        )
        if dtype is not None:
            is_number &= jnp.issubdtype(dtype, np.number) or dtype == np.bool_
            is_number &= not jnp.issubdtype(dtype, np.complexfloating)
        if not is_number:
            raise ParameterError(
                f"{cls.__name__} got {name}={value!r:.60}; it takes a number, such as"
                f" {defaults[name]}, or an array of them where it is batched."
            )
        if dtype == np.float64:
            numbers[name] = value.astype(np.float32)
    return numbers


def check_time_limit(name: str, limit: Any) -> None:
    """Checks that a limit is a number of steps, or an array of one number per instance.

    Raises:
        ParameterError: `limit` is not an integer from 1 to 2**31 - 1; `name` is its owner.
    """
    is_array = isinstance(limit, jax.Array | np.ndarray | np.generic)
    if isinstance(limit, Tracer) or not (
        is_array or limit is None or isinstance(limit, int | float | complex | str | list | tuple)
    ):
        return  # traced
    value = np.asarray(limit)
    if (
        value.dtype.kind not in "iu"
        or value.ndim > (1 if is_array else 0)
        or not ((value >= 1) & (value < 2**31)).all()
    ):
        raise ParameterError(
            f"{name} got the time limit {limit!r:.60}; it must be an integer, at least 1 and below"
            " 2**31.  Where an id is made, None takes its limit away."
        )


def _brief(value: Any) -> str:
    if isinstance(value, str | Space):
        return repr(value)
    if hasattr(value, "shape"):
        return describe(value) if value.shape else f"{value}"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}(...)"
    return getattr(value, "__name__", f"{value}")  # of a function or a class


def _not_an_environment(wrapper: str, env: Any) -> str:
    what, fix = f"{env!r:.80}", "jaxenvs.make(id) makes one."
    if isinstance(env, str):
        what, fix = f'"{env}"', f'Make it first: {wrapper}(jaxenvs.make("{env}"), ...).'
    elif isinstance(env, VectorEnv):
        what, fix = f"the batch {env!r:.80}", f"Call wrap: vector_env.wrap({wrapper}, ...)."
    elif isinstance(env, type):
        what = f"the class {env.__name__}"
        if issubclass(env, Environment):
            fix = f"Call it first: {wrapper}({env.__name__}(), ...)."
    return f"{wrapper} got {what}; it goes around an Environment of jaxenvs.  {fix}"
