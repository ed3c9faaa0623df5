"""Sums over blocks of numbers, and sums of these sums: to draw in proportion, among many.

flashbax has a binary sum tree, which adds differences to all nodes above a leaf. Here the nodes
above are summed anew from those below, so that rounding does not add up over a training, a leaf
set to 0 leaves nothing behind, and leaves named twice need no care; a node has many children, so
that there are few levels, each of which is one operation on a batch.
"""

import chex
import jax
import jax.numpy as jnp

FANOUT = 8  # children of a node: the more, the fewer levels, and the more of each are read

Tree = tuple[jax.Array, ...]  # leaves first; float32[FANOUT * nodes of the next level] each


def empty(size: int) -> Tree:
    """A tree of `size` zeros."""
    levels = []
    while True:
        nodes = -(-size // FANOUT)
        levels.append(jnp.zeros(nodes * FANOUT, jnp.float32))
        if nodes == 1:
            return tuple(levels)
        size = nodes


def total(tree: Tree) -> jax.Array:
    """float32[], the sum of all leaves."""
    return tree[-1].sum()


def with_leaves(tree: Tree, leaves: jax.Array, nodes: jax.Array) -> Tree:
    """The tree over other leaves, which differ in blocks `nodes`, int32[K], alone."""
    levels = [leaves]
    for level in tree[1:]:
        sums = levels[-1].reshape(-1, FANOUT).at[nodes].get(mode="promise_in_bounds").sum(axis=1)
        levels.append(level.at[nodes].set(sums, mode="promise_in_bounds"))
        nodes = nodes // FANOUT
    return tuple(levels)


def draw(tree: Tree, key: chex.PRNGKey, count: int) -> jax.Array:
    """int32[count] leaves, each with a probability in proportion to it; with replacement.

    Each level takes a random number of its own: one for all would have too few bits to single out
    one of millions of leaves with the right probability.
    """
    uniform = jax.random.uniform(key, (len(tree), count), jnp.float32)
    node = jnp.zeros((count,), jnp.int32)
    for level, fraction in zip(reversed(tree), uniform, strict=True):
        blocks = level.reshape(-1, FANOUT).at[node].get(mode="promise_in_bounds")
        node = node * FANOUT + _pick(blocks, fraction)
    return node


def _pick(blocks: jax.Array, fraction: jax.Array) -> jax.Array:
    """The child of each block in which the fraction of its sum falls; never one that is zero."""
    children = blocks.T
    goal = fraction * sum(children[1:], children[0])
    chosen = jnp.zeros(goal.shape, jnp.int32)
    before = jnp.zeros_like(goal)
    for number, child in enumerate(children):
        chosen = jnp.where((child > 0) & (before <= goal), number, chosen)
        before += child
    return chosen
