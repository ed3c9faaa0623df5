"""The stacker domain."""

import math

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import InitialState, Observation, load_once
from jaxenvs.envs.dm_control.planar_arm import PLANE, PlanarArm, uniform
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Stacker(PlanarArm):
    """Stack boxes up to a target with a planar arm and a hand of two fingers.

    Observation: dict
        arm_pos  float32[8, 2], sines and cosines of the joints
        arm_vel  float32[8], rad/s
        touch  float32[5], log(1 + force) of palm, finger, thumb, and their tips
        hand_pos  float32[4], x and z in m, and a quaternion's w and y
        box_pos  float32[n, 4], as of the hand
        box_vel  float32[3 n], m/s, rad/s, and m/s of each box: x, angle, z
        target_pos  float32[2], x and z in m
    Action: float32[5], torques on root, shoulder, elbow, wrist, and grasp in [-1, 1]
    Reward: 1 if a box is at the target and the hand at least 0.1 m away, less otherwise
    Start: joints uniform within their limits, finger and thumb alike, and boxes in the air, so that
        nothing touches, at rest; the target is anywhere on the ground, as high as 1 to n boxes
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's stacker (Y. Tassa et al., 2018).
    """

    n_boxes: int = struct.static(2)  # 1 to 4

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("stacker", n_boxes=self.n_boxes)

    @property
    def _boxes(self) -> tuple[str, ...]:
        return tuple(f"box{i}" for i in range(self.n_boxes))

    def _box_joints(self, axes: str) -> tuple[str, ...]:
        return tuple(f"{box}_{axis}" for box in self._boxes for axis in axes)

    @property
    def _box_size(self) -> jax.Array:
        return self._size(self._model, "target")

    def _propose(self, key: chex.PRNGKey, start: InitialState) -> InitialState:
        arm_key, target_key, height_key, box_key = jax.random.split(key, 4)
        qpos = self._move_arm(arm_key, start.qpos)
        height = 2 * jax.random.randint(height_key, (), 0, self.n_boxes) + 1
        target = jnp.stack([uniform(target_key, -0.37, 0.37), self._box_size * height])
        body = self._original.body("target").id
        places = start.drawn["body_pos"].at[body, PLANE].set(target)
        low, high = (0.1, 0, 0) * self.n_boxes, (0.3, 0.7, 2 * math.pi) * self.n_boxes
        joints, _ = self._addresses(self._box_joints("xzy"))
        return self._make_state(qpos.at[joints].set(uniform(box_key, low, high)), body_pos=places)

    def _observe(self, model: Model, data: Fields) -> Observation:
        _, speeds = self._addresses(self._box_joints("xyz"))
        return super()._observe(model, data) | {
            "box_pos": jnp.stack([self._pose(data, box) for box in self._boxes]),
            "box_vel": data.qvel[speeds],
            "target_pos": self._pose(data, "target")[:2],
        }

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        distances = jnp.stack([self._distance(data, box, "target") for box in self._boxes])
        near = tolerance(distances.min(), margin=2 * self._box_size)
        far = tolerance(self._distance(data, "grasp", "target"), (0.1, jnp.inf), margin=0.01)
        return near * far
