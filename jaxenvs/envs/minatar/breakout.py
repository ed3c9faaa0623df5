"""The game of Breakout."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minatar._minatar import Draws, MinAtar
from jaxenvs.envs.minatar._packed import ROW, ROWS, SIZE, at, bit

FIRST_BRICK = 10  # the bricks fill the cells from here on
ALL_BRICKS = np.uint32(2**30 - 1)  # three rows


@chex.dataclass(frozen=True)
class BreakoutState:
    """The paddle, the ball, its previous place, and the bricks."""

    paddle: jax.Array  # int32[], column
    ball_row: jax.Array  # int32[]
    ball_column: jax.Array  # int32[]
    moves_down: jax.Array  # bool[]
    moves_right: jax.Array  # bool[]
    last_row: jax.Array  # int32[], of the ball before its last move
    last_column: jax.Array  # int32[]
    bricks: jax.Array  # uint32[], bit i is set if there is a brick in cell 10 + i
    strike: jax.Array  # bool[], the ball was among bricks in the last step, so it breaks none
    last_action: jax.Array  # int32[], the last executed action


class Breakout(MinAtar[BreakoutState]):
    """Break the bricks at the top with a ball, and keep it in play with a paddle.

    Observation: bool[10, 10, 4], or float32, 1 where there is
        0  the paddle, in the bottom row
        1  the ball
        2  the trail: the place of the ball before its last move
        3  a brick
    Action: int32[], none (0), left (1), up (2), right (3), down (4), fire (5); up, down, and fire
        have no effect. With the minimal set: none (0), left (1), right (2)
    Reward: 1 for each brick that is broken
    Start: 30 bricks in rows 1 to 3, the paddle in column 4, the ball in row 3 at the left or at the
        right edge, moving down and away from the edge
    Terminates: when the ball reaches the bottom row beside the paddle
    Time limit: none

    The ball moves by one cell along a diagonal. Walls, bricks, and the paddle reflect it. Where it
    comes down beside the paddle and the paddle is at its next column, it goes back the way that it
    came. It breaks one brick at a time: after a brick it must first leave the bricks. When all are
    broken, 30 new ones appear as the ball reaches the bottom row.

    With probability `sticky_action_prob`, a step executes the last action again. MinAtar keeps the
    last action from one episode to the next; here an episode begins with none.

    Source: K. Young, T. Tian, MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible
    Reinforcement Learning Experiments, 2019. Rules and observations are those of its package
    (tests/parity/test_certificates.py).
    """

    channels: ClassVar = ("paddle", "ball", "trail", "brick")
    minimal_actions: ClassVar = "nlr"

    def initial_state(self, key: chex.PRNGKey) -> BreakoutState:
        from_left = jax.random.bernoulli(key, np.float32(0.5))
        column = jnp.where(from_left, jnp.int32(0), SIZE - 1)
        return BreakoutState(
            paddle=jnp.int32(4),
            ball_row=jnp.int32(3),
            ball_column=column,
            moves_down=jnp.bool_(True),
            moves_right=from_left,
            last_row=jnp.int32(3),
            last_column=column,
            bricks=jnp.uint32(ALL_BRICKS),
            strike=jnp.bool_(False),
            last_action=jnp.int32(0),
        )

    def transition(
        self, state: BreakoutState, action: jax.Array, draws: Draws
    ) -> tuple[BreakoutState, jax.Array, jax.Array]:
        steer = self._is(action, "r").astype(jnp.int32) - self._is(action, "l").astype(jnp.int32)
        paddle = jnp.clip(state.paddle + steer, 0, SIZE - 1)

        moved = state.ball_column + jnp.where(state.moves_right, 1, -1)
        column = jnp.clip(moved, 0, SIZE - 1)
        moves_right = state.moves_right ^ (moved != column)
        row = state.ball_row + jnp.where(state.moves_down, 1, -1)

        hits_top = row < 0
        row = jnp.maximum(row, 0)
        brick = bit(row * SIZE + column - FIRST_BRICK)  # none of the 30 in other rows
        meets_brick = ~hits_top & ((state.bricks & brick) != 0)
        breaks = meets_brick & ~state.strike
        bricks = jnp.where(breaks, state.bricks ^ brick, state.bricks)

        at_bottom = ~hits_top & ~meets_brick & (row == SIZE - 1)
        bricks = jnp.where(at_bottom & (bricks == 0), ALL_BRICKS, bricks)
        # The paddle is compared with the ball's old column first.
        bounces = at_bottom & (state.ball_column == paddle)
        returns = at_bottom & ~bounces & (column == paddle)
        state = BreakoutState(
            paddle=paddle,
            ball_row=jnp.where(breaks | bounces | returns, state.ball_row, row),
            ball_column=column,
            moves_down=state.moves_down ^ (hits_top | breaks | bounces | returns),
            moves_right=moves_right ^ returns,
            last_row=state.ball_row,
            last_column=state.ball_column,
            bricks=bricks,
            strike=meets_brick,
            last_action=state.last_action,
        )
        return state, breaks.astype(jnp.float32), at_bottom & ~bounces & ~returns

    def boards(self, state: BreakoutState) -> dict[str, jax.Array]:
        first = SIZE * ROWS - FIRST_BRICK  # brick of each row, none in rows without bricks
        return {
            "paddle": at(SIZE - 1, state.paddle),
            "ball": at(state.ball_row, state.ball_column),
            "trail": at(state.last_row, state.last_column),
            "brick": state.bricks >> first.astype(np.uint32) & ROW,
        }
