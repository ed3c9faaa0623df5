"""A sum tree for sampling leaves in proportion to their values.

flashbax has a binary sum tree, which adds differences to all nodes above a leaf. Here the nodes
above a leaf are recomputed from their children, so rounding errors do not accumulate, a leaf set to
0 leaves no residue, and duplicate leaves need no special case. Nodes have many children, so there
are few levels, and each level is one operation on a batch.

All levels are in one array, leaves first, so a loop can descend the tree. If levels were unrolled,
XLA would fuse each with all levels above it and recompute those.
"""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops

FANOUT = 8  # children per node; a larger number means fewer levels, but more reads per level
LEVELS_PER_DRAW = 2  # levels that share a random number

Tree = jax.Array  # float32[FANOUT * blocks]; the children of one node are a block


def empty(size: int) -> Tree:
    """Returns a tree of `size` zeros."""
    return jnp.zeros(FANOUT * sum(_blocks(size)), jnp.float32)


def levels(tree: Tree, size: int) -> list[jax.Array]:
    """Returns the levels, float32[FANOUT * blocks] each: the leaves, their sums, and so on."""
    starts = np.cumsum(_blocks(size))[:-1] * FANOUT
    return jnp.split(tree, starts)


def update_sums(tree: Tree, size: int, blocks: jax.Array) -> Tree:
    """Updates the sums after leaves in `blocks`, int32[K], have changed."""
    starts = _starts(size)
    for start, above in itertools.pairwise(starts):
        below = tree.reshape(-1, FANOUT).at[start + blocks].get(mode="promise_in_bounds")
        at = above * FANOUT + blocks
        tree = tree.at[at].set(below.sum(axis=1), mode="promise_in_bounds")
        blocks = blocks // FANOUT
    return tree


def draw(tree: Tree, size: int, key: chex.PRNGKey, count: int) -> tuple[jax.Array, jax.Array]:
    """Draws leaves in proportion to their values, with replacement.

    Each random number is used for `LEVELS_PER_DRAW` levels. A single number has too few bits to
    draw from millions of leaves with the right probabilities.

    Returns:
        The leaves, int32[count], and the probability with which each was drawn, float32[count].
    """
    starts = _starts(size)[::-1]
    level = np.arange(len(starts))
    uniform = jax.random.uniform(key, (-(-len(starts) // LEVELS_PER_DRAW), count), jnp.float32)

    def descend(carry: tuple[jax.Array, ...], inputs: tuple[jax.Array, ...]) -> tuple:
        block, probability, left = carry
        start, is_new, new = inputs
        children = tree.reshape(-1, FANOUT).at[start + block].get(mode="promise_in_bounds")
        child, share, left = _pick(children, jnp.where(is_new, new, left))
        return (block * FANOUT + child, probability * share, left), None

    first = jnp.zeros((count,), jnp.int32), jnp.ones((count,), jnp.float32), uniform[0]
    inputs = (
        jnp.asarray(starts),
        jnp.asarray(level % LEVELS_PER_DRAW == 0),
        uniform[level // LEVELS_PER_DRAW],
    )
    (leaf, probability, _), _ = loops.scan(descend, first, inputs)
    return leaf, probability


def _pick(blocks: jax.Array, fraction: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the child of each block that contains the fraction of its sum, never one of value 0.

    Also returns the child's share of the sum and the fraction within the child.
    """
    children = blocks.T
    total = sum(children[1:], children[0])
    goal = fraction * total
    chosen = jnp.zeros(goal.shape, jnp.int32)
    before = below = value = jnp.zeros_like(goal)
    for number, child in enumerate(children):
        reached = (child > 0) & (before <= goal)
        chosen = jnp.where(reached, number, chosen)
        value = jnp.where(reached, child, value)
        below = jnp.where(reached, before, below)
        before += child
    return chosen, value / total, (goal - below) / value


def _blocks(size: int) -> list[int]:
    """Returns the number of blocks in each level, leaves first."""
    counts = [-(-size // FANOUT)]
    while counts[-1] > 1:
        counts.append(-(-counts[-1] // FANOUT))
    return counts


def _starts(size: int) -> np.ndarray:
    """Returns the first block of each level, int32[levels], leaves first."""
    counts = _blocks(size)
    return np.cumsum([0, *counts[:-1]], dtype=np.int32)
