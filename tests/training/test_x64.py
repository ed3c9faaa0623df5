"""Training runs are of float32 and int32, whatever else a program computes in 64 bits."""

import jax
import jax.numpy as jnp
import pytest

from jaxenvs.training import A2C, DQN, PPO, PQN, SAC, TD3, VPG, PrioritizedReplay, make_train

ALGORITHMS = [
    (PPO(target_kl=0.1), "CartPole-v1"),
    (A2C(), "Pendulum-v1"),
    (VPG(), "CartPole-v1"),
    (DQN(learning_starts=16), "CartPole-v1"),
    (PQN(), "CartPole-v1"),
    (SAC(learning_starts=16), "Pendulum-v1"),
    (SAC(learning_starts=16), "CartPole-v1"),
    (TD3(learning_starts=16), "Pendulum-v1"),
]


@pytest.mark.parametrize(("algorithm", "id"), ALGORITHMS)
def test_no_number_of_64_bits_enters_a_training(algorithm, id):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        train = make_train(id, algorithm, num_envs=4, unroll_length=4, total_steps=64)
        result = jax.eval_shape(train, jax.random.key(0))
    for leaf in jax.tree.leaves(result):
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            assert leaf.dtype.itemsize <= 4, leaf


def test_prioritized_replay_under_x64_keeps_float32_priorities():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        storage = PrioritizedReplay(1000, n_step=3)
        train = make_train(
            "CartPole-v1", DQN(), storage=storage, num_envs=4, unroll_length=4, total_steps=64
        )
        result = jax.eval_shape(train, jax.random.key(0))
        assert result.learner_state.storage.tree.dtype == jnp.float32
