"""Vectors, polygons, and the contacts between polygons and the edges of a ground.

Source: E. Catto, Box2D 2.3: b2Math.h, b2PolygonShape.cpp, b2CollideEdge.cpp, b2Collision.cpp.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.barrier import behind_barrier
from jaxenvs.numerics import sincos

LINEAR_SLOP = 0.005  # m, b2_linearSlop
SKIN = 0.02  # m, the radii of a polygon and an edge together

Array = Any  # an array of lanes, or a number
Vector = tuple[Array, Array]  # x and y


def dot(a: Vector, b: Vector) -> Array:
    """Returns the dot product."""
    return a[0] * b[0] + a[1] * b[1]


def cross(a: Vector, b: Vector) -> Array:
    """Returns the z component of the cross product."""
    return a[0] * b[1] - a[1] * b[0]


def add(a: Vector, b: Vector) -> Vector:
    """Returns a + b."""
    return a[0] + b[0], a[1] + b[1]


def sub(a: Vector, b: Vector) -> Vector:
    """Returns a - b."""
    return a[0] - b[0], a[1] - b[1]


def scale(factor: Array, a: Vector) -> Vector:
    """Returns factor * a."""
    return factor * a[0], factor * a[1]


def choose(mask: Array, a: Vector, b: Vector) -> Vector:
    """Returns a where mask holds, otherwise b."""
    return jnp.where(mask, a[0], b[0]), jnp.where(mask, a[1], b[1])


class Transform(NamedTuple):
    """A rotation and a translation, from a body's coordinates to the world's."""

    sin: Array
    cos: Array
    origin: Vector

    def rotate(self, a: Vector) -> Vector:
        """Rotates a vector."""
        return self.cos * a[0] - self.sin * a[1], self.sin * a[0] + self.cos * a[1]

    def rotate_back(self, a: Vector) -> Vector:
        """Rotates a vector of the world into the body's coordinates."""
        return self.cos * a[0] + self.sin * a[1], self.cos * a[1] - self.sin * a[0]

    def __call__(self, a: Vector) -> Vector:
        """Transforms a point."""
        return add(self.rotate(a), self.origin)

    def inverse(self, a: Vector) -> Vector:
        """Transforms a point of the world into the body's coordinates."""
        return self.rotate_back(sub(a, self.origin))


def place_body(center: Vector, angle: Array, local_center: Vector) -> Transform:
    """Returns the transform of a body whose center of mass is at `center`."""
    turn = Transform(*sincos(angle), center)
    return turn._replace(origin=sub(center, turn.rotate(local_center)))


def transform_at(center: Vector, angle: Array, local_center: Vector) -> Transform:
    """Returns `place_body`, computed once for all of its uses."""
    return behind_barrier(
        lambda center, angle: place_body(center, angle, local_center), center, angle
    )


class Polygon(NamedTuple):
    """A convex polygon: float32[V, 2] each, counterclockwise.

    Polygons of one world have equally many vertices: the last one is repeated.
    """

    vertices: np.ndarray
    following: np.ndarray  # the next vertex of each
    normals: np.ndarray  # of the edge that starts at each vertex
    center: np.ndarray  # float32[2]
    number: int  # of distinct vertices
    area: float
    inertia: float  # for density 1, about the center


def polygon(points: Sequence[tuple[float, float]], size: int) -> Polygon:
    """Returns a polygon whose `points` are counterclockwise, with `size` vertices."""
    corners = np.asarray(points, np.float32)
    following = np.roll(corners, -1, axis=0)
    along = (following - corners).astype(np.float64)
    normals = np.stack([along[:, 1], -along[:, 0]], -1) / np.linalg.norm(along, axis=1)[:, None]
    # Sums over the triangles between the mean of the corners and the edges.
    origin = corners.mean(axis=0, dtype=np.float64)
    first, second = corners - origin, following - origin
    double = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    area = double.sum() / 2
    center = (double[:, None] * (first + second)).sum(axis=0) / 6 / area
    squares = (first**2 + first * second + second**2).sum(axis=1)
    inertia = (double * squares).sum() / 12 - area * (center**2).sum()
    rows = np.minimum(np.arange(size), len(corners) - 1)
    return Polygon(
        vertices=corners[rows],
        following=following[rows],
        normals=normals.astype(np.float32)[rows],
        center=(center + origin).astype(np.float32),
        number=len(corners),
        area=float(area),
        inertia=float(inertia),
    )


class Shape(NamedTuple):
    """Polygons in lanes: a vector for each vertex, as in `Polygon`."""

    vertices: tuple[Vector, ...]
    following: tuple[Vector, ...]
    normals: tuple[Vector, ...]
    center: Vector
    number: Array  # int32, the number of distinct vertices

    def place(self, at: Transform) -> tuple[list[Vector], list[Vector]]:
        """Returns the vertices and the normals in the world, computed once for all uses."""

        def compute(at: Transform) -> tuple[list[Vector], list[Vector]]:
            return list(map(at, self.vertices)), list(map(at.rotate, self.normals))

        return behind_barrier(compute, at)


