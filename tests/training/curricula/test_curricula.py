"""Curricula: which levels they draw, what the policy learns from, and the training around them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import prng, spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import TrainingError
from jaxenvs.training import DQN, PPO, make_train, shard
from jaxenvs.training.curricula import (
    ACCEL,
    DomainRandomization,
    LevelBuffer,
    LevelSteps,
    PrioritizedLevelReplay,
    SamplingForLearnability,
)
from jaxenvs.training.curricula.curriculum import MUTATION, NEW, REPLAY
from tests.vector.test_sharding import mesh_of

N, T = 8, 24
PLACES = 1_000


class Corridor(Environment):
    """Walk to place 0; the level is the place where an episode starts, from 1 to 999."""

    @property
    def observation_space(self):
        return spaces.Box(0.0, 1.0, (1,))

    @property
    def action_space(self):
        return spaces.Discrete(2)

    def level(self, key):
        return 1 + prng.randint(key, (), np.int32(PLACES - 1))

    def reset(self, key):
        return self.reset_to(self.level(key))

    def reset_to(self, level):
        return jnp.int32(level), TimeStep.first(self._observe(level))

    def step(self, state, action, key):
        state = jnp.clip(state + 1 - 2 * jnp.asarray(action, jnp.int32), 0, PLACES)
        reward = (state == 0).astype(jnp.float32)
        return state, TimeStep.transition(
            self._observe(state), reward=reward, terminated=state == 0
        )

    def _observe(self, place):
        return jnp.asarray(place, jnp.float32)[None] / PLACES


def farther(level, key):
    return level + PLACES


ENV = jaxenvs.wrappers.TimeLimit(Corridor(), 6)
BUFFER = LevelBuffer(capacity=16)
PPO_ONCE = PPO(epochs=1, minibatches=1)


def steps_with(score):
    """Returns an episode in each of N levels whose positive value loss is `score`."""
    done = np.zeros((T, N), bool)
    done[-1] = True
    zeros = np.zeros((T, N), np.float32)
    advantage = np.broadcast_to(np.asarray(score, np.float32), (T, N))
    return LevelSteps(reward=zeros, done=done, value=zeros, advantage=advantage)


def drive(curriculum, updates, score=lambda levels: levels):
    """Yields the draws of some updates, in which levels have the score `score(level)`."""
    state = curriculum.init(ENV, N)
    sample = jax.jit(curriculum.sample, static_argnums=3)
    update = jax.jit(curriculum.update)
    for i in range(updates):
        state, draw = sample(ENV, state, jax.random.key(i), N)
        yield state, draw
        state = update(state, draw, steps_with(score(np.asarray(draw.levels))))


def test_new_levels_come_first_and_only_replayed_ones_teach():
    kinds, seen = [], set()
    for state, draw in drive(PrioritizedLevelReplay(BUFFER, min_fill=1.0), 40):
        kinds.append(int(state.kind))
        levels = set(np.asarray(draw.levels).tolist())
        assert draw.learns == (state.kind == REPLAY)
        if state.kind == REPLAY:
            assert len(levels) == N and levels <= seen
        seen |= levels
    assert kinds[:2] == [NEW, NEW] and 8 < kinds.count(REPLAY) < 30
    assert all(draw.learns for _, draw in drive(PrioritizedLevelReplay(BUFFER, robust=False), 4))


def test_the_buffer_fills_with_levels_of_high_scores():
    *_, (state, _) = drive(PrioritizedLevelReplay(BUFFER), 60)
    assert np.sort(state.buffer.levels).min() > 0.8 * PLACES
    *_, (state, _) = drive(PrioritizedLevelReplay(BUFFER), 60, score=lambda levels: -levels)
    # All losses are 0 then, so that nothing replaces the first levels.
    assert np.sort(state.buffer.levels).min() < 0.5 * PLACES


def test_changed_copies_follow_each_replay():
    last = None
    for state, draw in drive(ACCEL(BUFFER, mutate=farther), 30):
        kind = int(state.kind)
        assert (kind == MUTATION) == (last is not None)
        if kind == MUTATION:
            np.testing.assert_array_equal(draw.levels, last + PLACES)
            assert not draw.learns
        last = np.asarray(draw.levels) if kind == REPLAY else None


def test_levels_solved_half_of_the_time_are_kept():
    curriculum = SamplingForLearnability(num_kept=6, num_candidates=3 * N, period=4)
    state = curriculum.init(ENV, N)
    tried, half = [], N // 2
    for i in range(2 * 7):
        state, draw = curriculum.sample(ENV, state, jax.random.key(i), N)
        levels = np.asarray(draw.levels)
        # Two episodes: even levels solve the first of them.
        done, reward = np.zeros((T, N), bool), np.zeros((T, N), np.float32)
        done[5] = done[-1] = True
        reward[5] = levels % 2 == 0
        steps = LevelSteps(reward=reward, done=done, value=reward, advantage=reward)
        if i % 7 < 3:
            assert not draw.learns
            tried = [*tried, *levels] if i % 7 else [*levels]
        else:
            assert draw.learns
            assert {*levels[:half].tolist()} <= {*np.asarray(state.levels).tolist()}
            even = [level for level in tried if level % 2 == 0]
            assert len(even) >= 6 and {*np.asarray(state.levels).tolist()} <= {*even}
        state = curriculum.update(state, draw, steps)


@pytest.mark.parametrize(
    "curriculum",
    [
        ACCEL(BUFFER, mutate=lambda level, key: jnp.maximum(level - 1, 1), score="max_monte_carlo"),
        SamplingForLearnability(num_kept=16, num_candidates=2 * N, period=2),
    ],
    ids=lambda curriculum: type(curriculum).__name__,
)
def test_training_learns_only_where_it_should(curriculum):
    train = make_train(
        ENV, PPO_ONCE, num_envs=N, unroll_length=T, total_steps=6 * N * T, curriculum=curriculum
    )
    update = jax.jit(train.update)
    state = start = train.init(jax.random.key(0))
    learned = []
    for _ in range(train.num_updates):
        before = state.weights
        state, metrics = update(state)
        learned.append(not np.isnan(metrics["policy_loss"]))
        assert learned[-1] == (state.weights.gradient_steps > before.gradient_steps)
        if not learned[-1]:
            chex.assert_trees_all_equal(state.weights, before)
    assert update._cache_size() == 1 and any(learned) and not all(learned)
    seeds = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 2))
    assert seeds.metrics["episode_count"].shape == (2, 6) and seeds.metrics["steps"][0, -1] > 0
    chex.assert_trees_all_equal_shapes(jax.tree.map(lambda x: x[0], seeds.learner_state), start)


def test_each_instance_stays_in_its_level_during_an_update():
    played = []

    class Noted(DomainRandomization):
        def update(self, state, draw, steps):
            jax.debug.callback(lambda *x: played.append(x), draw.levels, steps.reward, steps.done)
            return state

    train = make_train(
        ENV, PPO_ONCE, num_envs=N, unroll_length=T, total_steps=N * T, curriculum=Noted()
    )
    state, _ = jax.jit(train.update)(train.init(jax.random.key(0)))
    jax.effects_barrier()
    ((levels, _, done),) = played
    assert (done.reshape(4, 6, N).sum(1) == 1).all()  # the limit of 6 steps, in phase
    # The last episode has just ended: each instance is back at its start.
    np.testing.assert_array_equal(state.collector.env_state.inner, levels)


@pytest.mark.parametrize(
    ("env", "algorithm", "curriculum", "words"),
    [
        (ENV, DQN(), DomainRandomization(), "on-policy"),
        (ENV, PPO_ONCE, DomainRandomization, "expected an instance of Curriculum"),
        (ENV, PPO_ONCE, PrioritizedLevelReplay(LevelBuffer(capacity=N - 1)), "at least 8"),
        (ENV, PPO_ONCE, PrioritizedLevelReplay(replay_probability=1.5), "replay_probability"),
        (
            jaxenvs.vectorize(ENV, N).wrap(jaxenvs.wrappers.NormalizeReward),
            PPO_ONCE,
            DomainRandomization(),
            "not wrapped as a batch",
        ),
    ],
)
def test_what_does_not_fit_a_curriculum_is_refused(env, algorithm, curriculum, words):
    with pytest.raises(TrainingError, match=words):
        make_train(
            env,
            algorithm,
            num_envs=None if isinstance(env, jaxenvs.VectorEnv) else N,
            unroll_length=T,
            total_steps=64,
            curriculum=curriculum,
        )


def test_instances_of_a_curriculum_can_lie_on_a_mesh():
    mesh = mesh_of(2)
    trains = [
        make_train(
            jaxenvs.vectorize(ENV, N, mesh=each),
            PPO_ONCE,
            unroll_length=T,
            total_steps=N * T,
            curriculum=DomainRandomization(),
        )
        for each in (None, mesh)
    ]
    alone, divided = (jax.jit(train)(jax.random.key(0)).learner_state for train in trains)
    chex.assert_trees_all_close(divided.params, alone.params, rtol=1e-4, atol=1e-6)
    with pytest.raises(TrainingError, match="vectorize"):
        shard(trains[0], mesh)
