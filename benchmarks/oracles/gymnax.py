"""gymnax's environments of the family misc.

    python -m benchmarks.oracles.gymnax tests/envs/misc/gymnax_steps.json

writes steps of gymnax for the tests, which run without it.

gymnax is compiled. Its lines run once, while JAX traces a step, so a certificate's count of lines
says that each is part of the program that was compared, not that each value of a condition
occurred. gymnax draws from keys, so an oracle repeats the draws of a step's key.
"""

import argparse
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments.environment import Environment as GymnaxEnvironment
from gymnax.environments.misc import (
    bernoulli_bandit,
    gaussian_bandit,
    meta_maze,
    point_robot,
    pong,
    reacher,
    rooms,
    swimmer,
)

import jaxenvs
from benchmarks.oracles import Oracle, oracle_for
from jaxenvs.core import Environment
from jaxenvs.envs.misc import (
    BernoulliBanditState,
    FourRoomsState,
    GaussianBanditState,
    MetaMazeState,
    PointRobotState,
    PongState,
    ReacherState,
    SwimmerState,
)
from jaxenvs.envs.misc.four_rooms import is_free

if not hasattr(GymnaxEnvironment, "is_truncated"):
    raise ImportError("the oracles need gymnax 1.0 or later", name="gymnax")


class GymnaxOracle(Oracle):
    """An environment of gymnax, stepped without its automatic resets."""

    package = "gymnax"
    env_type: ClassVar[Any]
    arguments: ClassVar[str] = ""  # parameters that gymnax's constructor takes
    helpers: ClassVar[tuple[Any, ...]] = ()  # functions that a step calls

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        parameters = dict(env.parameters)
        arguments = {name: parameters[name] for name in self.arguments.split()}
        with _usual_promotion():
            self.reference = self.env_type(**arguments)
        params = self.reference.default_params
        self.params = params.replace(
            **{name: value for name, value in parameters.items() if hasattr(params, name)}
        )
        self._reset, self._step = map(jax.jit, (self.reference.reset_env, self.reference.step_env))
        self._draw: Callable[..., Any] = jax.jit(self.draw)
        self.state: Any = None

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        names = ("step_env", "get_obs", "is_terminated")
        inherited = (GymnaxEnvironment.is_terminal, GymnaxEnvironment.discount)
        return (*(getattr(self.env_type, name) for name in names), *inherited, *self.helpers)

    def reset(self) -> Any:
        with _usual_promotion():
            observation, self.state = jax.device_get(self._reset(self.new_key(), self.params))
        return self.mend(observation)

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        if np.ndim(action) == 0:
            action = np.int32(action)
        with _usual_promotion():
            self.key = self.choose_key()
            observation, self.state, reward, terminated, _ = jax.device_get(
                self._step(self.key, self.state, action, self.params)
            )
        return self.mend(observation), float(reward), bool(terminated)

    def get_draws(self) -> Any:
        with _usual_promotion():
            return jax.device_get(self._draw(self.key))

    def draw(self, key: jax.Array) -> Any:
        """Returns what gymnax's step draws from `key`, as `env.draw` would return it."""
        raise NotImplementedError

    def mend(self, observation: np.ndarray) -> np.ndarray:
        """Returns gymnax's observation without its errors."""
        return observation

    def sample_action(self) -> Any:
        space: Any = self.env.action_space
        if hasattr(space, "n"):
            return np.int32(self.random.integers(space.n))
        return np.float32(self.random.uniform(*space.bounds))

    def set_fields(self, **fields: Any) -> None:
        """Continues from a state of gymnax with these fields."""
        if self.state is None:
            self.reset()
        dtypes = jax.tree.map(lambda leaf: np.asarray(leaf).dtype, self.state)
        self.state = self.state.replace(
            **{name: np.asarray(value, getattr(dtypes, name)) for name, value in fields.items()}
        )

    def choose_key(self) -> np.ndarray:
        """Returns the key of the next step."""
        return self.new_key()

    def new_key(self) -> np.ndarray:
        """Returns a random key."""
        return self.random.integers(2**32, size=2, dtype=np.uint32)


