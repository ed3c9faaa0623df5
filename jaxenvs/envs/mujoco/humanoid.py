"""The humanoid task."""

import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info, MujocoEnvironment, uniform_noise
from jaxenvs.envs.mujoco.hopper import within
from jaxenvs.envs.mujoco.swimmer import planar_position
from jaxenvs.physics.models import Fields


class HumanoidBase(MujocoEnvironment):
    """What both tasks of the humanoid have in common."""

    frame_skip: int = struct.static(5)
    ctrl_cost_weight: float = 0.1  # weight of the squared actions
    reset_noise_scale: float = 1e-2  # size of the noise at the start
    exclude_current_positions_from_observation: bool = struct.static(True)  # hides the place
    include_cinert_in_observation: bool = struct.static(True)  # shows masses and inertias
    include_cvel_in_observation: bool = struct.static(True)  # shows velocities of bodies
    include_qfrc_actuator_in_observation: bool = struct.static(True)  # shows forces of actuators
    include_cfrc_ext_in_observation: bool = struct.static(True)  # shows contact forces

    def _initial_state(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        return uniform_noise(self, key)

    def _observe_data(self, data: Fields) -> jax.Array:
        hidden = 2 * self.exclude_current_positions_from_observation
        parts = [data.qpos[hidden:], data.qvel]
        if self.include_cinert_in_observation:
            parts.append(data.cinert[1:].reshape(-1))
        if self.include_cvel_in_observation:
            parts.append(data.cvel[1:].reshape(-1))
        if self.include_qfrc_actuator_in_observation:
            parts.append(data.qfrc_actuator[6:])
        if self.include_cfrc_ext_in_observation:
            parts.append(data.cfrc_ext[1:].reshape(-1))
        return jnp.concatenate(parts)

    def _tendons(self, data: Fields) -> Info:
        return {"tendon_length": data.ten_length, "tendon_velocity": data.ten_velocity}


class Humanoid(HumanoidBase):
    """Walk forward on two legs without falling.

    The model asks for the solver PGS, which MJX does not have. There, this task uses Newton, and
    steps differ by what PGS leaves unsolved after 50 iterations.

    Observation: float32[348]
        0-21  height and orientation (quaternion) of the torso, angles of 17 joints
        22-44  velocities of these, six of them of the torso
        45-174  mass and inertia of the 13 bodies, ten values each
        175-252  velocities of the bodies, angular before linear
        253-269  forces of the actuators on the 17 joints
        270-347  contact forces on the bodies, torque before force
        The x- and y-coordinate come first if they are not excluded.
    Action: float32[17], torques on the joints in [-0.4, 0.4], times the gear of the model
    Reward: 1.25 times the velocity of the center of mass along x, plus 5 while healthy, minus 0.1
        times the sum of squared actions, minus 5e-7 times the sum of squared contact forces,
        which costs at most 10. The velocity is one physics step late
    Start: uniform noise of 0.01 on positions and velocities
    Terminates: if the height of the torso leaves (1, 2)
    Time limit: none here; `Humanoid-v5` is registered with 1,000 steps

    Source: Y. Tassa, T. Erez, E. Todorov, 2012, as Gymnasium's Humanoid-v5
    (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("humanoid.xml")
    forward_reward_weight: float = 1.25  # weight of the velocity
    contact_cost_weight: float = 5e-7  # weight of the squared contact forces
    contact_cost_range: tuple[float, float] = (-math.inf, 10.0)  # bounds of the cost of contacts
    healthy_reward: float = 5.0  # per step while healthy
    terminate_when_unhealthy: bool = struct.static(True)  # unhealthy states end the episode
    healthy_z_range: tuple[float, float] = (1.0, 2.0)  # m, heights that are healthy

    measured: ClassVar = (
        "x_velocity",
        "y_velocity",
        "reward_survive",
        "reward_forward",
        "reward_ctrl",
        "reward_contact",
    )
    camera: ClassVar = {"body": 1, "distance": 4.0, "height": 1.1}

    def _place(self, data: Fields) -> jax.Array:
        mass = self._model.body_mass
        return (mass[:, None] * data.xipos).sum(axis=0)[:2] / mass.sum()

    def _info(self, data: Fields) -> Info:
        return {**planar_position(data), **self._tendons(data)}

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        is_healthy = within(data.qpos[2], self.healthy_z_range)
        forward = self.forward_reward_weight * velocity[0]
        survive = is_healthy * self.healthy_reward
        control = self.ctrl_cost_weight * (action**2).sum()
        contact = self.contact_cost_weight * (data.cfrc_ext**2).sum()
        contact = jnp.clip(contact, *self.contact_cost_range)
        parts = {
            "x_velocity": velocity[0],
            "y_velocity": velocity[1],
            "reward_survive": survive,
            "reward_forward": forward,
            "reward_ctrl": -control,
            "reward_contact": -contact,
        }
        reward = forward + survive - (control + contact)
        return reward, self.terminate_when_unhealthy & ~is_healthy, parts
