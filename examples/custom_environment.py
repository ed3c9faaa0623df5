"""Defines, checks, and registers an environment, and trains PPO in it.

python examples/custom_environment.py
"""

import argparse

import chex
import jax
import jax.numpy as jnp

import jaxenvs
from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.testing import check_env
from jaxenvs.training import PPO, make_train


@chex.dataclass(frozen=True)
class LanderState:
    height: jax.Array  # float32[], m
    velocity: jax.Array  # float32[], m/s, upward


class Lander(Environment[LanderState]):
    """Fire a rocket's engine so that it touches the ground slowly.

    Observation: float32[2]
        0  height, m
        1  velocity, m/s, upward
    Action: int32[], 0 falls, 1 fires
    Reward: -0.05 per step; 5 minus the speed in m/s on reaching the ground
    Start: height uniform in [4, 6) m, at rest
    Terminates: on the ground
    Time limit: none; `main` registers it with 200 steps
    """

    gravity: float = 1.6  # m/s^2
    thrust: float = 3.0  # m/s^2, acceleration by the engine
    tau: float = 0.1  # s between steps

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(-float("inf"), float("inf"), (2,))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[LanderState, TimeStep]:
        height = jax.random.uniform(key, (), jnp.float32, 4.0, 6.0)
        state = LanderState(height=height, velocity=jnp.float32(0))
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: LanderState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[LanderState, TimeStep]:
        del key  # the dynamics are deterministic
        velocity = state.velocity + self.tau * (self.thrust * jnp.float32(action) - self.gravity)
        state = LanderState(height=state.height + self.tau * velocity, velocity=velocity)
        landed = state.height <= 0
        reward = jnp.where(landed, 5 - jnp.abs(velocity), -0.05)
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=landed)

    def _observe(self, state: LanderState) -> jax.Array:
        return jnp.stack([state.height, state.velocity])


def main(total_steps: int = 200_000) -> float:
    """Returns the mean return over the last 10 updates."""
    check_env(Lander())
    jaxenvs.register("Lander-v0", Lander, time_limit=200, overwrite=True)
    ppo = PPO(learning_rate=1e-3, normalize_observations=True)
    train = make_train("Lander-v0", ppo, num_envs=32, unroll_length=64, total_steps=total_steps)
    metrics = jax.jit(train)(jax.random.key(0)).metrics
    returns = metrics["episode_return"]
    print(f"first updates {jnp.nanmean(returns[:3]):.2f}, last {jnp.nanmean(returns[-10:]):.2f}")
    return float(jnp.nanmean(returns[-10:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=200_000)
    main(parser.parse_args().total_steps)
