"""Vectors, transforms, and polygons.

Source: E. Catto, Box2D 2.3: b2Math.h, b2PolygonShape.cpp.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxenvs._cpu.barrier import behind_barrier
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
    """Returns `place_body`, computed once for all uses."""
    return behind_barrier(
        lambda center, angle: place_body(center, angle, local_center), center, angle
    )


class Polygon(NamedTuple):
    """A convex polygon: float32[V, 2] each, counterclockwise.

    Polygons of a world have equally many vertices: the last one of smaller ones is repeated.
    """

    vertices: np.ndarray
    following: np.ndarray  # the next vertex of each
    normals: np.ndarray  # of the edge that starts at each vertex
    center: np.ndarray  # float32[2]
    number: int  # of distinct vertices
    area: float
    inertia: float  # for density 1, about the center


def polygon(points: Sequence[tuple[float, float]], size: int) -> Polygon:
    """Returns a polygon with `size` vertices whose `points` are counterclockwise."""
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
    """Polygons in lanes: the arrays of `Polygon` as one vector per vertex."""

    vertices: tuple[Vector, ...]
    following: tuple[Vector, ...]
    normals: tuple[Vector, ...]
    center: Vector
    number: Array  # int32, the number of distinct vertices

    def place(self, at: Transform) -> tuple[list[Vector], list[Vector]]:
        """Returns vertices and normals in the world, computed once for all uses."""

        def compute(at: Transform) -> tuple[list[Vector], list[Vector]]:
            return list(map(at, self.vertices)), list(map(at.rotate, self.normals))

        return behind_barrier(compute, at)


def select(numbers: Sequence[Array], index: Array) -> Array:
    """Returns the number with this index in each lane."""
    selected = numbers[0]
    for i, number in enumerate(numbers[1:], start=1):
        selected = jnp.where(index == i, number, selected)
    return selected


def pick(vectors: Sequence[Vector], index: Array) -> Vector:
    """Returns the vector with this index in each lane."""
    x, y = (select(numbers, index) for numbers in zip(*vectors, strict=True))
    return x, y


def lowest(vectors: Sequence[Vector], direction: Vector) -> Array:
    """Returns the index of the vector that extends least in a direction, int32; first if equal."""
    heights = [dot(vector, direction) for vector in vectors]
    least, index = heights[0], jnp.zeros_like(heights[0], jnp.int32)
    for i, height in enumerate(heights[1:], start=1):
        index = jnp.where(height < least, i, index)
        least = jnp.minimum(least, height)
    return index
