"""The mountain car task of bsuite."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.classic_control._mountain import MountainCarState, draw_mountain_car, move_car


@chex.dataclass(frozen=True)
class BsuiteMountainCarState:
    """The car and the time."""

    car: MountainCarState  # its position and velocity
    elapsed: jax.Array  # int32[], steps since reset


class BsuiteMountainCar(Environment[BsuiteMountainCarState]):
    """Rock an underpowered car out of a valley within 1,000 steps, with a visible clock.

    Observation: float32[1, 3]
        0  position, in [min_position, max_position]
        1  velocity, in [-max_speed, max_speed], track units per step
        2  steps since reset / max_steps
    Action: int32[], 0 pushes left, 1 coasts, 2 pushes right
    Reward: -1 on every step, including the last one
    Start: position uniform in [start_low, start_high), velocity 0
    Terminates: when the position is at least goal_position, or after max_steps steps
    Time limit: the environment's own, which terminates the episode, as in bsuite

    `MountainCar-v0` has the same track and car, but no clock, and its limit truncates.

    Source: A. W. Moore, Efficient Memory-based Learning for Robot Control, 1990. Rules and
    observations are those of bsuite's MountainCar (tests/parity/test_certificates.py).
    """

    max_steps: int = 1000  # steps after which the episode ends
    min_position: float = -1.2  # track units, position of the wall
    max_position: float = 0.6  # track units
    max_speed: float = 0.07  # track units per step
    goal_position: float = 0.5  # track units
    start_low: float = -0.6  # track units
    start_high: float = -0.4  # track units, exclusive
    force: float = 0.001  # track units per step^2, acceleration by the engine
    gravity: float = 0.0025  # track units per step^2, times cos(3 position)

    @property
    def observation_space(self) -> spaces.Box:
        low = [self.min_position, -self.max_speed, 0.0]
        return spaces.Box([low], [[self.max_position, self.max_speed, 1.0]])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, key: chex.PRNGKey) -> tuple[BsuiteMountainCarState, TimeStep]:
        position = jax.random.uniform(key, (), jnp.float32, self.start_low, self.start_high)
        car = MountainCarState(position=position, velocity=jnp.zeros_like(position))
        state = BsuiteMountainCarState(car=car, elapsed=jnp.int32(0))
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: BsuiteMountainCarState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BsuiteMountainCarState, TimeStep]:
        del key  # a step is deterministic
        push = (jnp.asarray(action, jnp.float32) - 1) * self.force
        limit = jnp.asarray(self.max_steps, jnp.int32)
        state = BsuiteMountainCarState(
            car=move_car(self, state.car, push), elapsed=jnp.minimum(state.elapsed + 1, limit)
        )
        over = (state.car.position >= self.goal_position) | (state.elapsed == limit)
        return state, TimeStep.transition(self._observe(state), reward=-1.0, terminated=over)

    def render(self, state: BsuiteMountainCarState) -> jax.Array:
        """Draws a side view of the track with a flag at the goal: uint8[400, 600, 3]."""
        return draw_mountain_car(self, state.car)

    def _observe(self, state: BsuiteMountainCarState) -> jax.Array:
        time = state.elapsed.astype(jnp.float32) / jnp.asarray(self.max_steps, jnp.float32)
        return jnp.stack([state.car.position, state.car.velocity, time])[None]
