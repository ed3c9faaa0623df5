"""The time at which a moving polygon hits the ground.

Source: E. Catto, Box2D 2.3: b2TimeOfImpact.cpp, b2Distance.cpp.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxenvs import loops
from jaxenvs._cpu.barrier import behind_barrier
from jaxenvs.physics.box2d.geometry import (
    LINEAR_SLOP,
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
    sub,
    transform_at,
)

TARGET = LINEAR_SLOP  # m, the distance that counts as an impact
TOLERANCE = 0.25 * LINEAR_SLOP


class Sweep(NamedTuple):
    """The motion of a body's center of mass during a step."""

    start: Vector
    start_angle: Array
    end: Vector
    end_angle: Array
    local_center: Vector

    def at(self, time: Array) -> Transform:
        """Returns the transform at a time from 0 to 1."""
        place = add(scale(1 - time, self.start), scale(time, self.end))
        angle = (1 - time) * self.start_angle + time * self.end_angle
        return transform_at(place, angle, self.local_center)


class _Axis(NamedTuple):
    """The direction that separates a polygon from the ground."""

    on_polygon: Array  # bool, a face of the polygon, otherwise fixed in the world
    direction: Vector  # in the world or in the polygon's coordinates
    offset: Array  # of a fixed axis: the ground's place along it
    place: Vector  # of a face: its middle, in the polygon's coordinates


def _closest(ground: Sequence[Vector], shape: Shape, at: Transform) -> tuple[Array, _Axis]:
    """Returns the distance, 0 in an overlap, and the axis between the closest features."""
    vertices, normals = shape.place(at)
    is_edge = len(ground) == 2
    sides = [0] if is_edge else range(len(ground))
    ends = [(ground[i], ground[(i + 1) % len(ground)]) for i in sides]

    def outward(start: Vector, end: Vector) -> tuple[Array, Array]:
        along = sub(end, start)
        squared = dot(along, along)
        return squared, scale(1 / jnp.sqrt(squared), (along[1], -along[0]))

    def corners(angle: Array) -> tuple[Array, ...]:
        """Finds the polygon's corner that is closest to a side of the ground.

        Returns the squared distance, the index of the corner and of the side, the place along the
        side, and the gap between both shapes, negative in an overlap.
        """
        best = jnp.full_like(angle, jnp.inf)
        index = side = jnp.zeros_like(angle, jnp.int32)
        share, apart = 0.0, -jnp.inf
        for j, (start, end) in enumerate(ends):
            squared_length, normal = outward(start, end)
            low, high = jnp.inf, -jnp.inf
            for i, vertex in enumerate(vertices):
                from_start = sub(vertex, start)
                part = jnp.clip(dot(from_start, sub(end, start)) / squared_length, 0, 1)
                gap = sub(from_start, scale(part, sub(end, start)))
                squared = dot(gap, gap)
                is_closer = squared < best
                share = jnp.where(is_closer, part, share)
                index = jnp.where(is_closer, i, index)
                side = jnp.where(is_closer, j, side)
                best = jnp.minimum(best, squared)
                height = dot(normal, from_start)
                low, high = jnp.minimum(low, height), jnp.maximum(high, height)
            apart = jnp.maximum(apart, jnp.maximum(low, -high) if is_edge else low)
        for vertex, normal in zip(vertices, normals, strict=True):
            depths = [-dot(normal, sub(vertex, tip)) for tip in ground]
            apart = jnp.maximum(apart, functools.reduce(jnp.minimum, depths))
        return best, index, side, share, apart

    best, corner, side, share, gap = behind_barrier(corners, at.sin)

    def faces(best: Array) -> tuple[Array, Array]:
        """Returns the polygon's face closest to a corner of the ground: squared distance, index."""
        nearest, face = jnp.full_like(best, jnp.inf), jnp.zeros_like(corner)
        for i, (vertex, normal) in enumerate(zip(vertices, normals, strict=True)):
            along = sub(vertices[(i + 1) % len(vertices)], vertex)
            squared = dot(along, along)
            for tip in ground:
                away = sub(tip, vertex)
                part = dot(away, along)
                height = dot(away, normal)
                inside = (part > 0) & (part < squared) & (height > 0) & (height**2 < nearest)
                face = jnp.where(inside, i, face)
                nearest = jnp.where(inside, height**2, nearest)
        return nearest, face

    nearest, face = behind_barrier(faces, best)

    def name(best: Array) -> tuple[Array, _Axis]:
        on_polygon = nearest < best
        vertex = pick(vertices, corner)
        start, end = (pick(points, side) for points in zip(*ends, strict=True))
        _, normal = outward(start, end)
        between = sub(vertex, choose(share >= 1, end, start))
        size = jnp.sqrt(dot(between, between))
        on_side = (share > 0) & (share < 1)
        is_above = dot(sub(vertex, start), normal) >= 0
        fixed = choose(
            on_side,
            choose(is_above, normal, scale(-1, normal)),
            scale(1 / jnp.where(size > 0, size, 1), between),
        )
        offset = jnp.where(
            on_side,
            dot(scale(0.5, add(start, end)), fixed),
            functools.reduce(jnp.maximum, [dot(tip, fixed) for tip in ground]),
        )
        middle = scale(0.5, add(pick(shape.vertices, face), pick(shape.following, face)))
        distance = jnp.where(gap > 0, jnp.sqrt(jnp.minimum(best, nearest)), 0)
        direction = choose(on_polygon, pick(shape.normals, face), fixed)
        return distance, _Axis(on_polygon, direction, offset, middle)

    return behind_barrier(name, best)


