"""The domain of the humanoid from the CMU motion capture database."""

from typing import ClassVar

import mujoco

from jaxenvs import struct
from jaxenvs.envs.dm_control.base import load_once
from jaxenvs.envs.dm_control.humanoid import HumanoidBase


class HumanoidCMU(HumanoidBase):
    """Stand, walk, or run on two legs with a body of 56 joints.

    Observation: dict
        joint_angles  float32[56], rad
        head_height  float32[], m
        extremities  float32[12], m, hands and feet from the thorax, in its frame, the left first
        torso_vertical  float32[3], the vertical in the thorax's frame
        com_velocity  float32[3], m/s, of the center of mass
        velocity  float32[62], m/s and rad/s, of the root and the joints
    Action: float32[56], torques on the joints in [-1, 1]
    Reward: as that of `Humanoid`
    Start: limited joints uniform within their limits, the root turned, so that nothing touches,
        at rest
    Terminates: never
    Time limit: none here; ids have 1,000 steps

    Source: the Control Suite's humanoid_CMU (Y. Tassa et al., 2018).
    """

    n_sub_steps: int = struct.static(10)  # physics steps in a step

    torso: ClassVar = "thorax"
    limbs: ClassVar = ("lhand", "lfoot", "rhand", "rfoot")
    up: ClassVar = 1

    @property
    def _original(self) -> mujoco.MjModel:
        return load_once("humanoid_CMU")
