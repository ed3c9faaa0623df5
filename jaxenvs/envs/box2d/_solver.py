"""The iterations that solve joints and contacts, one after the other as Box2D does.

Arrays have lanes last. Bodies are rows of arrays [B, 3, L]: x, y, and angle, or their velocities.

Source: E. Catto, Box2D 2.3: b2Island.cpp.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxenvs.envs.box2d._contacts import (
    ContactRows,
    Contacts,
    at_slot,
    columns,
    place_contact,
    solve_contact,
)
from jaxenvs.envs.box2d._geometry import Array
from jaxenvs.envs.box2d._impulses import Mass
from jaxenvs.envs.box2d._joints import Joint, JointRows, place_joint, solve_joint

# Velocities that are equal before and after this many iterations are so after any multiple: they
# do not change, or come back by rounding, mostly every second iteration. So are positions. Numbers
# of iterations are multiples.
BURST, PLACE_BURST = 6, 4


def unstack(rows: Array) -> list[list[Array]]:
    """Splits [B, 3, L] into lanes."""
    return [[rows[i, j] for j in range(rows.shape[1])] for i in range(rows.shape[0])]


def stack(rows: Sequence[Sequence[Array]]) -> Array:
    """Joins lanes to [B, 3, L]."""
    return jnp.stack([jnp.stack(list(row)) for row in rows])


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
            pressing, at_slot(rows, k), list(at_slot(impulses, k)), columns(velocity)
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