def _usual_promotion() -> ExitStack:
    """Returns a context for programs that rely on JAX's usual promotion of types and ranks."""
    stack = ExitStack()
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    return stack


class FourRoomsOracle(GymnaxOracle):
    """gymnax's FourRooms. The agent on its map is moved to the agent's cell."""

    env_type = rooms.FourRooms
    arguments = "use_visual_obs goal_fixed pos_fixed"
    variants = (
        {"resample_init_pos": True, "resample_goal_pos": True, "fail_prob": 0.1},
        {"use_visual_obs": True, "goal_fixed": (1, 11), "pos_fixed": (11, 2)},
    )

    def draw(self, key: jax.Array) -> Any:
        first, second = jax.random.split(key)
        is_random = jax.random.uniform(first, ()) < self.params.fail_prob * 4 / 3
        return jnp.where(is_random, self.reference.action_space().sample(second), -1)

    def mend(self, observation: np.ndarray) -> np.ndarray:
        if observation.ndim == 1:
            return observation
        return np.stack([observation[..., 0], observation[..., 1].T], axis=-1)

    def get_state(self) -> FourRoomsState:
        (row, column), (goal_row, goal_column) = np.int32(self.state.pos), np.int32(self.state.goal)
        return FourRoomsState(row=row, column=column, goal_row=goal_row, goal_column=goal_column)

    def set_state(self, state: FourRoomsState) -> None:
        goal = (state.goal_row, state.goal_column)
        self.set_fields(pos=(state.row, state.column), goal=goal, time=0)

    def unusual_states(self) -> Any:
        free = np.argwhere(is_free(*np.indices((13, 13)))).astype(np.int32)
        for row, column in free:
            goal_row, goal_column = self.random.choice(free)
            yield FourRoomsState(row=row, column=column, goal_row=goal_row, goal_column=goal_column)

    @staticmethod
    def policy(env, state, key):
        """Moves towards the goal half of the time, otherwise at random."""
        return _approach(key, state.goal_row - state.row, state.goal_column - state.column)


