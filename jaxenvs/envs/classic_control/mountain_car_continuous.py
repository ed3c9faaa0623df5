"""The mountain car task with continuous actions."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.classic_control._mountain import (
    MountainCarState,
    at_goal,
    draw_mountain_car,
    move_car,
    observe,
)


class MountainCarContinuous(Environment[MountainCarState]):
    """Rock an underpowered car out of a valley with a throttle that costs reward.

    Observation: float32[2]
        0  position, in [min_position, max_position]
        1  velocity, in [-max_speed, max_speed], track units per step
    Action: float32[1], throttle, clipped to [min_action, max_action]; negative pushes left
    Reward: -0.1 action^2, using the unclipped action, plus 100 on the terminal step
    Start: position uniform in [start_low, start_high), velocity 0
    Terminates: when the position is at least goal_position and the velocity at least goal_velocity
    Time limit: none here; `MountainCarContinuous-v0` is registered with 999 steps

    The track is that of `MountainCar`. Its height is 0.45 sin(3x) + 0.55, the left end is a wall
    that stops the car, and the right end only clips the position.

    Source: A. W. Moore, Efficient Memory-based Learning for Robot Control, 1990; the version with
    continuous actions is by O. Sigaud and A. de Broissia. Constants and the order of updates are
    those of Gymnasium's MountainCarContinuous-v0 (tests/parity/test_classic_control.py).
    """

    min_action: float = -1.0  # full throttle left
    max_action: float = 1.0  # full throttle right
    min_position: float = -1.2  # track units, position of the wall
    max_position: float = 0.6  # track units
    max_speed: float = 0.07  # track units per step
    goal_position: float = 0.45  # track units
    goal_velocity: float = 0.0  # track units per step, minimum velocity at the goal
    start_low: float = -0.6  # track units
    start_high: float = -0.4  # track units, exclusive
    power: float = 0.0015  # track units per step^2, acceleration at full throttle
    gravity: float = 0.0025  # track units per step^2, times cos(3 position)

    @property
    def observation_space(self) -> spaces.Box:
        low = [self.min_position, -self.max_speed]
        return spaces.Box(low, [self.max_position, self.max_speed])

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(self.min_action, self.max_action, shape=(1,))

    def reset(self, key: chex.PRNGKey) -> tuple[MountainCarState, TimeStep]:
        position = jax.random.uniform(key, (), jnp.float32, self.start_low, self.start_high)
        state = MountainCarState(position=position, velocity=jnp.zeros_like(position))
        return state, TimeStep.first(observe(state))

    def step(
        self, state: MountainCarState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MountainCarState, TimeStep]:
        del key  # a step is deterministic
        throttle = jnp.clip(action[0], self.min_action, self.max_action)
        state = move_car(self, state, throttle * self.power)
        arrived = at_goal(self, state)
        reward = jnp.where(arrived, 100.0, 0.0) - 0.1 * action[0] ** 2
        return state, TimeStep.transition(observe(state), reward=reward, terminated=arrived)

    def render(self, state: MountainCarState) -> jax.Array:
        """Draws a side view of the track with a flag at the goal: uint8[400, 600, 3]."""
        return draw_mountain_car(self, state)
