"""The car and the track that both mountain cars share."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs.numerics import sincos


@chex.dataclass(frozen=True)
class MountainCarState:
    position: jax.Array  # float32[], along the track
    velocity: jax.Array  # float32[], track units per step


def roll(env: Any, state: MountainCarState, push: jax.Array) -> MountainCarState:
    """Moves the car by one step; `push` is what the engine adds to its velocity."""
    _, cos = sincos(3 * state.position)
    velocity = state.velocity + (push - cos * env.gravity)
    velocity = jnp.clip(velocity, -env.max_speed, env.max_speed)
    position = jnp.clip(state.position + velocity, env.min_position, env.max_position)
    hit_wall = (position == env.min_position) & (velocity < 0)
    return MountainCarState(position=position, velocity=jnp.where(hit_wall, 0.0, velocity))


def at_goal(env: Any, state: MountainCarState) -> jax.Array:
    """bool[]: whether the car stands at the goal, fast enough."""
    return (state.position >= env.goal_position) & (state.velocity >= env.goal_velocity)


def observe(state: MountainCarState) -> jax.Array:
    """float32[2]: position and velocity."""
    return jnp.stack([state.position, state.velocity])
