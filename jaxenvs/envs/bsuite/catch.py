"""The catch task."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, TEAL, YELLOW, box, disc, paint, pixel_grid

CELL = 32  # pixels, side length of a cell in the image


@chex.dataclass(frozen=True)
class CatchState:
    """The positions of the ball and the paddle."""

    ball_row: jax.Array  # int32[], 0 at the top
    ball_column: jax.Array  # int32[]
    paddle_column: jax.Array  # int32[], in the bottom row


class Catch(Environment[CatchState]):
    """Move a paddle along the bottom row to catch a falling ball.

    Observation: float32[rows, columns], 1 at the ball and at the paddle, otherwise 0
    Action: int32[], 0 moves the paddle left, 1 does not move it, 2 moves it right
    Reward: 0 while the ball falls; in the bottom row, 1 if the paddle catches it, otherwise -1
    Start: the ball in a uniformly drawn column of the top row, the paddle in the middle
    Terminates: when the ball reaches the bottom row, after rows - 1 steps
    Time limit: none; every episode terminates

    The ball falls straight down by one row per step. The paddle moves first and stops at the
    walls. If the ball is caught, ball and paddle share one cell of the last observation.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its Catch (tests/parity/test_certificates.py).
    """

    rows: int = struct.static(10)  # height of the board, at least 2
    columns: int = struct.static(5)  # width of the board

    def __post_init__(self) -> None:
        check_integer(ParameterError, "Catch got rows", self.rows, 2)
        check_integer(ParameterError, "Catch got columns", self.columns)

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (self.rows, self.columns))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, key: chex.PRNGKey) -> tuple[CatchState, TimeStep]:
        state = CatchState(
            ball_row=jnp.int32(0),
            ball_column=spaces.Discrete(self.columns).sample(key),
            paddle_column=jnp.int32(self.columns // 2),
        )
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: CatchState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[CatchState, TimeStep]:
        del key  # a step is deterministic
        paddle_column = state.paddle_column + jnp.asarray(action, jnp.int32) - 1
        state = CatchState(
            ball_row=state.ball_row + 1,
            ball_column=state.ball_column,
            paddle_column=jnp.clip(paddle_column, 0, self.columns - 1),
        )
        landed = state.ball_row >= self.rows - 1
        caught = state.paddle_column == state.ball_column
        reward = jnp.where(landed, jnp.where(caught, 1.0, -1.0), 0.0)
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=landed)

    def render(self, state: CatchState) -> jax.Array:
        """Draws the board with the ball as a disc: uint8[32 rows, 32 columns, 3]."""
        height, width = CELL * self.rows, CELL * self.columns
        x, y = pixel_grid((height, width))
        ball = _middle(state.ball_column), height - _middle(state.ball_row)
        paddle = _middle(state.paddle_column), 0.5 * CELL
        return paint(
            BLACK,
            (box(x, y, paddle, (0.9 * CELL, 0.4 * CELL)), TEAL),
            (disc(x, y, ball, 0.3 * CELL), YELLOW),
        )

    def _observe(self, state: CatchState) -> jax.Array:
        # Without the barriers, XLA on CPU recomputes the paddle's move for every cell and loops
        # over short rows instead of over the whole board, which is up to four times slower.
        state = jax.lax.optimization_barrier(state)
        cells = np.arange(self.rows * self.columns, dtype=np.int32)
        ball = cells == state.ball_row * self.columns + state.ball_column
        paddle = cells == (self.rows - 1) * self.columns + state.paddle_column
        board = jax.lax.optimization_barrier((ball | paddle).astype(jnp.float32))
        return board.reshape(self.rows, self.columns)


def _middle(cell: jax.Array) -> jax.Array:
    return (cell.astype(jnp.float32) + 0.5) * CELL
