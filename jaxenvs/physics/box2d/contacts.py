"""Contacts between bodies and the ground.

Source: E. Catto, Box2D 2.3: b2ContactSolver.cpp.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs._cpu.barrier import behind_barrier
from jaxenvs.physics.box2d.geometry import (
    LINEAR_SLOP,
    SKIN,
    Array,
    Transform,
    Vector,
    add,
    cross,
    dot,
    place_body,
    scale,
    sub,
    transform_at,
)
from jaxenvs.physics.box2d.impulses import Mass, Motion, push, velocity_at
from jaxenvs.physics.box2d.lanes import at_index
from jaxenvs.physics.box2d.manifolds import Manifold

MAX_LINEAR_CORRECTION = 0.2  # m
MAX_CONDITION = 1000.0  # two points with a worse matrix are solved as one


class Contacts(NamedTuple):
    """Contacts of bodies with the ground, which does not move."""

    mass: Mass  # of the bodies, [B, 1] or [B, L], like the next two
    friction: Array
    local_center: Vector
    manifold: Manifold  # [K, B, L], those with points first

    def order(self) -> tuple[Array, Array, Array]:
        """Returns the number of (slot, body) pairs that any lane needs, their slots, and bodies."""
        slots, bodies, _ = self.manifold.number.shape
        is_needed = jnp.any(self.manifold.number > 0, axis=2).T.ravel()
        ends = jnp.cumsum(is_needed, dtype=jnp.int32)
        pair = np.arange(slots * bodies, dtype=np.int32)
        index = jnp.sum(ends[None] <= pair[:, None], axis=1, dtype=jnp.int32)
        return ends[-1], index % slots, index // slots

    def at(self, slot: Array, body: Array) -> "Contacts":
        """Returns a contact of a body, with arrays [L] or [1]."""
        mass, friction, center = at_index((self.mass, self.friction, self.local_center), body)
        return Contacts(mass, friction, center, at_index(self.manifold, slot, body))


class ContactRows(NamedTuple):
    """The terms of contacts that velocity iterations use, [K, B, L] each."""

    normal_x: Array
    normal_y: Array
    arm1_x: Array
    arm1_y: Array
    arm2_x: Array
    arm2_y: Array
    tangent1: Array  # inverse matrices of one direction
    tangent2: Array
    normal1: Array
    normal2: Array
    k11: Array  # matrix of both normals, and its inverse
    k12: Array
    k22: Array
    inverse11: Array
    inverse12: Array
    inverse22: Array
    is_two: Array  # bool, whether two points are solved together


def prepare_contacts(contacts: Contacts, position: Array) -> ContactRows:
    """Returns the rows of contacts between bodies and the ground."""
    manifold = contacts.manifold
    mass, center = jax.tree.map(lambda x: x[None], (contacts.mass, contacts.local_center))
    x, y, angle = (position[None, :, i] for i in range(3))

    def place(at: Transform) -> tuple[Vector, Vector, Vector]:
        normal, points = manifold.place(at)
        # The contact point is halfway between both surfaces.
        arm1, arm2 = (
            sub(add(place, scale(-0.5 * depth, outward)), (x, y))
            for place, outward, depth in points
        )
        return normal, arm1, arm2

    normal, arm1, arm2 = behind_barrier(place, transform_at((x, y), angle, center))

    def weigh(normal: Vector) -> ContactRows:
        tangent = normal[1], -normal[0]
        one, two = cross(arm1, normal), cross(arm2, normal)
        linear, angular = mass.linear, mass.angular
        k11 = linear + angular * one * one
        k22 = linear + angular * two * two
        k12 = linear + angular * one * two
        determinant = k11 * k22 - k12 * k12
        is_two = (manifold.number == 2) & (k11 * k11 < MAX_CONDITION * determinant)
        inverse = 1 / determinant
        exists = manifold.number > 0

        def invert(mask: Array, k: Array) -> Array:
            return jnp.where(mask, 1 / k, 0)

        slides = [linear + angular * cross(arm, tangent) ** 2 for arm in (arm1, arm2)]
        return ContactRows(
            *normal,
            *arm1,
            *arm2,
            invert(exists, slides[0]),
            invert(is_two, slides[1]),
            invert(exists, k11),
            invert(is_two, k22),
            k11,
            k12,
            k22,
            jnp.where(is_two, k22 * inverse, 0),
            jnp.where(is_two, -k12 * inverse, 0),
            jnp.where(is_two, k11 * inverse, 0),
            is_two,
        )

    return behind_barrier(weigh, normal)


def solve_contact(
    contact: Contacts, rows: ContactRows, impulse: Sequence[Array], velocity: Motion
) -> tuple[tuple[Array, ...], Motion]:
    """Solves a contact once. Arrays are [L].

    Returns its impulses, two normal and two tangential, and the body's velocity.
    """
    normal = rows.normal_x, rows.normal_y
    tangent = rows.normal_y, -rows.normal_x
    arm1, arm2 = (rows.arm1_x, rows.arm1_y), (rows.arm2_x, rows.arm2_y)
    mass, is_two = contact.mass, rows.is_two
    normal1, normal2, tangent1, tangent2 = impulse
    none = jnp.zeros_like(normal1)

    def slide(old: Array, pressing: Array, inverse: Array, arm: Vector, *velocity: Array) -> Array:
        new = old - inverse * dot(velocity_at(velocity, arm), tangent)
        limit = contact.friction * pressing
        return jnp.clip(new, -limit, limit)

    new1 = behind_barrier(slide, tangent1, normal1, rows.tangent1, arm1, *velocity)
    velocity = push(velocity, mass, arm1, scale(new1 - tangent1, tangent), none)
    new2 = behind_barrier(
        lambda *args: jnp.where(is_two, slide(*args), tangent2),
        tangent2,
        normal2,
        rows.tangent2,
        arm2,
        *velocity,
    )
    velocity = push(velocity, mass, arm2, scale(new2 - tangent2, tangent), none)

    def press(*velocity: Array) -> tuple[Array, Array]:
        speed1, speed2 = (
            dot(velocity_at(velocity, arm1), normal),
            dot(velocity_at(velocity, arm2), normal),
        )
        single = jnp.maximum(normal1 - rows.normal1 * speed1, 0)
        # Two points: the first of four cases that solves the complementarity problem wins.
        b1 = speed1 - (rows.k11 * normal1 + rows.k12 * normal2)
        b2 = speed2 - (rows.k12 * normal1 + rows.k22 * normal2)
        both = (
            -(rows.inverse11 * b1 + rows.inverse12 * b2),
            -(rows.inverse12 * b1 + rows.inverse22 * b2),
        )
        only1, only2 = -rows.normal1 * b1, -rows.normal2 * b2
        cases = (
            ((b1 >= 0) & (b2 >= 0), none, none),
            ((only2 >= 0) & (rows.k12 * only2 + b1 >= 0), none, only2),
            ((only1 >= 0) & (rows.k12 * only1 + b2 >= 0), only1, none),
            ((both[0] >= 0) & (both[1] >= 0), *both),
        )
        x1, x2 = normal1, normal2
        for holds, case1, case2 in cases:
            x1, x2 = jnp.where(holds, case1, x1), jnp.where(holds, case2, x2)
        return jnp.where(is_two, x1, single), jnp.where(is_two, x2, normal2)

    pressed1, pressed2 = behind_barrier(press, *velocity)
    velocity = push(velocity, mass, arm1, scale(pressed1 - normal1, normal), none)
    velocity = push(velocity, mass, arm2, scale(pressed2 - normal2, normal), none)
    return (pressed1, pressed2, new1, new2), velocity


def place_contact(contact: Contacts, rate: float, position: Motion) -> tuple[Motion, Array]:
    """Corrects a position for a contact, one point after the other. Arrays are [L].

    Returns the position and the least separation before the correction.
    """
    manifold, mass = contact.manifold, contact.mass
    least = jnp.zeros_like(position[0])
    for i in range(len(manifold.points)):

        def correct(x: Array, y: Array, angle: Array, i=i) -> tuple[Array, ...]:
            normal, points = manifold.place(place_body((x, y), angle, contact.local_center))
            place, _, depth = points[i]
            separation = depth - SKIN
            arm = sub(place, (x, y))
            excess = jnp.clip(rate * (separation + LINEAR_SLOP), -MAX_LINEAR_CORRECTION, 0)
            leverage = cross(arm, normal)
            exists = manifold.number > i
            impulse = -excess / (mass.linear + mass.angular * leverage * leverage)
            impulse = jnp.where(exists, impulse, 0)
            return *scale(impulse, normal), *arm, jnp.where(exists, separation, 0)

        px, py, *arm, separation = behind_barrier(correct, *position)
        position = push(position, mass, (arm[0], arm[1]), (px, py), jnp.zeros_like(px))
        least = jnp.minimum(least, separation)
    return position, least


def warm_start_contact(
    contact: Contacts, rows: ContactRows, impulse: Sequence[Array], velocity: Motion
) -> Motion:
    """Returns a velocity after the impulses [4, L] of the last step."""
    normal1, normal2, tangent1, tangent2 = impulse
    normal = rows.normal_x, rows.normal_y
    tangent = rows.normal_y, -rows.normal_x
    none = jnp.zeros_like(normal1)
    for arm, along, across in (
        ((rows.arm1_x, rows.arm1_y), normal1, tangent1),
        (
            (rows.arm2_x, rows.arm2_y),
            jnp.where(rows.is_two, normal2, 0),
            jnp.where(rows.is_two, tangent2, 0),
        ),
    ):
        total = add(scale(along, normal), scale(across, tangent))
        velocity = push(velocity, contact.mass, arm, total, none)
    return velocity
