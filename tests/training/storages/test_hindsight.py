"""Achieved goals say when and where they were achieved, so that every goal can be traced."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxenvs
from jaxenvs.core import Environment
from jaxenvs.errors import TrainingError
from jaxenvs.training.storages import HindsightReplay
from jaxenvs.training.types import Transition
from jaxenvs.wrappers.time_limit import TimeLimit

NUM_ENVS = 3
STRATEGIES = ("future", "final", "episode")


def reward_by_distance(achieved, desired):
    return -jnp.abs(achieved[0] - desired[0])


def is_reached(achieved, desired):
    return (achieved == desired).all()


def stream(length, ends, seed=0):
    """Step t of instance n achieves [t, n]; episodes end at the steps bool[length, N]."""
    rng = np.random.default_rng(seed)
    shape = (length, NUM_ENVS)
    at = np.stack(np.broadcast_arrays(np.arange(length)[:, None], np.arange(NUM_ENVS)[None]), -1)
    at = at.astype(np.float32)
    goal = np.broadcast_to(np.float32(-7), at.shape)
    by_itself = rng.random(shape) < 0.5
    return Transition(
        observation={"observation": at, "achieved_goal": at - 1, "desired_goal": goal},
        action=rng.integers(0, 5, shape).astype(np.int32),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=ends & by_itself,
        truncated=ends & ~by_itself,
        next_observation={"observation": at + 0.5, "achieved_goal": at, "desired_goal": goal},
    )


def episodes_of(ends):
    """(instance, first step, last step) of each finished episode."""
    for n in range(NUM_ENVS):
        start = 0
        for end in np.flatnonzero(ends[:, n]):
            yield n, start, int(end)
            start = end + 1


@functools.partial(jax.jit, static_argnums=(0, 2))
def fill(storage, steps, unroll_length):
    """The state after each unroll, how much could be drawn, and all of it."""
    unrolls = jax.tree.map(lambda x: x.reshape(-1, unroll_length, *x.shape[1:]), steps)
    state = storage.init(jax.tree.map(lambda x: x[0], unrolls))
    every = jnp.arange(
        state.ring.steps.reward.size * (1 + len(storage.strategies)), dtype=jnp.int32
    )

    def add(state, unroll):
        state = storage.add(state, unroll)
        return state, (storage.size(state), storage._rows(state, every, gamma=0.9))

    state, (sizes, rows) = jax.lax.scan(add, state, unrolls)
    return state, sizes, rows


# Unrolls within episodes, about as long, and many episodes within one; and of single steps.
@pytest.mark.parametrize(("unroll_length", "mean"), [(4, 9), (4, 1.5), (12, 3), (12, 1)])
def test_hindsight_rows_are_the_original_and_one_per_strategy(unroll_length, mean):
    length, kept = 96, 24
    ends = np.random.default_rng(1).random((length, NUM_ENVS)) < 1 / mean
    ends[40:75, 1] = False  # longer than what is kept
    ends[75:90, 1] = True
    steps = stream(length, ends)
    storage = HindsightReplay(
        capacity=kept * NUM_ENVS,
        strategies=STRATEGIES,
        compute_reward=reward_by_distance,
        compute_terminated=is_reached,
    )
    _, sizes, rows = jax.device_get(fill(storage, jax.tree.map(jnp.asarray, steps), unroll_length))
    seen = {}
    for unroll in range(len(sizes)):
        time = (unroll + 1) * unroll_length
        expected = {
            (t, n): (start, end)
            for n, start, end in episodes_of(ends[:time])
            for t in range(start, end + 1)
            if start >= time - kept
        }
        size = sizes[unroll]
        assert size == len(expected) * (1 + len(STRATEGIES))
        row = jax.tree.map(lambda x: x[unroll, :size], rows)  # noqa: B023
        at = row.observation["observation"].astype(int)
        assert sorted(map(tuple, at)) == sorted(4 * list(expected))  # each exactly 1 + 3 times
        labels = np.arange(size) % 4
        for (t, n), label, i in zip(at, labels, range(size), strict=True):
            start, end = expected[t, n]
            goal = row.observation["desired_goal"][i]
            assert (row.next_observation["desired_goal"][i] == goal).all()
            assert (row.next_observation["achieved_goal"][i] == (t, n)).all()
            assert row.action[i] == steps.action[t, n]
            if label == 0:
                assert (goal == -7).all() and row.reward[i] == steps.reward[t, n]
                terminated = steps.terminated[t, n]
            else:
                when, where = goal
                first = {"future": t, "final": end, "episode": start}[STRATEGIES[label - 1]]
                assert where == n and first <= when <= end
                assert row.reward[i] == -abs(t - when)
                assert seen.setdefault((t, n, label), when) == when  # and never another
                terminated = when == t
            assert row.discount[i] == (0 if terminated else np.float32(0.9))
    assert len(seen) > 100


def test_goals_and_rows_are_drawn_uniformly():
    ends = np.zeros((1000, NUM_ENVS), bool)
    ends[9::10] = True
    steps = jax.tree.map(jnp.asarray, stream(1000, ends))
    storage = HindsightReplay(
        capacity=1000 * NUM_ENVS,
        strategies=STRATEGIES,
        compute_reward=reward_by_distance,
        compute_terminated=is_reached,
    )
    state = jax.jit(storage.add)(storage.init(steps), steps)
    rows = jax.jit(functools.partial(storage._rows, gamma=0.9))(
        state, jnp.arange(12_000, dtype=jnp.int32)
    )
    when = np.asarray(rows.observation["desired_goal"])[:, 0].reshape(-1, 4)
    time = np.asarray(rows.observation["observation"])[:, 0].reshape(-1, 4)[:, 0]
    for age in (0, 5):
        ahead = (when[:, 1] - time)[time % 10 == age]
        assert stats.chisquare(np.bincount(ahead.astype(int), minlength=10 - age)).pvalue > 1e-3
    assert stats.chisquare(np.bincount((when[:, 3] % 10).astype(int))).pvalue > 1e-3

    draw = jax.jit(storage.sample, static_argnums=2)
    sample = draw(state, jax.random.key(0), 100_000, gamma=0.9, steps=0.0)
    assert stats.chisquare(np.bincount(sample.index, minlength=12_000)).pvalue > 1e-3


class Corridor(Environment):
    def reset(self, key): ...
    def step(self, state, action, key): ...
    def observation_space(self): ...
    def action_space(self): ...


class GoalCorridor(Corridor):
    def compute_reward(self, achieved_goal, desired_goal):
        return reward_by_distance(achieved_goal, desired_goal)

    def compute_terminated(self, achieved_goal, desired_goal):
        return is_reached(achieved_goal, desired_goal)


def test_bind_takes_functions_and_time_limit_from_environment():
    env = GoalCorridor()
    for given in (env, TimeLimit(env, time_limit=50), jaxenvs.vectorize(TimeLimit(env, 50), 4)):
        bound = HindsightReplay().bind(given)
        assert bound.compute_reward == env.compute_reward
        assert bound.compute_terminated == env.compute_terminated
        assert bound.time_limit == (None if given is env else 50)
    own = HindsightReplay(compute_reward=reward_by_distance, time_limit=7).bind(given)
    assert own.compute_reward is reward_by_distance and own.time_limit == 7
    with pytest.raises(TrainingError, match="Corridor has no compute_reward and no compute_term"):
        HindsightReplay().bind(TimeLimit(Corridor(), time_limit=50))


def test_hindsight_replay_reports_all_errors_at_once():
    unroll = stream(8, np.zeros((8, NUM_ENVS), bool))
    wrong = HindsightReplay(capacity=30, strategies=("futur", "final"), time_limit=50)
    with pytest.raises(TrainingError) as error:
        wrong.init(unroll)
    for word in ('Close: "future"', "bind", "Raise capacity to 171"):
        assert word in str(error.value)
    with pytest.raises(TrainingError, match="expects a dict"):
        HindsightReplay().init(unroll.replace(observation=unroll.reward))
    with pytest.raises(TrainingError, match="one or more different"):
        HindsightReplay(strategies=()).init(unroll)


def test_hindsight_capacity_named_by_the_error_is_the_smallest():
    ends = np.zeros((56, NUM_ENVS), bool)
    ends[[4, 54]] = True  # an episode of 50 steps, which ends right behind an unroll's last but one
    fits = functools.partial(
        HindsightReplay,
        strategies=("final",),
        compute_reward=reward_by_distance,
        compute_terminated=is_reached,
        time_limit=50,
    )
    steps = jax.tree.map(jnp.asarray, stream(56, ends))
    _, sizes, _ = fill(fits(capacity=57 * NUM_ENVS), steps, 8)
    assert sizes[-1] == 2 * NUM_ENVS * 55
    with pytest.raises(TrainingError, match="Raise capacity"):
        fits(capacity=56 * NUM_ENVS).init(jax.tree.map(lambda x: x[:8], steps))
