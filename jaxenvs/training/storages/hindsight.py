"""Hindsight experience replay, which replaces desired goals by goals that were achieved."""

from collections.abc import Callable, Iterator
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp

from jaxenvs import prng, struct
from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError, closest
from jaxenvs.training.ranges import Count
from jaxenvs.training.storages import _ring
from jaxenvs.training.storages._ring import Ring
from jaxenvs.training.storages.storage import ReplayStorage
from jaxenvs.training.types import Sample, Transition

STRATEGIES = ("final", "future", "episode")


@chex.dataclass(frozen=True)
class HindsightState:
    ring: Ring
    episode: jax.Array  # int32[L, N], the number of the episode that a step belongs to
    ends: jax.Array  # int32[L + 1, N], the last step of episode e in row e % (L + 1); -1 if none
    finished: jax.Array  # int32[N], episodes so far


@struct.pytree_dataclass
class HindsightReplay(ReplayStorage):
    """A replay memory for tasks with goals that relabels transitions with achieved goals.

    Observations are dicts with the three entries named below. Each transition of a finished
    episode can be drawn unchanged, and once per strategy with another goal that was achieved

        "final"    by the last step of its episode
        "future"   by a step drawn uniformly from this one to the last
        "episode"  by a step drawn uniformly from the whole episode

    The goal that a step achieved is the achieved goal of its `next_observation`. Under the new
    goal, the reward and the termination of the step are recomputed. If it does not terminate, the
    critic's value of the next observation is used, even at the end of the episode. Rows are single
    transitions, so it does not matter that an episode continues after the new goal was reached.
    `compute_terminated` only considers terminations by goals, not those for other reasons.

    A transition can be drawn after the unroll that finishes its episode, until the first step of
    the episode is overwritten. Its new goal is a function of the position in memory, `STRATEGIES`
    and a fixed key, so it never changes. Goals, rewards and terminations are computed for drawn
    rows only, and relabeling needs 8 bytes per transition. An episode longer than the L steps that
    are kept per instance is never drawn. If `time_limit` is set, `init` checks that L is large
    enough.

    Source: M. Andrychowicz et al., Hindsight Experience Replay, 2017.
    """

    capacity: Count = struct.static(100_000)  # transitions of all instances, without relabeled ones
    strategies: tuple[str, ...] = struct.static(("final", "future"))
    compute_reward: Callable[[Any, Any], jax.Array] | None = struct.static(None)
    compute_terminated: Callable[[Any, Any], jax.Array] | None = struct.static(None)
    time_limit: Count | None = struct.static(None)  # steps; None does not check
    observation: str = struct.static("observation")
    achieved_goal: str = struct.static("achieved_goal")
    desired_goal: str = struct.static("desired_goal")

    def bind(self, env: VectorEnv) -> Self:
        """Returns a copy that uses `compute_reward` and `compute_terminated` of `env` by default.

        They are taken from the outermost layer of `env` that has them. Both take `(achieved_goal,
        desired_goal)` of one step and return float32[] and bool[]. `time_limit` becomes that of
        `env` if it is a single number.

        Raises:
            TrainingError: no layer has one of these methods.
        """
        if isinstance(self.strategies, str):
            raise TrainingError(
                f'HindsightReplay got strategies="{self.strategies}"; expected a tuple,'
                f' such as ("{self.strategies}",).'
            )
        layers = list(_layers(env))
        names = ("compute_reward", "compute_terminated")
        found = {name: getattr(self, name) or _outermost(layers, name) for name in names}
        missing = [name for name in names if found[name] is None]
        if missing:
            raise TrainingError(
                f"{type(layers[-1]).__name__} has no {' and no '.join(missing)}, which"
                " HindsightReplay calls with (achieved_goal, desired_goal).\n"
                "  Give the environment these methods, or pass functions to HindsightReplay."
            )
        limit = self.time_limit or _outermost(layers, "time_limit")
        limit = limit if isinstance(limit, int) else None  # an array has one limit per instance
        return struct.replace(self, **found, time_limit=limit)

    def init(self, transition: Transition) -> HindsightState:
        """Returns an empty memory; raises `TrainingError` if a field does not fit."""
        ring = _ring.empty(transition, self.capacity)
        self._check(transition, ring)
        length, num_envs = ring.shape
        return HindsightState(
            ring=ring,
            episode=jnp.zeros((length, num_envs), jnp.int32),
            ends=jnp.full((length + 1, num_envs), -1, jnp.int32),
            finished=jnp.zeros((num_envs,), jnp.int32),
        )

    def add(self, state: HindsightState, unroll: Transition) -> HindsightState:
        unroll_length, num_envs = unroll.reward.shape
        done = unroll.done.astype(jnp.int32)
        episode = state.finished[None] + jnp.cumsum(done, axis=0) - done
        time = state.ring.time + jnp.arange(unroll_length, dtype=jnp.int32)
        table = state.ends.shape[0]
        row = jnp.where(unroll.done, episode % table, table)  # out of bounds: not written
        instance = jnp.broadcast_to(jnp.arange(num_envs, dtype=jnp.int32), done.shape)
        ends = jnp.broadcast_to(time[:, None], done.shape)
        return HindsightState(
            ring=_ring.push(state.ring, unroll),
            episode=_ring.write(state.episode, episode, state.ring.time),
            ends=state.ends.at[row, instance].set(ends, mode="drop"),
            finished=state.finished + done.sum(axis=0, dtype=jnp.int32),
        )

    def truncate(self, state: HindsightState) -> HindsightState:
        newest = state.ring.time - 1
        instance = jnp.arange(state.finished.shape[0], dtype=jnp.int32)
        known = _ring.take(state.ring.steps, newest, instance)
        ends_now = ~known.done & (newest >= 0)
        table = state.ends.shape[0]
        row = jnp.where(ends_now, state.finished % table, table)  # out of bounds: not written
        return HindsightState(
            ring=_ring.truncate(state.ring),
            episode=state.episode,
            ends=state.ends.at[row, instance].set(newest, mode="drop"),
            finished=state.finished + ends_now.astype(jnp.int32),
        )

    def size(self, state: HindsightState) -> jax.Array:
        _, count = self._drawable(state)
        return count.sum(dtype=jnp.int32) * (1 + len(self.strategies))

    def sample(
        self,
        state: HindsightState,
        key: chex.PRNGKey,
        batch_size: int,
        *,
        gamma: chex.Numeric,
        steps: chex.Numeric,
    ) -> Sample:
        del steps
        draw = jax.random.randint(key, (batch_size,), 0, self.size(state), jnp.int32)
        return self._rows(state, draw, gamma=gamma)

    def _rows(self, state: HindsightState, draw: jax.Array, *, gamma: chex.Numeric) -> Sample:
        """Returns the rows with the numbers `draw`, int32[B], which are below `size`."""
        step, label = draw // (1 + len(self.strategies)), draw % (1 + len(self.strategies))
        first, count = self._drawable(state)
        before = jnp.cumsum(count, dtype=jnp.int32)
        instance = jnp.searchsorted(before, step, side="right").astype(jnp.int32)
        instance = jnp.minimum(instance, count.shape[0] - 1)  # if nothing can be drawn
        time = first[instance] + step - (before - count)[instance]

        steps: Transition = _ring.take(state.ring.steps, time, instance)
        when = self._goal_times(state, time, instance, label)
        goals = state.ring.steps.next_observation[self.achieved_goal]
        relabeled = label > 0
        goal = struct.select(
            relabeled,
            _ring.take(goals, when, instance),
            steps.observation[self.desired_goal],
        )
        achieved = steps.next_observation[self.achieved_goal]
        assert self.compute_reward is not None and self.compute_terminated is not None
        reward = jax.vmap(self.compute_reward)(achieved, goal)
        reached = jax.vmap(self.compute_terminated)(achieved, goal)
        terminated = jnp.where(relabeled, reached, steps.terminated)
        return Sample(
            observation={**steps.observation, self.desired_goal: goal},
            action=steps.action,
            reward=jnp.where(relabeled, reward.astype(jnp.float32), steps.reward),
            discount=jnp.where(terminated, 0.0, jnp.asarray(gamma, jnp.float32)),
            next_observation={**steps.next_observation, self.desired_goal: goal},
            weight=jnp.ones(draw.shape, jnp.float32),
            index=draw,
        )

    def _drawable(self, state: HindsightState) -> tuple[jax.Array, jax.Array]:
        """Returns the first step and the number of steps that can be drawn, int32[N] each."""
        time, (length, num_envs) = state.ring.time, state.ring.shape
        instance = jnp.arange(num_envs, dtype=jnp.int32)
        oldest = jnp.broadcast_to(jnp.maximum(time - length, 0), (num_envs,))
        episode = _ring.take(state.episode, oldest, instance)
        stop = _ring.take(state.ends, state.finished - 1, instance) + 1
        start, end = self._bounds(state, episode, instance)
        first = jnp.where(start == oldest, oldest, end + 1)
        first = jnp.where(episode < state.finished, first, stop)
        return first, jnp.maximum(stop - first, 0)

    def _bounds(
        self, state: HindsightState, episode: jax.Array, instance: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the first and last step of episodes whose predecessor is known."""
        start = _ring.take(state.ends, episode - 1, instance) + 1
        return start, _ring.take(state.ends, episode, instance)

    def _goal_times(
        self, state: HindsightState, time: jax.Array, instance: jax.Array, label: jax.Array
    ) -> jax.Array:
        """Returns the steps whose achieved goals are used; label s stands for strategies[s - 1]."""
        episode = _ring.take(state.episode, time, instance)
        start, end = self._bounds(state, episode, instance)
        earliest = {"final": end, "future": time, "episode": start}
        choices = [end] + [earliest[strategy] for strategy in self.strategies]
        low = jnp.stack(choices)[label, jnp.arange(label.shape[0], dtype=jnp.int32)]

        def bits(time: jax.Array, lane: jax.Array) -> jax.Array:
            key = jax.random.fold_in(
                jax.random.fold_in(prng.as_fast_key(jax.random.key(0)), time), lane
            )
            return jax.random.bits(key, dtype=jnp.uint32)

        lane = instance * (1 + len(self.strategies)) + label
        span = jnp.maximum(end - low + 1, 1).astype(jnp.uint32)
        return low + (jax.vmap(bits)(time, lane) % span).astype(jnp.int32)

    def _check(self, transition: Transition, ring: Ring) -> None:
        names = (self.observation, self.achieved_goal, self.desired_goal)
        problems = []
        if not isinstance(transition.observation, dict) or not all(
            name in transition.observation for name in names
        ):
            given = transition.observation
            kind = sorted(given) if isinstance(given, dict) else type(given).__name__
            problems.append(
                f"observations are {kind}; HindsightReplay expects a dict with {', '.join(names)}."
                "  Use Replay for a task without goals, or pass the names of the entries."
            )
        for strategy in self.strategies:
            if strategy not in STRATEGIES:
                hint = closest(strategy, STRATEGIES)
                problems.append(
                    f'there is no strategy "{strategy}"; expected one of {STRATEGIES}.{hint}'
                )
        if not self.strategies or len(set(self.strategies)) != len(self.strategies):
            problems.append(
                f"strategies are {self.strategies}; expected one or more different strategies."
            )
        if self.compute_reward is None or self.compute_terminated is None:
            problems.append(
                "compute_reward and compute_terminated are missing."
                "  Call bind(env), or pass functions of (achieved_goal, desired_goal)."
            )
        unroll_length, num_envs = transition.reward.shape
        least = (self.time_limit or 1) + unroll_length - 1
        if ring.shape[0] < least:
            problems.append(
                f"capacity={self.capacity} keeps {ring.shape[0]} steps of each of {num_envs}"
                f" instances; episodes of {self.time_limit} steps in unrolls of"
                f" {unroll_length} need {least}. Raise capacity to {least * num_envs} or more."
            )
        if problems:
            raise TrainingError("HindsightReplay cannot be used:\n  " + "\n  ".join(problems))


def _layers(env: Any) -> Iterator[Any]:
    """Yields an environment and everything it wraps, outermost first."""
    while env is not None:
        yield env
        env = getattr(env, "env", None)


def _outermost(layers: list[Any], name: str) -> Any:
    """Returns the attribute `name` of the outermost layer that has it."""
    values = (getattr(layer, name, None) for layer in layers)
    return next((value for value in values if value is not None), None)
