"""The swimmer domain."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Swimmer(ControlTask):
    """Swim to a target in the plane, in a viscous fluid, with a chain of links.

    Observation: dict
        joints  float32[n - 1], rad
        to_target  float32[2], m, from the nose to the target, in the frame of the head
        body_velocities  float32[3 n], m/s and rad/s, of each link in its frame: x, y, turning
    Action: float32[n - 1], torques on the joints in [-1, 1]
    Reward: 1 if the nose is in the target, less farther away
    Start: joints uniform within their limits, the head turned anywhere, at rest; the target is
        uniform within 2 m, in a fifth of the episodes within 0.3 m, along x and y
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: R. Coulom, 2002, as the Control Suite's swimmer (Y. Tassa et al., 2018).
    """

    n_links: int = struct.static(6)  # number of links
    n_sub_steps: int = struct.static(15)  # physics steps in a step

    camera: ClassVar = {"body": 1, "distance": 3.0, "elevation": -60.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("swimmer", n_joints=self.n_links)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        joints_key, target_key = jax.random.split(key)
        noise = jax.random.uniform(target_key, (3,), jnp.float32)
        place = (2 * noise[:2] - 1) * jnp.where(noise[2] < 0.2, 0.3, 2)
        target = self._original.geom("target").id
        places = self._model.geom_pos.at[target, :2].set(place)
        return self._make_state(self._random_joints(joints_key), geom_pos=places)

    def _observe(self, model: Model, data: Fields) -> Observation:
        velocities = data.sensordata[12:].reshape(-1, 6)[:, jnp.array([0, 1, 5])]
        return {
            "joints": data.qpos[3:],
            "to_target": self._to_target(data),
            "body_velocities": velocities.reshape(-1),
        }

    def _to_target(self, data: Fields) -> jax.Array:
        target, nose = (self._original.geom(name).id for name in ("target", "nose"))
        apart = data.geom_xpos[target] - data.geom_xpos[nose]
        return (apart @ data.xmat[self._original.body("head").id])[:2]

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        size = self._size(model, "target")
        return tolerance(
            jnp.linalg.norm(self._to_target(data)), (0, size), margin=5 * size, sigmoid="long_tail"
        )
