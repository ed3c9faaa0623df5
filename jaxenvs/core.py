"""The contract: environments, wrappers and batches of environments.

    state, timestep = env.reset(key)
    state, timestep = env.step(state, action, key)

Both functions are pure. They describe a single instance and return the same pytree structure.
"""

import abc
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Literal, TypeVar, dataclass_transform

import chex
import jax
import numpy as np

from jaxenvs import prng, struct
from jaxenvs.calls import (
    accepts_starts_and_keys,
    checked_reset,
    checked_step,
    without_checks,
)
from jaxenvs.errors import RenderError, UnknownParameterError, WrapperError
from jaxenvs.parameters import Parameterized
from jaxenvs.spaces import Space
from jaxenvs.timestep import TimeStep as TimeStep

S = TypeVar("S")
AutoresetMode = Literal["same_step", "next_step", "disabled"]


@dataclass_transform(frozen_default=True, eq_default=False)
class Environment(Parameterized, abc.ABC, Generic[S]):
    """One instance of a task: an immutable pytree whose fields are the task's parameters.

    Fields are pytree leaves, so you can replace, vmap and differentiate them without recompiling.
    Declare a field that determines shapes or control flow as static:
    `size: int = struct.static(8)`. Every subclass becomes a dataclass automatically; do not
    decorate it. `step` never resets the environment.

    Calls of `reset` and `step` are checked when they are traced, also in wrappers and in your own
    classes: `RandomKeyError` if the key is not one random key, `ActionError` if the action does not
    have the structure, shapes and kinds of `action_space`, and `StateError` if the state is another
    environment's.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        struct.pytree_dataclass(cls)
        methods = {
            "reset": checked_reset,
            "reset_to": accepts_starts_and_keys,
            "step": checked_step,
        }
        for name, checked in methods.items():
            if inspect.isfunction(method := vars(cls).get(name)):
                setattr(cls, name, checked(method))

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
        """Starts an episode. Returns the state and `TimeStep.first(...)`."""

    @abc.abstractmethod
    def step(self, state: S, action: Any, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        """Takes one action. Returns the next state and `TimeStep.transition(...)`.

        Both have the same pytree structure, shapes and dtypes as those from `reset`.
        """

    def level(self, key: chex.PRNGKey) -> Any:
        """Returns the level in which `reset(key)` starts: what a reset decides, a pytree.

        `reset_to(level(key))` equals `reset(key)`. By default the level is the key. An environment
        that can name what it draws, such as a maze, overrides this method and `reset_to`.
        """
        return key

    @accepts_starts_and_keys
    def reset_to(self, level: Any) -> tuple[S, TimeStep]:
        """Starts an episode in `level`: what `level(key)` returns, a key, or a `Start`.

        A method that overrides this one gets only what `level` returns.
        """
        return self.reset(level)

    def render(self, state: S) -> jax.Array:
        """Draws `state` as uint8[H, W, 3]. Optional."""
        raise RenderError(
            f"{type(self).__name__} does not define render(state).  Define a render method that"
            " returns uint8[H, W, 3]."
        )

    def wrap(
        self, wrapper: "Callable[..., Environment]", *args: Any, **kwargs: Any
    ) -> "Environment":
        """Returns `wrapper(self, *args, **kwargs)`. A `VectorEnv` has the same method.

        With several agents, most wrappers wrap each agent, see `Wrapper.wrap_agents`.
        """
        if isinstance(wrapper, partial) and not wrapper.args:
            return self.wrap(wrapper.func, *args, **{**wrapper.keywords, **kwargs})
        if self.agents and isinstance(wrapper, type) and issubclass(wrapper, Wrapper):
            return wrapper.wrap_agents(self, *args, **kwargs)
        return wrapper(self, *args, **kwargs)

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents, see `MultiAgentEnvironment`; empty for a single agent."""
        return ()

    @property
    def unwrapped(self) -> "Environment":
        """The innermost environment, without wrappers."""
        return self

    @property
    def time_limit(self) -> chex.Numeric | None:
        """The number of steps after which an episode is truncated; None without a time limit."""
        return None


