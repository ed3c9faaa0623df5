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

# With the usual tolerance of 1e-8, one solver may stop an iteration before the other.
DOUBLE = {"dtype": "float64", "physics": {"opt.tolerance": 1e-14}}


def tolerance_of(parameters: dict[str, Any]) -> float:
    """Returns the largest error. Single precision is measured, not judged.

    Where a contact begins, rounding can decide whether it does so in this step or in the next.
    """
    return np.inf if parameters["dtype"] == "float32" else 1e-9


def with_options(**options: Any) -> tuple[dict[str, Any], ...]:
    """Returns the variants of an id: its defaults and some options, in double precision."""
    return DOUBLE, {**DOUBLE, **options}


SHOWN = {"exclude_current_positions_from_observation": False}
SHORT = {
    "include_cinert_in_observation": False,
    "include_cvel_in_observation": False,
    "include_qfrc_actuator_in_observation": False,
    "include_cfrc_ext_in_observation": False,
}
METHODS = [
    "step",
    "_get_obs",
    "_get_rew",
    "control_cost",
    "healthy_reward",
    "is_healthy",
    "contact_forces",
    "contact_cost",
]


class MujocoOracle(Oracle):
    """A task of Gymnasium's, made without wrappers."""

    package = "gymnasium mujoco"
    unreachable: ClassVar = ("self.render()",)
    env_type: ClassVar[Any]

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.tolerance = tolerance_of(env.parameters)
        own = ("physics", "dtype")
        self.reference = self.env_type(
            **{name: value for name, value in env.parameters.items() if name not in own}
        )
        self.reference.np_random = np.random.default_rng(seed)
        for name, value in (env.parameters["physics"] or {}).items():
            setattr(self.reference.model.opt, name.removeprefix("opt."), value)

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        found = [getattr(self.env_type, name, None) for name in METHODS]
        return tuple(getattr(each, "fget", each) for each in found if each is not None)

    def reset(self) -> Any:
        return self.reference.reset()[0]

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        observation, reward, terminated, _, self.info = self.reference.step(
            action.astype(np.float64)
        )
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
    variants = with_options(**SHOWN, frame_skip=3, ctrl_cost_weight=0.4)


class HopperOracle(MujocoOracle):
    env_type = hopper_v5.HopperEnv
    variants = with_options(
        **SHOWN,
        healthy_state_range=(-2.0, 2.0),
        healthy_reward=0.5,
        reset_noise_scale=0.1,
    )


class Walker2dOracle(MujocoOracle):
    env_type = walker2d_v5.Walker2dEnv
    variants = with_options(
        **SHOWN,
        healthy_z_range=(1.0, 1.3),
        terminate_when_unhealthy=False,
    )


class InvertedPendulumOracle(MujocoOracle):
    env_type = inverted_pendulum_v5.InvertedPendulumEnv
    variants = with_options(frame_skip=5, reset_noise_scale=0.1)


class InvertedDoublePendulumOracle(MujocoOracle):
    env_type = inverted_double_pendulum_v5.InvertedDoublePendulumEnv
    variants = with_options(healthy_reward=3.0, frame_skip=2)


class ReacherOracle(MujocoOracle):
    env_type = reacher_v5.ReacherEnv
    variants = with_options(reward_dist_weight=2.0, reward_control_weight=0.3, frame_skip=3)


class PusherOracle(MujocoOracle):
    env_type = pusher_v5.PusherEnv
    variants = with_options(
        reward_near_weight=0.2, reward_dist_weight=3.0, reward_control_weight=0.5
    )


class SwimmerOracle(MujocoOracle):
    env_type = swimmer_v5.SwimmerEnv
    variants = with_options(
        **SHOWN,
        forward_reward_weight=2.0,
        ctrl_cost_weight=0.1,
    )

    def place(self) -> np.ndarray:
        return self.reference.data.qpos[:2]


class AntOracle(MujocoOracle):
    env_type = ant_v5.AntEnv
    variants = with_options(
        **SHOWN,
        include_cfrc_ext_in_observation=False,
        main_body="aux_1",
        contact_cost_weight=0.1,
        contact_force_range=(-0.2, 3.0),
        healthy_z_range=(0.4, 0.9),
    )

    def place(self) -> np.ndarray:
        return self.reference.data.body(self.reference._main_body).xpos[:2]


class NewtonOracle(MujocoOracle):
    """A task whose model asks for PGS, with Newton instead."""

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.reference.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON


class HumanoidOracle(NewtonOracle):
    env_type = humanoid_v5.HumanoidEnv
    variants = with_options(
        **SHOWN,
        **SHORT,
        contact_cost_weight=1e-4,
        contact_cost_range=(0.5, 3.0),
        healthy_z_range=(1.2, 1.5),
    )

    def place(self) -> np.ndarray:
        return humanoid_v5.mass_center(self.reference.model, self.reference.data)


class HumanoidStandupOracle(NewtonOracle):
    env_type = humanoidstandup_v5.HumanoidStandupEnv
    variants = with_options(
        **SHOWN,
        **SHORT,
        impact_cost_weight=1e-4,
        impact_cost_range=(0.5, 3.0),
    )
