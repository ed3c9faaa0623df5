"""The ball in cup domain."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.physics.models import Fields, Model


class BallInCup(ControlTask):
    """Catch a ball, which hangs on a string, in a cup.

    Observation: dict
        position  float32[4], m, x and z of the cup and the ball
        velocity  float32[4], m/s
    Action: float32[2], forces on the cup along x and z in [-1, 1]
    Reward: 1 if the ball is in the cup, otherwise 0
    Start: the ball is uniform in [-0.2, 0.2) x [0.2, 0.5) where it touches nothing, at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's ball_in_cup (Y. Tassa et al., 2018).
    """

    n_sub_steps: int = struct.static(10)  # physics steps in a step

    camera: ClassVar = {"body": 0, "distance": 1.5, "height": 0.5}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("ball_in_cup")

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        def draw(count: jax.Array, _: InitialState) -> InitialState:
            noise = jax.random.uniform(jax.random.fold_in(key, count), (2,), jnp.float32)
            x, z = -0.2 + 0.4 * noise[0], 0.2 + 0.3 * noise[1]
            return self._make_state(self._qpos0.at[2:].set(jnp.stack([x, z])))

        return self._without_contact(self._make_state(self._qpos0), draw)

    def _observe(self, model: Model, data: Fields) -> Observation:
        return {"position": data.qpos, "velocity": data.qvel}

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        original = self._original
        target, ball = original.site("target").id, original.body("ball").id
        apart = jnp.abs(data.site_xpos[target] - data.xpos[ball])
        room = model.site_size[target] - self._size(model, "ball")
        return (apart < room)[jnp.array([0, 2])].all().astype(self.dtype)
