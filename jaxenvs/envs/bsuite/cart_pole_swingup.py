"""The cart-pole swing-up task of bsuite."""

import math

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.bsuite._cart_pole import (
    BsuiteCartPoleState,
    check_clock,
    draw_cart_pole,
    draw_start,
    is_over,
    move_cart,
    observe,
)


class CartPoleSwingup(Environment[BsuiteCartPoleState]):
    """Swing a pole up and hold it upright near the center of the track, although pushes cost.

    Observation: float32[1, 8]
        0  x / x_threshold, position of the cart
        1  x_dot / x_threshold, 1/s
        2  sin(theta), theta is 0 upright and positive if the pole leans right
        3  cos(theta)
        4  theta_dot, rad/s
        5  time / max_time
        6  1 if |x| < x_reward_threshold, otherwise -1
        7  1 if |theta_dot| < theta_dot_threshold, otherwise -1
    Action: int32[], 0 pushes left, 1 does not push, 2 pushes right
    Reward: 1 if cos(theta) > height_threshold and the last two observations are 1; minus move_cost
        for a push
    Start: x, x_dot, theta - pi, and theta_dot uniform in [-init_range, init_range)
    Terminates: when |x| > x_threshold, or when the time exceeds max_time, which is after 1,001
        steps
    Time limit: the environment's own, which terminates the episode, as in bsuite
    Info: is_upright, bool[], whether the reward contains the 1

    An agent without directed exploration learns not to push, because all rewards that it finds are
    costs. bsuite uses the height_threshold n / 20 with the x_reward_threshold 1 - n / 20, for n
    from 0 to 19.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its CartpoleSwingup (tests/parity/test_certificates.py).
    """

    height_threshold: float = 0.5  # cos(theta) above which the pole is upright
    theta_dot_threshold: float = 1.0  # rad/s, limit of |theta_dot| for a reward
    x_reward_threshold: float = 1.0  # m, limit of |x| for a reward
    move_cost: float = 0.1  # cost of a push
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
        low = [-inf, -inf, -1.0, -1.0, -inf, 0.0, -1.0, -1.0]
        return spaces.Box([low], [[inf, inf, 1.0, 1.0, inf, inf, 1.0, 1.0]])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, key: chex.PRNGKey) -> tuple[BsuiteCartPoleState, TimeStep]:
        state = draw_start(self, key, math.pi)
        info = {"is_upright": jnp.bool_(False)}
        return state, TimeStep.first(self._observe(state), info=info)

    def step(
        self, state: BsuiteCartPoleState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BsuiteCartPoleState, TimeStep]:
        del key  # a step is deterministic
        state = move_cart(self, state, action)
        observation = self._observe(state)
        height, in_center, is_slow = observation[0, 3], *(observation[0, 6:] > 0)
        is_upright = (height > self.height_threshold) & in_center & is_slow
        cost = jnp.where(jnp.asarray(action, jnp.int32) == 1, 0.0, self.move_cost)
        off_track = jnp.abs(state.x) > self.x_threshold
        return state, TimeStep.transition(
            observation,
            reward=jnp.where(is_upright, 1.0, 0.0) - cost,
            terminated=is_over(self, state) | off_track,
            info={"is_upright": is_upright},
        )

    def render(self, state: BsuiteCartPoleState) -> jax.Array:
        """Draws a side view of the track: uint8[400, 600, 3]."""
        return draw_cart_pole(self, state)

    def _observe(self, state: BsuiteCartPoleState) -> jax.Array:
        in_center = jnp.abs(state.x) < self.x_reward_threshold
        is_slow = jnp.abs(state.theta_dot) < self.theta_dot_threshold
        flags = [jnp.where(flag, jnp.float32(1), -1.0) for flag in (in_center, is_slow)]
        return jnp.stack([*observe(self, state), *flags])[None]
