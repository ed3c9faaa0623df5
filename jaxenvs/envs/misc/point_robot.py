"""The point robot task."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.misc._shared import clock
from jaxenvs.numerics import sincos
from jaxenvs.rendering.raster import BLACK, RED, TEAL, WHITE, disc, fill, paint, pixel_grid

FRAME_SHAPE = (240, 400)  # height, width


@chex.dataclass(frozen=True)
class PointRobotState:
    """The positions of robot and goal, and what the agent remembers of the last step."""

    position: jax.Array  # float32[2], x and y
    goal: jax.Array  # float32[2], on the half circle
    last_action: jax.Array  # float32[2], as the agent gave it
    last_reward: jax.Array  # float32[]
    time: jax.Array  # int32[], steps since reset


class PointRobot(Environment[PointRobotState]):
    """Move a point to a hidden goal on a half circle, and return to it as often as possible.

    Observation: float32[6]
        0  x of the robot
        1  y of the robot
        2  the last reward
        3  x of the last action, not clipped
        4  y of the last action, not clipped
        5  the time, from -1 to 1 after t_max steps; without `normalize_time`, in steps
    Action: float32[2], the change of x and y, clipped to [-max_force, max_force]
    Reward: 1 if the robot was within goal_radius of the goal before the step, otherwise 0. With
        `dense_reward`, minus its distance from the goal before the step
    Start: the goal at a uniform angle on the upper half of a circle of radius circle_radius; the
        robot at another one, at a uniform distance from the center, or with `center_init` in it
    Terminates: never
    Time limit: none here; `PointRobot-misc` is registered with 100 steps

    A robot that was at the goal before the step starts again, from a new position that is drawn as
    at the start, whatever the action. The goal stays where it is during an episode.

    Source: R. Dorfman, I. Shenfeld, A. Tamar, Offline Meta Learning of Exploration, 2021, as
    gymnax's PointRobot (tests/parity/test_certificates.py).
    """

    max_force: float = 0.1  # largest change of a coordinate in one step
    circle_radius: float = 1.0  # radius of the half circle
    dense_reward: bool = struct.static(False)  # reward is minus the distance
    goal_radius: float = 0.2  # largest distance that counts as reaching the goal
    center_init: bool = struct.static(False)  # the robot starts in the center
    normalize_time: bool = struct.static(True)  # observe the time from -1 to 1
    t_max: float = 100.0  # number of steps after which a normalized time is 1

    @property
    def observation_space(self) -> spaces.Box:
        low = np.full(6, -np.inf, np.float32)
        low[5] = -1.0 if self.normalize_time else 0.0
        return spaces.Box(low, np.inf, (6,))

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(-self.max_force, self.max_force, (2,))

    def reset(self, key: chex.PRNGKey) -> tuple[PointRobotState, TimeStep]:
        unit = jax.random.uniform(key, (3,), jnp.float32)
        state = PointRobotState(
            position=self._start_position(unit[1:]),
            goal=self._on_circle(jnp.float32(1), unit[0]),
            last_action=jnp.zeros(2, jnp.float32),
            last_reward=jnp.float32(0),
            time=jnp.int32(0),
        )
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: PointRobotState, key: chex.PRNGKey) -> jax.Array:
        """Draws a start, as distance and angle in units of circle_radius and pi: float32[2]."""
        del state
        return jax.random.uniform(key, (2,), jnp.float32)

    def apply(
        self, state: PointRobotState, action: chex.Array, draws: jax.Array
    ) -> tuple[PointRobotState, TimeStep]:
        """Takes a step with the results of `draw`."""
        action = jnp.asarray(action, jnp.float32)
        offset = state.goal - state.position
        distance = jnp.sqrt(offset[0] ** 2 + offset[1] ** 2)
        found = distance <= self.goal_radius
        reward = -distance if self.dense_reward else found.astype(jnp.float32)
        moved = state.position + jnp.clip(action, -self.max_force, self.max_force)
        state = PointRobotState(
            position=jnp.where(found, self._start_position(draws), moved),
            goal=state.goal,
            last_action=action,
            last_reward=reward,
            time=state.time + 1,
        )
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=False)

    def step(
        self, state: PointRobotState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[PointRobotState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: PointRobotState) -> jax.Array:
        """Draws the half circle, the goal as a disc, and the robot: uint8[240, 400, 3]."""
        x, y = pixel_grid(FRAME_SHAPE)
        scale = 160 / jnp.asarray(self.circle_radius, jnp.float32)
        x, y = x - 200, y - 40
        ring = jnp.where(y >= 0, jnp.abs(jnp.hypot(x, y) - 160) - 1, jnp.inf)
        goal, robot = state.goal * scale, state.position * scale
        return paint(
            WHITE,
            (0.4 * disc(x, y, (goal[0], goal[1]), self.goal_radius * scale), TEAL),
            (fill(ring), BLACK),
            (disc(x, y, (robot[0], robot[1]), 7.0), RED),
        )

    def _observe(self, state: PointRobotState) -> jax.Array:
        time = state.time.astype(jnp.float32)
        if self.normalize_time:
            time = clock(state.time, self.t_max)
        return jnp.concatenate(
            [state.position, state.last_reward[None], state.last_action, time[None]]
        )

    def _start_position(self, unit: jax.Array) -> jax.Array:
        if self.center_init:
            return jnp.zeros(2, jnp.float32)
        return self._on_circle(unit[0], unit[1])

    def _on_circle(self, radius: jax.Array, angle: jax.Array) -> jax.Array:
        """Returns a point, given its distance and angle in units of circle_radius and pi."""
        sin, cos = sincos(jnp.pi * angle)
        return radius * self.circle_radius * jnp.stack([cos, sin])
