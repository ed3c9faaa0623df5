"""The acrobot domain."""

import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Acrobot(ControlTask):
    """Swing up a double pendulum with a motor at the elbow.

    Observation: dict
        orientations  float32[4], sines and cosines of the angles of both arms
        velocity  float32[2], rad/s, of shoulder and elbow
    Action: float32[1], torque at the elbow in [-1, 1]
    Reward: 1 if the tip is within the target's radius of its center, less up to 1 m away, or 0 if
        `sparse`
    Start: both angles uniform in [-pi, pi), at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: R. Coulom, 2002, as the Control Suite's acrobot (Y. Tassa et al., 2018).
    """

    sparse: bool = struct.static(False)  # whether only the target is rewarded

    camera: ClassVar = {"body": 0, "distance": 8.0, "height": 2.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("acrobot")

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        return self._make_state(jax.random.uniform(key, (2,), jnp.float32, -math.pi, math.pi))

    def _observe(self, model: Model, data: Fields) -> Observation:
        arms = [self._original.body(name).id for name in ("upper_arm", "lower_arm")]
        turns = [data.xmat[arm] for arm in arms]
        parts = [turn[0, 2] for turn in turns] + [turn[2, 2] for turn in turns]
        return {"orientations": jnp.stack(parts), "velocity": data.qvel}

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        target, tip = (self._original.site(name).id for name in ("target", "tip"))
        distance = jnp.linalg.norm(data.site_xpos[target] - data.site_xpos[tip])
        radius = model.site_size[target, 0]
        return tolerance(distance, (0, radius), margin=0 if self.sparse else 1)
