"""The quadruped domain."""

import math
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, Observation, Start, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model

_EPISODE = 20.0  # s; the floor is as large as what can be walked in this time


class Quadruped(ControlTask):
    """Walk or run on four legs, or bring a ball to the middle.

    Observation: dict
        egocentric_state  float32[44], angles of the hinges in rad, their velocities in rad/s, and
            the activations of the actuators
        torso_velocity  float32[3], m/s, in the torso's frame
        torso_upright  float32[], cosine of the angle from upright
        imu  float32[6], acceleration in m/s^2 and turning in rad/s, in the torso's frame
        force_torque  float32[24], arcsinh of the toes' forces in N, then torques in N m
        ball_state  float32[9], position, velocity, and turning of the ball, in the torso's frame;
            to `fetch`
        target_position  float32[3], m, from the torso, in its frame; to `fetch`
    Action: float32[12], positions of yaw, lift, and extension of each leg
    Reward: at most 1, for an upright torso times a speed forward of at least `move_speed`; to
        `fetch`, times being near the ball, and half of it for the ball being near the target
    Start: turned anywhere on the ground, at rest; to `fetch` upright anywhere, and a ball is thrown
        (in single precision, toes are a micrometer above the ground, so that they touch nothing)
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's quadruped (Y. Tassa et al., 2020, arXiv:2006.12983).
    """

    move_speed: float = struct.static(0.5)  # m/s
    fetch: bool = struct.static(False)  # whether there is a ball
    n_sub_steps: int = struct.static(4)  # physics steps in a step

    camera: ClassVar = {"body": 1, "distance": 4.0}

    @property
    def _original(self) -> mujoco.MjModel:
        if self.fetch:
            return load_once("quadruped", walls_and_ball=True)
        return load_once("quadruped", floor_size=_EPISODE * self.move_speed)

    def _draw_start(self, key: chex.PRNGKey) -> Start:
        turn_key, place_key, ball_key, throw_key = jax.random.split(key, 4)
        qpos = self._qpos0.at[2].set(0)
        if not self.fetch:
            turn = jax.random.normal(turn_key, (4,), jnp.float32)
            turn /= jnp.linalg.norm(turn)
            return self._begin(self._lift(qpos.at[3:7].set(turn)))
        angle = jax.random.uniform(turn_key, (), jnp.float32, 0, 2 * math.pi)
        turn = jnp.stack([jnp.cos(angle / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(angle / 2)])
        far = 0.9 * self._size(self._model, "floor")
        place, ball_place = (
            jax.random.uniform(key, (2,), jnp.float32, -far, far) for key in (place_key, ball_key)
        )
        qpos = qpos.at[:2].set(place).at[3:7].set(turn)
        ball, ball_speed = self._ball
        qpos = self._lift(qpos).at[ball : ball + 2].set(ball_place)
        if self.dtype == "float32":  # cannot tell the 2e-16 m between toes and ground from 0
            qpos = qpos.at[2].add(1e-6)
        throw = 5 * jax.random.normal(throw_key, (2,), jnp.float32)
        qvel = jnp.zeros(self._original.nv, self.dtype)
        qvel = qvel.at[ball_speed : ball_speed + 2].set(throw)
        return self._begin(qpos.at[ball + 2].set(2), qvel)

    def _lift(self, qpos: jax.Array) -> jax.Array:
        """Moves the torso up by centimeters until nothing touches."""

        def lift(count: jax.Array, start: Start) -> Start:
            return self._begin(start.qpos.at[2].add(jnp.where(count > 0, 0.01, 0)))

        return self._without_contact(self._begin(qpos), lift).qpos

    @property
    def _ball(self) -> tuple[int, int]:
        """Where the ball's positions and velocities begin."""
        joint = self._original.joint("ball_root")
        return joint.qposadr[0], joint.dofadr[0]

    def _see(self, model: Model, data: Fields) -> Observation:
        original, kinds = self._original, mujoco.mjtSensor
        hinges = original.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        angles, speeds = original.jnt_qposadr[hinges], original.jnt_dofadr[hinges]
        torso = original.body("torso").id
        seen = {
            "egocentric_state": jnp.concatenate([data.qpos[angles], data.qvel[speeds], data.act]),
            "torso_velocity": self._sensor(data, "velocimeter"),
            "torso_upright": data.xmat[torso, 2, 2],
            "imu": self._sensors(data, kinds.mjSENS_ACCELEROMETER, kinds.mjSENS_GYRO),
            "force_torque": jnp.arcsinh(
                self._sensors(data, kinds.mjSENS_FORCE, kinds.mjSENS_TORQUE)
            ),
        }
        if not self.fetch:
            return seen
        ball, speed = original.body("ball").id, self._ball[1]
        rows = [
            data.xpos[ball] - data.xpos[torso],
            data.qvel[speed : speed + 3] - data.qvel[:3],
            data.qvel[speed + 3 : speed + 6],
        ]
        target = data.site_xpos[original.site("target").id] - data.xpos[torso]
        return seen | {
            "ball_state": (jnp.stack(rows) @ data.xmat[torso]).reshape(-1),
            "target_position": target @ data.xmat[torso],
        }

    def _sensors(self, data: Fields, *kinds: mujoco.mjtSensor) -> jax.Array:
        """Returns the values of all sensors of some kinds."""
        original = self._original
        chosen = np.flatnonzero(np.isin(original.sensor_type, kinds))
        return jnp.concatenate([self._sensor(data, original.sensor(i).name) for i in chosen])

    def _judge(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        original = self._original
        upright = data.xmat[original.body("torso").id, 2, 2]
        stand = tolerance(upright, (1, jnp.inf), margin=2, value_at_margin=0, sigmoid="linear")
        if not self.fetch:
            return stand * tolerance(
                self._sensor(data, "velocimeter")[0],
                (self.move_speed, jnp.inf),
                margin=self.move_speed,
                value_at_margin=0.5,
                sigmoid="linear",
            )
        ball = data.xpos[original.body("ball").id]

        def near(site: str, extra: Any) -> jax.Array:
            apart = (data.site_xpos[original.site(site).id] - ball)[:2]
            return tolerance(
                jnp.linalg.norm(apart),
                (0, model.site_size[original.site(site).id, 0] + extra),
                margin=self._size(model, "floor") * math.sqrt(2),
                value_at_margin=0,
                sigmoid="linear",
            )

        return (
            stand * near("workspace", self._size(model, "ball")) * (0.5 + 0.5 * near("target", 0))
        )
