"""Gymnasium's classic control tasks.

The reference computes in double precision. Before each step its state is rounded to single
precision, so that both start from the same numbers.
"""

import inspect
import warnings
from collections.abc import Iterator
from types import FunctionType
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.classic_control import acrobot, pendulum
from gymnasium.envs.classic_control.acrobot import AcrobotEnv
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from benchmarks.oracles import Oracle
from jaxenvs.core import Environment
from jaxenvs.envs.classic_control import (
    AcrobotState,
    CartPoleState,
    MountainCarState,
    PendulumState,
)

HEAVY_POLE = {"gravity": 3.7, "masscart": 2.0, "masspole": 0.3, "length": 0.8, "force_mag": 15.0}
LINKS = {
    "link_length_1": 1.2,
    "link_mass_1": 0.8,
    "link_mass_2": 1.1,
    "link_com_pos_1": 0.6,
    "link_com_pos_2": 0.4,
    "link_moi": 0.9,
    "max_vel_1": 5.0,
    "max_vel_2": 8.0,
    "avail_torque": (-2.0, 0.5, 1.5),
}


class ClassicOracle(Oracle):
    """A task of Gymnasium, made without wrappers, whose state is a row of numbers."""

    package = "gymnasium"
    sizes: ClassVar = Oracle.sizes | {"episodes": 100, "longest": 200}
    unreachable: ClassVar = ("self.render()", 'f"{action!r} ({type(action)}) invalid"')
    env_type: ClassVar[type[gymnasium.Env]]
    state_type: ClassVar[Any]
    dtype: ClassVar[Any] = np.float64  # in which the reference keeps its state
    # Bounds of unusual states, one pair per number.
    wide: ClassVar[tuple[tuple[float, float], ...]]

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        given = dict(env.parameters)
        names = inspect.signature(self.env_type).parameters
        self.reference: Any = self.env_type(**{n: given[n] for n in names if n in given})
        for name, value in self.attributes(given).items():
            setattr(self.reference, name, value)
        self.reference.reset(seed=seed)

    def attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns attributes of the reference for the parameters of `env`."""
        return {name: value for name, value in given.items() if hasattr(self.reference, name)}

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (self.env_type.step,)  # pyright: ignore[reportReturnType]

    def reset(self) -> Any:
        observation, _ = self.reference.reset()
        self._round()
        return observation

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*already returned terminated")
            observation, reward, terminated, _, _ = self.reference.step(action)
        self._round()
        return observation, float(reward), terminated

    def get_state(self) -> Any:
        return self.state_type(
            **dict(zip(self._names(), np.float32(self.reference.state), strict=True))
        )

    def set_state(self, state: Any) -> None:
        row = [getattr(state, name) for name in self._names()]
        self.reference.state = np.array(row, np.float32).astype(self.dtype)

    def sample_action(self) -> Any:
        space: Any = self.env.action_space
        if hasattr(space, "n"):
            return int(self.random.integers(space.n))
        return np.float32(self.random.uniform(*space.bounds))

    def unusual_actions(self) -> list[Any]:
        """Returns actions, the last one out of bounds if there are any."""
        actions = [self.sample_action() for _ in range(3)]
        space: Any = self.env.action_space
        return actions if hasattr(space, "n") else [*actions[:2], np.float32(1.5 * actions[2])]

    def unusual_states(self) -> Iterator[Any]:
        """Yields states from all over the space."""
        low, high = np.array(self.wide).T
        for _ in range(200):
            row = np.float32(self.random.uniform(low, high))
            yield self.state_type(**dict(zip(self._names(), row, strict=True)))

    def _names(self) -> list[str]:
        """Returns the fields of our state that are the reference's row."""
        return list(self.state_type.__dataclass_fields__)

    def _round(self) -> None:
        self.reference.state = np.asarray(self.reference.state, np.float32).astype(self.dtype)


class CartPoleOracle(ClassicOracle):
    """Gymnasium's CartPole."""

    env_type = CartPoleEnv
    state_type = CartPoleState
    wide = (-4.8, 4.8), (-3, 3), (-0.4, 0.4), (-3, 3)
    variants: ClassVar = (
        {"kinematics_integrator": "semi-implicit euler"},
        {"sutton_barto_reward": True},
        HEAVY_POLE,
        {"tau": 0.05, "theta_threshold_radians": 0.4, "x_threshold": 1.0},
    )

    def attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        mass = given["masspole"] + given["masscart"]
        length = given["masspole"] * given["length"]
        return super().attributes(given) | {"total_mass": mass, "polemass_length": length}

    def set_state(self, state: CartPoleState) -> None:
        super().set_state(state)
        has_fallen = abs(state.x) > self.env.parameters["x_threshold"]
        has_fallen |= abs(state.theta) > self.env.parameters["theta_threshold_radians"]
        self.reference.steps_beyond_terminated = 0 if has_fallen else None

    @staticmethod
    def policy(env, state, key):
        """Pushes toward the side to which the pole leans or falls."""
        return (state.theta + 0.2 * state.theta_dot > 0).astype(jnp.int32)


