"""Gymnasium's MuJoCo tasks, with C MuJoCo."""

import abc
import dataclasses
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
from jaxenvs.envs.mujoco.base import Simulation
from jaxenvs.physics import c as physics_c
from jaxenvs.physics.models import precision

# What the engine "c" carries from step to step.
CARRIED = sum(int(bit) for bit in physics_c._CARRIED)


def in_double(**options: Any) -> tuple[dict[str, Any], ...]:
    """Returns the variants of an id: its defaults and some options, in double precision."""
    double = {"dtype": "float64"}
    return double, {**double, **options}


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


class PhysicsOracle(Oracle):
    """A task that C MuJoCo simulates.

    With the engine "c", all that is carried from step to step is equal to the bit, in both
    precisions, since `kept` of the states has all of it. Numbers that JAX computes from it, such as
    rewards, differ by rounding: in double precision, by up to 7e-15.

    With MJX, numbers are close in double precision. In single precision they are measured, not
    judged: where a contact begins, rounding can decide whether it does so in this step or the next.
    """

    # Steps that are equal to the bit make equal episodes, of which a few are played to be sure.
    sizes: ClassVar = {"steps": 10_000, "episodes": 50, "longest": 200, "samples": 500}
    least_starts = 0.001
    starts_at_ours = True
    # With the usual tolerance of 1e-8, the solver of one may stop an iteration before the other's.
    tolerance_of_mjx: ClassVar[float] = 1e-14
    error_of_mjx: ClassVar[float] = 1e-9
    tolerated_of_mjx: ClassVar[float] = 0.0
    variants = ({"dtype": "float64"},)

    @classmethod
    def variants_of(cls, engine: str | None) -> tuple[dict[str, Any], ...]:
        options = {"physics": {"opt.tolerance": cls.tolerance_of_mjx}} if engine == "mjx" else {}
        return {"engine": engine}, *({"engine": engine, **v, **options} for v in cls.variants)

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        is_double = env.parameters["dtype"] == "float64"
        if self.is_mjx:
            self.tolerance = self.error_of_mjx if is_double else np.inf
            self.tolerated = self.tolerated_of_mjx
        else:
            self.tolerance = 2e-14 if is_double else 1e-5

    @property
    def is_mjx(self) -> bool:
        return self.env.parameters["engine"] == "mjx"

    @property
    @abc.abstractmethod
    def simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """The reference's model and data."""

    def get_kept(self) -> Any:
        """Returns what our engine keeps besides positions and velocities."""
        model, data = self.simulation
        if self.is_mjx:
            return {name: getattr(data, name).copy() for name in ("qacc_warmstart", "act")}
        row = np.empty(mujoco.mj_stateSize(model, CARRIED))
        mujoco.mj_getState(model, data, row, CARRIED)
        return row.view(np.uint32)

    def put(self, state: Any) -> None:
        """Writes a state of ours into the data."""
        model, data = self.simulation
        if self.is_mjx:
            for name, value in state.kept.items():
                getattr(data, name)[:] = value
        else:
            row = np.ascontiguousarray(state.kept).view(np.float64)
            mujoco.mj_setState(model, data, row, CARRIED)
        self._put_joints(state)

    def put_start(self, state: Any) -> None:
        """Writes positions, velocities, and activations of ours into data that was just reset."""
        model, data = self.simulation
        if self.is_mjx:
            data.act[:] = state.kept["act"]
        else:
            given = mujoco.MjData(model)
            row = np.ascontiguousarray(state.kept).view(np.float64)
            mujoco.mj_setState(model, given, row, CARRIED)
            data.act[:] = given.act
        self._put_joints(state)

    def _put_joints(self, state: Any) -> None:
        """Writes positions and velocities of ours, but where the data's round to them."""
        _, data = self.simulation
        for name in ("qpos", "qvel"):
            kept, given = getattr(data, name), np.asarray(getattr(state, name))
            kept[:] = np.where(kept.astype(given.dtype) == given, kept, given)


