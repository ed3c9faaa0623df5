"""BabyAI's missions: the actions they ask for, their wording, and the test for success.

A mission has up to four actions, and each action names one or two objects by a description. At the
start of an episode, the objects that fit a description are marked by a bit of their cells. Their
places are other bits of the cells, which are updated only when the agent drops something, as in
BabyAI.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid.layout import lookup, widen
from jaxenvs.envs.minigrid.level import DROP, PICK_UP, STEPS_X, STEPS_Y, TOGGLE, MiniGridState
from jaxenvs.envs.minigrid.room_grid import Thing

ANY = -1  # kind or color
NOTHING, GO_TO, OPEN, PICK_UP_OBJECT, PUT_NEXT = range(5)
ANYWHERE, ON_THE_LEFT, ON_THE_RIGHT, IN_FRONT, BEHIND = range(5)
FIRST, AND, THEN, AFTER = range(4)  # how an action is joined to the one before
MARKS, PLACES = 16, 24  # the first bits of a cell's marks and places


class Description(NamedTuple):
    """Objects of a kind, a color, and a location, relative to the agent at the start."""

    kind: Any = ANY
    color: Any = ANY
    location: Any = ANYWHERE


class Instruction(NamedTuple):
    """K actions in the order in which the mission names them. Fields are lists or arrays."""

    verb: Any  # int32[K], `GO_TO` …, or `NOTHING` for an action that is missing
    object: Any  # Description of int32[K]
    target: Any  # Description of int32[K], for `PUT_NEXT`
    join: Any  # int32[K], `FIRST`, `AND` …
    stage: Any  # int32[K], 1 for actions that come after those of stage 0


@chex.dataclass(frozen=True)
class Progress:
    """The actions of a mission and which of them are done."""

    verb: jax.Array  # int32[K]
    stage: jax.Array  # int32[K]
    done: jax.Array  # bool[K]


def describe(thing: Thing) -> Description:
    """Returns the description of an object by its kind and color."""
    return Description(thing.kind, thing.color)


def action(verb: Any, what: Description, target: Description | None = None) -> Instruction:
    """Returns an instruction with one action."""
    target = what if target is None else target
    return _stack([(verb, what, target, FIRST, 0)])


def go_to(what: Description) -> Instruction:
    """Returns "go to ..."."""
    return action(GO_TO, what)


def open_door(what: Description) -> Instruction:
    """Returns "open ..."."""
    return action(OPEN, what)


def pick_up(what: Description) -> Instruction:
    """Returns "pick up ..."."""
    return action(PICK_UP_OBJECT, what)


def put_next(what: Description, target: Description) -> Instruction:
    """Returns "put ... next to ..."."""
    return action(PUT_NEXT, what, target)


def both(first: Instruction, second: Instruction) -> Instruction:
    """Returns "... and ..."."""
    return _join(first, second, AND, (0, 0))


def before(first: Instruction, second: Instruction) -> Instruction:
    """Returns "..., then ..."."""
    return _join(first, second, THEN, (0, 1))


def after(second: Instruction, first: Instruction) -> Instruction:
    """Returns "... after you ..."."""
    return _join(second, first, AFTER, (1, 0))


def _join(left: Instruction, right: Instruction, join: int, stages: tuple[int, int]) -> Instruction:
    right = right._replace(join=jnp.where(np.arange(len(right.join)) == 0, join, right.join))
    left, right = (
        part._replace(stage=part.stage + stage)
        for part, stage in zip((left, right), stages, strict=True)
    )
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), left, right)


def _stack(rows: list[Any]) -> Instruction:
    rows = [jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.int32), row) for row in rows]
    return Instruction(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows))


def select(condition: Any, true: Instruction, false: Instruction) -> Instruction:
    """Returns one of two instructions with equally many actions."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), true, false)


def pad(instruction: Instruction, number: int) -> Instruction:
    """Appends missing actions, up to `number`."""
    width = number - len(instruction.verb)
    return jax.tree.map(lambda leaf: jnp.pad(leaf, (0, width)), instruction)


