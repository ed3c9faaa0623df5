import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training import PPO
from jaxenvs.training.algorithms.ppo import Batch, ppo_loss
from jaxenvs.training.networks import make_actor_critic

NETWORK = make_actor_critic(
    spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2), hidden_sizes=(8,), activation="tanh"
)
PARAMS = NETWORK.init(jax.random.key(0), jnp.zeros((1, 3)))


def batch(ratio=1.0, advantage=(1.0, -1.0, 3.0, -3.0)):
    """Four transitions whose probability ratio under PARAMS is `ratio`."""
    features = jax.random.normal(jax.random.key(1), (4, 3))
    action = jnp.array([0, 1, 0, 1])
    log_prob, _ = NETWORK.log_prob_and_entropy(PARAMS, features, action)
    value = NETWORK.value(PARAMS, features)
    return Batch(
        features=features,
        action=action,
        log_prob=log_prob - jnp.log(jnp.float32(ratio)),
        value=value,
        advantage=jnp.array(advantage),
        target=value + 1.0,
    )


def test_hyper_parameters_are_leaves_and_structure_is_not():
    leaves, structure = jax.tree.flatten(PPO())
    assert 2.5e-4 in leaves and 4 not in leaves
    assert jax.tree.structure(PPO(learning_rate=1.0)) == structure
    assert jax.tree.structure(PPO(epochs=1)) != structure


def test_the_loss_on_the_policy_that_acted_by_hand():
    loss, parts = ppo_loss(PARAMS, NETWORK, PPO(), batch())
    assert abs(parts["policy_loss"]) < 1e-6  # ratio 1, advantages of mean 0
    assert parts["approx_kl"] == 0 and parts["clip_fraction"] == 0
    chex.assert_trees_all_close(parts["value_loss"], 0.5, rtol=1e-5)  # every target is 1 off
    expected = 0.5 * parts["value_loss"] - 0.01 * parts["entropy"]
    chex.assert_trees_all_close(loss, expected, atol=1e-6)


@pytest.mark.parametrize(("ratio", "kept"), [(1.5, 1.2), (0.5, 0.8)])
def test_only_ratios_that_moved_the_profitable_way_are_clipped(ratio, kept):
    _, parts = ppo_loss(PARAMS, NETWORK, PPO(clip=0.2), batch(ratio))
    unit = np.array([1.0, -1.0, 3.0, -3.0]) / np.sqrt(5.0)
    expected = -np.minimum(ratio * unit, kept * unit).mean()
    chex.assert_trees_all_close(parts["policy_loss"], np.float32(expected), rtol=1e-4)
    assert parts["clip_fraction"] == 1
    chex.assert_trees_all_close(
        parts["approx_kl"], np.float32(ratio - 1 - np.log(ratio)), rtol=1e-3
    )


def test_the_gradient_raises_the_probability_of_better_actions():
    gradient = jax.grad(lambda params: ppo_loss(params, NETWORK, PPO(), batch())[0])(PARAMS)
    moved = jax.tree.map(lambda w, g: w - 0.1 * g, PARAMS, gradient)
    data = batch()
    log_prob, _ = NETWORK.log_prob_and_entropy(moved, data.features, data.action)
    assert jnp.sum((log_prob - data.log_prob) * data.advantage) > 0


def test_a_clipped_value_that_moved_too_far_has_no_gradient():
    data = batch().replace(value=NETWORK.value(PARAMS, batch().features) - 0.5)
    far = data.replace(target=data.value - 1.0)  # the critic overshot already, away from it

    def critic_gradient(ppo, data):
        gradient = jax.grad(lambda params: ppo_loss(params, NETWORK, ppo, data)[1]["value_loss"])
        return max(jnp.abs(g).max() for g in jax.tree.leaves(gradient(PARAMS)["critic"]))

    near = data.replace(target=data.value + 1.0)  # the critic moved 0.5 of the way, clip is 0.2
    assert critic_gradient(PPO(), near) == 0
    assert critic_gradient(PPO(clip_value=False), near) > 0
    assert critic_gradient(PPO(), far) > 0  # never kept from coming back


@pytest.mark.parametrize(("anneal", "last_rate"), [(True, 0.25), (False, 1.0)])
def test_annealing_takes_the_learning_rate_linearly_to_zero(anneal, last_rate):
    ppo = PPO(learning_rate=1.0, anneal=anneal, max_gradient_norm=1e9)
    optimiser = ppo.optimiser(num_gradient_steps=4)
    weight, gradient = jnp.ones(3), jnp.ones(3)
    state = optimiser.init(weight)
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(4):
            change, state = optimiser.update(gradient, state, weight)
    chex.assert_trees_all_close(change, jnp.full(3, -last_rate), rtol=1e-3)


def test_a_misspelt_hyper_parameter_names_the_closest():
    with pytest.raises(TrainingError, match="learning_rate"):
        PPO().replace(learning_rat=1.0)
