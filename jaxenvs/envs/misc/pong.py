"""A small game of Pong."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, GRAY, TEAL, WHITE, YELLOW, box, paint, pixel_grid

CELL = 8  # pixels, side length of a cell in the image


@chex.dataclass(frozen=True)
class PongState:
    """The rows of the paddles, the ball and where it was, and its speed."""

    left: jax.Array  # int32[], row of the left paddle's center, 0 at the top
    right: jax.Array  # int32[]
    ball_row: jax.Array  # int32[]
    ball_column: jax.Array  # int32[]
    last_row: jax.Array  # int32[], of the ball before the step
    last_column: jax.Array  # int32[]
    row_speed: jax.Array  # int32[], rows per step, positive is down
    column_speed: jax.Array  # int32[]


class Pong(Environment[PongState]):
    """Keep a ball in play with the left paddle, while the right paddle follows the ball.

    Observation: float32[height, width, 3], 1 at the paddles (channel 0), the ball (1), and the ball
        one step ago (2), otherwise 0
    Action: int32[], does nothing (0), moves the paddle up (1), down (2)
    Reward: 1 as long as the ball is in play, 0 when either side misses it
    Start: paddles and ball in the middle, the ball moves to the right
    Terminates: when the ball passes the left or right edge
    Time limit: none here; `Pong-misc` is registered with 1,000 steps

    Paddles are 2 paddle_half_height + 1 rows high. A paddle sends the ball back, and faster up or
    down the farther from its middle it is hit, by up to one row per step, and by no more than
    ball_max_y_speed in all. The right paddle moves towards the ball, down if both directions are
    equally good; without `use_ai_policy`, it moves as the left paddle does. Starts and steps are
    not random.

    Source: gymnax's Pong, from A. Kirsch's batch_pong_poc (tests/parity/test_certificates.py). Two
    of gymnax's errors are mended: the ball bounces off the upper edge, as in Kirsch's program,
    where gymnax's leaves the board and cannot be reached any more; and on boards of odd height or
    width, it starts in a cell, not between two.
    """

    ball_max_y_speed: int = 3  # largest number of rows that the ball moves per step
    paddle_y_speed: int = 1  # number of rows that a paddle moves per step
    ball_x_speed: int = 1  # number of columns that the ball moves per step
    use_ai_policy: bool = struct.static(True)  # the right paddle follows the ball
    width: int = struct.static(40)  # number of columns, at least 3
    height: int = struct.static(30)  # number of rows, at least those of a paddle
    paddle_half_height: int = struct.static(2)  # rows of a paddle above its center, at least 1

    def __post_init__(self) -> None:
        check_integer(ParameterError, "Pong got paddle_half_height", self.paddle_half_height)
        check_integer(ParameterError, "Pong got width", self.width, 3)
        check_integer(
            ParameterError, "Pong got height", self.height, 2 * self.paddle_half_height + 1
        )

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (self.height, self.width, 3))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, key: chex.PRNGKey) -> tuple[PongState, TimeStep]:
        del key  # every episode starts in the same way
        row, column = jnp.int32(self.height // 2), jnp.int32(self.width // 2)
        state = PongState(
            left=row,
            right=row,
            ball_row=row,
            ball_column=column,
            last_row=row,
            last_column=column,
            row_speed=jnp.int32(0),
            column_speed=jnp.asarray(self.ball_x_speed, jnp.int32),
        )
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: PongState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[PongState, TimeStep]:
        del key  # a step is deterministic
        left, right = self._move_paddles(state, jnp.asarray(action, jnp.int32))
        row, row_speed = state.ball_row + state.row_speed, state.row_speed
        column, column_speed = state.ball_column + state.column_speed, state.column_speed

        over, under = row < 0, row >= self.height
        row = jnp.where(over, -row, jnp.where(under, 2 * (self.height - 1) - row, row))
        row_speed = jnp.where(over | under, -row_speed, row_speed)

        half = self.paddle_half_height
        hit_left = (column <= 1) & (jnp.abs(row - left) <= half)
        hit_right = (column >= self.width - 1) & (jnp.abs(row - right) <= half)
        hit = hit_left | hit_right
        spin = (row - jnp.where(hit_left, left, right)).astype(jnp.float32) / half
        limit = jnp.asarray(self.ball_max_y_speed, jnp.float32)
        spun = jnp.round(jnp.clip(row_speed.astype(jnp.float32) + spin, -limit, limit))
        turn = jnp.where(hit_left, 2, 2 * (self.width - 2))  # twice the column of the turn
        column = jnp.where(hit, turn - column, column)

        state = PongState(
            left=left,
            right=right,
            ball_row=row,
            ball_column=column,
            last_row=state.ball_row,
            last_column=state.ball_column,
            row_speed=jnp.where(hit, spun.astype(jnp.int32), row_speed),
            column_speed=jnp.where(hit, -column_speed, column_speed),
        )
        lost = (column < 0) | (column >= self.width)
        return state, TimeStep.transition(
            self._observe(state), reward=1 - lost.astype(jnp.float32), terminated=lost
        )

    def render(self, state: PongState) -> jax.Array:
        """Draws the board, with the ball's last place in gray: uint8[8 height, 8 width, 3]."""
        height, width = CELL * self.height, CELL * self.width
        x, y = pixel_grid((height, width))
        length = CELL * (2 * self.paddle_half_height + 1)
        paddles = [
            (box(x, y, (column, height - _middle(row)), (CELL, length)), color)
            for column, row, color in (
                (0.5 * CELL, state.left, TEAL),
                (width - 0.5 * CELL, state.right, WHITE),
            )
        ]
        last = _middle(state.last_column), height - _middle(state.last_row)
        ball = _middle(state.ball_column), height - _middle(state.ball_row)
        return paint(
            BLACK,
            (box(x, y, last, (CELL, CELL)), GRAY),
            *paddles,
            (box(x, y, ball, (CELL, CELL)), YELLOW),
        )

    def _move_paddles(self, state: PongState, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        speed = jnp.asarray(self.paddle_y_speed, jnp.int32)

        def clip(row: jax.Array) -> jax.Array:
            return jnp.clip(row, self.paddle_half_height, self.height - self.paddle_half_height - 1)

        move = speed * ((action == 2).astype(jnp.int32) - (action == 1).astype(jnp.int32))
        up, down = clip(state.right - speed), clip(state.right + speed)
        if self.use_ai_policy:
            is_up = jnp.abs(state.ball_row - up) < jnp.abs(state.ball_row - down)
            return clip(state.left + move), jnp.where(is_up, up, down)
        return clip(state.left + move), clip(state.right + move)

    def _observe(self, state: PongState) -> jax.Array:
        height, width, half = self.height, self.width, self.paddle_half_height
        row = np.arange(height, dtype=np.int32)[:, None]
        lane = np.arange(3 * width, dtype=np.int32)[None]  # 3 column + channel
        left = (lane == 0) & (jnp.abs(row - state.left) <= half)
        right = (lane == 3 * (width - 1)) & (jnp.abs(row - state.right) <= half)
        # Without the barrier, XLA on CPU computes the paddles again for the balls.
        paddles = jax.lax.optimization_barrier((left | right).astype(jnp.float32))
        rows, columns = (
            jnp.clip(jnp.stack(places), 0, size - 1)
            for places, size in (
                ((state.ball_row, state.last_row), height),
                ((state.ball_column, state.last_column), width),
            )
        )
        return paddles.reshape(height, width, 3).at[rows, columns, np.array([1, 2])].set(1.0)


def _middle(cell: jax.Array) -> jax.Array:
    return (cell.astype(jnp.float32) + 0.5) * CELL
