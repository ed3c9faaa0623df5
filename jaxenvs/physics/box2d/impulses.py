"""The effect of impulses on bodies."""

from typing import NamedTuple

from jaxenvs.physics.box2d.geometry import Array, Vector, cross

Motion = tuple[Array, Array, Array]  # x, y, and angle in lanes, or their velocities


class Mass(NamedTuple):
    """The inverse mass and inertia of a body."""

    linear: float | Array
    angular: float | Array


def velocity_at(velocity: tuple[Array, ...], arm: Vector) -> Vector:
    """Returns the velocity of a body's point."""
    x, y, spin = velocity
    return x - spin * arm[1], y + spin * arm[0]


def push(velocity: Motion, mass: Mass, arm: Vector, impulse: Vector, spin: Array) -> Motion:
    """Returns a velocity after an impulse at a point and an angular impulse."""
    x, y, angular = velocity
    return (
        x + mass.linear * impulse[0],
        y + mass.linear * impulse[1],
        angular + mass.angular * (cross(arm, impulse) + spin),
    )
