"""What DQN, SAC and TD3 regress on, by hand and as rlax has it."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.training import DQN, SAC, TD3, ActorTwinQ, QNetwork, Replay, make_train
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from tests.ids import every_nth
from tests.training.algorithms._transitions import (
    KEY,
    TORQUES,
    applied,
    assembled,
    gradients_of,
    sample,
)

THREE = spaces.Discrete(3)
CHOICES = np.array([0, 2, 1, 1], np.int32)
PUSHES = np.array([[0.5, -0.5], [0.0, 1.0], [-0.2, 0.3], [0.9, -0.9]], np.float32)
TINY_Q, TINY = QNetwork(hidden_sizes=(8,)), ActorTwinQ(hidden_sizes=(8,))


def moved(weights):
    """Weights whose targets are others than what is learned."""
    targets = jax.tree.map(
        lambda x: x + np.float32(0.1 * np.sin(np.arange(x.size)).reshape(x.shape)),
        jax.device_get(weights.target_params),
    )
    return weights.replace(target_params=targets)


@pytest.mark.parametrize("double", [True, False])
def test_dqn_error_matches_rlax(double):
    rlax = pytest.importorskip("rlax")
    algorithm = DQN(double=double)
    context, weights = assembled(algorithm, THREE, TINY_Q)
    weights, rows = moved(weights), sample(CHOICES)
    q = context.networks.q

    @jax.jit
    def by_rlax(weights, rows):
        now = q(weights.params, context.networks.features(rows.observation))
        later = context.networks.features(rows.next_observation)
        judge, chooser = q(weights.target_params, later), q(weights.params, later)
        chosen, known = (now, rows.action, rows.reward, rows.discount, judge), rlax.q_learning
        if double:
            chosen, known = (*chosen, chooser), rlax.double_q_learning
        expected = jax.vmap(known)(*chosen)
        return expected, rlax.huber_loss(expected).mean()

    gradients, losses, error = gradients_of(algorithm, context, weights, rows)
    expected, loss = by_rlax(weights, rows)
    chex.assert_trees_all_close(error, expected, atol=1e-6)
    chex.assert_trees_all_close(losses["q_loss"], loss, rtol=1e-5)
    assert any(np.abs(g).max() > 0 for g in jax.tree.leaves(jax.device_get(gradients)))


def test_row_weights_scale_gradients_but_not_errors():
    algorithm = DQN()
    context, weights = assembled(algorithm, THREE, TINY_Q)
    gradients = jax.jit(lambda rows: algorithm.gradients(context, weights, rows, KEY))
    once = jax.device_get(gradients(sample(CHOICES)))
    twice = jax.device_get(gradients(sample(CHOICES, weight=np.full(4, 2.0, np.float32))))
    chex.assert_trees_all_close(twice[0], jax.tree.map(lambda g: 2 * g, once[0]), rtol=1e-5)
    chex.assert_trees_all_close(twice[2], once[2])


def test_dqn_targets_are_copied_every_n_gradient_steps():
    algorithm = DQN(target_update_every=3)
    old, new = {"q": jnp.zeros(2)}, {"q": jnp.ones(2)}
    update = jax.jit(jax.vmap(algorithm.update_targets, (None, None, 0)))
    targets = update(new, old, jnp.arange(1, 7))
    np.testing.assert_array_equal(targets["q"][:, 0], [0, 0, 1, 0, 0, 1])


def test_epsilon_falls_linearly_and_stays():
    algorithm = DQN(initial_epsilon=1.0, final_epsilon=0.1, exploration_steps=1_000)
    values = jax.jit(algorithm.epsilon)(jnp.array([0.0, 500.0, 1_000.0, 2_000.0]))
    np.testing.assert_allclose(values, [1.0, 0.55, 0.1, 0.1], rtol=1e-6)


def test_dqn_exploration_depends_only_on_the_steps_taken():
    algorithm = DQN(exploration_steps=1_000)

    def actions(num_updates):
        context, weights = assembled(algorithm, THREE, TINY_Q, num_updates=num_updates)

        @jax.jit
        def explore(params):
            features = context.networks.features(jnp.zeros((256, 3)))
            behavior = BehaviorPolicy(
                params=params, observation_statistics=None, updates=jnp.int32(100)
            )
            return algorithm.explore(context, behavior, features, KEY)

        return explore(weights.params)

    np.testing.assert_array_equal(actions(125), actions(10**6))


@pytest.mark.parametrize(
    ("ratio", "environment_steps", "gradient_steps"),
    [(1.0, 8, 8), (0.25, 32, 8), (0.25, 1, 1), (2.0, 4, 8), (0.3, 10, 3), (0.25, 6, 2)],
)
def test_gradient_steps_keep_a_ratio_to_environment_steps(ratio, environment_steps, gradient_steps):
    for algorithm in (DQN, SAC, TD3):
        one = algorithm(replay_ratio=ratio)
        assert one.gradient_steps(environment_steps) == gradient_steps
        taken = np.cumsum(one.gradient_steps_of(environment_steps, jnp.arange(200)))
        exact = np.floor(np.round(ratio * environment_steps * (np.arange(200) + 1), 6))
        np.testing.assert_array_equal(taken, exact)


@pytest.mark.parametrize(
    ("ratio", "num_envs", "unroll_length"),
    every_nth(2, [(0.25, 1, 1), (0.25, 2, 3), (0.1, 1, 2)]),
)
def test_training_gradient_steps_are_replay_ratio_times_steps(ratio, num_envs, unroll_length):
    train = make_train(
        "CartPole-v1",
        DQN(replay_ratio=ratio, learning_starts=0, batch_size=2),
        actor=TINY_Q,
        storage=Replay(64),
        num_envs=num_envs,
        unroll_length=unroll_length,
        total_steps=120,
    )
    state = jax.jit(train)(KEY).learner_state
    assert int(state.weights.gradient_steps) == round(120 * ratio)


@pytest.mark.parametrize("algorithm", [DQN(), SAC(), TD3()], ids=lambda a: type(a).__name__)
def test_the_first_actions_are_random_whatever_the_weights(algorithm):
    space = THREE if isinstance(algorithm, DQN) else TORQUES
    actor = dataclasses.replace(algorithm.default_actor(), hidden_sizes=(8,))
    context, weights = assembled(algorithm, space, actor)

    @jax.jit
    def act(params, updates):
        features = context.networks.features(jnp.zeros((256, 3)))
        behavior = BehaviorPolicy(params=params, observation_statistics=None, updates=updates)
        return algorithm.act(context, behavior, (), features, KEY)[1]

    first, later = (np.asarray(act(weights.params, np.int32(n))) for n in (0, 10**6))
    if isinstance(algorithm, DQN):
        assert np.bincount(first).min() > 50
        # From then on the best action, but for the share that explores.
        assert np.bincount(later).max() > 230
    else:
        assert np.abs(first.mean()) < 0.15 and abs(first.std() - 1 / np.sqrt(3)) < 0.05
        assert later.std() != pytest.approx(1 / np.sqrt(3), abs=0.02)
    assert (np.abs(later) <= 2).all()


def test_the_error_of_sac_by_hand():
    algorithm = SAC(initial_temperature=0.3)
    context, weights = assembled(algorithm, TORQUES, TINY)
    weights, rows, networks = moved(weights), sample(PUSHES), context.networks

    @jax.jit
    def judged(weights, rows):
        later = networks.features(rows.next_observation)
        next_key, _ = jax.random.split(KEY)
        action, log_prob = networks.distribution.sample_and_log_prob(
            networks.policy(weights.params, later), None, next_key
        )
        value = networks.q(weights.target_params, later, action).min(0) - 0.3 * log_prob
        return value, networks.q(weights.params, networks.features(rows.observation), rows.action)

    _, losses, error = jax.device_get(gradients_of(algorithm, context, weights, rows))
    value, now = jax.device_get(judged(weights, rows))
    target = rows.reward + rows.discount * value
    np.testing.assert_allclose(error, np.abs(target - now).mean(0), atol=1e-5)
    np.testing.assert_allclose(losses["q_loss"], 0.5 * ((target - now) ** 2).sum(0).mean(), 1e-5)
    np.testing.assert_allclose(losses["temperature"], 0.3, rtol=1e-6)


def test_discrete_sac_error_averages_over_the_policy():
    algorithm = SAC(initial_temperature=0.3)
    context, weights = assembled(algorithm, THREE, TINY)
    weights, rows, networks = moved(weights), sample(CHOICES), context.networks

    @jax.jit
    def judged(weights, rows):
        later = networks.features(rows.next_observation)
        probs = jax.nn.softmax(networks.policy(weights.params, later))
        values = networks.q(weights.target_params, later).min(0)
        return probs, values, networks.q(weights.params, networks.features(rows.observation))

    _, losses, error = gradients_of(algorithm, context, weights, rows)
    probs, values, now = jax.device_get(judged(weights, rows))
    value = (probs * (values - 0.3 * np.log(probs))).sum(-1)
    target = rows.reward + rows.discount * value
    taken = now[:, np.arange(4), CHOICES]
    np.testing.assert_allclose(error, np.abs(target[None] - taken).mean(0), atol=1e-5)
    assert losses["entropy"] > 1.0  # of three choices at the start, log 3 = 1.1


@pytest.mark.parametrize(("target_entropy", "sign"), [(1e3, -1), (-1e3, 1)])
def test_sac_temperature_falls_above_target_entropy_else_rises(target_entropy, sign):
    algorithm = SAC(target_entropy=target_entropy)
    context, weights = assembled(algorithm, TORQUES, TINY)
    gradients, _, _ = gradients_of(algorithm, context, weights, sample(PUSHES))
    assert np.sign(gradients["log_temperature"]) == sign
    after = applied(algorithm, context, weights, gradients)
    assert np.sign(-np.asarray(after.params["log_temperature"])) == sign
    kept = SAC(target_entropy=target_entropy, learn_temperature=False)
    gradients, _, _ = gradients_of(kept, context, weights, sample(PUSHES))
    assert gradients["log_temperature"] == 0


def test_target_critics_of_sac_follow_slowly():
    algorithm = SAC(tau=0.25)
    context, weights = assembled(algorithm, TORQUES, TINY)
    gradients, _, _ = gradients_of(algorithm, context, weights, sample(PUSHES))
    after = applied(algorithm, context, weights, gradients)
    expected = jax.tree.map(
        lambda new, old: 0.25 * new + 0.75 * old,
        *jax.device_get((after.params["critic"], weights.target_params["critic"])),
    )
    chex.assert_trees_all_close(after.target_params["critic"], expected, atol=1e-6)


def test_the_error_of_td3_by_hand():
    algorithm = TD3(target_noise=0.4, target_noise_clip=0.3)
    actor = ActorTwinQ(policy="deterministic", hidden_sizes=(8,))
    context, weights = assembled(algorithm, TORQUES, actor)
    weights, rows, networks = moved(weights), sample(PUSHES), context.networks

    @jax.jit
    def judged(weights, rows):
        later = networks.features(rows.next_observation)
        action = networks.mode(weights.target_params, (), later)[1]
        noise = jnp.clip(0.4 * jax.random.normal(KEY, action.shape), -0.3, 0.3)
        value = networks.q(weights.target_params, later, jnp.clip(action + noise, -1, 1)).min(0)
        return value, networks.q(weights.params, networks.features(rows.observation), rows.action)

    _, _, error = gradients_of(algorithm, context, weights, rows)
    value, now = jax.device_get(judged(weights, rows))
    target = rows.reward + rows.discount * value
    np.testing.assert_allclose(error, np.abs(target - now).mean(0), atol=1e-5)


def test_td3_policy_and_targets_move_every_second_step():
    algorithm = TD3()
    actor = ActorTwinQ(policy="deterministic", hidden_sizes=(8,))
    context, weights = assembled(algorithm, TORQUES, actor)

    @jax.jit
    def step(weights):
        gradients, losses, _ = algorithm.gradients(context, weights, sample(PUSHES), KEY)
        return algorithm.apply_gradients(context, weights, gradients), losses

    moves = []
    weights = jax.device_get(weights)
    for _ in range(6):
        after, losses = jax.device_get(step(weights))
        differs = [
            not np.array_equal(a, b)
            for part in ("actor", "critic")
            for a, b in [
                (
                    np.concatenate([x.ravel() for x in jax.tree.leaves(after.params[part])]),
                    np.concatenate([x.ravel() for x in jax.tree.leaves(weights.params[part])]),
                )
            ]
        ]
        followed = any(
            not np.array_equal(a, b)
            for a, b in zip(
                jax.tree.leaves(after.target_params),
                jax.tree.leaves(weights.target_params),
                strict=True,
            )
        )
        moves.append((*differs, followed, bool(np.isfinite(losses["policy_loss"]))))
        weights = after
    assert moves == [(False, True, False, False), (True, True, True, True)] * 3


@pytest.mark.parametrize("algorithm", [SAC(), TD3()], ids=lambda a: type(a).__name__)
def test_sac_and_td3_opposite_critic_errors_do_not_cancel(algorithm):
    actor = ActorTwinQ(policy=algorithm.default_actor().policy, hidden_sizes=(8,))
    context, weights = assembled(algorithm, TORQUES, actor)
    opposite = np.array([[5.0], [-5.0]], np.float32)  # what the two say, whatever they are asked
    critic = jax.tree.map(
        lambda x: opposite if x.shape == opposite.shape else np.zeros_like(x),
        weights.params["critic"],
    )
    weights = weights.replace(params={**weights.params, "critic": critic})
    rows = sample(PUSHES, reward=np.zeros(4, np.float32), discount=np.zeros(4, np.float32))
    *_, error = gradients_of(algorithm, context, weights, rows)
    np.testing.assert_allclose(error, 5.0, rtol=1e-6)
