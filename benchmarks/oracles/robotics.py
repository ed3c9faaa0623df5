"""Gymnasium-Robotics' tasks, with C MuJoCo."""

import types
from typing import Any

import gymnasium
import gymnasium_robotics
import mujoco
import numpy as np
from gymnasium_robotics.utils import mujoco_utils

gymnasium.register_envs(gymnasium_robotics)


def repair_joints() -> None:
    """Lets the package's Fetch tasks start with MuJoCo 3.17.

    They look up NumPy's integers in tuples of MuJoCo's enums, which only compare equal the other
    way round.
    """
    kinds = {name: int(kind) for name, kind in mujoco.mjtJoint.__members__.items()}
    repaired = {**vars(mujoco), "mjtJoint": types.SimpleNamespace(**kinds)}
    mujoco_utils.mujoco = types.SimpleNamespace(**repaired)


def make_reference(id: str) -> Any:
    """Makes the package's environment of an id, without wrappers."""
    repair_joints()
    return gymnasium.make(id, disable_env_checker=True).unwrapped


def agent_of(reference: Any) -> Any:
    """Returns the environment of the agent in a maze."""
    return reference.point_env if hasattr(reference, "point_env") else reference.ant_env


def begin(reference: Any, state: Any) -> dict[str, np.ndarray]:
    """Puts the package's environment to the first state of an episode; returns its observation."""
    reference.reset(seed=0)
    reference.goal = np.array(state.goal, np.float64)
    if hasattr(reference, "maze"):
        agent = agent_of(reference)
        agent.init_qpos[:2] = state.qpos[:2]
        return reference._get_obs(agent.reset()[0])
    data = reference.data
    mujoco.mj_resetData(reference.model, data)
    data.qpos[:], data.qvel[:] = state.qpos, state.qvel
    mujoco.mj_forward(reference.model, data)
    return reference._get_obs()
