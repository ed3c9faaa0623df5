"""The mountain car task with discrete actions."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.classic_control._mountain import MountainCarState as MountainCarState
from jaxenvs.envs.classic_control._mountain import at_goal, draw_mountain_car, move_car, observe


class MountainCar(Environment[MountainCarState]):
    """Rock an underpowered car back and forth until it climbs out of a valley.

    Observation: float32[2]
        0  position, in [min_position, max_position]
        1  velocity, in [-max_speed, max_speed], track units per step
    Action: int32[], 0 pushes left, 1 coasts, 2 pushes right
    Reward: -1 on every step, including the last one
    Start: position uniform in [start_low, start_high), velocity 0
    Terminates: when the position is at least goal_position and the velocity at least goal_velocity
    Time limit: none here; `MountainCar-v0` is registered with 200 steps

    The height of the track is 0.45 sin(3x) + 0.55. The left end is a wall that stops the car; the
    right end only clips the position.

    Source: A. W. Moore, Efficient Memory-based Learning for Robot Control, 1990.
    Constants and the order of updates are those of Gymnasium's MountainCar-v0
    (tests/parity/test_classic_control.py).
    """

    min_position: float = -1.2  # track units, position of the wall
    max_position: float = 0.6  # track units
    max_speed: float = 0.07  # track units per step
    goal_position: float = 0.5  # track units
    goal_velocity: float = 0.0  # track units per step, minimum velocity at the goal
    start_low: float = -0.6  # track units
    start_high: float = -0.4  # track units, exclusive
    force: float = 0.001  # track units per step^2, acceleration by the engine
    gravity: float = 0.0025  # track units per step^2, times cos(3 position)

    @property
    def observation_space(self) -> spaces.Box:
        low = [self.min_position, -self.max_speed]
        return spaces.Box(low, [self.max_position, self.max_speed])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, key: chex.PRNGKey) -> tuple[MountainCarState, TimeStep]:
        position = jax.random.uniform(key, (), jnp.float32, self.start_low, self.start_high)
        state = MountainCarState(position=position, velocity=jnp.zeros_like(position))
        return state, TimeStep.first(observe(state))

    def step(
        self, state: MountainCarState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MountainCarState, TimeStep]:
        del key  # a step is deterministic
        push = (jnp.asarray(action, state.velocity.dtype) - 1) * self.force
        state = move_car(self, state, push)
        return state, TimeStep.transition(
            observe(state), reward=-1.0, terminated=at_goal(self, state)
        )

    def render(self, state: MountainCarState) -> jax.Array:
        """Draws a side view of the track with a flag at the goal: uint8[400, 600, 3]."""
        return draw_mountain_car(self, state)
