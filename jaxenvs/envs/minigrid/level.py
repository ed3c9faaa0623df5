"""The base class of all levels: what actions do, what the agent observes, and how episodes end."""

import abc
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.minigrid import cells, missions, rendering, view
from jaxenvs.envs.minigrid.layout import Place, lookup, put
from jaxenvs.errors import ParameterError

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
STEPS_X = np.array([1, 0, -1, 0], np.int32)  # for right, down, left, and up
STEPS_Y = np.array([0, 1, 0, -1], np.int32)


@chex.dataclass(frozen=True)
class MiniGridState:
    """The grid, the agent, and the level's task."""

    grid: jax.Array  # uint8[H, W], uint16[H, W], or uint32[H, W], see `cells`
    x: jax.Array  # int32[], column of the agent
    y: jax.Array  # int32[], row of the agent
    direction: jax.Array  # int32[], of the agent: right (0), down (1), left (2), up (3)
    carrying: jax.Array  # like a cell of the grid, `EMPTY` if the agent carries nothing
    step_count: jax.Array  # int32[]
    mission: Any = ()  # uint8[L], the numbers of its words; () if all episodes have the same
    task: Any = ()  # a pytree of the level's own, such as what to fetch


class MiniGrid(Environment[MiniGridState]):
    """An agent that walks through a grid of rooms and sees the cells in front of it.

    A subclass is a level. It defines `initial_state`, `width`, `height`, `default_max_steps`, and
    `mission`. If the task is not to reach a goal, it also defines `outcome`, and if actions have
    other effects, `transition`.
    """

    max_steps: int | None = None  # steps after which an episode is truncated; None for the level's
    agent_view_size: int = struct.static(7)  # width and height of the view, odd
    see_through_walls: bool = struct.static(False)  # whether walls and doors hide nothing

    mission: ClassVar[str]  # the text, with "{}" for words that differ between episodes
    vocabulary: ClassVar[tuple[str, ...]] = missions.WORDS
    cell_type: ClassVar[Any] = np.uint8  # of the grid
    has_objects: ClassVar[bool] = True  # whether there is anything to pick up or to open
    failure_reward: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        size = self.agent_view_size
        if not (isinstance(size, int) and size % 2 == 1 and 3 <= size <= 31):
            raise ParameterError(
                f"{type(self).__name__} got agent_view_size={size}; it must be an odd number from 3"
                " to 31."
            )

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """The number of columns, including walls."""

    @property
    @abc.abstractmethod
    def height(self) -> int:
        """The number of rows, including walls."""

    @property
    @abc.abstractmethod
    def default_max_steps(self) -> int:
        """The number of steps after which the level truncates an episode."""

    @abc.abstractmethod
    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        """Draws the state in which an episode begins, by `self.make_state(...)`."""

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        """Returns whether a step succeeds and whether it fails. Both end the episode.

        By default, it succeeds at a goal and fails in lava.
        """
        entered = jnp.where(action == FORWARD, cells.kind(self.front_cell(before)), 0)
        return entered == cells.kind(cells.GOAL), entered == cells.kind(cells.LAVA)

    @property
    def mission_length(self) -> int:
        """The largest number of words of a mission, at least 1."""
        return max(1, len(missions.split(self.mission)))

    @property
    def observation_space(self) -> spaces.Dict:
        size = self.agent_view_size
        return spaces.Dict(
            {
                "image": spaces.Box(0, 255, (size, size, 3), np.uint8),
                "direction": spaces.Discrete(4),
                "mission": spaces.MultiDiscrete(len(self.vocabulary), shape=(self.mission_length,)),
            }
        )

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(7)

    @property
    def time_limit(self) -> chex.Numeric | None:
        return self.default_max_steps if self.max_steps is None else self.max_steps

    def steps_allowed(self, state: MiniGridState) -> chex.Numeric:
        """Returns the number of steps after which the episode is truncated."""
        del state
        return self.time_limit  # pyright: ignore[reportReturnType]

    def reset(self, key: chex.PRNGKey) -> tuple[MiniGridState, TimeStep]:
        state = self.initial_state(key)
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: MiniGridState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MiniGridState, TimeStep]:
        del key
        action = jnp.asarray(action, jnp.int32)
        return self._finish(state, action, self.transition(state, action))

    def make_state(
        self, grid: jax.Array, x: Any, y: Any, direction: Any, *, task: Any = (), mission: Any = ()
    ) -> MiniGridState:
        """Returns the state in which an episode begins. The agent carries nothing."""
        return MiniGridState(
            grid=grid.astype(self.cell_type),
            x=jnp.asarray(x, jnp.int32),
            y=jnp.asarray(y, jnp.int32),
            direction=jnp.asarray(direction, jnp.int32),
            carrying=jnp.asarray(cells.EMPTY, self.cell_type),
            step_count=jnp.int32(0),
            mission=mission,
            task=task,
        )

    def encode_mission(self, *slots: Any, text: str | None = None) -> jax.Array:
        """Returns `mission` as numbers of words, with `slots` filled in: uint8[mission_length].

        It is padded with 0.
        """
        text = self.mission if text is None else text
        words = missions.encode_mission(text, *slots, vocabulary=self.vocabulary)
        return jnp.pad(words, (0, self.mission_length - len(words)))

    def decode_mission(self, tokens: Any) -> str:
        """Returns the text of an observed mission, as minigrid words it. Not for use in `jit`."""
        return missions.decode_mission(tokens, self.vocabulary)

    def front_place(self, state: MiniGridState) -> Place:
        """Returns the place of the cell in front of the agent."""
        x, y = (lookup(steps, state.direction) for steps in (STEPS_X, STEPS_Y))
        return state.x + x, state.y + y

    def front_cell(self, state: MiniGridState) -> jax.Array:
        """Returns the cell in front of the agent."""
        x, y = self.front_place(state)
        return state.grid[y, x]

    def transition(self, state: MiniGridState, action: jax.Array) -> MiniGridState:
        """Returns the state after an action."""
        x, y = self.front_place(state)
        front = state.grid[y, x]
        moves = (action == FORWARD) & cells.is_in(cells.CAN_OVERLAP, front)
        turn = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
        changed = {}
        if self.has_objects:
            new_front, carrying = _use(action, front, state.carrying)
            changed = {"grid": put(state.grid, (x, y), new_front), "carrying": carrying}
        return state.replace(  # pyright: ignore[reportAttributeAccessIssue]
            x=jnp.where(moves, x, state.x),
            y=jnp.where(moves, y, state.y),
            direction=(state.direction + turn) & 3,
            step_count=state.step_count + 1,
            **changed,
        )

    def _finish(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[MiniGridState, TimeStep]:
        success, failure = self.outcome(before, action, after)
        limit = self.steps_allowed(after)
        reward = jnp.where(failure, jnp.float32(self.failure_reward), jnp.float32(0))
        return after, TimeStep.transition(
            self._observe(after),
            reward=jnp.where(success, _reward(after.step_count, limit), reward),
            terminated=success | failure,
            truncated=after.step_count >= limit,
        )

    def agent_view(self, state: MiniGridState) -> tuple[jax.Array, jax.Array]:
        """Returns the cells of the view and which of them the agent sees: [size, size]."""
        size = self.agent_view_size
        found = view.in_front(state.grid, state.x, state.y, state.direction, size)
        everything = jnp.ones((size, size), bool)
        is_seen = everything if self.see_through_walls else view.visible(found)
        i, j = np.indices((size, size), sparse=True)
        return jnp.where((i == size // 2) & (j == size - 1), state.carrying, found), is_seen

    def render(self, state: MiniGridState) -> jax.Array:
        """Draws the grid, brighter where the agent sees it: uint8[32 * height, 32 * width, 3]."""
        _, is_seen = self.agent_view(state)
        return rendering.draw_grid(state.grid, state.x, state.y, state.direction, is_seen)

    def _observe(self, state: MiniGridState) -> dict[str, jax.Array]:
        found, is_seen = self.agent_view(state)
        shown = jnp.where(is_seen, found, 0).astype(jnp.uint8)
        words = self.encode_mission() if "{}" not in self.mission else state.mission
        return {
            "image": cells.encode(jax.lax.optimization_barrier(shown)),
            "direction": state.direction,
            "mission": words.astype(jnp.int32),
        }


class SquareGrid(MiniGrid):
    """A level on a grid with as many columns as rows."""

    size: int = struct.static(8)  # columns and rows, including walls

    @property
    def width(self) -> int:
        return self.size

    @property
    def height(self) -> int:
        return self.size


def _use(action: jax.Array, front: jax.Array, carrying: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the cell in front and what the agent carries after it picks up, drops, or toggles."""
    kind, hand = cells.kind(front), cells.kind(carrying)
    nothing = jnp.asarray(cells.EMPTY, front.dtype)
    picks = (action == PICK_UP) & cells.is_in(cells.CAN_PICK_UP, front) & (hand == cells.EMPTY)
    drops = (action == DROP) & (kind == cells.EMPTY)
    has_key = (hand == cells.KEY) & (cells.color(carrying) == cells.color(front))
    opens = (kind == cells.CLOSED_DOOR) | ((kind == cells.LOCKED_DOOR) & has_key)
    door = jnp.where(
        opens,
        np.array(cells.OPEN_DOOR, front.dtype),
        jnp.where(kind == cells.OPEN_DOOR, np.array(cells.CLOSED_DOOR, front.dtype), kind),
    )
    toggled = jnp.where(kind == cells.BOX, cells.contents(front), (front - kind) | door)
    moved_along = np.array(cells.MOVES_ALONG & np.iinfo(front.dtype).max, front.dtype)
    stays = front & ~moved_along
    new_front = jnp.where(
        picks,
        stays | nothing,
        jnp.where(
            drops,
            stays | carrying,
            jnp.where(action == TOGGLE, stays | toggled & moved_along, front),
        ),
    )
    carrying = jnp.where(picks, front & moved_along, jnp.where(drops, nothing, carrying))
    return new_front, carrying


def _reward(step_count: jax.Array, limit: chex.Numeric) -> jax.Array:
    """Returns 1 - 0.9 * step_count / limit, rounded once, as if computed in float64."""
    # The condition always holds. It gives each instance its own divisor: XLA replaces a division
    # by a number that instances share by a multiplication, which rounds twice.
    divisor = jnp.where(step_count >= 0, jnp.asarray(limit, jnp.int32), 1)
    return (10 * divisor - 9 * step_count).astype(jnp.float32) / (10 * divisor).astype(jnp.float32)
