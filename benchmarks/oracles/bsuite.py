"""bsuite's environments."""

import functools
import os
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar
from unittest import mock

import jax.numpy as jnp
import numpy as np
from bsuite.environments import (
    bandit,
    cartpole,
    catch,
    deep_sea,
    discounting_chain,
    memory_chain,
    mnist,
    mountain_car,
    umbrella_chain,
)
from bsuite.experiments.cartpole_swingup import cartpole_swingup

from benchmarks.oracles import Oracle, RecordingGenerator
from jaxenvs.core import Environment
from jaxenvs.envs.bsuite import (
    BanditState,
    BsuiteCartPoleState,
    BsuiteMountainCarState,
    CatchState,
    DeepSeaDraws,
    DeepSeaState,
    DiscountingChainState,
    MemoryChainState,
    MnistState,
    UmbrellaChainState,
)
from jaxenvs.envs.bsuite.mnist import FOLDER
from jaxenvs.envs.classic_control._mountain import MountainCarState

# The drawn digits of the tests, unless the user names a folder with MNIST.
os.environ.setdefault(FOLDER, str(Path(__file__).parents[2] / "tests" / "mnist"))


class BsuiteOracle(Oracle):
    """An environment of bsuite."""

    package = "bsuite"
    unreachable: ClassVar = ("return self.reset()",)  # certificates reset it themselves
    env_type: ClassVar[type]
    options: ClassVar[str] = ""  # the parameters that the reference's constructor takes, too

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.parameters = dict(env.parameters)
        self.reference: Any = self.make({name: self.parameters[name] for name in self.names()})
        self.generator = RecordingGenerator(np.random.RandomState(seed))
        self.reference._rng = self.generator

    def names(self) -> list[str]:
        return self.options.split()

    def make(self, options: dict[str, Any]) -> Any:
        """Returns the reference implementation with these parameters."""
        return self.env_type(**options)

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (self.env_type._step, self.env_type._get_observation)  # pyright: ignore[reportAttributeAccessIssue]

    def reset(self) -> Any:
        self.generator.drawn = []
        return self.reference.reset().observation

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        self.generator.drawn = []
        self.reference._reset_next_step = False
        timestep = self.reference.step(int(action))
        assert timestep.discount == (0.0 if timestep.last() else 1.0)
        return timestep.observation, timestep.reward, timestep.last()


class BanditOracle(BsuiteOracle):
    """bsuite's SimpleBandit."""

    env_type = bandit.SimpleBandit
    options = "mapping_seed num_actions"
    variants = ({"mapping_seed": 19}, {"mapping_seed": 1, "num_actions": 3})

    def reset(self) -> Any:
        self._action = -1
        return super().reset()

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        self._action = int(action)
        return super().step(action)

    def get_state(self) -> BanditState:
        return BanditState(action=np.int32(self._action))  # pyright: ignore[reportArgumentType]

    def set_state(self, state: BanditState) -> None:
        self._action = int(state.action)


class CatchOracle(BsuiteOracle):
    """bsuite's Catch."""

    env_type = catch.Catch
    options = "rows columns"
    variants = ({"rows": 3, "columns": 8},)

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (catch.Catch._step, catch.Catch._observation)  # pyright: ignore[reportReturnType]

    def get_state(self) -> CatchState:
        return CatchState(
            ball_row=np.int32(self.reference._ball_y),
            ball_column=np.int32(self.reference._ball_x),
            paddle_column=np.int32(self.reference._paddle_x),
        )

    def set_state(self, state: CatchState) -> None:
        self.reference._ball_y, self.reference._ball_x = int(state.ball_row), int(state.ball_column)
        self.reference._paddle_x = int(state.paddle_column)
        self.reference._paddle_y = self.parameters["rows"] - 1

    @staticmethod
    def policy(env, state, key):
        """Follows the ball."""
        return jnp.sign(state.ball_column - state.paddle_column) + 1


