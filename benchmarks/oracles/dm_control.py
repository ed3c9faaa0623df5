"""The DeepMind Control Suite, with C MuJoCo."""

from types import FunctionType
from typing import Any, ClassVar

import chex
import jax
import numpy as np
from dm_control.rl import control
from dm_control.suite import (
    acrobot,
    ball_in_cup,
    cartpole,
    cheetah,
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

from benchmarks.oracles import Oracle
from benchmarks.oracles.mujoco import DOUBLE, tolerance_of
from jaxenvs.core import Environment
from jaxenvs.envs.dm_control import ControlState


class ControlOracle(Oracle):
    """A task of the suite. Its time limit is left out."""

    package = "dm-control mujoco"
    variants = (DOUBLE,)
    domain: ClassVar[Any]
    drawn: ClassVar[tuple[str, ...]] = ()  # arrays of the model that an episode changes

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        parameters = env.parameters
        self.tolerance = tolerance_of(parameters)
        physics: Any = self.domain.Physics.from_xml_string(*self.model(parameters))
        task = self.task(parameters, np.random.RandomState(seed))
        self.reference = control.Environment(physics, task, n_sub_steps=parameters["n_sub_steps"])
        for name, value in (parameters["physics"] or {}).items():
            setattr(physics.model.opt, name.removeprefix("opt."), value)

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
        return dict(self.reference.reset().observation)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        found = self.reference.step(action.astype(np.float64))
        return dict(found.observation), found.reward, found.discount == 0

    def sample_action(self) -> np.ndarray:
        spec = self.reference.action_spec()
        return self.random.uniform(spec.minimum, spec.maximum).astype(np.float32)

    def get_state(self) -> ControlState:
        physics = self.reference.physics
        return ControlState(
            qpos=physics.data.qpos.copy(),
            qvel=physics.data.qvel.copy(),
            qacc_warmstart=physics.data.qacc_warmstart.copy(),
            drawn={name: getattr(physics.model, name).copy() for name in self.drawn},
            act=physics.data.act.copy() if physics.model.na else None,
        )

    def set_state(self, state: ControlState) -> None:
        physics = self.reference.physics
        with physics.reset_context():
            for name, value in state.drawn.items():
                getattr(physics.model, name)[:] = value
            physics.data.qpos[:], physics.data.qvel[:] = state.qpos, state.qvel
            physics.data.qacc_warmstart[:] = state.qacc_warmstart
            if state.act is not None:
                physics.data.act[:] = state.act


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


class FingerOracle(ControlOracle):
    """With dry friction in the hinge, accelerations differ by up to 6e-7 in a step of a hundred."""

    domain = finger

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.tolerance = max(self.tolerance, 1e-6)

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
    tolerated = 0.005
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
        return point_mass.PointMass(randomize_gains=False, random=random)


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

    variants = ({**DOUBLE, "physics": {"opt.tolerance": 0.0}},)
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
