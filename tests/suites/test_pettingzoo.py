"""PettingZoo: our environments in its interfaces, and its environments in ours."""

import functools
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ActionError
from tests.faces.agents import Relay
from tests.faces.native import keys_of

pettingzoo = pytest.importorskip("pettingzoo")

import gymnasium  # noqa: E402
from pettingzoo import test as zoo_tests  # noqa: E402

pytestmark = pytest.mark.interop

AT_ONCE = (
    "jaxmarl/MPE_simple_spread_v3",
    "jaxmarl/overcooked",
    "jaxmarl/HeuristicEnemySMAX",
)
IN_TURNS = ("pgx/tic_tac_toe", "pgx/connect_four")
IDS = (*AT_ONCE, *IN_TURNS)
# The tests of PettingZoo warn of these, instead of failing.
BROKEN = ("Live agent", "was given", "No agents", "different", "not boolean", "NaN")


@functools.cache
def native(id):
    """Makes an environment once, so that all of its interfaces share their programs."""
    pytest.importorskip(id.partition("/")[0])
    return jaxenvs.make(id)


def check_silently(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    messages = [str(each.message) for each in caught]
    assert not [m for m in messages if any(sign in m for sign in BROKEN)]


def draw(rng, space, observation):
    if isinstance(observation, dict):
        return int(rng.choice(np.flatnonzero(observation["action_mask"])))
    return int(rng.integers(space.n))


@pytest.mark.parametrize("id", IDS)
def test_parallel_api_passes_the_tests_of_pettingzoo(id):
    env = native(id)
    check_silently(lambda: zoo_tests.parallel_api_test(jaxenvs.make_pettingzoo(env), 150))
    zoo_tests.parallel_seed_test(lambda: jaxenvs.make_pettingzoo(env), 20)


@pytest.mark.parametrize("id", IDS)
def test_aec_api_passes_the_tests_of_pettingzoo(id):
    env = native(id)
    check_silently(lambda: zoo_tests.api_test(jaxenvs.make_pettingzoo(env, api="aec"), 150))
    zoo_tests.seed_test(lambda: jaxenvs.make_pettingzoo(env, api="aec"), 20)


def fields_of(timestep, agent):
    read = timestep.observation, timestep.reward, timestep.terminated, timestep.truncated
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], [each[agent] for each in read])


def assert_alike(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=2e-5, atol=2e-5),
        list(found),
        list(expected),
    )


@pytest.mark.parametrize("id", IDS)
def test_parallel_steps_match_the_native_environment(id):
    env = jaxenvs.make_pettingzoo(native(id))
    batch = jaxenvs.vectorize(native(id), 1, autoreset_mode="disabled")
    reset, step = jax.jit(batch.reset), jax.jit(batch.step)
    rng, numbers = np.random.default_rng(0), set()
    observations, _ = env.reset(seed=3)
    state, timestep = reset(keys_of(3, 1, 0))
    for agent in env.agents:
        assert_alike([observations[agent]], fields_of(timestep, agent)[:1])
    for t in range(1, 120):
        agents = env.agents
        actions = {a: draw(rng, env.action_space(a), observations[a]) for a in agents}
        # Other actions than those that the interface passes for agents that have ended.
        given = {a: jnp.full(1, actions.get(a, 0), jnp.int32) for a in env.possible_agents}
        observations, *others, infos = env.step(actions)
        state, timestep = step(state, given, keys_of(3, 1, t))
        assert [*observations] == [*infos] == agents
        for agent in agents:
            found = observations[agent], *(each[agent] for each in others)
            assert_alike(found, fields_of(timestep, agent))
            assert bool(timestep.to_act[agent][0]) == infos[agent]["to_act"]
        ended = {a for a in agents if others[1][a] or others[2][a]}
        assert {*env.agents} == {*agents} - ended
        numbers.add(len(env.agents))
        if not env.agents:
            assert timestep.done.all() and env.step({}) == ({},) * 5
            break
    else:
        assert id == "jaxmarl/overcooked"  # its limit is 400 steps
    assert (len(numbers) > 2) == (id == "jaxmarl/HeuristicEnemySMAX")  # whose agents die one by one


