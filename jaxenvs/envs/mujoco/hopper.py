"""The hopper task, and what it shares with the walker."""

import abc
import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment, uniform_noise
from jaxenvs.physics.models import Fields


class PlanarWalker(MujocoEnvironment):
    """What Hopper and Walker2d have in common."""

    frame_skip: int = struct.static(4)
    forward_reward_weight: float = 1.0  # weight of the velocity
    ctrl_cost_weight: float = 1e-3  # weight of the squared actions
    healthy_reward: float = 1.0  # per step while healthy
    terminate_when_unhealthy: bool = struct.static(True)  # unhealthy states end the episode
    reset_noise_scale: float = 5e-3  # size of the noise at the start
    exclude_current_positions_from_observation: bool = struct.static(True)  # hides the place

    measured: ClassVar = ("x_velocity", "reward_forward", "reward_ctrl", "reward_survive")

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        return uniform_noise(self, key)

    def _observe_data(self, data: Fields) -> jax.Array:
        hidden = int(self.exclude_current_positions_from_observation)
        return jnp.concatenate([data.qpos[hidden:], jnp.clip(data.qvel, -10, 10)])

    def _info(self, data: Fields) -> Info:
        return {
            "x_position": data.qpos[0],
            "z_distance_from_origin": data.qpos[1] - self._qpos0[1],
        }

    @abc.abstractmethod
    def _is_healthy(self, data: Fields) -> jax.Array:
        """Returns whether the robot stands."""

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        is_healthy = self._is_healthy(data)
        forward = self.forward_reward_weight * velocity[0]
        survive = is_healthy * self.healthy_reward
        control = self.ctrl_cost_weight * (action**2).sum()
        parts = {
            "x_velocity": velocity[0],
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_survive": survive,
        }
        return forward + survive - control, self.terminate_when_unhealthy & ~is_healthy, parts


class Hopper(PlanarWalker):
    """Hop forward on one leg in a vertical plane without falling.

    Observation: float32[11], or [12] with the x-coordinate first
        0-4  height and angle of the torso, angles of thigh, leg, and foot
        5-10  their velocities, after that of the torso's x-coordinate, clipped to [-10, 10]
    Action: float32[3], torques on thigh, leg, and foot in [-1, 1], times the gear of the model
    Reward: the torso's velocity along x, plus 1 while healthy, minus 0.001 times the sum of
        squared actions
    Start: uniform noise of 0.005 on positions and velocities
    Terminates: if the height of the torso is at most 0.7, its angle leaves (-0.2, 0.2), or
        another position or velocity leaves (-100, 100)
    Time limit: none here; `Hopper-v5` is registered with 1,000 steps

    Source: T. Erez, Y. Tassa, E. Todorov, 2011, as Gymnasium's Hopper-v5
    (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("hopper.xml")
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)  # of what is not the place
    healthy_z_range: tuple[float, float] = (0.7, math.inf)  # m, heights that are healthy
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)  # rad, of the torso

    camera: ClassVar = {"body": 2, "distance": 3.0, "height": 0.9}

    def _is_healthy(self, data: Fields) -> jax.Array:
        rest = jnp.concatenate([data.qpos[2:], data.qvel])
        return (
            within(rest, self.healthy_state_range).all()
            & within(data.qpos[1], self.healthy_z_range)
            & within(data.qpos[2], self.healthy_angle_range)
        )


def within(value: jax.Array, bounds: tuple[float, float]) -> jax.Array:
    """Returns whether values are between the bounds, which are excluded."""
    low, high = bounds
    return (low < value) & (value < high)
