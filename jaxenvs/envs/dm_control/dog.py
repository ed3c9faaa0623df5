"""The dog domain."""

import dataclasses
import functools
import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics import check_only_c
from jaxenvs.physics.models import Fields, Model

_EPISODE = 15.0  # s; the floor is as large as what can be walked in this time
_UPRIGHT = math.cos(math.radians(30))


class Dog(ControlTask):
    """Stand, walk, trot, or run as a dog, or fetch a ball.

    Observation: dict
        joint_angles  float32[73], rad
        joint_velocites  float32[73], rad/s; the name is the suite's
        torso_pelvis_height  float32[2], m
        z_projection  float32[9], the upward parts of the axes of skull, torso, and pelvis
        torso_com_velocity  float32[3], m/s, of the center of mass, in the torso's frame
        inertial_sensors  float32[9], acceleration in m/s^2, velocity in m/s, and turning in rad/s
            of the head, in its frame
        foot_forces  float32[12], N, at the hind feet, then at the hands, left before right
        touch_sensors  float32[4], N, under palms, then under soles
        actuator_state  float32[38], activations of the actuators
        ball_state  float32[6], position in m and velocity in m/s of the ball, from the head, in its
            frame; to `fetch`
        target_position  float32[3], m, from the head, in its frame; to `fetch`
    Action: float32[38], moments of muscles in [-1, 1], which follow with a delay of 0.05 s
    Reward: at most 1, for torso and pelvis at 0.9 of the height that they have in the model's first
        pose, times skull, torso, and pelvis upright within 30 degrees, times feet that carry the
        weight; to move, times a speed forward of `move_speed` to its double; to `fetch`, times the
        mouth near the ball, and half of it for the ball being near the target
    Start: in the model's pose, turned anywhere, with random velocities along the ground and around
        the vertical axis, and random activations; to `fetch`, a ball flies about to the middle
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Engine: C MuJoCo only.

    Source: the Control Suite's dog (Y. Tassa et al., 2020, arXiv:2006.12983).
    """

    move_speed: float = struct.static(0.0)  # m/s, 0 to stand
    fetch: bool = struct.static(False)  # whether there is a ball
    n_sub_steps: int = struct.static(3)  # physics steps in a step

    camera: ClassVar = {"body": 1, "distance": 2.0, "groups": 4}  # skin and bones are meshes

    def __post_init__(self) -> None:
        check_only_c("Dog", self.engine, "collides no ellipsoids with boxes")
        super().__post_init__()

    @property
    def _original(self) -> mujoco.MjModel:
        if self.fetch:
            return load_once("dog", remove_ball=False)
        return load_once("dog", floor_size=_EPISODE * (self.move_speed or 1))

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        turn_key, speed_key, act_key, ball_key = jax.random.split(key, 4)
        original = self._original
        angle = jax.random.uniform(turn_key, (), jnp.float32, 0, 2 * math.pi)
        turn = jnp.stack([jnp.cos(angle / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(angle / 2)])
        qpos = self._qpos0.at[3:7].set(turn)
        speeds = 2 * jax.random.normal(speed_key, (3,), jnp.float32)
        qvel = jnp.zeros(original.nv, self.dtype).at[np.array([0, 1, 5])].set(speeds)
        if self.fetch:
            qpos, qvel = self._throw(ball_key, qpos, qvel)
        low, high = self._model.actuator_ctrlrange.T.astype(jnp.float32)
        act = low + jax.random.uniform(act_key, low.shape, jnp.float32) * (high - low)
        start = self._make_state(qpos, qvel)
        return dataclasses.replace(start, kept=self._engine.activated(self._plan, act))

    def _throw(
        self, key: chex.PRNGKey, qpos: jax.Array, qvel: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Puts the ball on a circle and throws it about to the middle, at most 3 m high."""
        joint = self._original.joint("ball_root")
        place, speed = joint.qposadr[0], joint.dofadr[0]
        uniform_key, normal_key = jax.random.split(key)
        angle, height, fast = jax.random.uniform(uniform_key, (3,), jnp.float32) * jnp.array(
            [2 * math.pi, 3, 5], jnp.float32
        )
        outward = jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        inward = 0.05 * jax.random.normal(normal_key, (2,), jnp.float32) - outward
        radius = 0.75 * self._size(self._model, "floor")
        upward = jnp.sqrt(-2 * self._model.opt.gravity[2] * height)
        qpos = qpos.at[place : place + 2].set(radius * outward).at[place + 2].set(0.05)
        return qpos, qvel.at[speed : speed + 2].set(fast * inward).at[speed + 2].set(upward)

    def _observe(self, model: Model, data: Fields) -> Observation:
        original = self._original
        hinges = original.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        skull, torso, pelvis = self._bodies("skull", "torso", "pelvis")
        observation = {
            "joint_angles": data.qpos[original.jnt_qposadr[hinges]],
            "joint_velocites": data.qvel[original.jnt_dofadr[hinges]],
            "torso_pelvis_height": data.xpos[np.array([torso, pelvis]), 2],
            "z_projection": data.xmat[np.array([skull, torso, pelvis]), 2].reshape(-1),
            "torso_com_velocity": self._velocity(data),
            "inertial_sensors": self._sensors(data, "accelerometer", "velocimeter", "gyro"),
            "foot_forces": self._sensors(data, "foot_L", "foot_R", "hand_L", "hand_R"),
            "touch_sensors": self._touches(data),
            "actuator_state": data.act,
        }
        if not self.fetch:
            return observation
        head = original.site("head")
        ball, target = (original.geom(name) for name in ("ball", "target"))
        place, turn = data.site_xpos[head.id], data.site_xmat[head.id]
        ball_place = data.geom_xpos[ball.id]
        speed = self._velocity_at(data, ball.bodyid[0], ball_place)
        speed -= self._velocity_at(data, head.bodyid[0], place)
        return observation | {
            "ball_state": jnp.concatenate([(ball_place - place) @ turn, speed @ turn]),
            "target_position": (data.geom_xpos[target.id] - place) @ turn,
        }

    def _bodies(self, *names: str) -> list[int]:
        return [self._original.body(name).id for name in names]

    def _sensors(self, data: Fields, *names: str) -> jax.Array:
        return jnp.concatenate([self._sensor(data, name) for name in names])

    def _touches(self, data: Fields) -> jax.Array:
        return self._sensors(data, "palm_L", "palm_R", "sole_L", "sole_R")

    def _velocity(self, data: Fields) -> jax.Array:
        """Returns the velocity of the center of mass in the torso's frame."""
        return self._sensor(data, "torso_linvel") @ data.xmat[self._bodies("torso")[0]]

    def _velocity_at(self, data: Fields, body: int, place: jax.Array) -> jax.Array:
        """Returns the velocity of a body at a place, as `mj_objectVelocity` does."""
        turning, velocity = data.cvel[body, :3], data.cvel[body, 3:]
        center = data.subtree_com[self._original.body_rootid[body]]
        return velocity - jnp.cross(place - center, turning)

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        skull, torso, pelvis = self._bodies("skull", "torso", "pelvis")
        reward = jnp.ones(())
        for body in (torso, pelvis):
            height = _standing_height(self._original, body)
            reward *= tolerance(data.xpos[body, 2], (height, jnp.inf), margin=height)
        reward *= tolerance(
            data.xmat[np.array([skull, torso, pelvis]), 2, 2],
            (_UPRIGHT, jnp.inf),
            margin=_UPRIGHT + 1,
            value_at_margin=0,
            sigmoid="linear",
        ).prod()
        weight = -model.opt.gravity[2] * model.body_subtreemass[torso]
        reward *= tolerance(
            self._touches(data).sum(),
            (weight, jnp.inf),
            margin=weight,
            value_at_margin=0.9,
            sigmoid="linear",
        )
        if self.fetch:
            return reward * self._fetch_reward(model, data)
        if not self.move_speed:
            return reward
        forward = tolerance(
            self._velocity(data)[0],
            (self.move_speed, 2 * self.move_speed),
            margin=max(1.0, self.move_speed),
            value_at_margin=0,
            sigmoid="linear",
        )
        return reward * (4 * forward + 1) / 5

    def _fetch_reward(self, model: Model, data: Fields) -> jax.Array:
        original = self._original
        ball, target, floor = (original.geom(name).id for name in ("ball", "target", "floor"))
        bites = [original.site(name).id for name in ("upper_bite", "lower_bite")]
        from_mouth = jnp.stack(
            [jnp.linalg.norm(data.geom_xpos[ball] - data.site_xpos[bite]) for bite in bites]
        ).mean()
        from_target = jnp.linalg.norm(data.geom_xpos[ball] - data.geom_xpos[target])
        radius = model.geom_size[target, 0]
        reach = (6 * _near(from_mouth, model.site_size[bites[0], 0], 2) + 1) / 7
        bring = (_near(from_target, radius, model.geom_size[floor, 0]) + 1) / 2
        is_fetched = from_target < 2 * radius  # then the mouth may leave the ball
        return jnp.where(is_fetched, 1, reach) * bring


def _near(distance: jax.Array, radius: jax.Array, margin: jax.Array | float) -> jax.Array:
    """Returns 1 within a radius and 0.1 at its margin, with the sigmoid "reciprocal"."""
    return 1 / (9 * jnp.maximum(distance - radius, 0) / margin + 1)


@functools.cache
def _standing_height(original: mujoco.MjModel, body: int) -> float:
    """Returns the height of a body that stands, in m."""
    data = mujoco.MjData(original)
    mujoco.mj_kinematics(original, data)
    return 0.9 * float(data.xpos[body, 2])
