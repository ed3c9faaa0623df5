"""A ring buffer of the transitions of N instances, in order of time."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs.errors import TrainingError
from jaxenvs.training.types import Transition


@chex.dataclass(frozen=True)
class Ring:
    """A ring buffer; step t of all instances is in row `t % L`.

    `time` does not depend on data. Under `vmap` over seeds it therefore stays a single number, and
    writing a row stays a single copy.
    """

    steps: Transition  # [L, N, ...]
    time: jax.Array  # int32[], steps per instance so far

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows L and of instances N."""
        length, num_envs = self.steps.reward.shape
        return length, num_envs

    @property
    def num_rows(self) -> int:
        """The number of transitions that fit, L * N."""
        return self.steps.reward.size


def empty(transition: Transition, capacity: int, *, beyond: int = 0) -> Ring:
    """Returns a buffer for at least `capacity` transitions; L is a multiple of the unroll length.

    Args:
        transition: an unroll of [T, N, ...]; only shapes and dtypes matter.
        capacity: the minimum number of transitions, of all instances together.
        beyond: the minimum number of rows in addition to those of one unroll.
    """
    unroll_length, num_envs = transition.reward.shape
    rows = max(-(-capacity // num_envs), unroll_length + beyond)
    rows = -(-rows // unroll_length) * unroll_length
    steps = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), transition)
    return Ring(steps=steps, time=jnp.zeros((), jnp.int32))


def push(ring: Ring, unroll: Transition) -> Ring:
    """Writes the next T steps, where T is the unroll length for which the ring was made."""
    (length, num_envs), shape = ring.shape, unroll.reward.shape
    if shape[1] != num_envs or length % shape[0]:
        raise TrainingError(
            f"a storage of {length} rows of {num_envs} instances got an unroll of"
            f" {shape[0]} steps of {shape[1]} instances.\n"
            "  All unrolls must have the shape with which the storage was initialized."
        )
    steps = jax.tree.map(lambda x, new: write(x, new, ring.time), ring.steps, unroll)
    # Without a barrier, XLA fuses the write into small reads of the old memory, and copies the
    # whole memory for them.
    steps = jax.lax.optimization_barrier(steps)
    return Ring(steps=steps, time=ring.time + shape[0])


def truncate(ring: Ring) -> Ring:
    """Truncates the episode of each instance at its newest step, unless it ended there.

    If the ring is empty, the affected row is overwritten before it is read.
    """
    steps, newest = ring.steps, (ring.time - 1) % ring.shape[0]
    truncated = steps.truncated.at[newest].set(steps.truncated[newest] | ~steps.terminated[newest])
    return Ring(steps=steps.replace(truncated=truncated), time=ring.time)


def write(rows: jax.Array, new: jax.Array, time: jax.Array) -> jax.Array:
    """Writes [T, N, ...] into rows [L, N, ...] at step `time`, in place."""
    return jax.lax.dynamic_update_slice_in_dim(rows, new, time % rows.shape[0], axis=0)


def take(rows: chex.ArrayTree, time: jax.Array, instance: jax.Array) -> chex.ArrayTree:
    """Reads [L, N, ...] arrays at steps `time` of `instance`, integers of one shape."""

    def pick(x: jax.Array) -> jax.Array:
        return x.at[time % x.shape[0], instance].get(mode="promise_in_bounds")

    return jax.tree.map(pick, rows)
