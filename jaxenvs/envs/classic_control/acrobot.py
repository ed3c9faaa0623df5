"""The acrobot swing-up task."""

import math
from collections.abc import Sequence
from typing import Literal

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.classic_control._shared import OUTLINE, check_one_of
from jaxenvs.numerics import sincos, wrap_angle
from jaxenvs.rendering.raster import BLACK, TEAL, WHITE, YELLOW, box, disc, paint, pixel_grid

FRAME_SHAPE = (500, 500)  # height, width


@chex.dataclass(frozen=True)
class AcrobotState:
    """The angles and angular velocities of both links."""

    theta1: jax.Array  # float32[], rad, angle of the first link in [-pi, pi), 0 is hanging down
    theta2: jax.Array  # float32[], rad, angle relative to the first link, in [-pi, pi)
    theta1_dot: jax.Array  # float32[], rad/s
    theta2_dot: jax.Array  # float32[], rad/s


class Acrobot(Environment[AcrobotState]):
    """Swing the free end of a two-link chain above a line with a motor at the middle joint.

    Observation: float32[6]
        0  cos(theta1)
        1  sin(theta1)
        2  cos(theta2)
        3  sin(theta2)
        4  theta1_dot, rad/s, in [-max_vel_1, max_vel_1]
        5  theta2_dot, rad/s, in [-max_vel_2, max_vel_2]
    Action: int32[], the index in avail_torque of the torque on the middle joint, N m
    Reward: -1 on every step except the terminal one, which gives 0
    Start: all four state variables uniform in [start_low, start_high)
    Terminates: when -cos(theta1) - cos(theta1 + theta2) > 1; the left side is the height of the
        free end above the fixed joint for links of length 1
    Time limit: none here; `Acrobot-v1` is registered with 500 steps

    Each step is one step of the classical fourth-order Runge-Kutta method with constant torque.
    `book_or_nips="nips"` omits a term, as the printed 1996 paper does; its experiments used the
    book's equations. With torque_noise_max, a uniform draw from
    [-torque_noise_max, torque_noise_max) is added to the torque. None, unlike 0, skips the draw.

    Source: R. S. Sutton, Generalization in Reinforcement Learning: Successful Examples Using Sparse
    Coarse Coding, 1996; R. S. Sutton, A. G. Barto, Reinforcement Learning, section 11.3 of the
    first edition. Constants and the order of updates are those of Gymnasium's Acrobot-v1, which
    took them from RLPy (tests/parity/test_classic_control.py).
    """

    link_length_1: float = 1.0  # m
    link_length_2: float = 1.0  # m, used only by render; the equations do not depend on it
    link_mass_1: float = 1.0  # kg
    link_mass_2: float = 1.0  # kg
    link_com_pos_1: float = 0.5  # m, distance from the joint to the center of mass
    link_com_pos_2: float = 0.5  # m
    link_moi: float = 1.0  # kg m^2, moment of inertia of each link
    gravity: float = 9.8  # m/s^2
    max_vel_1: float = 4 * math.pi  # rad/s
    max_vel_2: float = 9 * math.pi  # rad/s
    avail_torque: tuple[float, ...] = (-1.0, 0.0, 1.0)  # N m, one per action
    torque_noise_max: float | None = None  # N m, None for no noise
    dt: float = 0.2  # s between steps
    start_low: float = -0.1  # rad for angles, rad/s for velocities
    start_high: float = 0.1  # exclusive
    book_or_nips: Literal["book", "nips"] = struct.static("book")  # which equations to use

    def __post_init__(self) -> None:
        check_one_of(self, "book_or_nips", ("book", "nips"))

    @property
    def observation_space(self) -> spaces.Box:
        high = [1.0, 1.0, 1.0, 1.0, self.max_vel_1, self.max_vel_2]
        return spaces.Box([-bound for bound in high], high)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(len(self.avail_torque))

    def reset(self, key: chex.PRNGKey) -> tuple[AcrobotState, TimeStep]:
        start = jax.random.uniform(key, (4,), jnp.float32, self.start_low, self.start_high)
        state = AcrobotState(
            theta1=start[0], theta2=start[1], theta1_dot=start[2], theta2_dot=start[3]
        )
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: AcrobotState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[AcrobotState, TimeStep]:
        torque = self.avail_torque[0]
        for index, candidate in enumerate(self.avail_torque[1:], start=1):
            torque = jnp.where(action == index, candidate, torque)
        if self.torque_noise_max is not None:
            unit = jax.random.uniform(key, (), state.theta1.dtype, -1.0, 1.0)
            torque = torque + unit * self.torque_noise_max

        theta1, theta2, theta1_dot, theta2_dot = self._integrate(state, torque)
        state = AcrobotState(
            theta1=wrap_angle(theta1),
            theta2=wrap_angle(theta2),
            theta1_dot=jnp.clip(theta1_dot, -self.max_vel_1, self.max_vel_1),
            theta2_dot=jnp.clip(theta2_dot, -self.max_vel_2, self.max_vel_2),
        )
        above = self._above_line(state)
        reward = jnp.where(above, 0.0, -1.0)
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=above)

    def render(self, state: AcrobotState) -> jax.Array:
        """Draws a front view with the target line: uint8[500, 500, 3]."""
        size = FRAME_SHAPE[0]
        scale = size / (2 * (self.link_length_1 + self.link_length_2 + 0.2))  # pixels per m
        x, y = pixel_grid(FRAME_SHAPE)
        layers = [(jnp.broadcast_to(y == jnp.floor(size / 2 + scale) + 0.5, FRAME_SHAPE), BLACK)]
        joint = (size / 2, size / 2)
        for length, angle in (
            (self.link_length_1 * scale, state.theta1),
            (self.link_length_2 * scale, state.theta1 + state.theta2),
        ):
            right, down = length * jnp.sin(angle), length * jnp.cos(angle)
            center = (joint[0] + right / 2, joint[1] - down / 2)
            layers.append(
                (box(x, y, center, (0.2 * scale + OUTLINE, length + OUTLINE), angle), TEAL)
            )
            layers.append((disc(x, y, joint, jnp.floor(0.1 * scale) + OUTLINE / 2), YELLOW))
            joint = (joint[0] + right, joint[1] - down)
        return paint(WHITE, *layers)

    def _integrate(self, state: AcrobotState, torque: chex.Numeric) -> list[jax.Array]:
        start = (state.theta1, state.theta2, state.theta1_dot, state.theta2_dot)

        def slopes_after(time, slopes):
            moved = [value + time * slope for value, slope in zip(start, slopes, strict=True)]
            return self._derivatives(moved, torque)

        k1 = self._derivatives(start, torque)
        k2 = slopes_after(self.dt / 2, k1)
        k3 = slopes_after(self.dt / 2, k2)
        k4 = slopes_after(self.dt, k3)
        return [
            value + self.dt / 6 * (a + 2 * b + 2 * c + d)
            for value, a, b, c, d in zip(start, k1, k2, k3, k4, strict=True)
        ]

    def _derivatives(
        self, variables: Sequence[jax.Array], torque: chex.Numeric
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        theta1, theta2, theta1_dot, theta2_dot = variables
        m1, m2 = self.link_mass_1, self.link_mass_2
        l1, lc1, lc2 = self.link_length_1, self.link_com_pos_1, self.link_com_pos_2
        (sin1, cos1), (sin2, cos2) = sincos(theta1), sincos(theta2)
        sin12 = sin1 * cos2 + cos1 * sin2  # sin(theta1 + theta2)

        d1 = m1 * lc1**2 + m2 * (l1**2 + lc2**2 + 2 * l1 * lc2 * cos2) + 2 * self.link_moi
        d2 = m2 * (lc2**2 + l1 * lc2 * cos2) + self.link_moi
        phi2 = m2 * lc2 * self.gravity * sin12
        phi1 = (
            -m2 * l1 * lc2 * theta2_dot * (theta2_dot + 2 * theta1_dot) * sin2
            + (m1 * lc1 + m2 * l1) * self.gravity * sin1
            + phi2
        )
        ratio = d2 / d1
        force = torque + ratio * phi1 - phi2
        if self.book_or_nips == "book":
            force = force - m2 * l1 * lc2 * theta1_dot**2 * sin2
        theta2_acc = force / (m2 * lc2**2 + self.link_moi - d2 * ratio)
        theta1_acc = -(d2 * theta2_acc + phi1) / d1
        return theta1_dot, theta2_dot, theta1_acc, theta2_acc  # pyright: ignore[reportReturnType]

    def _above_line(self, state: AcrobotState) -> jax.Array:
        (sin1, cos1), (sin2, cos2) = sincos(state.theta1), sincos(state.theta2)
        return -cos1 - (cos1 * cos2 - sin1 * sin2) > 1.0

    def _observe(self, state: AcrobotState) -> jax.Array:
        (sin1, cos1), (sin2, cos2) = sincos(state.theta1), sincos(state.theta2)
        return jnp.stack([cos1, sin1, cos2, sin2, state.theta1_dot, state.theta2_dot])
