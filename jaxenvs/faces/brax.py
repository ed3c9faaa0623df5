"""A native environment with the interface of brax."""

from collections.abc import Callable
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys, prng, spaces
from jaxenvs._cpu.chunks import choose_chunk, overwrite_where
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, SpaceError, missing_extra
from jaxenvs.faces._third_party import make_env_for, reset_with_half, step_with_half
from jaxenvs.struct import is_traced

try:
    from brax.envs import Env, State
    from brax.envs.base import Wrapper
    from brax.envs.wrappers import training
except ImportError as error:
    raise missing_extra(__name__, "brax", "brax") from error


class BraxEnv(Env):
    """A native environment as a `brax.envs.Env`, without a reset after an episode.

    `pipeline_state` is the native state. `metrics` has the scalars of the native info as float32.
    `info` has "key", the key of the next step as uint32[2], and "truncation" and "time_out",
    float32, both 1 where the episode was truncated. `done` is 1 at every end. An episode that
    terminates and is truncated in the same step counts as terminated.

    `sys` is the native environment, a pytree of its parameters, so brax's `randomization_fn` can
    change them.
    """

    def __init__(self, env: Environment) -> None:
        self.sys = env

    def reset(self, rng: chex.PRNGKey) -> State:
        """Starts an episode."""
        return _to_brax(*reset_with_half(self.sys, rng))

    def step(self, state: State, action: jax.Array) -> State:
        """Takes an action, float32[action_size]. Values outside of [-1, 1] are clipped."""
        action = self._to_native(action)
        results = step_with_half(self.sys, state.pipeline_state, action, state.info["key"])
        return _to_brax(*results, state)

    @property
    def observation_size(self) -> Any:
        """The length of observations, or their shapes by name."""
        space: Any = self.sys.observation_space
        if isinstance(space, spaces.Dict):
            return {name: each.shape for name, each in space.spaces.items()}
        return space.shape[0]

    @property
    def action_size(self) -> int:
        """The length of actions."""
        return self.sys.action_space.flat_dim

    @property
    def backend(self) -> str:
        """The name of this library, which has no physics backends."""
        return "jaxenvs"

    def _to_native(self, action: jax.Array) -> jax.Array:
        """Maps [-1, 1] to the bounds of the action space."""
        box: Any = self.sys.action_space
        action = jnp.clip(action, -1, 1).astype(box.dtype).reshape(box.shape)
        center, radius = box.low / 2 + box.high / 2, box.high / 2 - box.low / 2
        # Divide instead of multiplying: XLA fuses a product and a sum in some programs only, and
        # the results would round differently.
        return jnp.clip(center + action / (1 / jnp.asarray(radius)), box.low, box.high)


class ExactAutoResetWrapper(Wrapper):
    """Starts every episode with a reset of its own, which brax's `AutoResetWrapper` does not do.

    `info["truncation"]` is also 1 where the environment itself truncates, which brax's
    `EpisodeWrapper` takes for a termination.
    """

    def __init__(self, env: training.EpisodeWrapper) -> None:
        super().__init__(env)
        # Only then can `reset` compute a part of the rows.
        self._can_chunk = isinstance(env.env, training.VmapWrapper)

    def step(self, state: State, action: jax.Array) -> State:
        """Takes an action in every instance."""
        info = {**state.info, "steps": jnp.where(state.done != 0, 0, state.info["steps"])}
        state = self.env.step(state.replace(done=jnp.zeros_like(state.done), info=info), action)
        finished = state.done != 0

        def reset_at(next_keys: jax.Array, indices: jax.Array) -> Any:
            rows = jnp.minimum(indices, len(next_keys) - 1)  # those past the end are dropped later
            fresh = self.env.reset(jax.vmap(_reset_key)(next_keys[rows]))
            return fresh.pipeline_state, fresh.obs, fresh.info["key"]

        next_keys = state.info["key"]
        old = (state.pipeline_state, state.obs, next_keys)
        chunk = choose_chunk(len(finished)) if self._can_chunk else None
        native, obs, key = overwrite_where(reset_at, chunk, finished, next_keys, old)
        truncation = jnp.maximum(state.info["truncation"], state.info["time_out"])
        info = {**state.info, "key": key, "truncation": truncation}
        return state.replace(pipeline_state=native, obs=obs, info=info)


