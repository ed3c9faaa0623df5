"""The libraries that `jaxenvs.suites` adapts, as a program of theirs calls them.

`PLAYERS[suite](name, parameters)` returns `reset(key) -> (state, observation)` and
`step(state, action, key) -> (state, observation, reward, terminated, truncated)` of one instance,
without automatic resets. Where a library merges the two flags, `terminated` is both.

`RESETTING[suite](name)` returns `reset(keys) -> state` and
`step(state, action, keys) -> (state, reward, done)` of N instances with the library's own automatic
resets. Another way of the library to reset follows the suite after a comma.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxenvs.struct import select
from jaxenvs.suites._shared import by_name

Player = tuple[Callable[..., Any], Callable[..., Any]]


def _play_gymnax(name: str, parameters: dict[str, Any]) -> Player:
    import gymnax

    env, params = gymnax.make(name)
    params = params.replace(**parameters)

    def step(state: Any, action: Any, key: Any) -> Any:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        is_apart = hasattr(env, "is_truncated")
        return state, obs, reward, terminated, is_apart and env.is_truncated(state, params)

    return lambda key: env.reset(key, params)[::-1], step


def _play_with_params(env: Any, params: Any) -> Player:
    def step(state: Any, action: Any, key: Any) -> Any:
        obs, state, reward, done, _ = env.step(key, state, action, params)
        return state, obs, reward, done, False

    return lambda key: env.reset(key, params)[::-1], step


def _play_craftax(name: str, parameters: dict[str, Any]) -> Player:
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name(name, auto_reset=False)
    return _play_with_params(env, env.default_params.replace(**parameters))


def _play_kinetix(name: str, parameters: dict[str, Any]) -> Player:
    del parameters
    return _play_with_params(*_kinetix(name, auto_reset=False))


def _kinetix(name: str, *, auto_reset: bool) -> tuple[Any, Any]:
    """Returns one of Kinetix's levels and its parameters."""
    from kinetix import environment
    from kinetix.environment.ued import ued
    from kinetix.util import saving

    _, fixed, params = saving.load_from_json_file(name)
    reset = ued.make_reset_fn_list_of_levels([name], fixed)
    kinds = environment.ActionType.MULTI_DISCRETE, environment.ObservationType.SYMBOLIC_FLAT
    env = environment.make_kinetix_env(*kinds, reset, params, fixed, auto_reset=auto_reset)
    return env, params


def _play_jaxtari(name: str, parameters: dict[str, Any]) -> Player:
    from jaxtari import core

    del parameters
    env = core.make(name)

    def step(state: Any, action: Any, key: Any) -> Any:
        obs, state, reward, done, _ = env.step(state, action)
        return state, obs, reward, done, False

    return lambda key: env.reset(jax.random.key_data(key))[::-1], step


def _play_jaxmarl(name: str, parameters: dict[str, Any]) -> Player:
    import jaxmarl

    env = jaxmarl.make(name, **parameters)

    def step(state: Any, action: Any, key: Any) -> Any:
        obs, state, reward, done, _ = env.step_env(key, state, action)
        return state, obs, reward, done["__all__"], False

    return lambda key: env.reset(key)[::-1], step


def _play_jumanji(name: str, parameters: dict[str, Any]) -> Player:
    import jumanji
    from jumanji.registration import _REGISTRY

    env = jumanji.make(name)
    if parameters:
        env = type(env)(**{**_REGISTRY[name].kwargs, **parameters})

    def reset(key: Any) -> Any:
        state, timestep = env.reset(key)
        return state, by_name(timestep.observation)

    def step(state: Any, action: Any, key: Any) -> Any:
        state, timestep = env.step(state, action)
        return state, by_name(timestep.observation), timestep.reward, timestep.last(), False

    return reset, step


def _play_pgx(name: str, parameters: dict[str, Any]) -> Player:
    import pgx

    env = pgx.make(name)

    def observe(state: Any) -> Any:
        return {"observation": state.observation, "action_mask": state.legal_action_mask}

    def reset(key: Any) -> Any:
        state = env.init(key)
        return state, observe(state)

    def step(state: Any, action: Any, key: Any) -> Any:
        state = env.step(state, action, key)
        return state, observe(state), state.rewards[0], state.terminated, state.truncated

    return reset, step


