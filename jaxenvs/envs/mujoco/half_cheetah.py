"""The half cheetah task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment, normal_noise
from jaxenvs.physics.models import Fields


class HalfCheetah(MujocoEnvironment):
    """Run forward on two legs in a vertical plane, as fast as possible.

    Observation: float32[17], or [18] with the x-coordinate first
        0-7  height and angle of the torso, angles of the back and front thigh, shin, foot
        8-16  their velocities, after that of the torso's x-coordinate
    Action: float32[6], torques on these joints in [-1, 1], times the gear of the model
    Reward: the torso's velocity along x minus 0.1 times the sum of squared actions
    Start: uniform noise of 0.1 on positions, normal noise of 0.1 on velocities
    Terminates: never
    Time limit: none here; `HalfCheetah-v5` is registered with 1,000 steps

    Source: P. Wawrzynski, 2009, as Gymnasium's HalfCheetah-v5
    (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("half_cheetah.xml")
    frame_skip: int = struct.static(5)
    forward_reward_weight: float = 1.0  # weight of the velocity
    ctrl_cost_weight: float = 0.1  # weight of the squared actions
    reset_noise_scale: float = 0.1  # size of the noise at the start
    exclude_current_positions_from_observation: bool = struct.static(True)  # hides the place

    measured: ClassVar = ("x_velocity", "reward_forward", "reward_ctrl")
    camera: ClassVar = {"body": 1, "distance": 3.0}

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        return normal_noise(self, key)

    def _observe_data(self, data: Fields) -> jax.Array:
        hidden = int(self.exclude_current_positions_from_observation)
        return jnp.concatenate([data.qpos[hidden:], data.qvel])

    def _info(self, data: Fields) -> Info:
        return {"x_position": data.qpos[0]}

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        forward = self.forward_reward_weight * velocity[0]
        control = self.ctrl_cost_weight * (action**2).sum()
        parts = {
            "x_velocity": velocity[0],
            "reward_forward": forward,
            "reward_ctrl": -control,
        }
        return forward - control, jnp.bool_(False), parts
