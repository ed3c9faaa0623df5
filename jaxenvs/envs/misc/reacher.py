"""The reacher task."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.numerics import sincos
from jaxenvs.rendering.raster import RED, TAN, TEAL, WHITE, disc, line, paint, pixel_grid

FRAME_SHAPE = (240, 240)  # height, width


@chex.dataclass(frozen=True)
class ReacherState:
    """The angles and angular velocities of the arm's links, and the goal."""

    angles: jax.Array  # float32[num_joints], rad, each against the x axis; not wrapped
    angle_vels: jax.Array  # float32[num_joints], rad/s
    goal: jax.Array  # float32[2], x and y


class Reacher(Environment[ReacherState]):
    """Hold the end of an arm near a goal.

    Observation: float32[3 num_joints + 2]
        -  cosines of the angles
        -  sines of the angles
        -  angular velocities, rad/s
        -  x and y of the goal
    Action: float32[num_joints], torques in [-1, 1], which are not clipped; each accelerates a link
        by torque_scale rad/s^2
    Reward: exp(-d^2), where d is the distance between the end of the arm and the goal after the
        step
    Start: angles uniform in [-pi, pi), velocities in [-1, 1), the goal in the square
        [-num_joints, num_joints)^2, some of which the arm does not reach
    Terminates: never
    Time limit: none here; `Reacher-misc` is registered with 100 steps

    The links have length 1 and turn freely: torques change the angle of one link against the x
    axis, not against the link before it.

    Source: Ivy Gym's Reacher, 2021, as gymnax's Reacher (tests/parity/test_certificates.py). One of
    gymnax's errors is mended: arms may have any number of joints, not only two.
    """

    torque_scale: float = 1.0  # rad/s^2 per unit of action
    dt: float = 0.05  # s between steps
    num_joints: int = struct.static(2)  # number of links

    def __post_init__(self) -> None:
        check_integer(ParameterError, "Reacher got num_joints", self.num_joints)

    @property
    def observation_space(self) -> spaces.Box:
        n = self.num_joints
        bound = np.array([1.0] * 2 * n + [np.inf] * n + [n] * 2, np.float32)
        return spaces.Box(-bound, bound)

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (self.num_joints,))

    def reset(self, key: chex.PRNGKey) -> tuple[ReacherState, TimeStep]:
        n = self.num_joints
        unit = jax.random.uniform(key, (2 * n + 2,), jnp.float32, -1.0, 1.0)
        state = ReacherState(angles=unit[:n] * jnp.pi, angle_vels=unit[n:-2], goal=unit[-2:] * n)
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: ReacherState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[ReacherState, TimeStep]:
        del key  # a step is deterministic
        torque = self.torque_scale * jnp.asarray(action, jnp.float32)
        angle_vels = state.angle_vels + self.dt * torque
        angles = state.angles + self.dt * angle_vels
        state = ReacherState(angles=angles, angle_vels=angle_vels, goal=state.goal)
        sin, cos = sincos(angles)
        x, y = cos.sum() - state.goal[0], sin.sum() - state.goal[1]
        reward = jnp.exp(-(x * x + y * y))
        observation = jnp.concatenate([cos, sin, angle_vels, state.goal])
        return state, TimeStep.transition(observation, reward=reward, terminated=False)

    def render(self, state: ReacherState) -> jax.Array:
        """Draws the arm from its base in the middle, and the goal: uint8[240, 240, 3]."""
        x, y = pixel_grid(FRAME_SHAPE)
        scale = 120 / (self.num_joints + 0.25)  # pixels per length
        sin, cos = sincos(state.angles)
        base = jnp.full(1, 120.0, jnp.float32)
        columns = jnp.concatenate([base, 120 + scale * jnp.cumsum(cos)])
        rows = jnp.concatenate([base, 120 + scale * jnp.cumsum(sin)])
        joints = list(zip(columns, rows, strict=True))
        goal = (120 + scale * state.goal[0], 120 + scale * state.goal[1])
        return paint(
            WHITE,
            *((line(x, y, *ends, width=8.0), TAN) for ends in itertools.pairwise(joints)),
            (disc(x, y, goal, 7.0), TEAL),
            (disc(x, y, joints[-1], 6.0), RED),
        )

    def _observe(self, state: ReacherState) -> jax.Array:
        sin, cos = sincos(state.angles)
        return jnp.concatenate([cos, sin, state.angle_vels, state.goal])
