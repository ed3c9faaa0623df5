"""The DeepMind Control Suite, with C MuJoCo."""

from types import FunctionType
from typing import Any, ClassVar

import chex
import jax
import mujoco
import numpy as np
from dm_control.rl import control
from dm_control.suite import (
    acrobot,
    ball_in_cup,
    cartpole,
    cheetah,
    dog,
    finger,
    fish,
    hopper,
    humanoid,
    humanoid_CMU,
    lqr,
    manipulator,
    pendulum,
    point_mass,
    quadruped,
    reacher,
    stacker,
    swimmer,
    walker,
)

from benchmarks.oracles.mujoco import PhysicsOracle
from jaxenvs.core import Environment
from jaxenvs.envs.dm_control import ControlState
from jaxenvs.physics.models import precision


class ControlOracle(PhysicsOracle):
    """A task of the suite. Its time limit is left out."""

    package = "dm-control mujoco"
    domain: ClassVar[Any]
    drawn: ClassVar[tuple[str, ...]] = ()  # arrays of the model that an episode changes

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        parameters = env.parameters
        physics: Any = self.physics_type.from_xml_string(*self.model(parameters))
        task = self.task(parameters, np.random.RandomState(seed))
        self.reference = control.Environment(physics, task, n_sub_steps=parameters["n_sub_steps"])
        for name, value in (parameters["physics"] or {}).items():
            setattr(physics.model.opt, name.removeprefix("opt."), value)

    @property
    def physics_type(self) -> Any:
        return self.domain.Physics

    def model(self, parameters: dict[str, Any]) -> Any:
        """Returns the reference's model and assets."""
        del parameters
        return self.domain.get_model_and_assets()

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        """Returns the reference's task."""
        raise NotImplementedError

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        kind = type(self.reference.task)
        return kind.get_observation, kind.get_reward  # pyright: ignore[reportReturnType]

    def reset(self) -> Any:
        observation = dict(self.reference.reset().observation)
        dtype = self.env.parameters["dtype"]
        if not self.drawn or dtype == "float64":
            return observation
        state = self.get_state()  # our arrays of the model are in single precision
        drawn = {name: value.astype(dtype) for name, value in state.drawn.items()}
        return self._begin(state.replace(drawn=drawn))

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        found = self.reference.step(action.astype(np.float64))  # raises an error if it diverges
        self.info = {"diverged": np.bool_(False)}
        return dict(found.observation), found.reward, found.discount == 0

    def sample_action(self) -> np.ndarray:
        spec = self.reference.action_spec()
        return self.random.uniform(spec.minimum, spec.maximum).astype(np.float32)

    @property
    def simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        physics = self.reference.physics
        return physics.model.ptr, physics.data.ptr

    def get_state(self) -> ControlState:
        physics = self.reference.physics
        return ControlState(
            qpos=physics.data.qpos.copy(),
            qvel=physics.data.qvel.copy(),
            kept=self.get_kept(),
            drawn={name: getattr(physics.model, name).copy() for name in self.drawn},
        )

    def set_state(self, state: ControlState) -> None:
        with self.reference.physics.reset_context():
            self._draw(state)
            self.put(state)
        self.put(state)  # that of before, where the solver begins

    def observe_start(self, state: ControlState) -> Any:
        with precision(self.env.parameters["dtype"]):
            return self.env._begin(state)[1].observation  # pyright: ignore[reportAttributeAccessIssue]

    def start_at(self, state: ControlState) -> Any:
        self.reference.reset()  # the next step may be one that resets
        return self._begin(state)

    def _begin(self, state: ControlState) -> Any:
        physics = self.reference.physics
        with physics.reset_context():
            self._draw(state)
            self.put_start(state)
        return dict(self.reference.task.get_observation(physics))

    def _draw(self, state: ControlState) -> None:
        for name, value in state.drawn.items():
            getattr(self.reference.physics.model, name)[:] = value


class AcrobotOracle(ControlOracle):
    domain = acrobot

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return acrobot.Balance(sparse=parameters["sparse"], random=random)


class BallInCupOracle(ControlOracle):
    domain = ball_in_cup

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return ball_in_cup.BallInCup(random=random)


class CartpoleOracle(ControlOracle):
    domain = cartpole

    def model(self, parameters: dict[str, Any]) -> Any:
        return cartpole.get_model_and_assets(num_poles=parameters["num_poles"])

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return cartpole.Balance(parameters["swing_up"], parameters["sparse"], random=random)


class CheetahOracle(ControlOracle):
    domain = cheetah

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return cheetah.Cheetah(random=random)

    def start_at(self, state: ControlState) -> Any:
        # An episode begins where 200 steps have led, with the warm start of the last of them.
        self.reference.reset()
        self.set_state(state)
        return dict(self.reference.task.get_observation(self.reference.physics))


class DogOracle(ControlOracle):
    domain = dog

    def model(self, parameters: dict[str, Any]) -> Any:
        if parameters["fetch"]:
            return dog.get_model_and_assets(remove_ball=False)
        return dog.get_model_and_assets(dog._DEFAULT_TIME_LIMIT * (parameters["move_speed"] or 1))

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        if parameters["fetch"]:
            return dog.Fetch(random=random)
        speed = parameters["move_speed"]
        return dog.Move(move_speed=speed, random=random) if speed else dog.Stand(random=random)


