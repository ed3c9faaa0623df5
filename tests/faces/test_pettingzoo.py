"""Batches of environments with several agents; tests/suites/test_pettingzoo.py has single ones."""

import copy
import importlib
import sys

import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ActionError, MissingExtraError, ParameterError, SeedError
from tests.faces.agents import Relay
from tests.faces.native import keys_of

N = 3


def actions(t):
    grid = np.arange(2 * N, dtype=np.float32).reshape(N, 2)
    return {"a_0": 1 + (np.arange(N) + t) % 3, "b_1": np.sin(grid + t)}


def test_a_batch_is_the_native_one():
    envs = jaxenvs.make_pettingzoo(Relay(), N)
    native = jaxenvs.vectorize(Relay(), N)
    state, timestep = jax.jit(native.reset)(keys_of(5, N, 0))
    observations, infos = envs.reset(seed=5)
    step = jax.jit(native.step)
    num_ends = 0
    for t in range(10):
        assert [*observations] == envs.agents == ["b_1", "a_0"]
        for agent in envs.agents:
            np.testing.assert_array_equal(observations[agent], timestep.observation[agent])
            np.testing.assert_array_equal(infos[agent]["own"], timestep.info["own"][agent])
            np.testing.assert_array_equal(infos[agent]["to_act"], timestep.to_act[agent])
            np.testing.assert_array_equal(infos[agent]["world_state"], timestep.info["world_state"])
            assert observations[agent] in envs.observation_space(agent)
        state, timestep = step(state, actions(t), keys_of(5, N, t + 1))
        observations, rewards, terminations, truncations, infos = envs.step(actions(t))
        for agent in envs.agents:
            np.testing.assert_allclose(rewards[agent], timestep.reward[agent], rtol=1e-6)
            np.testing.assert_array_equal(terminations[agent], timestep.terminated[agent])
            np.testing.assert_array_equal(truncations[agent], timestep.truncated[agent])
            ends = timestep.done.any()
            assert ("final_obs" in infos[agent]) == ends
            if ends:
                mine = infos[agent]
                np.testing.assert_array_equal(mine["_final_obs"], timestep.done)
                np.testing.assert_array_equal(mine["final_obs"], timestep.final_observation[agent])
                np.testing.assert_array_equal(
                    mine["final_info"]["world_state"], timestep.final_info["world_state"]
                )
        num_ends += int(timestep.done.sum())
    assert num_ends == 2 * N


def test_instances_have_seeds_of_their_own_and_copies_start_anew():
    envs = jaxenvs.make_pettingzoo(Relay(), N, seed=7)
    first, _ = envs.reset()
    np.testing.assert_array_equal(copy.deepcopy(envs).reset()[0]["b_1"], first["b_1"])
    np.testing.assert_array_equal(envs.reset(seed=[9, 8, 7])[0]["b_1"][2], first["b_1"][0])
    assert (envs.reset()[0]["b_1"] != first["b_1"]).any()
    with pytest.raises(SeedError, match="2 seeds for num_envs=3"):
        envs.reset(seed=[1, 2])


def test_a_time_limit_truncates_all_agents():
    envs = jaxenvs.make_pettingzoo(Relay(), N, time_limit=3)
    envs.reset(seed=0)
    for t in range(3):
        _, _, terminations, truncations, infos = envs.step(actions(t))
    assert truncations["a_0"].all() and not terminations["a_0"].any()
    assert terminations["b_1"].all() and infos["a_0"]["_final_obs"].all()


def test_a_batch_too_large_for_one_buffer_has_the_same_results():
    num_envs = 30_000
    envs, small = (jaxenvs.make_pettingzoo(Relay(), n, seed=1) for n in (num_envs, N))
    envs.reset()
    small.reset()
    for t in range(4):
        few = actions(t)
        many = {agent: np.resize(few[agent], (num_envs, *few[agent].shape[1:])) for agent in few}
        *found, infos = envs.step(many)
        *expected, few_infos = small.step(few)
    rows = [[each[agent][:N] for agent in small.agents] for each in found]
    jax.tree.map(np.testing.assert_array_equal, rows, [[*each.values()] for each in expected])
    final = infos["b_1"]["final_obs"][:N]
    np.testing.assert_array_equal(final, few_infos["b_1"]["final_obs"])


def test_frames_of_all_instances():
    envs = jaxenvs.make_pettingzoo(Relay(), N, render_mode="rgb_array")
    envs.reset(seed=0)
    envs.step(actions(0))
    frames = envs.render()
    assert len(frames) == N and frames[0].shape == (8, 8, 3) and (frames[0] == 1).all()


def test_actions_that_do_not_fit_are_refused():
    envs = jaxenvs.make_pettingzoo(Relay(), N)
    envs.reset(seed=0)
    with pytest.raises(ActionError, match=r"keys \['a_0', 'b_1'\]"):
        envs.step({"a_0": np.ones(N, int)})
    with pytest.raises(ActionError, match=r"action\['a_0'\]"):
        envs.step(actions(0) | {"a_0": np.full(N, 9)})


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError, match=r"single agent.*Use jaxenvs"):
        jaxenvs.make_pettingzoo("CartPole-v1", 2)
    with pytest.raises(ParameterError, match='"parallel", or "aec" without num_envs'):
        jaxenvs.make_pettingzoo(Relay(), 2, api="aec")
    with pytest.raises(ParameterError, match="render_mode='rgb'"):
        jaxenvs.make_pettingzoo(Relay(), 2, render_mode="rgb")
    with pytest.raises(ParameterError, match="use make_vec"):
        jaxenvs.make_pettingzoo("pettingzoo/sisl/pursuit_v5", 2)


def test_without_pettingzoo_only_single_environments_are_missing(monkeypatch):
    module = importlib.import_module("jaxenvs.faces.pettingzoo")
    for name in [name for name in sys.modules if name.split(".")[0] == "pettingzoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    spec = importlib.util.find_spec("jaxenvs.faces.pettingzoo")
    without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without)
    assert without is not module and without.make_pettingzoo(Relay(), 2).num_envs == 2
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[pettingzoo\]"):
        without.make_pettingzoo(Relay())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("make_gym", {}),
        ("make_gym", {"num_envs": 2}),
        ("make_dm", {}),
        ("make_dm", {"num_envs": 2}),
        ("make_gymnax", {}),
    ],
)
def test_interfaces_for_a_single_agent_refuse_several(name, options):
    with pytest.raises(ParameterError, match=r"agents b_1, a_0;.*make_pettingzoo"):
        getattr(jaxenvs, name)(Relay(), **options)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("module", "name", "options"),
    [
        ("stoa", "make_stoa", {}),
        ("envelope", "make_envelope", {}),
        ("stable_baselines3", "JaxVecEnv", {"num_envs": 2}),
        ("tianshou", "JaxVectorEnv", {"num_envs": 2}),
    ],
)
def test_interfaces_of_other_libraries_refuse_several(module, name, options):
    pytest.importorskip(module)
    make = getattr(importlib.import_module(f"jaxenvs.faces.{module}"), name)
    with pytest.raises(ParameterError, match=r"agents b_1, a_0;.*make_pettingzoo"):
        make(Relay(), **options)
