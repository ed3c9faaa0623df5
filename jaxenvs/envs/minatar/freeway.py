"""The game of Freeway."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minatar._minatar import MinAtar
from jaxenvs.envs.minatar._packed import (
    LANES,
    SIZE,
    at,
    bit,
    clear,
    equals,
    is_nonzero,
    lane,
    number_at,
    unpack,
)

COLUMN = 4  # of the chicken
MOVE_INTERVAL = 3  # steps between moves of the chicken
LAST_STEP = 2500  # the game is over after one more step
NUM_SPEEDS = 5


@chex.dataclass(frozen=True)
class FreewayState:
    """The chicken, and the cars, one in each of rows 1 to 8.

    What is said of a car is a number in its row's lane (`_packed`).
    """

    chicken: jax.Array  # int32[], row
    columns: jax.Array  # uint32[], of the cars
    speeds: jax.Array  # uint32[], from 1 to 5, the steps that a car waits between moves
    moves_right: jax.Array  # uint32[], 1 for cars that move right
    timers: jax.Array  # uint32[], steps until the cars move
    move_timer: jax.Array  # int32[], steps until the chicken can move
    steps_left: jax.Array  # int32[], the game is over below 0
    last_action: jax.Array  # int32[], the last executed action


@chex.dataclass(frozen=True)
class FreewayDraws:
    """The random outcomes of a step."""

    sticks: jax.Array  # bool[], whether the last action is executed again
    speeds: jax.Array  # uint32[], of the cars if the chicken arrives
    moves_right: jax.Array  # uint32[]


class Freeway(MinAtar[FreewayState]):
    """Lead a chicken across a road of eight lanes, as often as possible.

    Observation: bool[10, 10, 7], or float32, 1 where there is
        0  the chicken
        1  a car
        2-6  the trail of a car with speed 1 to 5, in the cell behind it
    Action: int32[], none (0), left (1), up (2), right (3), down (4), fire (5); left, right, and
        fire have no effect. With the minimal set: none (0), up (1), down (2)
    Reward: 1 when the chicken reaches the top row
    Start: the chicken in column 4 of the bottom row, a car in column 0 of each of rows 1 to 8, with
        uniformly drawn directions and speeds
    Terminates: after 2,501 steps
    Time limit: none; every episode terminates

    The chicken moves by one cell and then waits for two steps. A car that meets it sends it back to
    the bottom row. When it reaches the top row, it starts again from the bottom, and all cars get
    new directions and speeds. A car with speed s moves every s + 1 steps. Cars that leave the board
    enter it again on the other side.

    With probability `sticky_action_prob`, a step executes the last action again. MinAtar keeps the
    last action from one episode to the next; here an episode begins with none.

    Source: K. Young, T. Tian, MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible
    Reinforcement Learning Experiments, 2019. Rules and observations are those of its package
    (tests/parity/test_certificates.py).
    """

    channels: ClassVar = ("chicken", "car", "speed1", "speed2", "speed3", "speed4", "speed5")
    minimal_actions: ClassVar = "nud"

    def initial_state(self, key: chex.PRNGKey) -> FreewayState:
        speeds, moves_right = _draw_cars(jax.random.bits(key, (2,), jnp.uint32))
        return FreewayState(
            chicken=jnp.int32(SIZE - 1),
            columns=jnp.uint32(0),
            speeds=speeds,
            moves_right=moves_right,
            timers=speeds,
            move_timer=jnp.int32(MOVE_INTERVAL),
            steps_left=jnp.int32(LAST_STEP),
            last_action=jnp.int32(0),
        )

    def draw(self, state: FreewayState, key: chex.PRNGKey) -> FreewayDraws:
        del state
        words = jax.random.bits(key, (3,), jnp.uint32)
        speeds, moves_right = _draw_cars(words[1:])
        sticks = self._sticks((words[0] >> 8).astype(jnp.float32) * np.float32(2**-24))
        return FreewayDraws(sticks=sticks, speeds=speeds, moves_right=moves_right)

    def transition(
        self, state: FreewayState, action: jax.Array, draws: FreewayDraws
    ) -> tuple[FreewayState, jax.Array, jax.Array]:
        can_move = state.move_timer == 0
        up, down = self._is(action, "u") & can_move, self._is(action, "d") & can_move
        row = jnp.clip(state.chicken + down.astype(jnp.int32) - up.astype(jnp.int32), 0, SIZE - 1)
        move_timer = jnp.where(up | down, MOVE_INTERVAL, state.move_timer)

        arrives = row == 0
        row = jnp.where(arrives, SIZE - 1, row)
        speeds = jnp.where(arrives, draws.speeds, state.speeds)
        moves_right = jnp.where(arrives, draws.moves_right, state.moves_right)
        timers = jnp.where(arrives, speeds, state.timers)

        waits = is_nonzero(timers)
        moves = LANES ^ waits
        columns = _drive(state.columns, moves & moves_right, moves & ~moves_right)
        # A car hits the chicken before or after it moves. There is one car in a row and none in the
        # bottom row, so no car finds the chicken that another has sent back, and it does not matter
        # that MinAtar moves one car after the other.
        is_hit = (number_at(state.columns, row) == COLUMN) | (number_at(columns, row) == COLUMN)
        next_state = FreewayState(
            chicken=jnp.where(is_hit, SIZE - 1, row),
            columns=columns,
            speeds=speeds,
            moves_right=moves_right,
            timers=timers - waits + clear(speeds, waits),
            move_timer=jnp.maximum(move_timer - 1, 0),
            steps_left=state.steps_left - 1,
            last_action=state.last_action,
        )
        return next_state, arrives.astype(jnp.float32), state.steps_left <= 0

    def boards(self, state: FreewayState) -> dict[str, jax.Array]:
        behind = _drive(state.columns, LANES ^ state.moves_right, state.moves_right)
        speeds, trails = unpack(state.speeds), bit(unpack(behind))
        boards = {
            "chicken": at(state.chicken, COLUMN),
            "car": jnp.where(speeds > 0, bit(unpack(state.columns)), 0),
        }
        for speed in range(1, NUM_SPEEDS + 1):
            boards[f"speed{speed}"] = jnp.where(speeds == speed, trails, 0)
        return boards


def _draw_cars(words: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns speeds and directions for two words of random bits."""
    speeds = moves_right = jnp.uint32(0)
    for i in range(8):
        # Four decimal digits of a word. Their probabilities are right to 3e-6 of their size.
        kind = words[i // 4] // 10 ** (i % 4) % 10
        speeds += (kind % NUM_SPEEDS + 1) * lane(i + 1)
        moves_right += kind // NUM_SPEEDS * lane(i + 1)
    return speeds, moves_right


def _drive(columns: jax.Array, right: jax.Array, left: jax.Array) -> jax.Array:
    """Moves the cars of lanes to the right and to the left, around the board."""
    enters = left & equals(columns, 0)  # at the right edge
    columns = columns + right - left + enters * SIZE
    return clear(columns, equals(columns, SIZE))
