"""The inverted double pendulum task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment, normal_noise
from jaxenvs.physics.models import Fields


class InvertedDoublePendulum(MujocoEnvironment):
    """Balance two poles, one on top of the other, on a cart.

    Observation: float32[9]
        0  position of the cart, m
        1-2  sines of the angles of the poles
        3-4  cosines of the angles
        5-7  velocities of the cart and the angles, clipped to [-10, 10]
        8  constraint force on the cart, clipped to [-10, 10]
    Action: float32[1], force on the cart in [-1, 1], times the gear of the model
    Reward: 10 unless it terminates, minus 0.01 x^2 + (y - 2)^2 for the position of the tip, minus
        0.001 v^2 + 0.005 w^2 for the angular velocities of the poles
    Start: uniform noise of 0.1 on positions, normal noise of 0.1 on velocities
    Terminates: if the height of the tip is at most 1
    Time limit: none here; `InvertedDoublePendulum-v5` is registered with 1,000 steps

    Source: Gymnasium's InvertedDoublePendulum-v5
    (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("inverted_double_pendulum.xml")
    frame_skip: int = struct.static(5)
    healthy_reward: float = 10.0  # per step while healthy
    reset_noise_scale: float = 0.1  # size of the noise at the start

    measured: ClassVar = ("reward_survive", "distance_penalty", "velocity_penalty")
    camera: ClassVar = {"body": 0, "distance": 3.0, "height": 0.5}
    starts_with_forces: ClassVar = True

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        return normal_noise(self, key)

    def _observe_data(self, data: Fields) -> jax.Array:
        angles = data.qpos[1:]
        force = data.qfrc_constraint[:1]
        moving = jnp.clip(jnp.concatenate([data.qvel, force]), -10, 10)
        return jnp.concatenate([data.qpos[:1], jnp.sin(angles), jnp.cos(angles), moving])

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        del action, velocity
        x, _, y = data.site_xpos[0]
        v, w = data.qvel[1:3]
        terminated = y <= 1
        survive = self.healthy_reward * ~terminated
        distance = 0.01 * x**2 + (y - 2) ** 2
        speed = 1e-3 * v**2 + 5e-3 * w**2
        parts = {
            "reward_survive": survive,
            "distance_penalty": -distance,
            "velocity_penalty": -speed,
        }
        return survive - distance - speed, terminated, parts
