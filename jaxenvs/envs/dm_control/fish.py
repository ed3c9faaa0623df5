"""The fish domain."""

import functools
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load
from jaxenvs.envs.dm_control.rewards import tolerance
from jaxenvs.physics.models import Fields, Model

_JOINTS = (
    *("tail1", "tail_twist", "tail2", "finright_roll", "finright_pitch", "finleft_roll"),
    "finleft_pitch",
)


class Fish(ControlTask):
    """Turn upright in water, or swim to a target.

    Observation: dict
        joint_angles  float32[7], rad, of tail and fins
        upright  float32[], cosine of the angle from upright
        target  float32[3], m, from the mouth to the target, in the frame of the mouth; to swim
        velocity  float32[13], m/s and rad/s
    Action: float32[5], positions of tail and fins in [-1, 1]
    Reward: at most 1, for being upright; to `swim`, seven eighths are for the target
    Start: turned anywhere, joints uniform in [-0.2, 0.2), at rest; the target is uniform in
        [-0.4, 0.4)^2 x [0.1, 0.3)
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's fish (Y. Tassa et al., 2018).
    """

    swim: bool = struct.static(False)  # whether there is a target
    n_sub_steps: int = struct.static(10)  # physics steps in a step

    camera: ClassVar = {"body": 1, "distance": 1.0}

    @property
    def _original(self) -> mujoco.MjModel:
        return _load(self.swim)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        turn_key, joints_key, target_key = jax.random.split(key, 3)
        turn = jax.random.normal(turn_key, (4,), jnp.float32)
        angles = jax.random.uniform(joints_key, (len(_JOINTS),), jnp.float32, -0.2, 0.2)
        qpos = self._qpos0.at[3:7].set(turn / jnp.linalg.norm(turn)).at[self._joints].set(angles)
        if not self.swim:
            return self._make_state(qpos)
        noise = jax.random.uniform(target_key, (3,), jnp.float32)
        place = jnp.array([-0.4, -0.4, 0.1]) + noise * jnp.array([0.8, 0.8, 0.2])
        places = self._model.geom_pos
        return self._make_state(
            qpos, geom_pos=places.at[self._original.geom("target").id].set(place)
        )

    @property
    def _joints(self) -> jax.Array:
        return jnp.array([self._original.joint(name).qposadr[0] for name in _JOINTS])

    def _observe(self, model: Model, data: Fields) -> Observation:
        observation = {
            "joint_angles": data.qpos[self._joints],
            "upright": self._upright(data),
            "velocity": data.qvel,
        }
        return observation | ({"target": self._to_target(data)} if self.swim else {})

    def _upright(self, data: Fields) -> jax.Array:
        return data.xmat[self._original.body("torso").id, 2, 2]

    def _to_target(self, data: Fields) -> jax.Array:
        target, mouth = (self._original.geom(name).id for name in ("target", "mouth"))
        return (data.geom_xpos[target] - data.geom_xpos[mouth]) @ data.geom_xmat[mouth]

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        upright = self._upright(data)
        if not self.swim:
            return tolerance(upright, (1, 1), margin=1)
        radii = self._size(model, "mouth") + self._size(model, "target")
        near = tolerance(jnp.linalg.norm(self._to_target(data)), (0, radii), margin=2 * radii)
        return (7 * near + 0.5 * (upright + 1)) / 8


@functools.cache
def _load(swim: bool) -> mujoco.MjModel:
    model = load("fish")
    if not swim:
        model.geom_rgba[model.geom("target").id, 3] = 0  # not shown
    return model
