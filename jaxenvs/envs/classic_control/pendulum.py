"""Pendulum swing-up."""

import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.classic_control._shared import in_dtype
from jaxenvs.numerics import sincos, wrap_angle


@chex.dataclass(frozen=True)
class PendulumState:
    theta: jax.Array  # float32[], rad, 0 is upright, positive leans left; not wrapped
    theta_dot: jax.Array  # float32[], rad/s


class Pendulum(Environment[PendulumState]):
    """Swing a pendulum upright and hold it there with a motor too weak to lift it directly.

    Observation: float32[3]
        0  cos(theta), the height of the free end per length
        1  sin(theta)
        2  theta_dot, rad/s, in [-max_speed, max_speed]
    Action: float32[1], torque on the joint, N m, counter-clockwise is positive; clipped to
        [-max_torque, max_torque]
    Reward: -(theta^2 + 0.1 theta_dot^2 + 0.001 torque^2) of the state before the step, with theta
        taken to [-pi, pi) and the clipped torque
    Start: theta uniform in [-x_init, x_init), theta_dot in [-y_init, y_init)
    Terminates: never
    Time limit: none here; `Pendulum-v1` is registered with 200 steps

    Source: the Pendulum-v1 of Gymnasium (once OpenAI Gym), a frictionless rod that turns about its
    end. Constants and the order of updates are Gymnasium's
    (tests/parity/test_classic_control.py).
    """

    g: float = 10.0  # m/s^2
    mass: float = 1.0  # kg
    length: float = 1.0  # m
    max_speed: float = 8.0  # rad/s
    max_torque: float = 2.0  # N m
    dt: float = 0.05  # s between steps
    x_init: float = math.pi  # rad
    y_init: float = 1.0  # rad/s
    dtype: Any = struct.static(np.float32)  # float64 needs jax_enable_x64

    @property
    def observation_space(self) -> spaces.Box:
        high = [1.0, 1.0, self.max_speed]
        return spaces.Box([-bound for bound in high], high, dtype=self.dtype)

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(-self.max_torque, self.max_torque, shape=(1,), dtype=self.dtype)

    def reset(self, key: chex.PRNGKey) -> tuple[PendulumState, TimeStep]:
        self = in_dtype(self)
        unit = jax.random.uniform(key, (2,), self.dtype, -1.0, 1.0)
        state = PendulumState(theta=unit[0] * self.x_init, theta_dot=unit[1] * self.y_init)
        return state, TimeStep.first(self._observe(state), dtype=self.dtype)

    def step(
        self, state: PendulumState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[PendulumState, TimeStep]:
        del key  # the dynamics are deterministic
        self = in_dtype(self)
        torque = jnp.clip(action[0], -self.max_torque, self.max_torque)
        angle = wrap_angle(state.theta)
        cost = angle**2 + 0.1 * state.theta_dot**2 + 0.001 * torque**2

        sin, _ = sincos(state.theta)
        fall = 3 * self.g / (2 * self.length) * sin
        drive = 3.0 / (self.mass * self.length**2) * torque
        theta_dot = state.theta_dot + (fall + drive) * self.dt
        theta_dot = jnp.clip(theta_dot, -self.max_speed, self.max_speed)
        theta = state.theta + theta_dot * self.dt

        state = PendulumState(theta=theta, theta_dot=theta_dot)
        return state, TimeStep.transition(
            self._observe(state), reward=-cost, terminated=False, dtype=self.dtype
        )

    def _observe(self, state: PendulumState) -> jax.Array:
        sin, cos = sincos(state.theta)
        return jnp.stack([cos, sin, state.theta_dot])
