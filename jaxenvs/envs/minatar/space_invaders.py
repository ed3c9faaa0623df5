"""The game of Space Invaders."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minatar._minatar import Draws, MinAtar
from jaxenvs.envs.minatar._packed import ROWS, SIZE, at, bit, count, sideward

FIRST_WAVE = np.array([0b0011111100] * 4 + [0] * 6, np.uint32)  # columns 2 to 7 of rows 0 to 3
SHOT_INTERVAL = 5  # steps between the cannon's shots
ALIEN_SHOT_INTERVAL = 10  # steps between the aliens' shots
SLOWEST_MOVE, FASTEST_MOVE = 12, 6  # steps between the moves of many aliens


@chex.dataclass(frozen=True)
class SpaceInvadersState:
    """The cannon, the boards of aliens and bullets, and when they move and shoot."""

    cannon: jax.Array  # int32[], column
    aliens: jax.Array  # uint32[10]
    cannon_bullets: jax.Array  # uint32[10]
    alien_bullets: jax.Array  # uint32[10]
    moves_right: jax.Array  # bool[], the direction of the aliens
    move_interval: jax.Array  # int32[], steps between moves of the aliens, if they are many
    move_timer: jax.Array  # int32[], steps until the aliens move
    shot_timer: jax.Array  # int32[], steps until the cannon can shoot
    alien_shot_timer: jax.Array  # int32[], steps until an alien shoots
    last_action: jax.Array  # int32[], the last executed action


class SpaceInvaders(MinAtar[SpaceInvadersState]):
    """Shoot the aliens before they come down, and dodge their bullets.

    Observation: bool[10, 10, 6], or float32, 1 where there is
        0  the cannon, in the bottom row
        1  an alien
        2  an alien, if the aliens move left
        3  an alien, if the aliens move right
        4  a bullet of the cannon
        5  a bullet of an alien
    Action: int32[], none (0), left (1), up (2), right (3), down (4), fire (5); up and down have no
        effect. With the minimal set: none (0), left (1), right (2), fire (3)
    Reward: 1 for each alien that is shot
    Start: 24 aliens in columns 2 to 7 of rows 0 to 3, moving left; the cannon in column 5
    Terminates: when an alien or its bullet reaches the cannon, or the aliens turn while one of them
        is in the bottom row
    Time limit: none

    The aliens move every 12 steps, or, if fewer than 12 are left, as many steps as there are
    aliens. At an edge they turn and move down. Every 10 steps, the lowest alien in the column that
    is nearest to the cannon shoots. The cannon can shoot every 5 steps. After the last alien, 24
    new ones appear. With `difficulty_ramping`, each new wave moves one step sooner, down to 6.

    With probability `sticky_action_prob`, a step executes the last action again. MinAtar keeps the
    last action from one episode to the next; here an episode begins with none.

    Source: K. Young, T. Tian, MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible
    Reinforcement Learning Experiments, 2019. Rules and observations are those of its package
    (tests/parity/test_certificates.py).
    """

    difficulty_ramping: bool = struct.static(True)  # the aliens' waves become faster

    channels: ClassVar = ("cannon", "alien", "left", "right", "cannon_bullet", "alien_bullet")
    minimal_actions: ClassVar = "nlrf"

    def initial_state(self, key: chex.PRNGKey) -> SpaceInvadersState:
        del key  # every episode starts in the same state
        return SpaceInvadersState(
            cannon=jnp.int32(5),
            aliens=jnp.asarray(FIRST_WAVE),
            cannon_bullets=jnp.zeros(SIZE, jnp.uint32),
            alien_bullets=jnp.zeros(SIZE, jnp.uint32),
            moves_right=jnp.bool_(False),
            move_interval=jnp.int32(SLOWEST_MOVE),
            move_timer=jnp.int32(SLOWEST_MOVE),
            shot_timer=jnp.int32(0),
            alien_shot_timer=jnp.int32(ALIEN_SHOT_INTERVAL),
            last_action=jnp.int32(0),
        )

    def transition(
        self, state: SpaceInvadersState, action: jax.Array, draws: Draws
    ) -> tuple[SpaceInvadersState, jax.Array, jax.Array]:
        steer = self._is(action, "r").astype(jnp.int32) - self._is(action, "l").astype(jnp.int32)
        cannon = jnp.clip(state.cannon + steer, 0, SIZE - 1)
        shoots = self._is(action, "f") & (state.shot_timer == 0)
        # A new bullet moves at once, so it appears above the cannon.
        shot = jnp.where(shoots, at(SIZE - 2, cannon), 0)
        bullets = _downward(state.cannon_bullets, -1) | shot
        alien_bullets = _downward(state.alien_bullets, 1)

        aliens, number = state.aliens, count(state.aliens)
        dies = ((alien_bullets[-1] | aliens[-1]) & bit(cannon)) != 0
        moves = state.move_timer == 0
        edge = bit(jnp.where(state.moves_right, SIZE - 1, 0))
        turns = moves & (_columns(aliens) & edge != 0)
        dies |= turns & (aliens[-1] != 0)
        moved = jnp.where(turns, jnp.roll(aliens, 1), sideward(aliens, state.moves_right))
        aliens = jnp.where(moves, moved, aliens)
        dies |= (aliens[-1] & bit(cannon)) != 0

        alien_shoots = state.alien_shot_timer == 0
        shooter = _nearest(_columns(aliens), cannon)
        row = jnp.max(jnp.where(aliens & bit(shooter) != 0, ROWS, -1))
        alien_bullets |= jnp.where(alien_shoots, at(row, shooter), 0)

        killed = aliens & bullets
        kills = count(killed)
        is_over = kills == number
        interval = state.move_interval
        speeds_up = is_over & (interval > FASTEST_MOVE) & self.difficulty_ramping
        few = jnp.minimum(number.astype(jnp.int32), interval)
        state = SpaceInvadersState(
            cannon=cannon,
            aliens=jnp.where(is_over, FIRST_WAVE, aliens ^ killed),
            cannon_bullets=bullets ^ killed,
            alien_bullets=alien_bullets,
            moves_right=state.moves_right ^ turns,
            move_interval=interval - speeds_up.astype(jnp.int32),
            move_timer=jnp.where(moves, few, state.move_timer) - 1,
            shot_timer=jnp.maximum(jnp.where(shoots, SHOT_INTERVAL, state.shot_timer) - 1, 0),
            alien_shot_timer=jnp.where(alien_shoots, ALIEN_SHOT_INTERVAL, state.alien_shot_timer)
            - 1,
            last_action=state.last_action,
        )
        return state, kills.astype(jnp.float32), dies

    def boards(self, state: SpaceInvadersState) -> dict[str, jax.Array]:
        return {
            "cannon": at(SIZE - 1, state.cannon),
            "alien": state.aliens,
            "left": jnp.where(state.moves_right, 0, state.aliens),
            "right": jnp.where(state.moves_right, state.aliens, 0),
            "cannon_bullet": state.cannon_bullets,
            "alien_bullet": state.alien_bullets,
        }


def _downward(board: jax.Array, by: int) -> jax.Array:
    """Moves a board down by one row, or up if `by` is -1. What leaves it is gone."""
    nothing = jnp.zeros(1, board.dtype)
    return jnp.concatenate([board[1:], nothing] if by < 0 else [nothing, board[:-1]])


def _columns(board: jax.Array) -> jax.Array:
    """Returns a row with the columns in which a board has an object."""
    return jax.lax.reduce_or(board, (0,))


def _nearest(columns: jax.Array, column: jax.Array) -> jax.Array:
    """Returns the column of a row's object that is nearest to a column, the left one of two."""
    place = column.astype(jnp.uint32)
    left, right = columns << (31 - place), columns >> place
    to_left = jax.lax.clz(left)  # 32 if there is none, like `to_right`
    to_right = jax.lax.population_count(~right & (right - 1))
    return jnp.where(to_left <= to_right, place - to_left, place + to_right)
