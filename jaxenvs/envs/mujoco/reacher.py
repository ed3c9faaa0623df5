"""The reacher task."""

import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment
from jaxenvs.physics.models import Fields


class Reacher(MujocoEnvironment):
    """Bring the fingertip of an arm with two links to a target in the plane.

    Observation: float32[10]
        0-1  cosines of the angles of the arm's joints
        2-3  sines of the angles
        4-5  x and y of the target, m
        6-7  velocities of the angles, rad/s
        8-9  x and y of the fingertip minus those of the target, m
    Action: float32[2], torques on the joints in [-1, 1], times the gear of the model
    Reward: minus the distance from the target, minus the sum of squared actions
    Start: uniform noise of 0.1 on the angles and 0.005 on their velocities; the target is uniform
        in the disc with a radius of 0.2
    Terminates: never
    Time limit: none here; `Reacher-v5` is registered with 50 steps

    Source: Gymnasium's Reacher-v5 (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("reacher.xml")
    frame_skip: int = struct.static(2)
    reward_dist_weight: float = 1.0  # weight of the distance from the goal
    reward_control_weight: float = 1.0  # weight of the squared actions

    measured: ClassVar = ("reward_dist", "reward_ctrl")
    camera: ClassVar = {"body": 0, "distance": 0.8, "elevation": -70.0}

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        noise = jax.random.uniform(key, (6,), jnp.float32)
        angles, speeds = 0.2 * noise[:2] - 0.1, 0.01 * noise[2:4] - 0.005
        radius, direction = 0.2 * jnp.sqrt(noise[4]), 2 * math.pi * noise[5]
        goal = radius * jnp.stack([jnp.cos(direction), jnp.sin(direction)])
        start = self._qpos0[:2].astype(jnp.float32) + angles
        return jnp.concatenate([start, goal]), jnp.concatenate([speeds, jnp.zeros_like(speeds)])

    def _observe_data(self, data: Fields) -> jax.Array:
        angles = data.qpos[:2]
        parts = [jnp.cos(angles), jnp.sin(angles), data.qpos[2:], data.qvel[:2]]
        return jnp.concatenate([*parts, self._to_target(data)[:2]])

    def _to_target(self, data: Fields) -> jax.Array:
        model = self._original
        return data.xpos[model.body("fingertip").id] - data.xpos[model.body("target").id]

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        del velocity
        distance = -jnp.sqrt((self._to_target(data) ** 2).sum()) * self.reward_dist_weight
        control = -(action**2).sum() * self.reward_control_weight
        return (
            distance + control,
            jnp.bool_(False),
            {"reward_dist": distance, "reward_ctrl": control},
        )
