"""The cart-pole balancing task."""

import math
from typing import Literal

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.classic_control._shared import OUTLINE, check_one_of
from jaxenvs.numerics import sincos
from jaxenvs.rendering.raster import BLACK, TAN, VIOLET, WHITE, box, disc, paint, pixel_grid

FRAME_SHAPE = (400, 600)  # height, width


@chex.dataclass(frozen=True)
class CartPoleState:
    """The positions and velocities of the cart and the pole."""

    x: jax.Array  # float32[], m, position of the cart
    x_dot: jax.Array  # float32[], m/s
    theta: jax.Array  # float32[], rad, 0 is upright, positive leans right
    theta_dot: jax.Array  # float32[], rad/s


class CartPole(Environment[CartPoleState]):
    """Keep a pole upright on a cart by pushing the cart left or right.

    Observation: float32[4]
        0  x, m, in [-2, 2] * x_threshold
        1  x_dot, m/s, unbounded
        2  theta, rad, in [-2, 2] * theta_threshold_radians
        3  theta_dot, rad/s, unbounded
    Action: int32[], 0 pushes left, 1 pushes right
    Reward: 1 on every step including the terminal one, 0 on steps taken after it; with
        sutton_barto_reward, -1 on the terminal step and after it, otherwise 0
    Start: all four state variables uniform in [start_low, start_high)
    Terminates: when |x| > x_threshold or |theta| > theta_threshold_radians
    Time limit: none here; `CartPole-v0` is registered with 200 steps, `CartPole-v1` with 500

    Source: A. G. Barto, R. S. Sutton, C. W. Anderson, Neuronlike Adaptive Elements That Can Solve
    Difficult Learning Control Problems, 1983; equations after R. V. Florian, Correct Equations for
    the Dynamics of the Cart-Pole System, 2007. Constants and the order of updates are those of
    Gymnasium's CartPole-v1 (tests/parity/test_classic_control.py).
    """

    gravity: float = 9.8  # m/s^2
    masscart: float = 1.0  # kg
    masspole: float = 0.1  # kg
    length: float = 0.5  # m, half the length of the pole
    force_mag: float = 10.0  # N, force of a push
    tau: float = 0.02  # s between steps
    theta_threshold_radians: float = 12 * 2 * math.pi / 360  # rad, limit of |theta|
    x_threshold: float = 2.4  # m, limit of |x|
    start_low: float = -0.05  # for all four variables, in their own units
    start_high: float = 0.05  # exclusive
    kinematics_integrator: Literal["euler", "semi-implicit euler"] = struct.static("euler")
    sutton_barto_reward: bool = struct.static(False)  # see Reward

    def __post_init__(self) -> None:
        check_one_of(self, "kinematics_integrator", ("euler", "semi-implicit euler"))

    @property
    def total_mass(self) -> chex.Numeric:
        """The mass of cart and pole, kg."""
        return self.masspole + self.masscart

    @property
    def polemass_length(self) -> chex.Numeric:
        """The mass of the pole times half its length, kg m."""
        return self.masspole * self.length

    @property
    def observation_space(self) -> spaces.Box:
        inf = float("inf")
        high = [2 * self.x_threshold, inf, 2 * self.theta_threshold_radians, inf]
        return spaces.Box([-bound for bound in high], high)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[CartPoleState, TimeStep]:
        start = jax.random.uniform(key, (4,), jnp.float32, self.start_low, self.start_high)
        state = CartPoleState(x=start[0], x_dot=start[1], theta=start[2], theta_dot=start[3])
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: CartPoleState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[CartPoleState, TimeStep]:
        del key  # a step is deterministic
        force = jnp.where(action == 1, self.force_mag, -self.force_mag)
        sin, cos = sincos(state.theta)
        push = (force + self.polemass_length * state.theta_dot**2 * sin) / self.total_mass
        inertia = self.length * (4.0 / 3.0 - self.masspole * cos**2 / self.total_mass)
        theta_acc = (self.gravity * sin - cos * push) / inertia
        x_acc = push - self.polemass_length * theta_acc * cos / self.total_mass

        x_dot = state.x_dot + self.tau * x_acc
        theta_dot = state.theta_dot + self.tau * theta_acc
        explicit = self.kinematics_integrator == "euler"
        x = state.x + self.tau * (state.x_dot if explicit else x_dot)
        theta = state.theta + self.tau * (state.theta_dot if explicit else theta_dot)

        before, state = state, CartPoleState(x=x, x_dot=x_dot, theta=theta, theta_dot=theta_dot)
        fallen = self._fallen(state)
        if self.sutton_barto_reward:
            reward = jnp.where(fallen, -1.0, 0.0)
        else:
            reward = jnp.where(fallen & self._fallen(before), 0.0, 1.0)
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=fallen)

    def render(self, state: CartPoleState) -> jax.Array:
        """Draws a side view of the track: uint8[400, 600, 3]."""
        width = FRAME_SHAPE[1]
        scale = width / (2 * self.x_threshold)  # pixels per m
        x, y = pixel_grid(FRAME_SHAPE)
        cart_x, cart_y, axle_y = state.x * scale + width / 2, 100.5, 107.5
        pole_length = scale * 2 * self.length
        reach = pole_length / 2 - 5.0  # from the axle, 5 pixels above the foot, to the center
        pole_center = (
            cart_x + reach * jnp.sin(state.theta),
            axle_y + reach * jnp.cos(state.theta),
        )
        return paint(
            WHITE,
            (box(x, y, (cart_x, cart_y), (50.0 + OUTLINE, 30.0 + OUTLINE)), BLACK),
            (box(x, y, pole_center, (10.0 + OUTLINE, pole_length + OUTLINE), -state.theta), TAN),
            (disc(x, y, (cart_x, axle_y), 5.0 + OUTLINE / 2), VIOLET),
            (jnp.broadcast_to(y == cart_y, FRAME_SHAPE), BLACK),  # the track
        )

    def _fallen(self, state: CartPoleState) -> jax.Array:
        off_track = jnp.abs(state.x) > self.x_threshold
        return off_track | (jnp.abs(state.theta) > self.theta_threshold_radians)

    def _observe(self, state: CartPoleState) -> jax.Array:
        return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])
