"""The point mass domain."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import loops, struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.errors import ParameterError
from jaxenvs.physics import check_only_c
from jaxenvs.physics.models import Fields, Model


class PointMass(ControlTask):
    """Push a mass in the plane to the middle.

    Observation: dict
        position  float32[2], m
        velocity  float32[2], m/s
    Action: float32[2], forces along x and y in [-1, 1], with `randomize_gains` along two directions
        that the episode draws
    Reward: 1 within the target's radius, less farther away and for large actions
    Start: uniform within the walls, at rest; `randomize_gains` draws two directions until the
        cosine of the angle between them is at most 0.9 and at least -0.9
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's point_mass (Y. Tassa et al., 2018).
    """

    randomize_gains: bool = struct.static(False)  # whether forces have random directions

    camera: ClassVar = {"body": 0, "distance": 1.0, "elevation": -89.0}

    def __post_init__(self) -> None:
        if self.randomize_gains:
            check_only_c("PointMass", self.engine, "has no tendons that differ between episodes")
            if "wrap_prm" in (self.physics or {}):
                raise ParameterError(
                    'PointMass got physics["wrap_prm"], but each episode draws the directions of'
                    " forces.  Omit it."
                )
        super().__post_init__()

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("point_mass")

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        if not self.randomize_gains:
            return self._make_state(self._random_joints(key))
        place_key, first_key, second_key = jax.random.split(key, 3)
        first = _direction(first_key)

        def again(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return carry[0] + 1, _direction(jax.random.fold_in(second_key, carry[0]))

        def is_parallel(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
            return jnp.abs(first @ carry[1]) > 0.9

        _, second = loops.while_loop(is_parallel, again, (jnp.int32(0), first))
        directions = jnp.concatenate([first, second])
        return self._make_state(self._random_joints(place_key), wrap_prm=directions)

    def _observe(self, model: Model, data: Fields) -> Observation:
        return {"position": data.qpos, "velocity": data.qvel}

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        target, mass = (self._original.geom(name).id for name in ("target", "pointmass"))
        distance = jnp.linalg.norm(data.geom_xpos[target] - data.geom_xpos[mass])
        size = self._size(model, "target")
        control = tolerance(action, margin=1, value_at_margin=0, sigmoid="quadratic").mean()
        return tolerance(distance, (0, size), margin=size) * (control + 4) / 5


def _direction(key: chex.PRNGKey) -> jax.Array:
    """Returns a random direction in the plane: float32[2]."""
    direction = jax.random.normal(key, (2,), jnp.float32)
    return direction / jnp.linalg.norm(direction)