class MetaMazeOracle(GymnaxOracle):
    """gymnax's MetaMaze, with keys that do not put the agent back on the goal, started inside."""

    env_type = meta_maze.MetaMaze
    arguments = "maze_size rf_size"
    helpers = (meta_maze.reset_pos, meta_maze.time_normalization)
    variants: ClassVar = (
        {"maze_size": 7, "rf_size": 5, "reward": 2.0, "punishment": -0.5},
        {"normalize_time": True, "t_max": 100.0},
    )

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.size = env.parameters["maze_size"]
        self.border = int(self.reference.rf_off)
        self.reference.center_position = jnp.full(2, self.size // 4 * 2 + self.border)

    def draw(self, key: jax.Array) -> Any:
        row, column = meta_maze.reset_pos(key, self.reference.coords) - self.border
        return row * self.size + column

    def choose_key(self) -> np.ndarray:
        goal_row, goal_column = self.state.goal - self.border
        while True:
            self.key = self.new_key()
            if self.get_draws() != goal_row * self.size + goal_column:
                return self.key

    def get_state(self) -> MetaMazeState:
        row, column = np.int32(self.state.pos) - self.border
        goal_row, goal_column = np.int32(self.state.goal) - self.border
        return MetaMazeState(
            row=np.int32(row),
            column=np.int32(column),
            goal_row=np.int32(goal_row),
            goal_column=np.int32(goal_column),
            last_action=np.int32(self.state.last_action),
            last_reward=np.float32(self.state.last_reward),
            time=np.int32(self.state.time),
        )

    def set_state(self, state: MetaMazeState) -> None:
        self.set_fields(
            pos=np.stack([state.row, state.column]) + self.border,
            goal=np.stack([state.goal_row, state.goal_column]) + self.border,
            last_action=state.last_action,
            last_reward=state.last_reward,
            time=state.time,
        )

    def unusual_states(self) -> Any:
        free = np.argwhere(np.asarray(self.reference.env_map)).astype(np.int32) - self.border
        for row, column in free:
            goal_row, goal_column = free[self.random.integers(len(free))]
            if (row, column) != (goal_row, goal_column):
                yield MetaMazeState(
                    row=row,
                    column=column,
                    goal_row=goal_row,
                    goal_column=goal_column,
                    last_action=np.int32(self.random.integers(4)),
                    last_reward=np.float32(self.random.normal()),
                    time=np.int32(self.random.integers(300)),
                )

    @staticmethod
    def policy(env, state, key):
        """Moves towards the goal half of the time, otherwise at random."""
        return _approach(key, state.goal_row - state.row, state.goal_column - state.column)


class PointRobotOracle(GymnaxOracle):
    """gymnax's PointRobot."""

    env_type = point_robot.PointRobot
    helpers = (
        point_robot.sample_agent_position,
        point_robot.time_normalization,
        GymnaxEnvironment._apply_transition_gradient_policy,
    )
    unreachable = ("return observation, state",)  # with gradients
    variants: ClassVar = (
        {"dense_reward": True, "circle_radius": 2.0, "goal_radius": 0.5, "max_force": 0.3},
        {"center_init": True, "normalize_time": False},
    )

    def draw(self, key: jax.Array) -> Any:
        return jnp.stack([jax.random.uniform(part) for part in jax.random.split(key)])

    def get_state(self) -> PointRobotState:
        return PointRobotState(
            position=np.float32(self.state.pos),
            goal=np.float32(self.state.goal),
            last_action=np.float32(self.state.last_action),
            last_reward=np.float32(self.state.last_reward),
            time=np.int32(self.state.time),
        )

    def set_state(self, state: PointRobotState) -> None:
        self.set_fields(
            pos=state.position,
            goal=state.goal,
            last_action=state.last_action,
            last_reward=state.last_reward,
            time=state.time,
        )

    def unusual_states(self) -> Any:
        """Yields robots at the goal or near it."""
        for _ in range(100):
            angle, aside = np.pi * self.random.random(), self.random.normal(0, 0.2, 2)
            goal = self.params.circle_radius * np.float32([np.cos(angle), np.sin(angle)])
            yield PointRobotState(
                position=np.float32(goal + aside),
                goal=goal,
                last_action=np.float32(self.random.normal(size=2)),
                last_reward=np.float32(self.random.random()),
                time=np.int32(self.random.integers(200)),
            )

    @staticmethod
    def policy(env, state, key):
        """Moves straight to the goal, with actions beyond their bounds."""
        return state.goal - state.position


class BernoulliBanditOracle(GymnaxOracle):
    """gymnax's BernoulliBandit."""

    env_type = bernoulli_bandit.BernoulliBandit
    helpers = (bernoulli_bandit.time_normalization,)
    variants: ClassVar = (
        {"reward_prob": 0.3, "min_lim": 0.0, "max_lim": 5.0, "t_max": 20},
        {"normalize_time": False},
    )

    def draw(self, key: jax.Array) -> Any:
        return jax.random.uniform(key)

    def get_state(self) -> BernoulliBanditState:
        return BernoulliBanditState(
            probability=np.float32(self.state.reward_probs[0]),
            last_action=np.int32(self.state.last_action),
            last_reward=np.float32(self.state.last_reward),
            time=np.int32(self.state.time),
        )

    def set_state(self, state: BernoulliBanditState) -> None:
        self.set_fields(
            reward_probs=(state.probability, 1 - state.probability),
            last_action=state.last_action,
            last_reward=state.last_reward,
            time=state.time,
        )

    @staticmethod
    def policy(env, state, key):
        """Pulls the better arm."""
        return (state.probability < 0.5).astype(jnp.int32)


class GaussianBanditOracle(GymnaxOracle):
    """gymnax's GaussianBandit."""

    env_type = gaussian_bandit.GaussianBandit
    helpers = (gaussian_bandit.time_normalization,)
    variants: ClassVar = (
        {"mean_mu": 0.5, "sigma_p": 2.0, "sigma_l": 1.5},
        {"normalize_time": False},
    )

    def draw(self, key: jax.Array) -> Any:
        return jax.random.normal(key)

    def get_state(self) -> GaussianBanditState:
        return GaussianBanditState(
            mu=np.float32(self.state.mu),
            last_action=np.int32(self.state.last_action),
            last_reward=np.float32(self.state.last_reward),
            time=np.int32(self.state.time),
        )

    def set_state(self, state: GaussianBanditState) -> None:
        self.set_fields(
            mu=state.mu,
            last_action=state.last_action,
            last_reward=state.last_reward,
            time=state.time,
        )

    @staticmethod
    def policy(env, state, key):
        """Pulls the better arm."""
        return (state.mu > 0).astype(jnp.int32)


class ReacherOracle(GymnaxOracle):
    """gymnax's Reacher, which can observe arms of two joints only."""

    env_type = reacher.Reacher
    arguments = "num_joints"
    helpers = (GymnaxEnvironment._apply_transition_gradient_policy,)
    unreachable = ("return observation, state",)  # with gradients
    variants = ({"torque_scale": 3.0, "dt": 0.1},)

    def get_state(self) -> ReacherState:
        return ReacherState(
            angles=np.float32(self.state.angles),
            angle_vels=np.float32(self.state.angle_vels),
            goal=np.float32(self.state.goal_xy),
        )

    def set_state(self, state: ReacherState) -> None:
        self.set_fields(
            angles=state.angles, angle_vels=state.angle_vels, goal_xy=state.goal, time=0
        )

    @staticmethod
    def policy(env, state, key):
        """Stops the arm."""
        return jnp.clip(-2 * state.angle_vels, -1, 1)


class SwimmerOracle(GymnaxOracle):
    """gymnax's Swimmer."""

    env_type = swimmer.Swimmer
    arguments = "num_urchins"
    helpers = (GymnaxEnvironment._apply_transition_gradient_policy,)
    unreachable = ("return observation, state",)  # with gradients
    variants = ({"num_urchins": 2, "dt": 0.1},)

    def get_state(self) -> SwimmerState:
        return SwimmerState(
            xy=np.float32(self.state.xy),
            xy_vel=np.float32(self.state.xy_vel),
            goal=np.float32(self.state.goal_xy),
            urchins=np.float32(self.state.urchin_xys),
        )

    def set_state(self, state: SwimmerState) -> None:
        self.set_fields(
            xy=state.xy,
            xy_vel=state.xy_vel,
            goal_xy=state.goal,
            urchin_xys=state.urchins,
            time=0,
        )

    @staticmethod
    def policy(env, state, key):
        """Swims to the goal and brakes."""
        return jnp.clip(state.goal - state.xy - state.xy_vel, -1, 1)


def _bounce(state: Any, height: int, bounce: Any = pong.reflect_on_borders) -> Any:
    """Bounces the ball off both borders: gymnax's own lines for the upper one are comments."""
    sign = jnp.where(state.ball_position[0] < 0, -1, 1)
    state = state.replace(
        ball_position=state.ball_position.at[0].multiply(sign),
        ball_velocity=state.ball_velocity.at[0].multiply(sign),
    )
    return bounce(state, height)


class PongOracle(GymnaxOracle):
    """gymnax's Pong, with an upper border."""

    env_type = pong.Pong
    arguments = "width height paddle_half_height"
    helpers = (
        pong.update_game_state,
        pong.reflect_on_borders,
        pong.reflect_on_paddle,
        pong.move_ball,
        pong.move_paddles,
    )
    variants = (
        {"use_ai_policy": False, "ball_x_speed": 2, "paddle_y_speed": 2},
        {"width": 12, "height": 10, "paddle_half_height": 1, "ball_max_y_speed": 2},
    )

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        with mock.patch.object(pong, "reflect_on_borders", _bounce):
            return super().step(action)

    def get_state(self) -> PongState:
        left, right = np.int32(self.state.paddle_centers)
        ball_row, ball_column = np.int32(self.state.ball_position)
        last_row, last_column = np.int32(self.state.last_ball_position)
        row_speed, column_speed = np.int32(self.state.ball_velocity)
        return PongState(
            left=left,
            right=right,
            ball_row=ball_row,
            ball_column=ball_column,
            last_row=last_row,
            last_column=last_column,
            row_speed=row_speed,
            column_speed=column_speed,
        )

    def set_state(self, state: PongState) -> None:
        self.set_fields(
            paddle_centers=(state.left, state.right),
            ball_position=(state.ball_row, state.ball_column),
            last_ball_position=(state.last_row, state.last_column),
            ball_velocity=(state.row_speed, state.column_speed),
            time=0,
        )

    def unusual_states(self) -> Any:
        """Yields balls at all edges and paddles, with any speed."""
        height, width, half, *_ = (
            self.env.parameters[name] for name in ("height", "width", "paddle_half_height")
        )
        fastest = self.env.parameters["ball_max_y_speed"]
        for _ in range(400):
            left, right = self.random.integers(half, height - half, 2)
            near = self.random.choice([left, right, 1, height - 2])
            row = np.clip(near + self.random.integers(-half - 2, half + 3), 0, height - 1)
            column = self.random.choice([0, 1, 2, 3, width // 2, width - 4, width - 2, width - 1])
            values = (
                *(left, right, row, column, self.random.integers(height), column),
                self.random.integers(-fastest, fastest + 1),
                self.random.choice([-1, 1]) * self.env.parameters["ball_x_speed"],
            )
            yield PongState(
                **dict(zip(PongState.__dataclass_fields__, np.int32(values), strict=True))
            )

    @staticmethod
    def policy(env, state, key):
        """Follows the ball."""
        return jnp.where(
            state.ball_row < state.left, 1, jnp.where(state.ball_row > state.left, 2, 0)
        )


def _approach(key: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Returns a move (up, right, down, left) towards a cell, or a random one half of the time."""
    bits = jax.random.bits(key, (), jnp.uint32)
    upright = jnp.where(rows > 0, 2, 0)
    aside = jnp.where(columns > 0, 1, 3)
    towards = jnp.where(jnp.abs(rows) > jnp.abs(columns), upright, aside)
    return jnp.where(bits >> 31 == 0, towards, (bits % 4).astype(jnp.int32))


def record(id: str, num_steps: int) -> list[dict[str, Any]]:
    """Returns steps of gymnax as JSON, for the default parameters and each variant."""
    records = []
    for variant in ({}, *oracle_for(jaxenvs.make(id)).variants):
        env = jaxenvs.make(id, time_limit=None, **variant)
        oracle = oracle_for(env)(env, seed=0)
        act = jax.jit(oracle.policy)  # pyright: ignore[reportArgumentType]
        unusual = list(oracle.unusual_states())
        rows, terminated = [], True
        for i in range(num_steps):
            if i < num_steps // 2 and unusual:
                oracle.set_state(unusual[oracle.random.integers(len(unusual))])
            elif terminated:
                oracle.reset()
            state, action = oracle.get_state(), oracle.sample_action()
            if i % 4:
                action = np.asarray(act(env, state, jax.random.key(i)))
            observation, reward, terminated = oracle.step(action)
            seen = np.flatnonzero(observation)
            row = {
                "state": state,
                "action": action,
                "draws": oracle.get_draws() if hasattr(env, "draw") else None,
                "next_state": oracle.get_state(),
                "seen": seen,  # where the observation is not 0
                "values": np.asarray(observation, np.float32).reshape(-1)[seen],
                "reward": np.float32(reward),
                "terminated": terminated,
            }
            rows.append(_as_json(row))
        records.append({"id": id, "parameters": dict(variant), "steps": rows})
    return records


def _as_json(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _as_json(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return [_as_json(part) for part in value]
    if getattr(value, "dtype", None) == np.float32:
        return float(str(value))  # the shortest digits that give the same float32
    return value.item() if isinstance(value, np.ndarray | np.generic) else value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Records steps of gymnax.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--steps", type=int, default=16, help="number of steps per variant")
    options = parser.parse_args()
    ids = sorted(id for id, spec in jaxenvs.registry.items() if spec.family == "misc")
    records = [entry for id in ids for entry in record(id, options.steps)]
    lines = ",\n".join(json.dumps(entry) for entry in records)
    options.path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
