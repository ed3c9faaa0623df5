"""Numbers that describe generated levels of MiniGrid, to compare their distributions.

A level is one of so many that whole levels cannot be counted. Each of the numbers has few values.
"""

import itertools
from typing import Any

import jax
import numpy as np

from jaxenvs.envs.minigrid import MiniGridState, cells
from jaxenvs.envs.minigrid.go_to_door import GoTo
from jaxenvs.envs.minigrid.level import STEPS_X, STEPS_Y
from jaxenvs.envs.minigrid.put_near import PutNearTask

SMALL = 150  # cells of a grid of which pairs are compared
MOST_PAIRS = 400


def parts_of_levels(
    ours: MiniGridState, theirs: MiniGridState, random: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns pairs of samples: each cell, two cells, and what `_describe` returns.

    Numbers that are the same in all levels of both are left out.
    """
    a, b = (np.asarray(states.grid).reshape(len(states.grid), -1) for states in (ours, theirs))
    pairs = [*zip(_describe(ours), _describe(theirs), strict=True), *zip(a.T, b.T, strict=True)]
    if a.shape[1] <= SMALL:
        varies = np.flatnonzero((a != a[0]).any(0) | (b != a[0]).any(0)).tolist()
        both = list(itertools.combinations(varies, 2))
        for k in random.permutation(len(both))[:MOST_PAIRS]:
            pairs.append((_join(*a[:, both[k]].T), _join(*b[:, both[k]].T)))
    return [(x, y) for x, y in pairs if (x != x[0]).any() or (y != x[0]).any()]


def _describe(states: MiniGridState) -> list[np.ndarray]:
    """Returns numbers for each of N levels, arrays [N] or [N, K]."""
    states = jax.tree.map(np.asarray, states)
    grid, each = states.grid.astype(np.int64), np.arange(len(states.grid))
    height, width = grid.shape[1:]
    kinds, colors = cells.kind(grid), cells.color(grid)
    position = states.y * width + states.x
    words, task = _columns(states.mission), _columns(states.task)
    found = [position, states.direction, _join(position, states.direction)]
    found += [*words, *task, *([np.stack([*words, *task], 1)] if words or task else [])]

    # What is around the agent and in front of it.
    wide = np.pad(kinds, ((0, 0), (1, 1), (1, 1)))
    found += [wide[each, states.y + j, states.x + i] for i in range(3) for j in range(3)]
    y, x = states.y + STEPS_Y[states.direction], states.x + STEPS_X[states.direction]
    found.append(wide[each, y + 1, x + 1])

    # How many objects of each kind and color there are, and where the first one of a kind is.
    flat, flat_colors = kinds.reshape(len(kinds), -1), colors.reshape(len(kinds), -1)
    places, said = [position], [word - 1 for word in words]  # words 1 to 6 are colors
    for kind in range(cells.LOCKED_DOOR + 1):
        is_kind = flat == kind
        found.append(is_kind.sum(1))
        if kind in (cells.UNSEEN, cells.EMPTY, cells.kind(cells.WALL)):
            continue
        found += [(is_kind & (flat_colors == color)).sum(1) for color in range(len(cells.COLORS))]
        exists, first = is_kind.any(1), is_kind.argmax(1)
        places.append(np.where(exists, first, -1))
        said.append(np.where(exists, flat_colors[each, first], -1))
    blocks = [
        np.where(place < 0, -1, place // width * 4 // height * 4 + place % width * 4 // width)
        for place in places
    ]
    found += [*places, *blocks]
    near = places if height * width <= 64 else blocks
    found += [_join(*pair) for pair in itertools.combinations(near, 2)]

    # Sizes and distances. As floats, they are compared by their order, which needs fewer samples.
    rows, columns = np.indices((height, width)).reshape(2, -1)
    for is_kind in (flat == cells.kind(cells.WALL), flat == cells.CLOSED_DOOR):
        number = np.maximum(is_kind.sum(1), 1)
        found += [(is_kind * axis).sum(1) / number for axis in (rows, columns)]
        found += [(is_kind * axis).max(1).astype(float) for axis in (rows, columns)]
        found.append(is_kind.sum(1).astype(float))
    for place in places[1:]:
        distance = abs(place // width - states.y) + abs(place % width - states.x)
        found.append(np.where(place < 0, -1.0, distance))

    # Which colors are equal: of words, of first objects, in boxes, and of the task's object.
    inside = grid.reshape(len(grid), -1) >> 8
    said.append(np.where((inside > 0).any(1), cells.color(inside.max(1)), -1))
    if isinstance(states.task, GoTo | PutNearTask):
        said.append(colors[each, states.task.y, states.task.x])
        found.append(kinds[each, states.task.y, states.task.x])
    return found + said + [a == b for a, b in itertools.combinations(said, 2)]


def _columns(tree: Any) -> list[np.ndarray]:
    """Returns the numbers of a batched tree, arrays [N]."""
    leaves = [np.asarray(leaf, np.int64) for leaf in jax.tree.leaves(tree)]
    return [column for leaf in leaves for column in leaf.reshape(len(leaf), -1).T]


def _join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns a number that stands for two."""
    return first.astype(np.int64) * 65_536 + second
