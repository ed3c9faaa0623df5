"""Curricula: pure objects that decide which levels a policy plays next.

    state = curriculum.init(env, num_envs)
    state, draw = curriculum.sample(env, state, key, num_envs)  # the levels
    state = curriculum.update(state, draw, steps)  # what the policy did there

`make_train(..., curriculum=...)` calls these functions in each update; a loop of your own can, too.
"""

import abc
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.core import Environment
from jaxenvs.errors import TrainingError
from jaxenvs.training.curricula.buffer import BufferState, LevelBuffer
from jaxenvs.training.curricula.scores import LevelSteps, Score, max_return, score
from jaxenvs.training.ranges import Count, Fraction

NEW, REPLAY, MUTATION = range(3)  # where the levels of an update come from


@chex.dataclass(frozen=True)
class Draw:
    """The N levels of an update."""

    levels: Any  # [N, ...]
    learns: jax.Array  # bool[], whether the policy learns from them


class Curriculum(abc.ABC):
    """Decides in which levels N instances play during an update.

    In each update, instance i plays episodes of level i only, from its beginning. A subclass is a
    pytree of settings, decorated with `struct.pytree_dataclass`. What changes is in the state.
    """

    @abc.abstractmethod
    def init(self, env: Environment, num_envs: int) -> Any:
        """Returns the state before the first update. `env` is a single instance."""

    @abc.abstractmethod
    def sample(
        self, env: Environment, state: Any, key: chex.PRNGKey, num_envs: int
    ) -> tuple[Any, Draw]:
        """Draws the N levels of the next update. Returns the state and the levels."""

    @abc.abstractmethod
    def update(self, state: Any, draw: Draw, steps: LevelSteps) -> Any:
        """Returns the state after the policy played in the levels of `draw`."""

    def metrics(self, state: Any) -> dict[str, jax.Array]:
        """Returns numbers to report, float32[] each."""
        del state
        return {}


def new_levels(env: Environment, key: chex.PRNGKey, num_envs: int) -> Any:
    """Returns the levels of N resets, [N, ...]."""
    return jax.vmap(env.level)(jax.random.split(key, num_envs))


def _blank(env: Environment, number: int) -> Any:
    """Returns `number` levels, all the same."""
    return jax.tree.map(lambda x: x[jnp.zeros(number, int)], new_levels(env, jax.random.key(0), 1))


@struct.pytree_dataclass
class DomainRandomization(Curriculum):
    """New random levels in each update, the baseline of other curricula."""

    def init(self, env: Environment, num_envs: int) -> Any:
        return ()

    def sample(
        self, env: Environment, state: Any, key: chex.PRNGKey, num_envs: int
    ) -> tuple[Any, Draw]:
        return state, Draw(levels=new_levels(env, key, num_envs), learns=jnp.bool_(True))

    def update(self, state: Any, draw: Draw, steps: LevelSteps) -> Any:
        return state


@chex.dataclass(frozen=True)
class ReplayState:
    """The state of `PrioritizedLevelReplay` and `ACCEL`."""

    buffer: BufferState
    kind: jax.Array  # int32[], of the last update: NEW, REPLAY, or MUTATION
    levels: Any  # [N, ...], of the last update
    rows: jax.Array  # int32[N], their rows in the buffer if `kind` is REPLAY


