"""PQN: its targets, compared with rlax, and its seeds, rates, and devices."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training import PQN, QNetwork, VTrace, make_train
from jaxenvs.training.algorithms._on_policy import Batch
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from tests.training.algorithms._transitions import KEY, assembled, gradients_of

THREE = spaces.Discrete(3)
TINY = QNetwork(hidden_sizes=(8,), layer_norm=True)


def test_targets_are_the_lambda_returns_of_rlax():
    """Values are those of the best actions, 0 behind a termination; a time limit cuts the sum."""
    rlax = pytest.importorskip("rlax")
    env = jaxenvs.make_vec("CartPole-v1", 4, time_limit=11)

    @jax.jit
    def collected(gae_lambda):
        algorithm = PQN(gamma=0.9, gae_lambda=gae_lambda, minibatches=1)
        train = make_train(env, algorithm, actor=TINY, unroll_length=24, total_steps=96)
        state = train.init(KEY)
        _, unroll = train.collect(BehaviorPolicy.of(state), state.collector, KEY)
        values = jax.vmap(lambda x: train.networks.q(state.params, train.networks.features(x)))
        batch = algorithm.estimate(train.context, state, unroll)[1]
        return unroll, batch, values(unroll.transition.next_observation).max(axis=-1)

    @jax.jit
    def by_rlax(steps, next_value, mixing):
        discount = 0.9 * (1 - steps.terminated.astype(jnp.float32))
        returns = jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1)
        return returns(steps.reward, discount, next_value, mixing)

    for gae_lambda in (0.0, 0.65, 1.0):
        unroll, batch, next_value = jax.device_get(collected(gae_lambda))
        steps = unroll.transition
        cut = steps.truncated & ~steps.terminated
        assert steps.terminated.any() and cut.any()
        # rlax knows no time limits: a lambda of 0 there takes the value of the final observation.
        expected = by_rlax(steps, next_value, np.float32(gae_lambda * (1 - cut)))
        np.testing.assert_allclose(batch.target, expected, rtol=1e-5, atol=1e-5)


def test_the_loss_is_half_the_squared_error_of_the_actions_taken():
    algorithm = PQN()
    context, weights = assembled(algorithm, THREE, TINY)
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    features, action = context.networks.features(rows), np.array([0, 2, 1, 1], np.int32)
    target = np.array([1.0, -1.0, 0.5, 2.0], np.float32)
    batch = Batch(
        features=features, action=action, log_prob=None, value=target, advantage=target,
        target=target,
    )  # fmt: skip
    gradients, metrics, _ = gradients_of(algorithm, context, weights, batch)

    def loss(params):
        values = context.networks.q(params, features)[jnp.arange(4), action]
        return 0.5 * jnp.mean((values - target) ** 2)

    expected, slope = jax.jit(jax.value_and_grad(loss))(weights.params)
    chex.assert_trees_all_close(metrics["q_loss"], expected, rtol=1e-6)
    chex.assert_trees_all_close(gradients, slope, rtol=1e-5, atol=1e-7)


def test_actions_become_the_best_ones_as_epsilon_falls():
    algorithm = PQN(initial_epsilon=1.0, final_epsilon=0.0, exploration_steps=800)
    context, weights = assembled(algorithm, THREE, TINY)  # 8 steps per update

    @jax.jit
    def act(params, updates):
        features = context.networks.features(jnp.zeros((600, 3)))
        behavior = BehaviorPolicy(params=params, observation_statistics=None, updates=updates)
        return algorithm.act(context, behavior, (), features, KEY)[1]

    def counts(updates):
        return np.bincount(act(weights.params, np.int32(updates)), minlength=3)

    assert counts(0).min() > 150
    assert 330 < counts(50).max() < 470  # a half at random, a third of which is the best
    assert counts(100).max() == 600


def test_a_sweep_over_rates_and_seeds_is_a_vmap():
    def trained(rate, gae_lambda, key):
        algorithm = PQN(learning_rate=rate, gae_lambda=gae_lambda, minibatches=2)
        train = make_train(
            "CartPole-v1", algorithm, actor=TINY, num_envs=4, unroll_length=4, total_steps=64
        )
        return train.init(key).params, train(key)

    sweep = jnp.array([0.0, 1e-2]), jnp.array([0.5, 0.9]), jax.random.split(KEY, 2)
    first, result = jax.device_get(jax.jit(jax.vmap(trained))(*sweep))
    moved = jax.tree.map(lambda x, y: x != y, first, result.learner_state.params)
    moved = [leaf.reshape((2, -1)).any(axis=1) for leaf in jax.tree.leaves(moved)]
    np.testing.assert_array_equal(np.any(moved, axis=0), [False, True])
    assert np.isfinite(result.metrics["explained_variance"]).all()


def test_a_storage_that_needs_probabilities_is_refused():
    with pytest.raises(TrainingError, match=r"PQN.*VTrace.*no probabilities.*GAE"):
        make_train(
            "CartPole-v1", PQN(), storage=VTrace(), num_envs=4, unroll_length=8, total_steps=64
        )
