"""Wrappers that change what the agent observes."""

import abc
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.minigrid import cells, missions, rendering
from jaxenvs.envs.minigrid.level import MiniGrid, MiniGridState
from jaxenvs.envs.minigrid.wrappers._level import LevelWrapper
from jaxenvs.errors import WrapperError, check_integer

_ALPHABET = "abcdefghijklmnopqrstuvwxyz ,"
_MAX_CHARACTERS = 96  # of a mission in `FlatObs`
_WORDS = (  # the vocabulary of minigrid's DictObservationSpaceWrapper
    *("red", "green", "blue", "yellow", "purple", "grey", "unseen", "empty", "wall", "floor"),
    *("box", "key", "ball", "door", "goal", "agent", "lava", "pick", "avoid", "get", "find"),
    *("put", "use", "open", "go", "fetch", "reach", "unlock", "traverse", "up", "the", "a", "at"),
    *(",", "square", "and", "then", "to", "of", "rooms", "near", "opening", "must", "you"),
    *("matching", "end", "hallway", "object", "from", "room", "maze"),
)


class _ObservationWrapper(LevelWrapper):
    """A wrapper that maps observations, given the state of the level."""

    @abc.abstractmethod
    def _map(self, state: MiniGridState, observation: Any) -> Any:
        """Returns the mapped observation."""

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self._mapped(*self.env.reset(key))

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self._mapped(*self.env.step(state, action, key))

    def _mapped(self, state: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        observation = self._map(self.level_state(state), timestep.observation)
        return state, timestep.replace(observation=observation)


class _ImageWrapper(_ObservationWrapper):
    """A wrapper that replaces the image of observations."""

    @property
    @abc.abstractmethod
    def _image_space(self) -> spaces.Box:
        """The space of the new image."""

    @abc.abstractmethod
    def _image(self, state: MiniGridState, image: jax.Array) -> jax.Array:
        """Returns the new image, given the wrapped one."""

    @property
    def observation_space(self) -> spaces.Dict:
        return spaces.Dict({**self.parts("image"), "image": self._image_space})

    def _map(self, state: MiniGridState, observation: Any) -> Any:
        return {**observation, "image": self._image(state, observation["image"])}


class FullyObs(_ImageWrapper):
    """Shows the whole grid: uint8[W, H, 3], the agent as (10, 0, direction).

    Source: minigrid's FullyObsWrapper.
    """

    @property
    def _image_space(self) -> spaces.Box:
        return spaces.Box(0, 255, (self.minigrid.width, self.minigrid.height, 3), np.uint8)

    def _image(self, state: MiniGridState, image: jax.Array) -> jax.Array:
        agent = jnp.stack([cells.AGENT, cells.RED, state.direction]).astype(jnp.uint8)
        return jnp.where(_at_agent(state)[..., None], agent[None, None], cells.encode(state.grid.T))


class SymbolicObs(_ImageWrapper):
    """Shows column, row, and type of object of all cells: int32[W, H, 3].

    The type is that of minigrid's images, -1 for an empty cell, and 10 for the agent.

    Source: minigrid's SymbolicObsWrapper.
    """

    @property
    def _image_space(self) -> spaces.Box:
        width, height = self.minigrid.width, self.minigrid.height
        low = np.broadcast_to(np.array([0, 0, -1], np.int32), (width, height, 3))
        high = np.broadcast_to(np.array([width - 1, height - 1, cells.AGENT], np.int32), low.shape)
        return spaces.Box(low, high, dtype=np.int32)

    def _image(self, state: MiniGridState, image: jax.Array) -> jax.Array:
        type_ = cells.encode(state.grid.T)[..., 0].astype(jnp.int32)
        type_ = jnp.where(type_ == cells.EMPTY, -1, type_)
        type_ = jnp.where(_at_agent(state), cells.AGENT, type_)
        return jnp.stack([*np.indices(type_.shape, np.int32), type_], axis=-1)


class OneHotPartialObs(_ImageWrapper):
    """Shows type, color, and state of each cell as one-hot vectors: uint8[size, size, 11 + 6 + 3].

    Source: minigrid's OneHotPartialObsWrapper.
    """

    @property
    def _image_space(self) -> spaces.Box:
        image: Any = self.parts("image")["image"]
        return spaces.Box(0, 255, (*image.shape[:2], 20), np.uint8)

    def _image(self, state: MiniGridState, image: jax.Array) -> jax.Array:
        numbers = np.repeat(np.arange(3), (11, 6, 3))  # the channel that each bit is about
        values = np.concatenate([np.arange(n, dtype=np.uint8) for n in (11, 6, 3)])
        # Without the barrier, XLA on CPU computes the image 20 times.
        image = jax.lax.optimization_barrier(image)
        return (image[..., numbers] == values[None, None]).astype(jnp.uint8)


class _PictureWrapper(_ImageWrapper):
    """A wrapper that replaces the image by a picture."""

    tile_size: int = struct.static(8)  # pixels, side length of a cell

    def __post_init__(self) -> None:
        check_integer(WrapperError, f"{type(self).__name__} got tile_size", self.tile_size)
        super().__post_init__()

    def _picture_space(self, height: int, width: int) -> spaces.Box:
        """Returns the space of pictures of `height` x `width` cells."""
        return spaces.Box(0, 255, (height * self.tile_size, width * self.tile_size, 3), np.uint8)


class RGBImgObs(_PictureWrapper):
    """Shows a picture of the whole grid: uint8[H * tile_size, W * tile_size, 3].

    Raises:
        WrapperError: `tile_size` is not a positive integer.

    Source: minigrid's RGBImgObsWrapper.
    """

    @property
    def _image_space(self) -> spaces.Box:
        return self._picture_space(self.minigrid.height, self.minigrid.width)

    def _image(self, state: MiniGridState, image: jax.Array) -> jax.Array:
        _, is_seen = self.minigrid.agent_view(state)
        return rendering.draw_grid(
            state.grid, state.x, state.y, state.direction, is_seen, self.tile_size
        )


class RGBImgPartialObs(_PictureWrapper):
    """Shows a picture of what the agent sees: uint8[size * tile_size, size * tile_size, 3].

    Raises:
        WrapperError: `tile_size` is not a positive integer.

    Source: minigrid's RGBImgPartialObsWrapper.
    """

    @property
    def _image_space(self) -> spaces.Box:
        return self._picture_space(self.minigrid.agent_view_size, self.minigrid.agent_view_size)

    def _image(self, state: MiniGridState, image: jax.Array) -> jax.Array:
        return rendering.draw_view(*self.minigrid.agent_view(state), self.tile_size)


class ViewSize(_ImageWrapper):
    """Changes how many cells the agent sees: uint8[agent_view_size, agent_view_size, 3].

    Raises:
        ParameterError: `agent_view_size` is not an odd number from 3 to 31.

    Source: minigrid's ViewSizeWrapper.
    """

    agent_view_size: int = struct.static(7)

    @property
    def _image_space(self) -> spaces.Box:
        return self._resized.observation_space["image"]  # pyright: ignore[reportReturnType]

    @property
    def _resized(self) -> MiniGrid:
        return self.minigrid.replace(agent_view_size=self.agent_view_size)

    def _image(self, state: MiniGridState, image: jax.Array) -> jax.Array:
        found, is_seen = self._resized.agent_view(state)
        return cells.encode(jnp.where(is_seen, found, cells.UNSEEN).astype(jnp.uint8))


class ImgObs(_ObservationWrapper):
    """Shows the image only.

    Source: minigrid's ImgObsWrapper.
    """

    @property
    def observation_space(self) -> spaces.Space:
        return self.parts("image")["image"]

    def _map(self, state: MiniGridState, observation: Any) -> jax.Array:
        return observation["image"]


class FlatObs(_ObservationWrapper):
    """Shows one vector, uint8[n + 96 * 28]: the image and a one-hot vector for each character.

    The characters are those of the mission: letters, spaces, and commas. A mission ends after 96 of
    them, where minigrid raises an error.

    Raises:
        WrapperError: a word of the level has other characters.

    Source: minigrid's FlatObsWrapper.
    """

    @property
    def observation_space(self) -> spaces.Box:
        parts, vocabulary = self.parts("image", "mission"), self.minigrid.vocabulary
        if unknown := set("".join(vocabulary)) - set(_ALPHABET):
            raise WrapperError(
                f"FlatObs got missions with {', '.join(sorted(unknown))}; minigrid's encoding has"
                " only small letters, spaces, and commas."
            )
        length = parts["image"].flat_dim + _MAX_CHARACTERS * len(_ALPHABET)
        return spaces.Box(0, 255, (length,), np.uint8)

    def _map(self, state: MiniGridState, observation: Any) -> jax.Array:
        characters = _spell(observation["mission"], self.minigrid.vocabulary)
        return jnp.concatenate([observation["image"].reshape(-1), characters.reshape(-1)])


class DictObservationSpace(_ObservationWrapper):
    """Shows the mission as numbers of minigrid's words: int32[max_words_in_mission], padded with 0.

    Raises:
        WrapperError: missions of the level may have words that minigrid's vocabulary lacks, as
            those of BabyAI do, or `max_words_in_mission` words or more.

    Source: minigrid's DictObservationSpaceWrapper.
    """

    max_words_in_mission: int = struct.static(50)

    def __post_init__(self) -> None:
        limit = self.max_words_in_mission
        check_integer(WrapperError, "DictObservationSpace got max_words_in_mission", limit)
        super().__post_init__()
        level, name = self.minigrid, type(self.minigrid).__name__
        words = missions.split(level.mission)
        if words and set(words) == {"{}"}:  # the level composes its missions from all words
            words = filter(None, level.vocabulary)
        unknown = [word for word in words if word not in _WORDS and word != "{}"]
        if unknown:
            raise WrapperError(
                f"DictObservationSpace got {name}, whose missions may have words that minigrid's"
                f" vocabulary lacks: {', '.join(unknown)}.  Without this wrapper, missions are"
                " numbers of words too, of the vocabulary of the level."
            )
        if level.mission_length >= limit:
            raise WrapperError(
                f"DictObservationSpace got max_words_in_mission={limit}; it must be more than the"
                f" {level.mission_length} words of the missions of {name}."
            )

    @property
    def observation_space(self) -> spaces.Dict:
        mission = spaces.MultiDiscrete(len(_WORDS) + 1, shape=(self.max_words_in_mission,))
        return spaces.Dict({**self.parts("mission"), "mission": mission})

    def _map(self, state: MiniGridState, observation: Any) -> Any:
        vocabulary = self.minigrid.vocabulary
        number = [_WORDS.index(word) + 1 if word in _WORDS else 0 for word in vocabulary]
        words = jnp.asarray(np.array(number, np.int32))[observation["mission"]]
        padded = jnp.pad(words, (0, self.max_words_in_mission - len(words)))
        return {**observation, "mission": padded}


class DirectionObs(_ObservationWrapper):
    """Adds `goal_direction`, float32[]: where the first goal in row-major order is.

    With dx and dy, the columns and rows from the agent to the goal, it is, for each `type`:

        "slope"        dy / dx, infinite if dx is 0
        "angle"        atan(dy / dx), in [-pi / 2, pi / 2]
        "angle_atan2"  atan2(dy, dx), in [-pi, pi]

    It is 0 at the goal, and also without a goal, where minigrid raises an error.

    Raises:
        WrapperError: there is no such type.

    Source: minigrid's DirectionObsWrapper.
    """

    type: str = struct.static("slope")

    def __post_init__(self) -> None:
        if self.type not in ("slope", "angle", "angle_atan2"):
            raise WrapperError(
                f"DirectionObs got type={self.type!r}; it must be slope, angle, or angle_atan2."
            )
        super().__post_init__()

    @property
    def observation_space(self) -> spaces.Dict:
        bound = {"slope": np.inf, "angle": np.pi / 2, "angle_atan2": np.pi}[self.type]
        return spaces.Dict({**self.parts(), "goal_direction": spaces.Box(-bound, bound)})

    def _map(self, state: MiniGridState, observation: Any) -> Any:
        height, width = state.grid.shape
        place = np.arange(height * width, dtype=np.int32).reshape(height, width)
        is_goal = cells.kind(state.grid) == cells.kind(cells.GOAL)
        goal = jnp.min(jnp.where(is_goal, place, height * width))
        is_zero = (goal == state.y * width + state.x) | (goal == height * width)
        dx = jnp.where(is_zero, 1, goal % width - state.x).astype(jnp.float32)
        dy = jnp.where(is_zero, 0, goal // width - state.y).astype(jnp.float32)
        if self.type == "angle_atan2":
            direction = jnp.arctan2(dy, dx)
        else:
            direction = dy / dx if self.type == "slope" else jnp.arctan(dy / dx)
        return {**observation, "goal_direction": direction}


def _at_agent(state: MiniGridState) -> jax.Array:
    """Returns where the agent is: bool[W, H]."""
    columns, rows = np.indices(state.grid.T.shape, np.int32, sparse=True)
    return (columns == state.x) & (rows == state.y)


def _spell(tokens: jax.Array, vocabulary: Sequence[str]) -> jax.Array:
    """Returns one-hot vectors of the characters of a mission: uint8[96, 28].

    Args:
        tokens: the numbers of its words, int32[L].
        vocabulary: the words.
    """
    spelled = [word if word in ("", ",") else f" {word}" for word in vocabulary]
    longest = max(map(len, spelled))
    letters = np.array([[_ALPHABET.find(c) for c in word.ljust(longest)] for word in spelled])
    lengths = jnp.asarray(np.array([*map(len, spelled)], np.int32))[tokens]
    ends = jnp.cumsum(lengths, dtype=jnp.int32)
    place = np.arange(1, _MAX_CHARACTERS + 1, dtype=np.int32)  # without the first word's space
    word = jnp.sum(ends[None, :] <= place[:, None], axis=1, dtype=jnp.int32)
    word = jnp.minimum(word, len(tokens) - 1)
    letter = jnp.asarray(letters.astype(np.int32))[tokens[word], place - (ends - lengths)[word]]
    letter = jnp.where(place < ends[-1], letter, -1)
    return (letter[:, None] == np.arange(len(_ALPHABET), dtype=np.int32)[None]).astype(jnp.uint8)
