"""Joints and contacts, solved one after the other as Box2D does.

Arrays have lanes last. Bodies are rows of arrays [B, 3, L]: x, y, and angle, or their velocities.

Source: E. Catto, Box2D 2.3: b2RevoluteJoint.cpp, b2ContactSolver.cpp, b2Island.cpp.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxenvs.barrier import behind_barrier
from jaxenvs.envs.box2d._geometry import (
    LINEAR_SLOP,
    SKIN,
    Array,
    Manifold,
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
from jaxenvs.numerics import sincos

ANGULAR_SLOP = 2 / 180 * np.pi  # rad
MAX_ANGULAR_CORRECTION = 8 / 180 * np.pi  # rad
MAX_LINEAR_CORRECTION = 0.2  # m
INACTIVE, LOWER, UPPER = 0, 1, 2  # states of a joint's limit
MAX_CONDITION = 1000.0  # two points with a worse matrix count as one
# Velocities that are equal before and after this many iterations are so after any multiple: they
# do not change, or come back by rounding, mostly every second iteration. So are positions. Numbers
# of iterations are multiples.
BURST, PLACE_BURST = 6, 4


class Mass(NamedTuple):
    """The inverse mass and inertia of a body."""

    linear: float | Array
    angular: float | Array


class Joint(NamedTuple):
    """A hinge between two bodies, with a motor and limits."""

    first: int
    second: int
    first_anchor: tuple[float, float]  # in the body's coordinates, from its center of mass
    second_anchor: tuple[float, float]
    lower: float  # rad, relative to `reference`
    upper: float
    reference: float


class JointRows(NamedTuple):
    """The terms of a joint that velocity iterations use, [L] each."""

    first_arm: Vector
    second_arm: Vector
    point_inverse: tuple[Array, Array, Array]  # xx, xy, yy
    full_inverse: tuple[Array, ...]  # xx, xy, xz, yy, yz, zz
    coupling: Vector  # the z column of the full matrix
    speed: Array
    max_impulse: Array


class Contacts(NamedTuple):
    """Contacts of bodies with fixed edges.

    The K contacts of a body are solved one after the other, and all bodies at once.
    """

    mass: Mass  # of the bodies, [B, 1] or [B, L], as the next two
    friction: Array
    local_center: Vector
    manifold: Manifold  # [K, B, L]

    @property
    def number(self) -> Array:
        """The largest number of contacts of a body: those with points come first."""
        return jnp.sum(jnp.any(self.manifold.number > 0, axis=(1, 2)), dtype=jnp.int32)


def _at(velocity: Sequence[Array], arm: Vector) -> Vector:
    """Returns the velocity of a body's point."""
    x, y, spin = velocity
    return x - spin * arm[1], y + spin * arm[0]


def _push(
    velocity: Sequence[Array], mass: Mass, arm: Vector, impulse: Vector, spin: Array
) -> tuple[Array, Array, Array]:
    """Returns a velocity after an impulse at a point and an angular impulse."""
    x, y, angular = velocity
    return (
        x + mass.linear * impulse[0],
        y + mass.linear * impulse[1],
        angular + mass.angular * (cross(arm, impulse) + spin),
    )


def limit_state(joint: Joint, first_angle: Array, second_angle: Array) -> Array:
    """Returns which limit a joint has reached, int32."""
    angle = second_angle - first_angle - joint.reference
    return jnp.where(
        angle <= joint.lower, LOWER, jnp.where(angle >= joint.upper, UPPER, INACTIVE)
    ).astype(jnp.int32)


def _arms(joint: Joint, first_angle: Array, second_angle: Array) -> tuple[Vector, Vector]:
    first, second = (Transform(*sincos(angle), (0, 0)) for angle in (first_angle, second_angle))
    return first.rotate(joint.first_anchor), second.rotate(joint.second_anchor)


