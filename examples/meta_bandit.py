"""RL^2: a policy with memory learns, in one trial, which arm of an unknown bandit pays most.

Each trial is a bandit whose arms pay with other probabilities. An episode is one pull. The policy
observes its last action and reward, and its memory lasts for the whole trial.

With 5 arms and 10 pulls, random pulls earn 5.0 of 8.3, Thompson sampling 5.8, and the arm with the
best mean so far 6.6 (Y. Duan et al., RL^2, 2016, has 6.7 for its policy).

python examples/meta_bandit.py
"""

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp

import jaxenvs
from jaxenvs import spaces, struct
from jaxenvs.training import PPO, ActorCritic, make_train
from jaxenvs.wrappers import Trials


class Bandit(jaxenvs.Environment):
    """Pull one of `arms` arms, each of which pays 1 with a probability of its own."""

    arms: int = struct.static(5)

    @property
    def observation_space(self):
        return spaces.Box(0.0, 1.0, (1,))

    @property
    def action_space(self):
        return spaces.Discrete(self.arms)

    def level(self, key):
        return jax.random.uniform(key, (self.arms,))

    def reset(self, key):
        return self.reset_to(self.level(key))

    def reset_to(self, level):
        return level, jaxenvs.TimeStep.first(jnp.zeros(1))

    def step(self, state, action, key):
        pays = jax.random.uniform(key) < state[action]
        return state, jaxenvs.TimeStep.transition(
            jnp.zeros(1), reward=pays.astype(jnp.float32), terminated=True
        )


def main(arms: int = 5, pulls: int = 10, total_steps: int = 3_000_000) -> jax.Array:
    """Returns float32[pulls]: the mean reward of each pull, over 10,000 bandits."""
    env = Trials(Bandit(arms=arms), episodes=pulls)
    train = make_train(
        env,
        PPO(learning_rate=1e-3, gamma=0.99, gae_lambda=0.95, entropy_coefficient=0.01),
        actor=ActorCritic(memory=nn.GRUCell(64), shared=True),
        num_envs=256,
        unroll_length=pulls,
        total_steps=total_steps,
    )
    policy = train.policy(jax.jit(train)(jax.random.key(0)).learner_state, greedy=False)
    envs = jaxenvs.vectorize(env, 10_000)
    played = jaxenvs.rollout(
        envs, policy, pulls, jax.random.key(1), policy_carry=policy.initial_carry(10_000)
    )
    rewards = played.trajectory.reward.mean(axis=1)
    for pull, reward in enumerate(rewards, 1):
        print(f"pull {pull:3d}: {reward:.2f}")
    print(f"sum: {rewards.sum():.2f}")
    return rewards


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=5)
    parser.add_argument("--pulls", type=int, default=10)
    parser.add_argument("--total-steps", type=int, default=3_000_000)
    main(**vars(parser.parse_args()))
