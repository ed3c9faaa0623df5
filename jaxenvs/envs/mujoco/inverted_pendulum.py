"""The inverted pendulum task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment, uniform_noise
from jaxenvs.physics.models import Fields


class InvertedPendulum(MujocoEnvironment):
    """Balance a pole on a cart.

    Observation: float32[4]
        0  position of the cart, m
        1  angle of the pole, rad, 0 is upright
        2  velocity of the cart, m/s
        3  angular velocity of the pole, rad/s
    Action: float32[1], force on the cart in [-3, 3], times the gear of the model
    Reward: 1, or 0 for the step that terminates
    Start: uniform noise of 0.01 on positions and velocities
    Terminates: if the angle exceeds 0.2, or a value is not finite
    Time limit: none here; `InvertedPendulum-v5` is registered with 1,000 steps

    Source: A. G. Barto, R. S. Sutton, C. W. Anderson, 1983, as Gymnasium's InvertedPendulum-v5
    (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("inverted_pendulum.xml")
    frame_skip: int = struct.static(2)
    reset_noise_scale: float = 0.01  # size of the noise at the start

    measured: ClassVar = ("reward_survive",)
    camera: ClassVar = {"body": 0, "distance": 2.04, "height": 0.3}

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        return uniform_noise(self, key)

    def _observe_data(self, data: Fields) -> jax.Array:
        return jnp.concatenate([data.qpos, data.qvel])

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        del action, velocity
        is_finite = jnp.isfinite(self._observe_data(data)).all()
        terminated = ~is_finite | (jnp.abs(data.qpos[1]) > 0.2)
        reward = (~terminated).astype(self.dtype)
        return reward, terminated, {"reward_survive": reward}
