"""A native environment with the interface of gymnax.

`import jaxenvs.faces.gymnax as gymnax` is the only line of a gymnax program that changes. gymnax
itself is optional. If it is installed, environments and spaces are instances of its classes,
because its programs check for them.
"""

from functools import partial
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxenvs import keys, prng, spaces
from jaxenvs._cpu.chunks import choose_chunk, overwrite_where
from jaxenvs.catalog.gymnax_ids import GYMNAX_DEFAULTS, GYMNAX_IDS
from jaxenvs.core import Environment, TimeStep, Wrapper
from jaxenvs.errors import ParameterError
from jaxenvs.faces._third_party import call_native, make_env_for
from jaxenvs.parameters import NO_LIMIT
from jaxenvs.wrappers import TimeLimit

gymnax_spaces: Any = None
GymnaxEnvironment: Any = object
try:
    from gymnax.environments import spaces as gymnax_spaces
    from gymnax.environments.environment import Environment as GymnaxEnvironment
except ImportError:
    pass

_INSTALLED = "1.x" if gymnax_spaces is None or hasattr(GymnaxEnvironment, "is_truncated") else "0.x"


class EnvParams(Wrapper[Any]):
    """The environment itself, used as the `params` of gymnax.

    `params.gravity` reads a parameter and `params.replace(gravity=3.7)` changes it. Parameters are
    leaves, so `params` can have a batch axis and pass through `jit` and `vmap`.
    """

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.env.reset(key)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.env.step(state, action, key)

    @property
    def max_steps_in_episode(self) -> Any:
        """int32[]: the number of steps after which an episode is truncated."""
        return self.env.time_limit

    def replace(self, **changes: Any) -> "EnvParams":
        """Returns a copy with some parameters changed. `max_steps_in_episode` may be infinite."""
        if "max_steps_in_episode" in changes:
            limit = changes.pop("max_steps_in_episode")
            is_infinite = isinstance(limit, float) and limit == np.inf
            name = "time_limit" if "time_limit" in self.parameters else "max_steps"
            changes[name] = NO_LIMIT if is_infinite else limit
        return super().replace(**changes)

    def __getattr__(self, name: str) -> Any:
        if "env" in vars(self) and name in (parameters := self.parameters):
            return parameters[name]
        raise AttributeError(f"{type(self).__name__} has no parameter {name!r}.")


