"""The meta maze task."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.misc._shared import clock, heading, one_hot
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import GRAY, RED, TEAL, WHITE, box, disc, paint, pixel_grid

CELL = 28  # pixels, side length of a cell in the image


@chex.dataclass(frozen=True)
class MetaMazeState:
    """The cells of the agent and the goal, and what the agent remembers of the last step."""

    row: jax.Array  # int32[], 0 is the uppermost inside the outer walls
    column: jax.Array  # int32[]
    goal_row: jax.Array  # int32[]
    goal_column: jax.Array  # int32[]
    last_action: jax.Array  # int32[]
    last_reward: jax.Array  # float32[]
    time: jax.Array  # int32[], steps since reset


class MetaMaze(Environment[MetaMazeState]):
    """Find the hidden goal of a maze, and return to it as often as possible.

    Observation: float32[rf_size^2 + 6]
        -  rf_size x rf_size values, row by row: 1 at walls around the agent, otherwise 0
        -  four values: the last action, one-hot; 0 at the start
        -  the last reward
        -  the time, in steps; with `normalize_time`, from -1 to 1 after t_max steps
    Action: int32[], moves up (0), to the right (1), down (2), to the left (3); walls stop the agent
    Reward: `reward` for entering the goal, plus `punishment` for a move against a wall
    Start: the agent in the middle, the goal uniform over the free cells
    Terminates: never
    Time limit: none here; `MetaMaze-misc` is registered with 200 steps

    Where both row and column are odd, counted from 0 inside the outer walls, there is a wall. An
    agent that reaches the goal goes on from a uniformly drawn free cell other than the goal. The
    goal stays where it is during an episode, and the agent does not see it.

    Source: T. Miconi et al., Backpropamine, 2019, as gymnax's MetaMaze
    (tests/parity/test_certificates.py). Three of gymnax's errors are mended: gymnax may put the
    agent on the goal again, without a reward, and then ends the episode (in Miconi's program the
    agent never goes on from the goal); it scales the time by 100 steps, half of an episode; and in
    mazes other than of 9 cells, or with a wider view, its agent may start in a wall.
    """

    reward: float = 10.0  # for entering the goal
    punishment: float = 0.0  # for a move against a wall, added to the reward
    normalize_time: bool = struct.static(False)  # observe the time from -1 to 1
    t_max: float = 200.0  # number of steps after which a normalized time is 1
    maze_size: int = struct.static(9)  # rows and columns inside the outer walls, odd
    rf_size: int = struct.static(3)  # rows and columns that the agent sees, odd

    def __post_init__(self) -> None:
        for name, size in (("maze_size", self.maze_size), ("rf_size", self.rf_size)):
            check_integer(ParameterError, f"MetaMaze got {name}", size, 3)
            if size % 2 == 0:
                raise ParameterError(f"MetaMaze got {name}={size}; expected an odd number.")

    @property
    def observation_space(self) -> spaces.Box:
        start = -1.0 if self.normalize_time else 0.0
        shown = self.rf_size**2 + 4
        low = np.array([0.0] * shown + [-np.inf, start], np.float32)
        high = np.array([1.0] * shown + [np.inf, np.inf], np.float32)
        return spaces.Box(low, high)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(4)

    def reset(self, key: chex.PRNGKey) -> tuple[MetaMazeState, TimeStep]:
        free = self._free_cells()
        goal = jnp.asarray(free)[spaces.Discrete(len(free)).sample(key)]
        middle = jnp.int32(self.maze_size // 4 * 2)  # an even row has no walls
        state = MetaMazeState(
            row=middle,
            column=middle,
            goal_row=goal // self.maze_size,
            goal_column=goal % self.maze_size,
            last_action=jnp.int32(0),
            last_reward=jnp.float32(0),
            time=jnp.int32(0),
        )
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: MetaMazeState, key: chex.PRNGKey) -> jax.Array:
        """Draws a free cell other than the goal, as row * maze_size + column: int32[]."""
        free = self._free_cells()
        u = jax.random.uniform(key, (), jnp.float32)
        which = (u * (len(free) - 1)).astype(jnp.int32)
        goal = state.goal_row * self.maze_size + state.goal_column
        # The last cell stands in for the goal, which the others never draw.
        return jnp.where(
            jnp.asarray(free)[which] == goal, jnp.int32(free[-1]), jnp.asarray(free)[which]
        )

    def apply(
        self, state: MetaMazeState, action: chex.Array, draws: jax.Array
    ) -> tuple[MetaMazeState, TimeStep]:
        """Takes a step with the results of `draw`."""
        action = jnp.asarray(action, jnp.int32)
        down, right = heading(action)
        row, column = state.row + down, state.column + right
        moves = self._is_free(row, column)
        row, column = jnp.where(moves, row, state.row), jnp.where(moves, column, state.column)
        found = (row == state.goal_row) & (column == state.goal_column)
        reward = jnp.where(found, self.reward, 0.0) + jnp.where(moves, 0.0, self.punishment)
        state = MetaMazeState(
            row=jnp.where(found, draws // self.maze_size, row),
            column=jnp.where(found, draws % self.maze_size, column),
            goal_row=state.goal_row,
            goal_column=state.goal_column,
            last_action=action,
            last_reward=jnp.asarray(reward, jnp.float32),
            time=state.time + 1,
        )
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=False)

    def step(
        self, state: MetaMazeState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MetaMazeState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: MetaMazeState) -> jax.Array:
        """Draws the maze, the goal as a square, the agent as a disc: uint8[H, W, 3]."""
        side = (self.maze_size + 2) * CELL
        x, y = pixel_grid((side, side))
        rows, columns = ((side - y) // CELL - 1).astype(int), (x // CELL - 1).astype(int)
        goal = _middle(state.goal_column), side - _middle(state.goal_row)
        agent = _middle(state.column), side - _middle(state.row)
        return paint(
            WHITE,
            (~self._is_free(rows, columns), GRAY),
            (box(x, y, goal, (0.7 * CELL, 0.7 * CELL)), TEAL),
            (disc(x, y, agent, 0.3 * CELL), RED),
        )

    def _observe(self, state: MetaMazeState) -> jax.Array:
        reach = self.rf_size // 2
        around = np.indices((self.rf_size, self.rf_size), np.int32).reshape(2, -1) - reach
        walls = ~self._is_free(state.row + around[0], state.column + around[1])
        time = state.time.astype(jnp.float32)
        if self.normalize_time:
            time = clock(state.time, self.t_max)
        return jnp.concatenate(
            [
                walls.astype(jnp.float32),
                one_hot(state.last_action, 4),
                jnp.stack([state.last_reward, time]),
            ]
        )

    def _is_free(self, row: Any, column: Any) -> Any:
        """Returns whether there is no wall in a cell. Works on arrays of NumPy and of JAX."""
        size = self.maze_size
        inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
        return inside & ((row & column & 1) == 0)

    def _free_cells(self) -> np.ndarray:
        """Returns row * maze_size + column of the free cells, int32[n]."""
        cells = np.arange(self.maze_size**2, dtype=np.int32)
        return cells[self._is_free(cells // self.maze_size, cells % self.maze_size)]


def _middle(cell: jax.Array) -> jax.Array:
    return (cell.astype(jnp.float32) + 1.5) * CELL
