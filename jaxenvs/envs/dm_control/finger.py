"""The finger domain."""

import functools
import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation, load
from jaxenvs.physics.models import Fields, Model


class Finger(ControlTask):
    """Spin a body on a hinge with a finger, or turn it to a target.

    Observation: dict
        position  float32[4], angles of both joints, x and z of the body's tip from its hinge, m
        velocity  float32[3], rad/s, of both joints and the hinge
        touch  float32[2], log(1 + force) of two sensors on the fingertip
        target_position  float32[2], x and z of the target from the hinge, m; with a target
        dist_to_target  float32[], m, from the tip to the target's edge; with a target
    Action: float32[2], torques on the joints in [-1, 1]
    Reward: without a target, 1 if the body spins with at least 15 rad/s clockwise; with one, 1 if
        the tip is in it
    Start: joints uniform within their limits, the hinge and the target anywhere, so that nothing
        touches, at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: Y. Tassa et al., 2018, the Control Suite's finger.
    """

    target_radius: float | None = struct.static(None)  # m; None to spin
    n_sub_steps: int = struct.static(2)  # physics steps in a step

    camera: ClassVar = {"body": 0, "distance": 1.5, "height": 0.4}

    @property
    def _original(self) -> mujoco.MjModel:
        return _load(self.target_radius)

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        joints_key, target_key = jax.random.split(key)
        start = self._random_joints_without_contact(joints_key)
        if self.target_radius is None:
            return start
        original, model = self._original, self._model
        angle = jax.random.uniform(target_key, (), jnp.float32, -math.pi, math.pi)
        # The hinge is at the origin of its body, and the target's circle is around it.
        x, _, z = model.body_pos[original.body("spinner").id]
        radius = model.geom_size[original.geom("cap1").id].sum()
        places, target = model.site_pos, original.site("target").id
        places = places.at[target, 0].set(x + radius * jnp.sin(angle))
        places = places.at[target, 2].set(z + radius * jnp.cos(angle))
        return self._make_state(start.qpos, site_pos=places)

    def _observe(self, model: Model, data: Fields) -> Observation:
        def sensors(*names: str) -> jax.Array:
            return jnp.concatenate([self._sensor(data, name) for name in names])

        tip = self._from_hinge(data, "tip")
        observation = {
            "position": jnp.concatenate([sensors("proximal", "distal"), tip]),
            "velocity": sensors("proximal_velocity", "distal_velocity", "hinge_velocity"),
            "touch": jnp.log1p(sensors("touchtop", "touchbottom")),
        }
        if self.target_radius is not None:
            observation["target_position"] = self._from_hinge(data, "target")
            observation["dist_to_target"] = self._distance(data)
        return observation

    def _from_hinge(self, data: Fields, name: str) -> jax.Array:
        return (self._sensor(data, name) - self._sensor(data, "spinner"))[jnp.array([0, 2])]

    def _distance(self, data: Fields) -> jax.Array:
        apart = self._from_hinge(data, "target") - self._from_hinge(data, "tip")
        return jnp.linalg.norm(apart) - self.target_radius

    def _reward(self, model: Model, data: Fields, action: jax.Array) -> jax.Array:
        if self.target_radius is None:
            is_good = self._sensor(data, "hinge_velocity")[0] <= -15.0
        else:
            is_good = self._distance(data) <= 0
        return is_good.astype(self.dtype)


@functools.cache
def _load(target_radius: float | None) -> mujoco.MjModel:
    """Returns the model with what the tasks change in it."""
    model = load("finger")
    if target_radius is None:
        model.dof_damping[model.joint("hinge").dofadr] = 0.03
        for site in ("target", "tip"):
            model.site_rgba[model.site(site).id, 3] = 0  # not shown
    else:
        model.site_size[model.site("target").id, 0] = target_radius
    return model