class BsuiteCartPoleOracle(BsuiteOracle):
    """bsuite's Cartpole. Its state is rounded to float32 before each step."""

    env_type = cartpole.Cartpole
    options = "height_threshold x_threshold timescale max_time init_range"
    variants: ClassVar = (
        {"height_threshold": 0.5, "x_threshold": 0.2, "max_time": 1.0, "init_range": 0.1},
        {"gravity": 5.0, "length": 0.8, "mass_pole": 0.3, "mass_cart": 0.5, "force_mag": 4.0},
    )

    def make(self, options: dict[str, Any]) -> Any:
        reference = super().make(options)
        fields = cartpole.CartpoleConfig._fields
        reference._cartpole_config = cartpole.CartpoleConfig(*map(self.parameters.get, fields))
        return reference

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        observation = self.env_type.observation.fget
        return (cartpole.step_cartpole, self.env_type.step, observation)

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        self.set_state(self.get_state())
        return super().step(action)

    def get_state(self) -> BsuiteCartPoleState:
        *values, time = self.reference._state
        x, x_dot, theta, theta_dot = (np.float32(value) for value in values)
        elapsed = np.int32(round(time / self.parameters["timescale"]))
        return BsuiteCartPoleState(
            x=x, x_dot=x_dot, theta=theta, theta_dot=theta_dot, elapsed=elapsed
        )

    def set_state(self, state: BsuiteCartPoleState) -> None:
        values = (state.x, state.x_dot, state.theta, state.theta_dot)
        clock = _clock(self.parameters["timescale"])
        self.reference._state = cartpole.CartpoleState(
            *map(float, values), time_elapsed=clock[int(state.elapsed)]
        )

    def unusual_states(self) -> Any:
        last = round(self.parameters["max_time"] / self.parameters["timescale"])
        for elapsed in (last - 1, last):
            for x, theta, theta_dot in ((0, 0.1, 0), (0, 0.1, 2), (-2.99, 6.2, 1), (3.1, 1, 0)):
                values = {"x": x, "x_dot": -2, "theta": theta, "theta_dot": theta_dot}
                yield BsuiteCartPoleState(
                    **{name: np.float32(value) for name, value in values.items()},
                    elapsed=np.int32(elapsed),
                )

    @staticmethod
    def policy(env, state, key):
        """Keeps the pole upright; swings it up before."""
        lean = jnp.sin(state.theta) + 0.3 * state.theta_dot + 0.05 * state.x + 0.1 * state.x_dot
        swing = -state.theta_dot * jnp.cos(state.theta)
        push = jnp.where(jnp.cos(state.theta) > 0.5, lean, swing)
        away = jnp.where(jnp.abs(state.x) > 1.5, -state.x, push)
        return jnp.where(away > 0, 2, 0)


class CartPoleSwingupOracle(BsuiteCartPoleOracle):
    """bsuite's CartpoleSwingup."""

    env_type = cartpole_swingup.CartpoleSwingup
    options = f"{BsuiteCartPoleOracle.options} theta_dot_threshold x_reward_threshold move_cost"
    variants: ClassVar = (
        {"height_threshold": 0.0, "x_reward_threshold": 0.5, "max_time": 1.0, "move_cost": 0.3},
    )


