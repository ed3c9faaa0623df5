"""The game of Seaquest."""

from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minatar._minatar import MinAtar
from jaxenvs.envs.minatar._packed import ROWS, SIZE, at, bit, count, once, sideward
from jaxenvs.envs.minatar._seaquest_objects import (
    DIVER_INTERVAL,
    Enemies,
    aim,
    binary,
    cells_of,
    diver_columns,
    fly,
    stop,
)

OXYGEN = 200  # steps until a full tank is empty
MAX_DIVERS = 6  # on board
COOL_DOWN = 5  # steps between two shots of the player
SUB_COOL_DOWN = 11  # steps between two bullets of an enemy
ENEMY_INTERVAL = 20  # steps between two enemies, at first
MOVE_INTERVAL = 5  # steps that enemies rest between two moves, at first
DEPTHS = ROWS[1:9]  # the rows of enemies and divers


@chex.dataclass(frozen=True)
class SeaquestDraws:
    """The random outcomes of a step. Those of an object that does not appear have no effect."""

    sticks: jax.Array  # bool[], whether the last action is executed again
    enemy_from_left: jax.Array  # bool[]
    enemy_is_sub: jax.Array  # bool[]
    enemy_row: jax.Array  # int32[], 1 to 8
    diver_from_left: jax.Array  # bool[]
    diver_row: jax.Array  # int32[], 1 to 8


@chex.dataclass(frozen=True)
class SeaquestState:
    """The player, the enemies, the divers, all that they shot, and timers."""

    row: jax.Array  # int32[], of the player
    column: jax.Array  # int32[]
    faces_right: jax.Array  # bool[]
    rescued: jax.Array  # int32[], divers on board, below 0 after a full load was landed
    oxygen: jax.Array  # int32[]
    surfaced: jax.Array  # bool[], the player is at the surface and has landed divers
    ramp: jax.Array  # int32[], the level of difficulty
    shots: jax.Array  # uint32[9], of the player in rows 0 to 8, to the left and to the right
    bullets: jax.Array  # uint32[8], of enemies in rows 1 to 8, to the left and to the right
    fish: Enemies  # uint32[8]
    subs: Enemies  # uint32[4, 8]; a sub fires when `clock` is one less than its number, 1 to 11
    heads_right: jax.Array  # bool[8], whether there are enemies in a row that head right
    diver_rows: jax.Array  # int32[2], of the last diver and the one before it, 0 if it is gone
    diver_heads_right: jax.Array  # bool[2]
    shot_timer: jax.Array  # int32[], steps until the player can fire
    enemy_timer: jax.Array  # int32[], steps until an enemy appears
    diver_timer: jax.Array  # int32[], steps until a diver appears
    clock: jax.Array  # int32[], the number of steps since the start, modulo 11
    last_action: jax.Array  # int32[], the last executed action


