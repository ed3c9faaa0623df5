"""The pendulum domain."""

import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Pendulum(ControlTask):
    """Swing up a pendulum with a motor too weak to lift it directly.

    Observation: dict
        orientation  float32[2], cosine and sine of the angle
        velocity  float32[1], rad/s
    Action: float32[1], torque in [-1, 1]
    Reward: 1 within 8 degrees of upright, otherwise 0
    Start: the angle uniform in [-pi, pi), at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's pendulum (Y. Tassa et al., 2018).
    """

    camera: ClassVar = {"body": 0, "distance": 2.5, "height": 0.6}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("pendulum")

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        return self._make_state(jax.random.uniform(key, (1,), jnp.float32, -math.pi, math.pi))

    def _observe(self, model: Model, data: Fields) -> Observation:
        turn = self._turn(data)
        return {"orientation": jnp.stack([turn[2, 2], turn[0, 2]]), "velocity": data.qvel}

    def _turn(self, data: Fields) -> jax.Array:
        return data.xmat[self._original.body("pole").id]

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        return tolerance(self._turn(data)[2, 2], (math.cos(math.radians(8)), 1))
