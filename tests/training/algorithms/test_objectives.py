"""That every hyperparameter does what it says: whole objectives, clips, schedules, flags."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.training import (
    A2C,
    DQN,
    GAE,
    PPO,
    PQN,
    SAC,
    TD3,
    VPG,
    ActorCritic,
    ActorTwinQ,
    QNetwork,
    VTrace,
    make_train,
)
from jaxenvs.training.algorithms._on_policy import Batch, Predictions
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from tests.training.algorithms._transitions import (
    KEY,
    TORQUES,
    applied,
    assembled,
    gradients_of,
    sample,
)

THREE = spaces.Discrete(3)
TINY = ActorTwinQ(hidden_sizes=(8,))
BATCH = Batch(
    features=None,
    action=None,
    log_prob=np.array([-1.0, -0.5], np.float32),
    value=np.array([1.0, 2.0], np.float32),
    advantage=np.array([2.0, -1.0], np.float32),
    target=np.array([3.0, 2.5], np.float32),
)
SAID = Predictions(
    log_prob=np.array([-1.1, -0.2], np.float32),
    entropy=np.float32(0.7),
    value=np.array([1.5, 4.0], np.float32),
)
SMALL = {"num_envs": 4, "unroll_length": 8, "total_steps": 320}


@pytest.mark.parametrize("clip_value", [True, False])
def test_the_objective_of_ppo_is_the_sum_of_its_weighted_parts(clip_value):
    ppo = PPO(clip=0.2, value_coefficient=0.3, entropy_coefficient=0.4, clip_value=clip_value)
    total, _ = jax.jit(PPO.loss)(ppo, BATCH, SAID)
    ratio = np.exp([-0.1, 0.3])
    advantage = np.array([2.0, -1.0])
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
    errors = (np.array([1.5, 4.0]) - [3.0, 2.5]) ** 2
    if clip_value:  # held within 0.2 of what it was: 1.2 and 2.2
        errors = np.maximum(errors, (np.array([1.2, 2.2]) - [3.0, 2.5]) ** 2)
    expected = -surrogate.mean() + 0.3 * 0.5 * errors.mean() - 0.4 * 0.7
    chex.assert_trees_all_close(total, np.float32(expected), rtol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "entropy"),
    [(A2C(value_coefficient=0.3, entropy_coefficient=0.4), 0.4), (VPG(value_coefficient=0.3), 0)],
)
def test_a2c_and_vpg_objectives_are_sums_of_weighted_parts(algorithm, entropy):
    total, _ = jax.jit(type(algorithm).loss)(algorithm, BATCH, SAID)
    errors = 0.5 * (np.array([1.5, 4.0]) - [3.0, 2.5]) ** 2
    expected = np.mean([1.1 * 2.0, -0.2]) + 0.3 * errors.mean() - entropy * 0.7
    chex.assert_trees_all_close(total, np.float32(expected), rtol=1e-5)


@pytest.mark.parametrize(
    "algorithm", [PPO(), A2C(), DQN(max_gradient_norm=0.5), PQN(max_gradient_norm=0.5)]
)
def test_gradients_are_scaled_down_to_the_largest_norm(algorithm):
    """Two steps, since one of Adam's does not depend on the scale."""
    gradients = np.array([[30.0, 40.0], [0.1, -0.1]], np.float32)
    held = gradients / np.float32([[100], [1]])  # norm 50, and less than 0.5

    @jax.jit
    def moves(gradients):
        optimizer, params = algorithm.optimizer(10), jnp.zeros(2)
        state, updates = optimizer.init(params), []
        for gradient in gradients:
            update, state = optimizer.update(gradient, state, params)
            updates.append(update)
        return updates

    with jax.numpy_dtype_promotion("standard"):  # optax's
        chex.assert_trees_all_close(moves(gradients), moves(held), rtol=1e-4)


