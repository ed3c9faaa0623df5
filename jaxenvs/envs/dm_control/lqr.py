"""The lqr domain."""

import functools
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load
from jaxenvs.errors import ParameterError
from jaxenvs.physics.models import Fields, Model


class LQR(ControlTask):
    """Bring a chain of masses on springs to rest, at a quadratic cost.

    Observation: dict
        position  float32[n], m
        velocity  float32[n], m/s
    Action: float32[k], forces on the first k masses, up to MuJoCo's limit of 1e10 N: scale random
        actions yourself
    Reward: 1 - |position|^2 / 2 - control_cost_coef |action|^2 / 2
    Start: positions uniform on a sphere of radius sqrt(2), at rest; springs uniform in 15 to 25 N/m
    Terminates: when the norm of positions and velocities is below 1e-6
    Time limit: none

    The suite draws springs once, when it loads a task. Here each episode draws its own.

    Source: the Control Suite's lqr (Y. Tassa et al., 2018).
    """

    n_bodies: int = struct.static(2)  # number of masses
    n_actuators: int = struct.static(1)  # number of masses with a motor, at most n_bodies
    control_cost_coef: float = 0.1  # weight of the action in the cost

    camera: ClassVar = {"body": 1, "distance": 4.0, "elevation": -60.0}

    def __post_init__(self) -> None:
        if not 1 <= self.n_actuators <= self.n_bodies:
            raise ParameterError(
                f"LQR got n_actuators={self.n_actuators} and n_bodies={self.n_bodies}; expected"
                " 1 <= n_actuators <= n_bodies."
            )
        if "jnt_stiffness" in (self.physics or {}):
            raise ParameterError(
                'LQR got physics["jnt_stiffness"], but each episode draws its springs.  Omit it.'
            )
        super().__post_init__()

    @property
    def _original(self) -> mujoco.MjModel:
        return _load(self.n_bodies, self.n_actuators)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        place_key, spring_key = jax.random.split(key)
        away = jax.random.normal(place_key, (self.n_bodies,), jnp.float32)
        springs = jax.random.uniform(spring_key, (self.n_bodies,), jnp.float32, 15.0, 25.0)
        return self._make_state(jnp.sqrt(2) * away / jnp.linalg.norm(away), jnt_stiffness=springs)

    def _observe(self, model: Model, data: Fields) -> Observation:
        return {"position": data.qpos, "velocity": data.qvel}

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        cost = data.qpos @ data.qpos + self.control_cost_coef * (action @ action)
        return 1 - cost / 2

    def _terminated(self, data: Fields) -> jax.Array:
        return jnp.linalg.norm(jnp.concatenate([data.qpos, data.qvel])) < 1e-6


@functools.cache
def _load(n_bodies: int, n_actuators: int) -> mujoco.MjModel:
    springs = np.random.RandomState(0)  # episodes replace them
    return load("lqr", n_bodies=n_bodies, n_actuators=n_actuators, random=springs)
