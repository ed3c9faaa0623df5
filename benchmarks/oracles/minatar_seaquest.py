"""MinAtar's Seaquest."""

from collections.abc import Iterator
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.oracles.minatar import MinAtarOracle
from jaxenvs.envs.minatar.seaquest import Enemies, SeaquestDraws, SeaquestState


class SeaquestOracle(MinAtarOracle):
    """MinAtar's Seaquest. Its lists become boards, see `jaxenvs.envs.minatar.seaquest`."""

    game = "seaquest"
    variants = ({"difficulty_ramping": False, "dtype": "float32"}, {"sticky_action_prob": 0.0})

    def __init__(self, env: Any, seed: int) -> None:
        super().__init__(env, seed)
        self.steps = 0

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        game = type(self.reference)
        parts = (game._surface, game._spawn_enemy, game._spawn_diver)
        return (*super().step_functions, *parts)

    def reset(self) -> np.ndarray:
        self.steps = 0
        return super().reset()

    def step(self, action: int | np.ndarray) -> tuple[np.ndarray, float, bool]:
        self.steps += 1
        return super().step(action)

    def get_draws(self) -> SeaquestDraws:
        drawn = self.generator.drawn[1:]
        has_enemy, has_diver = len(drawn) in (3, 5), len(drawn) in (2, 5)
        return SeaquestDraws(
            sticks=self._sticks(),
            enemy_from_left=np.bool_(has_enemy and drawn[0] < 1 / 2),
            enemy_is_sub=np.bool_(has_enemy and drawn[1] < 1 / 3),
            enemy_row=np.int32(drawn[2] if has_enemy else 0),
            diver_from_left=np.bool_(has_diver and drawn[-2] < 1 / 2),
            diver_row=np.int32(drawn[-1] if has_diver else 0),
        )  # pyright: ignore[reportArgumentType]

    def get_state(self) -> SeaquestState:
        game = self.reference
        ramp = 20 - game.e_spawn_speed
        assert game.move_speed == max(5 - ramp // 2, 2)
        shots, bullets = np.zeros(10, np.uint32), np.zeros(10, np.uint32)
        for board, flying in ((shots, game.f_bullets), (bullets, game.e_bullets)):
            for column, row, right in flying:
                board[row] |= 1 << (column + 10 * right)
        fish, subs = np.zeros((2, 10), np.uint32), np.zeros((4, 2, 10), np.uint32)
        heads_right = np.zeros(10, bool)
        for column, row, right, rest in game.e_fish:
            fish[rest // 3, row] |= 1 << (rest % 3 * 10 + column)
            heads_right[row] = right
        for column, row, right, rest, shot in game.e_subs:
            code = (self.steps + shot) % 11 + 1
            for i in range(4):
                subs[i, rest // 3, row] |= (code >> i & 1) << (rest % 3 * 10 + column)
            heads_right[row] = right
        rows, diver_heads_right = np.zeros(2, np.int32), np.zeros(2, bool)
        for column, row, right, rest in game.divers:
            moves = column if right else 9 - column
            i = int(moves != (30 - game.d_spawn_timer) // 6)
            assert rest == (game.d_spawn_timer + 5) % 6
            rows[i], diver_heads_right[i] = row, right
        return SeaquestState(
            row=np.int32(game.sub_y),
            column=np.int32(game.sub_x),
            faces_right=np.bool_(game.sub_or),
            rescued=np.int32(game.diver_count),
            oxygen=np.int32(game.oxygen),
            surfaced=np.bool_(game.surface),
            ramp=np.int32(ramp),
            shots=shots[:9],
            bullets=bullets[1:9],
            fish=Enemies(soon=fish[0, 1:9], late=fish[1, 1:9]),
            subs=Enemies(soon=subs[:, 0, 1:9], late=subs[:, 1, 1:9]),
            heads_right=heads_right[1:9],
            diver_rows=rows,
            diver_heads_right=diver_heads_right,
            shot_timer=np.int32(game.shot_timer),
            enemy_timer=np.int32(game.e_spawn_timer),
            diver_timer=np.int32(game.d_spawn_timer),
            clock=np.int32(self.steps % 11),
            last_action=self._last_action(),
        )  # pyright: ignore[reportArgumentType]

    def set_state(self, state: SeaquestState) -> None:
        game, ramp = self.reference, int(state.ramp)
        self.steps = int(state.clock)
        game.sub_y, game.sub_x = int(state.row), int(state.column)
        game.sub_or, game.surface = bool(state.faces_right), bool(state.surfaced)
        game.diver_count, game.oxygen = int(state.rescued), int(state.oxygen)
        game.shot_timer, game.e_spawn_timer = int(state.shot_timer), int(state.enemy_timer)
        game.d_spawn_timer, game.ramp_index = int(state.diver_timer), ramp
        game.e_spawn_speed, game.move_speed = 20 - ramp, max(5 - ramp // 2, 2)
        for flying, board, top in (("f_bullets", state.shots, 0), ("e_bullets", state.bullets, 1)):
            places = [(i, row) for row, word in enumerate(board.tolist(), top) for i in _bits(word)]
            setattr(game, flying, [[i % 10, row, i >= 10] for i, row in places])
        game.e_fish, game.e_subs, game.divers = [], [], []
        fish = np.stack([state.fish.soon, state.fish.late], axis=1).tolist()
        subs = np.stack([state.subs.soon, state.subs.late], axis=1).transpose(2, 1, 0).tolist()
        for row in range(1, 9):
            right, found = bool(state.heads_right[row - 1]), []
            for i, half in ((i, half) for half in (0, 1) for i in range(30)):
                column, rest = i % 10, 3 * half + i // 10
                if fish[row - 1][half] >> i & 1:
                    found.append([column, row, right, rest])
                code = sum(
                    (word >> i & 1) << digit for digit, word in enumerate(subs[row - 1][half])
                )
                if code:
                    found.append([column, row, right, rest, (code - 1 - self.steps) % 11])
            # The oldest has come furthest, and is the next to move among those in its cell.
            found.sort(key=lambda enemy: (-enemy[0] if enemy[2] else enemy[0], enemy[3]))
            game.e_fish += [enemy for enemy in found if len(enemy) == 4]
            game.e_subs += [enemy for enemy in found if len(enemy) == 5]
        timer = game.d_spawn_timer
        for i in (1, 0):
            row, right = int(state.diver_rows[i]), bool(state.diver_heads_right[i])
            moves = 5 * i + (30 - timer) // 6
            if row:
                game.divers.append([moves if right else 9 - moves, row, right, (timer + 5) % 6])
        self._set_last_action(state)

    def unusual_states(self) -> Iterator[SeaquestState]:
        """Plays on in crowds after the game is over, with any number of divers and any oxygen."""
        number = self.random.integers
        for _ in range(60):
            self.reset()
            game = self.reference
            if self.env.parameters["difficulty_ramping"]:
                game.ramp_index = int(self.random.choice([0, 2, 6, 12, 17, 19]))
                game.e_spawn_speed = 20 - game.ramp_index
                game.move_speed = max(5 - game.ramp_index // 2, 2)
            game.sub_y = int(number(9))
            for step in range(int(number(30, 120))):
                if step % 25 == 0:
                    game.diver_count, game.oxygen = int(number(-2, 7)), int(number(201))
                self.step(self.sample_action())
                game.terminal, game.oxygen = False, max(game.oxygen, 0)
            for _ in range(5):
                yield self.get_state()
                self.step(self.sample_action())
                game.terminal = False

    @staticmethod
    def policy(env, state, key):
        """Looks two steps ahead, picks up divers, and surfaces in time."""
        nothing = SeaquestDraws(
            sticks=jnp.bool_(False),
            enemy_from_left=jnp.bool_(False),
            enemy_is_sub=jnp.bool_(False),
            enemy_row=jnp.int32(0),
            diver_from_left=jnp.bool_(False),
            diver_row=jnp.int32(0),
        )  # pyright: ignore[reportArgumentType]
        actions = jnp.arange(len(env.actions), dtype=jnp.int32)
        ahead = jax.vmap(lambda state, action: env.apply(state, action, nothing), (None, 0))
        after, first = ahead(state, actions)
        _, second = jax.vmap(ahead, (0, None))(after, actions)
        survives = ~first.terminated & ~second.terminated.all(axis=1)
        row, moves = state.diver_rows, (30 - state.diver_timer) // 6 + np.array([0, 5], np.int32)
        column = jnp.where(state.diver_heads_right, moves, 9 - moves)
        distance = jnp.abs(after.row[:, None] - row[None])
        distance += jnp.abs(after.column[:, None] - column[None])
        distance = jnp.where(row[None] > 0, distance, 12).min(axis=1)
        wants_air = (state.oxygen < 60) & (state.rescued > 0) | (state.rescued == 6)
        distance = jnp.where(wants_air, after.row, distance)
        lands = (after.oxygen > state.oxygen) & ~wants_air
        score = 100 * survives.astype(jnp.float32) + 5 * first.reward
        score += 0.1 * jax.random.uniform(key, actions.shape, jnp.float32)
        score -= distance.astype(jnp.float32) + 20 * lands.astype(jnp.float32)
        score += jnp.where(actions == env.actions.index("f"), np.float32(0.5), 0)
        return jnp.argmax(score).astype(jnp.int32)


def _bits(word: int) -> list[int]:
    """Returns the positions of the bits that are set."""
    return [i for i in range(20) if word >> i & 1]
