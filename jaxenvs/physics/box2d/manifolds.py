"""The points at which polygons touch the parts of a ground.

Source: E. Catto, Box2D 2.3: b2CollideEdge.cpp, b2CollidePolygon.cpp, b2Collision.cpp.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxenvs._cpu.barrier import behind_barrier
from jaxenvs.physics.box2d.geometry import (
    SKIN,
    Array,
    Shape,
    Transform,
    Vector,
    add,
    choose,
    dot,
    lowest,
    pick,
    scale,
    select,
    sub,
)


class Manifold(NamedTuple):
    """Up to two points at which a polygon touches a part of the ground.

    They lie on a face of the ground or of the polygon. In the first case, `normal` and `plane` are
    in the world's coordinates and `points` in the polygon's; in the second, the other way around.
    """

    on_ground: Array  # bool
    normal: Vector
    plane: Vector  # a point of the face
    points: tuple[Vector, Vector]
    ids: tuple[Array, ...]  # int32, of the features that make up each point
    number: Array  # int32, 0 to 2

    def place(self, at: Transform) -> tuple[Vector, list[tuple[Vector, Vector, Array]]]:
        """Returns the normal from the ground to the polygon and, in the world, each point.

        A point is its place, the normal of its face, and its distance from the face.
        """
        outward = choose(self.on_ground, self.normal, at.rotate(self.normal))
        plane = choose(self.on_ground, self.plane, at(self.plane))
        points = []
        for point in self.points:
            place = choose(self.on_ground, at(point), point)
            points.append((place, outward, dot(sub(place, plane), outward)))
        return choose(self.on_ground, outward, scale(-1, outward)), points


class _Point(NamedTuple):
    """A point of the incident segment."""

    place: Vector
    reference: Array  # int32, the vertex of the reference face whose side cut the segment, or 0
    incident: Array  # int32, the vertex or face of the other shape
    is_cut: Array  # bool


def collide_edge(start: Vector, end: Vector, shape: Shape, at: Transform) -> Manifold:
    """Returns where polygons touch edges from `start` to `end`. Arrays have equal shapes."""
    vertices, normals = shape.place(at)

    def face_edge(at: Transform) -> tuple[Vector, Array]:
        along = sub(end, start)
        normal = scale(1 / jnp.sqrt(dot(along, along)), (along[1], -along[0]))
        is_front = dot(normal, sub(at(shape.center), start)) >= 0
        return choose(is_front, normal, scale(-1, normal)), is_front

    normal, is_front = behind_barrier(face_edge, at)

    def separate(normal: Vector) -> tuple[Array, Array, Array]:
        """Returns whether any normal separates both, whether the edge's is best, and a face."""
        of_edge, of_polygon, least = jnp.inf, -jnp.inf, jnp.inf
        best = facing = jnp.zeros_like(is_front, jnp.int32)
        for i, (vertex, outward) in enumerate(zip(vertices, normals, strict=True)):
            from_start, from_end = sub(vertex, start), sub(vertex, end)
            of_edge = jnp.minimum(of_edge, dot(normal, from_start))
            inward = scale(-1, outward)
            distance = jnp.minimum(dot(inward, from_start), dot(inward, from_end))
            best = jnp.where(distance > of_polygon, i, best)
            of_polygon = jnp.maximum(of_polygon, distance)
            alignment = dot(normal, outward)
            facing = jnp.where(alignment < least, i, facing)
            least = jnp.minimum(least, alignment)
        on_ground = of_polygon <= 0.98 * of_edge + 0.001
        return (of_edge > SKIN) | (of_polygon > SKIN), on_ground, jnp.where(on_ground, facing, best)

    is_apart, on_ground, face = behind_barrier(separate, normal)

    def refer(face: Array) -> tuple[Vector, ...]:
        """Returns the incident segment, the reference face, and its normal."""
        one, two = pick(vertices, face), at(pick(shape.following, face))
        low, high = choose(is_front, start, end), choose(is_front, end, start)
        return (
            choose(on_ground, one, start),
            choose(on_ground, two, end),
            choose(on_ground, low, one),
            choose(on_ground, high, two),
            choose(on_ground, normal, pick(normals, face)),
        )

    first, second, low, high, outward = behind_barrier(refer, face)

    def clip(face: Array) -> tuple[_Point, _Point, Array]:
        """Returns the incident segment between the sides of the reference face, if it has any."""
        following = jnp.where(face + 1 < shape.number, face + 1, 0)
        none, uncut = jnp.zeros_like(face), jnp.zeros_like(is_apart)
        segment = (
            _Point(first, none, face, uncut),
            _Point(second, none, jnp.where(on_ground, following, face), uncut),
        )
        one = jnp.where(on_ground, jnp.where(is_front, 0, 1), face)
        two = jnp.where(on_ground, jnp.where(is_front, 1, 0), following)
        return _clip_between(segment, (low, high), outward, (one, two), 0.0)

    *points, is_left = behind_barrier(clip, face)

    def finish(face: Array) -> Manifold:
        kinds = [jnp.where(on_ground & point.is_cut, 512, 256) for point in points]
        normals = outward, pick(shape.normals, face)
        planes = low, pick(shape.vertices, face)
        is_touching = is_left & ~is_apart
        return _finish(points, kinds, is_touching, on_ground, low, normals, planes, at)

    return behind_barrier(finish, face)


