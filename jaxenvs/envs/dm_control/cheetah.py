"""The cheetah domain."""

import dataclasses
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Cheetah(ControlTask):
    """Run forward on two legs in a vertical plane.

    Observation: dict
        position  float32[8], m and rad, all but the place along x
        velocity  float32[9], m/s and rad/s
    Action: float32[6], torques on the joints of the legs in [-1, 1]
    Reward: the speed of the center of mass divided by 10 m/s, from 0 to 1
    Start: limited joints uniform within their limits, after 200 physics steps
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: P. Wawrzynski, 2009, as the Control Suite's cheetah (Y. Tassa et al., 2018).
    """

    camera: ClassVar = {"body": 1, "distance": 3.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("cheetah")

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        is_limited = self._original.jnt_limited.astype(bool)
        qpos = jnp.where(is_limited, self._random_joints(key), self._qpos0)
        plan = dataclasses.replace(self._plan, steps=200)
        still = jnp.zeros(self._original.nu, self.dtype)
        settled = self._engine.step(plan, self._changes({}), self._make_state(qpos), still)
        return InitialState(
            qpos=settled.data.qpos, qvel=settled.data.qvel, drawn={}, kept=settled.kept
        )

    def _observe(self, model: Model, data: Fields) -> Observation:
        return {"position": data.qpos[1:], "velocity": data.qvel}

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        speed = self._sensor(data, "torso_subtreelinvel")[0]
        return tolerance(speed, (10, jnp.inf), margin=10, value_at_margin=0, sigmoid="linear")