class Manifold(NamedTuple):
    """Up to two points at which a polygon touches an edge.

    They lie on a face of the edge or on one of the polygon. In the first case, `normal` and `plane`
    are in the world and `points` in the polygon's coordinates; in the second, the other way round.
    """

    on_edge: Array  # bool
    normal: Vector
    plane: Vector  # a point of the face
    points: tuple[Vector, Vector]
    ids: tuple[Array, ...]  # int32, the features that make each point
    number: Array  # int32, 0 to 2

    def place(self, at: Transform) -> tuple[Vector, list[tuple[Vector, Vector, Array]]]:
        """Returns the normal from the edge to the polygon and, in the world, each point.

        A point has its place, the normal of its face, and its distance from the face.
        """
        outward = choose(self.on_edge, self.normal, at.rotate(self.normal))
        plane = choose(self.on_edge, self.plane, at(self.plane))
        points = []
        for point in self.points:
            place = choose(self.on_edge, at(point), point)
            points.append((place, outward, dot(sub(place, plane), outward)))
        return choose(self.on_edge, outward, scale(-1, outward)), points


def pick(vectors: Sequence[Vector], index: Array) -> Vector:
    """Returns the vector with this index, per lane."""
    picked = vectors[0]
    for i, vector in enumerate(vectors[1:], start=1):
        picked = choose(index == i, vector, picked)
    return picked


class _Point(NamedTuple):
    """A point of the incident segment."""

    place: Vector
    reference: Array  # int32, the vertex of the reference face whose side cut the segment, or 0
    incident: Array  # int32, the vertex or face of the other shape
    is_cut: Array  # bool


def collide(start: Vector, end: Vector, shape: Shape, at: Transform) -> Manifold:
    """Returns where polygons touch edges from `start` to `end`. All arrays have the same shape."""
    vertices, normals = shape.place(at)

    def face_edge(at: Transform) -> tuple[Vector, Array]:
        along = sub(end, start)
        normal = scale(1 / jnp.sqrt(dot(along, along)), (along[1], -along[0]))
        is_front = dot(normal, sub(at(shape.center), start)) >= 0
        return choose(is_front, normal, scale(-1, normal)), is_front

    normal, is_front = behind_barrier(face_edge, at)

    def separate(normal: Vector) -> tuple[Array, Array, Array]:
        """Returns whether a normal separates both, whether the edge's does best, and a face."""
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
        on_edge = of_polygon <= 0.98 * of_edge + 0.001
        return (of_edge > SKIN) | (of_polygon > SKIN), on_edge, jnp.where(on_edge, facing, best)

    is_apart, on_edge, face = behind_barrier(separate, normal)

    def refer(face: Array) -> tuple[Vector, ...]:
        """Returns the incident segment, the reference face, and its normal."""
        one, two = pick(vertices, face), at(pick(shape.following, face))
        low, high = choose(is_front, start, end), choose(is_front, end, start)
        return (
            choose(on_edge, one, start),
            choose(on_edge, two, end),
            choose(on_edge, low, one),
            choose(on_edge, high, two),
            choose(on_edge, normal, pick(normals, face)),
        )

    first, second, low, high, outward = behind_barrier(refer, face)

    def clip(face: Array) -> tuple[_Point, _Point, Array]:
        """Returns the incident segment between the sides of the reference face, if it has any."""
        following = jnp.where(face + 1 < shape.number, face + 1, 0)
        none, uncut = jnp.zeros_like(face), jnp.zeros_like(is_apart)
        segment = (
            _Point(first, none, face, uncut),
            _Point(second, none, jnp.where(on_edge, following, face), uncut),
        )
        one = jnp.where(on_edge, jnp.where(is_front, 0, 1), face)
        two = jnp.where(on_edge, jnp.where(is_front, 1, 0), following)
        side = outward[1], -outward[0]
        segment, is_left = _clip(segment, side, dot(side, low), one)
        side = scale(-1, side)
        segment, is_still_left = _clip(segment, side, dot(side, high), two)
        return *segment, is_left & is_still_left

    *segment, is_left = behind_barrier(clip, face)

    def finish(face: Array) -> Manifold:
        is_near = [dot(outward, sub(point.place, low)) <= SKIN for point in segment]
        places, ids = [], []
        for point in segment:
            places.append(choose(on_edge, at.inverse(point.place), point.place))
            # Features: the edge's index and the polygon's, and which of them is a face.
            of_edge = jnp.where(on_edge, point.reference, point.incident)
            of_polygon = jnp.where(on_edge, point.incident, point.reference)
            kind = jnp.where(on_edge & point.is_cut, 512, 256)
            ids.append(of_edge + of_polygon * 16 + kind)
        is_second = ~is_near[0]  # a single point is the first
        count = is_near[0].astype(jnp.int32) + is_near[1].astype(jnp.int32)
        return Manifold(
            on_edge=on_edge,
            normal=choose(on_edge, outward, pick(shape.normals, face)),
            plane=choose(on_edge, low, pick(shape.vertices, face)),
            points=(choose(is_second, places[1], places[0]), places[1]),
            ids=(jnp.where(is_second, ids[1], ids[0]), ids[1]),
            number=jnp.where(is_left & ~is_apart, count, 0),
        )

    return behind_barrier(finish, face)


def _clip(
    segment: tuple[_Point, _Point], side: Vector, offset: Array, vertex: Array
) -> tuple[tuple[_Point, _Point], Array]:
    """Returns the part of a segment behind a line, ordered as in Box2D, and if there is one."""
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
