"""The manipulator domain."""

import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import InitialState, Observation, load_once
from jaxenvs.envs.dm_control.planar_arm import PLANE, PlanarArm, uniform
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model


class Manipulator(PlanarArm):
    """Bring an object to a target with a planar arm and a hand of two fingers.

    Observation: dict
        arm_pos  float32[8, 2], sines and cosines of the joints
        arm_vel  float32[8], rad/s
        touch  float32[5], log(1 + force) of palm, finger, thumb, and their tips
        hand_pos  float32[4], x and z in m, and a quaternion's w and y
        object_pos  float32[4], as of the hand
        object_vel  float32[3], m/s, m/s, and rad/s
        target_pos  float32[4], as of the hand
    Action: float32[5], torques on root, shoulder, elbow, wrist, and grasp in [-1, 1]
    Reward: 1 if the object is at the target, less farther away; with a peg, half is for its tip,
        and grasping it gives a third
    Start: joints uniform within their limits, finger and thumb alike, and the target anywhere, so
        that nothing touches; the object is in the hand (1 in 10), in the target (1 in 10), or
        anywhere, with a speed of up to 5 m/s
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's manipulator (Y. Tassa et al., 2018).
    """

    use_peg: bool = struct.static(False)  # whether the object is a peg, not a ball
    insert: bool = struct.static(False)  # whether the target is in a slot or cup

    drawn: ClassVar = ("body_pos", "body_quat")

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("manipulator", use_peg=self.use_peg, insert=self.insert)

    @property
    def _object(self) -> str:
        return "peg" if self.use_peg else "ball"

    @property
    def _object_joints(self) -> tuple[str, ...]:
        return tuple(f"{self._object}_{axis}" for axis in "xzy")

    @property
    def _targets(self) -> tuple[str, ...]:
        """The bodies at the target."""
        target = f"target_{self._object}"
        return (target, "slot" if self.use_peg else "cup") if self.insert else (target,)

    def _propose(self, key: chex.PRNGKey, start: InitialState) -> InitialState:
        """Draws joints, target, and object.

        An object that is not thrown keeps the speed of an earlier draw, as in the suite.
        """
        arm_key, target_key, kind_key, place_key, throw_key = jax.random.split(key, 5)
        qpos = self._move_arm(arm_key, start.qpos)

        turn = math.pi / 3 if self.insert else math.pi
        target = uniform(target_key, (-0.4, 0.1, -turn), (0.4, 0.4, turn))
        half = target[2] / 2
        places, turns = start.drawn["body_pos"], start.drawn["body_quat"]
        for name in self._targets:
            body = self._original.body(name).id
            places = places.at[body, PLANE].set(target[:2])
            turns = turns.at[body, PLANE].set(jnp.stack([jnp.cos(half), jnp.sin(half)]))

        anywhere = uniform(place_key, (-0.5, 0, 0), (0.5, 0.7, 2 * math.pi))
        kind = jax.random.choice(kind_key, 3, p=jnp.array([0.1, 0.1, 0.8], jnp.float32))
        place = jnp.stack([self._grasp(qpos), target, anywhere])[kind]
        joints, speeds = self._addresses(self._object_joints)
        x = speeds[0]
        speed = jnp.where(kind == 2, uniform(throw_key, -5, 5), start.qvel[x])
        return self._make_state(
            qpos.at[joints].set(place),
            start.qvel.at[x].set(speed),
            body_pos=places,
            body_quat=turns,
        )

    def _grasp(self, qpos: jax.Array) -> jax.Array:
        """Returns x, z, and the angle of an object in the hand."""
        data = self._placed(("site_xpos", "site_xmat"), {}, qpos)
        site = self._original.site("grasp").id
        x, z = data.site_xpos[site][PLANE]
        angle = math.pi - jnp.arctan2(data.site_xmat[site, 2, 0], data.site_xmat[site, 0, 0])
        return jnp.stack([x, z, angle])

    def _observe(self, model: Model, data: Fields) -> Observation:
        _, speeds = self._addresses(self._object_joints)
        return super()._observe(model, data) | {
            "object_pos": self._pose(data, self._object),
            "object_vel": data.qvel[speeds],
            "target_pos": self._pose(data, f"target_{self._object}"),
        }

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        def near(first: str, second: str) -> jax.Array:
            return tolerance(self._distance(data, first, second), (0, 0.01), margin=0.02)

        if not self.use_peg:
            return near("ball", "target_ball")
        grasping = (near("peg_grasp", "grasp") + near("peg_pinch", "pinch")) / 2
        bringing = (near("peg", "target_peg") + near("target_peg_tip", "peg_tip")) / 2
        return jnp.maximum(bringing, grasping / 3)
