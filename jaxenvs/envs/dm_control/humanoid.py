"""The humanoid domain, and what it shares with the humanoid of CMU."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load_once
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class HumanoidBase(ControlTask):
    """What both humanoids have in common."""

    move_speed: float = struct.static(0.0)  # m/s

    camera: ClassVar = {"body": 1, "distance": 4.0}
    torso: ClassVar[str]  # the body in the middle
    limbs: ClassVar[tuple[str, ...]]  # the bodies of hands and feet
    up: ClassVar[int]  # the axis of the torso that points up

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        return self._random_joints_without_contact(key)

    def _observe(self, model: Model, data: Fields) -> Observation:
        torso = self._original.body(self.torso).id
        limbs = [data.xpos[self._original.body(limb).id] for limb in self.limbs]
        return {
            "joint_angles": data.qpos[7:],
            "head_height": self._head(data),
            "extremities": jnp.concatenate(
                [(limb - data.xpos[torso]) @ data.xmat[torso] for limb in limbs]
            ),
            "torso_vertical": data.xmat[torso, 2],
            "com_velocity": self._velocity(data),
            "velocity": data.qvel,
        }

    def _head(self, data: Fields) -> jax.Array:
        return data.xpos[self._original.body("head").id, 2]

    def _velocity(self, data: Fields) -> jax.Array:
        return self._sensor(data, f"{self.torso}_subtreelinvel")

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        upright = data.xmat[self._original.body(self.torso).id, 2, self.up]
        stand = tolerance(self._head(data), (1.4, jnp.inf), margin=1.4 / 4) * tolerance(
            upright, (0.9, jnp.inf), margin=1.9, value_at_margin=0, sigmoid="linear"
        )
        control = tolerance(action, margin=1, value_at_margin=0, sigmoid="quadratic").mean()
        stand *= (4 + control) / 5
        velocity = self._velocity(data)[:2]
        if self.move_speed == 0:
            return stand * tolerance(velocity, margin=2).mean()
        move = tolerance(
            jnp.linalg.norm(velocity),
            (self.move_speed, jnp.inf),
            margin=self.move_speed,
            value_at_margin=0,
            sigmoid="linear",
        )
        return stand * (5 * move + 1) / 6


class Humanoid(HumanoidBase):
    """Stand, walk, or run on two legs.

    Observation: dict
        joint_angles  float32[21], rad
        head_height  float32[], m
        extremities  float32[12], m, hands and feet from the torso, in its frame, the left first
        torso_vertical  float32[3], the vertical in the torso's frame
        com_velocity  float32[3], m/s, of the center of mass
        velocity  float32[27], m/s and rad/s, of the torso and the joints.
        With `pure_state` only velocity and position, float32[28].
    Action: float32[21], torques on the joints in [-1, 1]
    Reward: at most 1, for a head above 1.4 m, an upright torso, small actions, and a horizontal
        speed of at least `move_speed`, or of 0 if that is 0
    Start: limited joints uniform within their limits, the torso turned, so that nothing touches,
        at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: Y. Tassa, T. Erez, E. Todorov, 2012, as the Control Suite's humanoid (Y. Tassa et al.,
    2018).
    """

    pure_state: bool = struct.static(False)  # shows positions and velocities of joints only
    n_sub_steps: int = struct.static(5)  # physics steps in a step

    torso: ClassVar = "torso"
    limbs: ClassVar = ("left_hand", "left_foot", "right_hand", "right_foot")
    up: ClassVar = 2

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("humanoid")

    def _observe(self, model: Model, data: Fields) -> Observation:
        if self.pure_state:
            return {"position": data.qpos, "velocity": data.qvel}
        return super()._observe(model, data)