def locations(x: jax.Array, y: jax.Array, direction: jax.Array, room: jax.Array) -> jax.Array:
    """Returns the region of each location, `ANYWHERE` first: bool[5, H, W].

    Args:
        x: column of the agent.
        y: row of the agent.
        direction: where the agent looks.
        room: the region of its room, to which the other locations are limited.
    """
    rows, columns = np.indices(room.shape, np.int32, sparse=True)
    dx, dy = lookup(STEPS_X, direction), lookup(STEPS_Y, direction)
    ahead = (columns - x) * dx + (rows - y) * dy
    right = (rows - y) * dx - (columns - x) * dy
    sides = jnp.stack([right < 0, right > 0, ahead > 0, ahead < 0])
    return jnp.concatenate([jnp.ones((1, *room.shape), bool), sides & room[None]])


def matches(what: Description, grid: jax.Array, regions: jax.Array) -> jax.Array:
    """Returns the regions of the objects that fit the descriptions: bool[K, H, W].

    Args:
        what: K descriptions, with fields int32[K].
        grid: the grid.
        regions: from `locations`.
    """
    is_door = cells.is_in(cells.IS_DOOR, grid)
    grid_kind = jnp.where(is_door, cells.OPEN_DOOR, cells.kind(grid).astype(jnp.int32))
    grid_color = cells.color(grid).astype(jnp.int32)

    def fit(what: Description) -> jax.Array:
        has_kind = jnp.where(what.kind == ANY, grid_kind != cells.EMPTY, grid_kind == what.kind)
        has_color = (what.color == ANY) | (grid_color == what.color)
        return has_kind & has_color & lookup(regions, what.location)

    return jax.vmap(fit)(what)


def is_possible(verb: jax.Array, found: jax.Array) -> jax.Array:
    """Returns whether no object is to be put next to itself, or is in place already: bool[].

    Args:
        verb: int32[K].
        found: the objects and targets of the actions, bool[K, 2, H, W].
    """
    moved, targets = found[:, 0], found[:, 1]
    near = jax.vmap(widen)(targets)
    return ~((verb == PUT_NEXT) & (moved & near).any((1, 2))).any()


def mark(grid: jax.Array, found: jax.Array) -> jax.Array:
    """Returns the grid with marks and places of the objects in `found`, bool[K, 2, H, W]."""
    flags = found.reshape(-1, *grid.shape).astype(jnp.uint32)
    bits = np.arange(len(flags), dtype=np.uint32)[:, None, None]
    marks = jnp.sum(flags << bits, axis=0, dtype=jnp.uint32)
    return grid | marks << MARKS | marks << PLACES


def update_places(grid: jax.Array) -> jax.Array:
    """Returns the grid with the current places of the marked objects."""
    marks = grid >> MARKS & np.uint32(0xFF)
    return grid & np.uint32(cells.MOVES_ALONG) | marks << PLACES


def update_progress(
    progress: Progress,
    before: MiniGridState,
    action: jax.Array,
    after: MiniGridState,
    front: tuple[jax.Array, jax.Array],
    *,
    strict: tuple[bool, ...],
    puts: bool,
) -> tuple[Progress, jax.Array, jax.Array]:
    """Returns the progress after a step, whether all actions are done, and whether one failed.

    Args:
        progress: the progress before the step.
        before: the state before the step.
        action: int32[].
        after: the state after the step, with the new places.
        front: column and row of the cell in front of the agent after the step.
        strict: for each action, whether opening or picking up a wrong object is a failure.
        puts: whether there are actions `PUT_NEXT`.
    """
    x, y = front
    cell = after.grid[y, x]
    near = jnp.uint32(0)
    if puts:
        near = (after.grid[y, x + 1] | after.grid[y, x - 1]) | (
            after.grid[y + 1, x] | after.grid[y - 1, x]
        )
    has_object = cells.kind(after.carrying) != cells.EMPTY
    had_object = cells.kind(before.carrying) != cells.EMPTY
    is_door = cells.is_in(cells.IS_DOOR, cell)
    bits = np.arange(len(progress.verb), dtype=np.uint32) * np.uint32(2)
    verb = progress.verb

    def verify(had_object: jax.Array) -> jax.Array:
        """Returns which actions this step fulfills, given whether the agent carried something."""
        opened = (action == TOGGLE) & (cells.kind(cell) == cells.OPEN_DOOR)
        opened = opened & _has(cell, bits + MARKS)
        picked = (action == PICK_UP) & ~had_object & _has(after.carrying, bits + MARKS)
        put = (action == DROP) & had_object & ~has_object
        put = put & _has(before.carrying, bits + MARKS) & _has(near, bits + (PLACES + 1))
        return (
            ((verb == GO_TO) & _has(cell, bits + PLACES))
            | ((verb == OPEN) & opened)
            | ((verb == PICK_UP_OBJECT) & picked)
            | ((verb == PUT_NEXT) & put)
        )

    wrong = (verb == OPEN) & (action == TOGGLE) & is_door
    wrong |= (verb == PICK_UP_OBJECT) & (action == PICK_UP) & has_object
    wrong &= np.array(strict)
    # An action ignores what the agent carried before it became due.
    is_first = progress.stage == 0
    started = jnp.where(before.step_count == 0, False, had_object)
    done = progress.done | (is_first & verify(started))
    failed = (is_first & ~done & wrong).any()
    was_ready = (progress.done | ~is_first).all()
    is_ready = (done | ~is_first).all()
    later = is_ready & ~is_first
    done = done | (later & verify(had_object & was_ready))
    failed = failed | (later & ~done & wrong).any()
    progress = progress.replace(done=done)  # pyright: ignore[reportAttributeAccessIssue]
    return progress, done.all(), failed