def wrap_for_training(
    env: BraxEnv,
    episode_length: int = 1_000,
    action_repeat: int = 1,
    randomization_fn: Callable[[Any], tuple[Any, Any]] | None = None,
) -> Wrapper:
    """Batches, limits and resets an environment, as `brax.envs.training.wrap` does, but exactly.

    Args:
        env: the result of `make_brax`.
        episode_length: the number of steps after which an episode is truncated.
        action_repeat: must be 1, because brax's repetition goes on after the end of an episode.
        randomization_fn: takes the native environment. Returns it with some parameters of shape
            [N], and their axes: the same pytree with 0 for these parameters and None for others.

    Raises:
        ParameterError: `action_repeat` is not 1.
    """
    if action_repeat != 1:
        raise ParameterError(
            f"wrap_for_training got action_repeat={action_repeat}; it must be 1.  Repeat actions"
            " inside of the environment: make_brax(RepeatAction(env, 2))."
        )
    if randomization_fn is None:
        batch: Any = training.VmapWrapper(env)
    else:
        batch = training.DomainRandomizationVmapWrapper(env, randomization_fn)
    return ExactAutoResetWrapper(training.EpisodeWrapper(batch, episode_length, action_repeat))


def make_brax(
    id: str | Environment,
    *,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> BraxEnv:
    """Makes a native environment with the interface of brax.

    Train with `wrap_env_fn=wrap_for_training`. brax's own wrappers return to the same first state
    after every episode, and take a truncation by the environment for a termination, unless
    `bootstrap_on_timeout` is set.

    Args:
        id: a native id or an `Environment`.
        time_limit: see `make`. The `episode_length` of brax is another limit.
        **params: parameters of the environment, such as `gravity=3.7`.

    Raises:
        ParameterError: `id` is neither.
        SpaceError: actions are not a floating-point `Box` with finite bounds, or observations are
            neither vectors nor a `Dict` of arrays.
    """
    env = make_env_for("make_brax", id, time_limit, params)
    actions, observations = env.action_space, env.observation_space
    if not (
        isinstance(actions, spaces.Box)
        and jnp.issubdtype(actions.dtype, np.floating)
        and (is_traced(*actions.bounds) or np.isfinite(actions.bounds).all())
    ):
        raise SpaceError(
            f"make_brax got an environment whose action_space is {actions}; the actions of brax are"
            " floating-point numbers in [-1, 1], so it must be a floating-point Box with finite"
            " bounds.  Wrap it in TransformAction."
        )
    if not (
        all(each.shape for each in observations.spaces.values())
        if isinstance(observations, spaces.Dict)
        else len(observations.shape or ()) == 1
    ):
        raise SpaceError(
            f"make_brax got an environment whose observation_space is {observations}; the networks"
            " of brax need vectors, or a dict of arrays.  Wrap it in FlattenObservation."
        )
    return BraxEnv(env)


def _to_brax(
    native: Any, timestep: TimeStep, key: jax.Array, previous: State | None = None
) -> State:
    """Returns brax's state, with what its wrappers added to the previous one."""
    metrics, info = ({}, {}) if previous is None else (previous.metrics, previous.info)
    scalars = {
        name: jnp.asarray(value, jnp.float32)
        for name, value in timestep.info.items()
        if getattr(value, "shape", None) == ()
    }
    truncated = (timestep.truncated & ~timestep.terminated).astype(jnp.float32)
    key_data = jax.random.key_data(key)
    return State(
        pipeline_state=native,
        obs=timestep.observation,
        reward=timestep.reward,
        done=timestep.done.astype(jnp.float32),
        metrics={**metrics, **scalars},
        info={**info, "key": key_data, "truncation": truncated, "time_out": truncated},
    )


def _reset_key(next_key: jax.Array) -> jax.Array:
    return jax.random.key_data(keys.autoreset_key(prng.as_fast_key(next_key)))
