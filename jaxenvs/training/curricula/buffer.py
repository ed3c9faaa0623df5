"""A buffer of levels that are replayed by score and staleness."""

from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.training.ranges import Count, Fraction, Positive


@chex.dataclass(frozen=True)
class BufferState:
    """The levels of a `LevelBuffer`; the first `size` of K rows are in use."""

    levels: Any  # [K, ...]
    digest: jax.Array  # uint32[K], hashes of the levels
    score: jax.Array  # float32[K], -inf in rows that are not in use
    best: jax.Array  # float32[K], the largest return ever seen in the level
    drawn: jax.Array  # int32[K], the clock when the level was inserted or last drawn
    size: jax.Array  # int32[]
    clock: jax.Array  # int32[], the number of levels that were drawn or offered so far


@struct.pytree_dataclass
class LevelBuffer:
    """Keeps K levels, and draws them by score and staleness (Jiang et al., 2021).

    The probability of level i is `(1 - staleness) S[i] + staleness C[i]`. S is proportional to
    `(1 / rank)^(1 / temperature)`, where rank 1 has the highest score, or with
    `prioritization="proportional"` to `max(score, 0)^(1 / temperature)`. C is proportional to the
    number of levels that were drawn or offered since level i was drawn last.

    A batch is drawn at once, so its levels differ. One by one, as in other libraries, staleness
    would change after every draw; with batches of one level, both are the same. The same holds for
    a batch of new levels: the one with the i-th highest score replaces the level with the i-th
    lowest probability, if its score is higher.
    """

    capacity: Count = struct.static(4_000)  # K
    prioritization: Literal["rank", "proportional"] = struct.static("rank")
    temperature: Positive = 0.3
    staleness: Fraction = 0.3

    def init(self, levels: Any) -> BufferState:
        """Returns an empty buffer for levels with the shapes of `levels`, [N, ...]."""
        rows = self.capacity
        first = jnp.zeros(rows, jnp.int32)
        return BufferState(
            levels=jax.tree.map(lambda x: x[first], levels),
            digest=jnp.zeros(rows, jnp.uint32),
            score=jnp.full(rows, -jnp.inf, jnp.float32),
            best=jnp.full(rows, -jnp.inf, jnp.float32),
            drawn=jnp.zeros(rows, jnp.int32),
            size=jnp.int32(0),
            clock=jnp.int32(0),
        )

    def probabilities(self, state: BufferState) -> jax.Array:
        """Returns the probability of each row, float32[K]; 0 where there is no level."""
        used = jnp.arange(self.capacity) < state.size
        uniform = used.astype(jnp.float32) / jnp.maximum(state.size, 1).astype(jnp.float32)
        stale = jnp.where(used, jnp.maximum(state.clock - state.drawn, 0), 0).astype(jnp.float32)
        by_staleness = jnp.where(stale.any(), stale / jnp.maximum(stale.sum(), 1.0), uniform)
        if self.prioritization == "rank":
            order = jnp.argsort(-state.score)
            ranks = jnp.arange(1, self.capacity + 1, dtype=jnp.float32)
            weight = 1 / jnp.zeros_like(ranks).at[order].set(ranks)
        else:
            weight = jnp.maximum(state.score, 0.0)
        weight = jnp.where(used, weight ** (1 / self.temperature), 0.0)
        total = weight.sum()
        by_score = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1.0), uniform)
        return (1 - self.staleness) * by_score + self.staleness * by_staleness

    def draw(
        self, state: BufferState, key: chex.PRNGKey, number: int
    ) -> tuple[BufferState, jax.Array]:
        """Draws `number` different levels. Returns the state and their rows, int32[number].

        If the buffer has fewer levels, the result contains rows without a level.
        """
        gumbel = jax.random.gumbel(key, (self.capacity,), jnp.float32)
        _, rows = jax.lax.top_k(jnp.log(self.probabilities(state)) + gumbel, number)
        time = state.clock + jnp.arange(1, number + 1, dtype=jnp.int32)
        return struct.replace(state, drawn=state.drawn.at[rows].set(time), clock=time[-1]), rows

    def update(
        self, state: BufferState, rows: jax.Array, score: jax.Array, best: jax.Array
    ) -> BufferState:
        """Sets the scores of levels; a score of -inf, of no episode, changes nothing.

        Args:
            state: the buffer.
            rows: int32[N]; K or more for none.
            score: float32[N].
            best: float32[N], the largest returns of these levels.
        """
        rows = jnp.where(score > -jnp.inf, rows, jnp.int32(self.capacity))
        return struct.replace(
            state,
            score=state.score.at[rows].set(score, mode="drop"),
            best=state.best.at[rows].max(best, mode="drop"),
        )

    def insert(
        self, state: BufferState, levels: Any, score: jax.Array, best: jax.Array
    ) -> BufferState:
        """Offers N new levels to the buffer, N at most K.

        A level that is in the buffer already gets the new score. Of equal levels in the batch, the
        one with the highest score counts. A score of -inf, of no episode, is not inserted.

        Args:
            state: the buffer.
            levels: [N, ...].
            score: float32[N].
            best: float32[N], the largest return seen in each.
        """
        number = score.shape[0]
        order = jnp.argsort(-score)
        levels, score, best = jax.tree.map(lambda x: x[order], (levels, score, best))
        time = state.clock + 1 + order.astype(jnp.int32)
        digest = digest_of(levels)
        score = jnp.where(_are_repeated(levels, digest), -jnp.inf, score)
        known = self._find(state, levels, digest)
        is_known = known < self.capacity
        state = self.update(state, known, score, best)
        rows_known = jnp.where(score > -jnp.inf, known, jnp.int32(self.capacity))
        drawn = state.drawn.at[rows_known].set(time, mode="drop")
        state = struct.replace(state, drawn=drawn)

        # Best first, without those that are in the buffer.
        offered = jnp.where(is_known, -jnp.inf, score)
        order = jnp.argsort(-offered)
        used = jnp.arange(self.capacity) < state.size
        probability = jnp.where(used, self.probabilities(state), -1.0)
        _, lowest = jax.lax.top_k(-probability, number)
        rows = jnp.where(offered[order] > state.score[lowest], lowest, self.capacity)

        def put(old: jax.Array, new: jax.Array) -> jax.Array:
            return old.at[rows].set(new[order], mode="drop")

        is_new = (rows < self.capacity) & (rows >= state.size)
        return struct.replace(
            state,
            levels=jax.tree.map(put, state.levels, levels),
            digest=put(state.digest, digest),
            score=put(state.score, score),
            best=put(state.best, best),
            drawn=put(state.drawn, time),
            size=state.size + is_new.sum(dtype=jnp.int32),
            clock=state.clock + number,
        )

    def _find(self, state: BufferState, levels: Any, digest: jax.Array) -> jax.Array:
        """Returns the rows of levels that are in the buffer, int32[N]; K for the others."""
        used = jnp.arange(self.capacity) < state.size
        known = jnp.where(used, state.digest, np.uint32(2**32 - 1))
        order = jnp.argsort(known)
        place = jnp.searchsorted(known[order], digest)
        row = order[jnp.minimum(place, self.capacity - 1)]
        is_same = used[row] & _equal_rows(jax.tree.map(lambda x: x[row], state.levels), levels)
        return jnp.where(is_same, row, self.capacity).astype(jnp.int32)


