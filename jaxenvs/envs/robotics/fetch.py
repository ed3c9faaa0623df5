"""The tasks of the robot Fetch, an arm with a gripper at a table."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import loops, physics
from jaxenvs.core import TimeStep
from jaxenvs.envs.robotics.base import GoalTask, assets, distance
from jaxenvs.physics.models import Fields, Plan, precision
from jaxenvs.spaces import Box

_RADIUS = 0.05  # m, in which a goal counts as reached
_NUM_STEPS = 20  # of 2 ms
_LINK, _GRIP = "robot0:gripper_link", "robot0:grip"  # the body that the task moves, a site of it
_DOWN = (1.0, 0.0, 1.0, 0.0)  # a quaternion, how the gripper points


@chex.dataclass(frozen=True)
class FetchState:
    """The state of the simulation, and the goal."""

    qpos: jax.Array  # float32[nq], m and rad
    qvel: jax.Array  # float32[nv], m/s and rad/s
    kept: Any  # see `MujocoState`
    # uint32[7 + k, 2], float64[7 + k], the position and quaternion of the gripper's link where the
    # last evaluation of the forces saw it, and the k fingers that are driven: where the next action
    # moves them from.
    gripper: jax.Array
    goal: jax.Array  # float32[3], m


@dataclasses.dataclass(frozen=True)
class _Setup:
    """What the package computes once, when it makes an environment."""

    model: mujoco.MjModel
    qpos: np.ndarray
    qvel: np.ndarray
    grip: np.ndarray  # [3], where the gripper starts
    height: float  # of the object on the table


class Fetch(GoalTask[FetchState]):
    """A task of the robot Fetch.

    A step moves the gripper's link from where it is: the link is welded to a body without mass,
    which is put there. In tasks whose gripper is shut, both fingers are put together after a step.
    """

    file: ClassVar[str]  # of the model
    has_object: ClassVar[bool] = True
    is_shut: ClassVar[bool] = True  # whether the gripper is
    joints: ClassVar[Mapping[str, Any]]  # positions at which the arm is moved to its start
    lift: ClassVar[float] = 0.0  # m, how much higher the gripper starts
    object_range: ClassVar[float] = 0.15  # m
    goal_range: ClassVar[float] = 0.15  # m
    offset: ClassVar[tuple[float, float, float]] = (0.0, 0.0, 0.0)  # m, of the goals
    flies: ClassVar[bool] = False  # whether half of the goals are in the air

    refreshes: ClassVar = False
    target: ClassVar = "target0"

    def __post_init__(self) -> None:
        name = type(self).__name__
        physics.check_only_c(name, self.engine, "does not collide the meshes of the robot")
        super().__post_init__()

    @property
    def _setup(self) -> _Setup:
        return _set_up(type(self))

    @property
    def _original(self) -> mujoco.MjModel:
        return self._setup.model

    @property
    def _num_steps(self) -> int:
        return _NUM_STEPS

    @property
    def action_space(self) -> Box:
        return Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, key: chex.PRNGKey) -> tuple[FetchState, TimeStep]:
        object_key, goal_key = jax.random.split(key)
        setup = self._setup
        with precision(self.dtype):
            qpos, qvel = (jnp.asarray(x, self.dtype) for x in (setup.qpos, setup.qvel))
            if self.has_object:
                at = setup.model.joint("object0:joint").qposadr[0]
                place = self._draw_object(object_key)
                qpos = qpos.at[at : at + 2].set(place.astype(self.dtype))
            goal = self._draw_goal(goal_key).astype(self.dtype)
            begun = self._engine.start(self._plan, self._changes({}), qpos, qvel)
            state, observation, info = self._after(begun, goal)
            return state, begun.first(observation, info)

    def step(
        self, state: FetchState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[FetchState, TimeStep]:
        del key  # a step is deterministic
        setup, changes = self._setup, self._changes({})
        with precision(self.dtype):
            # In single precision, as in the package.
            action = jnp.clip(self._as_control(action).astype(jnp.float32), -1, 1)
            move = action[:3] * jnp.float32(0.05)
            with jax.enable_x64(True):
                pose = jax.lax.bitcast_convert_type(state.gripper, jnp.float64)
                mocap = pose[:3] + move.astype(jnp.float64), pose[3:7] + np.array(_DOWN)
                control = pose[7:] + action[3].astype(jnp.float64)
            fingers = _fingers(setup.model)
            if self.is_shut:
                plan = Plan(setup.model, self.dtype, ("qpos", "qvel"), (), _NUM_STEPS, False, False)
                moved = self._engine.step(plan, changes, state, control, mocap=mocap)
                qpos = moved.data.qpos.at[fingers].set(0)
                # A place that is not a number does not stay.
                stays = functools.partial(jnp.where, moved.diverged)
                kept = jax.tree.map(stays, state.kept, moved.kept)
                result = self._engine.start(self._plan, changes, qpos, moved.data.qvel, kept)
            else:
                result = moved = self._engine.step(self._plan, changes, state, control, mocap=mocap)
            next_state, observation, info = self._after(result, state.goal)
            reward = self.compute_reward(observation["achieved_goal"], state.goal)
            return next_state, moved.transition(observation, reward, jnp.bool_(False), info)

    def _after(self, simulated: Any, goal: jax.Array) -> Any:
        """Returns the state, the observation, and `info`."""
        data = simulated.data
        state = FetchState(
            qpos=data.qpos,
            qvel=data.qvel,
            kept=simulated.kept,
            gripper=_bits(self._place(simulated.precise)),
            goal=goal,
        )
        observation = {**self._observe_data(data), "desired_goal": goal}
        reached = distance(observation["achieved_goal"], goal) < _RADIUS
        return state, observation, {"is_success": reached.astype(jnp.float32)}

    def _draw_object(self, key: chex.PRNGKey) -> jax.Array:
        """Returns a place in a square, at least 0.1 m from the gripper: float32[2]."""
        grip, size = jnp.asarray(self._setup.grip[:2], jnp.float32), self.object_range

        def draw(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            count, _ = carry
            noise_key = jax.random.fold_in(key, count)
            return count + 1, grip + jax.random.uniform(noise_key, (2,), jnp.float32, -size, size)

        carry = jnp.int32(0), grip
        return loops.while_loop(lambda carry: distance(carry[1], grip) < 0.1, draw, carry)[1]

    def _draw_goal(self, key: chex.PRNGKey) -> jax.Array:
        place_key, air_key, height_key = jax.random.split(key, 3)
        size, setup = self.goal_range, self._setup
        goal = jnp.asarray(setup.grip, jnp.float32)
        goal += jax.random.uniform(place_key, (3,), jnp.float32, -size, size)
        if not self.has_object:
            return goal
        height = jnp.float32(setup.height)
        if self.flies:
            in_air = jax.random.bernoulli(air_key)
            above = jax.random.uniform(height_key, (), jnp.float32, 0.0, 0.45)
            height = jnp.where(in_air, height + above, height)
        return (goal + jnp.asarray(self.offset, jnp.float32)).at[2].set(height)

    def compute_reward(self, achieved_goal: chex.Array, desired_goal: chex.Array) -> jax.Array:
        far = distance(achieved_goal, desired_goal)
        return -far if self.reward_type == "dense" else -(far > _RADIUS).astype(jnp.float32)

    def _observe_data(self, data: Fields) -> dict[str, jax.Array]:
        model, fingers = self._original, _fingers(self._original)
        duration = _NUM_STEPS * self._model.opt.timestep
        grip, hand = data.site_xpos[model.site(_GRIP).id], data.qpos[fingers]
        speed = self._speeds(data, _GRIP)[0] * duration
        fingers_speed = data.qvel[_fingers(model, "dofadr")] * duration
        if not self.has_object:
            parts = [grip, hand, speed, fingers_speed]
            return {"observation": jnp.concatenate(parts), "achieved_goal": grip}
        number = model.site("object0").id
        place, euler = data.site_xpos[number], _euler(data.site_xmat[number])
        moves, turns = (each * duration for each in self._speeds(data, "object0"))
        parts = [grip, place, place - grip, hand, euler, moves - speed, turns, speed, fingers_speed]
        return {"observation": jnp.concatenate(parts), "achieved_goal": place}

    def _speeds(self, data: Fields, site: str) -> tuple[jax.Array, jax.Array]:
        """Returns the velocity of a site and its angular velocity, [3] each.

        They are those of the latest velocities of the joints at the bodies' places in the data, as
        those of `mj_jacSite`, which both may be one physics step apart.
        """
        model = self._original
        number = model.site(site).id
        body = model.site_bodyid[number]
        joints = _moved_by(model, body)
        spin, slide = data.cdof[joints, :3], data.cdof[joints, 3:]
        arm = data.site_xpos[number] - data.subtree_com[model.body_rootid[body]]
        qvel = data.qvel[joints]
        return qvel @ (slide + jnp.cross(spin, arm)), qvel @ spin

    def _place(self, data: Fields) -> jax.Array:
        model = self._original
        link, driven = model.body(_LINK).id, model.jnt_qposadr[model.actuator_trnid[:, 0]]
        with jax.enable_x64(True):
            return jnp.concatenate([data.xpos[link], data.xquat[link], data.qpos[driven]])

    def _read(self, data: Fields) -> Any:
        return self._observe_data(data)

    @property
    def _camera(self) -> dict[str, Any]:
        return {"body": self._original.body(_LINK).id, "distance": 2.2, "height": 0.5}


class FetchReach(Fetch):
    """Move the gripper of an arm to a goal.

    Observation: a dict of three float32 arrays
        `observation`, [10]: position of the gripper, m; positions of both fingers, m; what the
        gripper and the fingers move per step at their present velocities, m
        `achieved_goal`, [3]: position of the gripper
        `desired_goal`, [3]: that of the goal
    Action: float32[4], how far the gripper is to move along x, y, and z, times 0.05 m, and an entry
        for the fingers, which has no effect here; clipped to [-1, 1]
    Reward: "sparse": 0 while the gripper is within 0.05 m of the goal, otherwise -1. "dense": minus
        the distance in meters
    Start: the arm is in one position; the goal is uniform within 0.15 m of the gripper along each
        axis
    Terminates: never
    Time limit: none here; the ids have 50 steps

    `info["is_success"]` is 1 while the goal is reached, also after a reset.

    Source: M. Plappert et al., Multi-Goal Reinforcement Learning, 2018, as Gymnasium-Robotics'
    FetchReach-v4 (tests/envs/robotics/test_robotics.py).
    """

    file: ClassVar = "reach.xml"
    has_object: ClassVar = False
    joints: ClassVar = {"robot0:slide0": 0.4049, "robot0:slide1": 0.48, "robot0:slide2": 0.0}
    lift: ClassVar = 0.2


class FetchPush(Fetch):
    """Push a box on a table to a goal with a shut gripper.

    Observation: a dict of three float32 arrays
        `observation`, [25]: positions of the gripper and of the box, and of the box from the
        gripper, m; positions of both fingers, m; Euler angles of the box, rad; what the box moves
        per step from the gripper's point of view, m, and turns, rad; what the gripper and the
        fingers move per step, m
        `achieved_goal`, [3]: position of the box
        `desired_goal`, [3]: that of the goal
    Action: float32[4], how far the gripper is to move along x, y, and z, times 0.05 m, and an entry
        for the fingers, which has no effect here; clipped to [-1, 1]
    Reward: "sparse": 0 while the box is within 0.05 m of the goal, otherwise -1. "dense": minus the
        distance in meters
    Start: the arm is in one position; the box is uniform within 0.15 m of the gripper along x and
        y, at least 0.1 m away; the goal is uniform within 0.15 m, on the table
    Terminates: never
    Time limit: none here; the ids have 50 steps

    `info["is_success"]` is 1 while the goal is reached, also after a reset.

    Source: M. Plappert et al., Multi-Goal Reinforcement Learning, 2018, as Gymnasium-Robotics'
    FetchPush-v4 (tests/envs/robotics/test_robotics.py).
    """

    file: ClassVar = "push.xml"
    joints: ClassVar = {
        "robot0:slide0": 0.405,
        "robot0:slide1": 0.48,
        "robot0:slide2": 0.0,
        "object0:joint": (1.25, 0.53, 0.4, 1.0, 0.0, 0.0, 0.0),
    }


class FetchSlide(Fetch):
    """Hit a puck on a slippery table so that it slides to a goal that the arm does not reach.

    Observation: that of FetchPush, with the puck
    Action: that of FetchPush
    Reward: that of FetchPush
    Start: the arm is in one position; the puck is uniform within 0.1 m of the gripper along x and
        y, at least 0.1 m away; the goal is uniform within 0.3 m of the point 0.4 m behind, on the
        table
    Terminates: never
    Time limit: none here; the ids have 50 steps

    `info["is_success"]` is 1 while the goal is reached, also after a reset.

    Source: M. Plappert et al., Multi-Goal Reinforcement Learning, 2018, as Gymnasium-Robotics'
    FetchSlide-v4 (tests/envs/robotics/test_robotics.py).
    """

    file: ClassVar = "slide.xml"
    joints: ClassVar = {
        "robot0:slide0": 0.05,
        "robot0:slide1": 0.48,
        "robot0:slide2": 0.0,
        "object0:joint": (1.7, 1.1, 0.41, 1.0, 0.0, 0.0, 0.0),
    }
    lift: ClassVar = -0.02
    object_range: ClassVar = 0.1
    goal_range: ClassVar = 0.3
    offset: ClassVar = (0.4, 0.0, 0.0)


class FetchPickAndPlace(Fetch):
    """Bring a box to a goal on a table or above it with a gripper.

    Observation: that of FetchPush. Positions and angles of bodies are one physics step late
    Action: float32[4], how far the gripper is to move along x, y, and z, times 0.05 m, and how far
        its fingers, m; clipped to [-1, 1]
    Reward: that of FetchPush
    Start: that of FetchPush, except that half of the goals are up to 0.45 m above the table
    Terminates: never
    Time limit: none here; the ids have 50 steps

    `info["is_success"]` is 1 while the goal is reached, also after a reset.

    Source: M. Plappert et al., Multi-Goal Reinforcement Learning, 2018, as Gymnasium-Robotics'
    FetchPickAndPlace-v4 (tests/envs/robotics/test_robotics.py).
    """

    file: ClassVar = "pick_and_place.xml"
    is_shut: ClassVar = False
    joints: ClassVar = FetchPush.joints
    lift: ClassVar = 0.2
    flies: ClassVar = True


@functools.cache
def _set_up(task: type[Fetch]) -> _Setup:
    """Moves the arm to where episodes start, as the package does when it makes the task."""
    model = mujoco.MjModel.from_xml_path(str(assets() / "fetch" / task.file))
    data = mujoco.MjData(model)
    for name, value in task.joints.items():
        at = model.joint(name).qposadr[0]
        data.qpos[at : at + np.size(value)] = value
    model.eq_data[model.eq_type == int(mujoco.mjtEq.mjEQ_WELD), :7] = [0, 0, 0, 0, 0, 0, 1]
    for _ in range(2):  # which is not once: a solver starts where it ended
        mujoco.mj_forward(model, data)
    grip = data.site(_GRIP)
    data.mocap_pos[0] = grip.xpos + np.array([-0.498, 0.005, -0.431 + task.lift])
    data.mocap_quat[0] = _DOWN
    mujoco.mj_step(model, data, 10 * _NUM_STEPS)
    return _Setup(
        model=model,
        qpos=data.qpos.copy(),
        qvel=data.qvel.copy(),
        grip=grip.xpos.copy(),
        height=float(data.site("object0").xpos[2]) if task.has_object else 0.0,
    )


def _bits(numbers: jax.Array) -> jax.Array:
    """Returns the bits of numbers in double precision: float64[n] to uint32[n, 2]."""
    with jax.enable_x64(True):
        return jax.lax.bitcast_convert_type(numbers, jnp.uint32)


def _fingers(model: mujoco.MjModel, address: str = "qposadr") -> np.ndarray:
    """Returns where the positions of both fingers are."""
    names = ("robot0:r_gripper_finger_joint", "robot0:l_gripper_finger_joint")
    return np.sort([getattr(model.joint(name), address)[0] for name in names])


def _moved_by(model: mujoco.MjModel, body: int) -> np.ndarray:
    """Returns the degrees of freedom that move a body."""
    while body and not model.body_dofnum[body]:
        body = model.body_parentid[body]
    found, at = [], model.body_dofadr[body] + model.body_dofnum[body] - 1 if body else -1
    while at >= 0:
        found.append(at)
        at = model.dof_parentid[at]
    return np.array(found[::-1], int)


def _euler(matrix: jax.Array) -> jax.Array:
    """Returns the angles of a rotation as the package counts them: [3, 3] to [3]."""
    level = jnp.sqrt(matrix[2, 2] * matrix[2, 2] + matrix[1, 2] * matrix[1, 2])
    is_upright = level <= 4 * np.finfo(np.float64).eps
    return jnp.stack(
        [
            jnp.where(is_upright, 0, -jnp.arctan2(matrix[1, 2], matrix[2, 2])),
            -jnp.arctan2(-matrix[0, 2], level),
            -jnp.where(
                is_upright,
                jnp.arctan2(-matrix[1, 0], matrix[1, 1]),
                jnp.arctan2(matrix[0, 1], matrix[0, 0]),
            ),
        ]
    )