@struct.pytree_dataclass
class PrioritizedLevelReplay(Curriculum):
    """Replays the levels from which there is most to learn: PLR and robust PLR.

    Each update plays either N new levels or, with `replay_probability` once the buffer is filled,
    N levels of a `LevelBuffer`. The scores of all are noted. Robust PLR, the default, learns from
    levels of the buffer only.

    Source: M. Jiang et al., Prioritized Level Replay, 2021; M. Jiang et al., Replay-Guided
    Adversarial Environment Design, 2021, for the robust form.

    Raises:
        TrainingError: the buffer has room for fewer than N levels.
    """

    buffer: LevelBuffer = LevelBuffer()
    score: Score = struct.static("positive_value_loss")
    replay_probability: Fraction = 0.5
    min_fill: Fraction = 0.5  # the part of the buffer that is filled before levels are replayed
    robust: bool = struct.static(True)  # learn from replayed levels only

    def init(self, env: Environment, num_envs: int) -> ReplayState:
        if self.buffer.capacity < num_envs:
            raise TrainingError(
                f"{type(self).__name__} got num_envs={num_envs} and a buffer for"
                f" {self.buffer.capacity} levels.  Use a LevelBuffer with a capacity of at least"
                f" {num_envs}."
            )
        levels = _blank(env, num_envs)
        return ReplayState(
            buffer=self.buffer.init(levels),
            kind=jnp.int32(NEW),
            levels=levels,
            rows=jnp.zeros(num_envs, jnp.int32),
        )

    def sample(
        self, env: Environment, state: ReplayState, key: chex.PRNGKey, num_envs: int
    ) -> tuple[ReplayState, Draw]:
        coin_key, draw_key = jax.random.split(key)
        least = jnp.maximum(jnp.ceil(self.min_fill * np.float32(self.buffer.capacity)), num_envs)
        coin = jax.random.uniform(coin_key, (), jnp.float32)
        replays = (state.buffer.size >= least.astype(jnp.int32)) & (coin < self.replay_probability)
        kind = self._next_kind(state, replays)

        def replay() -> tuple[BufferState, jax.Array, Any]:
            buffer, rows = self.buffer.draw(state.buffer, draw_key, num_envs)
            return buffer, rows, jax.tree.map(lambda x: x[rows], buffer.levels)

        def make() -> tuple[BufferState, jax.Array, Any]:
            levels = self._make(env, state, kind, draw_key, num_envs)
            return state.buffer, state.rows, levels

        buffer, rows, levels = loops.cond(kind == REPLAY, replay, make)
        learns = (kind == REPLAY) | ((kind == NEW) & (not self.robust))
        state = ReplayState(buffer=buffer, kind=kind, levels=levels, rows=rows)
        return state, Draw(levels=levels, learns=learns)

    def update(self, state: ReplayState, draw: Draw, steps: LevelSteps) -> ReplayState:
        found, is_replay = max_return(steps), state.kind == REPLAY
        best = jnp.where(is_replay, jnp.maximum(found, state.buffer.best[state.rows]), found)
        scores = score(self.score, steps, best)
        buffer = loops.cond(
            is_replay,
            lambda: self.buffer.update(state.buffer, state.rows, scores, best),
            lambda: self.buffer.insert(state.buffer, draw.levels, scores, best),
        )
        return struct.replace(state, buffer=buffer)

    def metrics(self, state: ReplayState) -> dict[str, jax.Array]:
        return {
            "replayed": (state.kind == REPLAY).astype(jnp.float32),
            "buffer_size": state.buffer.size.astype(jnp.float32),
            "buffer_score": _mean_score(state.buffer.score),
        }

    def _next_kind(self, state: ReplayState, replays: jax.Array) -> jax.Array:
        del state
        return jnp.where(replays, jnp.int32(REPLAY), jnp.int32(NEW))

    def _make(
        self, env: Environment, state: ReplayState, kind: jax.Array, key: Any, num_envs: int
    ) -> Any:
        """Returns N levels that are not from the buffer."""
        del state, kind
        return new_levels(env, key, num_envs)


@struct.pytree_dataclass
class ACCEL(PrioritizedLevelReplay):
    """Robust PLR that also changes the levels it has replayed, and keeps changes that score high.

    After each update on replayed levels, the next one plays changed copies of them, without
    learning. `mutate(level, key) -> level` changes one, such as `jaxenvs.envs.minigrid.maze.mutate`
    or the method `mutate` of `RandomizeParameters`.

    Source: J. Parker-Holder et al., Evolving Curricula with Regret-Based Environment Design, 2022.
    """

    mutate: Callable[[Any, chex.PRNGKey], Any] = struct.static(kw_only=True)
    replay_probability: Fraction = 0.8

    def _next_kind(self, state: ReplayState, replays: jax.Array) -> jax.Array:
        other = super()._next_kind(state, replays)
        return jnp.where(state.kind == REPLAY, jnp.int32(MUTATION), other)

    def _make(
        self, env: Environment, state: ReplayState, kind: jax.Array, key: Any, num_envs: int
    ) -> Any:
        def change() -> Any:
            return jax.vmap(self.mutate)(state.levels, jax.random.split(key, num_envs))

        return loops.cond(kind == MUTATION, change, lambda: new_levels(env, key, num_envs))


