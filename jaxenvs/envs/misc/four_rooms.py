"""The four rooms task."""

from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.misc._shared import heading
from jaxenvs.errors import ParameterError
from jaxenvs.rendering.raster import GRAY, RED, TEAL, WHITE, box, disc, paint, pixel_grid

CELL = 24  # pixels, side length of a cell in the image
SIZE = 13  # rows and columns, including the outer walls


@chex.dataclass(frozen=True)
class FourRoomsState:
    """The cells of the agent and the goal; row 0 is the upper wall, column 0 the left one."""

    row: jax.Array  # int32[]
    column: jax.Array  # int32[]
    goal_row: jax.Array  # int32[]
    goal_column: jax.Array  # int32[]


class FourRooms(Environment[FourRoomsState]):
    """Walk through four rooms that are joined by doors to a goal, with moves that go astray.

    Observation: float32[4]
        0  row of the agent, from 1 to 11
        1  column of the agent
        2  row of the goal
        3  column of the goal
        With `use_visual_obs`, float32[13, 13, 2]: 1 at walls, 1 at the agent. It hides the goal.
    Action: int32[], moves up (0), to the right (1), down (2), to the left (3); walls stop the agent
    Reward: 1 at the goal, otherwise 0
    Start: the agent in cell `pos_fixed`, the goal in cell `goal_fixed`. With `resample_goal_pos`,
        the goal is uniform over all free cells, with `resample_init_pos`, the agent is uniform over
        the free cells other than the goal
    Terminates: at the goal
    Time limit: none here; `FourRooms-misc` is registered with 500 steps

    With probability `fail_prob`, the agent moves in one of the other three directions instead.

    Source: R. S. Sutton, D. Precup, S. Singh, Between MDPs and semi-MDPs, 1999, as gymnax's
    FourRooms (tests/parity/test_certificates.py). Two of gymnax's errors are mended: the map shows
    the agent in its own cell, where gymnax swaps row and column; and observations have the dtype of
    their space, where gymnax's are integers.
    """

    fail_prob: float = 1 / 3  # probability of moving in another direction
    resample_init_pos: bool = struct.static(False)  # the agent starts anywhere
    resample_goal_pos: bool = struct.static(False)  # the goal is anywhere
    goal_fixed: Sequence[Any] = (8, 9)  # row and column of the goal, if it is not resampled
    pos_fixed: Sequence[Any] = (4, 1)  # row and column of the start, if it is not resampled
    use_visual_obs: bool = struct.static(False)  # observe a map

    def __post_init__(self) -> None:
        for name, cell in (("goal_fixed", self.goal_fixed), ("pos_fixed", self.pos_fixed)):
            if all(isinstance(index, int) for index in cell) and not is_free(*np.array(cell)):
                raise ParameterError(
                    f"FourRooms got {name}={cell}; expected row and column of a free cell, such as"
                    " (4, 1)."
                )

    @property
    def observation_space(self) -> spaces.Box:
        if self.use_visual_obs:
            return spaces.Box(0.0, 1.0, (SIZE, SIZE, 2))
        return spaces.Box(1.0, SIZE - 2.0, (4,))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(4)

    def reset(self, key: chex.PRNGKey) -> tuple[FourRoomsState, TimeStep]:
        goal_key, start_key = jax.random.split(key)
        free = jnp.asarray(_FREE)
        goal = [jnp.asarray(index, jnp.int32) for index in self.goal_fixed]
        if self.resample_goal_pos:
            goal = list(free[spaces.Discrete(len(_FREE)).sample(goal_key)])
        start = [jnp.asarray(index, jnp.int32) for index in self.pos_fixed]
        if self.resample_init_pos:
            start = list(free[spaces.Discrete(len(_FREE) - 1).sample(start_key)])
            at_goal = (start[0] == goal[0]) & (start[1] == goal[1])
            start = [jnp.where(at_goal, free[-1, i], index) for i, index in enumerate(start)]
        state = FourRoomsState(row=start[0], column=start[1], goal_row=goal[0], goal_column=goal[1])
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: FourRoomsState, key: chex.PRNGKey) -> jax.Array:
        """Draws the action that is executed instead of the agent's, or -1: int32[]."""
        del state
        bits = jax.random.bits(key, (), jnp.uint32)
        # A quarter of these replace an action by itself.
        is_replaced = (bits >> 8).astype(jnp.float32) * 2.0**-24 < self.fail_prob * (4 / 3)
        return jnp.where(is_replaced, (bits & 3).astype(jnp.int32), -1)

    def apply(
        self, state: FourRoomsState, action: chex.Array, draws: jax.Array
    ) -> tuple[FourRoomsState, TimeStep]:
        """Takes a step with the results of `draw`."""
        down, right = heading(jnp.where(draws >= 0, draws, jnp.asarray(action, jnp.int32)))
        row, column = state.row + down, state.column + right
        moves = is_free(row, column)
        state = FourRoomsState(
            row=jnp.where(moves, row, state.row),
            column=jnp.where(moves, column, state.column),
            goal_row=state.goal_row,
            goal_column=state.goal_column,
        )
        found = (state.row == state.goal_row) & (state.column == state.goal_column)
        return state, TimeStep.transition(
            self._observe(state), reward=found.astype(jnp.float32), terminated=found
        )

    def step(
        self, state: FourRoomsState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[FourRoomsState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: FourRoomsState) -> jax.Array:
        """Draws the rooms, the goal as a square, the agent as a disc: uint8[312, 312, 3]."""
        side = SIZE * CELL
        x, y = pixel_grid((side, side))
        rows, columns = ((side - y) // CELL).astype(int), (x // CELL).astype(int)
        goal = _middle(state.goal_column), side - _middle(state.goal_row)
        agent = _middle(state.column), side - _middle(state.row)
        return paint(
            WHITE,
            (~is_free(rows, columns), GRAY),
            (box(x, y, goal, (0.7 * CELL, 0.7 * CELL)), TEAL),
            (disc(x, y, agent, 0.3 * CELL), RED),
        )

    def _observe(self, state: FourRoomsState) -> jax.Array:
        if not self.use_visual_obs:
            cells = (state.row, state.column, state.goal_row, state.goal_column)
            return jnp.stack(cells).astype(jnp.float32)
        rows, columns = np.indices((SIZE, SIZE), np.int32)
        agent = (rows == state.row) & (columns == state.column)
        walls = jnp.asarray(~is_free(rows, columns))
        return jnp.stack([walls, agent], axis=-1).astype(jnp.float32)


def is_free(row: Any, column: Any) -> Any:
    """Returns whether there is no wall in a cell. Works on arrays of NumPy and of JAX."""
    inside = (row > 0) & (row < SIZE - 1) & (column > 0) & (column < SIZE - 1)
    upright = (column == 6) & (row != 3) & (row != 10)
    left = (row == 6) & (column < 6) & (column != 2)
    right = (row == 7) & (column > 6) & (column != 9)
    return inside & ~(upright | left | right)


_FREE = np.argwhere(is_free(*np.indices((SIZE, SIZE)))).astype(np.int32)  # [104, 2]


def _middle(cell: jax.Array) -> jax.Array:
    return (cell.astype(jnp.float32) + 0.5) * CELL
