"""Gymnasium-Robotics' tasks, with C MuJoCo."""

import dataclasses
import types
from types import FunctionType
from typing import Any, ClassVar

import gymnasium
import gymnasium_robotics
import mujoco
import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium_robotics.envs.fetch import pick_and_place, push, reach, slide
from gymnasium_robotics.envs.maze import ant_maze_v5, point, point_maze
from gymnasium_robotics.utils import mujoco_utils, rotations

from benchmarks.oracles.mujoco import GymnasiumOracle, in_double
from jaxenvs.core import Environment
from jaxenvs.envs.mujoco.base import Simulation
from jaxenvs.envs.robotics import AntMazeState, FetchState, PointMazeState
from jaxenvs.physics.models import precision

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


class RoboticsOracle(GymnasiumOracle):
    """A task of the package, made without wrappers."""

    package = "gymnasium-robotics mujoco"
    methods: ClassVar[tuple[str, ...]]  # of the class that make up a step
    functions: ClassVar[tuple[Any, ...]]  # others
    action_dtype: ClassVar[Any] = np.float32  # in which the package's arithmetic on actions is ours

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        repair_joints()
        own = {field.name for field in dataclasses.fields(Simulation)}  # pyright: ignore[reportArgumentType]
        given = {name: value for name, value in env.parameters.items() if name not in own}
        self.reference = self.env_type(**self.options(given))
        self.reference.reset(seed=seed)

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments of the package's class."""
        return given

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return *(getattr(self.env_type, name) for name in self.methods), *self.functions

    def step(self, action: Any) -> tuple[Any, float, bool]:
        observation, reward, terminated, _, info = self.reference.step(
            action.astype(self.action_dtype)
        )
        kinds = {"success": np.bool_, "is_success": np.float32}
        info = {name: np.array(x, kinds.get(name, np.float64)) for name, x in info.items()}
        self.info = {**info, "diverged": np.bool_(False)}
        return observation, reward, terminated

    def goal(self) -> Any:
        return self.reference.goal.astype(self.env.parameters["dtype"])

    def observe_start(self, state: Any) -> Any:
        env: Any = self.env
        with precision(env.dtype):
            begun = env._engine.start(env._plan, env._changes({}), state.qpos, state.qvel)
            return {**env._observe_data(begun.data), "desired_goal": state.goal}

    def start_at(self, state: Any) -> Any:
        self.reference.goal = np.array(state.goal, np.float64)
        mujoco.mj_resetData(*self.simulation)
        self.put_start(state)
        mujoco.mj_forward(*self.simulation)
        return self.observe()

    def observe(self) -> dict[str, np.ndarray]:
        """Returns the observation of the data."""
        return self.reference._get_obs()


class MazeOracle(RoboticsOracle):
    """A maze. `dense` has the other reward, in an episode that ends."""

    variants = in_double(reward_type="dense", continuing_task=False)
    methods = ("step", "_get_obs", "compute_reward", "compute_terminated")
    action_dtype = np.float64

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        rows = [[int(x) if x in "01" else x for x in row] for row in self.env._rows]  # pyright: ignore[reportAttributeAccessIssue]
        return {**given, "maze_map": rows}

    def observe(self) -> dict[str, np.ndarray]:
        seen = agent_of(self.reference)._get_obs()
        return self.reference._get_obs(seen[0] if isinstance(seen, tuple) else seen)


class PointMazeOracle(MazeOracle):
    env_type = point_maze.PointMazeEnv
    functions = (point.PointEnv.step, point.PointEnv._get_obs, point.PointEnv._clip_velocity)

    def get_state(self) -> PointMazeState:
        data = self.reference.data
        return PointMazeState(
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            kept=self.get_kept(),
            control=data.ctrl.copy(),
            goal=self.goal(),
        )

    def set_state(self, state: PointMazeState) -> None:
        self.reference.goal = np.array(state.goal, np.float64)
        self.put(state)
        self.reference.data.ctrl[:] = state.control

    def unusual_states(self) -> list[PointMazeState]:
        """Returns states that are faster than what the point is slowed down to."""
        self.reset()
        state = self.get_state()
        return [state.replace(qvel=speed * np.ones(2)) for speed in (-8.0, 5.5)]  # pyright: ignore[reportAttributeAccessIssue]


