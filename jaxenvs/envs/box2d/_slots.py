"""Contacts that persist from step to step.

Source: E. Catto, Box2D 2.3: b2Contact.cpp, b2ContactManager.cpp.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxenvs.envs.box2d._geometry import Array, Manifold

EDGE, RANK, COUNT, ID = 0, 1, 2, 3  # columns of `WorldState.contacts`


class Slots(NamedTuple):
    """The contacts of bodies, [K, B, L] each."""

    edge: Array  # int32
    rank: Array  # int32
    number: Array  # int32
    ids: tuple[Array, Array]  # int32
    impulses: Array  # float32[K, 4, B, L]


def read(contacts: Array, impulses: Array) -> Slots:
    """Returns the contacts [N, B, K, ...] in slots, newest first."""
    edge, rank, count, *ids = jnp.transpose(contacts, (3, 2, 1, 0))
    slots = Slots(edge, rank, count, tuple(ids), jnp.transpose(impulses, (2, 3, 1, 0)))
    return take(slots, jnp.argsort(-rank, axis=0, stable=True))


def write(slots: Slots) -> tuple[Array, Array]:
    """Returns contacts and impulses as `read` takes them."""
    table = jnp.stack([slots.edge, slots.rank, slots.number, *slots.ids])
    return jnp.transpose(table, (3, 2, 1, 0)), jnp.transpose(slots.impulses, (3, 2, 0, 1))


def take(tree: Any, order: Array) -> Any:
    """Reorders the slots of arrays [K, B, L] or [K, 4, B, L]."""
    return jax.tree.map(
        lambda x: jnp.take_along_axis(x, order if x.ndim == 3 else order[:, None], axis=0), tree
    )


def touching_first(count: Array, tree: Any) -> Any:
    """Moves slots with points to the front."""
    return take(tree, jnp.argsort(count == 0, axis=0, stable=True))


def update(slots: Slots, manifold: Manifold, mask: Array) -> tuple[Slots, Array, Array]:
    """Gives the contacts in `mask` new manifolds; points with old ids keep their impulses.

    Returns the contacts, which began, and which ended.
    """
    count = jnp.where(slots.rank >= 0, manifold.number, 0)
    impulses = []
    for column in (0, 2):
        one, two = slots.impulses[:, column], slots.impulses[:, column + 1]
        for i, id in enumerate(manifold.ids):
            known = jnp.where(
                (slots.number > 0) & (id == slots.ids[0]),
                one,
                jnp.where((slots.number > 1) & (id == slots.ids[1]), two, 0),
            )
            impulses.append(jnp.where(count > i, known, 0))
    ids = tuple(jnp.where(count > i, id, -1) for i, id in enumerate(manifold.ids))
    new = slots._replace(number=count, ids=ids, impulses=jnp.stack(impulses, axis=1))
    new = jax.tree.map(
        lambda a, b: jnp.where(mask if a.ndim == 3 else mask[:, None], a, b), new, slots
    )
    return new, (slots.number == 0) & (new.number > 0), (slots.number > 0) & (new.number == 0)


def last_event(touches: Array, begins: Array, ends: Array) -> Array:
    """Returns whether a body's last event is a beginning, as Gymnasium's listeners see it."""
    for begin, end in zip(begins, ends, strict=True):
        touches = (touches | begin) & ~end
    return touches