@chex.dataclass(frozen=True)
class LearnabilityState:
    """The state of `SamplingForLearnability`."""

    updates: jax.Array  # int32[], so far
    levels: Any  # [K, ...], to train in
    found: Any  # [K, ...], the best of those tried since the last choice
    score: jax.Array  # float32[K], of `found`


@struct.pytree_dataclass
class SamplingForLearnability(Curriculum):
    """Trains half of the instances in the levels that the policy solves sometimes: SFL.

    It tries `num_candidates` new levels without learning, rounded up to whole updates, and keeps
    those with the highest p (1 - p), where p is the fraction of episodes with a positive return.
    Then it trains for `period` updates, half of the instances in levels that were kept and half in
    new ones, and begins again. Steps in candidates are steps of the training, too.

    Source: A. Rutherford et al., No Regrets: Investigating and Improving Regret Approximations for
    Curriculum Discovery, 2024.
    """

    num_kept: Count = struct.static(1_000)
    num_candidates: Count = struct.static(5_000)
    period: Count = struct.static(50)  # updates of training between two choices

    def init(self, env: Environment, num_envs: int) -> LearnabilityState:
        levels = _blank(env, self.num_kept)
        return LearnabilityState(
            updates=jnp.int32(0),
            levels=levels,
            found=levels,
            score=jnp.full(self.num_kept, -jnp.inf, jnp.float32),
        )

    def sample(
        self, env: Environment, state: LearnabilityState, key: chex.PRNGKey, num_envs: int
    ) -> tuple[LearnabilityState, Draw]:
        new_key, kept_key = jax.random.split(key)
        tries, place = self._place(state.updates, num_envs)
        kept = struct.select(
            jnp.broadcast_to(place == tries, self.num_kept), state.found, state.levels
        )
        rows = jax.random.randint(kept_key, (num_envs,), 0, self.num_kept)
        learns = place >= tries
        levels = struct.select(
            learns & (jnp.arange(num_envs) < num_envs // 2),
            jax.tree.map(lambda x: x[rows], kept),
            new_levels(env, new_key, num_envs),
        )
        return struct.replace(state, levels=kept), Draw(levels=levels, learns=learns)

    def update(self, state: LearnabilityState, draw: Draw, steps: LevelSteps) -> LearnabilityState:
        def compare() -> tuple[Any, jax.Array]:
            tried = score("learnability", steps, max_return(steps))
            before = jnp.where(place == 0, -jnp.inf, state.score)
            best, rows = jax.lax.top_k(jnp.concatenate([before, tried]), self.num_kept)
            both = jax.tree.map(
                lambda x, y: jnp.concatenate([x, y])[rows], state.found, draw.levels
            )
            return both, best

        tries, place = self._place(state.updates, steps.done.shape[1])
        found, best = loops.cond(place < tries, compare, lambda: (state.found, state.score))
        return struct.replace(state, updates=state.updates + 1, found=found, score=best)

    def metrics(self, state: LearnabilityState) -> dict[str, jax.Array]:
        return {"buffer_score": _mean_score(state.score)}

    def _place(self, updates: jax.Array, num_envs: int) -> tuple[int, jax.Array]:
        """Returns how many updates try candidates, and the place of this one in the period."""
        tries = -(-self.num_candidates // num_envs)
        return tries, updates % (tries + self.period)


def _mean_score(scores: jax.Array) -> jax.Array:
    """Returns the mean of the scores that are not -inf; NaN if all are."""
    return jnp.mean(scores, where=jnp.isfinite(scores))