def corners_of_box(box: Sequence[Array]) -> list[Vector]:
    """Returns the corners of a box, low x, low y, high x, high y, in Box2D's order."""
    left, low, right, high = box
    return [(right, low), (right, high), (left, high), (left, low)]


def collide_box(box: tuple[Array, ...], shape: Shape, at: Transform) -> Manifold:
    """Returns where polygons touch boxes: low x, low y, high x, high y.

    All arrays have the same shape.
    """
    vertices, normals = shape.place(at)
    left, low, right, high = box
    corners = corners_of_box(box)
    one, zero = jnp.ones_like(left), jnp.zeros_like(left)
    sides = [(one, zero), (zero, one), (-one, zero), (zero, -one)]

    def separate(angle: Array) -> tuple[Array, ...]:
        """Returns whether both are apart, and the faces of box and polygon that are most so."""
        del angle
        way = sub(at(shape.center), (0.5 * (left + right), 0.5 * (low + high)))

        def best(faces: Any, starts: Any, others: Any, way: Vector, number: Array) -> Any:
            separations = [
                functools.reduce(jnp.minimum, [dot(normal, sub(other, start)) for other in others])
                for normal, start in zip(faces, starts, strict=True)
            ]
            return _climb(separations, [dot(normal, way) for normal in faces], number)

        side, of_box = best(sides, corners, vertices, way, jnp.full_like(shape.number, 4))
        face, of_polygon = best(normals, vertices, corners, scale(-1, way), shape.number)
        on_box = of_polygon <= 0.98 * of_box + 0.001
        return (of_box > SKIN) | (of_polygon > SKIN), on_box, side, face

    is_apart, on_box, side, face = behind_barrier(separate, at.sin)

    def refer(face: Array) -> tuple[Vector, Array, Array]:
        """Returns the reference normal, and the faces that look most against it."""
        outward = choose(on_box, pick(sides, side), pick(normals, face))
        return outward, lowest(sides, outward), lowest(normals, outward)

    outward, facing_side, facing_face = behind_barrier(refer, face)

    def clip(face: Array) -> tuple[_Point, _Point, Array, Vector, Vector]:
        """Returns the incident segment, as in `collide_edge`, and the reference face."""

        def ends(is_side: Array, side: Array, face: Array) -> tuple[list[Vector], list[Array]]:
            next_side = jnp.where(side < 3, side + 1, 0)
            next_face = jnp.where(face + 1 < shape.number, face + 1, 0)
            one = choose(is_side, pick(corners, side), pick(vertices, face))
            two = choose(is_side, pick(corners, next_side), at(pick(shape.following, face)))
            return [one, two], [
                jnp.where(is_side, side, face),
                jnp.where(is_side, next_side, next_face),
            ]

        (low, high), (first, second) = ends(on_box, side, face)
        places, incidents = ends(~on_box, facing_side, facing_face)
        uncut = jnp.zeros_like(is_apart)
        one, two = (
            _Point(place, first, incident, uncut)
            for place, incident in zip(places, incidents, strict=True)
        )
        return (
            *_clip_between((one, two), (low, high), outward, (first, second), SKIN),
            low,
            high,
        )

    *points, is_left, low_end, high_end = behind_barrier(clip, face)

    def finish(face: Array) -> Manifold:
        kinds = [jnp.where(on_box == point.is_cut, 512, 256) for point in points]
        normals = outward, pick(shape.normals, face)
        local = add(pick(shape.vertices, face), pick(shape.following, face))
        planes = scale(0.5, add(low_end, high_end)), scale(0.5, local)
        is_touching = is_left & ~is_apart
        return _finish(points, kinds, is_touching, on_box, low_end, normals, planes, at)

    return behind_barrier(finish, face)