def _has(cell: jax.Array, bits: np.ndarray) -> jax.Array:
    return (cell >> bits.astype(np.uint32)) & 1 == 1


# Words.


def _table(*phrases: tuple[str, ...]) -> np.ndarray:
    table = [[missions.WORDS.index(word) for word in phrase] for phrase in phrases]
    return np.array(table, np.int32)


_VERBS = _table(("", ""), ("go", "to"), ("open", ""), ("pick", "up"), ("put", ""))
_LOCATIONS = _table(  # after the article, the color, and the kind
    ("", "", "", "", "", "", ""),
    ("", "", "", "on", "your", "left", ""),
    ("", "", "", "on", "your", "right", ""),
    ("", "", "", "in", "front", "of", "you"),
    ("", "", "", "behind", "you", "", ""),
)
_JOINS = _table(("", ""), ("and", ""), (",", "then"), ("after", "you"))
_NEXT_TO = _table(("", ""), ("next", "to"))


def word_count(verbs: tuple[int, ...], number: int, *, has_locations: bool) -> int:
    """Returns the largest number of words of a mission with `number` actions."""
    phrase = 7 if has_locations else 3
    longest = max(
        int((_VERBS[verb] > 0).sum()) + (2 * phrase + 2 if verb == PUT_NEXT else phrase)
        for verb in verbs
    )
    # Four actions are two pairs, each joined by "and"; two may be joined by two words.
    return number * longest + {1: 0, 2: 2, 4: 4}[number]


def to_words(instruction: Instruction, found: jax.Array, length: int) -> jax.Array:
    """Returns the numbers of the mission's words: uint8[length].

    Args:
        instruction: the actions.
        found: the objects and targets of the actions, bool[K, 2, H, W].
        length: the largest number of words.
    """
    verb = instruction.verb
    exists, puts = verb != NOTHING, verb == PUT_NEXT
    is_many = found.sum((2, 3), dtype=jnp.int32) > 1
    columns = [
        lookup(_JOINS, jnp.where(exists, instruction.join, 0)),
        lookup(_VERBS, verb),
        _phrase(instruction.object, is_many[:, 0], exists),
        lookup(_NEXT_TO, puts),
        _phrase(instruction.target, is_many[:, 1], puts),
    ]
    words = jnp.concatenate(columns, axis=1).reshape(-1)
    place = jnp.cumsum(words > 0, dtype=jnp.int32) - 1
    here = (place[:, None] == np.arange(length, dtype=np.int32)[None]) & (words > 0)[:, None]
    return jnp.sum(jnp.where(here, words[:, None], 0), axis=0, dtype=jnp.int32).astype(jnp.uint8)


def _phrase(what: Description, is_many: jax.Array, exists: jax.Array) -> jax.Array:
    """Returns the words for descriptions: int32[K, 7], 0 for none."""
    article = jnp.where(is_many, missions.WORDS.index("a"), missions.WORDS.index("the"))
    color = jnp.where(what.color == ANY, 0, missions.of_color(what.color))
    kind = jnp.where(what.kind == ANY, missions.WORDS.index("object"), missions.of_kind(what.kind))
    words = lookup(_LOCATIONS, what.location)
    # Selections, because XLA needs a kernel for each part that is concatenated.
    for i, word in enumerate((article, color, kind)):
        here = np.arange(words.shape[1], dtype=np.int32) == i
        words = jnp.where(here[None], word[:, None], words)
    return jnp.where(exists[:, None], words, 0)
