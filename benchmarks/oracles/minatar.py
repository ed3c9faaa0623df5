"""MinAtar's games."""

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import minatar
import numpy as np

from benchmarks.oracles import Oracle, RecordingGenerator
from jaxenvs.core import Environment
from jaxenvs.envs.minatar import AsterixState, BreakoutState, FreewayState, SpaceInvadersState
from jaxenvs.envs.minatar._minatar import ACTIONS, Draws, MinAtar
from jaxenvs.envs.minatar.asterix import AsterixDraws
from jaxenvs.envs.minatar.freeway import FreewayDraws


class MinAtarOracle(Oracle):
    """A game of MinAtar, in which the last action does not survive the episode."""

    package = "MinAtar"
    unreachable: ClassVar = ("return r, self.terminal",)  # also the guard against steps after it
    game: ClassVar[str]
    env: MinAtar

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        parameters = env.parameters
        self.generator = RecordingGenerator(np.random.RandomState(seed))
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


class AsterixOracle(MinAtarOracle):
    """MinAtar's Asterix."""

    game = "asterix"
    variants = (
        {"use_minimal_action_set": True, "dtype": "float32"},
        {"sticky_action_prob": 0.0, "difficulty_ramping": False},
    )

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (*super().step_functions, type(self.reference)._spawn_entity)

    def get_state(self) -> AsterixState:
        game, index = self.reference, self.reference.ramp_index
        # So our state leaves them out.
        assert (game.spawn_speed, game.move_speed) == (10 - index, 5 - index // 2)
        assert game.shot_timer == 0
        entities = [entity or (-1, None, False, False) for entity in game.entities]
        assert all(entity[1] in (None, i + 1) for i, entity in enumerate(entities))
        return AsterixState(
            player_row=np.int32(game.player_y),
            player_column=np.int32(game.player_x),
            columns=_to_lanes(entity[0] + 1 for entity in entities),
            moves_right=_to_lanes(entity[2] for entity in entities),
            is_gold=_to_lanes(entity[3] for entity in entities),
            spawn_timer=np.int32(game.spawn_timer),
            move_timer=np.int32(game.move_timer),
            ramp_timer=np.int32(game.ramp_timer),
            ramp_index=np.int32(index),
            last_action=self._last_action(),
        )  # pyright: ignore[reportArgumentType]

    def set_state(self, state: AsterixState) -> None:
        game = self.reference
        game.player_y, game.player_x = int(state.player_row), int(state.player_column)
        fields = (state.columns, state.moves_right, state.is_gold)
        game.entities = [
            [column - 1, i + 1, bool(moves_right), bool(is_gold)] if column else None
            for i, (column, moves_right, is_gold) in enumerate(
                zip(*map(_of_lanes, fields), strict=True)
            )
        ]
        game.ramp_index = int(state.ramp_index)
        game.spawn_speed, game.move_speed = 10 - game.ramp_index, 5 - game.ramp_index // 2
        game.spawn_timer, game.move_timer = int(state.spawn_timer), int(state.move_timer)
        game.ramp_timer = int(state.ramp_timer)
        self._set_last_action(state)

    def get_draws(self) -> AsterixDraws:
        from_left, is_gold, place = np.bool_(False), np.bool_(False), np.float32(0)
        drawn = self.generator.drawn
        if len(drawn) > 1:
            from_left, is_gold = np.bool_(drawn[1] < 1 / 2), np.bool_(drawn[2] < 1 / 3)
        if len(drawn) > 3:
            place = np.float32((drawn[3] + 0.5) / self.number_free)
        return AsterixDraws(
            sticks=self._sticks(), from_left=from_left, is_gold=is_gold, place=place
        )  # pyright: ignore[reportArgumentType]

    def step(self, action: int | np.ndarray) -> tuple[np.ndarray, float, bool]:
        self.number_free = self.reference.entities.count(None)
        return super().step(action)

    def unusual_states(self) -> Iterator[AsterixState]:
        """Puts few or many objects anywhere, often beside the player, at all speeds."""
        number, chance = self.random.integers, self.random.random
        for i in range(400):
            column = number(10)
            columns = number(10, size=8)
            near = chance(8) < 0.3
            columns[near] = np.clip(column + number(-1, 2, size=near.sum()), 0, 9)
            free = chance(8) < (0, 0.2, 0.5, 1)[i % 4]
            if i % 8 == 0:
                free[number(8)] = True
            index = number(10) if self.env.difficulty_ramping else 0
            yield AsterixState(
                player_row=np.int32(number(1, 9)),
                player_column=np.int32(column),
                columns=_to_lanes(np.where(free, 0, columns + 1)),
                moves_right=_to_lanes(~free & number(2, size=8).astype(bool)),
                is_gold=_to_lanes(~free & number(2, size=8).astype(bool)),
                spawn_timer=np.int32(number(10 - index) * number(2)),
                move_timer=np.int32(number(5 - index // 2) * number(2)),
                ramp_timer=np.int32(number(-1, 101) if number(2) and index < 9 else number(-1, 2)),
                ramp_index=np.int32(index),
                last_action=np.int32(number(self.env.action_space.n)),
            )  # pyright: ignore[reportArgumentType]

    @staticmethod
    def policy(env, state, key):
        """Plans as far as to the next few objects."""
        return look_ahead(env, state, key, 8)


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


class FreewayOracle(MinAtarOracle):
    """MinAtar's Freeway."""

    game = "freeway"
    variants = ({"use_minimal_action_set": True, "dtype": "float32"}, {"sticky_action_prob": 0.0})
    # Only a reset makes the cars.
    unreachable = (*MinAtarOracle.unreachable, "self.cars = []", "range(8):", "self.cars+=[")

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (*super().step_functions, type(self.reference)._randomize_cars)

    def get_state(self) -> FreewayState:
        game = self.reference
        assert [car[1] for car in game.cars] == [*range(1, 9)]
        return FreewayState(
            chicken=np.int32(game.pos),
            columns=_to_lanes(car[0] for car in game.cars),
            speeds=_to_lanes(abs(car[3]) for car in game.cars),
            moves_right=_to_lanes(car[3] > 0 for car in game.cars),
            timers=_to_lanes(car[2] for car in game.cars),
            move_timer=np.int32(game.move_timer),
            steps_left=np.int32(game.terminate_timer),
            last_action=self._last_action(),
        )  # pyright: ignore[reportArgumentType]

    def set_state(self, state: FreewayState) -> None:
        game = self.reference
        fields = (state.columns, state.timers, state.speeds, state.moves_right)
        game.cars = [
            [column, i + 1, timer, speed if moves_right else -speed]
            for i, (column, timer, speed, moves_right) in enumerate(
                zip(*map(_of_lanes, fields), strict=True)
            )
        ]
        game.pos, game.move_timer = int(state.chicken), int(state.move_timer)
        game.terminate_timer = int(state.steps_left)
        self._set_last_action(state)

    def get_draws(self) -> FreewayDraws:
        speeds = [0] * 8 if len(self.generator.drawn) == 1 else [x[3] for x in self.reference.cars]
        return FreewayDraws(
            sticks=self._sticks(),
            speeds=_to_lanes(abs(speed) for speed in speeds),
            moves_right=_to_lanes(speed > 0 for speed in speeds),
        )  # pyright: ignore[reportArgumentType]

    def unusual_states(self) -> Iterator[FreewayState]:
        """Puts cars anywhere, often beside the chicken, which can often move, at all times."""
        number = self.random.integers
        for i in range(400):
            speeds = number(1, 6, size=8)
            yield FreewayState(
                chicken=np.int32(number(1, 10) if i % 4 else 1),
                columns=_to_lanes(number(10, size=8) if i % 2 else number(3, 6, size=8)),
                speeds=_to_lanes(speeds),
                moves_right=_to_lanes(number(2, size=8)),
                timers=_to_lanes(number(speeds + 1) * number(2, size=8)),
                move_timer=np.int32(number(3) * number(2)),
                steps_left=np.int32(number(2501) if i % 8 else number(2)),
                last_action=np.int32(number(self.env.action_space.n)),
            )  # pyright: ignore[reportArgumentType]

    @staticmethod
    def policy(env, state, key):
        """Goes up where no car comes."""
        return look_ahead(env, state, key, 8, lambda state: 9 - state.chicken)


class SpaceInvadersOracle(MinAtarOracle):
    """MinAtar's Space Invaders."""

    game = "space_invaders"
    variants = (
        {"use_minimal_action_set": True, "dtype": "float32"},
        {"sticky_action_prob": 0.0, "difficulty_ramping": False},
    )
    unreachable = (*MinAtarOracle.unreachable, "return None")  # there is always an alien

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (*super().step_functions, type(self.reference)._nearest_alien)

    def get_state(self) -> SpaceInvadersState:
        game = self.reference
        interval = game.enemy_move_interval
        assert game.ramp_index == 12 - interval  # so our state leaves it out
        return SpaceInvadersState(
            cannon=np.int32(game.pos),
            aliens=_to_bits(game.alien_map),
            cannon_bullets=_to_bits(game.f_bullet_map),
            alien_bullets=_to_bits(game.e_bullet_map),
            moves_right=np.bool_(game.alien_dir > 0),
            move_interval=np.int32(interval),
            move_timer=np.int32(game.alien_move_timer),
            shot_timer=np.int32(game.shot_timer),
            alien_shot_timer=np.int32(game.alien_shot_timer),
            last_action=self._last_action(),
        )  # pyright: ignore[reportArgumentType]

    def set_state(self, state: SpaceInvadersState) -> None:
        game = self.reference
        game.pos, game.alien_dir = int(state.cannon), 1 if state.moves_right else -1
        game.alien_map = _to_map(state.aliens)
        game.f_bullet_map = _to_map(state.cannon_bullets)
        game.e_bullet_map = _to_map(state.alien_bullets)
        game.enemy_move_interval = int(state.move_interval)
        game.ramp_index = 12 - game.enemy_move_interval
        game.alien_move_timer, game.shot_timer = int(state.move_timer), int(state.shot_timer)
        game.alien_shot_timer = int(state.alien_shot_timer)
        self._set_last_action(state)

    def unusual_states(self) -> Iterator[SpaceInvadersState]:
        """Makes waves anywhere, of few or many aliens, and lone aliens, amid many bullets."""
        number, chance = self.random.integers, self.random.random
        for i in range(400):
            aliens = np.zeros((10, 10), bool)
            row, column = number(7), number(5)
            aliens[row : row + 4, column : column + 6] = chance((4, 6)) < number(1, 5) / 4
            if i % 4 == 0:
                aliens[:] = False
            aliens[number(10), number(10)] = True
            bullets = chance((2, 10, 10)) < number(4, size=(2, 1, 1)) / 10
            bullets[0, 9] = False
            yield SpaceInvadersState(
                cannon=np.int32(number(10)),
                aliens=_to_bits(aliens),
                cannon_bullets=_to_bits(bullets[0]),
                alien_bullets=_to_bits(bullets[1]),
                moves_right=np.bool_(number(2)),
                move_interval=np.int32(number(6, 13) if self.env.difficulty_ramping else 12),
                move_timer=np.int32(number(12) * number(2)),
                shot_timer=np.int32(number(5) * number(2)),
                alien_shot_timer=np.int32(number(10) * number(2)),
                last_action=np.int32(number(self.env.action_space.n)),
            )  # pyright: ignore[reportArgumentType]

    @staticmethod
    def policy(env, state, key):
        """Plans as far as a bullet flies."""
        return look_ahead(env, state, key, 10)


def look_ahead(
    env: Any,
    state: Any,
    key: jax.Array,
    horizon: int,
    value: Callable[[Any], Any] = lambda state: 0,
) -> jax.Array:
    """Returns the first action of the plan that survives longest and then scores most.

    A plan is one action, followed by another that is repeated until the horizon. `value` compares
    the last states of plans with equal scores.
    """
    actions = np.array([env.actions.index(letter) for letter in env.minimal_actions], np.int32)
    keys = jax.random.split(key, horizon)

    def follow(first: jax.Array, then: jax.Array) -> jax.Array:
        def step(carry: Any, row: Any) -> tuple[Any, None]:
            (state, total, alive), (key, action) = carry, row
            draws = env.draw(state, key).replace(sticks=jnp.bool_(False))
            state, reward, terminated = env.transition(state, action, draws)
            alive &= ~terminated
            return (state, total + jnp.where(alive, 100 + 10 * reward, 0), alive), None

        plan = jnp.where(np.arange(horizon) == 0, first, then)
        start = state, jnp.float32(0), jnp.bool_(True)
        end, total, _ = jax.lax.scan(step, start, (keys, plan))[0]
        return total + jnp.float32(value(end))

    first, then = np.repeat(actions, len(actions)), np.tile(actions, len(actions))
    return jnp.asarray(first)[jnp.argmax(jax.vmap(follow)(first, then))]


def _to_bits(board: np.ndarray) -> np.ndarray:
    """Returns bit c of word r for cell (r, c) of a map."""
    return (np.asarray(board, np.uint32) << np.arange(10, dtype=np.uint32)).sum(1, dtype=np.uint32)


def _to_map(bits: np.ndarray) -> np.ndarray:
    return (np.asarray(bits)[:, None] >> np.arange(10, dtype=np.uint32) & 1).astype(np.float64)


def _to_lanes(numbers: Iterable[Any]) -> np.uint32:
    """Returns a word of eight numbers of four bits each."""
    return np.uint32(sum(int(number) << 4 * i for i, number in enumerate(numbers)))


def _of_lanes(word: Any) -> list[int]:
    return [int(word) >> 4 * i & 15 for i in range(8)]