class AntMazeOracle(MazeOracle):
    env_type = ant_maze_v5.AntMazeEnv
    functions = (AntEnv.step, AntEnv._get_obs)
    unreachable = (*RoboticsOracle.unreachable, "position = position[2:]", "((position, velocity))")

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        return super().options({**given, "xml_file": str(self.env._agent)})  # pyright: ignore[reportAttributeAccessIssue]

    def get_state(self) -> AntMazeState:
        data, dtype = self.reference.data, self.env.parameters["dtype"]
        place: Any = data.body(self.reference.ant_env._main_body).xpos[:2].copy()
        rounded = place.astype(dtype)
        pair: Any = np.stack([rounded, (place - rounded).astype(dtype)])
        return AntMazeState(
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            kept=self.get_kept(),
            place=pair,
            goal=self.goal(),
        )

    def set_state(self, state: AntMazeState) -> None:
        self.reference.goal = np.array(state.goal, np.float64)
        self.put(state)
        mujoco.mj_forward(*self.simulation)
        self.put(state)  # that of before, where the solver begins


class FetchOracle(RoboticsOracle):
    """A task of Fetch."""

    variants = in_double(reward_type="dense")
    unreachable = (
        *RoboticsOracle.unreachable,
        "Action dimension mismatch",
        "data.ctrl[i] = action[i]",  # of actuators without a bias; none has one
    )

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.reference.initial_time = 0.0  # not that of the setup, which nothing depends on
        for name in ("initial_qpos", "initial_qvel"):  # as ours
            rounded = getattr(self.reference, name).astype(env.parameters["dtype"])
            setattr(self.reference, name, rounded.astype(np.float64))

    methods = (
        *("step", "_set_action", "_get_obs", "_step_callback", "compute_reward"),
        "generate_mujoco_observations",
    )
    functions = (
        mujoco_utils.ctrl_set_action,
        mujoco_utils.mocap_set_action,
        mujoco_utils.get_site_xvelp,
        mujoco_utils.get_site_xvelr,
        rotations.mat2euler,
    )

    def get_state(self) -> FetchState:
        model, data = self.simulation
        link = model.body("robot0:gripper_link").id
        driven = model.jnt_qposadr[model.actuator_trnid[:, 0]]
        pose: Any = np.concatenate([data.xpos[link], data.xquat[link], data.qpos[driven]])
        return FetchState(
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            kept=self.get_kept(),
            gripper=pose.view(np.uint32).reshape(-1, 2),
            goal=self.goal(),
        )

    def set_state(self, state: FetchState) -> None:
        self.reference.goal = np.array(state.goal, np.float64)
        self.put(state)
        mujoco.mj_forward(*self.simulation)
        self.put(state)


class FetchReachOracle(FetchOracle):
    env_type = reach.MujocoFetchReachEnv
    functions = (mujoco_utils.mocap_set_action, mujoco_utils.get_site_xvelp)
    unreachable = (*FetchOracle.unreachable, "object", "get_site_xmat", "self.data")


class FetchPushOracle(FetchOracle):
    env_type = push.MujocoFetchPushEnv
    functions = FetchOracle.functions[1:]
    unreachable = (
        *FetchOracle.unreachable,
        *("achieved_goal = grip_pos", "np.zeros(0)", "object_rel_pos = ("),
    )


class FetchSlideOracle(FetchPushOracle):
    env_type = slide.MujocoFetchSlideEnv


class FetchPickAndPlaceOracle(FetchOracle):
    env_type = pick_and_place.MujocoFetchPickAndPlaceEnv
    unreachable = (
        *FetchPushOracle.unreachable,
        *("np.zeros_like", "_finger_joint", "set_joint_qpos", "mj_forward"),
    )
