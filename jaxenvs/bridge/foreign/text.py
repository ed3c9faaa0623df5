"""Observations with texts, for pools, whose arrays have a fixed shape."""

import inspect
from collections.abc import Awaitable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_TEXT_ROOM = 256  # bytes of a text whose space has no limit, as MiniGrid's missions


class TextAsBytes(gymnasium.Wrapper):
    """Observations with the texts of the environment as bytes; its calls may have to be awaited.

    A text becomes uint8[n]: its UTF-8, padded with zeros. n is the most bytes that its space
    allows, or 256 if the space does not say. `bytes(row).rstrip(b"\\0").decode()` is the text.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = _in_bytes(env.observation_space)

    def reset(self, **kwargs: Any) -> Any:
        return self._converted(self.env.reset(**kwargs))

    def step(self, action: Any) -> Any:
        return self._converted(self.env.step(action))

    def _converted(self, found: Any) -> Any:
        if inspect.isawaitable(found):
            return self._awaited(found)
        observation, *others = found
        data = _as_bytes(observation, self.env.observation_space, self.observation_space)
        return data, *others

    async def _awaited(self, found: Awaitable[Any]) -> Any:
        return self._converted(await found)


def _is_text(space: Any) -> bool:
    return isinstance(space, spaces.Text) or (space.dtype is not None and space.dtype.kind == "U")


def has_text(space: Any) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return any(map(has_text, inner))
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
