"""Programs that were written for gymnax: its wrappers, PureJaxRL, rejax."""

import dataclasses
import os
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from benchmarks import _training_peers as peers
from jaxenvs.testing import ScriptedEnv
from jaxenvs.testing.dummy import CONTINUE, TERMINATE

gymnax = pytest.importorskip("gymnax")

from gymnax import wrappers  # noqa: E402
from gymnax.environments import environment, spaces  # noqa: E402

from jaxenvs.faces import gymnax as ours  # noqa: E402
from jaxenvs.parameters import NO_LIMIT  # noqa: E402

pytestmark = pytest.mark.interop

IS_OLD = not hasattr(environment.Environment, "is_truncated")
PUREJAXRL = Path(os.environ.get("JAXENVS_PUREJAXRL", peers.PUREJAXRL))


@pytest.fixture(autouse=True)
def _usual_promotion():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def test_environments_and_spaces_are_gymnax_instances():
    env, params = ours.make("CartPole-v1")
    assert isinstance(env, environment.Environment)
    assert isinstance(env.action_space(params), spaces.Discrete)
    assert isinstance(env.observation_space(params), spaces.Box)
    env, params = ours.make("Blackjack-v1")
    assert isinstance(env.observation_space(params), spaces.Tuple)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_attributes_and_shapes_match_gymnax(id):
    (env, params), (their_env, their_params) = ours.make(id), gymnax.make(id)
    assert env.name == their_env.name and env.num_actions == their_env.num_actions
    assert params.max_steps_in_episode == their_params.max_steps_in_episode
    key = jax.random.key(0)
    outputs = []
    for each, given in ((env, params), (their_env, their_params)):
        obs, state = each.reset(key, given)
        action = each.action_space(given).sample(key)
        obs_after, _, *rest = each.step(key, state, action, given)
        outputs.append((obs, obs_after, rest[:-1]))
        assert given.replace(max_steps_in_episode=9).max_steps_in_episode == 9
        assert "discount" in rest[-1]
    mine, theirs = jax.tree.map(lambda leaf: (leaf.shape, jnp.result_type(leaf)), outputs)
    assert mine == theirs
    for name in ("action_space", "observation_space"):
        mine, theirs = getattr(env, name)(params), getattr(their_env, name)(their_params)
        assert type(mine) is type(theirs) and mine.shape == theirs.shape


PAGE = Path(__file__).resolve().parents[2] / "docs" / "usage" / "gymnax.md"


@pytest.mark.parametrize("id", [id for id in gymnax.registered_envs if "MNIST" not in id])
def test_page_lists_every_parameter_that_differs(id):
    first_table, _ = PAGE.read_text().split("These have other defaults:")
    rows = re.findall(r"^\| (\S+-\S+) \| (.*?) \|", first_table, re.MULTILINE)
    listed = {row: {*re.findall(r"`(\w+)`", names)} for row, names in rows}
    changed = {"DeepSea-bsuite": "randomize_actions", "Acrobot-v1": "torque_noise_max"}
    (_, params), (_, theirs) = ours.make(id), gymnax.make(id)
    fields = {field.name: getattr(theirs, field.name) for field in dataclasses.fields(theirs)}
    absent = {name for name in fields if not hasattr(params, name)}
    assert absent == listed.get(id, set())
    for name in sorted(absent):
        with pytest.raises(jaxenvs.errors.UnknownParameterError):
            params.replace(**{name: fields[name]})
    limit = int(fields.pop("max_steps_in_episode"))
    assert params.max_steps_in_episode == (NO_LIMIT if re.search("MinAtar|bsuite", id) else limit)
    for name in fields.keys() - absent - {changed.get(id)}:
        np.testing.assert_allclose(getattr(params, name), fields[name], rtol=1e-6)


def test_gymnax_wrappers_count_and_flatten():
    env, params = ours.make(ScriptedEnv())
    env = wrappers.LogWrapper(wrappers.FlattenObservationWrapper(env))
    assert env.observation_space(params).shape == (2,)
    _, state = env.reset(jax.random.key(0), params)
    for t, action in enumerate([CONTINUE, TERMINATE]):
        *_, info = _, state, *_ = env.step(jax.random.key(t), state, action, params)
    assert bool(info["returned_episode"])
    assert float(info["returned_episode_returns"]) == TERMINATE
    assert int(info["returned_episode_lengths"]) == 2


def test_gymnax_to_gym_wrapper_runs():
    env, params = ours.make("CartPole-v1")
    single = wrappers.GymnaxToGymWrapper(env, params, seed=1)
    obs, _ = single.reset(seed=2)
    assert np.shape(obs) == (4,)
    obs, reward, terminated, truncated, _ = single.step(1)
    assert np.shape(obs) == (4,) and float(reward) == 1 and not terminated and not truncated


@pytest.mark.slow
@pytest.mark.optimized
def test_ppo_of_purejaxrl_learns_cartpole():
    if not (PUREJAXRL / "ppo.py").exists():
        pytest.skip(f"no ppo.py in {PUREJAXRL}: set JAXENVS_PUREJAXRL ({peers.WHERE})")
    if not IS_OLD:
        pytest.skip("PureJaxRL imports gymnax 0.0.9")
    settings = {"num_envs": 4, "unroll_length": 128, "total_steps": 500_000}
    train = peers.purejaxrl_ppo(PUREJAXRL, settings, gymnax=ours)
    metrics = jax.jit(train)(jax.random.PRNGKey(0))["metrics"]
    is_last = np.asarray(metrics["returned_episode"])[-50:]
    returns = np.asarray(metrics["returned_episode_returns"])[-50:][is_last]
    assert returns.mean() >= 450


# rejax's own settings for these environments, and the return to reach.
SETTINGS = {
    "PPO": (
        *("CartPole-v1", 475),
        {"num_envs": 5, "num_steps": 100, "num_epochs": 5, "num_minibatches": 5}
        | {"learning_rate": 0.00075, "max_grad_norm": 0.5, "total_timesteps": 150_000}
        | {"agent_kwargs": {"activation": "tanh"}},
    ),
    "DQN": (
        *("CartPole-v1", 475),
        {"num_envs": 10, "buffer_size": 50_000, "fill_buffer": 5_000, "batch_size": 100}
        | {"learning_rate": 0.001, "max_grad_norm": 10, "num_epochs": 5, "polyak": 0.98}
        | {"eps_end": 0.05, "agent": "DuelingQNetwork", "total_timesteps": 100_000},
    ),
    "SAC": (
        *("Pendulum-v1", -200),
        {"num_envs": 1, "buffer_size": 10_000, "fill_buffer": 256, "batch_size": 256}
        | {"learning_rate": 0.01, "polyak": 0.98, "normalize_observations": True}
        | {"total_timesteps": 10_000},
    ),
}


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_rejax_learns(algorithm):
    rejax = pytest.importorskip("rejax")
    id, enough, settings = SETTINGS[algorithm]
    env, params = ours.make(id, api="0.x")  # the form that rejax expects
    eval_freq = settings["total_timesteps"] // 10
    training = getattr(rejax, algorithm).create(
        env=env, env_params=params, eval_freq=eval_freq, skip_initial_evaluation=True, **settings
    )
    _, (_, returns) = jax.jit(training.train)(jax.random.PRNGKey(0))
    assert np.asarray(returns).mean(axis=-1).max() >= enough