def prepare_joint(
    joint: Joint,
    masses: Sequence[Mass],
    angles: Sequence[Array],
    speed: Array,
    max_impulse: Array,
) -> JointRows:
    """Returns the rows of a joint. The angles are those of all bodies."""
    first, second = masses[joint.first], masses[joint.second]

    def arms(first_angle: Array, second_angle: Array) -> tuple[Vector, Vector]:
        return _arms(joint, first_angle, second_angle)

    def invert(a: Vector, b: Vector) -> JointRows:
        linear = first.linear + second.linear
        xx = linear + a[1] * a[1] * first.angular + b[1] * b[1] * second.angular
        xy = -a[1] * a[0] * first.angular - b[1] * b[0] * second.angular
        xz = -a[1] * first.angular - b[1] * second.angular
        yy = linear + a[0] * a[0] * first.angular + b[0] * b[0] * second.angular
        yz = a[0] * first.angular + b[0] * second.angular
        zz = first.angular + second.angular
        point = 1 / (xx * yy - xy * xy)
        full = 1 / (xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz))
        return JointRows(
            first_arm=a,
            second_arm=b,
            point_inverse=(yy * point, -xy * point, xx * point),
            full_inverse=(
                (yy * zz - yz * yz) * full,
                (xz * yz - xy * zz) * full,
                (xy * yz - xz * yy) * full,
                (xx * zz - xz * xz) * full,
                (xy * xz - xx * yz) * full,
                (xx * yy - xy * xy) * full,
            ),
            coupling=(xz, yz),
            speed=speed,
            max_impulse=max_impulse,
        )

    return behind_barrier(invert, *behind_barrier(arms, angles[joint.first], angles[joint.second]))


def warm_start_joint(
    joint: Joint,
    rows: JointRows,
    masses: Sequence[Mass],
    impulse: Sequence[Array],
    velocity: list[Any],
) -> None:
    """Applies a joint's impulses of the step before to velocities, in place."""
    x, y, z, motor = impulse
    for body, arm, sign in ((joint.first, rows.first_arm, -1), (joint.second, rows.second_arm, 1)):
        velocity[body] = _push(
            velocity[body], masses[body], arm, (sign * x, sign * y), sign * (motor + z)
        )


def solve_joint(
    joint: Joint,
    rows: JointRows,
    masses: Sequence[Mass],
    limit: Array,
    impulse: Sequence[Array],
    velocity: list[Any],
) -> tuple[Array, ...]:
    """Solves a joint once and updates the velocities of its bodies in place.

    `impulse` and the result are x, y, angular (of the limit), and that of the motor.
    """
    first, second = masses[joint.first], masses[joint.second]
    a, b = velocity[joint.first], velocity[joint.second]
    x, y, z, motor = impulse

    def drive(motor: Array, spin_a: Array, spin_b: Array) -> Array:
        error = spin_b - spin_a - rows.speed
        change = -error / (first.angular + second.angular)
        return jnp.clip(motor + change, -rows.max_impulse, rows.max_impulse)

    new_motor = behind_barrier(drive, motor, a[2], b[2])
    twist = new_motor - motor
    none = jnp.zeros_like(twist), jnp.zeros_like(twist)
    a = _push(a, first, rows.first_arm, none, -twist)
    b = _push(b, second, rows.second_arm, none, twist)

    def hold(z: Array, *velocities: Array) -> tuple[Array, Array, Array]:
        a, b = velocities[:3], velocities[3:]
        error = sub(_at(b, rows.second_arm), _at(a, rows.first_arm))
        spin = b[2] - a[2]
        xx, xy, xz, yy, yz, zz = rows.full_inverse
        full_z = -(xz * error[0] + yz * error[1] + zz * spin)
        # The impulse of a limit that would pull ends; an inactive limit has none.
        pulls = jnp.where(limit == LOWER, z + full_z < 0, z + full_z > 0) | (limit == INACTIVE)
        rest = sub(scale(z, rows.coupling), error)
        ixx, ixy, iyy = rows.point_inverse
        return (
            jnp.where(
                pulls,
                ixx * rest[0] + ixy * rest[1],
                -(xx * error[0] + xy * error[1] + xz * spin),
            ),
            jnp.where(
                pulls,
                ixy * rest[0] + iyy * rest[1],
                -(xy * error[0] + yy * error[1] + yz * spin),
            ),
            jnp.where(pulls, -z, full_z),
        )

    px, py, pz = behind_barrier(hold, z, *a, *b)
    velocity[joint.first] = _push(a, first, rows.first_arm, (-px, -py), -pz)
    velocity[joint.second] = _push(b, second, rows.second_arm, (px, py), pz)
    return x + px, y + py, z + pz, new_motor


