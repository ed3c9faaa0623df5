"""Revolute joints with motors and limits.

Source: E. Catto, Box2D 2.3: b2RevoluteJoint.cpp.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxenvs._cpu.barrier import behind_barrier
from jaxenvs.numerics import sincos
from jaxenvs.physics.box2d.geometry import (
    LINEAR_SLOP,
    Array,
    Transform,
    Vector,
    add,
    dot,
    scale,
    sub,
)
from jaxenvs.physics.box2d.impulses import Mass, Motion, push, velocity_at

ANGULAR_SLOP = 2 / 180 * np.pi  # rad
MAX_ANGULAR_CORRECTION = 8 / 180 * np.pi  # rad
INACTIVE, LOWER, UPPER = 0, 1, 2  # states of a joint's limit


class Joint(NamedTuple):
    """A revolute joint between two bodies, with a motor and limits."""

    first: int
    second: int
    first_anchor: tuple[float, float]  # in the body's coordinates, from its center of mass
    second_anchor: tuple[float, float]
    lower: float  # rad, relative to `reference`
    upper: float
    reference: float


class Joints(NamedTuple):
    """The joints of a world in the order in which they are solved, [J, 1], or a single one."""

    first: Array  # int32, like the next
    second: Array
    first_anchor: Vector
    second_anchor: Vector
    lower: Array
    upper: Array
    reference: Array
    first_mass: Mass
    second_mass: Mass


def gather(joints: Sequence[Joint], masses: Sequence[Mass]) -> Joints:
    """Returns the table of joints between bodies with these masses."""

    def column(values: Sequence[Any]) -> Any:
        if isinstance(values[0], tuple):
            return tuple(map(column, zip(*values, strict=True)))
        dtype = np.int32 if isinstance(values[0], int) else np.float32
        return np.asarray(values, dtype)[:, None]

    ends = [(masses[joint.first], masses[joint.second]) for joint in joints]
    first, second = (Mass(*column(each)) for each in zip(*ends, strict=True))
    columns: Any = (*map(column, zip(*joints, strict=True)), first, second)
    return Joints(*columns)


class JointRows(NamedTuple):
    """The terms of joints that velocity iterations use, [J, L] each."""

    first_arm: Vector
    second_arm: Vector
    point_inverse: tuple[Array, Array, Array]  # xx, xy, yy
    full_inverse: tuple[Array, ...]  # xx, xy, xz, yy, yz, zz
    coupling: Vector  # the z column of the full matrix
    speed: Array
    max_impulse: Array
    limit: Array  # int32


def limit_states(joints: Joints, angles: Array) -> Array:
    """Returns the limits that joints have reached, int32[J, L], at the bodies' angles [B, L]."""
    angle = angles[joints.second[:, 0]] - angles[joints.first[:, 0]] - joints.reference
    upper = jnp.where(angle >= joints.upper, UPPER, INACTIVE)
    return jnp.where(angle <= joints.lower, LOWER, upper).astype(jnp.int32)


def _arms(joints: Joints, first_angle: Array, second_angle: Array) -> tuple[Vector, Vector]:
    first, second = (Transform(*sincos(angle), (0, 0)) for angle in (first_angle, second_angle))
    return first.rotate(joints.first_anchor), second.rotate(joints.second_anchor)


def prepare_joints(
    joints: Joints, angles: Array, limits: Array, speeds: Array, max_impulses: Array
) -> JointRows:
    """Returns the rows of joints, given the bodies' angles [B, L] and arrays [J, L]."""
    first, second = joints.first_mass, joints.second_mass

    def arms(first_angle: Array, second_angle: Array) -> tuple[Vector, Vector]:
        return _arms(joints, first_angle, second_angle)

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
            speed=speeds,
            max_impulse=max_impulses,
            limit=limits,
        )

    of_first, of_second = angles[joints.first[:, 0]], angles[joints.second[:, 0]]
    return behind_barrier(invert, *behind_barrier(arms, of_first, of_second))


def warm_start_joint(
    joint: Joints, rows: JointRows, impulse: Sequence[Array], a: Motion, b: Motion
) -> tuple[Motion, Motion]:
    """Returns the velocities of a joint's bodies after its impulses [4, L] of the last step."""
    x, y, z, motor = impulse
    return (
        push(a, joint.first_mass, rows.first_arm, (-x, -y), -(motor + z)),
        push(b, joint.second_mass, rows.second_arm, (x, y), motor + z),
    )


def solve_joint(
    joint: Joints, rows: JointRows, impulse: Sequence[Array], a: Motion, b: Motion
) -> tuple[tuple[Array, ...], Motion, Motion]:
    """Solves a joint once, given the velocities of its bodies.

    Returns its impulses (x, y, angular of the limit, and of the motor) and the velocities.
    """
    first, second, limit = joint.first_mass, joint.second_mass, rows.limit
    x, y, z, motor = impulse

    def drive(motor: Array, spin_a: Array, spin_b: Array) -> Array:
        error = spin_b - spin_a - rows.speed
        change = -error / (first.angular + second.angular)
        return jnp.clip(motor + change, -rows.max_impulse, rows.max_impulse)

    new_motor = behind_barrier(drive, motor, a[2], b[2])
    twist = new_motor - motor
    none = jnp.zeros_like(twist), jnp.zeros_like(twist)
    a = push(a, first, rows.first_arm, none, -twist)
    b = push(b, second, rows.second_arm, none, twist)

    def hold(z: Array, *velocities: Array) -> tuple[Array, Array, Array]:
        a, b = velocities[:3], velocities[3:]
        error = sub(velocity_at(b, rows.second_arm), velocity_at(a, rows.first_arm))
        spin = b[2] - a[2]
        xx, xy, xz, yy, yz, zz = rows.full_inverse
        full_z = -(xz * error[0] + yz * error[1] + zz * spin)
        # A limit does not pull; an inactive one has no impulse.
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
    return (
        (x + px, y + py, z + pz, new_motor),
        push(a, first, rows.first_arm, (-px, -py), -pz),
        push(b, second, rows.second_arm, (px, py), pz),
    )


def place_joint(joint: Joints, limit: Array, a: Motion, b: Motion) -> tuple[Array, Motion, Motion]:
    """Corrects the positions of a joint's bodies. Returns whether they were right, and both."""
    first, second = joint.first_mass, joint.second_mass
    motor_mass = 1 / (first.angular + second.angular)

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
    is_right = (jnp.sqrt(squared) <= LINEAR_SLOP) & (angle_error <= ANGULAR_SLOP)
    a, b = push(a, first, arm_a, (-px, -py), none), push(b, second, arm_b, (px, py), none)
    return is_right, a, b