def _deepest(axis: _Axis, ground: Sequence[Vector], shape: Shape, at: Transform) -> Array:
    """Returns the index of the deepest corner along the axis, of the ground or the polygon."""

    def compare(at: Transform) -> Array:
        of_ground = lowest(ground, at.rotate(axis.direction))
        of_polygon = lowest(shape.vertices, at.rotate_back(axis.direction))
        return jnp.where(axis.on_polygon, of_ground, of_polygon)

    return behind_barrier(compare, at)


def _separation(
    axis: _Axis, ground: Sequence[Vector], shape: Shape, at: Transform, index: Array
) -> Array:
    """Returns the separation along the axis of the corners that `_deepest` found."""

    def measure(at: Transform) -> Array:
        of_face = dot(sub(pick(ground, index), at(axis.place)), at.rotate(axis.direction))
        fixed = dot(at(pick(shape.vertices, index)), axis.direction) - axis.offset
        return jnp.where(axis.on_polygon, of_face, fixed)

    return behind_barrier(measure, at)


def time_of_impact(ground: Sequence[Vector], shape: Shape, sweep: Sweep) -> Array:
    """Returns the time from 0 to 1 at which polygons come within TARGET of the ground, 1 if never.

    The ground is an edge, given by its two ends, or a convex polygon, counterclockwise.

    Conservative advancement: if the closest features separate both shapes at the end of the motion,
    there is no impact. Otherwise, they give a later time to start from.
    """
    turns = jnp.floor(sweep.start_angle / (2 * np.pi)) * (2 * np.pi)
    sweep = sweep._replace(start_angle=sweep.start_angle - turns, end_angle=sweep.end_angle - turns)
    args = ground, shape
    zero = jnp.zeros_like(sweep.start_angle + ground[0][0])
    false = zero > 1

    def root(axis, index, t1, t2, s1, s2, running):
        def improve(carry):
            i, running, a1, a2, s1, s2, found = carry
            secant = a1 + (TARGET - s1) * (a2 - a1) / (s2 - s1)
            time = jnp.where(i % 2 == 1, secant, 0.5 * (a1 + a2))
            s = _separation(axis, *args, sweep.at(time), index)
            found = jnp.where(running & (jnp.abs(s - TARGET) < TOLERANCE), time, found)
            running &= jnp.abs(s - TARGET) >= TOLERANCE
            above = s > TARGET
            return (
                i + 1,
                running,
                jnp.where(running & above, time, a1),
                jnp.where(running & ~above, time, a2),
                jnp.where(running & above, s, s1),
                jnp.where(running & ~above, s, s2),
                found,
            )

        carry = jnp.int32(0), running, t1, t2, s1, s2, t2
        return loops.while_loop(lambda c: (c[0] < 50) & jnp.any(c[1]), improve, carry)[-1]

    def push_back(axis, carry):
        i, pushing, t1, t2, hit, done = carry
        at = sweep.at(t2)
        index = _deepest(axis, *args, at)
        s2 = _separation(axis, *args, at, index)
        is_separated = s2 > TARGET + TOLERANCE
        is_reached = ~is_separated & (s2 > TARGET - TOLERANCE)
        s1 = _separation(axis, *args, sweep.at(t1), index)
        is_failed = s1 < TARGET - TOLERANCE
        is_touching = ~is_failed & (s1 <= TARGET + TOLERANCE)
        goes_on = pushing & ~is_separated & ~is_reached & ~is_failed & ~is_touching
        found = root(axis, index, t1, t2, s1, s2, goes_on)
        ends = pushing & ~is_reached & ~goes_on
        return (
            i + 1,
            goes_on,
            jnp.where(pushing & is_reached, t2, t1),
            jnp.where(goes_on, found, t2),
            hit | (ends & ~is_separated & is_touching),
            done | ends,
        )

    def search(carry):
        i, t1, hit, done = carry
        distance, axis = _closest(*args, sweep.at(t1))
        is_touching = (distance > 0) & (distance < TARGET + TOLERANCE)
        ends = ~done & ((distance <= 0) | is_touching)
        hit, done = hit | (ends & is_touching), done | ends
        _, _, t1, _, hit, done = loops.while_loop(
            lambda c: (c[0] < 16) & jnp.any(c[1]),
            functools.partial(push_back, axis),
            (jnp.int32(0), ~done, t1, jnp.ones_like(t1), hit, done),
        )
        return i + 1, t1, hit, done

    _, time, hit, _ = loops.while_loop(
        lambda c: (c[0] < 20) & ~jnp.all(c[3]), search, (jnp.int32(0), zero, false, false)
    )
    return jnp.where(hit, time, 1)
