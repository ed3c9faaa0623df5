"""The game of Seaquest."""

from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minatar._minatar import SIZE, MinAtar

OXYGEN = 200  # steps
MAX_DIVERS = 6
COOL_DOWN = 5  # steps between two shots of the player
ENEMY_COOL_DOWN = 11  # steps between two shots of an enemy
ENEMY_INTERVAL = 20  # steps between two enemies, at first
DIVER_INTERVAL = 30  # steps between two divers
MOVE_INTERVAL = 5  # steps that an enemy rests between two moves, at first
DIVER_STEPS = 6  # steps between two moves of a diver

# Boards are words, one for each row, in which bit i stands for column i.
_DEPTHS = np.arange(1, 9, dtype=np.int32)  # the rows of enemies and divers
_ROW = np.uint32(2**SIZE - 1)  # all columns


@chex.dataclass(frozen=True)
class SeaquestDraws:
    """What chance decides in a step."""

    sticks: jax.Array  # bool[], whether the last action is executed again
    enemy_from_left: jax.Array  # bool[]
    enemy_is_sub: jax.Array  # bool[]
    enemy_row: jax.Array  # int32[], 1 to 8
    diver_from_left: jax.Array  # bool[]
    diver_row: jax.Array  # int32[], 1 to 8


@chex.dataclass(frozen=True)
class Enemies:
    """Boards of enemies, one for each number of steps until they move.

    Bits 10 t to 10 t + 9 of `soon` are the board of those that rest for t more steps, and those of
    `late` the board of those that rest for t + 3.
    """

    soon: jax.Array  # uint32[..., 8]
    late: jax.Array  # uint32[..., 8]


@chex.dataclass(frozen=True)
class SeaquestState:
    """The player, the enemies, the divers, what they shot, and the timers."""

    row: jax.Array  # int32[], of the player
    column: jax.Array  # int32[]
    faces_right: jax.Array  # bool[]
    rescued: jax.Array  # int32[], divers on board; one less than none after a full load is landed
    oxygen: jax.Array  # int32[]
    surfaced: jax.Array  # bool[], since the player surfaced, it has not dived
    ramp: jax.Array  # int32[], how often the game became more difficult
    shots: jax.Array  # uint32[9], the player's, in rows 0 to 8: ten bits of those that fly left,
    # ten bits of those that fly right
    bullets: jax.Array  # uint32[8], the enemies', in rows 1 to 8
    fish: Enemies  # uint32[8]
    subs: Enemies  # uint32[4, 8], a sub's bits in the four boards are a number from 1 to 11: it
    # shoots when `clock` is one less
    heads_right: jax.Array  # bool[8], whether the enemies of a row do
    diver_rows: jax.Array  # int32[2], of the last diver and of the one before, 0 if it is gone
    diver_heads_right: jax.Array  # bool[2]
    shot_timer: jax.Array  # int32[], steps until the player can shoot
    enemy_timer: jax.Array  # int32[], steps until an enemy appears
    diver_timer: jax.Array  # int32[], steps until a diver appears
    clock: jax.Array  # int32[], the number of steps modulo 11
    last_action: jax.Array  # int32[], the last executed action


