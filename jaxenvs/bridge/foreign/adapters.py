"""Adapters from classic gym, dm_env and PettingZoo (parallel) to Gymnasium's interface."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from jaxenvs.bridge.memory.layout import leaves_of, tree_of
from jaxenvs.errors import PoolError


class AlreadyVectorized(PoolError):
    """An environment function returned a vectorized environment."""


def adapted(env: Any) -> Any:
    """Returns an environment of Gymnasium as it is, and others wrapped in an adapter.

    Observations with texts are wrapped in `TextAsBytes`.

    Raises:
        PoolError: the environment is vectorized, its agents take turns, or its interface is
            unknown.
    """
    if isinstance(env, gymnasium.Env) and not is_vectorized(env):
        return TextAsBytes(env) if _has_text(env.observation_space) else env
    if is_vectorized(env):
        raise AlreadyVectorized(
            f"the environment function returned {type(env).__name__}, which is vectorized already."
            '  Pass backend="native", or return a single environment.'
        )
    if hasattr(env, "observation_spec") and hasattr(env, "action_spec"):
        return DmEnvAdapter(env)
    if hasattr(env, "possible_agents"):
        return ParallelEnvAdapter(_parallel(env))
    if not (hasattr(env, "step") and hasattr(env, "reset") and hasattr(env, "action_space")):
        raise PoolError(
            f"the environment function returned {type(env).__name__}, which has no step, reset and"
            " action_space.  Return an environment of Gymnasium, gym, dm_env or PettingZoo."
        )
    of_gymnasium = isinstance(env.action_space, spaces.Space)
    return env if of_gymnasium and _takes(env, "seed") else ClassicGymAdapter(env)


def is_vectorized(env: Any) -> bool:
    """Returns whether `env` is a vectorized environment."""
    return isinstance(env, gymnasium.vector.VectorEnv) or is_envpool(env)


def is_envpool(env: Any) -> bool:
    """Returns whether `env` is an EnvPool, of any interface and release."""
    return hasattr(env, "async_reset") and hasattr(env, "recv") and hasattr(env, "all_env_ids")


class Adapter(gymnasium.Env):
    """An environment of Gymnasium that wraps one with another interface.

    Attributes accessed by name are those of the wrapped environment, if it has them.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)

    @property
    def unwrapped(self) -> Any:
        """The wrapped environment."""
        return self.env

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self.env, name) or hasattr(self, name)

    def get_wrapper_attr(self, name: str) -> Any:
        own = name in ("step", "reset", "render", "close", "observation_space", "action_space")
        return (
            getattr(self, name) if own or not hasattr(self.env, name) else getattr(self.env, name)
        )

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        env = self.env
        while name not in getattr(env, "__dict__", {}) and hasattr(env, "env"):
            env = env.env
        setattr(env if hasattr(env, name) else self.env, name, value)
        return True

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> Any:
        return self.env.close() if hasattr(self.env, "close") else None


# --- texts ---

_TEXT_ROOM = 256  # bytes of a text whose space has no limit, as MiniGrid's missions


