"""BabyAI's levels with random instructions."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import Description, Instruction
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel
from jaxenvs.envs.minigrid.layout import RandomStream, divide, lookup
from jaxenvs.envs.minigrid.room_grid import Rooms
from jaxenvs.errors import ParameterError

VERBS = {
    "goto": instructions.GO_TO,
    "open": instructions.OPEN,
    "pickup": instructions.PICK_UP_OBJECT,
    "putnext": instructions.PUT_NEXT,
}
STRUCTURES = ("action", "and", "seq")
KINDS = np.array([cells.OPEN_DOOR, cells.KEY, cells.BALL, cells.BOX], np.int32)
# Which of these kinds the objects of an action may have.
_KINDS_OF_VERB = np.array([[1] * 4, [1] * 4, [1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1]], bool)


class LevelGen(BabyAILevel):
    """Do what a random instruction says in a maze of rooms.

    Start: rooms with doors, all connected, one of them locked with a probability of
        `locked_room_prob`, and `num_dists` objects; descriptions of objects that exist
    Time limit: room_size**2 steps for each room and for each object that the mission names; twice
        for an object that must be moved

    With `unblocking`, objects may block the way, and missions do not name the key of a locked door.
    Without `implicit_unlock`, they do not name objects that are only in the locked room.
    """

    num_dists: int = struct.static(18)  # number of objects
    locked_room_prob: float = 0.5  # probability of a locked room
    locations: bool = struct.static(True)  # whether descriptions have locations
    unblocking: bool = struct.static(True)  # whether objects may block the way
    implicit_unlock: bool = struct.static(
        True
    )  # whether missions may be about the locked room only
    action_kinds: tuple[str, ...] = struct.static(tuple(VERBS))  # kinds of actions
    instr_kinds: tuple[str, ...] = struct.static(STRUCTURES)  # kinds of instructions

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("action_kinds", tuple(VERBS)), ("instr_kinds", STRUCTURES)):
            given = getattr(self, name)
            if not given or not set(given) <= set(known):
                raise ParameterError(
                    f"{type(self).__name__} got {name}={given!r}; expected some of {known}."
                )

    @property
    def verbs(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(VERBS[kind] for kind in self.action_kinds)

    @property
    def num_actions(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 4 if "seq" in self.instr_kinds else 2 if "and" in self.instr_kinds else 1

    @property
    def has_locations(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.locations

    def generate_mission(self, rooms: Rooms) -> Instruction:
        locked = jnp.zeros_like(rooms.is_locked)
        if rooms.edges.number:
            locked = self._lock_room(rooms)
        rooms.connect_all()
        rooms.add_distractors(number=self.num_dists, all_unique=False)
        rooms.place_agent(rooms=~locked)
        if not self.unblocking:
            rooms.ok &= rooms.all_reachable()
        present = self._find_objects(rooms, locked)
        instruction = self._draw_instruction(rooms, present)
        if self.unblocking:
            rooms.ok &= ~_needs_door_key(rooms.grid, instruction)
        return instruction

    def _lock_room(self, rooms: Rooms) -> jax.Array:
        """Locks a random room, or none, and adds its key. Returns a mask of locked rooms."""
        without = copy.copy(rooms)
        around, number = rooms.edges.around, len(rooms.edges.around)
        room, side = divide(rooms.rng.choose(around.reshape(-1) >= 0), 4, limit=4 * number)
        j, i = divide(room, self.num_cols, limit=number)
        door = rooms.add_door(i, j, side, locked=True)
        key_room = rooms.rng.choose(rooms.all_but(i, j))
        row, column = divide(key_room, self.num_cols, limit=number)
        rooms.add_object(column, row, cells.KEY, door.color)
        is_locked = rooms.rng.uniform() < self.locked_room_prob
        rooms.select(is_locked, without)
        return ~rooms.all_but(i, j) & is_locked

    def _find_objects(self, rooms: Rooms, locked: jax.Array) -> jax.Array:
        """Returns which descriptions fit an object: bool[kind, any color or color, location]."""
        grid = rooms.grid
        color = np.arange(len(cells.COLORS), dtype=np.int32)
        pairs = Description(
            KINDS.repeat(len(color)),
            np.tile(color, len(KINDS)),
            np.zeros(len(KINDS) * len(color), np.int32),
        )
        objects = instructions.matches(pairs, grid, jnp.ones((1, *grid.shape), bool))
        regions = self.locations_of(rooms)
        if not self.implicit_unlock and rooms.edges.number:
            room = jax.lax.argmax(locked, 0, jnp.int32)
            row, column = divide(room, self.num_cols, limit=len(locked))
            inside = rooms.room(column, row) & locked.any()
            regions = regions & ~inside[None]
        if not self.locations:
            regions = regions[:1]
        # A product of matrices counts the objects of each kind and color in each region.
        flat = objects.reshape(len(KINDS) * len(color), -1).astype(jnp.float32)
        counts = flat @ regions.reshape(len(regions), -1).astype(jnp.float32).T
        present = counts.reshape(len(KINDS), len(color), -1) > 0
        return jnp.concatenate([present.any(1, keepdims=True), present], axis=1)

    def _draw_instruction(self, rooms: Rooms, present: jax.Array) -> Instruction:
        rng, number = rooms.rng, self.num_actions

        def draw(words: jax.Array) -> tuple[jax.Array, Description, Description]:
            index = RandomStream(words[:1]).integer(0, len(self.verbs))
            verb = lookup(np.array(self.verbs, np.int32), index)
            allowed = present & lookup(_KINDS_OF_VERB, verb)[:, None, None]
            what = jax.vmap(self._draw_description)(words[1:], jnp.stack([allowed, present]))
            return verb, *(Description(*fields) for fields in zip(*what, strict=True))  # pyright: ignore[reportReturnType]

        verb, what, target = jax.vmap(draw)(rng.next_words(3 * number).reshape(number, 3))
        zeros = jnp.zeros(number, jnp.int32)
        instruction = Instruction(verb, what, target, zeros, zeros)
        if number == 1:
            return instruction
        structures = [STRUCTURES.index(kind) for kind in self.instr_kinds]
        structure = lookup(np.array(structures, np.int32), rng.integer(0, len(structures)))
        is_and, is_seq = structure == 1, structure == 2
        is_pair = jnp.where(is_seq, rng.boolean(), is_and)
        exists = [jnp.bool_(True), is_pair]
        joins: list[Any] = [instructions.FIRST, instructions.AND]
        stages: list[Any] = [0, 0]
        if number == 4:
            is_before = rng.boolean()
            exists += [is_seq, is_seq & rng.boolean()]
            joins += [jnp.where(is_before, instructions.THEN, instructions.AFTER), instructions.AND]
            first, second = (jnp.where(is_seq & x, 1, 0) for x in (~is_before, is_before))
            stages = [first, first, second, second]
        exists = jnp.stack(exists)
        return instruction._replace(
            verb=jnp.where(exists, instruction.verb, instructions.NOTHING),
            join=jnp.stack([jnp.asarray(join, jnp.int32) for join in joins]),
            stage=jnp.stack([jnp.asarray(stage, jnp.int32) for stage in stages]),
        )

    def _draw_description(self, word: jax.Array, present: jax.Array) -> Description:
        """Draws a description that fits an object.

        One in seven has no color. With locations, half of them have none, so `ANYWHERE` is four
        times as likely as each of the others.
        """
        if self.locations:
            slots = np.array([0, 0, 0, 0, 1, 2, 3, 4], np.int32)
            present = present[:, :, slots]
        else:
            slots = np.zeros(1, np.int32)
        index = RandomStream(word[None]).choose(present.reshape(-1))
        pair, slot = divide(index, len(slots), limit=present.size)
        kind, color = divide(pair, len(cells.COLORS) + 1, limit=present.size)
        return Description(lookup(KINDS, kind), color - 1, lookup(slots, slot))


def _needs_door_key(grid: jax.Array, instruction: Instruction) -> jax.Array:
    """Returns whether an action names a key with the color of a locked door."""
    color = np.arange(len(cells.COLORS), dtype=np.uint32)
    locked = cells.kind(grid) == cells.LOCKED_DOOR
    is_locked = (locked[None] & (cells.color(grid)[None] == color[:, None, None])).any((1, 2))
    verb = instruction.verb
    about = [(instruction.object, verb != instructions.NOTHING)]
    about.append((instruction.target, verb == instructions.PUT_NEXT))
    found = jnp.bool_(False)
    for what, is_used in about:
        opens = (what.color != instructions.ANY) & is_locked[what.color]
        found |= (is_used & (what.kind == cells.KEY) & opens).any()
    return found
