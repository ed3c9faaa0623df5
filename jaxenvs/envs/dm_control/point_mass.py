"""The point mass domain."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs.envs.dm_control.base import ControlTask, Observation, Start, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class PointMass(ControlTask):
    """Push a mass in the plane to the middle.

    Observation: dict
        position  float32[2], m
        velocity  float32[2], m/s
    Action: float32[2], forces along x and y in [-1, 1]
    Reward: 1 within the target's radius, less farther away and for large actions
    Start: uniform within the walls, at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's point_mass (Y. Tassa et al., 2018).
    """

    camera: ClassVar = {"body": 0, "distance": 1.0, "elevation": -89.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("point_mass")

    def _draw_start(self, key: chex.PRNGKey) -> Start:
        return self._begin(self._random_joints(key))

    def _see(self, model: Model, data: Fields) -> Observation:
        return {"position": data.qpos, "velocity": data.qvel}

    def _judge(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        target, mass = (self._original.geom(name).id for name in ("target", "pointmass"))
        distance = jnp.linalg.norm(data.geom_xpos[target] - data.geom_xpos[mass])
        size = self._size(model, "target")
        control = tolerance(action, margin=1, value_at_margin=0, sigmoid="quadratic").mean()
        return tolerance(distance, (0, size), margin=size) * (control + 4) / 5