class TextAsBytes(gymnasium.ObservationWrapper):
    """Observations with the texts of the environment as bytes.

    A text becomes uint8[n]: its UTF-8, padded with zeros. n is the most bytes that its space
    allows, or 256 if the space does not say. `bytes(row).rstrip(b"\\0").decode()` is the text.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = _in_bytes(env.observation_space)

    def observation(self, observation: Any) -> Any:
        return _as_bytes(observation, self.env.observation_space, self.observation_space)


def _is_text(space: Any) -> bool:
    return isinstance(space, spaces.Text) or (space.dtype is not None and space.dtype.kind == "U")


def _has_text(space: Any) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return any(map(_has_text, inner))
    return isinstance(space, spaces.Space) and _is_text(space)


def _in_bytes(space: Any) -> spaces.Space:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _in_bytes(part) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_in_bytes(part) for part in space.spaces])
    return spaces.Box(0, 255, (_text_room(space),), np.uint8) if _is_text(space) else space


def _text_room(space: Any) -> int:
    if not isinstance(space, spaces.Text):
        return _TEXT_ROOM
    return space.max_length * max(len(letter.encode()) for letter in space.character_set)


def _as_bytes(value: Any, space: Any, target: Any) -> Any:
    """Returns a value of `space` as one of `target`, which is `_in_bytes(space)`."""
    if isinstance(space, spaces.Dict):
        return {name: _as_bytes(value[name], space[name], target[name]) for name in space}
    if isinstance(space, spaces.Tuple):
        return tuple(_as_bytes(*each) for each in zip(value, space, target, strict=True))
    if not _is_text(space):
        return value
    data, room = value.encode(), target.shape[0]
    if len(data) > room:
        raise ValueError(f"a text of the observation has {len(data)} bytes, more than {room}")
    return np.frombuffer(data.ljust(room, b"\0"), np.uint8)


# --- classic gym ---


class ClassicGymAdapter(Adapter):
    """An adapter for environments with the interface of the gym package.

    `step` may return 5 values, or 4 with truncation in `info["TimeLimit.truncated"]`. `reset` may
    return an observation, or an observation and an info. Seeds are passed to `reset`, or to `seed`
    if `reset` does not accept one.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium_space(env.observation_space)
        self.action_space = gymnasium_space(env.action_space)
        self._taken = [name for name in ("seed", "options") if _takes(env, name)]
        if self.render_mode is None and "mode" in _parameters(getattr(env, "render", None)):
            modes = self.metadata.get("render.modes", self.metadata.get("render_modes", ()))
            self.render_mode = "rgb_array" if "rgb_array" in modes else None
            self._asks_for_mode = self.render_mode is not None
        else:
            self._asks_for_mode = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        given = {"seed": seed, "options": options}
        if seed is not None and "seed" not in self._taken and hasattr(self.env, "seed"):
            self.env.seed(seed)
        return _then(self.env.reset(**{name: given[name] for name in self._taken}), _with_info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return _then(self.env.step(action), _with_both_flags)

    def render(self) -> Any:
        return self.env.render(mode="rgb_array") if self._asks_for_mode else self.env.render()


def _with_info(found: Any) -> tuple[Any, dict[str, Any]]:
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
        return found
    return found, {}


def _with_both_flags(found: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    if len(found) == 5:
        return found
    observation, reward, done, info = found
    truncated = bool(done and info.get("TimeLimit.truncated", False))
    return observation, reward, bool(done) and not truncated, truncated, info


def _then(found: Any, function: Callable[[Any], Any]) -> Any:
    """Returns `function(found)`; if `found` is a coroutine, a coroutine that returns that."""
    if not inspect.iscoroutine(found):
        return function(found)

    async def later() -> Any:
        return function(await found)

    return later()


def gymnasium_space(space: Any) -> spaces.Space:
    """Returns Gymnasium's version of a space of the gym package; Gymnasium's own unchanged.

    Raises:
        PoolError: the space is of another kind.
    """
    if isinstance(space, spaces.Space):
        return space
    name = type(space).__name__
    if name == "Box":
        return spaces.Box(space.low, space.high, space.shape, space.dtype)
    if name == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if name == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec, dtype=space.dtype)
    if name == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if name == "Dict":
        subs = {key: gymnasium_space(sub) for key, sub in space.spaces.items()}
        return spaces.Dict(subs)
    if name == "Tuple":
        return spaces.Tuple([gymnasium_space(sub) for sub in space.spaces])
    raise PoolError(
        f"a pool cannot hold {space!r:.100} of {type(space).__module__}.  Wrap the environment so"
        " that its spaces are Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of these."
    )


# --- dm_env ---


class DmEnvAdapter(Adapter):
    """An adapter for environments of dm_env.

    A missing reward becomes 0. An episode that ends with discount 0 is terminated; with any other
    discount it is truncated. A discount other than 0 and 1 is in `info["discount"]`.

    dm_env has no seeds. A seed is passed to dm_control's random states, or to a method `seed`.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = space_of_spec(env.observation_spec())
        self.action_space = space_of_spec(env.action_spec())
        self._physics = getattr(env, "physics", None)
        if self._physics is not None:
            self.render_mode = "rgb_array"
            fps = round(1 / env.control_timestep())
            self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps, **self.metadata}
        simple = isinstance(self.action_space, spaces.Discrete)
        # The pool passes Python ints; some environments require the dtype of their spec.
        self._action = env.action_spec().dtype.type if simple else lambda action: action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed(seed)
        return self.env.reset().observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        timestep = self.env.step(self._action(action))
        reward, discount = timestep.reward, timestep.discount
        over = bool(timestep.last())
        terminated = over and discount is not None and not discount
        info = {} if discount is None or discount in (0, 1) else {"discount": float(discount)}
        reward = 0.0 if reward is None else float(reward)
        return timestep.observation, reward, terminated, over and not terminated, info

    def render(self, **kwargs: Any) -> Any:
        """Returns a frame by `env.physics.render`, which takes `height`, `width`, `camera_id`."""
        if self._physics is None:
            return self.env.render(**kwargs)
        return self.env.physics.render(**kwargs)

    def _seed(self, seed: int) -> None:
        task = getattr(self.env, "task", None)
        states = [getattr(task, "random", None), getattr(self.env, "random_state", None)]
        states = [state for state in states if isinstance(state, np.random.RandomState)]
        for state in states:
            state.seed(seed % 2**32)
        if callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        elif not states:
            warnings.warn(
                f"{type(self.env).__name__} cannot be seeded after construction, so the seed of"
                " reset is ignored.  Seed it inside the environment function.",
                stacklevel=2,
            )


def space_of_spec(spec: Any) -> spaces.Space:
    """Returns the space of a dm_env spec, or of a dict, list or tuple of specs; dtypes are kept.

    Raises:
        PoolError: a spec is not numeric.
    """
    if isinstance(spec, Mapping):
        return spaces.Dict([(name, space_of_spec(sub)) for name, sub in spec.items()])
    if isinstance(spec, Sequence):
        return spaces.Tuple([space_of_spec(sub) for sub in spec])
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    kind = np.dtype(spec.dtype).kind
    if kind not in "fiub":
        raise PoolError(
            f"a pool cannot hold {spec!r:.100}, which is not numeric.  Wrap the environment so that"
            " its specs are arrays of numbers."
        )
    if hasattr(spec, "minimum"):
        low, high = spec.minimum, spec.maximum
    elif kind == "f":
        low, high = -np.inf, np.inf
    else:
        low, high = (0, 1) if kind == "b" else (np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max)
    low, high = (np.broadcast_to(bound, spec.shape).astype(spec.dtype) for bound in (low, high))
    return spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)


# --- PettingZoo ---

AGENT_FIELDS = ("agent_reward", "agent_terminated", "agent_truncated", "agent_alive")


class ParallelEnvAdapter(Adapter):
    """A parallel environment of PettingZoo as one environment with `Dict` spaces, keyed by agent.

    A is the number of `possible_agents`. `info` contains, with arrays in the order of
    `possible_agents`:

    - `agent_reward`: float64[A]; the reward of the step is their sum;
    - `agent_terminated`, `agent_truncated`: bool[A], for agents that have left;
    - `agent_alive`: bool[A], the agents that act next;
    - each agent's own info, under the agent's name.

    An absent agent observes zeros, and its action is ignored. The episode ends when no agent is
    left. It is truncated if any of the agents that left last was truncated, otherwise terminated.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        agents = self._agents = list(env.possible_agents)
        # Pairs, so that agents stay in their order.
        self.observation_space = spaces.Dict([(a, env.observation_space(a)) for a in agents])
        self.action_space = spaces.Dict([(a, env.action_space(a)) for a in agents])
        self._zeros = {agent: _zeros(env.observation_space(agent)) for agent in agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        found = self.env.reset(seed=seed, options=options)
        observations, infos = found if isinstance(found, tuple) else (found, {})
        self._terminated: dict[str, bool] = {}
        self._truncated: dict[str, bool] = {}
        return self._all(observations), self._info({}, infos)

    def step(self, action: Mapping[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        alive = self.env.agents
        observations, rewards, terminated, truncated, infos = self.env.step(
            {agent: action[agent] for agent in alive}
        )
        over, cut = not self.env.agents, any(truncated.values())
        self._terminated.update(terminated)
        self._truncated.update(truncated)
        info = self._info(rewards, infos)
        reward = float(sum(rewards.values()))
        return self._all(observations), reward, over and not cut, over and cut, info

    def _all(self, observations: Mapping[str, Any]) -> dict[str, Any]:
        return {agent: observations.get(agent, zeros) for agent, zeros in self._zeros.items()}

    def _info(self, rewards: Mapping[str, float], infos: Mapping[str, Any]) -> dict[str, Any]:
        agents, alive = self._agents, set(self.env.agents)
        left = {"agent_terminated": self._terminated, "agent_truncated": self._truncated}
        return {
            "agent_reward": np.array([rewards.get(agent, 0.0) for agent in agents], np.float64),
            **{
                name: np.array([flags.get(agent, False) for agent in agents], bool)
                for name, flags in left.items()
            },
            "agent_alive": np.array([agent in alive for agent in agents], bool),
            **{agent: info for agent, info in infos.items() if info},
        }


def agents_of(env: Any) -> tuple[str, ...]:
    """Returns the agents of a `ParallelEnvAdapter`, in the order of its infos, else ()."""
    return tuple(env._agents) if isinstance(env, ParallelEnvAdapter) else ()


def without_rewards(info: Any) -> Any:
    """Returns the info of a step as the info of a finished episode that no longer steps."""
    if not info or "agent_reward" not in info:
        return info
    return {**info, "agent_reward": np.zeros_like(info["agent_reward"])}


def agent_fields(agents: Sequence[str]) -> dict[str, spaces.Space]:
    """Returns the spaces of the numbers of each agent in the info of a `ParallelEnvAdapter`."""
    shape = (len(agents),)
    boolean: Any = np.bool_  # works, although Box does not declare this type
    flags = spaces.Box(0, 1, shape, boolean)
    reward = spaces.Box(-np.inf, np.inf, shape, np.float64)
    first, *others = AGENT_FIELDS
    return {first: reward, **dict.fromkeys(others, flags)} if agents else {}


def _parallel(env: Any) -> Any:
    if not hasattr(env, "agent_iter"):
        return env
    if not getattr(env, "metadata", {}).get("is_parallelizable", False):
        raise PoolError(
            f"{env} takes turns: its agents cannot act at the same time.  A pool needs PettingZoo's"
            " parallel API, parallel_env(), or a wrapper that exposes one agent's view of the game"
            " as an environment."
        )
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(env)


def _zeros(space: spaces.Space) -> Any:
    arrays = (np.zeros(leaf.shape, leaf.dtype) for leaf in leaves_of(space))
    return tree_of(space, arrays)


def _takes(env: Any, name: str) -> bool:
    """Returns whether `reset` accepts the argument `name`, through all wrappers."""
    while True:
        taken = _parameters(env.reset)
        passes_all = any(each.kind is each.VAR_KEYWORD for each in taken.values())
        if name not in taken and not passes_all:
            return False
        inner = getattr(env, "env", None)
        if not hasattr(inner, "reset"):
            return True
        env = inner


def _parameters(function: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
