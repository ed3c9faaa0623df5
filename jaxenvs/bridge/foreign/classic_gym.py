"""Environments with the interface of the gym package."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from jaxenvs.bridge.foreign.adapter import Adapter
from jaxenvs.errors import PoolError


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
        self._taken = [name for name in ("seed", "options") if takes(env, name)]
        modes = self.metadata.get("render.modes", self.metadata.get("render_modes", ()))
        takes_mode = "mode" in _parameters(getattr(env, "render", None))
        self._asks_for_mode = self.render_mode is None and takes_mode and "rgb_array" in modes
        if self._asks_for_mode:
            self.render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        rest = {"seed": seed, "options": options}
        passed = {name: rest.pop(name) for name in self._taken}
        self._take(**rest)
        return _then(self.env.reset(**passed), _with_info)

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
    match type(space).__name__:
        case "Box":
            return spaces.Box(space.low, space.high, space.shape, space.dtype)
        case "Discrete":
            return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
        case "MultiDiscrete":
            return spaces.MultiDiscrete(space.nvec, dtype=space.dtype)
        case "MultiBinary":
            return spaces.MultiBinary(space.n)
        case "Dict":
            return spaces.Dict({key: gymnasium_space(sub) for key, sub in space.spaces.items()})
        case "Tuple":
            return spaces.Tuple([gymnasium_space(sub) for sub in space.spaces])
    raise PoolError(
        f"a pool cannot hold {space!r:.100} of {type(space).__module__}.  Wrap the environment so"
        " that its spaces are Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of these."
    )


def takes(env: Any, name: str) -> bool:
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
