"""Gymnasium's toy text environments."""

from types import FunctionType
from typing import Any, ClassVar

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.toy_text import blackjack
from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from benchmarks.oracles import Oracle, table_of
from jaxenvs.core import Environment
from jaxenvs.envs.toy_text import (
    BlackjackDraws,
    BlackjackState,
    TabularState,
    TaxiState,
    TransitionTable,
)


class Float32Generator:
    """A NumPy generator whose uniform numbers are float32, and which records its results."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self.drawn: list[Any] = []

    def random(self) -> float:
        self.drawn.append(float(self._generator.random(dtype=np.float32)))
        return self.drawn[-1]

    def choice(self, values: Any) -> Any:
        self.drawn.append(self._generator.choice(values))
        return self.drawn[-1]


class GymnasiumOracle(Oracle):
    """An environment of Gymnasium, made without wrappers."""

    package = "gymnasium"
    unreachable: ClassVar = ("self.render()",)
    env_type: ClassVar[type[gymnasium.Env]]

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.reference: Any = self.env_type(**self.options())
        self.generator = Float32Generator(seed + 1)  # apart from that of actions
        self.reference.np_random = self.generator

    def options(self) -> dict[str, Any]:
        """Returns the arguments of the reference for the parameters of `env`."""
        return dict(self.env.parameters)

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        return (self.env_type.step,)  # pyright: ignore[reportReturnType]

    def reset(self) -> Any:
        return self.reference.reset()[0]

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        self.generator.drawn = []
        observation, reward, terminated, _, _ = self.reference.step(int(action))
        return observation, reward, terminated


class TabularOracle(GymnasiumOracle):
    """An environment with a table `P` and a state `s`."""

    def get_state(self) -> Any:
        return TabularState(s=np.int32(self.reference.s))

    def set_state(self, state: Any) -> None:
        self.reference.s = int(state.s)

    def get_draws(self) -> Any:
        return np.float32(self.generator.drawn[0]) if self.env.num_outcomes > 1 else None  # pyright: ignore[reportAttributeAccessIssue]

    def get_table(self) -> TransitionTable:
        P, outcomes = self.reference.P, self.env.num_outcomes  # pyright: ignore[reportAttributeAccessIssue]
        # Outcomes that are missing have probability 0. Only then does the rest not matter.
        ours = table_of(self.env)
        table = [
            np.array(leaf)
            for leaf in (ours.probability, ours.next_state, ours.reward, ours.terminated)
        ]
        for s, actions in P.items():
            for action, entries in actions.items():
                assert len(entries) <= outcomes
                table[0][s, action, len(entries) :] = 0
                for i, entry in enumerate(entries):
                    for leaf, value in zip(table, entry, strict=True):
                        leaf[s, action, i] = value
        probability, next_state, reward, terminated = table
        return TransitionTable(
            probability=probability, next_state=next_state, reward=reward, terminated=terminated
        )


class FrozenLakeOracle(TabularOracle):
    """Gymnasium's FrozenLake."""

    env_type = FrozenLakeEnv
    variants = (
        {"is_slippery": False},
        {"success_rate": 0.75, "reward_schedule": (10.0, -3.0, -0.5)},
        {"desc": ["SFHS", "FFFF", "GFHF"]},
    )

    def options(self) -> dict[str, Any]:
        options = super().options()
        if options["desc"] is not None:
            options["desc"] = [bytes(row).decode() for row in options["desc"]]
        return options

    @staticmethod
    def policy(env, state, key):
        """Prefers to move down and to the right."""
        return jnp.where(jnp.asarray(key_bits(key) % 4 < 3), 1 + key_bits(key) % 2, 3)


class CliffWalkingOracle(TabularOracle):
    """Gymnasium's CliffWalking."""

    env_type = CliffWalkingEnv
    variants = ({"is_slippery": True},)

    @staticmethod
    def policy(env, state, key):
        """Walks along the upper edge, then down."""
        row, column = state.s // 12, state.s % 12
        return jnp.where(column == 11, 2, jnp.where(row > 0, 0, 1))


