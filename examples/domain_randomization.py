"""Trains in CartPoles with different gravities and pole lengths, and tests on four planets.

Parameters are leaves of the environment. So instances can have different parameters, and one `vmap`
tests the policy under several gravities.

python examples/domain_randomization.py
"""

import argparse

import jax
import jax.numpy as jnp

import jaxenvs
from jaxenvs.training import PPO, make_train

GRAVITIES = (1.6, 3.7, 9.8, 24.8)  # m/s^2: Moon, Mars, Earth, Jupiter


def main(total_steps: int = 300_000, num_envs: int = 32) -> jax.Array:
    """Returns int32[4]: the length of an episode under each of GRAVITIES."""
    gravity_key, length_key, train_key, test_key = jax.random.split(jax.random.key(0), 4)
    planets = jaxenvs.make(
        "CartPole-v1",
        gravity=jax.random.uniform(gravity_key, (num_envs,), minval=1.0, maxval=25.0),
        length=jax.random.uniform(length_key, (num_envs,), minval=0.3, maxval=0.8),
    )
    envs = jaxenvs.vectorize(planets, num_envs, batched=("gravity", "length"))

    ppo = PPO(learning_rate=1e-3, epochs=10, clip_value=False)
    train = make_train(envs, ppo, unroll_length=64, total_steps=total_steps)
    policy = train.policy(jax.jit(train)(train_key).learner_state)

    def steps_until_the_end(gravity):
        env = jaxenvs.make("CartPole-v1", gravity=gravity)
        reset_key, *step_keys = jax.random.split(test_key, 501)
        state, timestep = env.reset(reset_key)

        def step(carry, key):
            state, observation, alive = carry
            state, timestep = env.step(state, policy(observation[None], key)[0], key)
            return (state, timestep.observation, alive & ~timestep.done), alive

        carry = state, timestep.observation, jnp.bool_(True)
        _, alive = jax.lax.scan(step, carry, jnp.stack(step_keys))
        return alive.sum()

    lengths = jax.jit(jax.vmap(steps_until_the_end))(jnp.array(GRAVITIES))
    for gravity, length in zip(GRAVITIES, lengths, strict=True):
        print(f"gravity {gravity:4.1f} m/s^2: balanced for {length} of 500 steps")
    return lengths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=300_000)
    main(parser.parse_args().total_steps)
