"""Prioritized experience replay."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.training.ranges import Count, Fraction, NotNegative
from jaxenvs.training.storages import _ring, _sum_tree
from jaxenvs.training.storages._ring import Ring
from jaxenvs.training.storages._windows import n_step_returns, newest_can_start
from jaxenvs.training.storages.storage import ReplayStorage
from jaxenvs.training.types import Sample, Transition


@chex.dataclass(frozen=True)
class PrioritizedState:
    ring: Ring
    tree: _sum_tree.Tree  # priorities by index, row * N + instance; 0 if it cannot be drawn
    largest: jax.Array  # float32[], the largest priority so far, initially 1


@struct.pytree_dataclass
class PrioritizedReplay(ReplayStorage):
    """A memory of the last `capacity` transitions; step i has the probability P(i) = p(i) / sum p.

    The priority p(i) = (|TD error| + epsilon)^alpha uses the error from the last time that step i
    was drawn; before that, p(i) is the largest priority so far. The loss of a row is weighted by
    (size P(i))^-beta, divided by the largest such weight in the batch; beta rises linearly to
    `final_beta`. Rows are drawn independently, not stratified. Windows and memory use are those of
    `Replay`; priorities add 4 bytes per transition.

    Source: T. Schaul et al., Prioritized Experience Replay, 2016, section 3.
    """

    capacity: Count = struct.static(100_000)  # transitions, of all instances together
    n_step: Count = struct.static(1)  # rewards summed before the critic's value
    alpha: NotNegative = 0.6  # 0 draws uniformly, 1 in proportion to the error
    beta: Fraction = 0.4  # initial correction for non-uniform sampling; 1 corrects fully
    final_beta: Fraction = 1.0  # beta after `beta_steps`
    beta_steps: Count = 200_000  # environment steps over which beta rises linearly
    epsilon: NotNegative = 1e-6  # lets rows without error be drawn too

    def init(self, transition: Transition) -> PrioritizedState:
        ring = _ring.empty(transition, self.capacity, beyond=self.n_step - 1)
        tree = _sum_tree.empty(ring.num_rows)
        return PrioritizedState(ring=ring, tree=tree, largest=jnp.ones((), jnp.float32))

    def add(self, state: PrioritizedState, unroll: Transition) -> PrioritizedState:
        ring = _ring.push(state.ring, unroll)
        (length, num_envs), unroll_length = ring.shape, unroll.reward.shape[0]
        pending = self.n_step - 1  # older steps whose windows the unroll may complete

        tree = state.tree
        fresh = jnp.full((unroll_length + pending, num_envs), state.largest)
        can_start = newest_can_start(ring, self.n_step)
        fresh = fresh.at[unroll_length:].set(jnp.where(can_start, state.largest, 0.0))
        start = state.ring.time % length * num_envs
        tree = jax.lax.dynamic_update_slice_in_dim(tree, fresh[pending:].ravel(), start, 0)

        first = state.ring.time - pending
        if pending:
            time = first + jnp.arange(pending, dtype=jnp.int32)
            index = time[:, None] % length * num_envs + jnp.arange(num_envs, dtype=jnp.int32)[None]
            known = tree[index]  # not 0 if the episode had ended, so the step can be drawn already
            new = jnp.where(known > 0, known, fresh[:pending])
            tree = tree.at[index].set(jnp.where(time[:, None] >= 0, new, 0.0))

        blocks = -(-ring.num_rows // _sum_tree.FANOUT)
        touched = -(-fresh.size // _sum_tree.FANOUT) + 2  # partial ones at the end and the wrap
        first_block = first % length * num_envs // _sum_tree.FANOUT
        at = (first_block + jnp.arange(min(touched, blocks), dtype=jnp.int32)) % blocks
        tree = _sum_tree.update_sums(tree, ring.num_rows, at)
        return PrioritizedState(ring=ring, tree=tree, largest=state.largest)

    def truncate(self, state: PrioritizedState) -> PrioritizedState:
        # Windows that this completes get their priorities from the next `add`.
        return PrioritizedState(
            ring=_ring.truncate(state.ring), tree=state.tree, largest=state.largest
        )

    def size(self, state: PrioritizedState) -> jax.Array:
        ring = state.ring
        whole = jnp.maximum(jnp.minimum(ring.time, ring.shape[0]) - (self.n_step - 1), 0)
        newest = newest_can_start(ring, self.n_step).sum(dtype=jnp.int32)
        return whole * ring.shape[1] + newest

    def sample(
        self,
        state: PrioritizedState,
        key: chex.PRNGKey,
        batch_size: int,
        *,
        gamma: chex.Numeric,
        steps: chex.Numeric,
    ) -> Sample:
        index, probability = _sum_tree.draw(state.tree, state.ring.num_rows, key, batch_size)
        num_envs = state.ring.shape[1]
        row, instance = index // num_envs, index % num_envs
        done = jnp.minimum(jnp.asarray(steps, jnp.float32) / self.beta_steps, 1.0)
        beta = jnp.asarray(self.beta + (self.final_beta - self.beta) * done, jnp.float32)
        weight = (self.size(state).astype(jnp.float32) * probability) ** -beta
        weight = weight / weight.max()
        return n_step_returns(state.ring, row, instance, self.n_step, gamma=gamma, weight=weight)

    def set_priorities(
        self, state: PrioritizedState, index: jax.Array, error: jax.Array
    ) -> PrioritizedState:
        """Sets priorities, and updates the largest priority so far, which new transitions get.

        If `index` contains a row twice, one of the errors is used. Rows that have been overwritten
        or whose error is NaN keep their priority.
        """
        known = state.tree[index]
        error = jnp.asarray(error, jnp.float32)
        epsilon, alpha = (jnp.asarray(x, jnp.float32) for x in (self.epsilon, self.alpha))
        priority = (jnp.abs(error) + epsilon) ** alpha
        priority = jnp.where((known > 0) & ~jnp.isnan(error), priority, known)
        tree = _sum_tree.update_sums(
            state.tree.at[index].set(priority), state.ring.num_rows, index // _sum_tree.FANOUT
        )
        # Read from the new tree: otherwise XLA may recompute `priority` after the change, for which
        # it copies the old tree.
        largest = jnp.maximum(state.largest, tree[index].max())
        return PrioritizedState(ring=state.ring, tree=tree, largest=largest)