class Wrapper(Environment[S]):
    """An environment that modifies the behavior of another environment.

    A wrapper that needs its own state defines a state class whose field `inner` holds the wrapped
    state, and overrides the method `inner`. A wrapper without its own state passes the wrapped
    state through. A wrapper takes a single environment; use `vector_env.wrap(TimeLimit, 100)` to
    wrap a batch. If a subclass defines `__post_init__`, it must call `super().__post_init__()`.

    Raises:
        WrapperError: `env` is not an `Environment`.
    """

    env: Environment
    inner_parameters = "env"

    def __post_init__(self) -> None:
        if not isinstance(self.env, Environment):
            raise WrapperError(_not_an_environment(type(self).__name__, self.env))

    @classmethod
    def wrap_batch(cls, batch: "VectorEnv", *args: Any, **kwargs: Any) -> "VectorEnv":
        """Wraps every instance of `batch`. `VectorEnv.wrap` calls this method."""
        return batch.wrap_instances(lambda env: env.wrap(cls, *args, **kwargs))

    @classmethod
    def wrap_agents(cls, env: Environment, *args: Any, **kwargs: Any) -> Environment:
        """Wraps an environment with several agents. `Environment.wrap` calls this method."""
        return cls(env, *args, **kwargs)

    def _check_space(self, name: str) -> None:
        """Computes the space `name`, so an unsuitable environment fails at construction.

        Skips it if a parameter differs between instances: the space of one is not known then.
        """
        if not any(np.ndim(leaf) for leaf in jax.tree.leaves(self.env)):
            getattr(self, name)

    def inner(self, state: S) -> Any:
        """Returns the state of the wrapped environment."""
        return state

    def level(self, key: chex.PRNGKey) -> Any:
        """Returns the level of the wrapped environment.

        A wrapper whose `reset` draws random numbers must override this method and `reset_to`.
        """
        return self.env.level(key)

    def reset_to(self, level: Any) -> tuple[S, TimeStep]:
        if prng.shape_of_keys(level) is not None:
            return self.reset(level)
        no_key: Any = None
        with without_checks():
            return struct.replace(self, env=FixedLevel(self.env, level)).reset(no_key)

    @property
    def agents(self) -> tuple[str, ...]:
        return self.env.agents

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