class MountainCarOracle(ClassicOracle):
    """Gymnasium's MountainCar."""

    env_type = MountainCarEnv
    state_type = MountainCarState
    wide = (-1.2, 0.6), (-0.07, 0.07)
    variants: ClassVar = (
        {"goal_velocity": 0.03},
        {"force": 0.004, "gravity": 0.002, "max_speed": 0.05, "goal_position": 0.3},
    )

    def observe_start(self, state: MountainCarState) -> jax.Array:
        return jnp.stack([state.position, state.velocity])

    @staticmethod
    def policy(env, state, key):
        """Pushes in the direction of the velocity."""
        return jnp.where(state.velocity >= 0, 2, 0)


class MountainCarContinuousOracle(MountainCarOracle):
    """Gymnasium's MountainCarContinuous."""

    env_type = Continuous_MountainCarEnv
    dtype = np.float32
    variants: ClassVar = (
        {"goal_velocity": 0.03},
        {"power": 0.004, "max_action": 0.8, "max_speed": 0.05, "min_position": -1.0},
    )

    @staticmethod
    def policy(env, state, key):
        """Pushes in the direction of the velocity, with a random force."""
        force = jax.random.uniform(key, (1,), minval=0.5)
        return jnp.where(state.velocity >= 0, force, -force)


class AcrobotOracle(ClassicOracle):
    """Gymnasium's Acrobot. Noise of the torque is compared in tests/parity alone."""

    env_type = AcrobotEnv
    state_type = AcrobotState
    wide = (-np.pi, np.pi), (-np.pi, np.pi), (-12, 12), (-28, 28)
    tolerance = 5e-5  # at 28 rad/s, the equations enlarge rounding a hundred times
    variants: ClassVar = (
        {"book_or_nips": "nips"},
        LINKS | {"dt": 0.1},
    )
    unreachable: ClassVar = (
        *ClassicOracle.unreachable,
        *("torque += ", "-self.torque_noise_max"),
        *("M = m[1]", "m = m[0]"),  # bounds as one argument
        *("except TypeError:", "np.zeros((len(t),), np.float64)"),  # a system of one dimension
    )

    def attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        upper = {name.upper(): value for name, value in given.items() if name != "dt"}
        return super().attributes(upper) | {
            "dt": given["dt"],
            "book_or_nips": given["book_or_nips"],
        }

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        methods = AcrobotEnv._get_ob, AcrobotEnv._terminal, AcrobotEnv._dsdt
        return (*super().step_functions, *methods, acrobot.rk4, acrobot.wrap, acrobot.bound)

    @staticmethod
    def policy(env, state, key):
        """Pushes in the direction in which the second link turns."""
        return jnp.where(state.theta2_dot >= 0, 2, 0)


class PendulumOracle(ClassicOracle):
    """Gymnasium's Pendulum."""

    env_type = PendulumEnv
    state_type = PendulumState
    wide = (-20, 20), (-8, 8)
    variants: ClassVar = (
        {"g": 3.7},
        {"mass": 0.7, "length": 1.3, "dt": 0.03, "max_speed": 6.0, "max_torque": 1.5},
    )

    def attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        return super().attributes(given) | {"m": given["mass"], "l": given["length"]}

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (*super().step_functions, PendulumEnv._get_obs, pendulum.angle_normalize)

    def get_state(self) -> PendulumState:
        theta, theta_dot = np.float32(self.reference.state)
        torque = np.float32(self.reference.last_u or 0)
        return PendulumState(theta=theta, theta_dot=theta_dot, torque=torque)

    def set_state(self, state: PendulumState) -> None:
        super().set_state(state)
        self.reference.last_u = float(getattr(state, "torque", 0))

    def unusual_states(self) -> Iterator[PendulumState]:
        """Yields pendulums that have turned a few times."""
        low, high = np.array(self.wide).T
        for _ in range(200):
            theta, theta_dot = np.float32(self.random.uniform(low, high))
            yield PendulumState(theta=theta, theta_dot=theta_dot, torque=np.float32(0))

    def _names(self) -> list[str]:
        return ["theta", "theta_dot"]

    @staticmethod
    def policy(env, state, key):
        """Pushes in the direction in which the pendulum turns."""
        return jnp.where(state.theta_dot >= 0, env.max_torque, -env.max_torque)[None]