class GymnasiumOracle(PhysicsOracle):
    """A task with Gymnasium's interface, which `reference` is, without wrappers."""

    unreachable: ClassVar = ("self.render()",)
    env_type: ClassVar[Any]
    reference: Any

    def reset(self) -> Any:
        return self.reference.reset()[0]

    def sample_action(self) -> np.ndarray:
        space = self.reference.action_space
        return self.random.uniform(space.low, space.high).astype(np.float32)

    @property
    def simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return self.reference.model, self.reference.data


class MujocoOracle(GymnasiumOracle):
    """A task of Gymnasium's, made without wrappers."""

    package = "gymnasium mujoco"

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        own = {field.name for field in dataclasses.fields(Simulation)}
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

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        observation, reward, terminated, _, info = self.reference.step(action.astype(np.float64))
        info = {name: np.array(value, np.float64) for name, value in info.items()}
        self.info = {**info, "diverged": np.bool_(False)}
        return observation, reward, terminated

    def get_state(self) -> MujocoState:
        data, dtype = self.reference.data, self.env.parameters["dtype"]
        place = self.place().copy()
        rounded = place.astype(dtype)
        return MujocoState(
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            kept=self.get_kept(),
            place=np.stack([rounded, (place - rounded).astype(dtype)]),
        )

    def place(self) -> np.ndarray:
        """Returns what the reference computes velocities from."""
        return self.reference.data.qpos[:1]

    def set_state(self, state: MujocoState) -> None:
        self.put(state)
        mujoco.mj_forward(*self.simulation)
        self.put(state)  # that of before, where the solver begins

    def observe_start(self, state: MujocoState) -> Any:
        with precision(self.env.parameters["dtype"]):
            return self.env._begin(state.qpos, state.qvel)[1].observation  # pyright: ignore[reportAttributeAccessIssue]

    def start_at(self, state: MujocoState) -> Any:
        mujoco.mj_resetData(*self.simulation)
        self.put_start(state)
        mujoco.mj_forward(*self.simulation)
        return self.reference._get_obs()


class HalfCheetahOracle(MujocoOracle):
    env_type = half_cheetah_v5.HalfCheetahEnv
    variants = in_double(**SHOWN, frame_skip=3, ctrl_cost_weight=0.4)


class HopperOracle(MujocoOracle):
    env_type = hopper_v5.HopperEnv
    variants = in_double(
        **SHOWN,
        healthy_state_range=(-2.0, 2.0),
        healthy_reward=0.5,
        reset_noise_scale=0.1,
    )


class Walker2dOracle(MujocoOracle):
    env_type = walker2d_v5.Walker2dEnv
    variants = in_double(
        **SHOWN,
        healthy_z_range=(1.0, 1.3),
        terminate_when_unhealthy=False,
    )


class InvertedPendulumOracle(MujocoOracle):
    env_type = inverted_pendulum_v5.InvertedPendulumEnv
    variants = in_double(frame_skip=5, reset_noise_scale=0.1)


class InvertedDoublePendulumOracle(MujocoOracle):
    env_type = inverted_double_pendulum_v5.InvertedDoublePendulumEnv
    variants = in_double(healthy_reward=3.0, frame_skip=2)


class ReacherOracle(MujocoOracle):
    env_type = reacher_v5.ReacherEnv
    variants = in_double(reward_dist_weight=2.0, reward_control_weight=0.3, frame_skip=3)


class PusherOracle(MujocoOracle):
    env_type = pusher_v5.PusherEnv
    variants = in_double(reward_near_weight=0.2, reward_dist_weight=3.0, reward_control_weight=0.5)


class SwimmerOracle(MujocoOracle):
    env_type = swimmer_v5.SwimmerEnv
    variants = in_double(
        **SHOWN,
        forward_reward_weight=2.0,
        ctrl_cost_weight=0.1,
    )

    def place(self) -> np.ndarray:
        return self.reference.data.qpos[:2]


class AntOracle(MujocoOracle):
    env_type = ant_v5.AntEnv
    variants = in_double(
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
    """A task whose model asks for PGS, which MJX does not have: it has Newton instead."""

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        if self.is_mjx:
            self.reference.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON


class HumanoidOracle(NewtonOracle):
    env_type = humanoid_v5.HumanoidEnv
    variants = in_double(
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
    variants = in_double(
        **SHOWN,
        **SHORT,
        impact_cost_weight=1e-4,
        impact_cost_range=(0.5, 3.0),
    )
