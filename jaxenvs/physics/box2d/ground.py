"""The ground that bodies stand on, and the parts of it that they may touch.

Source: E. Catto, Box2D 2.3: b2BroadPhase.cpp, b2ContactManager.cpp.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.physics.box2d.geometry import (
    SKIN,
    Array,
    Shape,
    Transform,
    Vector,
    cross,
    dot,
    scale,
    sub,
)
from jaxenvs.physics.box2d.impact import TARGET, TOLERANCE, Sweep, time_of_impact
from jaxenvs.physics.box2d.manifolds import Manifold, collide_box, collide_edge, corners_of_box
from jaxenvs.physics.box2d.slots import COUNT, PART, RANK, Slots

MARGIN = 0.1  # m, by which boxes around bodies and parts are enlarged
REACH = MARGIN + SKIN / 2  # m, from a part to the side of the box around it
NO_CONTACT = np.asarray([-1, -1, 0, -1, -1], np.int32)


class Terrain(NamedTuple):
    """The ground of a world."""

    heights: Array  # float32[E + 1], m, at the ends of the edges
    # float32[M, 4], m: low x, low y, high x, high y of boxes, from left to right; unused ones are
    # far away.
    boxes: Any = None


class Ground:
    """A kind of ground: edges side by side, and boxes.

    The parts of the ground have numbers: boxes come before edges. A body has slots for contacts
    with K neighboring parts, those for edges first. Arrays of slots are [K, B, L].
    """

    def __init__(
        self, edges: int, width: float, edge_slots: int, boxes: int = 0, box_slots: int = 0
    ) -> None:
        """Makes a kind of ground.

        Args:
            edges: E, the number of edges.
            width: m, the width of each, from x = 0.
            edge_slots: the number of neighboring edges that a body can touch.
            boxes: M, the largest number of boxes.
            box_slots: the number of neighboring boxes that a body can touch.
        """
        self.edges, self.width, self.edge_slots = edges, width, edge_slots
        self.boxes, self.box_slots = boxes, box_slots
        self.slots = edge_slots + box_slots
        self.columns = np.float32(np.arange(edges + 1) * width)  # x of the ends of the edges

    def is_near(self, bounds: Array, terrain: Terrain) -> Array:
        """Returns bool[N], whether any of the boxes [N, B, 4] around bodies could meet an edge."""
        low_x, low_y, high_x, _ = jnp.unstack(bounds, axis=-1)
        first = jnp.floor((low_x.min(axis=1) - REACH) / self.width).astype(jnp.int32)
        last = jnp.floor((high_x.max(axis=1) + REACH) / self.width).astype(jnp.int32) + 1
        columns = np.arange(self.edges + 1, dtype=np.int32)[None]
        is_below = (columns >= first[:, None]) & (columns <= last[:, None])
        highest = jnp.where(is_below, terrain.heights, -jnp.inf).max(axis=1)
        return low_y.min(axis=1) <= highest + REACH

    def assign(
        self, bounds: Array, x: Array, contacts: Array, impulses: Array, terrain: Terrain
    ) -> tuple[Array, Array]:
        """Gives slots to the parts whose boxes meet those around bodies; others lose theirs.

        Of parts that get a slot at the same time, the one with the larger number is newer.

        Args:
            bounds: float32[N, B, 4], boxes around bodies.
            x: float32[N, B], m, x of the bodies.
            contacts: int32[N, B, K, 5].
            impulses: float32[N, B, K, 4].
            terrain: the terrain of N worlds.
        """
        number, exists, box = self._neighbors(bounds, x, terrain)
        low_x, low_y, high_x, high_y = jnp.unstack(bounds[..., None, :], axis=-1)
        meets = (
            exists
            & (low_x <= box[2] + REACH)
            & (high_x >= box[0] - REACH)
            & (low_y <= box[3] + REACH)
            & (high_y >= box[1] - REACH)
        )
        is_same = (contacts[..., None, :, PART] == number[..., None]) & meets[..., None]
        is_kept = jnp.any(is_same, axis=-1)
        is_lost = (contacts[..., COUNT] > 0) & ~jnp.any(is_same, axis=-2)
        source = jnp.argmax(is_same, axis=-1)[..., None]
        contacts, impulses = (jnp.take_along_axis(x, source, axis=2) for x in (contacts, impulses))
        key = jnp.where(is_kept, contacts[..., RANK], self.slots + number)
        is_older = meets[..., None, :] & (key[..., None, :] < key[..., None])
        contacts = jnp.where(is_kept[..., None], contacts, NO_CONTACT)
        columns = jnp.stack([number, is_older.sum(axis=-1, dtype=jnp.int32)], axis=-1)
        columns = jnp.where(meets[..., None], columns, -1)
        # The next step ends a lost contact; until then, an empty slot keeps its points.
        lost = jnp.any(is_lost, axis=-1)[..., None] & ~meets
        count = jnp.where(lost, 1, contacts[..., COUNT])[..., None]
        contacts = jnp.concatenate([columns, count, contacts[..., COUNT + 1 :]], axis=-1)
        return contacts, jnp.where(is_kept[..., None], impulses, 0)

    def _neighbors(
        self, bounds: Array, x: Array, terrain: Terrain
    ) -> tuple[Array, Array, tuple[Array, ...]]:
        """Returns the number of each slot's part, whether it exists, and its box, [N, B, K] each.

        An edge takes the slot of its number modulo their slots, and so does a box.
        """

        def nearest(base: Array, slots: int) -> Array:
            base = base[..., None]
            return base + (np.arange(slots, dtype=np.int32)[None, None] - base) % slots

        base = jnp.floor(x / self.width - (self.edge_slots / 2 - 0.5)).astype(jnp.int32)
        edge = nearest(base, self.edge_slots)
        start = jnp.clip(edge, 0, self.edges - 1)
        lanes = jnp.arange(edge.shape[0], dtype=jnp.int32)[:, None, None]
        left, right = terrain.heights[lanes, start], terrain.heights[lanes, start + 1]
        columns = jnp.asarray(self.columns)
        low, high = jnp.minimum(left, right), jnp.maximum(left, right)
        number, exists = edge + self.boxes, edge == start
        box = columns[start], low, columns[start + 1], high
        if not self.boxes:
            return number, exists, box
        reached = bounds[..., :1] - REACH
        base = jnp.sum(terrain.boxes[:, None, :, 2] < reached, axis=-1, dtype=jnp.int32)
        box_number = nearest(base, self.box_slots)
        index = jnp.minimum(box_number, self.boxes - 1)
        boxes = jnp.unstack(terrain.boxes[lanes, index], axis=-1)
        return jax.tree.map(
            lambda *parts: jnp.concatenate(parts, axis=-1),
            (number, exists, box),
            (box_number, box_number == index, tuple(boxes)),
        )

    # Below, arrays have lanes last.

    def _ends(self, number: Array, terrain: Terrain) -> tuple[Vector, Vector]:
        """Returns the ends of the edges with these numbers [..., L] in terrains of L worlds."""
        lanes = _lanes(number)
        start = jnp.clip(number - self.boxes, 0, self.edges - 1)
        columns = jnp.asarray(self.columns)
        one, two = ((columns[i], terrain.heights[lanes, i]) for i in (start, start + 1))
        return one, two

    def _box(self, number: Array, terrain: Terrain) -> tuple[Array, Array, Array, Array]:
        """Returns the boxes with these numbers [..., L] in terrains of L worlds."""
        box = terrain.boxes[_lanes(number), jnp.clip(number, 0, self.boxes - 1)]
        low_x, low_y, high_x, high_y = jnp.unstack(box, axis=-1)
        return low_x, low_y, high_x, high_y

    def _split(self, slots: Slots, *trees: Any) -> list[tuple[Array, Any]]:
        """Splits numbers and trees [B, L] into those for edges and boxes, [K, B, L] each."""
        number = slots.part[: self.edge_slots], slots.part[self.edge_slots :]
        return [
            (each, jax.tree.map(lambda x, each=each: jnp.broadcast_to(x[None], each.shape), trees))
            for each in number[: 2 if self.boxes else 1]
        ]

    def collide(self, slots: Slots, terrain: Terrain, shape: Shape, at: Transform) -> Manifold:
        """Returns where polygons [B, L] touch the parts in their slots."""
        (edges, args), *boxes = self._split(slots, shape, at)
        manifold = collide_edge(*self._ends(edges, terrain), *args)
        if not boxes:
            return manifold
        number, args = boxes[0]
        other = collide_box(self._box(number, terrain), *args)
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), manifold, other)

    def times_of_impact(self, slots: Slots, terrain: Terrain, shape: Shape, sweep: Sweep) -> Array:
        """Returns when moving polygons [B, L] hit the parts in their slots."""
        (edges, args), *boxes = self._split(slots, shape, sweep)
        times = time_of_impact(self._ends(edges, terrain), *args)
        if not boxes:
            return times
        number, args = boxes[0]
        corners = corners_of_box(self._box(number, terrain))
        return jnp.concatenate([times, time_of_impact(corners, *args)])

    def may_hit(
        self,
        slots: Slots,
        terrain: Terrain,
        shape: Shape,
        ats: tuple[Transform, Transform],
        turn: Array,
    ) -> Array:
        """Returns bool[B, L], whether polygons may come too close to a part during a motion.

        Args:
            slots: the contacts.
            terrain: the terrain.
            shape: the polygons, [B, L].
            ats: their transforms before and after the motion.
            turn: float32[B, L], rad, their rotation.
        """
        # In between, a corner may have been lower by the arc of the rotation.
        margin = TARGET + TOLERANCE + turn * turn / 6
        corners = [at(vertex) for vertex in shape.vertices for at in ats]
        corners = jax.tree.map(lambda x: x[None], corners)
        edges, boxes = slots.part[: self.edge_slots], slots.part[self.edge_slots :]
        gaps = _gap_to_edge(*self._ends(edges, terrain), corners)
        if self.boxes:
            gaps = jnp.concatenate([gaps, _gap_to_box(self._box(boxes, terrain), corners)])
        return jnp.any((gaps < margin[None]) & (slots.rank >= 0), axis=0)


def _lanes(number: Array) -> Array:
    """Returns the lane of each element of [..., L]."""
    shape = (1,) * (number.ndim - 1) + (-1,)
    return jnp.arange(number.shape[-1], dtype=jnp.int32).reshape(shape)


# A polygon does not hit an edge or a box if a line along its sides separates them before and after.


def _gap_to_edge(one: Vector, two: Vector, corners: Sequence[Vector]) -> Array:
    """Returns how far all corners are above the edge, or beyond one of its ends."""
    along = sub(two, one)
    length = jnp.sqrt(dot(along, along))
    along = scale(1 / length, along)
    above = left = right = jnp.inf
    for corner in corners:
        from_one = sub(corner, one)
        place = dot(from_one, along)
        above = jnp.minimum(above, cross(along, from_one))
        left, right = jnp.minimum(left, -place), jnp.minimum(right, place - length)
    return jnp.maximum(above, jnp.maximum(left, right))


def _gap_to_box(box: tuple[Array, ...], corners: Sequence[Vector]) -> Array:
    """Returns how far all corners are beyond one of the box's sides."""
    left, low, right, high = box
    gaps = [jnp.inf] * 4
    for x, y in corners:
        beyond = left - x, low - y, x - right, y - high
        gaps = [jnp.minimum(*pair) for pair in zip(gaps, beyond, strict=True)]
    return functools.reduce(jnp.maximum, gaps)
