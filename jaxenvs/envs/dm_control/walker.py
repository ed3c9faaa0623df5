"""The walker domain."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Walker(ControlTask):
    """Stand, walk, or run on two legs in a vertical plane.

    Observation: dict
        orientations  float32[14], cosine and sine of each body's angle
        height  float32[], m, of the torso
        velocity  float32[9], m/s and rad/s
    Action: float32[6], torques on the joints in [-1, 1]
    Reward: at most 1, for a torso above 1.2 m that is upright, and with a `move_speed` for a
        velocity of the center of mass of at least that
    Start: limited joints uniform within their limits, the torso turned anywhere, at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: T. P. Lillicrap et al., 2015, as the Control Suite's walker (Y. Tassa et al., 2018).
    """

    move_speed: float = struct.static(0.0)  # m/s
    n_sub_steps: int = struct.static(10)  # physics steps in a step

    camera: ClassVar = {"body": 1, "distance": 4.0, "height": 1.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("walker")

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        return self._make_state(self._random_joints(key))

    def _observe(self, model: Model, data: Fields) -> Observation:
        turns = data.xmat[1:]
        return {
            "orientations": jnp.stack([turns[:, 0, 0], turns[:, 0, 2]], axis=1).reshape(-1),
            "height": data.xpos[self._torso, 2],
            "velocity": data.qvel,
        }

    @property
    def _torso(self) -> int:
        return self._original.body("torso").id

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        standing = tolerance(data.xpos[self._torso, 2], (1.2, jnp.inf), margin=0.6)
        upright = (1 + data.xmat[self._torso, 2, 2]) / 2
        stand = (3 * standing + upright) / 4
        if self.move_speed == 0:
            return stand
        move = tolerance(
            self._sensor(data, "torso_subtreelinvel")[0],
            (self.move_speed, jnp.inf),
            margin=self.move_speed / 2,
            value_at_margin=0.5,
            sigmoid="linear",
        )
        return stand * (5 * move + 1) / 6
