"""The game of Seaquest.

MinAtar keeps objects in lists, and their order decides which of two objects in a cell is hit. Here
objects are bits of boards, without an order. Both agree in every state that a game can reach:

- Enemies of a row head the same way, because one appears only if it heads as the others do. One
  that appears later also enters each cell later: all rest equally long, except that they rest for
  one step less after each of three surfacings. Before the third, enemies appear at least 15 steps
  apart, and of this lead at least 6 steps remain, whenever the three are. So no two enemies of a
  row share cell and timer, the oldest in a cell is the next to move, and at most one of them enters
  a cell in a step. Thus it does not matter in which order they move.
- The player is not faster than a shot and rests between shots, so no two shots share a cell after
  a step. While they move, a shot may be where an older one has not left yet. Where it hits an enemy
  there, Python's `remove`, which takes the first equal object, takes the older one, and the other
  moves once more. But shots and enemies share a cell before shots move only where the enemy has
  just appeared at the edge. The older shot would leave the board there, and the other one does.
- Bullets of enemies may coincide. Then they fly on together, and only the player is hit by them.
- A diver appears every 30 steps, stays for 60, and moves every 6. So there are two at most, 5 moves
  apart, and the timer until the next diver tells where they are.
"""

from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minatar._minatar import MinAtar
from jaxenvs.envs.minatar._packed import SIZE

OXYGEN = 200  # steps until a full tank is empty
MAX_DIVERS = 6  # on board
COOL_DOWN = 5  # steps between two shots of the player
SUB_COOL_DOWN = 11  # steps between two bullets of an enemy
ENEMY_INTERVAL = 20  # steps between two enemies, at first
MOVE_INTERVAL = 5  # steps that enemies rest between two moves, at first
DIVER_INTERVAL = 30  # steps between two divers
DIVER_STEPS = 6  # steps between two moves of a diver

