"""The game of Asterix."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
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
    sideward,
    unpack,
)

RAMP_INTERVAL = 100
LAST_RAMP = 9  # there is an arrival and a move in every step from then on


@chex.dataclass(frozen=True)
class AsterixState:
    """The player, the objects, one for each of rows 1 to 8, and when they arrive and move.

    What is said of an object is a number in its row's lane (`_packed`).
    """

    player_row: jax.Array  # int32[]
    player_column: jax.Array  # int32[]
    columns: jax.Array  # uint32[], of the objects, from 1 to 10, or 0 in a free row
    moves_right: jax.Array  # uint32[], 1 in rows with an object that moves right
    is_gold: jax.Array  # uint32[], 1 in rows with gold
    spawn_timer: jax.Array  # int32[], steps until the next object arrives
    move_timer: jax.Array  # int32[], steps until the objects move
    ramp_timer: jax.Array  # int32[], steps until the game becomes faster
    ramp_index: jax.Array  # int32[], how many times it did
    last_action: jax.Array  # int32[], the last executed action


@chex.dataclass(frozen=True)
class AsterixDraws:
    """The random outcomes of a step."""

    sticks: jax.Array  # bool[], whether the last action is executed again
    from_left: jax.Array  # bool[], whether the next object comes from the left
    is_gold: jax.Array  # bool[]
    place: jax.Array  # float32[], from 0 to 1: its row among the free rows


class Asterix(MinAtar[AsterixState]):
    """Pick up gold and avoid enemies, which cross the board in both directions.

    Observation: bool[10, 10, 4], or float32, 1 where there is
        0  the player
        1  an enemy
        2  the trail of an enemy or of gold, in the cell behind it
        3  gold
    Action: int32[], none (0), left (1), up (2), right (3), down (4), fire (5); fire has no effect
        and is not in the minimal set
    Reward: 1 for each piece of gold
    Start: no objects, the player in row 5, column 5
    Terminates: when the player meets an enemy
    Time limit: none

    The player moves in rows 1 to 8. Each of them has room for one object. Every 10 steps, an object
    arrives at the left or right edge of a free row, drawn uniformly; a third of them are gold.
    Every 5 steps, all objects move by one cell. With `difficulty_ramping`, objects arrive one step
    sooner after each 102 steps, and move one step sooner after each 204, until there is one of
    both in every step.

    With probability `sticky_action_prob`, a step executes the last action again. MinAtar keeps the
    last action from one episode to the next; here an episode begins with none.

    Source: K. Young, T. Tian, MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible
    Reinforcement Learning Experiments, 2019. Rules and observations are those of its package
    (tests/parity/test_certificates.py).
    """

    difficulty_ramping: bool = struct.static(True)  # the game becomes faster over time

    channels: ClassVar = ("player", "enemy", "trail", "gold")
    minimal_actions: ClassVar = "nlurd"

    def initial_state(self, key: chex.PRNGKey) -> AsterixState:
        del key  # every episode starts in the same state
        return AsterixState(
            player_row=jnp.int32(5),
            player_column=jnp.int32(5),
            columns=jnp.uint32(0),
            moves_right=jnp.uint32(0),
            is_gold=jnp.uint32(0),
            spawn_timer=jnp.int32(10),
            move_timer=jnp.int32(5),
            ramp_timer=jnp.int32(RAMP_INTERVAL),
            ramp_index=jnp.int32(0),
            last_action=jnp.int32(0),
        )

    def draw(self, state: AsterixState, key: chex.PRNGKey) -> AsterixDraws:
        del state
        u = jax.random.uniform(key, (2,), jnp.float32)
        # The six kinds of one number are equally likely, and so is each place within a kind.
        kind = jnp.floor(6 * u[1])
        return AsterixDraws(
            sticks=self._sticks(u[0]),
            from_left=kind % 2 == 0,
            is_gold=kind < 2,
            place=6 * u[1] - kind,
        )

    def transition(
        self, state: AsterixState, action: jax.Array, draws: AsterixDraws
    ) -> tuple[AsterixState, jax.Array, jax.Array]:
        # An object arrives in a free row.
        spawns = state.spawn_timer == 0
        free = equals(state.columns, 0)
        ranks = free * LANES  # in each lane, the number of free rows up to it
        number = number_at(ranks, 8)
        chosen = (draws.place * number.astype(jnp.float32)).astype(jnp.uint32) + 1
        arrives = jnp.where(spawns, free & equals(ranks, chosen), 0)
        edge = jnp.where(draws.from_left, np.uint32(1), np.uint32(SIZE))
        columns = state.columns + arrives * edge
        moves_right = state.moves_right | jnp.where(draws.from_left, arrives, 0)
        is_gold = state.is_gold | jnp.where(draws.is_gold, arrives, 0)

        right, left, down, up = (self._is(action, x).astype(jnp.int32) for x in "rldu")
        player_column = jnp.clip(state.player_column + right - left, 0, SIZE - 1)
        player_row = jnp.clip(state.player_row + down - up, 1, SIZE - 2)
        in_gold_row = number_at(is_gold, player_row) == 1

        def meet(columns: jax.Array) -> tuple[jax.Array, jax.Array]:
            """Returns whether the player meets an object, and the objects without taken gold."""
            meets = number_at(columns, player_row) == player_column.astype(jnp.uint32) + 1
            taken = jnp.where(meets & in_gold_row, lane(player_row), 0)
            return meets, clear(columns, taken)

        # Objects of other rows cannot be met, so it does not matter that MinAtar moves one object
        # after the other.
        meets, columns = meet(columns)
        moves = state.move_timer == 0
        moving = jnp.where(moves, is_nonzero(columns), 0)
        columns = columns + (moving & moves_right) - (moving & ~moves_right)
        columns = clear(columns, equals(columns, SIZE + 1))
        meets_moved, columns = meet(columns)
        meets |= meets_moved

        index = state.ramp_index
        ramps = (index < LAST_RAMP) & self.difficulty_ramping
        speeds_up = ramps & (state.ramp_timer < 0)
        present = is_nonzero(columns)
        next_state = AsterixState(
            player_row=player_row,
            player_column=player_column,
            columns=columns,
            moves_right=moves_right & present,
            is_gold=is_gold & present,
            spawn_timer=jnp.where(spawns, 10 - index, state.spawn_timer) - 1,
            move_timer=jnp.where(moves, 5 - index // 2, state.move_timer) - 1,
            ramp_timer=jnp.where(
                speeds_up, RAMP_INTERVAL, state.ramp_timer - ramps.astype(jnp.int32)
            ),
            ramp_index=index + speeds_up.astype(jnp.int32),
            last_action=state.last_action,
        )
        return next_state, (meets & in_gold_row).astype(jnp.float32), meets & ~in_gold_row

    def boards(self, state: AsterixState) -> dict[str, jax.Array]:
        objects = bit(unpack(state.columns)) >> 1  # nothing in a free row
        is_gold, moves_left = unpack(state.is_gold) == 1, unpack(state.moves_right) == 0
        return {
            "player": at(state.player_row, state.player_column),
            "enemy": jnp.where(is_gold, 0, objects),
            "trail": sideward(objects, moves_left),
            "gold": jnp.where(is_gold, objects, 0),
        }
