"""What DQN, SAC and TD3 regress on, by hand and as rlax has it."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.training import DQN, SAC, TD3, ActorTwinQ, QNetwork, Replay, make_train
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from tests.training.algorithms._transitions import KEY, TORQUES, assembled, sample

THREE = spaces.Discrete(3)
CHOICES = jnp.array([0, 2, 1, 1])
PUSHES = jnp.array([[0.5, -0.5], [0.0, 1.0], [-0.2, 0.3], [0.9, -0.9]])
TINY_Q, TINY = QNetwork(hidden_sizes=(8,)), ActorTwinQ(hidden_sizes=(8,))


def moved(weights):
    """Weights whose targets are others than what is learned."""
    targets = jax.tree.map(
        lambda x: x + 0.1 * jnp.sin(jnp.arange(x.size)).reshape(x.shape), weights.target_params
    )
    return weights.replace(target_params=targets)


@pytest.mark.parametrize("double", [True, False])
def test_dqn_error_matches_rlax(double):
    rlax = pytest.importorskip("rlax")
    algorithm = DQN(double=double)
    context, weights = assembled(algorithm, THREE, TINY_Q)
    weights, rows = moved(weights), sample(CHOICES)
    gradients, losses, error = algorithm.gradients(context, weights, rows, KEY)
    q = context.networks.q
    now = q(weights.params, context.networks.features(rows.observation))
    later = context.networks.features(rows.next_observation)
    judge, chooser = q(weights.target_params, later), q(weights.params, later)
    if double:
        expected = jax.vmap(rlax.double_q_learning)(
            now, rows.action, rows.reward, rows.discount, judge, chooser
        )
    else:
        expected = jax.vmap(rlax.q_learning)(now, rows.action, rows.reward, rows.discount, judge)
    chex.assert_trees_all_close(error, expected, atol=1e-6)
    chex.assert_trees_all_close(losses["q_loss"], rlax.huber_loss(expected).mean(), rtol=1e-5)
    assert any(jnp.abs(g).max() > 0 for g in jax.tree.leaves(gradients))


def test_row_weights_scale_gradients_but_not_errors():
    algorithm = DQN()
    context, weights = assembled(algorithm, THREE, TINY_Q)
    once = algorithm.gradients(context, weights, sample(CHOICES), KEY)
    twice = algorithm.gradients(context, weights, sample(CHOICES, weight=jnp.full(4, 2.0)), KEY)
    chex.assert_trees_all_close(twice[0], jax.tree.map(lambda g: 2 * g, once[0]), rtol=1e-5)
    chex.assert_trees_all_close(twice[2], once[2])


def test_dqn_targets_are_copied_every_n_gradient_steps():
    algorithm = DQN(target_update_every=3)
    old, new = {"q": jnp.zeros(2)}, {"q": jnp.ones(2)}
    for step in range(1, 7):
        targets = algorithm.update_targets(new, old, jnp.int32(step))
        assert targets["q"][0] == (1 if step % 3 == 0 else 0)


def test_epsilon_falls_linearly_and_stays():
    algorithm = DQN(initial_epsilon=1.0, final_epsilon=0.1, exploration_steps=1_000)
    values = [float(algorithm.epsilon(jnp.float32(steps))) for steps in (0, 500, 1_000, 2_000)]
    np.testing.assert_allclose(values, [1.0, 0.55, 0.1, 0.1], rtol=1e-6)


def test_dqn_exploration_depends_only_on_the_steps_taken():
    algorithm = DQN(exploration_steps=1_000)

    def actions(num_updates):
        context, weights = assembled(algorithm, THREE, num_updates=num_updates)
        features = context.networks.features(jnp.zeros((256, 3)))
        behavior = BehaviorPolicy(
            params=weights.params, observation_statistics=None, updates=jnp.int32(100)
        )
        return algorithm.explore(context, behavior, features, KEY)

    np.testing.assert_array_equal(actions(125), actions(10**6))


@pytest.mark.parametrize(
    ("ratio", "environment_steps", "gradient_steps"),
    [(1.0, 8, 8), (0.25, 32, 8), (0.25, 1, 1), (2.0, 4, 8), (0.3, 10, 3), (0.25, 6, 2)],
)
def test_gradient_steps_keep_a_ratio_to_environment_steps(ratio, environment_steps, gradient_steps):
    for algorithm in (DQN, SAC, TD3):
        one = algorithm(replay_ratio=ratio)
        assert one.gradient_steps(environment_steps) == gradient_steps
        updates = jnp.arange(200)
        taken = jnp.cumsum(one.gradient_steps_of(environment_steps, updates))
        exact = np.floor(np.round(ratio * environment_steps * (np.arange(200) + 1), 6))
        np.testing.assert_array_equal(taken, exact)


@pytest.mark.parametrize(
    ("ratio", "num_envs", "unroll_length"), [(0.25, 1, 1), (0.1, 1, 2), (0.25, 2, 3)]
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
    context, weights = assembled(algorithm, space)
    features = context.networks.features(jnp.zeros((256, 3)))

    def actions(updates, key):
        behavior = BehaviorPolicy(
            params=weights.params, observation_statistics=None, updates=jnp.int32(updates)
        )
        return np.asarray(algorithm.act(context, behavior, (), features, key)[1])

    first = actions(0, KEY)
    if isinstance(algorithm, DQN):
        assert np.bincount(first).min() > 50
        # From then on the best action, but for the share that explores.
        later = actions(10**6, KEY)
        assert np.bincount(later).max() > 230
    else:
        assert np.abs(first.mean()) < 0.15 and abs(first.std() - 1 / np.sqrt(3)) < 0.05
        later = actions(10**6, KEY)
        assert later.std() != pytest.approx(1 / np.sqrt(3), abs=0.02)
    assert (np.abs(later) <= 2).all()


def test_the_error_of_sac_by_hand():
    algorithm = SAC(initial_temperature=0.3)
    context, weights = assembled(algorithm, TORQUES, TINY)
    weights, rows, networks = moved(weights), sample(PUSHES), context.networks
    _, losses, error = algorithm.gradients(context, weights, rows, KEY)
    later = networks.features(rows.next_observation)
    next_key, _ = jax.random.split(KEY)
    action, log_prob = networks.distribution.sample_and_log_prob(
        networks.policy(weights.params, later), None, next_key
    )
    value = networks.q(weights.target_params, later, action).min(0) - 0.3 * log_prob
    target = rows.reward + rows.discount * value
    now = networks.q(weights.params, networks.features(rows.observation), rows.action)
    chex.assert_trees_all_close(error, jnp.abs(target[None] - now).mean(0), atol=1e-5)
    chex.assert_trees_all_close(
        losses["q_loss"], 0.5 * ((target[None] - now) ** 2).sum(0).mean(), rtol=1e-5
    )
    chex.assert_trees_all_close(losses["temperature"], jnp.float32(0.3), rtol=1e-6)


def test_discrete_sac_error_averages_over_the_policy():
    algorithm = SAC(initial_temperature=0.3)
    context, weights = assembled(algorithm, THREE, TINY)
    weights, rows, networks = moved(weights), sample(CHOICES), context.networks
    _, losses, error = algorithm.gradients(context, weights, rows, KEY)
    later = networks.features(rows.next_observation)
    probs = np.asarray(jax.nn.softmax(networks.policy(weights.params, later)))
    values = np.asarray(networks.q(weights.target_params, later).min(0))
    value = (probs * (values - 0.3 * np.log(probs))).sum(-1)
    target = np.asarray(rows.reward) + np.asarray(rows.discount) * value
    now = np.asarray(networks.q(weights.params, networks.features(rows.observation)))
    taken = now[:, np.arange(4), np.asarray(CHOICES)]
    np.testing.assert_allclose(error, np.abs(target[None] - taken).mean(0), atol=1e-5)
    assert losses["entropy"] > 1.0  # of three choices at the start, log 3 = 1.1


@pytest.mark.parametrize(("target_entropy", "sign"), [(1e3, -1), (-1e3, 1)])
def test_sac_temperature_falls_above_target_entropy_else_rises(target_entropy, sign):
    algorithm = SAC(target_entropy=target_entropy)
    context, weights = assembled(algorithm, TORQUES, TINY)
    gradients, _, _ = algorithm.gradients(context, weights, sample(PUSHES), KEY)
    assert jnp.sign(gradients["log_temperature"]) == sign
    after = algorithm.apply_gradients(context, weights, gradients)
    assert jnp.sign(-after.params["log_temperature"]) == sign
    kept = SAC(target_entropy=target_entropy, learn_temperature=False)
    gradients, _, _ = kept.gradients(context, weights, sample(PUSHES), KEY)
    assert gradients["log_temperature"] == 0


def test_target_critics_of_sac_follow_slowly():
    algorithm = SAC(tau=0.25)
    context, weights = assembled(algorithm, TORQUES, TINY)
    gradients, _, _ = algorithm.gradients(context, weights, sample(PUSHES), KEY)
    after = algorithm.apply_gradients(context, weights, gradients)
    expected = jax.tree.map(
        lambda new, old: 0.25 * new + 0.75 * old,
        after.params["critic"],
        weights.target_params["critic"],
    )
    chex.assert_trees_all_close(after.target_params["critic"], expected, atol=1e-6)


def test_the_error_of_td3_by_hand():
    algorithm = TD3(target_noise=0.4, target_noise_clip=0.3)
    actor = ActorTwinQ(policy="deterministic", hidden_sizes=(8,))
    context, weights = assembled(algorithm, TORQUES, actor)
    weights, rows, networks = moved(weights), sample(PUSHES), context.networks
    _, _, error = algorithm.gradients(context, weights, rows, KEY)
    later = networks.features(rows.next_observation)
    action = networks.mode(weights.target_params, (), later)[1]
    noise = jnp.clip(0.4 * jax.random.normal(KEY, action.shape), -0.3, 0.3)
    value = networks.q(weights.target_params, later, jnp.clip(action + noise, -1, 1)).min(0)
    target = rows.reward + rows.discount * value
    now = networks.q(weights.params, networks.features(rows.observation), rows.action)
    chex.assert_trees_all_close(error, jnp.abs(target[None] - now).mean(0), atol=1e-5)


def test_td3_policy_and_targets_move_every_second_step():
    algorithm = TD3()
    actor = ActorTwinQ(policy="deterministic", hidden_sizes=(8,))
    context, weights = assembled(algorithm, TORQUES, actor)

    @jax.jit
    def step(weights):
        gradients, losses, _ = algorithm.gradients(context, weights, sample(PUSHES), KEY)
        return algorithm.apply_gradients(context, weights, gradients), losses

    moves = []
    for _ in range(6):
        after, losses = step(weights)
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
    opposite = jnp.array([[5.0], [-5.0]])  # what the two say, whatever they are asked
    critic = jax.tree.map(
        lambda x: opposite if x.shape == opposite.shape else jnp.zeros_like(x),
        weights.params["critic"],
    )
    weights = weights.replace(params={**weights.params, "critic": critic})
    rows = sample(PUSHES, reward=jnp.zeros(4), discount=jnp.zeros(4))
    *_, error = algorithm.gradients(context, weights, rows, KEY)
    chex.assert_trees_all_close(error, jnp.full(4, 5.0))
