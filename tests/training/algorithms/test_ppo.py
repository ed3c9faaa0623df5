import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.errors import UnknownParameterError
from jaxenvs.training import PPO, ActorCritic
from jaxenvs.training.algorithms._on_policy import Batch
from tests.training.algorithms._transitions import assembled, gradients_of

TWO = spaces.Discrete(2)


def batch(context, weights, ratio=1.0, advantage=(1.0, -1.0, 3.0, -3.0)):
    """Four transitions whose probability ratio under the weights is `ratio`."""
    rows = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    features = context.networks.features(rows)
    action = jnp.array([0, 1, 0, 1])
    log_prob, _ = context.networks.log_prob_and_entropy(weights.params, features, action)
    value = context.networks.value(weights.params, features)
    return Batch(
        features=features,
        action=action,
        log_prob=log_prob - jnp.log(jnp.float32(ratio)),
        value=value,
        advantage=jnp.array(advantage),
        target=value + 1.0,
    )


def gradients(ppo, ratio=1.0):
    context, weights = assembled(ppo, TWO, ActorCritic(hidden_sizes=(8,)))
    drawn = jax.jit(batch, static_argnums=0)(context, weights, ratio)
    return context, weights, drawn, *gradients_of(ppo, context, weights, drawn)[:2]


def test_hyper_parameters_are_leaves_and_structure_is_not():
    leaves, structure = jax.tree.flatten(PPO())
    assert 2.5e-4 in leaves and 4 not in leaves
    assert jax.tree.structure(PPO(learning_rate=1.0)) == structure
    assert jax.tree.structure(PPO(epochs=1)) != structure


def test_ppo_losses_of_unchanged_policy_match_hand_computation():
    *_, losses = gradients(PPO())
    assert abs(losses["policy_loss"]) < 1e-6  # ratio 1, advantages of mean 0
    assert losses["approx_kl"] == 0 and losses["clip_fraction"] == 0
    chex.assert_trees_all_close(losses["value_loss"], 0.5, rtol=1e-5)  # every target is 1 off


@pytest.mark.parametrize(("ratio", "kept"), [(1.5, 1.2), (0.5, 0.8)])
def test_ppo_normalizes_advantages_and_clips_profitable_ratios(ratio, kept):
    *_, losses = gradients(PPO(clip=0.2), ratio)
    unit = np.array([1.0, -1.0, 3.0, -3.0]) / np.sqrt(5.0)
    expected = -np.minimum(ratio * unit, kept * unit).mean()
    chex.assert_trees_all_close(losses["policy_loss"], np.float32(expected), rtol=1e-4)
    assert losses["clip_fraction"] == 1


def test_the_gradient_raises_the_probability_of_better_actions():
    context, weights, drawn, gradient, _ = gradients(PPO())

    @jax.jit
    def log_prob_after(gradient):
        moved = jax.tree.map(lambda w, g: w - 0.1 * g, weights.params, gradient)
        return context.networks.log_prob_and_entropy(moved, drawn.features, drawn.action)[0]

    change = np.asarray(log_prob_after(gradient)) - drawn.log_prob
    assert np.sum(change * np.asarray(drawn.advantage)) > 0


def test_a_misspelt_hyper_parameter_names_the_closest():
    with pytest.raises(UnknownParameterError, match="learning_rate"):
        PPO().replace(learning_rat=1.0)
