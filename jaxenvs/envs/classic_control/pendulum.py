"""The pendulum swing-up task."""

import math

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.classic_control._shared import OUTLINE
from jaxenvs.numerics import sincos, wrap_angle
from jaxenvs.rendering.raster import (
    BLACK,
    RED,
    WHITE,
    Point,
    disc,
    fill,
    line,
    paint,
    pixel_grid,
    polygon,
    union,
)

FRAME_SHAPE = (500, 500)  # height, width


@chex.dataclass(frozen=True)
class PendulumState:
    """The angle and angular velocity of the pendulum, and the last torque."""

    theta: jax.Array  # float32[], rad, 0 is upright, positive leans left; not wrapped
    theta_dot: jax.Array  # float32[], rad/s
    torque: jax.Array  # float32[], N m, the last torque, used only by render


class Pendulum(Environment[PendulumState]):
    """Swing a pendulum upright and hold it there with a motor too weak to lift it directly.

    Observation: float32[3]
        0  cos(theta), the height of the free end divided by the length
        1  sin(theta)
        2  theta_dot, rad/s, in [-max_speed, max_speed]
    Action: float32[1], torque on the joint, N m, positive is counterclockwise; clipped to
        [-max_torque, max_torque]
    Reward: -(theta^2 + 0.1 theta_dot^2 + 0.001 torque^2), using the state before the step, with
        theta wrapped to [-pi, pi), and the clipped torque
    Start: theta uniform in [-x_init, x_init), theta_dot in [-y_init, y_init)
    Terminates: never
    Time limit: none here; `Pendulum-v1` is registered with 200 steps

    Source: Gymnasium's Pendulum-v1, originally from OpenAI Gym: a frictionless rod that rotates
    about its end. Constants and the order of updates are Gymnasium's
    (tests/parity/test_classic_control.py).
    """

    g: float = 10.0  # m/s^2
    mass: float = 1.0  # kg
    length: float = 1.0  # m
    max_speed: float = 8.0  # rad/s
    max_torque: float = 2.0  # N m
    dt: float = 0.05  # s between steps
    x_init: float = math.pi  # rad, largest initial angle
    y_init: float = 1.0  # rad/s, largest initial speed

    @property
    def observation_space(self) -> spaces.Box:
        high = [1.0, 1.0, self.max_speed]
        return spaces.Box([-bound for bound in high], high)

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(-self.max_torque, self.max_torque, shape=(1,))

    def reset(self, key: chex.PRNGKey) -> tuple[PendulumState, TimeStep]:
        unit = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        theta, theta_dot = unit[0] * self.x_init, unit[1] * self.y_init
        state = PendulumState(theta=theta, theta_dot=theta_dot, torque=jnp.zeros_like(theta))
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: PendulumState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[PendulumState, TimeStep]:
        del key  # a step is deterministic
        torque = jnp.clip(action[0], -self.max_torque, self.max_torque)
        angle = wrap_angle(state.theta)
        cost = angle**2 + 0.1 * state.theta_dot**2 + 0.001 * torque**2

        sin, _ = sincos(state.theta)
        fall = 3 * self.g / (2 * self.length) * sin
        drive = 3.0 / (self.mass * self.length**2) * torque
        theta_dot = state.theta_dot + (fall + drive) * self.dt
        theta_dot = jnp.clip(theta_dot, -self.max_speed, self.max_speed)
        theta = state.theta + theta_dot * self.dt

        state = PendulumState(theta=theta, theta_dot=theta_dot, torque=torque)
        return state, TimeStep.transition(self._observe(state), reward=-cost, terminated=False)

    def render(self, state: PendulumState) -> jax.Array:
        """Draws a front view with an arrow for the torque: uint8[500, 500, 3]."""
        size = FRAME_SHAPE[0]
        scale = size / 4.4  # pixels per length
        x, y = pixel_grid(FRAME_SHAPE)
        sign = jnp.where(state.torque > 0, -1.0, 1.0)
        axle = (size / 2 + 0.5, size / 2 + 0.5)
        end = (axle[0] - scale * jnp.sin(state.theta), axle[1] + scale * jnp.cos(state.theta))
        return paint(
            WHITE,
            (line(x, y, axle, end, width=0.2 * scale + OUTLINE), RED),
            (_arrow(x, y, axle, size=scale * jnp.abs(state.torque) / 2, sign=sign), BLACK),
            (disc(x, y, axle, scale // 20 + OUTLINE / 2), BLACK),
        )

    def _observe(self, state: PendulumState) -> jax.Array:
        sin, cos = sincos(state.theta)
        return jnp.stack([cos, sin, state.theta_dot])


def _arrow(
    x: chex.Array, y: chex.Array, center: Point, size: jax.Array, sign: jax.Array
) -> jax.Array:
    """Draws a three-quarter circle arrow about `center`, clockwise for a positive sign."""
    # In units of the arrow's size, with the proportions of Gymnasium's image.
    size = jnp.maximum(size, 1e-3)
    x, y = sign * (x - center[0]) / size, (y - center[1]) / size
    ring = jnp.abs(jnp.hypot((x - 0.025) / 0.459, y / 0.485) - 1) * 0.47 - 0.016
    arc = jnp.where((x < -0.005) & (y > 0), jnp.inf, ring)
    tip, left, notch, right = (-0.434, 0.147), (-0.5, -0.045), (-0.434, -0.003), (-0.366, -0.045)
    head = polygon(x * size, y * size, _scaled(size, tip, left, right))
    cut = polygon(x * size, y * size, _scaled(size, left, right, notch))
    return union(fill(arc * size), head - jnp.minimum(head, cut))


def _scaled(size: jax.Array, *points: tuple[float, float]) -> list[Point]:
    return [(size * x, size * y) for x, y in points]
