"""Hinges with motors and limits.

Source: E. Catto, Box2D 2.3: b2RevoluteJoint.cpp.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxenvs.barrier import behind_barrier
from jaxenvs.envs.box2d._geometry import (
    LINEAR_SLOP,
    Array,
    Transform,
    Vector,
    add,
    dot,
    scale,
    sub,
)
from jaxenvs.envs.box2d._impulses import Mass, push, velocity_at
from jaxenvs.numerics import sincos

ANGULAR_SLOP = 2 / 180 * np.pi  # rad
MAX_ANGULAR_CORRECTION = 8 / 180 * np.pi  # rad
INACTIVE, LOWER, UPPER = 0, 1, 2  # states of a joint's limit


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
        velocity[body] = push(
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
    a = push(a, first, rows.first_arm, none, -twist)
    b = push(b, second, rows.second_arm, none, twist)

    def hold(z: Array, *velocities: Array) -> tuple[Array, Array, Array]:
        a, b = velocities[:3], velocities[3:]
        error = sub(velocity_at(b, rows.second_arm), velocity_at(a, rows.first_arm))
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
    velocity[joint.first] = push(a, first, rows.first_arm, (-px, -py), -pz)
    velocity[joint.second] = push(b, second, rows.second_arm, (px, py), pz)
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
    position[joint.first] = push(a, first, arm_a, (-px, -py), none)
    position[joint.second] = push(b, second, arm_b, (px, py), none)
    return (jnp.sqrt(squared) <= LINEAR_SLOP) & (angle_error <= ANGULAR_SLOP)
