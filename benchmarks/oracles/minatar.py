"""MinAtar's games."""

from collections.abc import Iterator
from types import FunctionType
from typing import Any, ClassVar

import jax.numpy as jnp
import minatar
import numpy as np

from benchmarks.oracles import Oracle, RecordingRandomState
from jaxenvs.core import Environment
from jaxenvs.envs.minatar import BreakoutState
from jaxenvs.envs.minatar._minatar import ACTIONS, Draws, MinAtar


class MinAtarOracle(Oracle):
    """A game of MinAtar, in which the last action does not survive the episode."""

    package = "MinAtar"
    unreachable: ClassVar = ("return r, self.terminal",)  # also the guard against steps after it
    game: ClassVar[str]
    env: MinAtar

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        parameters = env.parameters
        self.generator = RecordingRandomState(seed)
        self.wrapper = minatar.Environment(
            self.game,
            sticky_action_prob=parameters["sticky_action_prob"],
            difficulty_ramping=parameters.get("difficulty_ramping", True),
        )
        self.wrapper.random = self.reference.random = self.generator

    @property
    def reference(self) -> Any:
        return self.wrapper.env

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (minatar.Environment.act, type(self.reference).act, type(self.reference).state)

    def reset(self) -> np.ndarray:
        self.wrapper.reset()
        self.wrapper.last_action = 0
        return self._observe()

    def step(self, action: int | np.ndarray) -> tuple[np.ndarray, float, bool]:
        self.generator.drawn = []
        reward, terminated = self.wrapper.act(ACTIONS.index(self.env.actions[int(action)]))
        return self._observe(), float(reward), terminated

    def get_draws(self) -> Any:
        return Draws(sticks=self._sticks())  # pyright: ignore[reportArgumentType]

    def _sticks(self) -> np.bool_:
        return np.bool_(self.generator.drawn[0] < self.env.sticky_action_prob)

    def _observe(self) -> np.ndarray:
        return self.wrapper.state().astype(self.env.dtype)

    def _last_action(self) -> np.int32:
        return np.int32(self.env.actions.index(ACTIONS[self.wrapper.last_action]))

    def _set_last_action(self, state: Any) -> None:
        self.wrapper.last_action = ACTIONS.index(self.env.actions[int(state.last_action)])
        self.reference.terminal = False


class BreakoutOracle(MinAtarOracle):
    """MinAtar's Breakout."""

    game = "breakout"
    variants = ({"use_minimal_action_set": True, "dtype": "float32"}, {"sticky_action_prob": 0.0})

    def get_state(self) -> BreakoutState:
        game = self.reference
        bricks = np.flatnonzero(game.brick_map[1:4])
        return BreakoutState(
            paddle=np.int32(game.pos),
            ball_row=np.int32(game.ball_y),
            ball_column=np.int32(game.ball_x),
            moves_down=np.bool_(game.ball_dir in (2, 3)),
            moves_right=np.bool_(game.ball_dir in (1, 2)),
            last_row=np.int32(game.last_y),
            last_column=np.int32(game.last_x),
            bricks=np.uint32(sum(1 << int(i) for i in bricks)),
            strike=np.bool_(game.strike),
            last_action=self._last_action(),
        )  # pyright: ignore[reportArgumentType]

    def set_state(self, state: BreakoutState) -> None:
        game = self.reference
        game.pos, game.strike = int(state.paddle), bool(state.strike)
        game.ball_y, game.ball_x = int(state.ball_row), int(state.ball_column)
        game.last_y, game.last_x = int(state.last_row), int(state.last_column)
        game.ball_dir = (
            (2 if state.moves_right else 3) if state.moves_down else int(state.moves_right)
        )
        bricks = [int(state.bricks) >> i & 1 for i in range(30)]
        game.brick_map[1:4] = np.reshape(bricks, (3, 10))
        self._set_last_action(state)

    def unusual_states(self) -> Iterator[BreakoutState]:
        """Puts the ball anywhere, with few bricks left."""
        for _ in range(300):
            self.reset()
            game, number = self.reference, self.random.integers
            game.pos, game.ball_y, game.ball_x = int(number(10)), int(number(9)), int(number(10))
            game.last_y, game.last_x = int(number(9)), int(number(10))
            game.ball_dir, game.strike = int(number(4)), bool(number(2))
            game.brick_map[1:4] *= self.random.random((3, 10)) < number(3) / 2
            yield self.get_state()

    @staticmethod
    def policy(env, state, key):
        """Follows the ball."""
        step = jnp.sign(state.ball_column - state.paddle)
        left, right = env.actions.index("l"), env.actions.index("r")
        return jnp.where(step < 0, left, jnp.where(step > 0, right, 0))