@pytest.mark.parametrize("algorithm", [A2C(), PPO(epochs=1, minibatches=2)])
def test_annealed_learning_rate_falls_linearly_to_zero(algorithm):
    """Over ten gradient steps, with gradients that no norm limits."""

    def moves(anneal):
        annealed = algorithm.replace(anneal=anneal)
        optimizer, sizes = annealed.optimizer(10 // annealed.minibatches), []
        state = optimizer.init(jnp.zeros(1))
        for _ in range(10):
            update, state = optimizer.update(jnp.full(1, 1e-2), state)
            sizes.append(update[0])
        return jnp.stack(sizes)

    with jax.numpy_dtype_promotion("standard"):
        falls, stays = jax.jit(lambda: (moves(True), moves(False)))()
    np.testing.assert_allclose(falls / stays, 1 - np.arange(10) / 10, rtol=1e-4)


def test_ppo_settings_reach_the_storage_and_the_batch(monkeypatch):
    seen = {}

    def estimate(self, segment, *, gamma, gae_lambda):
        seen.update(gamma=gamma, gae_lambda=gae_lambda)
        return segment.reward, segment.reward + 1

    monkeypatch.setattr(GAE, "estimate", estimate)
    ppo = PPO(gamma=0.7, gae_lambda=0.6, epochs=3, minibatches=2, normalize_advantage=False)
    train = make_train("CartPole-v1", ppo, actor=ActorCritic(hidden_sizes=(8,)), **SMALL)

    @jax.jit
    def run():
        state = train.init(KEY)
        _, unroll = train.collect(BehaviorPolicy.of(state), state.collector, KEY)
        _, (batch, order) = ppo.process_unroll(train.context, state, unroll, KEY)
        drawn = ppo.draw_batch(train.context, state, (batch, order), 0, KEY)
        losses = []
        for is_normalized in (False, True):
            algorithm = ppo.replace(normalize_advantage=is_normalized)
            _, found, _ = algorithm.gradients(train.context, state.weights, drawn, KEY)
            losses.append(found["policy_loss"])
        return batch, order, losses

    batch, order, (raw, normalized) = jax.device_get(run())
    assert seen == {"gamma": 0.7, "gae_lambda": 0.6}
    chex.assert_trees_all_equal(batch.target, batch.advantage + 1)

    passes = order.reshape(3, -1)  # each step once, in another order each time
    assert (np.sort(passes) == np.arange(32)).all()
    assert len({tuple(each) for each in passes.tolist()}) == 3

    assert raw == pytest.approx(-1.0)  # rewards of 1: no spread
    assert normalized == 0


def test_vtrace_gets_log_ratios_to_the_policy_that_acted(monkeypatch):
    ratios = []

    def estimate(self, segment, **factors):
        ratios.append(segment.log_ratio)  # traced
        return segment.reward, segment.reward

    monkeypatch.setattr(VTrace, "estimate", estimate)
    actor = ActorCritic(hidden_sizes=(8,))
    train = make_train("CartPole-v1", A2C(), actor=actor, storage=VTrace(), **SMALL)

    @jax.jit
    def estimated():
        state = train.init(KEY)
        _, unroll = train.collect(BehaviorPolicy.of(state), state.collector, KEY)
        unroll = dataclasses.replace(unroll, log_prob=unroll.log_prob - 0.5)
        train.algorithm.estimate(train.context, state, unroll)
        return ratios[0]

    np.testing.assert_allclose(estimated(), 0.5, atol=1e-5)


def test_dueling_q_values_ignore_the_mean_advantage():
    context, weights = assembled(DQN(), THREE, QNetwork(hidden_sizes=(8,), dueling=True))

    @jax.jit
    def q(params):
        return context.networks.q(params, context.networks.features(jnp.ones((2, 3))))

    params = jax.device_get(weights.params)
    before = np.asarray(q(params))

    def raised(name):
        def raise_bias(path, x):
            is_it = name in jax.tree_util.keystr(path) and "bias" in jax.tree_util.keystr(path)
            return x + 1.0 if is_it else x

        return jax.tree_util.tree_map_with_path(raise_bias, params)

    np.testing.assert_allclose(q(raised("advantage")), before, atol=1e-6)
    np.testing.assert_allclose(q(raised("value")), before + 1, atol=1e-6)


@pytest.mark.parametrize("space", [THREE, TORQUES])
def test_sac_policy_gradient_raises_value_and_entropy(space):
    algorithm = SAC(initial_temperature=0.3)
    context, weights = assembled(algorithm, space, TINY)
    networks, is_discrete = context.networks, space is THREE
    rows = sample(np.int32([0, 2, 1, 1]) if is_discrete else np.zeros((4, 2), np.float32))
    gradients, _, _ = gradients_of(algorithm, context, weights, rows)

    @jax.jit
    @jax.grad
    def uphill(actor):
        features = networks.features(rows.observation)
        _, policy_key = jax.random.split(KEY)
        outputs = networks.policy({"actor": actor}, features)
        if is_discrete:
            probs = jax.nn.softmax(outputs)
            values = networks.q(weights.params, features).min(0)
            return (probs * (values - 0.3 * jnp.log(probs))).sum(-1).mean()
        action, log_prob = networks.distribution.sample_and_log_prob(outputs, None, policy_key)
        return (networks.q(weights.params, features, action).min(0) - 0.3 * log_prob).mean()

    expected = jax.tree.map(np.negative, jax.device_get(uphill(weights.params["actor"])))
    chex.assert_trees_all_close(gradients["actor"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "space", "expected"),
    [
        (SAC(), TORQUES, -2.0),
        (SAC(target_entropy_ratio=0.5), THREE, 0.5 * np.log(3)),
        (SAC(target_entropy=-7.0), TORQUES, -7.0),
    ],
)
def test_sac_target_entropy_default_ratio_and_override(algorithm, space, expected):
    context, _ = assembled(algorithm, space, TINY)
    assert float(algorithm._target_entropy(context.networks)) == pytest.approx(expected)


def test_sac_critics_and_temperature_have_own_learning_rates():
    rates = {"learning_rate": 0.1, "critic_learning_rate": 0.0, "temperature_learning_rate": 0.0}
    for still in ("critic", "log_temperature"):
        name = "temperature_learning_rate" if still != "critic" else "critic_learning_rate"
        algorithm = SAC(**{**dict.fromkeys(rates, 0.1), name: 0.0})
        context, weights = assembled(algorithm, TORQUES, TINY)
        before = jax.device_get(weights.params)
        gradients = jax.tree.map(np.ones_like, before)
        after = jax.device_get(applied(algorithm, context, weights, gradients).params)
        for part in ("actor", "critic", "log_temperature"):
            stays = jax.tree.map(np.array_equal, after[part], before[part])
            assert all(jax.tree.leaves(stays)) == (part == still)


class Memory:
    """Takes down how it is used."""

    def sample(self, state, key, batch_size, *, gamma, steps):
        self.drawn = batch_size, float(gamma), float(steps)
        return sample(np.zeros(4, np.int32))

    def set_priorities(self, state, index, error):
        self.told = index, error
        return "changed"

    def size(self, state):
        return jnp.int32(100)


@pytest.mark.parametrize("algorithm", [DQN(), SAC(), TD3()])
def test_replay_memory_receives_steps_and_errors(algorithm):
    algorithm = algorithm.replace(batch_size=4, gamma=0.8, learning_starts=16)
    train = (
        make_train("Pendulum-v1", algorithm, **SMALL)
        if not isinstance(algorithm, DQN)
        else make_train("CartPole-v1", algorithm, **SMALL)
    )
    state = jax.eval_shape(train.init, KEY).replace(updates=jnp.int32(5))
    memory = Memory()
    context = dataclasses.replace(train.context, storage=memory)
    batch = algorithm.draw_batch(context, state, None, 0, KEY)
    assert memory.drawn == (4, pytest.approx(0.8), 5 * 32)
    settled = algorithm.update_priorities(context, state, batch, jnp.arange(4.0))
    assert settled.storage == "changed"
    chex.assert_trees_all_equal(memory.told, (batch.index, jnp.arange(4.0)))


@pytest.mark.parametrize("algorithm", [DQN(), SAC()])
def test_nothing_is_learned_before_learning_starts(algorithm):
    algorithm = algorithm.replace(learning_starts=96, batch_size=4)
    train = make_train("CartPole-v1", algorithm, **SMALL)
    waits = [
        bool(
            algorithm.is_warming_up(
                dataclasses.replace(train.context, storage=Memory()),
                jax.eval_shape(train.init, KEY).replace(updates=jnp.int32(updates)),
            )
        )
        for updates in range(5)
    ]
    assert waits == [True, True, False, False, False]  # 32, 64, 96 ... steps
