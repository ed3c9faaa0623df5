"""The ant task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment, normal_noise
from jaxenvs.envs.mujoco.swimmer import planar_position
from jaxenvs.physics.models import Fields


class Ant(MujocoEnvironment):
    """Walk forward on four legs.

    Observation: float32[105]
        0-12  height and orientation (quaternion) of the torso, angles of hip and ankle of four
            legs
        13-26  velocities of these, six of them of the torso
        27-104  contact forces on the 13 bodies, torque before force, clipped to [-1, 1]
        The x- and y-coordinate come first if they are not excluded.
    Action: float32[8], torques on these joints in [-1, 1], times the gear of the model
    Reward: the torso's velocity along x, plus 1 while healthy, minus 0.5 times the sum of squared
        actions, minus 0.0005 times the sum of squared clipped contact forces. The velocity is that
        of the body, which is one physics step late
    Start: uniform noise of 0.1 on positions, normal noise of 0.1 on velocities
    Terminates: if the height of the torso leaves [0.2, 1], or a value is not finite
    Time limit: none here; `Ant-v5` is registered with 1,000 steps

    Source: J. Schulman et al., 2016, as Gymnasium's Ant-v5 (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("ant.xml")
    frame_skip: int = struct.static(5)
    forward_reward_weight: float = 1.0  # weight of the velocity
    ctrl_cost_weight: float = 0.5  # weight of the squared actions
    contact_cost_weight: float = 5e-4  # weight of the squared contact forces
    healthy_reward: float = 1.0  # per step while healthy
    main_body: int | str = struct.static(1)  # number or name of the body whose velocity counts
    terminate_when_unhealthy: bool = struct.static(True)  # unhealthy states end the episode
    healthy_z_range: tuple[float, float] = (0.2, 1.0)  # m, heights that are healthy
    contact_force_range: tuple[float, float] = (-1.0, 1.0)  # bounds of contact forces
    reset_noise_scale: float = 0.1  # size of the noise at the start
    exclude_current_positions_from_observation: bool = struct.static(True)  # hides the place
    include_cfrc_ext_in_observation: bool = struct.static(True)  # shows contact forces

    measured: ClassVar = (
        "x_velocity",
        "y_velocity",
        "reward_forward",
        "reward_ctrl",
        "reward_contact",
        "reward_survive",
    )
    camera: ClassVar = {"body": 1, "distance": 3.5, "elevation": -30.0}

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        return normal_noise(self, key)

    def _contact_forces(self, data: Fields) -> jax.Array:
        return jnp.clip(data.cfrc_ext, *self.contact_force_range)

    def _observe_data(self, data: Fields) -> jax.Array:
        hidden = 2 * self.exclude_current_positions_from_observation
        parts = [data.qpos[hidden:], data.qvel]
        if self.include_cfrc_ext_in_observation:
            parts.append(self._contact_forces(data)[1:].reshape(-1))
        return jnp.concatenate(parts)

    def _place(self, data: Fields) -> jax.Array:
        return data.xpos[self._original.body(self.main_body).id, :2]

    def _info(self, data: Fields) -> Info:
        return planar_position(data)

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        low, high = self.healthy_z_range
        is_finite = jnp.isfinite(data.qpos).all() & jnp.isfinite(data.qvel).all()
        is_healthy = is_finite & (low <= data.qpos[2]) & (data.qpos[2] <= high)
        forward = self.forward_reward_weight * velocity[0]
        survive = is_healthy * self.healthy_reward
        control = self.ctrl_cost_weight * (action**2).sum()
        contact = self.contact_cost_weight * (self._contact_forces(data) ** 2).sum()
        parts = {
            "x_velocity": velocity[0],
            "y_velocity": velocity[1],
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_contact": -contact,
            "reward_survive": survive,
        }
        reward = forward + survive - (control + contact)
        return reward, self.terminate_when_unhealthy & ~is_healthy, parts
