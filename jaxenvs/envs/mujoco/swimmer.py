"""The swimmer task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment, uniform_noise
from jaxenvs.physics.models import Fields


class Swimmer(MujocoEnvironment):
    """Swim forward in a viscous fluid with a chain of three links.

    Observation: float32[8], or [10] with x and y first
        0-2  angle of the front link, angles of the two joints
        3-7  velocities of x, y, and these angles
    Action: float32[2], torques on the joints in [-1, 1], times the gear of the model
    Reward: velocity along x minus 0.0001 times the sum of squared actions
    Start: uniform noise of 0.1 on positions and velocities
    Terminates: never
    Time limit: none here; `Swimmer-v5` is registered with 1,000 steps

    Source: R. Coulom, 2002, as Gymnasium's Swimmer-v5 (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("swimmer.xml")
    frame_skip: int = struct.static(4)
    forward_reward_weight: float = 1.0  # weight of the velocity
    ctrl_cost_weight: float = 1e-4  # weight of the squared actions
    reset_noise_scale: float = 0.1  # size of the noise at the start
    exclude_current_positions_from_observation: bool = struct.static(True)  # hides the place

    measured: ClassVar = ("x_velocity", "y_velocity", "reward_forward", "reward_ctrl")
    camera: ClassVar = {"body": 1, "distance": 5.0, "elevation": -45.0}

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        return uniform_noise(self, key)

    def _observe_data(self, data: Fields) -> jax.Array:
        hidden = 2 * self.exclude_current_positions_from_observation
        return jnp.concatenate([data.qpos[hidden:], data.qvel])

    def _place(self, data: Fields) -> jax.Array:
        return data.qpos[:2]

    def _info(self, data: Fields) -> Info:
        return planar_position(data)

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        forward = self.forward_reward_weight * velocity[0]
        control = self.ctrl_cost_weight * (action**2).sum()
        parts = {
            "x_velocity": velocity[0],
            "y_velocity": velocity[1],
            "reward_forward": forward,
            "reward_ctrl": -control,
        }
        return forward - control, jnp.bool_(False), parts


def planar_position(data: Fields) -> Info:
    """Returns the entries of `info` about the position in the plane."""
    x, y = data.qpos[:2]
    return {"x_position": x, "y_position": y, "distance_from_origin": jnp.sqrt(x**2 + y**2)}
