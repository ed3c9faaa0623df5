"""A planar arm with a hand, for the domains manipulator and stacker."""

import abc
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import ControlTask, InitialState, Observation
from jaxenvs.physics.models import Fields, Model

_JOINTS = (
    *("arm_root", "arm_shoulder", "arm_elbow", "arm_wrist"),
    *("finger", "fingertip", "thumb", "thumbtip"),
)
PLANE = np.array([0, 2])  # x and z of a place, or the parts of a quaternion that turns in it


class PlanarArm(ControlTask):
    """An arm with a hand of two fingers, among objects that an episode places.

    A subclass defines `_propose`. An episode begins in the first state that it draws without
    contacts.
    """

    n_sub_steps: int = struct.static(10)  # physics steps in a step

    camera: ClassVar = {"body": 0, "distance": 1.4, "height": 0.4, "elevation": 0.0}
    drawn: ClassVar[tuple[str, ...]] = ("body_pos",)  # arrays of the model that an episode draws

    def _initial_state(self, key: chex.PRNGKey) -> InitialState:
        drawn = {name: getattr(self._model, name) for name in self.drawn}
        return self._without_contact(
            self._make_state(self._qpos0, **drawn),
            lambda count, start: self._propose(jax.random.fold_in(key, count), start),
        )

    @abc.abstractmethod
    def _propose(self, key: chex.PRNGKey, start: InitialState) -> InitialState:
        """Draws a state, given the one that was drawn before."""

    def _move_arm(self, key: chex.PRNGKey, qpos: jax.Array) -> jax.Array:
        """Draws the arm's joints within their limits, finger and thumb alike."""
        joints, _ = self._addresses(_JOINTS)
        angles = self._random_joints(key)[joints]
        finger, thumb = _JOINTS.index("finger"), _JOINTS.index("thumb")
        return qpos.at[joints].set(angles.at[finger].set(angles[thumb]))

    def _addresses(self, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Returns where positions and velocities of joints are."""
        joints = [self._original.joint(name) for name in names]
        return np.array([j.qposadr[0] for j in joints]), np.array([j.dofadr[0] for j in joints])

    def _pose(self, data: Fields, body: str) -> jax.Array:
        """Returns x and z of a body, and a quaternion's w and y: [4]."""
        at = self._original.body(body).id
        return jnp.concatenate([data.xpos[at][PLANE], data.xquat[at][PLANE]])

    def _distance(self, data: Fields, first: str, second: str) -> jax.Array:
        """Returns the distance of two sites."""
        places = [data.site_xpos[self._original.site(name).id] for name in (first, second)]
        return jnp.linalg.norm(places[0] - places[1])

    def _observe(self, model: Model, data: Fields) -> Observation:
        joints, speeds = self._addresses(_JOINTS)
        angles = data.qpos[joints]
        return {
            "arm_pos": jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=1),
            "arm_vel": data.qvel[speeds],
            "touch": jnp.log1p(data.sensordata),
            "hand_pos": self._pose(data, "hand"),
        }


def uniform(key: chex.PRNGKey, low: Any, high: Any) -> jax.Array:
    """Draws float32 between two bounds of the same shape."""
    low, high = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
    return low + (high - low) * jax.random.uniform(key, low.shape, jnp.float32)