class TaxiOracle(TabularOracle):
    """Gymnasium's Taxi."""

    env_type = TaxiEnv
    variants = (
        {"is_rainy": True},
        {"is_rainy": True, "fickle_passenger": True, "rainy_probability": 0.6},
        {"fickle_passenger": True, "fickle_probability": 0.9},
    )

    def get_state(self) -> TaxiState:
        return TaxiState(
            s=np.int32(self.reference.s), is_fickle=np.bool_(self.reference.fickle_step)
        )

    def set_state(self, state: TaxiState) -> None:
        super().set_state(state)
        self.reference.fickle_step = bool(state.is_fickle)

    def get_draws(self) -> Any:
        u, *choice = self.generator.drawn
        shift = None
        if self.env.parameters["fickle_passenger"]:
            # The reference draws a destination, ours a distance from the old one.
            shift = np.int32((choice[0] - self._destination) % 4 if choice else 1)
        return np.float32(u) if self.env.parameters["is_rainy"] else None, shift

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        self._destination = int(self.reference.s) % 4
        return super().step(action)

    def unusual_states(self) -> Any:
        for s in range(500):
            for is_fickle in (False, True)[: 1 + self.env.parameters["fickle_passenger"]]:
                yield TaxiState(s=np.int32(s), is_fickle=np.bool_(is_fickle))

    @staticmethod
    def policy(env, state, key):
        """Picks up and drops off wherever that is possible; otherwise drives at random."""
        from jaxenvs.envs.toy_text.taxi import action_mask

        mask = action_mask(state.s)
        drive = (key_bits(key) % 4).astype(jnp.int32)
        return jnp.where(mask[5] == 1, 5, jnp.where(mask[4] == 1, 4, drive))


class BlackjackOracle(GymnasiumOracle):
    """Gymnasium's Blackjack. The dealer's hidden card is drawn anew by `set_state`."""

    env_type = BlackjackEnv
    variants = ({"sab": False}, {"sab": False, "natural": True})

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        rules = (blackjack.sum_hand, blackjack.usable_ace, blackjack.score, blackjack.is_natural)
        return (*super().step_functions, BlackjackEnv._get_obs, *rules, blackjack.cmp)

    def get_state(self) -> BlackjackState:
        hand = self.reference.player
        return BlackjackState(
            total=np.int32(sum(hand)),
            has_ace=np.bool_(1 in hand),
            is_first=np.bool_(len(hand) == 2),
            dealer=np.int32(self.reference.dealer[0]),
        )

    def set_state(self, state: BlackjackState) -> None:
        self.reference.dealer = [int(state.dealer), int(blackjack.draw_card(self.generator))]
        rest, hand = int(state.total), [1] if state.has_ace else []
        rest -= sum(hand)
        # Without an ace among them, and two cards only if the hand says so.
        count = 2 - len(hand) if state.is_first else max(2 - len(hand) + 1, -(-rest // 10))
        for left in range(count, 0, -1):
            hand.append(min(10, max(2, rest - 10 * (left - 1)), rest - 2 * (left - 1)))
            rest -= hand[-1]
        self.reference.player = hand

    def get_draws(self) -> BlackjackDraws:
        drawn = self.generator.drawn
        card = drawn[0] if drawn else 1
        dealer = self.reference.dealer
        score = 22 if blackjack.is_natural(dealer) else blackjack.score(dealer)
        return BlackjackDraws(card=np.int32(card), dealer_score=np.int32(score))

    @staticmethod
    def policy(env, state, key):
        """Hits below 17."""
        score, _, _ = env._observe(state)
        return (score < 17).astype(jnp.int32)


def key_bits(key):
    """Returns a few random bits, uint32[]."""
    import jax

    return jax.random.bits(key, (), jnp.uint32) >> jnp.uint32(8)