def digest_of(levels: Any) -> jax.Array:
    """Returns a hash of each of N levels, uint32[N]."""
    total: Any = np.uint32(0)
    for i, words in enumerate(_words(levels)):
        odd = np.random.RandomState(i).randint(
            0, 2**32, (1, words.shape[1]), np.uint32
        ) | np.uint32(1)
        mixed = (words ^ (words >> np.uint32(15))) * odd
        total = total + (mixed ^ (mixed >> np.uint32(13))).sum(1, dtype=jnp.uint32)
    total = (total ^ (total >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    return total ^ (total >> np.uint32(13))


def _words(levels: Any) -> list[jax.Array]:
    """Returns the leaves of N levels as uint32[N, ...] each."""
    found = []
    for leaf in jax.tree.leaves(levels):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        elif jnp.issubdtype(leaf.dtype, np.floating):
            leaf = jax.lax.bitcast_convert_type(leaf.astype(jnp.float32), jnp.uint32)
        found.append(leaf.astype(jnp.uint32).reshape(leaf.shape[0], -1))
    return found


def _equal_rows(levels: Any, others: Any) -> jax.Array:
    """Returns which of N levels equal the others, bool[N]."""
    pairs = zip(_words(levels), _words(others), strict=True)
    return jnp.stack([(one == other).all(1) for one, other in pairs]).all(0)


def _are_repeated(levels: Any, digest: jax.Array) -> jax.Array:
    """Returns which of N levels equal one before them, bool[N]."""
    order = jnp.argsort(digest)  # stable, so that the first of equal ones stays the first
    rows = jax.tree.map(lambda x: x[order], levels)
    before = jax.tree.map(lambda x: x[jnp.maximum(jnp.arange(len(order)) - 1, 0)], rows)
    repeated = _equal_rows(rows, before) & (jnp.arange(len(order)) > 0)
    return jnp.zeros_like(repeated).at[order].set(repeated)
