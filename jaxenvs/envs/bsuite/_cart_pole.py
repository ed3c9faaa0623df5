"""The cart, the pole, and the clock shared by both cart-pole tasks."""

import functools
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs.envs.classic_control.cartpole import CartPole, CartPoleState
from jaxenvs.errors import ParameterError
from jaxenvs.numerics import sincos


@chex.dataclass(frozen=True)
class BsuiteCartPoleState:
    """The positions and velocities of the cart and the pole, and the time."""

    x: jax.Array  # float32[], m, position of the cart
    x_dot: jax.Array  # float32[], m/s
    theta: jax.Array  # float32[], rad, in [0, 2 pi], 0 is upright, positive leans right
    theta_dot: jax.Array  # float32[], rad/s
    elapsed: jax.Array  # int32[], steps since reset


def draw_start(env: Any, key: chex.PRNGKey, theta: float) -> BsuiteCartPoleState:
    """Draws a state near rest with the pole near the angle `theta`."""
    start = jax.random.uniform(key, (4,), jnp.float32, -env.init_range, env.init_range)
    return BsuiteCartPoleState(
        x=start[0],
        x_dot=start[1],
        theta=theta + start[2],
        theta_dot=start[3],
        elapsed=jnp.int32(0),
    )


def move_cart(env: Any, state: BsuiteCartPoleState, action: chex.Array) -> BsuiteCartPoleState:
    """Moves cart and pole by one step of Euler's method."""
    force = (jnp.asarray(action, jnp.int32) - 1).astype(jnp.float32) * env.force_mag
    sin, cos = sincos(state.theta)
    mass, moment = env.mass_cart + env.mass_pole, env.mass_pole * env.length
    push = (force + moment * state.theta_dot**2 * sin) / mass
    inertia = env.length * (4.0 / 3.0 - env.mass_pole * cos**2 / mass)
    theta_acc = (env.gravity * sin - cos * push) / inertia
    x_acc = push - moment * theta_acc * cos / mass
    theta = state.theta + env.timescale * state.theta_dot
    return BsuiteCartPoleState(
        x=state.x + env.timescale * state.x_dot,
        x_dot=state.x_dot + env.timescale * x_acc,
        theta=theta - 2 * math.pi * jnp.floor(theta / (2 * math.pi)),
        theta_dot=state.theta_dot + env.timescale * theta_acc,
        elapsed=state.elapsed + 1,
    )


def check_clock(env: Any) -> None:
    """Raises an error unless an episode has from 1 to 10**6 steps."""
    name = type(env).__name__
    if not env.timescale > 0 or not 0 <= env.max_time / env.timescale < 1e6:
        raise ParameterError(
            f"{name} got timescale={env.timescale} and max_time={env.max_time}; the timescale must"
            " be positive, and max_time from 0 to less than 10**6 times the timescale."
        )


@functools.cache
def count_steps(timescale: float, max_time: float) -> int:
    """Returns the number of steps after which bsuite's clock exceeds `max_time`.

    The clock is a sum in float64, whose rounding decides between two numbers: with a timescale of
    0.01, a max_time of 10 is exceeded after 1,001 steps, but a max_time of 1 after 100. A sum in
    float32 would exceed 10 after 1,000 steps.
    """
    steps, time = 0, 0.0
    while not time > max_time:
        steps, time = steps + 1, time + timescale
    return steps


def is_over(env: Any, state: BsuiteCartPoleState) -> jax.Array:
    """Returns bool[], whether the time exceeds `max_time`."""
    return state.elapsed >= count_steps(env.timescale, env.max_time)


def observe(env: Any, state: BsuiteCartPoleState) -> list[jax.Array]:
    """Returns the six components that both tasks observe."""
    sin, cos = sincos(state.theta)
    return [
        state.x / env.x_threshold,
        state.x_dot / env.x_threshold,
        sin,
        cos,
        state.theta_dot,
        state.elapsed.astype(jnp.float32) * (env.timescale / env.max_time),
    ]


def draw_cart_pole(env: Any, state: BsuiteCartPoleState) -> jax.Array:
    """Draws a side view of the track: uint8[400, 600, 3]."""
    picture = CartPole(x_threshold=env.x_threshold, length=env.length)
    cart = CartPoleState(x=state.x, x_dot=state.x_dot, theta=state.theta, theta_dot=state.theta_dot)
    return picture.render(cart)
