"""Gymnasium's MuJoCo tasks, with C MuJoCo."""

from types import FunctionType
from typing import Any, ClassVar

import mujoco
import numpy as np
from gymnasium.envs.mujoco import (
    ant_v5,
    half_cheetah_v5,
    hopper_v5,
    humanoid_v5,
    humanoidstandup_v5,
    inverted_double_pendulum_v5,
    inverted_pendulum_v5,
    pusher_v5,
    reacher_v5,
    swimmer_v5,
    walker2d_v5,
)

from benchmarks.oracles import Oracle
from jaxenvs.core import Environment
from jaxenvs.envs.mujoco import MujocoState

DOUBLE = {"dtype": "float64"}
METHODS = "step _get_obs _get_rew control_cost healthy_reward is_healthy contact_forces contact_cost"


class MujocoOracle(Oracle):
    """A task of Gymnasium's, made without wrappers."""

    package = "gymnasium mujoco"
    variants = (DOUBLE,)
    unreachable: ClassVar = ("self.render()",)
    env_type: ClassVar[Any]

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.single = env.parameters["dtype"] == "float32"
        self.tolerance = 5e-3 if self.single else 1e-9
        own = ("physics", "dtype")
        self.reference = self.env_type(
            **{name: value for name, value in env.parameters.items() if name not in own}
        )
        self.reference.np_random = np.random.default_rng(seed)

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        found = [getattr(self.env_type, name, None) for name in METHODS.split()]
        return tuple(getattr(each, "fget", each) for each in found if each is not None)

    def reset(self) -> Any:
        observation, self.info = self.reference.reset()
        return observation

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        observation, reward, terminated, _, self.info = self.reference.step(action.astype(np.float64))
        self.info = {name: np.asarray(value, np.float64) for name, value in self.info.items()}
        return observation, reward, terminated

    def sample_action(self) -> np.ndarray:
        space = self.reference.action_space
        return self.random.uniform(space.low, space.high).astype(np.float32)

    def get_state(self) -> MujocoState:
        data = self.reference.data
        return MujocoState(
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            qacc_warmstart=data.qacc_warmstart.copy(),
            place=self.place().copy(),
        )

    def place(self) -> np.ndarray:
        """Returns what the reference computes velocities from."""
        return self.reference.data.qpos[:1]

    def set_state(self, state: MujocoState) -> None:
        self.reference.set_state(state.qpos, state.qvel)
        self.reference.data.qacc_warmstart[:] = state.qacc_warmstart


class HalfCheetahOracle(MujocoOracle):
    env_type = half_cheetah_v5.HalfCheetahEnv


class HopperOracle(MujocoOracle):
    env_type = hopper_v5.HopperEnv


class Walker2dOracle(MujocoOracle):
    env_type = walker2d_v5.Walker2dEnv


class InvertedPendulumOracle(MujocoOracle):
    env_type = inverted_pendulum_v5.InvertedPendulumEnv


class InvertedDoublePendulumOracle(MujocoOracle):
    env_type = inverted_double_pendulum_v5.InvertedDoublePendulumEnv


class ReacherOracle(MujocoOracle):
    env_type = reacher_v5.ReacherEnv


class PusherOracle(MujocoOracle):
    env_type = pusher_v5.PusherEnv


class SwimmerOracle(MujocoOracle):
    env_type = swimmer_v5.SwimmerEnv

    def place(self) -> np.ndarray:
        return self.reference.data.qpos[:2]


class AntOracle(MujocoOracle):
    env_type = ant_v5.AntEnv

    def place(self) -> np.ndarray:
        return self.reference.data.body(self.reference._main_body).xpos[:2]


class NewtonOracle(MujocoOracle):
    """A task whose model asks for PGS, with Newton instead."""

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.reference.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON


class HumanoidOracle(NewtonOracle):
    env_type = humanoid_v5.HumanoidEnv

    def place(self) -> np.ndarray:
        return humanoid_v5.mass_center(self.reference.model, self.reference.data)


class HumanoidStandupOracle(NewtonOracle):
    env_type = humanoidstandup_v5.HumanoidStandupEnv