class BsuiteMountainCarOracle(BsuiteOracle):
    """bsuite's MountainCar. Its state is rounded to float32 before each step."""

    env_type = mountain_car.MountainCar
    options = "max_steps"
    variants: ClassVar = ({"max_steps": 50, "force": 0.002, "goal_position": 0.3},)

    def make(self, options: dict[str, Any]) -> Any:
        reference = super().make(options)
        for theirs, ours in (
            *(("_min_pos", "min_position"), ("_max_pos", "max_position")),
            *(("_max_speed", "max_speed"), ("_goal_pos", "goal_position")),
            *(("_force", "force"), ("_gravity", "gravity")),
        ):
            assert hasattr(reference, theirs)
            setattr(reference, theirs, self.parameters[ours])
        return reference

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        self.set_state(self.get_state())
        return super().step(action)

    def get_state(self) -> BsuiteMountainCarState:
        position, velocity = self.reference._position, self.reference._velocity
        car = MountainCarState(position=np.float32(position), velocity=np.float32(velocity))  # pyright: ignore[reportArgumentType]
        return BsuiteMountainCarState(car=car, elapsed=np.int32(self.reference._timestep))  # pyright: ignore[reportArgumentType]

    def set_state(self, state: BsuiteMountainCarState) -> None:
        self.reference._position = float(state.car.position)
        # A float32 of the wall's position is not equal to the wall's.
        if state.car.position == np.float32(self.parameters["min_position"]):
            self.reference._position = self.parameters["min_position"]
        self.reference._velocity = float(state.car.velocity)
        self.reference._timestep = int(state.elapsed)

    def unusual_states(self) -> Any:
        for position, velocity in ((-1.2, -0.03), (-1.19, -0.07), (0.49, 0.07), (0.0, 0.0695)):
            car = MountainCarState(position=np.float32(position), velocity=np.float32(velocity))  # pyright: ignore[reportArgumentType]
            for elapsed in (0, self.parameters["max_steps"] - 1):
                yield BsuiteMountainCarState(car=car, elapsed=np.int32(elapsed))  # pyright: ignore[reportArgumentType]

    @staticmethod
    def policy(env, state, key):
        """Pushes in the direction of movement."""
        return jnp.where(state.car.velocity < 0, 0, 2)


class DeepSeaOracle(BsuiteOracle):
    """bsuite's DeepSea."""

    env_type = deep_sea.DeepSea
    options = "size deterministic unscaled_move_cost randomize_actions mapping_seed"
    variants: ClassVar = (
        {"size": 4, "deterministic": False, "mapping_seed": 7},
        {"size": 50, "unscaled_move_cost": 0.5},
        {"size": 5, "randomize_actions": False},
    )

    def get_state(self) -> DeepSeaState:
        return DeepSeaState(
            row=np.int32(self.reference._row),
            column=np.int32(self.reference._column),
            is_bad=np.bool_(self.reference._bad_episode),
        )

    def set_state(self, state: DeepSeaState) -> None:
        self.reference._row, self.reference._column = int(state.row), int(state.column)
        self.reference._bad_episode = bool(state.is_bad)

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        last, column = self.parameters["size"] - 1, int(self.reference._column)
        self._is_noisy = self.reference._row == last and column in (0, last)
        return super().step(action)

    def get_draws(self) -> DeepSeaDraws | None:
        if self.parameters["deterministic"]:
            return None
        drawn = list(self.generator.drawn)
        noise = drawn.pop(0) if self._is_noisy else 0
        is_blown = bool(drawn) and drawn[0] <= 1 / self.parameters["size"]
        return DeepSeaDraws(noise=np.float32(noise), is_blown=np.bool_(is_blown))  # pyright: ignore[reportArgumentType]

    @staticmethod
    def policy(env, state, key):
        """Moves right."""
        mapping = jnp.asarray(env.mapping, jnp.int32).reshape(-1)
        return mapping[jnp.minimum(state.row, env.size - 1) * env.size + state.column]


class DiscountingChainOracle(BsuiteOracle):
    """bsuite's DiscountingChain."""

    env_type = discounting_chain.DiscountingChain
    options = "mapping_seed"
    variants = ({"mapping_seed": 8},)

    def get_state(self) -> DiscountingChainState:
        timestep, context = self.reference._timestep, self.reference._context
        return DiscountingChainState(elapsed=np.int32(timestep), chain=np.int32(context))  # pyright: ignore[reportArgumentType]

    def set_state(self, state: DiscountingChainState) -> None:
        self.reference._timestep, self.reference._context = int(state.elapsed), int(state.chain)


