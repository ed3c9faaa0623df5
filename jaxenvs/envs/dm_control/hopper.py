"""The hopper domain."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Hopper(ControlTask):
    """Stand on one leg, or hop forward.

    Observation: dict
        position  float32[6], m and rad, all but the place along x
        velocity  float32[7], m/s and rad/s
        touch  float32[2], log(1 + force) of toe and heel
    Action: float32[4], torques on waist, hip, knee, and ankle in [-1, 1]
    Reward: 1 if the torso is from 0.6 to 2 m above the foot, less for large actions; with
        `hopping`, also less below a speed of 2 m/s, and 0 from 0 m/s
    Start: limited joints uniform within their limits, the torso turned anywhere, at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: T. P. Lillicrap et al., 2015, as the Control Suite's hopper (Y. Tassa et al., 2018).
    """

    hopping: bool = struct.static(False)  # whether to hop
    n_sub_steps: int = struct.static(4)  # physics steps in a step

    camera: ClassVar = {"body": 1, "distance": 2.5, "height": 0.6}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("hopper")

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        return self._make_state(self._random_joints(key))

    def _observe(self, model: Model, data: Fields) -> Observation:
        touch = [self._sensor(data, name) for name in ("touch_toe", "touch_heel")]
        return {
            "position": data.qpos[1:],
            "velocity": data.qvel,
            "touch": jnp.log1p(jnp.concatenate(touch)),
        }

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        torso, foot = (self._original.body(name).id for name in ("torso", "foot"))
        standing = tolerance(data.xipos[torso, 2] - data.xipos[foot, 2], (0.6, 2))
        if self.hopping:
            speed = self._sensor(data, "torso_subtreelinvel")[0]
            return standing * tolerance(
                speed, (2, jnp.inf), margin=1, value_at_margin=0.5, sigmoid="linear"
            )
        control = tolerance(action, margin=1, value_at_margin=0, sigmoid="quadratic").mean()
        return standing * (control + 4) / 5