def place_joint(joint: Joint, masses: Sequence[Mass], limit: Array, position: list[Any]) -> Array:
    """Corrects the positions of a joint's bodies in place; returns whether they were right."""
    first, second = masses[joint.first], masses[joint.second]
    motor_mass = 1 / (first.angular + second.angular)
    a, b = position[joint.first], position[joint.second]

    def turn(angle_a: Array, angle_b: Array) -> tuple[Array, Array]:
        angle = angle_b - angle_a - joint.reference
        low = jnp.clip(angle - joint.lower + ANGULAR_SLOP, -MAX_ANGULAR_CORRECTION, 0)
        high = jnp.clip(angle - joint.upper - ANGULAR_SLOP, 0, MAX_ANGULAR_CORRECTION)
        excess = jnp.where(limit == LOWER, low, jnp.where(limit == UPPER, high, 0))
        wrong = jnp.where(
            limit == LOWER,
            joint.lower - angle,
            jnp.where(limit == UPPER, angle - joint.upper, 0),
        )
        return -motor_mass * excess, wrong

    impulse, angle_error = behind_barrier(turn, a[2], b[2])
    a = a[0], a[1], a[2] - first.angular * impulse
    b = b[0], b[1], b[2] + second.angular * impulse
    arm_a, arm_b = behind_barrier(lambda a, b: _arms(joint, a, b), a[2], b[2])

    def pull(a: Vector, b: Vector) -> tuple[Array, Array, Array]:
        error = sub(add(b, arm_b), add(a, arm_a))
        linear = first.linear + second.linear
        ia, ib = first.angular, second.angular
        xx = linear + ia * arm_a[1] * arm_a[1] + ib * arm_b[1] * arm_b[1]
        xy = -ia * arm_a[0] * arm_a[1] - ib * arm_b[0] * arm_b[1]
        yy = linear + ia * arm_a[0] * arm_a[0] + ib * arm_b[0] * arm_b[0]
        inverse = 1 / (xx * yy - xy * xy)
        px = -inverse * (yy * error[0] - xy * error[1])
        py = -inverse * (xx * error[1] - xy * error[0])
        return px, py, dot(error, error)

    px, py, squared = behind_barrier(pull, a[:2], b[:2])
    none = jnp.zeros_like(px)
    position[joint.first] = _push(a, first, arm_a, (-px, -py), none)
    position[joint.second] = _push(b, second, arm_b, (px, py), none)
    return (jnp.sqrt(squared) <= LINEAR_SLOP) & (angle_error <= ANGULAR_SLOP)


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
    """Returns the rows of contacts between moving bodies and fixed edges."""
    manifold = contacts.manifold
    mass, center = jax.tree.map(lambda x: x[None], (contacts.mass, contacts.local_center))
    x, y, angle = (position[None, :, i] for i in range(3))

    def place(at: Transform) -> tuple[Vector, Vector, Vector]:
        normal, points = manifold.place(at)
        # Contact is in the middle between both surfaces.
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
    contacts: Contacts, rows: ContactRows, impulse: Sequence[Array], velocity: Sequence[Array]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Solves a contact of each body once, given its rows, [B, L] each.

    Returns its impulses, two normal and two tangential, and the velocities.
    """
    normal = rows.normal_x, rows.normal_y
    tangent = rows.normal_y, -rows.normal_x
    arm1, arm2 = (rows.arm1_x, rows.arm1_y), (rows.arm2_x, rows.arm2_y)
    mass, is_two = contacts.mass, rows.is_two
    normal1, normal2, tangent1, tangent2 = impulse
    none = jnp.zeros_like(normal1)

    def slide(old: Array, pressing: Array, inverse: Array, arm: Vector, *velocity: Array) -> Array:
        new = old - inverse * dot(_at(velocity, arm), tangent)
        limit = contacts.friction * pressing
        return jnp.clip(new, -limit, limit)

    new1 = behind_barrier(slide, tangent1, normal1, rows.tangent1, arm1, *velocity)
    velocity = _push(velocity, mass, arm1, scale(new1 - tangent1, tangent), none)
    new2 = behind_barrier(
        lambda *args: jnp.where(is_two, slide(*args), tangent2),
        tangent2,
        normal2,
        rows.tangent2,
        arm2,
        *velocity,
    )
    velocity = _push(velocity, mass, arm2, scale(new2 - tangent2, tangent), none)

    def press(*velocity: Array) -> tuple[Array, Array]:
        speed1, speed2 = dot(_at(velocity, arm1), normal), dot(_at(velocity, arm2), normal)
        single = jnp.maximum(normal1 - rows.normal1 * speed1, 0)
        # Two points: the first of four cases that solves the complementarity problem.
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
    velocity = _push(velocity, mass, arm1, scale(pressed1 - normal1, normal), none)
    velocity = _push(velocity, mass, arm2, scale(pressed2 - normal2, normal), none)
    return (pressed1, pressed2, new1, new2), velocity


def place_contact(
    contacts: Contacts, k: Array, position: Sequence[Array], rate: float
) -> tuple[Sequence[Array], Array]:
    """Corrects positions for the k-th contact of each body, one point after the other.

    Returns them and the least separation before.
    """
    manifold, mass = _slice(contacts.manifold, k), contacts.mass
    least = jnp.zeros_like(position[0])
    for i in range(len(manifold.points)):

        def correct(x: Array, y: Array, angle: Array, i=i) -> tuple[Array, ...]:
            normal, points = manifold.place(place_body((x, y), angle, contacts.local_center))
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
        position = _push(position, mass, (arm[0], arm[1]), (px, py), jnp.zeros_like(px))
        least = jnp.minimum(least, separation)
    return position, least


def _slice(tree: Any, k: Array) -> Any:
    """Returns the k-th contacts of a tree of arrays [K, ...]."""
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, k, 0, False), tree)


def unstack(rows: Array) -> list[list[Array]]:
    """Splits [B, 3, L] into lanes."""
    return [[rows[i, j] for j in range(rows.shape[1])] for i in range(rows.shape[0])]


def stack(rows: Sequence[Sequence[Array]]) -> Array:
    """Joins lanes to [B, 3, L]."""
    return jnp.stack([jnp.stack(list(row)) for row in rows])


def warm_start(contacts: Contacts, rows: ContactRows, impulses: Array, velocity: Array) -> Array:
    """Returns velocities [B, 3, L] after the impulses [K, 4, B, L] of the step before."""

    def push(k: Array, velocity: Array) -> Array:
        row = _slice(rows, k)
        normal1, normal2, tangent1, tangent2 = impulses[k]
        normal = row.normal_x, row.normal_y
        tangent = row.normal_y, -row.normal_x
        none = jnp.zeros_like(normal1)
        new = columns(velocity)
        for arm, along, across in (
            ((row.arm1_x, row.arm1_y), normal1, tangent1),
            (
                (row.arm2_x, row.arm2_y),
                jnp.where(row.is_two, normal2, 0),
                jnp.where(row.is_two, tangent2, 0),
            ),
        ):
            impulse = add(scale(along, normal), scale(across, tangent))
            new = _push(new, contacts.mass, arm, impulse, none)
        return jnp.stack(new, axis=1)

    return lax.fori_loop(0, contacts.number, push, velocity)


def columns(rows: Array) -> tuple[Array, Array, Array]:
    """Splits [B, 3, L] into three [B, L]."""
    return rows[:, 0], rows[:, 1], rows[:, 2]


def solve_velocities(
    joints: Sequence[Joint],
    masses: Sequence[Mass],
    joint_rows: Sequence[JointRows],
    limits: Array,
    contacts: tuple[Contacts, ContactRows] | None,
    state: tuple[Array, Array, Array],
    iterations: int,
) -> tuple[tuple[Array, Array, Array], Array]:
    """Iterates until nothing changes any more: the result is that of all iterations.

    Args:
        joints: in the order in which they are solved.
        masses: of all bodies.
        joint_rows: of the joints.
        limits: int32[J, L], the states of their limits.
        contacts: contacts and their rows; None without any.
        state: velocities [B, 3, L], impulses of joints [J, 4, L], and of contacts [K, 4, B, L].
        iterations: the number of iterations, a multiple of BURST.

    Returns:
        The new state, and bool[L], whether more iterations might change it.
    """
    pressing: Any
    pressing, rows = (None, None) if contacts is None else contacts
    number = 0 if contacts is None else pressing.number

    def solve_slot(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        velocity, impulses = state
        impulse, new = solve_contact(
            pressing, _slice(rows, k), list(_slice(impulses, k)), columns(velocity)
        )
        impulses = lax.dynamic_update_index_in_dim(impulses, jnp.stack(impulse), k, 0)
        return jnp.stack(new, axis=1), impulses

    def iterate(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        velocity, joint_impulse, contact_impulse = state
        if joints:
            lanes = unstack(velocity)
            solved = [
                solve_joint(joint, joint_rows[j], masses, limits[j], list(joint_impulse[j]), lanes)
                for j, joint in enumerate(joints)
            ]
            velocity, joint_impulse = stack(lanes), stack(solved)
        if contacts is not None:
            velocity, contact_impulse = lax.fori_loop(
                0, number, solve_slot, (velocity, contact_impulse)
            )
        return velocity, joint_impulse, contact_impulse

    def advance(carry: tuple) -> tuple:
        i, _, state = carry
        new = lax.fori_loop(0, BURST, iterate, state)
        changes = False
        for before, after in zip(state, new, strict=True):
            if before.size:
                changes |= jnp.any(before != after, axis=tuple(range(before.ndim - 1)))
        return i + BURST, changes, new

    lanes = state[0].shape[-1]
    _, changes, state = lax.while_loop(
        lambda carry: (carry[0] < iterations) & jnp.any(carry[1]),
        advance,
        (jnp.int32(0), jnp.ones(lanes, bool), state),
    )
    return state, changes


def solve_positions(
    joints: Sequence[Joint],
    masses: Sequence[Mass],
    limits: Array,
    contacts: Contacts | None,
    position: Array,
    rate: float,
    tolerance: float,
    iterations: int,
) -> tuple[Array, Array]:
    """Corrects positions until all errors are small. Returns them and, per lane, whether they are.

    Args: as `solve_velocities`, and
        contacts: the `Contacts`; None without any.
        position: [B, 3, L].
        rate: the share of an overlap that an iteration corrects.
        tolerance: m, the overlap that may remain.
    """
    pressing: Any = contacts
    number = 0 if contacts is None else contacts.number

    def place_slot(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        position, least = state
        placed, separation = place_contact(pressing, k, columns(position), rate)
        return jnp.stack(placed, axis=1), jnp.minimum(least, separation)

    def correct(carry: tuple) -> tuple:
        i, is_right, position = carry
        new, is_right_now = position, jnp.ones_like(is_right)
        if contacts is not None:
            new, least = lax.fori_loop(0, number, place_slot, (new, jnp.zeros_like(position[:, 0])))
            is_right_now &= least.min(axis=0) >= -tolerance
        if joints:
            placed = unstack(new)
            for j, joint in enumerate(joints):
                is_right_now &= place_joint(joint, masses, limits[j], placed)
            new = stack(placed)
        return i + 1, is_right | is_right_now, jnp.where(is_right[None, None], position, new)

    def advance(carry: tuple) -> tuple:
        i, is_right, _, position = carry
        _, is_right, new = lax.while_loop(
            lambda carry: (carry[0] < burst) & ~jnp.all(carry[1]),
            correct,
            (jnp.int32(0), is_right, position),
        )
        ends = is_right | jnp.all(position == new, axis=(0, 1))
        return i + burst, is_right, ends, new

    burst = min(PLACE_BURST, iterations)
    none = jnp.zeros(position.shape[-1], bool)
    _, is_right, _, position = lax.while_loop(
        lambda carry: (carry[0] < iterations) & ~jnp.all(carry[2]),
        advance,
        (jnp.int32(0), none, none, position),
    )
    return position, is_right
