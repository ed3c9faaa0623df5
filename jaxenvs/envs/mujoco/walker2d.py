"""The two-dimensional walker task."""

from typing import ClassVar

import jax

from jaxenvs import struct
from jaxenvs.envs.mujoco.hopper import PlanarWalker, within
from jaxenvs.physics.models import Fields


class Walker2d(PlanarWalker):
    """Walk forward on two legs in a vertical plane without falling.

    Observation: float32[17], or [18] with the x-coordinate first
        0-7  height and angle of the torso, angles of the right and left thigh, leg, foot
        8-16  their velocities, after that of the torso's x-coordinate, clipped to [-10, 10]
    Action: float32[6], torques on these joints in [-1, 1], times the gear of the model
    Reward: the torso's velocity along x, plus 1 while healthy, minus 0.001 times the sum of
        squared actions
    Start: uniform noise of 0.005 on positions and velocities
    Terminates: if the height of the torso leaves (0.8, 2) or its angle (-1, 1)
    Time limit: none here; `Walker2d-v5` is registered with 1,000 steps

    Source: T. Erez, Y. Tassa, E. Todorov, 2011, as Gymnasium's Walker2d-v5
    (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("walker2d_v5.xml")
    healthy_z_range: tuple[float, float] = (0.8, 2.0)  # m, heights that are healthy
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)  # rad, of the torso

    camera: ClassVar = {"body": 2, "distance": 4.0, "height": 1.0}

    def _is_healthy(self, data: Fields) -> jax.Array:
        return within(data.qpos[1], self.healthy_z_range) & within(
            data.qpos[2], self.healthy_angle_range
        )
