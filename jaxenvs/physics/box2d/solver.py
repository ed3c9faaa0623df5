"""The iterations that solve joints and contacts one after the other, as Box2D does.

Arrays have lanes last. Bodies are rows of arrays [B, 3, L]: x, y, and angle, or their velocities.

Source: E. Catto, Box2D 2.3: b2Island.cpp.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxenvs import loops
from jaxenvs._cpu.barrier import behind_barrier
from jaxenvs.physics.box2d.contacts import (
    ContactRows,
    Contacts,
    place_contact,
    solve_contact,
    warm_start_contact,
)
from jaxenvs.physics.box2d.geometry import Array
from jaxenvs.physics.box2d.joints import (
    JointRows,
    Joints,
    place_joint,
    solve_joint,
    warm_start_joint,
)
from jaxenvs.physics.box2d.lanes import at_index

# Velocities that are equal before and after this many iterations remain equal after any multiple:
# they are constant or, by rounding, periodic, mostly with period two. The same holds for positions.
# Numbers of iterations are multiples of these.
BURST, PLACE_BURST = 6, 4

JointTerms = tuple[Joints, JointRows] | None
ContactTerms = tuple[Contacts, ContactRows] | None


def _get(rows: Array, *index: Array) -> tuple[Array, ...]:
    """Returns the rows [C, L] at an index of the first axes."""
    return tuple(at_index(rows, *index))


def _put(rows: Array, new: Sequence[Array], *index: Array) -> Array:
    """Writes rows at an index of the first axes, one by one, so that XLA copies nothing else."""
    for i, row in enumerate(new):
        row = row.reshape((1,) * (rows.ndim - 1) + row.shape)
        rows = lax.dynamic_update_slice(rows, row, (*index, i, 0))
    return rows


def _for_joints(joints: Joints, solve: Callable[..., Any], bodies: Array, state: Any) -> Any:
    """Calls `solve(j, joint, a, b, state)` for each joint, which returns bodies and the state."""

    def solve_one(j: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        bodies, state = carry
        joint = at_index(joints, j)
        first, second = joint.first[0], joint.second[0]
        # Barriers let XLA write in place: it must not read the old values later.
        a, b = behind_barrier(lambda bodies: (_get(bodies, first), _get(bodies, second)), bodies)
        a, b, state = solve(j, joint, a, b, state)
        return _put(_put(bodies, a, first), b, second), state

    return loops.fori_loop(0, len(joints.first), solve_one, (bodies, state))


def _for_contacts(contacts: Contacts, solve: Callable[..., Any], bodies: Array, state: Any) -> Any:
    """Calls `solve(slot, body, contact, motion, state)` for each contact.

    It returns the motion and the state. Contacts of different bodies may be solved in any order:
    they do not affect each other because the ground does not move.
    """
    number, slots, owners = contacts.order()

    def solve_one(i: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        bodies, state = carry
        slot, body = slots[i], owners[i]
        motion = behind_barrier(lambda bodies: _get(bodies, body), bodies)
        motion, state = solve(slot, body, contacts.at(slot, body), motion, state)
        return _put(bodies, motion, body), state

    return loops.fori_loop(0, number, solve_one, (bodies, state))


def warm_start(
    joints: JointTerms, contacts: ContactTerms, state: tuple[Array, Array, Array]
) -> Array:
    """Returns velocities after the impulses of the last step, see `solve_velocities`."""
    velocity, joint_impulses, contact_impulses = state
    if contacts is not None:
        _, rows_of_contacts = contacts

        def press(slot: Array, body: Array, contact: Contacts, motion: Any, _: Any) -> Any:
            impulse = _get(contact_impulses, slot, body)
            rows = at_index(rows_of_contacts, slot, body)
            return warm_start_contact(contact, rows, impulse, motion), ()

        velocity, _ = _for_contacts(contacts[0], press, velocity, ())
    if joints is not None:
        _, rows_of_joints = joints

        def pull(j: Array, joint: Joints, a: Any, b: Any, _: Any) -> Any:
            rows, impulse = at_index(rows_of_joints, j), _get(joint_impulses, j)
            return *warm_start_joint(joint, rows, impulse, a, b), ()

        velocity, _ = _for_joints(joints[0], pull, velocity, ())
    return velocity


def solve_velocities(
    joints: JointTerms,
    contacts: ContactTerms,
    state: tuple[Array, Array, Array],
    iterations: int,
) -> tuple[tuple[Array, Array, Array], Array]:
    """Iterates until nothing changes anymore. The result equals that of all iterations.

    Args:
        joints: joints and their rows; None without any.
        contacts: contacts and their rows; None without any.
        state: velocities [B, 3, L], impulses of joints [J, 4, L], and of contacts [K, B, 4, L].
        iterations: the number of iterations, a multiple of BURST.

    Returns:
        The new state, and bool[L], whether more iterations could change it.
    """

    def iterate(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        velocity, joint_impulses, contact_impulses = state
        if joints is not None:
            table, rows_of_joints = joints

            def hold(j: Array, joint: Joints, a: Any, b: Any, impulses: Array) -> Any:
                impulse = behind_barrier(lambda impulses: _get(impulses, j), impulses)
                rows = at_index(rows_of_joints, j)
                new = behind_barrier(partial(solve_joint, joint, rows), impulse, a, b)
                impulse, a, b = new
                return a, b, _put(impulses, impulse, j)

            velocity, joint_impulses = _for_joints(table, hold, velocity, joint_impulses)
        if contacts is not None:
            pressing, rows_of_contacts = contacts

            def press(
                slot: Array, body: Array, contact: Contacts, motion: Any, impulses: Array
            ) -> Any:
                impulse = behind_barrier(lambda x: _get(x, slot, body), impulses)
                rows = at_index(rows_of_contacts, slot, body)
                new = behind_barrier(partial(solve_contact, contact, rows), impulse, motion)
                impulse, motion = new
                return motion, _put(impulses, impulse, slot, body)

            velocity, contact_impulses = _for_contacts(pressing, press, velocity, contact_impulses)
        return velocity, joint_impulses, contact_impulses

    def advance(carry: tuple) -> tuple:
        i, _, state = carry
        new = loops.fori_loop(0, BURST, iterate, state)
        changes = False
        for before, after in zip(state, new, strict=True):
            if before.size:
                changes |= jnp.any(before != after, axis=tuple(range(before.ndim - 1)))
        return i + BURST, changes, new

    lanes = state[0].shape[-1]
    _, changes, state = loops.while_loop(
        lambda carry: (carry[0] < iterations) & jnp.any(carry[1]),
        advance,
        (jnp.int32(0), jnp.ones(lanes, bool), state),
    )
    return state, changes


def solve_positions(
    joints: tuple[Joints, Array] | None,
    contacts: Contacts | None,
    position: Array,
    rate: float,
    tolerance: float,
    iterations: int,
) -> tuple[Array, Array]:
    """Corrects positions until all errors are small. Returns them and whether errors are, bool[L].

    Args:
        joints: joints and the states of their limits, int32[J, L]; None without any.
        contacts: the contacts; None without any.
        position: [B, 3, L].
        rate: the share of an overlap that an iteration corrects.
        tolerance: m, the overlap that may remain.
        iterations: the largest number of iterations.
    """

    def correct(carry: tuple) -> tuple:
        i, is_right, position = carry
        new, is_right_now = position, jnp.ones_like(is_right)
        if contacts is not None:

            def lift(_: Array, __: Array, contact: Contacts, motion: Any, least: Array) -> Any:
                motion, separation = behind_barrier(partial(place_contact, contact, rate), motion)
                return motion, jnp.minimum(least, separation)

            new, least = _for_contacts(contacts, lift, new, jnp.zeros_like(new[0, 0]))
            is_right_now &= least >= -tolerance
        if joints is not None:
            table, limits = joints

            def join(j: Array, joint: Joints, a: Any, b: Any, is_right: Array) -> Any:
                place_one = partial(place_joint, joint, at_index(limits, j))
                is_placed, a, b = behind_barrier(place_one, a, b)
                return a, b, is_right & is_placed

            new, is_right_now = _for_joints(table, join, new, is_right_now)
        return i + 1, is_right | is_right_now, jnp.where(is_right[None, None], position, new)

    def advance(carry: tuple) -> tuple:
        i, is_right, _, position = carry
        _, is_right, new = loops.while_loop(
            lambda carry: (carry[0] < burst) & ~jnp.all(carry[1]),
            correct,
            (jnp.int32(0), is_right, position),
        )
        ends = is_right | jnp.all(position == new, axis=(0, 1))
        return i + burst, is_right, ends, new

    burst = min(PLACE_BURST, iterations)
    none = jnp.zeros(position.shape[-1], bool)
    _, is_right, _, position = loops.while_loop(
        lambda carry: (carry[0] < iterations) & ~jnp.all(carry[2]),
        advance,
        (jnp.int32(0), none, none, position),
    )
    return position, is_right