class MemoryChainOracle(BsuiteOracle):
    """bsuite's MemoryChain."""

    env_type = memory_chain.MemoryChain
    options = "memory_length num_bits"
    unreachable = ("raise RuntimeError",)
    variants = ({"memory_length": 1}, {"memory_length": 3, "num_bits": 4}, {"memory_length": 100})

    def get_state(self) -> MemoryChainState:
        return MemoryChainState(
            elapsed=np.int32(self.reference._timestep),
            context=np.int8(self.reference._context),
            query=np.int32(self.reference._query),
        )

    def set_state(self, state: MemoryChainState) -> None:
        self.reference._timestep, self.reference._query = int(state.elapsed), int(state.query)
        self.reference._context = np.asarray(state.context, int)

    @staticmethod
    def policy(env, state, key):
        """Names the queried bit."""
        return state.context[state.query].astype(jnp.int32)


class MnistOracle(BsuiteOracle):
    """bsuite's MNISTBandit."""

    env_type = mnist.MNISTBandit
    options = "fraction"
    variants = ({"fraction": 0.5},)

    def make(self, options: dict[str, Any]) -> Any:
        load = functools.partial(mnist.datasets.load_mnist, directory=os.environ[FOLDER])
        with mock.patch.object(mnist.datasets, "load_mnist", load):
            return super().make(options)

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (mnist.MNISTBandit._step,)  # pyright: ignore[reportReturnType]

    def reset(self) -> Any:
        observation = super().reset()
        self._index, self._is_over = self.generator.drawn[0], False
        return observation

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        self._is_over = True
        return super().step(action)

    def get_state(self) -> MnistState:
        return MnistState(index=np.int32(self._index), is_over=np.bool_(self._is_over))  # pyright: ignore[reportArgumentType]

    def set_state(self, state: MnistState) -> None:
        self._index, self._is_over = int(state.index), bool(state.is_over)
        self.reference._correct_label = self.reference._labels[self._index]

    @staticmethod
    def policy(env, state, key):
        """Names the digit."""
        return jnp.asarray(env.labels, jnp.int32)[state.index]


class UmbrellaChainOracle(BsuiteOracle):
    """bsuite's UmbrellaChain. The oracle remembers the distractors of the last observation."""

    env_type = umbrella_chain.UmbrellaChain
    options = "chain_length n_distractor"
    variants = (
        {"chain_length": 1, "n_distractor": 1},
        {"chain_length": 5, "n_distractor": 2},
        {"chain_length": 3, "n_distractor": 0},
    )

    def reset(self) -> Any:
        observation = super().reset()
        self._distractors = np.int8(self.generator.drawn[-1])
        return observation

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        result = super().step(action)
        self._distractors = np.int8(self.generator.drawn[-1])
        return result

    def get_state(self) -> UmbrellaChainState:
        both = np.int8([self.reference._need_umbrella, self.reference._has_umbrella])
        bits = np.concatenate([both, self._distractors])
        return UmbrellaChainState(elapsed=np.int32(self.reference._timestep), bits=bits)  # pyright: ignore[reportArgumentType]

    def set_state(self, state: UmbrellaChainState) -> None:
        self.reference._timestep = int(state.elapsed)
        self.reference._need_umbrella, self.reference._has_umbrella = map(int, state.bits[:2])
        self._distractors = np.asarray(state.bits[2:])

    def get_draws(self) -> np.ndarray:
        *is_positive, distractors = self.generator.drawn
        return np.int8([*(is_positive or [0]), *distractors])

    @staticmethod
    def policy(env, state, key):
        """Takes the umbrella if it is needed."""
        return state.bits[0].astype(jnp.int32)


@functools.cache
def _clock(timescale: float) -> list[float]:
    """Returns bsuite's clock after each step: a sum in float64."""
    times = [0.0]
    for _ in range(10_000):
        times.append(times[-1] + timescale)
    return times
