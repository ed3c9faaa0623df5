"""Mountain car, discrete actions."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep

FRAME_SHAPE = (200, 300)  # height, width


@chex.dataclass(frozen=True)
class MountainCarState:
    position: jax.Array  # float32[], along the track
    velocity: jax.Array  # float32[], track units per step


class MountainCar(Environment[MountainCarState]):
    """Rock an under-powered car back and forth until it climbs out of a valley.

    Observation: float32[2]
        0  position, in [min_position, max_position]
        1  velocity, in [-max_speed, max_speed], track units per step
    Action: int32[], 0 pushes left, 1 coasts, 2 pushes right
    Reward: -1 on every step, the last one included
    Start: position uniform in [start_low, start_high), velocity 0
    Terminates: at or beyond goal_position with at least goal_velocity
    Time limit: none here; `MountainCar-v0` is registered with 200 steps

    The track has height 0.45 sin(3x) + 0.55. The left end is a wall that takes all
    speed; the right end only clips the position.

    Source: A. W. Moore, Efficient Memory-based Learning for Robot Control, 1990.
    Constants and the order of updates are those of Gymnasium's MountainCar-v0
    (tests/parity/test_classic_control.py).
    """

    min_position: float = -1.2
    max_position: float = 0.6
    max_speed: float = 0.07
    goal_position: float = 0.5
    goal_velocity: float = 0.0
    start_low: float = -0.6
    start_high: float = -0.4
    force: float = 0.001  # added to the velocity by one push
    gravity: float = 0.0025

    @property
    def observation_space(self) -> spaces.Box:
        low = jnp.array([self.min_position, -self.max_speed], jnp.float32)
        high = jnp.array([self.max_position, self.max_speed], jnp.float32)
        return spaces.Box(low, high)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, key: chex.PRNGKey) -> tuple[MountainCarState, TimeStep]:
        position = jax.random.uniform(key, (), jnp.float32, self.start_low, self.start_high)
        state = MountainCarState(position=position, velocity=jnp.float32(0))
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: MountainCarState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MountainCarState, TimeStep]:
        del key  # the car is deterministic once it stands on the track
        push = jnp.float32(action - 1) * self.force
        slope = jnp.cos(3 * state.position) * self.gravity
        velocity = jnp.clip(state.velocity + push - slope, -self.max_speed, self.max_speed)
        position = jnp.clip(state.position + velocity, self.min_position, self.max_position)
        hit_wall = (position == self.min_position) & (velocity < 0)
        velocity = jnp.where(hit_wall, 0.0, velocity)

        state = MountainCarState(position=position, velocity=velocity)
        at_goal = (position >= self.goal_position) & (velocity >= self.goal_velocity)
        return state, TimeStep.transition(self._observe(state), reward=-1.0, terminated=at_goal)

    def _observe(self, state: MountainCarState) -> jax.Array:
        return jnp.stack([state.position, state.velocity])


def _height(x: chex.Numeric) -> jax.Array:
    return 0.45 * jnp.sin(3 * x) + 0.55