class GymnaxEnv(GymnaxEnvironment):
    """A native environment as a `gymnax.environments.environment.Environment`.

    `step` restarts a finished instance, as gymnax does. Under `vmap`, only finished instances are
    reset, and each has the results of a batch of `vectorize` that is given one key per instance.
    The state is that of the native environment.

    Args:
        env: a native environment with a time limit.
        name: its name.
        api: the values that `step` returns, see `make_gymnax`.
    """

    _supports_transition_gradients = _transition_gradients_enabled = True  # gymnax 1.x reads these

    def __init__(self, env: Environment, name: str, api: Literal["0.x", "1.x"]) -> None:
        super().__init__()
        self._params, self._name, self._api = EnvParams(env), name, api

    @property
    def default_params(self) -> EnvParams:
        """The environment with its parameters."""
        return self._params

    @property
    def name(self) -> str:
        """The id."""
        return self._name

    @property
    def num_actions(self) -> int:
        """The number of actions, or of dimensions of a continuous action."""
        space: Any = self._params.action_space
        return space.n if isinstance(space, spaces.Discrete) else int(np.prod(space.shape))

    def action_space(self, params: EnvParams | None = None) -> Any:
        """Returns the space of actions."""
        return _to_gymnax((params or self._params).action_space)

    def observation_space(self, params: EnvParams | None = None) -> Any:
        """Returns the space of observations."""
        return _to_gymnax((params or self._params).observation_space)

    @partial(jax.jit, static_argnames="self")
    def reset(self, key: chex.PRNGKey, params: EnvParams | None = None) -> tuple[Any, Any]:
        """Starts an episode. Returns the observation and the state."""
        return self.reset_env(key, params or self._params)

    @partial(jax.jit, static_argnames="self")
    def step(
        self, key: chex.PRNGKey, state: Any, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, ...]:
        """Takes an action and starts the next episode if this one ends.

        Returns:
            With `api="1.x"`: observation, state, reward, terminated, truncated, info; the last
            observation of an episode is `info["final_observation"]`. With `api="0.x"`: observation,
            state, reward, done, info. In both, `info` has "discount", 0 only after a termination,
            "terminated" and "truncated", and what the environment adds, all of this step.
        """
        params = params or self._params
        key = prng.as_typed_key(key)
        state, timestep = _step(params, state, action, key)
        observation, state = _autoreset(params, timestep.done, key, (timestep.observation, state))
        info = _info(timestep)
        if self._api == "0.x":
            return observation, state, timestep.reward, timestep.done, info
        info["final_observation"] = timestep.observation
        return observation, state, timestep.reward, timestep.terminated, timestep.truncated, info

    def reset_env(self, key: chex.PRNGKey, params: EnvParams) -> tuple[Any, Any]:
        """Starts an episode. Returns the observation and the state."""
        return _start(params, prng.as_typed_key(key))

    def step_env(
        self, key: chex.PRNGKey, state: Any, action: Any, params: EnvParams
    ) -> tuple[Any, Any, jax.Array, jax.Array, dict[str, Any]]:
        """Takes an action, without a reset.

        Returns:
            Observation, state, reward, terminated (`done` with `api="0.x"`) and info, which has
            "truncated" in both.
        """
        state, timestep = _step(params, state, action, prng.as_typed_key(key))
        ended = timestep.done if self._api == "0.x" else timestep.terminated
        return timestep.observation, state, timestep.reward, ended, _info(timestep)

    def render(self, state: Any, params: EnvParams | None = None) -> jax.Array:
        """Draws `state` as uint8[H, W, 3]."""
        return (params or self._params).render(state)