class Seaquest(MinAtar[SeaquestState]):
    """Rescue divers with a submarine, shoot enemies, and surface before the oxygen is used up."""

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
        is_there = _cells(state.fish) | _cells(_any_sub(state.subs))
        meets = (is_there != 0) & (state.heads_right != draws.enemy_from_left)
        appears = is_due & ~meets & (draws.enemy_row == _DEPTHS)
        edge = jnp.where(draws.enemy_from_left, np.uint32(1), np.uint32(1 << SIZE - 1))
        cells = _once(jnp.where(appears, edge, 0))
        heads_right = _once(jnp.where(appears, draws.enemy_from_left, state.heads_right))
        shoots = jnp.where(state.clock == 0, ENEMY_COOL_DOWN, state.clock)  # ten steps from now
        digits = jnp.where(draws.enemy_is_sub, _digits(shoots), 0)
        rest = _rest(state)
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
        subs_hit, flying_on = _hit(_any_sub(state.subs), flying_on)
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
        rest, right = _rest(state), state.heads_right
        any_sub = _any_sub(state.subs)
        shooting = _shooting(state.subs, state.clock)
        danger = _cells(state.fish) | _cells(any_sub)
        moved_fish, fish = _move(state.fish, right)
        moved_subs, subs = _move(state.subs, right[None])
        moved_any, _ = _move(any_sub, right)
        moved_shooting, shooting = _move(shooting, right)
        moved = moved_fish | moved_any
        hits = _once(moved & _both(state.shots[1:]))
        fish = _add(fish, moved_fish & ~hits, rest)
        subs = _add(subs, moved_subs & ~hits[None], rest)
        left = moved_shooting | _cells(shooting)
        bullets = _once(state.bullets | jnp.where(right, left << SIZE, left))
        flown = _fly(bullets)
        danger |= moved | _both(bullets) | _both(flown)
        is_there = _cells(fish) | _cells(_any_sub(subs))
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
            clock=jnp.where(state.clock == ENEMY_COOL_DOWN - 1, 0, state.clock + 1),
        )
        if self.difficulty_ramping:
            ramp = jnp.minimum(state.ramp + lands.astype(jnp.int32), ENEMY_INTERVAL - 1)
            state = state.replace(ramp=ramp)
        return state, bonus, dies

    def _board(self, state: SeaquestState) -> jax.Array:
        fish, subs = _cells(state.fish), _cells(_any_sub(state.subs))
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
        boards = {
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
        shown = jnp.zeros((SIZE, SIZE * SIZE), jnp.uint32)
        place = np.arange(SIZE * SIZE, dtype=np.uint32)
        channel, column = place % SIZE, place // SIZE
        for k in range(4):
            words = jnp.zeros(SIZE, jnp.uint32)
            for i, name in enumerate(self.channels[3 * k : 3 * k + 3]):
                words |= boards[name] << (SIZE * i)
            words = _once(words)
            shown |= words[:, None] & np.where(channel // 3 == k, 1 << (channel % 3 * SIZE + column), 0).astype(np.uint32)[None]
        return _once(shown != 0).reshape(-1)


def _once(x):
    return jax.lax.optimization_barrier(x)

def _bit(i):
    return jnp.uint32(1) << i.astype(jnp.uint32)

def _rest(state):
    return jnp.maximum(MOVE_INTERVAL - state.ramp // 2, 2)

def _shooting(subs, clock):
    digits = _digits(clock + 1)
    soon, late = _any_sub(subs).soon, _any_sub(subs).late
    for i in range(4):
        soon &= ~(subs.soon[i] ^ (0-digits[i]))
        late &= ~(subs.late[i] ^ (0-digits[i]))
    return Enemies(soon=soon, late=late)

def _stop(shots, hits):
    hits = jnp.pad(hits, (1, 0))
    return shots & ~(hits | hits << SIZE)

def _digits(number: jax.Array) -> jax.Array:
    """Returns the four lowest bits of a number, uint32[4]."""
    return number.astype(jnp.uint32) >> np.arange(4, dtype=np.uint32) & 1


def _any_sub(subs: Enemies) -> Enemies:
    """Returns where there is a sub, uint32[8]."""
    merge = lambda x: x[0] | x[1] | x[2] | x[3]
    return Enemies(soon=merge(subs.soon), late=merge(subs.late))


def _cells(enemies: Enemies) -> jax.Array:
    """Returns the cells of enemies."""
    x = enemies.soon | enemies.late
    return (x | x >> SIZE | x >> 2 * SIZE) & _ROW


def _add(enemies: Enemies, cells: jax.Array, rest: jax.Array) -> Enemies:
    place = cells << (SIZE * (rest % 3)).astype(jnp.uint32)
    return Enemies(
        soon=enemies.soon | jnp.where(rest < 3, place, 0),
        late=enemies.late | jnp.where(rest < 3, 0, place),
    )


def _move(enemies: Enemies, heads_right: jax.Array) -> tuple[jax.Array, Enemies]:
    movers = enemies.soon & _ROW
    moved = jnp.where(heads_right, movers << 1 & _ROW, movers >> 1)
    return moved, Enemies(
        soon=enemies.soon >> SIZE | (enemies.late & _ROW) << 2 * SIZE, late=enemies.late >> SIZE
    )


def _hit(enemies: Enemies, shots: jax.Array) -> tuple[Enemies, jax.Array]:
    found = []
    for word in (enemies.soon, enemies.late):
        hits = jnp.zeros_like(word)
        for shift in (0, SIZE, 2 * SIZE):
            hit = word >> shift & shots
            hits |= hit << shift
            shots ^= hit
        found.append(hits)
    return Enemies(soon=found[0], late=found[1]), shots


def _fly(bullets: jax.Array) -> jax.Array:
    left, right = bullets & _ROW, bullets >> SIZE
    return left >> 1 | (right << 1 & _ROW) << SIZE


def _both(bullets: jax.Array) -> jax.Array:
    return (bullets | bullets >> SIZE) & _ROW
