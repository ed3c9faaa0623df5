"""The base class of MinAtar's games."""

import abc
from typing import Any, ClassVar, Generic, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.minatar._packed import SIZE, show
from jaxenvs.errors import ParameterError

S = TypeVar("S")

ACTIONS = "nlurdf"  # none, left, up, right, down, fire
ZOOM = 32  # pixels, side length of a cell in the image


@chex.dataclass(frozen=True)
class Draws:
    """The random outcome that a step of every game has."""

    sticks: jax.Array  # bool[], whether the last action is executed again


class MinAtar(Environment[S], Generic[S]):
    """A game on a board of 10 x 10 cells, with one channel per kind of object.

    A subclass defines `channels`, `minimal_actions`, `initial_state`, `transition`, and `boards`,
    and, if chance decides more than whether actions stick, `draw`. Its state has the field
    `last_action`.
    """

    sticky_action_prob: float = 0.1  # probability that the last action is executed again
    use_minimal_action_set: bool = struct.static(False)  # omit the actions without an effect
    dtype: str = struct.static("bool")  # of observations, "bool" or "float32"

    channels: ClassVar[tuple[str, ...]]  # the kinds of objects, in the order of the observation
    minimal_actions: ClassVar[str]  # the letters of the actions that have an effect

    def __post_init__(self) -> None:
        if self.dtype not in ("bool", "float32"):
            raise ParameterError(
                f'{type(self).__name__} got dtype={self.dtype!r}; it must be "bool" or "float32".'
            )

    @property
    def actions(self) -> str:
        """The letter of each action: none, left, up, right, down, or fire."""
        return self.minimal_actions if self.use_minimal_action_set else ACTIONS

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(0, 1, (SIZE, SIZE, len(self.channels)), jnp.dtype(self.dtype))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(len(self.actions))

    @abc.abstractmethod
    def initial_state(self, key: chex.PRNGKey) -> S:
        """Draws the state in which an episode begins."""

    @abc.abstractmethod
    def transition(
        self, state: Any, action: jax.Array, draws: Any
    ) -> tuple[S, jax.Array, jax.Array]:
        """Returns the next state, the reward, and whether the game is over."""

    @abc.abstractmethod
    def boards(self, state: Any) -> dict[str, jax.Array]:
        """Returns for each channel the board of its objects, uint32[10]."""

    def reset(self, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        state = self.initial_state(key)
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: Any, key: chex.PRNGKey) -> Any:
        """Draws the random outcomes of a step."""
        del state
        return Draws(sticks=self._sticks(jax.random.uniform(key, (), jnp.float32)))

    def apply(self, state: Any, action: chex.Array, draws: Any) -> tuple[S, TimeStep]:
        """Takes a step with the results of `draw`."""
        action = jnp.where(draws.sticks, state.last_action, jnp.asarray(action, jnp.int32))
        state, reward, terminated = self.transition(
            state.replace(last_action=action), action, draws
        )
        timestep = TimeStep.transition(self._observe(state), reward=reward, terminated=terminated)
        return state, timestep

    def step(self, state: Any, action: chex.Array, key: chex.PRNGKey) -> tuple[S, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: Any) -> jax.Array:
        """Draws each cell in the color of its last channel, as MinAtar does: uint8[320, 320, 3]."""
        board = self._observe(state).astype(bool)
        numbers = np.arange(1, len(self.channels) + 1, dtype=np.int32)
        image = jnp.asarray(palette(len(self.channels)))[jnp.where(board, numbers, 0).max(axis=-1)]
        return jnp.repeat(jnp.repeat(image, ZOOM, axis=0), ZOOM, axis=1)

    def _observe(self, state: Any) -> jax.Array:
        boards = self.boards(state)
        return show([boards[channel] for channel in self.channels], self.dtype)

    def _is(self, action: jax.Array, letter: str) -> jax.Array:
        """Returns whether the action is the one with this letter."""
        return action == self.actions.find(letter)

    def _sticks(self, u: jax.Array) -> jax.Array:
        """Returns whether the action sticks, given a number that is uniform in [0, 1)."""
        return u < self.sticky_action_prob


def palette(number: int) -> np.ndarray:
    """Returns black and colors of the cubehelix scheme, uint8[number + 1, 3].

    Source: D. A. Green, A colour scheme for the display of astronomical intensity images, 2011,
    with the parameters that matplotlib and seaborn use.
    """
    x = np.arange(number + 1)[:, None] / (number + 1)
    angle = 2 * np.pi * (0.5 / 3 - 1.5 * x)
    cos = np.array([-0.14861, -0.29227, 1.97294]) * np.cos(angle)
    sin = np.array([1.78277, -0.90649, 0.0]) * np.sin(angle)
    colors = x + x * (1 - x) / 2 * (cos + sin)
    return np.round(255 * np.clip(colors, 0, 1)).astype(np.uint8)