def _play_navix(name: str, parameters: dict[str, Any]) -> Player:
    import navix

    env = navix.make(name, **parameters).replace(disable_autoreset=True)

    def reset(key: Any) -> Any:
        timestep = env.reset(key)
        timestep.info["return"] = jnp.float32(0)
        return timestep, timestep.observation

    def step(state: Any, action: Any, key: Any) -> Any:
        timestep = env.step(state, action)
        ends = timestep.is_termination(), timestep.is_truncation()
        return timestep, timestep.observation, timestep.reward, *ends

    return reset, step


def _play_xminigrid(name: str, parameters: dict[str, Any]) -> Player:
    import xminigrid

    env, params = xminigrid.make(name, **parameters)

    def reset(key: Any) -> Any:
        timestep = env.reset(params, key)
        return timestep, timestep.observation

    def step(state: Any, action: Any, key: Any) -> Any:
        timestep = env.step(params, state, action)
        terminated = timestep.last() & (timestep.discount == 0)
        ends = terminated, timestep.last() & ~terminated
        return timestep, timestep.observation, timestep.reward, *ends

    return reset, step


def _play_brax_like(env: Any) -> Player:
    def reset(key: Any) -> Any:
        state = env.reset(key)
        return state, state.obs

    def step(state: Any, action: Any, key: Any) -> Any:
        state = env.step(jax.tree.map(lambda leaf: leaf, state), action)
        truncated = state.info["truncation"] != 0
        return state, state.obs, state.reward, (state.done != 0) & ~truncated, truncated

    return reset, step


def _play_brax(name: str, parameters: dict[str, Any]) -> Player:
    from brax import envs

    return _play_brax_like(envs.create(name, auto_reset=False, **parameters))


def _play_playground(name: str, parameters: dict[str, Any]) -> Player:
    from mujoco_playground import registry, wrapper

    env = registry.load(name, config_overrides={"impl": "jax"})
    length = parameters.get("episode_length", 1_000)
    return _play_brax_like(wrapper.brax_training.EpisodeWrapper(env, length, 1))


def _resetting_gymnax(name: str) -> Player:
    import gymnax

    env, params = gymnax.make(name)

    def step(state: Any, action: Any, keys: Any) -> Any:
        out = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, action, params)
        return out[1], out[2], out[3] if len(out) == 5 else out[3] | out[4]

    return lambda keys: jax.vmap(env.reset, in_axes=(0, None))(keys, params)[1], step


def _resetting_with_params(env: Any, params: Any) -> Player:
    def step(state: Any, action: Any, keys: Any) -> Any:
        out = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, action, params)
        return out[1:4]

    return lambda keys: jax.vmap(env.reset, in_axes=(0, None))(keys, params)[1], step


def _resetting_craftax(name: str) -> Player:
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name(name, auto_reset=True)
    return _resetting_with_params(env, env.default_params)


