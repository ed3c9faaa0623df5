"""Environments with several agents take the paths of single ones."""

import functools
import operator

import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax.sharding import Mesh

import jaxenvs
from jaxenvs import keys, wrappers
from jaxenvs.errors import EnvironmentCheckError, WrapperError
from jaxenvs.testing import check_env
from jaxenvs.wrappers import RecordEpisodeStatistics, RepeatAction, ScaleReward, TimeLimit
from tests.multi_agent_env import AGENTS, Nim, Patrol
from tests.rounding import assert_agree

N, STEPS = 8, 12

# One transform of each kind, with arguments that suit the observations of Patrol's agents.
TRANSFORMS = {
    "ScaleReward": (0.5,),
    "ClipReward": (-1.0, 1.0),
    "TransformReward": (jnp.tanh,),
    "AddRewardNoise": (0.1,),
    "FilterObservation": (["observation"],),
    "FlattenObservation": (),
    "StickyAction": (0.5,),
}


def play(batch, steps=STEPS, seed=0):
    result = jaxenvs.rollout(batch, jaxenvs.sample_legal, steps, jax.random.key(seed))
    return result.trajectory, result


@pytest.mark.parametrize(
    "env",
    [
        Patrol(),
        Nim(),
        TimeLimit(Patrol(), 3),
        Patrol().wrap(ScaleReward, 0.5),
        Patrol().wrap(wrappers.FlattenObservation).wrap(RecordEpisodeStatistics),
    ],
    ids=["simultaneous", "turns", "limit", "reward", "flat"],
)
def test_check_env_accepts(env):
    check_env(env, num_steps=32)


def test_check_env_finds_a_reward_that_is_no_dict():
    class OneReward(Patrol):
        def step(self, state, action, key):
            state, timestep = super().step(state, action, key)
            return state, timestep.replace(reward=timestep.reward["scout"])

    with pytest.raises(EnvironmentCheckError, match=r"float32\[\] for each agent"):
        check_env(OneReward())


def test_timesteps():
    env = Patrol()
    state, timestep = env.reset(jax.random.key(0))
    assert all(timestep.to_act.values()) and not timestep.done
    for steps in range(1, 5):
        state, timestep = env.step(
            state, dict.fromkeys(AGENTS, jnp.int32(0)), jax.random.key(steps)
        )
        over = [steps >= i + 2 for i in range(3)]
        assert [bool(timestep.ended[agent]) for agent in AGENTS] == over
        assert [bool(timestep.to_act[agent]) for agent in AGENTS] == [not x for x in over]
        assert bool(timestep.done) == all(over)
        assert [float(timestep.discount[agent]) for agent in AGENTS] == [1.0 - x for x in over]
    assert timestep.of("guard").reward == timestep.reward["guard"]


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("chunk", [None, 2, N])
def test_batches_equal_single_instances(mode, chunk):
    env = Patrol(bonus=jnp.arange(N, dtype=jnp.float32))
    batch = jaxenvs.vectorize(env, N, batched=["bonus"], autoreset_mode=mode, reset_chunk=chunk)
    instance_keys = jax.random.split(jax.random.key(3), (STEPS + 1, N))
    actions = batch.action_space.sample(jax.random.key(4))

    def batched():
        def advance(state, step_keys):
            state, timestep = batch.step(state, actions, step_keys)
            return state, timestep

        state, first = batch.reset(instance_keys[0])
        return first, jax.lax.scan(advance, state, instance_keys[1:])[1]

    first, found = jax.device_get(jax.jit(batched)())
    for i in range(N):
        row_of = functools.partial(jax.tree.map, operator.itemgetter(i))
        rows = jax.tree.map(lambda x, i=i: x[:, i], found)
        check_row(mode, float(i), row_of(first), rows, row_of(actions), instance_keys[:, i])


@functools.cache
def single_step():
    return jax.jit(lambda env, *args: env.step(*args))


def check_row(mode, bonus, first, rows, action, row_keys):
    """Compares one instance of a batch with a plain loop."""
    env = Patrol(bonus=bonus)
    state, timestep = env.reset(row_keys[0])
    chex.assert_trees_all_equal(first.observation, timestep.observation)
    was_done = False
    for t in range(STEPS):
        row = jax.tree.map(operator.itemgetter(t), rows)
        key = row_keys[t + 1]
        if was_done and mode == "disabled":
            assert row.done and not any(row.reward.values())
            continue
        if was_done and mode == "next_step":
            state, timestep = env.reset(keys.autoreset_key(key))
        else:
            state, timestep = single_step()(env, state, action, key)
        final = timestep
        if timestep.done and mode == "same_step":
            state, timestep = env.reset(keys.autoreset_key(key))
        found = (row.observation, row.info, row.final_observation, row.final_info)
        assert_agree(
            (*found, row.reward, row.terminated),
            (
                *(timestep.observation, timestep.info, final.observation, final.info),
                *(final.reward, final.terminated),
            ),
        )
        was_done = bool(final.done)


