"""The cart-pole task of bsuite."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.bsuite._cart_pole import BsuiteCartPoleState as BsuiteCartPoleState
from jaxenvs.envs.bsuite._cart_pole import (
    check_clock,
    draw_cart_pole,
    draw_start,
    is_over,
    move_cart,
    observe,
)


class BsuiteCartPole(Environment[BsuiteCartPoleState]):
    """Keep a pole upright on a cart for ten seconds, with three actions and a visible clock.

    Observation: float32[1, 6]
        0  x / x_threshold, position of the cart
        1  x_dot / x_threshold, 1/s
        2  sin(theta), theta is 0 upright and positive if the pole leans right
        3  cos(theta)
        4  theta_dot, rad/s
        5  time / max_time
    Action: int32[], 0 pushes left, 1 does not push, 2 pushes right
    Reward: 1 while cos(theta) > height_threshold and |x| < x_threshold, otherwise 0
    Start: x, x_dot, theta, and theta_dot uniform in [-init_range, init_range)
    Terminates: at the first step with reward 0, or when the time exceeds max_time, which is after
        1,001 steps
    Time limit: the environment's own, which terminates the episode, as in bsuite

    `CartPole-v1` has other constants, actions, observations, and limits.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its Cartpole (tests/parity/test_certificates.py).
    """

    height_threshold: float = 0.8  # cos(theta) at which the pole has fallen
    x_threshold: float = 3.0  # m, limit of |x|
    timescale: float = struct.static(0.01)  # s between steps
    max_time: float = struct.static(10.0)  # s, longest time that does not end the episode
    init_range: float = 0.05  # for all four variables, in their own units
    mass_cart: float = 1.0  # kg
    mass_pole: float = 0.1  # kg
    length: float = 0.5  # m, half the length of the pole
    force_mag: float = 10.0  # N, force of a push
    gravity: float = 9.8  # m/s^2

    def __post_init__(self) -> None:
        check_clock(self)

    @property
    def observation_space(self) -> spaces.Box:
        inf = float("inf")
        return spaces.Box([[-inf, -inf, -1.0, -1.0, -inf, 0.0]], [[inf, inf, 1.0, 1.0, inf, inf]])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, key: chex.PRNGKey) -> tuple[BsuiteCartPoleState, TimeStep]:
        state = draw_start(self, key, 0.0)
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: BsuiteCartPoleState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BsuiteCartPoleState, TimeStep]:
        del key  # a step is deterministic
        state = move_cart(self, state, action)
        observation = self._observe(state)
        height = observation[0, 3]
        stands = (height > self.height_threshold) & (jnp.abs(state.x) < self.x_threshold)
        return state, TimeStep.transition(
            observation,
            reward=jnp.where(stands, 1.0, 0.0),
            terminated=is_over(self, state) | ~stands,
        )

    def render(self, state: BsuiteCartPoleState) -> jax.Array:
        """Draws a side view of the track: uint8[400, 600, 3]."""
        return draw_cart_pole(self, state)

    def _observe(self, state: BsuiteCartPoleState) -> jax.Array:
        return jnp.stack(observe(self, state))[None]
