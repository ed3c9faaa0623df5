"""The reacher domain."""

import functools
import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Reacher(ControlTask):
    """Bring the end of an arm with two links to a target in the plane.

    Observation: dict
        position  float32[2], rad, of shoulder and wrist
        to_target  float32[2], m, from the finger to the target
        velocity  float32[2], rad/s
    Action: float32[2], torques on the joints in [-1, 1]
    Reward: 1 if finger and target touch, otherwise 0
    Start: the shoulder turned anywhere, the wrist within its limits, at rest; the target is from
        0.05 to 0.2 m from the middle, in any direction
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's reacher (Y. Tassa et al., 2018).
    """

    target_size: float = struct.static(0.05)  # m, its radius

    camera: ClassVar = {"body": 0, "distance": 0.9, "elevation": -89.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return _load(self.target_size)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        joints_key, target_key = jax.random.split(key)
        noise = jax.random.uniform(target_key, (2,), jnp.float32)
        angle, radius = 2 * math.pi * noise[0], 0.05 + 0.15 * noise[1]
        target = self._original.geom("target").id
        places = self._model.geom_pos.at[target, 0].set(radius * jnp.sin(angle))
        places = places.at[target, 1].set(radius * jnp.cos(angle))
        return self._make_state(self._random_joints(joints_key), geom_pos=places)

    def _observe(self, model: Model, data: Fields) -> Observation:
        return {"position": data.qpos, "to_target": self._to_target(data), "velocity": data.qvel}

    def _to_target(self, data: Fields) -> jax.Array:
        target, finger = (self._original.geom(name).id for name in ("target", "finger"))
        return data.geom_xpos[target, :2] - data.geom_xpos[finger, :2]

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        radii = self._size(model, "target") + self._size(model, "finger")
        return tolerance(jnp.linalg.norm(self._to_target(data)), (0, radii))


@functools.cache
def _load(target_size: float) -> mujoco.MjModel:
    model = load("reacher")
    model.geom_size[model.geom("target").id, 0] = target_size
    return model
