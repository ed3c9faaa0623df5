"""The car and the track shared by both mountain car tasks."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs.envs.classic_control._shared import OUTLINE
from jaxenvs.numerics import sincos
from jaxenvs.rendering import raster
from jaxenvs.rendering.raster import BLACK, GRAY, WHITE, YELLOW

FRAME_SHAPE = (400, 600)  # height, width


@chex.dataclass(frozen=True)
class MountainCarState:
    """The position and velocity of the car."""

    position: jax.Array  # float32[], along the track
    velocity: jax.Array  # float32[], track units per step


def move_car(env: Any, state: MountainCarState, push: jax.Array) -> MountainCarState:
    """Moves the car by one step. `push` is the velocity that the engine adds."""
    _, cos = sincos(3 * state.position)
    velocity = state.velocity + (push - cos * env.gravity)
    velocity = jnp.clip(velocity, -env.max_speed, env.max_speed)
    position = jnp.clip(state.position + velocity, env.min_position, env.max_position)
    hit_wall = (position == env.min_position) & (velocity < 0)
    return MountainCarState(position=position, velocity=jnp.where(hit_wall, 0.0, velocity))


def at_goal(env: Any, state: MountainCarState) -> jax.Array:
    """Returns bool[], whether the car is at or beyond the goal and fast enough."""
    return (state.position >= env.goal_position) & (state.velocity >= env.goal_velocity)


def observe(state: MountainCarState) -> jax.Array:
    """Returns float32[2]: position and velocity."""
    return jnp.stack([state.position, state.velocity])


def draw_mountain_car(env: Any, state: MountainCarState) -> jax.Array:
    """Draws a side view of the track with a flag at the goal: uint8[400, 600, 3]."""
    scale = FRAME_SHAPE[1] / (env.max_position - env.min_position)  # pixels per track unit
    x, y = raster.pixel_grid(FRAME_SHAPE)

    along = 3 * ((x - 0.5) / scale + env.min_position)
    steepness = 3 * 0.45 * jnp.cos(along)
    above = y - 0.5 - (0.45 * jnp.sin(along) + 0.55) * scale
    track = raster.fill(jnp.abs(above) / jnp.sqrt(1 + steepness**2) - 0.5)

    tilt = jnp.cos(3 * state.position)
    cos, sin = jnp.cos(tilt), jnp.sin(tilt)
    left = (state.position - env.min_position) * scale
    ground = _height(state.position) * scale + 10  # 10 pixels of wheel clearance
    body = raster.box(
        x, y, (left - 10 * sin, ground + 10 * cos), (40.0 + OUTLINE, 20.0 + OUTLINE), tilt
    )
    wheels = raster.union(
        raster.disc(x, y, (left + 10 * cos, ground + 10 * sin), 8.0 + OUTLINE / 2),
        raster.disc(x, y, (left - 10 * cos, ground - 10 * sin), 8.0 + OUTLINE / 2),
    )

    foot_x = jnp.floor((env.goal_position - env.min_position) * scale) + 0.5
    foot_y = jnp.floor(_height(env.goal_position) * scale) + 0.5
    pole = (x == foot_x) & (y >= foot_y) & (y <= foot_y + 50)
    corners = [(foot_x, foot_y + 50), (foot_x, foot_y + 40), (foot_x + 25, foot_y + 45)]
    flag = raster.polygon(x, y, corners, outline=OUTLINE / 2)
    return raster.paint(
        WHITE, (track, BLACK), (body, BLACK), (wheels, GRAY), (pole, BLACK), (flag, YELLOW)
    )


def _height(position: jax.Array) -> jax.Array:
    return 0.45 * jnp.sin(3 * position) + 0.55