@pytest.mark.parametrize("id", ["jaxmarl/HeuristicEnemySMAX", "pgx/connect_four"])
def test_batch_steps_match_the_native_batch(id):
    num_envs = 4
    envs = jaxenvs.make_pettingzoo(native(id), num_envs)
    batch = jaxenvs.vectorize(native(id), num_envs)
    reset, step = jax.jit(batch.reset), jax.jit(batch.step)
    sample = jax.jit(jaxenvs.sample_legal)
    observations, _ = envs.reset(seed=3)
    state, timestep = reset(keys_of(3, num_envs, 0))
    ends = 0
    for t in range(1, 80):
        masks = {a: dict(timestep.observation[a]) for a in envs.agents}
        actions = sample(masks, jax.random.key(t))
        observations, *others, infos = envs.step(jax.tree.map(np.asarray, actions))
        state, timestep = step(state, actions, keys_of(3, num_envs, t))
        assert_alike([observations], [{a: timestep.observation[a] for a in envs.agents}])
        assert_alike(others, [timestep.reward, timestep.terminated, timestep.truncated])
        ends += int(timestep.done.sum())
        if timestep.done.any():
            for agent in envs.agents:
                assert_alike([infos[agent]["final_obs"]], [timestep.final_observation[agent]])
    assert ends > num_envs


@pytest.mark.parametrize("id", IDS[1:])
def test_aec_agents_get_the_rewards_of_the_parallel_api(id):
    """The same actions in both interfaces give each agent the same rewards until it leaves."""
    at_once, in_turns = (
        jaxenvs.make_pettingzoo(native(id), api=api) for api in ("parallel", "aec")
    )
    observations, _ = at_once.reset(seed=4)
    in_turns.reset(seed=4)
    rng, rounds, returns = np.random.default_rng(1), [], dict.fromkeys(at_once.agents, 0.0)
    for _ in range(60):
        actions = {a: draw(rng, at_once.action_space(a), observations[a]) for a in at_once.agents}
        rounds.append(actions)
        observations, rewards, *_ = at_once.step(actions)
        for agent, reward in rewards.items():
            returns[agent] += reward
        if not at_once.agents:
            break
    found, step, left = dict.fromkeys(returns, 0.0), 0, set()
    given: set[str] = set()
    for agent in in_turns.agent_iter():
        observation, reward, terminated, truncated, info = in_turns.last()
        found[agent] += reward
        if terminated or truncated:
            in_turns.step(None)
            left.add(agent)
            continue
        if agent in given or (id in IN_TURNS and given):
            step, given = step + 1, set()
        if step == len(rounds):
            break
        given.add(agent)
        assert info["to_act"] and in_turns.observation_space(agent).contains(observation)
        in_turns.step(rounds[step][agent])
    if at_once.agents:  # the last rewards of agents that wait have not been read
        assert step == len(rounds)
        found = {a: found[a] + in_turns._cumulative_rewards[a] * (a != agent) for a in found}
    else:
        assert left == {*returns}
    assert found == pytest.approx(returns, rel=1e-5)


def test_an_agent_that_ends_leaves_before_the_others():
    env = jaxenvs.make_pettingzoo(Relay(), render_mode="rgb_array")
    assert [*env.reset(seed=0)[0]] == ["b_1", "a_0"]
    half = np.full(2, 0.5)  # float64
    observations, rewards, terminations, _, infos = env.step({"a_0": 3, "b_1": half})
    assert rewards == {"b_1": 1.0, "a_0": 3.0} and infos["b_1"]["own"] == 1
    assert observations["a_0"] == 1 and type(observations["a_0"]) is np.int64
    _, _, terminations, _, _ = env.step({"a_0": 1, "b_1": half})
    assert terminations == {"b_1": True, "a_0": False} and env.agents == ["a_0"]
    with pytest.raises(ActionError, match=r"each of \['a_0'\]"):
        env.step({"a_0": 1, "b_1": half})
    observations, *_ = env.step({"a_0": 2})
    assert [*observations] == ["a_0"] and (env.render() == 3).all()
    np.testing.assert_array_equal(env.state(), [3, 3, 3])
    assert env.state() in env.state_space
    with pytest.raises(ActionError, match="a_0"):
        env.step({"a_0": 0})
    assert env.step({"a_0": 2})[2] == {"a_0": True} and not env.agents


