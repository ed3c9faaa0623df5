import jax
import pytest

from jaxenvs.registry import registry
from jaxenvs.training import make_train
from jaxenvs.training.recipes import DEFAULT, RECIPES, recipe


@pytest.mark.parametrize("id", sorted(RECIPES))
def test_every_recipe_is_for_a_registered_id_and_traces(id):
    chosen = recipe(id)
    assert id in registry
    train = make_train(
        id,
        chosen.ppo,
        num_envs=chosen.num_envs,
        unroll_length=chosen.unroll_length,
        total_steps=chosen.total_steps,
    )
    result = jax.eval_shape(train, jax.random.key(0))
    assert result.metrics["episode_return"].shape == (train.num_updates,)


def test_every_classic_control_id_has_a_recipe():
    ids = {spec.id for spec in registry.values() if spec.family == "classic_control"}
    assert ids == set(RECIPES)


def test_another_id_gets_the_default():
    assert recipe("Unheard-v0") is DEFAULT
