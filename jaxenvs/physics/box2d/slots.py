"""Contacts persist from step to step in slots.

Source: E. Catto, Box2D 2.3: b2Contact.cpp, b2ContactManager.cpp.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxenvs.physics.box2d.geometry import Array
from jaxenvs.physics.box2d.manifolds import Manifold

PART, RANK, COUNT = 0, 1, 2  # columns of `WorldState.contacts`


class Slots(NamedTuple):
    """The contacts of bodies, [K, B, L] each."""

    part: Array  # int32, the number of the part of the ground
    rank: Array  # int32, the number of older contacts, or -1 without a contact
    number: Array  # int32, of touching points
    ids: tuple[Array, Array]  # int32, of the points
    impulses: Array  # float32[K, B, 4, L]


def read(contacts: Array, impulses: Array) -> Slots:
    """Returns contacts [N, B, K, ...] as slots."""
    part, rank, count, *ids = jnp.transpose(contacts, (3, 2, 1, 0))
    return Slots(part, rank, count, tuple(ids), jnp.transpose(impulses, (2, 1, 3, 0)))  # pyright: ignore[reportArgumentType]


def write(slots: Slots) -> tuple[Array, Array]:
    """Returns contacts and impulses, the inverse of `read`."""
    table = jnp.stack([slots.part, slots.rank, slots.number, *slots.ids])
    return jnp.transpose(table, (3, 2, 1, 0)), jnp.transpose(slots.impulses, (3, 1, 0, 2))


def in_order(count: Array, rank: Array, tree: Any) -> Any:
    """Sorts slots of arrays [K, B, L] or [K, B, 4, L] into the order in which they are solved.

    Those with points come first, and of these, the newest, which have the highest rank.
    """
    order = jnp.argsort(jnp.where(count > 0, -rank, len(rank)), axis=0, stable=True)
    return jax.tree.map(
        lambda x: jnp.take_along_axis(x, order if x.ndim == 3 else order[:, :, None], axis=0), tree
    )


def update(slots: Slots, manifold: Manifold, mask: Array) -> tuple[Slots, Array, Array]:
    """Gives the contacts in `mask` new manifolds; points with old ids keep their impulses.

    Returns the contacts, and bool[K, B, L], which contacts began and which ended.
    """
    count = jnp.where(slots.rank >= 0, manifold.number, 0)
    impulses = []
    for column in (0, 2):
        one, two = slots.impulses[:, :, column], slots.impulses[:, :, column + 1]
        for i, id in enumerate(manifold.ids):
            known = jnp.where(
                (slots.number > 0) & (id == slots.ids[0]),
                one,
                jnp.where((slots.number > 1) & (id == slots.ids[1]), two, 0),
            )
            impulses.append(jnp.where(count > i, known, 0))
    ids = tuple(jnp.where(count > i, id, -1) for i, id in enumerate(manifold.ids))
    new = slots._replace(number=count, ids=ids, impulses=jnp.stack(impulses, axis=2))
    new = jax.tree.map(
        lambda a, b: jnp.where(mask if a.ndim == 3 else mask[:, :, None], a, b), new, slots
    )
    return new, (slots.number == 0) & (new.number > 0), (slots.number > 0) & (new.number == 0)


def last_event(
    touches: jax.Array, rank: jax.Array, begins: jax.Array, ends: jax.Array
) -> jax.Array:
    """Returns whether the last event of a body is a beginning, as Gymnasium's listeners see it.

    Contacts are updated from the highest rank to the lowest. Without an event, `touches` remains.
    """
    is_event = begins | ends
    last = jnp.where(is_event, rank, len(rank) + 1).min(axis=0, keepdims=True)
    began_last = jnp.where(rank == last, begins, False).any(axis=0)
    return jnp.where(is_event.any(axis=0), began_last, touches)