def _climb(
    separations: Sequence[Array], alignments: Sequence[Array], number: Array
) -> tuple[Array, Array]:
    """Returns the face with the largest separation, and the separation.

    As in Box2D, the search starts with the face that points most toward the other polygon, and
    continues to neighbors while they are better.
    """
    most, face = -jnp.inf, jnp.zeros_like(number)
    for i, alignment in enumerate(alignments):
        face = jnp.where(alignment > most, i, face)
        most = jnp.maximum(most, alignment)

    def neighbor(face: Array, step: Array | int) -> tuple[Array, Array]:
        face = (face + step + number) % number
        return face, select(separations, face)

    best = select(separations, face)
    before, after = neighbor(face, -1), neighbor(face, 1)
    goes_back = (before[1] > best) & (before[1] > after[1])
    climbs = goes_back | (after[1] > best)
    step = jnp.where(goes_back, -1, 1)
    face = jnp.where(goes_back, before[0], jnp.where(climbs, after[0], face))
    best = jnp.where(goes_back, before[1], jnp.where(climbs, after[1], best))
    for _ in range(len(separations) - 2):
        face_next, separation = neighbor(face, step)
        climbs &= separation > best
        face, best = jnp.where(climbs, face_next, face), jnp.where(climbs, separation, best)
    return face, best


def _clip_between(
    segment: tuple[_Point, _Point],
    face: tuple[Vector, Vector],
    outward: Vector,
    corners: tuple[Array, Array],
    slack: float,
) -> tuple[_Point, _Point, Array]:
    """Returns the part of a segment between the sides of a face, and whether there is one.

    Args:
        segment: the segment.
        face: the ends of the face.
        outward: the normal of the face.
        corners: the numbers of the ends of the face.
        slack: m, by which the face is extended at both ends.
    """
    side = outward[1], -outward[0]
    segment, is_left = _clip(segment, side, dot(side, face[0]) + slack, corners[0])
    side = scale(-1, side)
    segment, is_still_left = _clip(segment, side, dot(side, face[1]) + slack, corners[1])
    return *segment, is_left & is_still_left


def _finish(
    points: Sequence[_Point],
    kinds: Sequence[Array],
    is_touching: Array,
    on_ground: Array,
    front: Vector,
    normals: tuple[Vector, Vector],
    planes: tuple[Vector, Vector],
    at: Transform,
) -> Manifold:
    """Returns the manifold of the points that are near the reference face.

    Args:
        points: the ends of the incident segment.
        kinds: added to the ids of points; tell which of their features is a face.
        is_touching: bool, whether there is anything to keep.
        on_ground: bool, whether the reference face is the ground's, otherwise the polygon's.
        front: a point of the reference face, in the world.
        normals: of the face, in the world's coordinates and in the polygon's.
        planes: points of the face, likewise.
        at: the transform of the polygon.
    """
    is_near = [dot(normals[0], sub(point.place, front)) <= SKIN for point in points]
    places, ids = [], []
    for point, kind in zip(points, kinds, strict=True):
        places.append(choose(on_ground, at.inverse(point.place), point.place))
        of_ground = jnp.where(on_ground, point.reference, point.incident)
        of_polygon = jnp.where(on_ground, point.incident, point.reference)
        ids.append(of_ground + of_polygon * 16 + kind)
    is_second = ~is_near[0]  # a single point is the first
    count = is_near[0].astype(jnp.int32) + is_near[1].astype(jnp.int32)
    return Manifold(
        on_ground=on_ground,
        normal=choose(on_ground, *normals),
        plane=choose(on_ground, *planes),
        points=(choose(is_second, places[1], places[0]), places[1]),
        ids=(jnp.where(is_second, ids[1], ids[0]), ids[1]),
        number=jnp.where(is_touching, count, 0),
    )


def _clip(
    segment: tuple[_Point, _Point], side: Vector, offset: Array, vertex: Array
) -> tuple[tuple[_Point, _Point], Array]:
    """Returns the part of a segment behind a line, in Box2D's order, and whether there is one."""
    one, two = segment
    distances = dot(side, one.place) - offset, dot(side, two.place) - offset
    crosses = distances[0] * distances[1] < 0
    fraction = distances[0] / (distances[0] - distances[1])
    cut = _Point(
        add(one.place, scale(fraction, sub(two.place, one.place))),
        vertex,
        one.incident,
        jnp.ones_like(crosses),
    )
    is_in = distances[0] <= 0, distances[1] <= 0

    def take(mask: Array, mine: _Point, other: _Point) -> _Point:
        return jax.tree.map(lambda a, b: jnp.where(mask, a, b), mine, other)

    return (take(is_in[0], one, two), take(crosses, cut, two)), (is_in[0] & is_in[1]) | crosses