def make_gymnax(
    id: str | Environment,
    *,
    api: Literal["0.x", "1.x"] | None = None,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> tuple[GymnaxEnv, EnvParams]:
    """Makes a native environment with the interface of gymnax.

    Args:
        id: a native id, an `Environment`, or an id of gymnax such as "DeepSea-bsuite", which has
            gymnax's defaults.
        api: what `step` returns: "0.x", five values with `done`, as up to gymnax 0.0.9, or "1.x",
            six values with `terminated` and `truncated`. None takes the form of the installed
            gymnax, and "1.x" without one.
        time_limit: see `make`.
        **params: parameters of the environment, such as `gravity=3.7`.

    Returns:
        The environment and its parameters.

    Raises:
        ParameterError: `id` or `api` is wrong.

    Example:
        >>> env, env_params = make_gymnax("CartPole-v1", api="1.x")
        >>> obs, state = env.reset(jax.random.key(0), env_params)
        >>> key, action = jax.random.key(1), 1
        >>> obs, state, reward, terminated, truncated, info = env.step(
        ...     key, state, action, env_params.replace(gravity=3.7)
        ... )
        >>> obs.shape, env.num_actions, env_params.max_steps_in_episode
        ((4,), 2, 500)
    """
    if api not in (None, "0.x", "1.x"):
        raise ParameterError(
            f'make_gymnax got api="{api}"; it must be "0.x", which returns five values from step,'
            ' "1.x", which returns six, or None.'
        )
    native_id = id
    if isinstance(id, str):
        native_id, params = GYMNAX_IDS.get(id, id), GYMNAX_DEFAULTS.get(id, {}) | params
    env = make_env_for("make_gymnax", native_id, time_limit, params)
    if env.time_limit is None:
        env = TimeLimit(env, time_limit=NO_LIMIT)
    name = id if isinstance(id, str) else type(id.unwrapped).__name__
    gymnax_env = GymnaxEnv(env, name, api or _INSTALLED)
    return gymnax_env, gymnax_env.default_params


make = make_gymnax  # the name in gymnax
registered_envs = list(GYMNAX_IDS)


def _start(env: Environment, key: chex.PRNGKey) -> tuple[Any, Any]:
    def reset(key: chex.PRNGKey) -> tuple[Any, Any]:
        state, timestep = env.reset(key)
        return timestep.observation, state

    return call_native(reset, key)


def _step(env: Environment, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
    space = env.action_space
    if space.shape is not None:  # programs of gymnax pass any dtype, and scalars for shape (1,)
        action = jnp.asarray(action).astype(space.dtype).reshape(space.shape)
    return call_native(lambda key: env.step(state, action, key), key)


def _info(timestep: TimeStep) -> dict[str, Any]:
    return {
        **timestep.info,
        "discount": timestep.discount,
        "terminated": timestep.terminated,
        "truncated": timestep.truncated,
    }


def _restart_by_selection(env: Any, done: jax.Array, key: chex.PRNGKey, old: Any) -> Any:
    """Returns the observation and state of a new episode if `done`, otherwise `old`."""
    fresh = _start(env, keys.autoreset_key(key))
    return jax.tree.map(partial(jnp.where, done), fresh, old)


_restart = custom_vmap(_restart_by_selection)


@_restart.def_vmap
def _restart_finished(num_envs: int, is_batched: Any, *args: Any) -> tuple[Any, Any]:
    """The batched form of `_restart_by_selection`: resets only the finished instances."""

    def all_rows(leaf: Any, is_batched: bool) -> Any:
        return leaf if is_batched else jnp.broadcast_to(leaf, (num_envs, *jnp.shape(leaf)))

    def reset_at(params: Any, indices: jax.Array) -> Any:
        parameters, key = params
        rows = jnp.minimum(indices, num_envs - 1)  # indices past the end are dropped later
        parameters = [
            leaf if axis is None else leaf[rows]
            for axis, leaf in zip(axes, parameters, strict=True)
        ]
        return jax.vmap(reset, (axes, 0))(parameters, key[rows])

    def reset(parameters: list[Any], key: chex.PRNGKey) -> Any:
        return _start(treedef.unflatten(parameters), keys.autoreset_key(key))

    parameters, treedef = jax.tree.flatten(args[0])
    axes = [0 if each else None for each in jax.tree.leaves(is_batched[0])]
    done, key, old = jax.tree.map(all_rows, args[1:], tuple(is_batched[1:]))
    new = overwrite_where(reset_at, choose_chunk(num_envs), done, (parameters, key), old)
    return new, jax.tree.map(lambda _: True, new)


# `custom_vmap` has no reverse-mode derivative. As in `overwrite_where`, derivatives are those of a
# selection.
_autoreset = jax.custom_jvp(lambda *args: _restart(*args))


@_autoreset.defjvp
def _autoreset_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    return _autoreset(*primals), jax.jvp(_restart_by_selection, primals, tangents)[1]


def _to_gymnax(space: Any) -> Any:
    """Returns gymnax's space, which samples as ours does. Without gymnax, returns `space`."""
    if gymnax_spaces is None:
        return space
    if isinstance(space, spaces.Dict):
        theirs = gymnax_spaces.Dict({name: _to_gymnax(each) for name, each in space.spaces.items()})
    elif isinstance(space, spaces.Tuple):
        theirs = gymnax_spaces.Tuple([_to_gymnax(each) for each in space.spaces])
    elif isinstance(space, spaces.Discrete) and space.start == 0:
        theirs = gymnax_spaces.Discrete(space.n)
    else:
        theirs = gymnax_spaces.Box(*space.bounds, space.shape, space.dtype)
    theirs.sample = space.sample
    return theirs