# A board has a word for each row, and a bit for each column.
_DEPTHS = np.arange(1, 9, dtype=np.int32)  # the rows of enemies and divers
_ROW = np.uint32(2**SIZE - 1)  # the bits of all columns


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
class Enemies:
    """Six boards of enemies in rows 1 to 8, one for each number of steps until they move.

    The ten bits from 10 * i on are those that move after i steps of rest in `soon`, and those that
    move after i + 3 in `late`.
    """

    soon: jax.Array  # uint32[..., 8]
    late: jax.Array  # uint32[..., 8]


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
    shots: jax.Array  # uint32[9], of the player in rows 0 to 8: two boards in a word, first of
    # those that fly left, then of those that fly right
    bullets: jax.Array  # uint32[8], of enemies in rows 1 to 8, two boards as for shots
    fish: Enemies  # uint32[8]
    subs: Enemies  # uint32[4, 8], a sub's bits in four boards are the digits of a number from 1 to
    # 11: it fires when `clock` is one less
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

    def start(self, key: chex.PRNGKey) -> SeaquestState:
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

    def play(
        self, state: SeaquestState, action: jax.Array, draws: SeaquestDraws
    ) -> tuple[SeaquestState, jax.Array, jax.Array]:
        state = self._appear(state, draws)
        state = self._act(state, action)
        state, hits = self._shoot(state)
        state = self._rescue(state)
        state, more_hits, terminated = self._attack(state)
        state, bonus, too_late = self._breathe(state)
        hits = jax.lax.population_count(hits) + jax.lax.population_count(more_hits)
        reward = jnp.sum(hits, dtype=jnp.uint32).astype(jnp.float32) + bonus.astype(jnp.float32)
        return state, reward, terminated | too_late

    def _appear(self, state: Any, draws: SeaquestDraws) -> Any:
        """Lets an enemy and a diver appear at an edge when their time has come."""
        is_due = state.enemy_timer == 0
        is_there = _cells(state.fish) | _cells(_all_subs(state.subs))
        meets = (is_there != 0) & (state.heads_right != draws.enemy_from_left)
        appears = is_due & ~meets & (draws.enemy_row == _DEPTHS)
        edge = jnp.where(draws.enemy_from_left, np.uint32(1), np.uint32(1 << SIZE - 1))
        cells = _once(jnp.where(appears, edge, 0))
        heads_right = _once(jnp.where(appears, draws.enemy_from_left, state.heads_right))
        shoots = jnp.where(state.clock == 0, SUB_COOL_DOWN, state.clock)  # ten steps from now
        digits = jnp.where(draws.enemy_is_sub, _digits(shoots), 0)
        rest = _rest(state.ramp)
        fish = _add(state.fish, jnp.where(draws.enemy_is_sub, 0, cells), rest)
        subs = _add(state.subs, cells[None] * digits[:, None], rest)
        interval = jnp.maximum(ENEMY_INTERVAL - state.ramp, 1)

        is_diver_due = state.diver_timer == 0
        rows, right = state.diver_rows, state.diver_heads_right
        rows = jnp.where(is_diver_due, jnp.stack([draws.diver_row, rows[0]]), rows)
        right = jnp.where(is_diver_due, jnp.stack([draws.diver_from_left, right[0]]), right)
        return state.replace(
            fish=fish,
            subs=subs,
            heads_right=heads_right,
            enemy_timer=jnp.where(is_due, interval, state.enemy_timer),
            diver_rows=rows,
            diver_heads_right=right,
            diver_timer=jnp.where(is_diver_due, DIVER_INTERVAL, state.diver_timer),
        )

    def _act(self, state: Any, action: jax.Array) -> Any:
        """Moves the player or fires a shot."""
        left, right = self._is(action, "l"), self._is(action, "r")
        up, down = self._is(action, "u"), self._is(action, "d")
        fires = self._is(action, "f") & (state.shot_timer == 0)
        shot = _bit(state.column + jnp.where(state.faces_right, SIZE, 0))
        fired = fires & (state.row == np.arange(9, dtype=np.int32))
        return state.replace(
            column=jnp.clip(state.column + right.astype(jnp.int32) - left.astype(jnp.int32), 0, 9),
            row=jnp.clip(state.row + down.astype(jnp.int32) - up.astype(jnp.int32), 0, 8),
            faces_right=(state.faces_right | right) & ~left,
            shots=state.shots | jnp.where(fired, shot, 0),
            shot_timer=jnp.where(fires, COOL_DOWN, state.shot_timer),
        )

    def _shoot(self, state: Any) -> tuple[Any, jax.Array]:
        """Moves the player's shots, and returns which cells are hit."""
        shots = _fly(state.shots)
        flying = _both(shots[1:])
        fish_hit, flying_on = _hit(state.fish, flying)
        subs_hit, flying_on = _hit(_all_subs(state.subs), flying_on)
        fish_hit, subs_hit, flying_on = _once((fish_hit, subs_hit, flying_on))
        hits = flying ^ flying_on
        fish, subs = state.fish, state.subs
        return state.replace(
            shots=_stop(shots, hits),
            fish=Enemies(soon=fish.soon & ~fish_hit.soon, late=fish.late & ~fish_hit.late),
            subs=Enemies(
                soon=subs.soon & ~subs_hit.soon[None], late=subs.late & ~subs_hit.late[None]
            ),
        ), hits

    def _rescue(self, state: Any) -> Any:
        """Moves the divers, and takes on board those that the player meets."""
        rescued, rows, rights = state.rescued, [], []
        for i in range(2):
            row, right = state.diver_rows[i], state.diver_heads_right[i]
            waits = (row == state.row) & (state.row > 0)
            for timer in (state.diver_timer, state.diver_timer - 1):
                moves = 5 * i + (DIVER_INTERVAL - timer) // DIVER_STEPS
                column = jnp.where(right, moves, SIZE - 1 - moves)
                boards = waits & (column == state.column) & (rescued < MAX_DIVERS)
                rescued += boards.astype(jnp.int32)
                row = jnp.where(boards | (moves == SIZE), 0, row)
                waits &= ~boards
            rows.append(row)
            rights.append(right & (row > 0))
        return state.replace(
            rescued=rescued, diver_rows=jnp.stack(rows), diver_heads_right=jnp.stack(rights)
        )

    def _attack(self, state: Any) -> tuple[Any, jax.Array, jax.Array]:
        """Moves the enemies, which shoot, and their bullets.

        Returns which cells are hit, and whether the player is.
        """
        player = jnp.where(state.row == _DEPTHS, _bit(state.column), 0)
        rest, right = _rest(state.ramp), state.heads_right
        all_subs = _all_subs(state.subs)
        firing = _firing_subs(state.subs, state.clock)
        danger = _cells(state.fish) | _cells(all_subs)
        moved_fish, fish = _move(state.fish, right)
        moved_subs, subs = _move(state.subs, right[None])
        moved_all, _ = _move(all_subs, right)
        moved_firing, firing = _move(firing, right)
        moved = moved_fish | moved_all
        hits = _once(moved & _both(state.shots[1:]))
        fish = _add(fish, moved_fish & ~hits, rest)
        subs = _add(subs, moved_subs & ~hits[None], rest)
        left = moved_firing | _cells(firing)
        bullets = _once(state.bullets | jnp.where(right, left << SIZE, left))
        flown = _fly(bullets)
        danger |= moved | _both(bullets) | _both(flown)
        is_there = _cells(fish) | _cells(_all_subs(subs))
        return (
            state.replace(
                fish=fish,
                subs=subs,
                shots=_stop(state.shots, hits),
                bullets=flown,
                heads_right=right & (is_there != 0),
            ),
            hits,
            jnp.any((danger & player) != 0),
        )

    def _breathe(self, state: Any) -> tuple[Any, jax.Array, jax.Array]:
        """Uses oxygen or surfaces, and counts down.

        Returns the reward for a full load of divers, and whether the player dies.
        """
        at_surface = state.row == 0
        surfaces = at_surface & ~state.surfaced
        lands = surfaces & (state.rescued != 0)
        is_full = lands & (state.rescued == MAX_DIVERS)
        dies = (state.oxygen <= 0) | (surfaces & ~lands)
        bonus = jnp.where(is_full, state.oxygen * 10 // OXYGEN, 0)
        state = state.replace(
            rescued=jnp.where(is_full, 0, state.rescued) - lands.astype(jnp.int32),
            oxygen=jnp.where(lands, OXYGEN, state.oxygen - (~at_surface).astype(jnp.int32)),
            surfaced=at_surface & (state.surfaced | lands),
            shot_timer=jnp.maximum(state.shot_timer - 1, 0),
            enemy_timer=jnp.maximum(state.enemy_timer - 1, 0),
            diver_timer=jnp.maximum(state.diver_timer - 1, 0),
            clock=jnp.where(state.clock == SUB_COOL_DOWN - 1, 0, state.clock + 1),
        )
        if self.difficulty_ramping:
            ramp = jnp.minimum(state.ramp + lands.astype(jnp.int32), ENEMY_INTERVAL - 1)
            state = state.replace(ramp=ramp)
        return state, bonus, dies

    def boards(self, state: SeaquestState) -> dict[str, jax.Array]:
        fish, subs = _cells(state.fish), _cells(_all_subs(state.subs))
        divers = trail = jnp.zeros(8, jnp.uint32)
        for i in range(2):
            moves = 5 * i + (DIVER_INTERVAL - state.diver_timer) // DIVER_STEPS
            right = state.diver_heads_right[i]
            diver = _bit(jnp.where(right, moves, SIZE - 1 - moves))
            is_here = state.diver_rows[i] == _DEPTHS
            divers |= jnp.where(is_here, diver, 0)
            trail |= jnp.where(is_here, jnp.where(right, diver >> 1, diver << 1), 0)
        enemies = fish | subs
        trail |= jnp.where(state.heads_right, enemies >> 1, enemies << 1)
        back = state.column + jnp.where(state.faces_right, -1, 1)
        is_row = state.row == np.arange(SIZE, dtype=np.int32)
        is_bottom = np.arange(SIZE) == SIZE - 1
        air = _bit(jnp.maximum(state.oxygen, 0) * SIZE // OXYGEN) - 1
        rescued = jnp.maximum(state.rescued, 0)
        gauge = (_bit(rescued) - 1) << (SIZE - 1 - rescued).astype(jnp.uint32)
        return {
            "sub_front": jnp.where(is_row, _bit(state.column), 0),
            "sub_back": jnp.where(is_row, _bit(back), 0),
            "friendly_bullet": jnp.pad(_both(state.shots), (0, 1)),
            "trail": jnp.pad(trail & _ROW, 1),
            "enemy_bullet": jnp.pad(_both(state.bullets), 1),
            "enemy_fish": jnp.pad(fish, 1),
            "enemy_sub": jnp.pad(subs, 1),
            "oxygen_gauge": jnp.where(is_bottom, air, 0),
            "diver_gauge": jnp.where(is_bottom, gauge, 0),
            "diver": jnp.pad(divers, 1),
        }


def _once(values: Any) -> Any:
    """Returns `values`. A barrier, because XLA on CPU would compute them again at every use."""
    return jax.lax.optimization_barrier(values)


def _bit(column: jax.Array) -> jax.Array:
    return jnp.uint32(1) << column.astype(jnp.uint32)


def _digits(number: jax.Array) -> jax.Array:
    """Returns the four binary digits of a number, the lowest first: uint32[4]."""
    return number.astype(jnp.uint32) >> np.arange(4, dtype=np.uint32) & 1


# Shots and bullets.


def _fly(shots: jax.Array) -> jax.Array:
    """Moves shots by one column. Those beyond the edge are gone."""
    left, right = shots & _ROW, shots >> SIZE
    return left >> 1 | (right << 1 & _ROW) << SIZE


def _both(shots: jax.Array) -> jax.Array:
    """Returns the board of shots in both directions."""
    return (shots | shots >> SIZE) & _ROW


def _stop(shots: jax.Array, hits: jax.Array) -> jax.Array:
    """Removes the player's shots from the cells of `hits`, uint32[8]."""
    hits = jnp.pad(hits, (1, 0))
    return shots & ~(hits | hits << SIZE)


# Enemies.


def _rest(ramp: jax.Array) -> jax.Array:
    """Returns for how many steps enemies rest between two moves."""
    return jnp.maximum(MOVE_INTERVAL - ramp // 2, 2)


def _all_subs(subs: Enemies) -> Enemies:
    """Returns the boards of all subs, uint32[8], given those of the digits."""
    soon, late = subs.soon, subs.late
    return Enemies(
        soon=soon[0] | soon[1] | soon[2] | soon[3], late=late[0] | late[1] | late[2] | late[3]
    )  # pyright: ignore[reportCallIssue]


def _firing_subs(subs: Enemies, clock: jax.Array) -> Enemies:
    """Returns the boards of the subs that fire in this step, uint32[8]."""
    firing, digits = _all_subs(subs), _digits(clock + 1)
    soon, late = firing.soon, firing.late
    for i in range(4):
        soon &= jnp.where(digits[i] == 1, subs.soon[i], ~subs.soon[i])
        late &= jnp.where(digits[i] == 1, subs.late[i], ~subs.late[i])
    return Enemies(soon=soon, late=late)


def _cells(enemies: Enemies) -> jax.Array:
    """Returns the board of enemies with any timer."""
    cells = enemies.soon | enemies.late
    return (cells | cells >> SIZE | cells >> 2 * SIZE) & _ROW


def _add(enemies: Enemies, cells: jax.Array, rest: jax.Array) -> Enemies:
    """Adds enemies in these cells that rest for `rest` steps, 2 to 5."""
    cells = cells << (rest % 3 * SIZE).astype(jnp.uint32)
    return Enemies(
        soon=enemies.soon | jnp.where(rest < 3, cells, 0),
        late=enemies.late | jnp.where(rest < 3, 0, cells),
    )


def _move(enemies: Enemies, heads_right: jax.Array) -> tuple[jax.Array, Enemies]:
    """Returns the new cells of the enemies whose timer is over, and the others."""
    cells = enemies.soon & _ROW
    moved = jnp.where(heads_right, cells << 1 & _ROW, cells >> 1)
    soon = enemies.soon >> SIZE | (enemies.late & _ROW) << 2 * SIZE
    return moved, Enemies(soon=soon, late=enemies.late >> SIZE)


def _hit(enemies: Enemies, shots: jax.Array) -> tuple[Enemies, jax.Array]:
    """Returns which enemies are hit, in each cell the next to move, and which shots fly on."""
    halves = []
    for half in (enemies.soon, enemies.late):
        hits = jnp.zeros_like(half)
        for shift in (0, SIZE, 2 * SIZE):
            hit = half >> shift & shots
            hits |= hit << shift
            shots ^= hit
        halves.append(hits)
    return Enemies(soon=halves[0], late=halves[1]), shots