def test_aec_agent_that_ended_is_removed_by_a_none_action():
    env = jaxenvs.make_pettingzoo(Relay(), api="aec")
    env.reset(seed=0)
    seen = []
    for agent in env.agent_iter():
        _, reward, terminated, _, _ = env.last()
        seen.append((agent, reward, terminated))
        if agent == "b_1" and not terminated:
            with pytest.raises(ActionError, match="for b_1"):
                env.step(np.full(2, 7.0))
        env.step(None if terminated else np.ones(2) if agent == "b_1" else 3)
    assert seen == [
        *(("b_1", 0.0, False), ("a_0", 0.0, False)),
        *(("b_1", 2.0, False), ("a_0", 3.0, False)),
        *(("b_1", 2.0, True), ("a_0", 3.0, False)),
        *(("a_0", 3.0, False), ("a_0", 3.0, True)),
    ]


@pytest.mark.parametrize("api", ["parallel", "aec"])
def test_step_before_reset_is_refused_and_a_copy_resets_alike(api):
    env = jaxenvs.make_pettingzoo(Relay(), api=api, seed=6)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step({} if api == "parallel" else 1)
    copied = pickle.loads(pickle.dumps(env))
    for each in (env, copied):
        each.reset()
    first, second = (each._observation("b_1") for each in (env, copied))
    np.testing.assert_array_equal(first, second)
    assert not hasattr(jaxenvs.make_pettingzoo(native("pgx/tic_tac_toe"), api=api), "state_space")


def test_rollout_of_pettingzoo_environments_matches_plain_loop():
    module = pytest.importorskip("pettingzoo.sisl.pursuit_v5")
    limit, num_steps, num_envs, key = 7, 18, 2, jax.random.key(2)
    envs = jaxenvs.make_vec(
        "pettingzoo/sisl/pursuit_v5", num_envs, num_workers=2, max_cycles=limit, n_pursuers=3
    )
    try:
        result = jax.block_until_ready(jaxenvs.rollout(envs, None, num_steps, key))
        seeds = np.asarray(envs._seeds(jax.random.split(key)[0]))
    finally:
        envs.close()
    trajectory = jax.tree.map(np.asarray, result.trajectory)
    assert envs.agents == ("pursuer_0", "pursuer_1", "pursuer_2")
    totals = dict.fromkeys(envs.agents, 0.0)
    for i in range(num_envs):
        env = module.parallel_env(max_cycles=limit, n_pursuers=3)
        observations, _ = env.reset(seed=int(seeds[i]))
        running = dict.fromkeys(envs.agents, 0.0)
        for t in range(num_steps):
            row = jax.tree.map(lambda leaf: leaf[t, i], trajectory)  # noqa: B023
            for agent in envs.agents:
                np.testing.assert_array_equal(row.observation[agent], observations[agent])
            actions = {agent: int(row.action[agent]) for agent in envs.agents}
            observations, rewards, terminated, truncated, _ = env.step(actions)
            for agent in envs.agents:
                assert row.reward[agent] == np.float32(rewards[agent])
                assert row.terminated[agent] == terminated[agent]
                assert row.truncated[agent] == truncated[agent]
                assert row.info["to_act"][agent] == (agent in env.agents)
                np.testing.assert_array_equal(row.final_observation[agent], observations[agent])
                running[agent] += rewards[agent]
            if not env.agents:
                for agent in envs.agents:
                    totals[agent] += running[agent]
                running = dict.fromkeys(envs.agents, 0.0)
                observations, _ = env.reset()
    statistics = result.statistics
    assert int(statistics["count"]) == num_envs * (num_steps // limit)
    for agent in envs.agents:
        mean = totals[agent] / int(statistics["count"])
        assert float(statistics["return_mean"][agent]) == pytest.approx(mean, rel=1e-5)