class FingerOracle(ControlOracle):
    """With dry friction, MJX's accelerations differ by up to 6e-7 in a step of a hundred."""

    domain = finger
    error_of_mjx = 1e-6

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        radius = parameters["target_radius"]
        self.drawn = () if radius is None else ("site_pos",)
        return finger.Spin(random) if radius is None else finger.Turn(radius, random)


class FishOracle(ControlOracle):
    domain = fish

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        self.drawn = ("geom_pos",) if parameters["swim"] else ()
        return fish.Swim(random) if parameters["swim"] else fish.Upright(random)


class HopperOracle(ControlOracle):
    domain = hopper

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return hopper.Hopper(hopping=parameters["hopping"], random=random)


class HumanoidOracle(ControlOracle):
    domain = humanoid

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return humanoid.Humanoid(parameters["move_speed"], parameters["pure_state"], random)


class HumanoidCMUOracle(ControlOracle):
    domain = humanoid_CMU

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return humanoid_CMU.HumanoidCMU(parameters["move_speed"], random)


class LQROracle(ControlOracle):
    domain = lqr
    drawn = ("jnt_stiffness",)

    def model(self, parameters: dict[str, Any]) -> Any:
        return lqr.get_model_and_assets(
            parameters["n_bodies"], parameters["n_actuators"], np.random.RandomState(0)
        )

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return lqr.LQRLevel(parameters["control_cost_coef"], random=random)

    def sample_action(self) -> np.ndarray:
        shape = self.reference.action_spec().shape
        return self.random.normal(size=shape).astype(np.float32)  # the limits are 1e10

    @staticmethod
    def random_policy(env: Environment, state: Any, key: chex.PRNGKey) -> jax.Array:
        return jax.random.normal(key, env.action_space.shape)

    def reset(self) -> Any:
        # Each episode has new springs, as if the task were loaded again.
        springs = self.reference.physics.model.jnt_stiffness
        springs[:] = self.random.uniform(15, 25, springs.shape)
        return super().reset()


class ManipulatorOracle(ControlOracle):
    # A ball that starts in the cup is 2e-17 m from its walls: rounding decides whether it touches.
    tolerated_of_mjx = 0.005
    domain = manipulator
    drawn = ("body_pos", "body_quat")

    def model(self, parameters: dict[str, Any]) -> Any:
        return manipulator.make_model(parameters["use_peg"], parameters["insert"])

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return manipulator.Bring(
            parameters["use_peg"], parameters["insert"], fully_observable=True, random=random
        )


class PendulumOracle(ControlOracle):
    domain = pendulum

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return pendulum.SwingUp(random=random)


class PointMassOracle(ControlOracle):
    domain = point_mass

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        gains = parameters["randomize_gains"]
        self.drawn = ("wrap_prm",) if gains else ()
        return point_mass.PointMass(randomize_gains=gains, random=random)


class QuadrupedOracle(ControlOracle):
    """In single precision, a start of `fetch` is raised by a micrometer, as ours is.

    The suite's own is 2e-16 m above the ground. There, rounding decides whether toes touch, and
    with it what they feel.
    """

    domain = quadruped

    def model(self, parameters: dict[str, Any]) -> Any:
        if parameters["fetch"]:
            return quadruped.make_model(walls_and_ball=True), quadruped.common.ASSETS
        return quadruped.make_model(20 * parameters["move_speed"]), quadruped.common.ASSETS

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        if parameters["fetch"]:
            return quadruped.Fetch(random=random)
        return quadruped.Move(parameters["move_speed"], random=random)

    def reset(self) -> Any:
        observation = super().reset()
        parameters = self.env.parameters
        if not parameters["fetch"] or parameters["dtype"] != "float32":
            return observation
        state = self.get_state()
        state.qpos[2] += 1e-6
        self.set_state(state)
        return dict(self.reference.task.get_observation(self.reference.physics))


class QuadrupedEscapeOracle(ControlOracle):
    sizes: ClassVar = {**ControlOracle.sizes, "steps": 1_000}  # a state has 40,401 heights
    domain = quadruped
    drawn = ("hfield_data",)

    class physics_type(quadruped.Physics):
        contexts = None  # which an episode would make to draw its terrain

    def model(self, parameters: dict[str, Any]) -> Any:
        model = quadruped.make_model(floor_size=40, terrain=True, rangefinders=True)
        return model, quadruped.common.ASSETS

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return quadruped.Escape(random=random)


class ReacherOracle(ControlOracle):
    domain = reacher
    drawn = ("geom_pos",)

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return reacher.Reacher(target_size=parameters["target_size"], random=random)


class StackerOracle(ControlOracle):
    domain = stacker
    drawn = ("body_pos",)

    def model(self, parameters: dict[str, Any]) -> Any:
        return stacker.make_model(parameters["n_boxes"])

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return stacker.Stack(parameters["n_boxes"], fully_observable=True, random=random)


class SwimmerOracle(ControlOracle):
    """At a joint limit of its light links, rounding hides that the cost of MJX's solver falls.

    With a tolerance of 1e-14 or 1e-20, it stops there, and velocities differ by up to 5e-9.
    """

    tolerance_of_mjx = 0.0
    domain = swimmer
    drawn = ("geom_pos",)

    def model(self, parameters: dict[str, Any]) -> Any:
        return swimmer.get_model_and_assets(parameters["n_links"])

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return swimmer.Swimmer(random=random)


class WalkerOracle(ControlOracle):
    domain = walker

    def task(self, parameters: dict[str, Any], random: np.random.RandomState) -> Any:
        return walker.PlanarWalker(parameters["move_speed"], random=random)
