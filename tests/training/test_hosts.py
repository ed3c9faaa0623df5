"""The same training on environments that are not JAX."""

import chex
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import PoolError, TrainingError
from jaxenvs.training import DQN, PPO, ActorCritic, Learner, QNetwork, Replay, Scheme, make_train
from jaxenvs.wrappers import RecordEpisodeStatistics

SMALL = PPO(epochs=1, minibatches=1)
ID = "gymnasium/CartPole-v1"


def configured(env, **options):
    actor = ActorCritic(hidden_sizes=(8,))
    return make_train(env, SMALL, actor=actor, unroll_length=8, total_steps=64, **options)


def test_ppo_on_hosted_environments_trains_and_resumes():
    env = jaxenvs.make_vec(ID, 4, num_workers=1)
    train = configured(env.wrap(RecordEpisodeStatistics))
    run = jax.jit(train.resume, static_argnums=1)
    learner_state = jax.jit(train.init)(jax.random.key(0))
    before = jax.device_get(learner_state.params)
    result = run(learner_state, 2)
    assert result.metrics["steps"].tolist() == [32, 64]
    assert np.isfinite(result.metrics["value_loss"]).all()
    changed = jax.tree.map(
        lambda old, new: not np.array_equal(old, new), before, result.learner_state.params
    )
    assert any(jax.tree.leaves(changed))
    later = run(result.learner_state, 2)
    assert later.metrics["steps"].tolist() == [96, 128]
    # Four environments took 32 steps each, and none was stepped twice or left out.
    assert later.learner_state.collector.episodes.episode_length.max() <= 32
    finished = np.concatenate([result.metrics["episode_count"], later.metrics["episode_count"]])
    assert finished.sum() > 0
    with pytest.raises(jax.errors.JaxRuntimeError, match="was stepped already"):
        jax.block_until_ready(run(result.learner_state, 2))

    # Environments are in no checkpoint: weights go on in new episodes.
    fresh = jax.jit(train.init)(jax.random.key(1))
    carried = result.learner_state.replace(collector=fresh.collector)
    assert run(carried, 2).metrics["steps"].tolist() == [96, 128]
    env.close()


def test_replay_is_truncated_when_hosted_episodes_restart(tmp_path):
    env = jaxenvs.make_vec(ID, 4, backend="serial")
    scheme = Scheme(
        env,
        DQN(batch_size=4, learning_starts=0),
        QNetwork(hidden_sizes=(8,)),
        Replay(64, n_step=3),
        unroll_length=4,
    )
    with Learner(scheme, total_steps=64) as learner:
        learner.step()
        before = jax.device_get(
            learner._executor.train.truncate_memory(learner.learner_state).storage
        )
        learner.save(tmp_path / "saved")
        learner.restore(tmp_path / "saved")
        chex.assert_trees_all_equal(jax.device_get(learner.learner_state.storage), before)
    env.close()


def test_vmap_over_hosted_environments_is_refused_with_reason():
    env = jaxenvs.make_vec(ID, 2, backend="serial")
    train = configured(env)
    keys = jax.random.split(jax.random.key(0), 3)
    with pytest.raises(PoolError, match=r"under vmap, which would need 3 copies"):
        jax.eval_shape(jax.vmap(train), keys)
    env.close()


def test_host_id_is_made_like_a_native_id():
    train = configured(ID, num_envs=2)
    assert isinstance(train.env, jaxenvs.HostEnv) and train.env.autoreset_mode == "same_step"
    train.env.close()
    with pytest.raises(TrainingError, match="num_envs"):
        configured(ID)
    env = jaxenvs.make_vec(ID, 2, backend="serial", autoreset_mode="next_step")
    with pytest.raises(TrainingError, match="belong to no episode"):
        configured(env)
    env.close()


def test_a_host_without_final_observations_is_refused_at_once():
    pool = jaxenvs.make_pool(ID, 2, backend="serial")
    env = jaxenvs.HostEnv(pool, final_observation=False)
    with pytest.raises(TrainingError, match="final_observation=False"):
        configured(env)
    env.close()


def test_hosted_training_needs_evaluation_env_and_logs_infos():
    env = jaxenvs.make_vec(ID, 2, backend="serial")
    options = {"evaluate_every": 32, "evaluation_episodes": 2, "log_info": "elapsed_step"}
    with pytest.raises(TrainingError, match="evaluation_env="):
        configured(env, **options)
    other = jaxenvs.make_vec(ID, 2, backend="serial")
    metrics = jax.jit(configured(env, evaluation_env=other, **options))(jax.random.key(0)).metrics
    assert np.isnan(metrics["evaluation_return"]).tolist() == [True, False] * 2
    np.testing.assert_array_equal(metrics["evaluation_return"], metrics["evaluation_length"])
    np.testing.assert_array_equal(metrics["info/elapsed_step"], metrics["episode_length"])
    for each in (env, other):
        each.close()


def test_learner_after_a_refused_replace_keeps_its_environments():
    env = jaxenvs.make_vec(ID, 2, backend="serial")
    scheme = Scheme(env, SMALL, ActorCritic(hidden_sizes=(8,)), unroll_length=4)
    with Learner(scheme, total_steps=64) as learner:
        learner.step()
        with pytest.raises(TrainingError, match="other shapes than the learned"):
            learner.replace(actor=ActorCritic(hidden_sizes=(9,)))
        assert learner.step()["steps"] == 16
        learner.replace(algorithm=SMALL.replace(epochs=2))
        assert learner.step()["steps"] == 24
    env.close()