def _optimistic_craftax(name: str, ratio: int = 16) -> Player:
    """Craftax Baselines' way: one new episode per `ratio` instances, shared by those that need it.

    Up to N / ratio finished instances, chosen at random, get a new episode of their own. Others
    share the one of their group.
    """
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name(name, auto_reset=False)
    params = env.default_params

    def start(keys: Any) -> Any:
        return jax.vmap(env.reset, in_axes=(0, None))(keys, params)[1]

    def step(state: Any, action: Any, keys: Any) -> Any:
        _, state, reward, done, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            keys, state, action, params
        )
        num_envs, count = len(keys), max(len(keys) // ratio, 1)
        chosen, *reset_keys = jax.random.split(keys[0], count + 1)
        own = jax.random.choice(chosen, num_envs, (count,), replace=False, p=done / done.sum())
        which = jnp.repeat(jnp.arange(count), ratio, total_repeat_length=num_envs)
        which = which.at[own].set(jnp.arange(count))
        fresh = jax.tree.map(lambda leaf: leaf[which], start(jnp.stack(reset_keys)))
        return select(done, fresh, state), reward, done

    return start, step


def _resetting_kinetix(name: str) -> Player:
    return _resetting_with_params(*_kinetix(name, auto_reset=True))


def _resetting_jaxtari(name: str) -> Player:
    """JAXtari has no automatic resets; these are the usual ones."""
    reset, step_one = _play_jaxtari(name, {})

    def step(state: Any, action: Any, keys: Any) -> Any:
        state, _, reward, done, _ = jax.vmap(step_one)(state, action, keys)
        return select(done, jax.vmap(reset)(keys)[0], state), reward, done

    return lambda keys: jax.vmap(reset)(keys)[0], step


def _resetting_jaxmarl(name: str) -> Player:
    import jaxmarl

    env = jaxmarl.make(name)

    def step(state: Any, action: Any, keys: Any) -> Any:
        _, state, reward, done, _ = jax.vmap(env.step)(keys, state, action)
        return state, reward, done["__all__"]

    return lambda keys: jax.vmap(env.reset)(keys)[1], step


def _resetting_jumanji(name: str) -> Player:
    import jumanji
    from jumanji import wrappers

    env = wrappers.VmapWrapper(wrappers.AutoResetWrapper(jumanji.make(name)))

    def step(state: Any, action: Any, keys: Any) -> Any:
        state, timestep = env.step(state, action)
        return state, timestep.reward, timestep.last()

    return lambda keys: env.reset(keys)[0], step


def _resetting_pgx(name: str) -> Player:
    import pgx
    from pgx.experimental import auto_reset

    env: Any = pgx.make(name)  # pyright: ignore[reportArgumentType]

    def step(state: Any, action: Any, keys: Any) -> Any:
        state = jax.vmap(auto_reset(env.step, env.init))(state, action, keys)
        return state, state.rewards[:, 0], state.terminated | state.truncated

    return jax.vmap(env.init), step


def _resetting_navix(name: str) -> Player:
    import navix

    env = navix.make(name)

    def step(state: Any, action: Any, keys: Any) -> Any:
        state = jax.vmap(env.step)(state, action)
        return state, state.reward, state.is_done()

    def reset(keys: Any) -> Any:
        timestep = jax.vmap(env.reset)(keys)
        timestep.info["return"] = jnp.zeros(keys.shape, jnp.float32)
        return timestep

    return reset, step


def _resetting_xminigrid(name: str) -> Player:
    import xminigrid
    from xminigrid.wrappers import GymAutoResetWrapper

    env, params = xminigrid.make(name)
    env = GymAutoResetWrapper(env)

    def step(state: Any, action: Any, keys: Any) -> Any:
        state = jax.vmap(env.step, in_axes=(None, 0, 0))(params, state, action)
        return state, state.reward, state.last()

    return lambda keys: jax.vmap(env.reset, in_axes=(None, 0))(params, keys), step


def _resetting_brax_like(env: Any) -> Player:
    def step(state: Any, action: Any, keys: Any) -> Any:
        state = env.step(jax.tree.map(lambda leaf: leaf, state), action)
        return state, state.reward, state.done

    return lambda keys: env.reset(jax.random.key_data(keys)), step


def _resetting_brax(name: str) -> Player:
    from brax import envs

    return _resetting_brax_like(envs.training.wrap(envs.get_environment(name)))


def _resetting_playground(name: str) -> Player:
    from mujoco_playground import registry, wrapper

    env = registry.load(name, config_overrides={"impl": "jax"})
    return _resetting_brax_like(wrapper.wrap_for_brax_training(env, full_reset=True))


PLAYERS: dict[str, Callable[[str, dict[str, Any]], Player]] = {
    "brax": _play_brax,
    "craftax": _play_craftax,
    "gymnax": _play_gymnax,
    "jaxmarl": _play_jaxmarl,
    "jaxtari": _play_jaxtari,
    "jumanji": _play_jumanji,
    "kinetix": _play_kinetix,
    "navix": _play_navix,
    "pgx": _play_pgx,
    "playground": _play_playground,
    "xminigrid": _play_xminigrid,
}
RESETTING: dict[str, Callable[[str], Player]] = {
    "brax": _resetting_brax,
    "craftax": _resetting_craftax,
    "craftax, optimistic": _optimistic_craftax,
    "gymnax": _resetting_gymnax,
    "jaxmarl": _resetting_jaxmarl,
    "jaxtari": _resetting_jaxtari,
    "jumanji": _resetting_jumanji,
    "kinetix": _resetting_kinetix,
    "navix": _resetting_navix,
    "pgx": _resetting_pgx,
    "playground": _resetting_playground,
    "xminigrid": _resetting_xminigrid,
}
