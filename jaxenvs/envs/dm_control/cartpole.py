"""The cart-pole domain."""

import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Cartpole(ControlTask):
    """Balance poles on a cart, or swing them up first.

    Observation: dict
        position  float32[1 + 2 n], position of the cart, m, and cosine and sine of each pole's
            angle
        velocity  float32[1 + n], m/s and rad/s
    Action: float32[1], force on the cart in [-1, 1]
    Reward: at most 1, for upright poles, slow poles, a cart in the middle, and small actions. If
        `sparse`, 1 if the cart is within 0.25 m of the middle and all cosines are at least 0.995
    Start: the cart within 0.1 m and the poles within 0.034 rad of the balance. With `swing_up`, the
        first pole hangs down, with normal noise of 0.01, and further poles have noise of 0.1.
        Normal noise of 0.01 on velocities
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: A. G. Barto, R. S. Sutton, C. W. Anderson, 1983, as the Control Suite's cartpole
    (Y. Tassa et al., 2018).
    """

    swing_up: bool = struct.static(False)  # whether the poles hang down at first
    sparse: bool = struct.static(False)  # whether only the balance is rewarded
    num_poles: int = struct.static(1)  # number of poles

    camera: ClassVar = {"body": 0, "distance": 6.0, "height": 1.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("cartpole", num_poles=self.num_poles)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        position_key, velocity_key = jax.random.split(key)
        size, poles = self.num_poles + 1, self.num_poles
        if self.swing_up:
            noise = jax.random.normal(position_key, (size,), jnp.float32)
            scale = jnp.asarray([0.01, 0.01, *[0.1] * (poles - 1)], jnp.float32)
            qpos = jnp.asarray([0, math.pi, *[0] * (poles - 1)], jnp.float32) + scale * noise
        else:
            noise = jax.random.uniform(position_key, (size,), jnp.float32, -1.0, 1.0)
            qpos = jnp.asarray([0.1, *[0.034] * poles], jnp.float32) * noise
        return self._make_state(qpos, 0.01 * jax.random.normal(velocity_key, (size,), jnp.float32))

    def _observe(self, model: Model, data: Fields) -> Observation:
        turns = data.xmat[2:]
        angles = jnp.stack([turns[:, 2, 2], turns[:, 0, 2]], axis=1).reshape(-1)
        return {"position": jnp.concatenate([data.qpos[:1], angles]), "velocity": data.qvel}

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        cart, cosines = data.qpos[0], data.xmat[2:, 2, 2]
        if self.sparse:
            return tolerance(cart, (-0.25, 0.25)) * tolerance(cosines, (0.995, 1)).prod()
        upright = (cosines + 1) / 2
        centered = (1 + tolerance(cart, margin=2)) / 2
        control = tolerance(action, margin=1, value_at_margin=0, sigmoid="quadratic")[0]
        slow = (1 + tolerance(data.qvel[1:], margin=5).min()) / 2
        return upright.mean() * (4 + control) / 5 * slow * centered
