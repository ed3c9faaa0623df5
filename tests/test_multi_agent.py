"""Environments with several agents: the contract, batches, rollouts and wrappers."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import jaxenvs
from jaxenvs import keys, wrappers
from jaxenvs.errors import ActionError, EnvironmentCheckError, WrapperError
from jaxenvs.multi_agent import MultiAgentTimeStep, sample_legal
from jaxenvs.testing import check_env
from jaxenvs.wrappers import Transform
from jaxenvs.wrappers.transform import AgentView
from tests.ids import case, every_nth
from tests.jitted import reset, step
from tests.multi_agent_env import Duet, Nim, Party
from tests.wrappers.test_all import WRAPPERS

KEY = jax.random.key(7)
N, T = 3, 14
BONUSES = np.array([0.5, 0.25, 2.0], np.float32)
SINGLE = {"AddRenderObservation", "NormalizeObservation", "NormalizeReward", "Trials"}
WHOLE = {  # not agent by agent
    *("Levels", "RandomizeParameters", "RecordEpisodeStatistics", "RepeatAction", "TimeLimit"),
}
KINDS = {
    "FilterObservation": "dict",
    "GrayscaleObservation": "picture",
    "ResizeObservation": "picture",
}
PER_AGENT = sorted(WRAPPERS.keys() - SINGLE - WHOLE)


# The contract


@pytest.mark.parametrize(
    "env",
    [
        Party(),
        Nim()
        .wrap(wrappers.TimeLimit, 4)
        .wrap(wrappers.TimeAwareObservation, flatten=False)
        .wrap(wrappers.RecordEpisodeStatistics),
    ],
    ids=["Party", "wrapped"],
)
def test_environments_pass_check_env(env):
    check_env(env, num_steps=16, num_envs=2)


def drop(values):
    return {agent: value for agent, value in values.items() if agent != "guard"}


class OneReward(Party):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=timestep.reward["scout"])


class OneFlag(Party):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(terminated=timestep.done)


class Unseen(Party):
    def _observe(self, state):
        return drop(super()._observe(state))


class Unrewarded(Party):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=drop(timestep.reward))


class ActsAfterItsEnd(Nim):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(info={"to_act": self._to_act(state)})


class Unlisted(Party):
    @property
    def agents(self):
        return ("scout", "carrier", "guard", "cook")


class SingleTimeStep(Party):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.of("scout")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (OneReward, r"reward is float32\[\]; it must be float32\[\] for each agent"),
        (OneFlag, r"terminated is bool\[\]; it must be bool\[\] for each agent"),
        (Unseen, "observation.*guard"),
        (Unrewarded, r"reward is .*carrier.*; it must be float32\[\] for each agent"),
        (ActsAfterItsEnd, "has ended and is to act"),
        (Unlisted, "cook"),
        (SingleTimeStep, r"reward is float32\[\]; it must be float32\[\] for each agent"),
    ],
)
def test_check_env_finds_what_an_agent_lacks(env, words):
    with pytest.raises(EnvironmentCheckError, match=words):
        check_env(env())


def test_an_episode_ends_with_its_last_agent():
    timestep = MultiAgentTimeStep.transition(
        {"b": jnp.zeros(2), "a": jnp.zeros(3)},
        reward=2,
        terminated={"a": True, "b": False},
        truncated={"a": False, "b": jnp.bool_(False)},
    )
    assert not timestep.done and timestep.ended["a"] and not timestep.ended["b"]
    assert timestep.discount == {"a": 0, "b": 1} and timestep.reward == {"a": 2, "b": 2}
    assert timestep.to_act == {"a": False, "b": True}
    assert timestep.replace(truncated={"a": jnp.bool_(False), "b": jnp.bool_(True)}).done
    cut = MultiAgentTimeStep.transition(
        timestep.observation, reward=0, terminated=False, truncated={"a": False, "b": True}
    )
    assert cut.to_act == {"a": True, "b": False}
    turn = MultiAgentTimeStep.transition(
        timestep.observation,
        reward=0,
        terminated={"a": True, "b": False},
        to_act={"a": True, "b": True},
    )
    assert turn.to_act == {"a": False, "b": True}
    assert turn.truncate(jnp.bool_(False)).to_act == turn.to_act
    late = turn.truncate(jnp.bool_(True))
    assert late.done and late.to_act == {"a": False, "b": False}
    alone = timestep.of("a")
    assert alone.done and alone.reward == 2 and alone.observation.shape == (3,)
    chex.assert_trees_all_equal(alone.discount, jnp.float32(0))


def test_actions_without_an_agent_are_rejected():
    batch = jaxenvs.vectorize(Party(), N)
    state, _ = jax.eval_shape(batch.reset, KEY)
    action = jax.eval_shape(batch.action_space.sample, KEY)
    with pytest.raises(ActionError, match="guard"):
        jax.eval_shape(batch.step, state, drop(action), KEY)


def test_no_agent_is_to_act_after_a_time_limit():
    env = Nim().wrap(wrappers.TimeLimit, 1)
    state, timestep = reset(env, KEY)
    assert timestep.to_act == {"white": True, "black": False}
    _, timestep = step(env, state, dict.fromkeys(env.agents, jnp.int32(0)), KEY)
    assert timestep.done and timestep.to_act == {"white": False, "black": False}


def test_rewards_are_functions_of_parameters():
    actions = sample_alone(Party(), KEY, (T,))

    def total(bonus):
        env = Party(bonus=bonus)

        def step(state, given):
            state, timestep = env.step(state, *given)
            return state, timestep.reward

        return jax.lax.scan(step, env.reset(KEY)[0], (actions, jax.random.split(KEY, T)))[1]

    def of_scout(bonus):
        return total(bonus)["scout"].sum()

    rewards = jax.device_get(jax.jit(jax.vmap(total))(BONUSES))
    chex.assert_trees_all_equal_shapes(rewards, dict.fromkeys(Party().agents, np.zeros((N, T))))
    totals = rewards["scout"].sum(1)
    slope = (totals[2] - totals[0]) / (BONUSES[2] - BONUSES[0])
    assert slope != 0
    np.testing.assert_allclose(jax.jit(jax.grad(of_scout))(0.5), slope, rtol=1e-6)


# Batches


@functools.partial(jax.jit, static_argnames="shape")
def sample_alone(env, key, shape=()):
    return env.action_space.sample(key, shape)


def start_alone(env, key, stagger):
    """Resets one instance and takes the random steps of a staggered start."""
    state, timestep = reset(env, key)
    seen = timestep.observation, timestep.info
    if stagger:
        base = keys.stagger_key(key)
        for t in range(jax.random.randint(jax.random.fold_in(base, 0), (), 0, stagger)):
            action = sample_alone(env, jax.random.fold_in(base, 2 * t + 1))
            step_key = jax.random.fold_in(base, 2 * t + 2)
            state, later = step(env, state, action, step_key)
            if later.done:
                state, later = reset(env, keys.autoreset_key(step_key))
            seen = later.observation, later.info
    return state, show(timestep.replace(observation=seen[0], info=seen[1]))


def show(timestep):
    return timestep.replace(final_observation=timestep.observation, final_info=timestep.info)


def play_alone(env, i, mode, actions, stagger):
    """Plays instance i in a Python loop. Returns its last state and the timesteps."""
    state, timestep = start_alone(env, jax.random.fold_in(KEY, i), stagger)
    rows = [timestep]
    for t in range(T):
        action = jax.tree.map(lambda leaf, t=t: leaf[t, i], actions)
        call_key = jax.random.fold_in(KEY, 100 + t)
        new_key = keys.autoreset_key(call_key, i)
        last = rows[-1]
        if mode == "next_step" and last.done:
            state, timestep = reset(env, new_key)
            rows.append(show(timestep))
        elif mode == "disabled" and last.done:
            rows.append(last.replace(reward=jax.tree.map(np.zeros_like, last.reward)))
        else:
            state, timestep = step(env, state, action, jax.random.fold_in(call_key, i))
            timestep = show(timestep)
            if mode == "same_step" and timestep.done:
                state, first = reset(env, new_key)
                timestep = timestep.replace(observation=first.observation, info=first.info)
            rows.append(timestep)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


@jax.jit
def play(batch, actions):
    """Returns the last state and the timesteps, [T + 1, N, ...]."""

    def step(state, given):
        action, number = given
        return batch.step(state, action, jax.random.fold_in(KEY, number))

    state, first = batch.reset(KEY)
    numbers = jnp.arange(100, 100 + T, dtype=jnp.uint32)
    state, later = jax.lax.scan(step, state, (actions, numbers))
    return state, jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)


def actions_of(env, num_envs=N):
    return jax.device_get(sample_alone(env, jax.random.key(1), (T, num_envs)))


@pytest.mark.parametrize(
    ("env", "mode", "chunk", "batched", "stagger"),
    [
        case(Party, "same_step", None, False, False, is_quick=False),
        case(Party, "same_step", 1, True, False, is_quick=True),
        case(Party, "same_step", N, True, 6, is_quick=False),
        case(Party, "next_step", None, True, 6, is_quick=True),
        case(Party, "next_step", 1, False, False, is_quick=False),
        case(Party, "next_step", N, True, False, is_quick=False),
        case(Party, "disabled", None, True, False, is_quick=True),
        case(Nim, "same_step", N, False, 4, is_quick=True),
    ],
)
def test_a_batch_equals_a_loop_over_each_instance(env, mode, chunk, batched, stagger):
    env = env(bonus=BONUSES) if batched else env()
    batch = jaxenvs.vectorize(
        env,
        N,
        autoreset_mode=mode,
        reset_chunk=chunk,
        batched=["bonus"] if batched else [],
        stagger=stagger,
    )
    actions = actions_of(env)
    state, timesteps = play(batch, actions)
    ones = [env.replace(bonus=BONUSES[i]) if batched else env for i in range(N)]
    alone = [play_alone(one, i, mode, actions, stagger) for i, one in enumerate(ones)]
    states, expected = (
        jax.tree.map(lambda *leaves, axis=axis: np.stack(leaves, axis), *part)
        for axis, part in enumerate(zip(*alone, strict=True))
    )
    chex.assert_trees_all_equal_shapes_and_dtypes(timesteps, expected)
    chex.assert_trees_all_equal(jax.device_get(timesteps), expected)
    inner = state if mode == "same_step" else state.inner
    chex.assert_trees_all_equal(jax.device_get(inner), states)
    timesteps = jax.device_get(timesteps)
    flags = jax.tree.map(np.logical_or, timesteps.terminated, timesteps.truncated)
    ended = np.stack(list(flags.values()))
    assert np.asarray(timesteps.done).sum() >= N
    if env.agents == Party().agents:  # agents end at different times
        assert (ended.any(0) & ~ended.all(0)).any()


@pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
def test_a_mesh_gives_the_bits_of_one_device():
    mesh = jax.make_mesh((8,), ("env",), axis_types=(jax.sharding.AxisType.Auto,))
    runs = [
        play(jaxenvs.vectorize(Party(), 16, mesh=each), actions_of(Party(), 16))
        for each in (None, mesh)
    ]
    chex.assert_trees_all_equal(*jax.device_get(runs))
    assert runs[1][1].reward["scout"].sharding.shard_shape((T + 1, 16)) == (T + 1, 2)


def test_some_instances_can_be_reset_and_drawn():
    batch = jaxenvs.vectorize(Party(), N, autoreset_mode="disabled")
    mask = np.array([True, False, True])

    @jax.jit
    def reset_some():
        old = batch.step(batch.reset(KEY)[0], batch.action_space.sample(KEY), KEY)
        fresh = batch.reset(jax.random.key(9))
        return old, fresh, batch.reset_where(mask, *old, jax.random.key(9))

    old, fresh, found = jax.device_get(reset_some())
    for i in range(N):
        rows = [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for tree in (old, fresh, found)]
        chex.assert_trees_all_equal(rows[2], rows[1] if mask[i] else rows[0])
    state = jax.tree.map(lambda leaf: leaf[1], found[0].inner)
    np.testing.assert_array_equal(batch.render(found[0], 1), Party().render(state))
    assert batch.agents == Party().agents


# Rollouts


def episodes_of(trajectory, mode):
    """Returns [(returns, length), ...] of the finished episodes of each instance, in NumPy."""
    rewards = {agent: np.asarray(value) for agent, value in trajectory.reward.items()}
    flags = jax.tree.map(np.logical_or, trajectory.terminated, trajectory.truncated)
    done = np.logical_and.reduce([np.asarray(flag) for flag in flags.values()])
    found = []
    for i in range(done.shape[1]):
        start, episodes = 0, []
        for end in np.flatnonzero(done[:, i]):
            if end >= start:  # the step that only resets has no flags
                parts = {agent: value[start : end + 1, i].sum() for agent, value in rewards.items()}
                episodes.append((parts, end + 1 - start))
                start = end + 1 + (mode == "next_step")
            if mode == "disabled":
                break
        found.append(episodes)
    return found


@pytest.mark.parametrize("mode", every_nth(3, ["same_step", "next_step", "disabled"]))
def test_statistics_are_those_of_each_agent(mode):
    batch = jaxenvs.vectorize(Party(), N, autoreset_mode=mode)
    result = jaxenvs.rollout(batch, None, 24, KEY)
    episodes = episodes_of(result.trajectory, mode)
    every = [episode for instance in episodes for episode in instance]
    assert len(every) == N if mode == "disabled" else len(every) > 3 * N
    statistics = result.statistics
    assert statistics["count"] == len(every)
    for agent in Party().agents:
        returns = [parts[agent] for parts, _ in every]
        np.testing.assert_allclose(statistics["return_mean"][agent], np.mean(returns), rtol=1e-5)
        np.testing.assert_allclose(statistics["return_std"][agent], np.std(returns), rtol=1e-4)
    lengths = [length for _, length in every]
    np.testing.assert_allclose(statistics["length_mean"], np.mean(lengths), rtol=1e-5)

    k = 1 if mode == "disabled" else 2
    evaluation = jaxenvs.evaluate(batch, None, k, KEY)
    assert evaluation.finished.all()
    for i, instance in enumerate(episodes):
        for row, (parts, length) in enumerate(instance[:k]):
            assert evaluation.episode_length[row, i] == length
            for agent, expected in parts.items():
                assert evaluation.episode_return[agent][row, i] == expected
    assert evaluation.mean.keys() == evaluation.std.keys() == set(Party().agents)
    scout = np.asarray(evaluation.episode_return["scout"])
    np.testing.assert_allclose(evaluation.mean["scout"], scout.mean(), rtol=1e-6)


def test_a_rollout_continues_and_can_return_statistics_only():
    batch = jaxenvs.vectorize(Nim(), N)
    whole = jaxenvs.rollout(batch, sample_legal, 20, KEY)
    half = jaxenvs.rollout(batch, sample_legal, 10, KEY, outputs="statistics")
    both = jaxenvs.rollout(batch, sample_legal, 10, state=half.state, outputs="statistics")
    assert half.trajectory is None and both.trajectory is None
    chex.assert_trees_all_close(both.statistics, whole.statistics, rtol=1e-6)
    chex.assert_trees_all_equal(both.state.timestep, whole.state.timestep)
    chex.assert_trees_all_equal(both.state.env_state, whole.state.env_state)

    trajectory = whole.trajectory
    for agent in Nim().agents:
        mask, action = trajectory.observation[agent]["action_mask"], trajectory.action[agent]
        assert np.take_along_axis(np.asarray(mask), np.asarray(action)[..., None], -1).all()
        assert action.dtype == np.int32
    total = trajectory.reward["white"] + trajectory.reward["black"]
    assert (total == 0).all() and (trajectory.reward["white"] != 0).any()


@given(arrays.arrays(bool, (2, 5, 4)), st.integers(0, 99), st.integers(0, 3))
def test_random_actions_are_legal(masks, seed, always):
    masks[..., always] = True
    observation = {
        agent: {"action_mask": mask, "observation": np.zeros(5, np.float32)}
        for agent, mask in zip(("b", "a"), masks, strict=True)
    }
    actions = _sample(observation, jax.random.key(seed))
    for agent, mask in zip(("b", "a"), masks, strict=True):
        assert actions[agent].shape == (5,) and actions[agent].dtype == jnp.int32
        assert mask[np.arange(5), actions[agent]].all()


_sample = jax.jit(sample_legal)


def test_random_actions_are_uniform_and_independent():
    mask = np.broadcast_to([True, False, True, True], (6_000, 4))
    each = {"action_mask": mask}
    actions = _sample({"b": each, "a": each}, KEY)
    counts = np.zeros((4, 4))
    np.add.at(counts, (np.asarray(actions["a"]), np.asarray(actions["b"])), 1)
    legal = counts[np.ix_([0, 2, 3], [0, 2, 3])]
    assert legal.sum() == 6_000
    assert (np.abs(legal - 6_000 / 9) < 5 * np.sqrt(6_000 / 9)).all()
    assert jax.eval_shape(sample_legal, each, KEY).shape == (6_000,)


# Wrappers


def act_by_hand(env, wrap, actions, depth):
    """Applies a transform to each agent in turn: a tree of [T + 1, ...] by agent."""
    transforms = {agent: wrap(AgentView(env, agent)) for agent in env.agents}

    def step(carry, given):
        state, memory = carry
        action, key = given
        own = keys.wrapper_key(key, depth)
        memory, actions, seen = dict(memory), {}, {}
        for i, (agent, transform) in enumerate(transforms.items()):
            memory[agent], actions[agent] = transform.on_action(
                memory[agent], action[agent], jax.random.fold_in(own, i)
            )
        state, timestep = env.step(state, actions, key)
        for agent, transform in transforms.items():
            memory[agent], one = transform.on_step(memory[agent], timestep.of(agent))
            seen[agent] = one.observation, one.reward, one.done
        return (state, memory), seen

    state, timestep = env.reset(KEY)
    memory, first = {}, {}
    for agent, transform in transforms.items():
        memory[agent], one = transform.on_reset(timestep.of(agent))
        first[agent] = one.observation, one.reward, one.done
    return first, jax.lax.scan(step, (state, memory), (actions, jax.random.split(KEY, T)))[1]


def act(env, actions):
    def seen(timestep):
        return {
            agent: (one.observation, one.reward, one.done)
            for agent, one in ((agent, timestep.of(agent)) for agent in env.agents)
        }

    def step(state, given):
        state, timestep = env.step(state, *given)
        return state, seen(timestep)

    state, timestep = env.reset(KEY)
    return seen(timestep), jax.lax.scan(step, state, (actions, jax.random.split(KEY, T)))[1]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def both_ways(env, wrap, depth):
    wrapped = wrap(env)
    actions = wrapped.action_space.sample(jax.random.key(1), (T,))
    return act(wrapped, actions), act_by_hand(env, wrap, actions, depth)


@pytest.mark.parametrize("name", every_nth(2, PER_AGENT, first=1))
def test_a_wrapper_wraps_each_agent(name):
    env = Duet(kind=KINDS.get(name, "box"))
    wrapped = WRAPPERS[name](env)
    found, expected = both_ways(env, WRAPPERS[name], 0)
    chex.assert_trees_all_close(found, expected, rtol=1e-6)
    for agent in env.agents:
        one = WRAPPERS[name](AgentView(env, agent))
        assert wrapped.observation_space[agent] == one.observation_space
        assert wrapped.action_space[agent] == one.action_space
        observations = found[1][agent][0]
        chex.assert_trees_all_equal_shapes_and_dtypes(
            observations, jax.eval_shape(lambda k, s=one: s.observation_space.sample(k, (T,)), KEY)
        )


def test_each_agent_and_each_layer_has_its_own_noise():
    def noisy(env):
        return env.wrap(wrappers.AddRewardNoise, 1.0)

    found, expected = both_ways(noisy(Duet()), noisy, 1)
    chex.assert_trees_all_close(found, expected, rtol=1e-6)
    # The rewards of `Duet` are integers.
    noise = {agent: np.asarray(found[1][agent][1]) % 1 for agent in Duet().agents}
    assert len(np.unique(np.concatenate([*noise.values()]))) == 2 * T


@pytest.mark.parametrize("name", sorted(WRAPPERS.keys() - SINGLE))
def test_wrapping_a_batch_wraps_its_instances(name):
    env = Duet(kind=KINDS.get(name, "box"))
    inside = jaxenvs.vectorize(WRAPPERS[name](env), N)
    outside = WRAPPERS[name](jaxenvs.vectorize(env, N))
    assert jax.tree.structure(inside) == jax.tree.structure(outside)
    assert jax.tree.leaves(inside) == jax.tree.leaves(outside)
    assert outside.agents == env.agents and repr(inside) == repr(outside)
    assert outside.replace(gravity=3.7).parameters["gravity"] == 3.7


@pytest.mark.parametrize("name", PER_AGENT)
def test_wrapper_constructor_on_several_agents_asks_for_wrap(name):
    class Call:
        """Passes what a call of `wrap` gets to the constructor."""

        def wrap(self, wrapper, *args, **kwargs):
            return wrapper(Duet(kind=KINDS.get(name, "box")), *args, **kwargs)

    with pytest.raises(WrapperError, match=rf"low, high.*env\.wrap\({name}"):
        WRAPPERS[name](Call())


def test_a_partial_wraps_each_agent_too():
    scaled = Duet().wrap(functools.partial(wrappers.ScaleReward, scale=0.5))
    expected = Duet().wrap(wrappers.ScaleReward, 0.5)
    assert jax.tree.structure(scaled) == jax.tree.structure(expected)


@pytest.mark.parametrize("name", sorted(SINGLE))
@pytest.mark.parametrize("is_batch", [False, True])
def test_single_agent_wrappers_refuse_several_agents(name, is_batch):
    env = jaxenvs.vectorize(Party(), N) if is_batch else Party()
    with pytest.raises(WrapperError, match=f"{name} got .* carrier, .*a single agent only"):
        WRAPPERS[name](env)


class Report(Transform):
    """Adds the sum of rewards of an agent to `info`."""

    def on_reset(self, timestep):
        return self._report(jnp.float32(0), timestep)

    def on_step(self, memory, timestep):
        return self._report(memory + timestep.reward, timestep)

    def _report(self, total, timestep):
        return total, timestep.replace(info={**timestep.info, "total": total})


def test_info_added_by_a_transform_is_a_dict_per_agent():
    env = Party().wrap(Report).wrap(wrappers.RecordEpisodeStatistics)
    timesteps = jax.device_get(play(jaxenvs.vectorize(env, N), actions_of(env))[1])
    info = timesteps.final_info
    assert info.keys() == {
        *("wind", "to_act", "total"),
        *("episode_return", "episode_length", "episode_finished"),
    }
    chex.assert_trees_all_equal(info["total"], info["episode_return"])
    np.testing.assert_array_equal(info["episode_finished"], timesteps.done)
    assert info["wind"].shape == (T + 1, N)


def test_a_time_limit_truncates_all_agents():
    env = Party().wrap(wrappers.TimeLimit, 3)
    actions = actions_of(env)
    found, free = (play(jaxenvs.vectorize(e, N), actions)[1] for e in (env, Party()))
    early = np.asarray(free.done)[1:4].any(0)  # ended before
    assert early.sum() < N
    for i in np.flatnonzero(~early):
        assert all(flag[3, i] and not flag[1:3, i].any() for flag in found.truncated.values())
        chex.assert_trees_all_equal(
            *(jax.tree.map(lambda leaf, i=i: leaf[:4, i], t.terminated) for t in (found, free))
        )


def test_repeated_actions_sum_the_rewards_of_each_agent():
    env, wrapped = Party(), Party().wrap(wrappers.RepeatAction, 2)
    action = sample_alone(env, KEY)
    for seed in range(6):
        state, _ = reset(env, jax.random.key(seed))
        key = jax.random.key(seed)
        found = step(wrapped, state, action, key)
        middle, first = step(env, state, action, jax.random.fold_in(key, 0))
        if first.done:
            expected = middle, first
        else:
            end, second = step(env, middle, action, jax.random.fold_in(key, 1))
            reward = jax.tree.map(lambda *both: np.add(*both), first.reward, second.reward)
            expected = end, second.replace(reward=reward)
        chex.assert_trees_all_equal(found, expected)


def test_all_wrappers_are_sorted_into_kinds():
    per_agent = {name for name in WRAPPERS if issubclass(getattr(wrappers, name), Transform)}
    assert set(PER_AGENT) == per_agent - {"RecordEpisodeStatistics"}
    fields = {f.name for f in dataclasses.fields(MultiAgentTimeStep)}
    assert fields == {f.name for f in dataclasses.fields(jaxenvs.TimeStep)}