def test_meshes_change_nothing():
    mesh = Mesh(np.array(jax.devices()[:4]), ("devices",))
    one, many = (play(jaxenvs.vectorize(Patrol(), N, stagger=3, mesh=m))[0] for m in (None, mesh))
    chex.assert_trees_all_equal(one, jax.device_get(many))


@pytest.mark.parametrize("env", [Patrol(), Nim()])
def test_statistics_are_those_of_the_trajectory(env):
    batch = jaxenvs.vectorize(env, N)
    trajectory, result = play(batch, 40)
    ended = {a: trajectory.terminated[a] | trajectory.truncated[a] for a in env.agents}
    done = np.logical_and.reduce([*ended.values()])
    assert result.statistics["count"] == done.sum() > 0
    for agent in env.agents:
        totals, rewards = [], np.asarray(trajectory.reward[agent])
        for i in range(N):
            ends = np.flatnonzero(done[:, i]) + 1
            totals += [part.sum() for part in np.split(rewards[:, i], ends)[:-1]]
        np.testing.assert_allclose(
            result.statistics["return_mean"][agent], np.mean(totals), rtol=1e-5
        )
        np.testing.assert_allclose(
            result.statistics["return_std"][agent], np.std(totals), rtol=1e-4
        )
    evaluation = jaxenvs.evaluate(batch, jaxenvs.sample_legal, 2, jax.random.key(0))
    assert evaluation.episode_return.keys() == {*env.agents}
    assert evaluation.mean[env.agents[0]].shape == ()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_map_each_agent(name):
    wrapper, arguments = getattr(wrappers, name), TRANSFORMS[name]
    wrapped = Patrol().wrap(wrapper, *arguments)
    assert wrapped.agents == AGENTS
    inside = jaxenvs.vectorize(wrapped, N)
    outside = jaxenvs.vectorize(Patrol(), N).wrap(wrapper, *arguments)
    policy = None if name in ("FilterObservation", "FlattenObservation") else jaxenvs.sample_legal
    one, other = (
        jaxenvs.rollout(batch, policy, STEPS, jax.random.key(1)).trajectory
        for batch in (inside, outside)
    )
    chex.assert_trees_all_equal(one, other)
    raw = jaxenvs.rollout(
        jaxenvs.vectorize(Patrol(), N), policy, STEPS, jax.random.key(1)
    ).trajectory
    for agent in AGENTS:
        if name == "ScaleReward":
            np.testing.assert_array_equal(one.reward[agent], 0.5 * raw.reward[agent])
        elif name == "ClipReward":
            np.testing.assert_array_equal(one.reward[agent], raw.reward[agent].clip(-1, 1))
        elif name == "FilterObservation":
            seen = raw.observation[agent]["observation"]
            np.testing.assert_array_equal(one.observation[agent]["observation"], seen)
        elif name == "FlattenObservation":
            assert one.observation[agent].shape == (STEPS, N, 7)


def test_agents_draw_their_own_noise():
    batch = jaxenvs.vectorize(Patrol(bonus=0.0).wrap(wrappers.AddRewardNoise, 1.0), 4)
    noise = np.stack([play(batch)[0].reward[agent] for agent in AGENTS])
    assert len(np.unique(noise)) == noise.size


def test_constructors_refuse_several_agents():
    with pytest.raises(WrapperError, match=r"env\.wrap\(ScaleReward"):
        ScaleReward(Patrol(), 0.5)
    with pytest.raises(WrapperError):
        wrappers.AddRenderObservation(Patrol())
    with pytest.raises(WrapperError, match="IndependentAgents"):
        jaxenvs.vectorize(Patrol(), 4).wrap(wrappers.NormalizeReward)


def test_whole_environment_wrappers():
    env = RepeatAction(TimeLimit(Patrol(), 4), 2).wrap(RecordEpisodeStatistics)
    trajectory, _ = play(jaxenvs.vectorize(env, N), 4)
    assert np.asarray(trajectory.truncated["scout"])[1].all()
    for agent in AGENTS:
        np.testing.assert_allclose(
            trajectory.info["episode_return"][agent][1], trajectory.reward[agent][:2].sum(0)
        )


@hypothesis.given(
    st.lists(st.lists(st.booleans(), min_size=5, max_size=5).filter(any), min_size=1, max_size=4)
)
@hypothesis.settings(max_examples=20, deadline=None)
def test_sampled_actions_are_legal(masks):
    observation = {f"agent_{i}": {"action_mask": jnp.array(mask)} for i, mask in enumerate(masks)}
    actions = jaxenvs.sample_legal(observation, jax.random.key(0))
    assert all(mask[int(actions[f"agent_{i}"])] for i, mask in enumerate(masks))


def test_gradients_pass_through_rewards():
    def total(bonus):
        batch = jaxenvs.vectorize(Patrol(bonus=bonus), N)
        state, _ = batch.reset(jax.random.key(0))
        action = dict.fromkeys(AGENTS, jnp.zeros(N, jnp.int32))
        _, timestep = batch.step(state, action, jax.random.key(1))
        return sum(reward.sum() for reward in timestep.reward.values())

    hits = int(total(jnp.float32(1.0)) - total(jnp.float32(0.0)))
    assert jax.grad(total)(jnp.float32(1.0)) == hits > 0