class Seaquest(MinAtar[SeaquestState]):
    """Rescue divers with a submarine, shoot enemies, and surface before the oxygen runs out.

    Observation: bool[10, 10, 10], or float32, 1 where there is
        0  the front of the player's submarine
        1  its back
        2  a shot of the player
        3  the trail of an enemy or a diver: the place behind it
        4  a bullet of an enemy
        5  a fish
        6  an enemy submarine
        7  the oxygen gauge, in the bottom row from the left: one cell for 20 steps
        8  the diver gauge, in the bottom row from column 8 to the left: one cell for each diver
        9  a diver
    Action: int32[], none (0), left (1), up (2), right (3), down (4), fire (5), in both sets
    Reward: 1 for each enemy that is shot, and the number of cells of the oxygen gauge for landing 6
        divers
    Start: the player in the middle of the surface, facing left, with oxygen for 200 steps
    Terminates: when the player meets an enemy or a bullet, surfaces without divers, or is under
        water without oxygen
    Time limit: none

    Enemies and divers appear in rows 1 to 8, at a random edge and in a random row. An enemy appears
    every 20 steps, unless enemies of its row head the other way. One in three is a submarine, which
    fires when it is 10 steps old and then every 11 steps. Enemies move every 6 steps, divers, which
    appear every 30 steps, too. Shots and bullets move in every step, and the player can fire every
    5 steps. Shots move first, then divers, enemies, and bullets.

    Up to 6 divers come on board when the player meets them. Surfacing after a dive fills the tank
    and lands one diver, or all 6 of a full boat. As in MinAtar, a full boat then counts one diver
    less than none: the next diver makes up for it, and surfacing before that does not end the game
    but subtracts one more.

    With `difficulty_ramping`, each surfacing lets enemies appear one step sooner, down to one in
    each step, and each second one lets them move one step sooner, down to every 3 steps.

    With probability `sticky_action_prob`, a step executes the last action again. MinAtar keeps the
    last action from one episode to the next; here an episode begins with none.

    Source: K. Young, T. Tian, MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible
    Reinforcement Learning Experiments, 2019. Rules and observations are those of its package
    (tests/parity/test_certificates.py).
    """

    difficulty_ramping: bool = struct.static(True)  # surfacing makes the game more difficult

    channels: ClassVar = (
        "sub_front",
        "sub_back",
        "friendly_bullet",
        "trail",
        "enemy_bullet",
        "enemy_fish",
        "enemy_sub",
        "oxygen_gauge",
        "diver_gauge",
        "diver",
    )
    minimal_actions: ClassVar = "nlurdf"

    def initial_state(self, key: chex.PRNGKey) -> SeaquestState:
        del key
        none = jnp.zeros(8, jnp.uint32)
        return SeaquestState(
            row=jnp.int32(0),
            column=jnp.int32(5),
            faces_right=jnp.bool_(False),
            rescued=jnp.int32(0),
            oxygen=jnp.int32(OXYGEN),
            surfaced=jnp.bool_(True),
            ramp=jnp.int32(0),
            shots=jnp.zeros(9, jnp.uint32),
            bullets=none,
            fish=Enemies(soon=none, late=none),
            subs=Enemies(soon=jnp.zeros((4, 8), jnp.uint32), late=jnp.zeros((4, 8), jnp.uint32)),
            heads_right=jnp.zeros(8, bool),
            diver_rows=jnp.zeros(2, jnp.int32),
            diver_heads_right=jnp.zeros(2, bool),
            shot_timer=jnp.int32(0),
            enemy_timer=jnp.int32(ENEMY_INTERVAL),
            diver_timer=jnp.int32(DIVER_INTERVAL),
            clock=jnp.int32(0),
            last_action=jnp.int32(0),
        )

    def draw(self, state: SeaquestState, key: chex.PRNGKey) -> SeaquestDraws:
        del state
        first, second = jax.random.bits(key, (2,), jnp.uint32)
        return SeaquestDraws(
            sticks=self._sticks((first >> 8).astype(jnp.float32) * np.float32(2**-24)),
            enemy_is_sub=(second >> 8) < np.uint32(2**24 // 3),
            enemy_row=1 + (second & 7).astype(jnp.int32),
            enemy_from_left=(second & 8) != 0,
            diver_row=1 + (second >> 4 & 7).astype(jnp.int32),
            diver_from_left=(second & 128) != 0,
        )

    def transition(
        self, state: Any, action: jax.Array, draws: SeaquestDraws
    ) -> tuple[SeaquestState, jax.Array, jax.Array]:
        state = self._spawn_enemy(state, draws)
        state = self._spawn_diver(state, draws)
        state = self._move_player(state, action)
        state, shot = self._move_shots(state)
        state = self._move_divers(state)
        state, rammed, is_hit = self._move_enemies(state)
        state, bonus, fails = self._breathe(state)
        reward = (count(shot) + count(rammed)).astype(jnp.float32) + bonus.astype(jnp.float32)
        state = state.replace(
            shot_timer=jnp.maximum(state.shot_timer - 1, 0),
            enemy_timer=jnp.maximum(state.enemy_timer - 1, 0),
            diver_timer=jnp.maximum(state.diver_timer - 1, 0),
            clock=jnp.where(state.clock == SUB_COOL_DOWN - 1, 0, state.clock + 1),
        )
        return state, reward, is_hit | fails

    def _spawn_enemy(self, state: Any, draws: SeaquestDraws) -> Any:
        """Lets an enemy appear, unless enemies of its row head the other way."""
        is_due = state.enemy_timer == 0
        is_there = state.fish.cells() | state.subs.all_subs().cells()
        is_open = (is_there == 0) | (state.heads_right == draws.enemy_from_left)
        edge = at(draws.enemy_row, jnp.where(draws.enemy_from_left, 0, SIZE - 1), DEPTHS)
        cells = once(jnp.where(is_due & is_open, edge, 0))
        # A sub fires ten steps from now, and then each time that the clock has gone around.
        number = jnp.where(state.clock == 0, SUB_COOL_DOWN, state.clock)
        digits = jnp.where(draws.enemy_is_sub, binary(number), 0)
        rest, interval = _rest(state.ramp), jnp.maximum(ENEMY_INTERVAL - state.ramp, 1)
        return state.replace(
            fish=state.fish.add(jnp.where(draws.enemy_is_sub, 0, cells), rest),
            subs=state.subs.add(cells[None] * digits[:, None], rest),
            heads_right=once(jnp.where(cells != 0, draws.enemy_from_left, state.heads_right)),
            enemy_timer=jnp.where(is_due, interval, state.enemy_timer),
        )

    def _spawn_diver(self, state: Any, draws: SeaquestDraws) -> Any:
        """Lets a diver appear. The one before the last is gone by then."""
        is_due = state.diver_timer == 0
        rows, right = state.diver_rows, state.diver_heads_right
        new_rows = jnp.stack([draws.diver_row, rows[0]])
        new_right = jnp.stack([draws.diver_from_left, right[0]])
        return state.replace(
            diver_rows=jnp.where(is_due, new_rows, rows),
            diver_heads_right=jnp.where(is_due, new_right, right),
            diver_timer=jnp.where(is_due, DIVER_INTERVAL, state.diver_timer),
        )

    def _move_player(self, state: Any, action: jax.Array) -> Any:
        """Moves the player, or fires a shot from its front."""
        left, right, up, down, fire = (self._is(action, letter) for letter in "lrudf")
        fires = fire & (state.shot_timer == 0)
        shot = aim(at(state.row, state.column, ROWS[:9]), state.faces_right)
        return state.replace(
            column=jnp.clip(state.column + right.astype(jnp.int32) - left.astype(jnp.int32), 0, 9),
            row=jnp.clip(state.row + down.astype(jnp.int32) - up.astype(jnp.int32), 0, 8),
            faces_right=(state.faces_right | right) & ~left,
            shots=state.shots | jnp.where(fires, shot, 0),
            shot_timer=jnp.where(fires, COOL_DOWN, state.shot_timer),
        )

    def _move_shots(self, state: Any) -> tuple[Any, jax.Array]:
        """Moves the player's shots. Returns where they hit a fish or, if there is none, a sub."""
        shots = fly(state.shots)
        cells = cells_of(shots[1:])
        fish_hit, cells_left = state.fish.hit_by(cells)
        subs_hit, cells_left = state.subs.all_subs().hit_by(cells_left)
        fish_hit, subs_hit, cells_left = once((fish_hit, subs_hit, cells_left))
        hits = cells ^ cells_left
        fish, subs = state.fish.without(fish_hit), state.subs.without(subs_hit)
        return state.replace(shots=stop(shots, hits), fish=fish, subs=subs), hits

    def _move_divers(self, state: Any) -> Any:
        """Takes divers on board that the player meets before or after they move."""
        rows, right = state.diver_rows, state.diver_heads_right
        before = diver_columns(state.diver_timer, right)
        after = diver_columns(state.diver_timer - 1, right)
        meets = (rows == state.row) & ((before == state.column) | (after == state.column))
        meets &= state.row > 0
        # If there is one place left, it is for the last diver.
        places = MAX_DIVERS - state.rescued - jnp.stack([jnp.int32(0), meets[0].astype(jnp.int32)])
        boards = meets & (places > 0)
        rows = jnp.where(boards | (after < 0) | (after == SIZE), 0, rows)
        return state.replace(
            rescued=state.rescued + jnp.sum(boards, dtype=jnp.int32),
            diver_rows=rows,
            diver_heads_right=right & (rows > 0),
        )

    def _move_enemies(self, state: Any) -> tuple[Any, jax.Array, jax.Array]:
        """Moves the enemies, which fire, and their bullets.

        Returns where enemies run into shots, and whether anything meets the player before or after
        it moves.
        """
        rest, right = _rest(state.ramp), state.heads_right
        all_subs, firing = state.subs.all_subs(), state.subs.numbered(state.clock + 1)
        before = state.fish.cells() | all_subs.cells()
        moved_fish, fish = state.fish.move(right)
        moved_subs, subs = state.subs.move(right)
        moved = moved_fish | all_subs.move(right)[0]
        hits = once(moved & cells_of(state.shots[1:]))
        fish, subs = fish.add(moved_fish & ~hits, rest), subs.add(moved_subs & ~hits[None], rest)
        # Subs fire after they have moved, even those that run into a shot.
        moved_firing, firing = firing.move(right)
        bullets = once(state.bullets | aim(moved_firing | firing.cells(), right))
        flown = fly(bullets)
        danger = before | moved | cells_of(bullets) | cells_of(flown)
        is_there = fish.cells() | subs.all_subs().cells()
        state = state.replace(
            fish=fish,
            subs=subs,
            shots=stop(state.shots, hits),
            bullets=flown,
            heads_right=right & (is_there != 0),
        )
        return state, hits, jnp.any((danger & at(state.row, state.column, DEPTHS)) != 0)

    def _breathe(self, state: Any) -> tuple[Any, jax.Array, jax.Array]:
        """Uses oxygen, or lands divers when the player surfaces.

        Returns the reward for a full boat, and whether there are no divers or no oxygen.
        """
        at_surface = state.row == 0
        surfaces = at_surface & ~state.surfaced
        lands = surfaces & (state.rescued != 0)
        is_full = lands & (state.rescued == MAX_DIVERS)
        fails = (state.oxygen <= 0) | (surfaces & ~lands)
        harder = lands & self.difficulty_ramping
        bonus = jnp.where(is_full, state.oxygen * 10 // OXYGEN, 0)
        state = state.replace(
            # MinAtar takes one diver off, even after all six.
            rescued=jnp.where(is_full, 0, state.rescued) - lands.astype(jnp.int32),
            oxygen=jnp.where(lands, OXYGEN, state.oxygen - (~at_surface).astype(jnp.int32)),
            surfaced=at_surface & (state.surfaced | lands),
            ramp=jnp.minimum(state.ramp + harder.astype(jnp.int32), ENEMY_INTERVAL - 1),
        )
        return state, bonus, fails

    def boards(self, state: SeaquestState) -> dict[str, jax.Array]:
        fish, subs = state.fish.cells(), state.subs.all_subs().cells()
        right = state.diver_heads_right
        columns = diver_columns(state.diver_timer, right)
        divers = at(state.diver_rows[:, None], columns[:, None], DEPTHS[None])
        trails = sideward(divers, ~right[:, None])
        trail = sideward(fish | subs, ~state.heads_right) | trails[0] | trails[1]
        back = state.column + jnp.where(state.faces_right, -1, 1)
        air = bit(jnp.maximum(state.oxygen, 0) * SIZE // OXYGEN) - 1
        rescued = jnp.maximum(state.rescued, 0)
        gauge = (bit(rescued) - 1) << (SIZE - 1 - rescued).astype(jnp.uint32)
        return {
            "sub_front": at(state.row, state.column),
            "sub_back": at(state.row, back),
            "friendly_bullet": jnp.pad(cells_of(state.shots), (0, 1)),
            "trail": jnp.pad(trail, 1),
            "enemy_bullet": jnp.pad(cells_of(state.bullets), 1),
            "enemy_fish": jnp.pad(fish, 1),
            "enemy_sub": jnp.pad(subs, 1),
            "oxygen_gauge": jnp.where(ROWS == SIZE - 1, air, 0),
            "diver_gauge": jnp.where(ROWS == SIZE - 1, gauge, 0),
            "diver": jnp.pad(divers[0] | divers[1], 1),
        }


def _rest(ramp: jax.Array) -> jax.Array:
    """Returns for how many steps enemies rest between two moves."""
    return jnp.maximum(MOVE_INTERVAL - ramp // 2, 2)