class FixedLevel(Wrapper[S]):
    """Starts every episode in the same level, see `Environment.level`. The level is a leaf."""

    fixed_level: Any

    def level(self, key: chex.PRNGKey) -> Any:
        del key
        return self.fixed_level

    def reset(self, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        del key
        return self.env.reset_to(self.fixed_level)

    def reset_to(self, level: Any) -> tuple[S, TimeStep]:
        return self.env.reset_to(level)

    def step(self, state: S, action: Any, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        return self.env.step(state, action, key)


class VectorEnv(abc.ABC, Generic[S]):
    """A batch of `num_envs` instances, native or hosted, with the interface of `Environment`.

    N is `num_envs`. Everything except the key gains a leading [N] axis. `timestep.observation` and
    `timestep.info` are the input for the next action. `timestep.final_observation` and
    `timestep.final_info` are the result of the step itself. They differ only where an episode ended
    and the instance was reset in the same step.

    A method that takes a key accepts either one key, from which instance i derives its own key by
    index, or [N] keys, one per instance. With [N] keys, each instance depends only on its own key
    and not on the number of instances.
    """

    num_envs: int
    autoreset_mode: AutoresetMode  # when finished instances are reset, see `vectorize`

    @property
    def unwrapped(self) -> "VectorEnv":
        """The innermost batch, without wrappers of batches."""
        return self

    @property
    def is_staggered(self) -> bool:
        """Whether `reset` starts instances partway through their episodes, see `vectorize`."""
        return False

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents, see `MultiAgentEnvironment`; empty for a single agent."""
        return ()

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
        """The space of batches of N observations."""
        return self.single_observation_space.batch(self.num_envs)

    @property
    def action_space(self) -> Space:
        """The space of batches of N actions. `sample(key)` draws one action per instance."""
        return self.single_action_space.batch(self.num_envs)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, or an empty dict if they are not accessible."""
        return {}

    @abc.abstractmethod
    def reset(self, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        """Starts an episode in every instance."""

    @abc.abstractmethod
    def step(self, state: S, action: Any, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        """Takes one action in every instance."""

    def close(self) -> None:
        """Ends the processes of hosted instances. Native instances have none."""

    def reset_where(
        self, mask: jax.Array, state: S, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[S, TimeStep]:
        """Starts an episode where `mask`, bool[N], is true. Other rows stay unchanged."""
        raise NotImplementedError(f"{type(self).__name__} cannot reset individual instances.")

    def at_levels(self, levels: Any) -> "VectorEnv":
        """Returns this batch with instance i starting all its episodes in row i of `levels`.

        The levels are leaves: a program does not compile again when they change. Instances start
        at the beginning of their episodes, without `stagger`.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot choose levels.")

    def reset_to(self, levels: Any) -> tuple[S, TimeStep]:
        """Starts an episode in every instance, in instance i in row i of `levels`."""
        return self.at_levels(levels).reset(jax.random.key(0))

    def render(self, state: S, index: int = 0) -> jax.Array:
        """Draws instance `index` as uint8[H, W, 3]. Optional."""
        raise RenderError(f"{type(self).__name__} cannot render its instances.")

    def replace(self, **changes: Any) -> Any:
        """Returns a copy with some parameters changed."""
        raise UnknownParameterError(f"{type(self).__name__} has no parameters to replace.")

    def wrap(self, wrapper: Callable[..., Any], *args: Any, **kwargs: Any) -> "VectorEnv":
        """Wraps every instance of this batch: `vector_env.wrap(TimeLimit, 100)`.

        Some wrapper classes wrap the batch as a whole instead. `NormalizeObservation` does so to
        share its statistics between instances. A `Transform` does so if the instances are not
        accessible.

        Args:
            wrapper: a `Wrapper` class or a `functools.partial` of one; or any function that takes
                this batch and returns a `VectorEnv`.
            *args: positional arguments for the wrapper.
            **kwargs: keyword arguments for the wrapper.

        Raises:
            WrapperError: the wrapper does not support this environment, or it needs access to
                the instances and this batch does not provide it.
        """
        if isinstance(wrapper, partial) and not wrapper.args:
            return self.wrap(wrapper.func, *args, **{**wrapper.keywords, **kwargs})
        if isinstance(wrapper, type) and issubclass(wrapper, Wrapper):
            return wrapper.wrap_batch(self, *args, **kwargs)
        return wrapper(self, *args, **kwargs)

    def wrap_instances(self, wrapper: Callable[[Environment], Environment]) -> "VectorEnv":
        """Returns this batch with `wrapper` applied to every instance. Optional."""
        raise WrapperError(
            f"{type(self).__name__} does not give wrappers access to its instances.  Wrap the"
            " single environment before it is vectorized. For an environment that is not written"
            " in JAX, apply Gymnasium's wrappers where it is created."
        )


Policy = Callable[[chex.ArrayTree, chex.PRNGKey], Any]  # (observation, key) -> action


def _not_an_environment(wrapper: str, env: Any) -> str:
    what, fix = f"{env!r:.80}", "Make one with jaxenvs.make(id)."
    if isinstance(env, str):
        what, fix = f'"{env}"', f'Create it first: {wrapper}(jaxenvs.make("{env}"), ...).'
    elif isinstance(env, VectorEnv):
        what, fix = f"the batch {env!r:.80}", f"Use vector_env.wrap({wrapper}, ...)."
    elif isinstance(env, type):
        what = f"the class {env.__name__}"
        if issubclass(env, Environment):
            fix = f"Create an instance first: {wrapper}({env.__name__}(), ...)."
    return f"{wrapper} got {what}; expected a jaxenvs Environment.  {fix}"
