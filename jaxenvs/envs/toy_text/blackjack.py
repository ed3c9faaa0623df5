"""The card game blackjack."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.rendering.raster import BLACK, WHITE, Color, box, paint, pixel_grid

CARDS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10], np.int32)  # an ace is 1
ACE, NATURAL = 1, 22  # NATURAL is the dealer's score with an ace and a ten
SCORES = np.array([0, 17, 18, 19, 20, 21, NATURAL], np.int32)  # of the dealer; 0 for a bust

_FELT: Color = (60, 130, 80)
_RED: Color = (190, 40, 40)


@chex.dataclass(frozen=True)
class BlackjackState:
    """The player's hand and the dealer's open card. The dealer's other cards are not drawn yet."""

    total: jax.Array  # int32[], sum of the player's cards, aces as 1
    has_ace: jax.Array  # bool[], whether the player has an ace
    is_first: jax.Array  # bool[], whether the player has the first two cards only
    dealer: jax.Array  # int32[], the dealer's open card, 1 to 10


@chex.dataclass(frozen=True)
class BlackjackDraws:
    """The random outcomes of a step. Only one of them is used, depending on the action."""

    card: jax.Array  # int32[], the card for a player who hits, 1 to 10
    dealer_score: jax.Array  # int32[], one of SCORES, if the player sticks


class Blackjack(Environment[BlackjackState]):
    """Draw cards for a sum that is closer to 21 than the dealer's, without exceeding it.

    Observation: a tuple of int32[]: the player's sum, the dealer's open card (1 to 10, an ace is
        1), and whether the player has an ace that counts as 11 (0 or 1)
    Action: int32[], 0 sticks, 1 hits
    Reward: at the end, 1 for a win, -1 for a loss, 0 for a draw; before that, 0
    Start: two cards each for the player and the dealer, from an infinite deck
    Terminates: when the player sticks, or exceeds 21
    Time limit: none; every episode terminates

    An ace counts as 11 unless the sum would exceed 21. When the player sticks, the dealer draws
    cards up to a sum of at least 17. A natural is an ace and a ten as the first two cards.
    With `sab`, `natural` is ignored.

    The dealer's hidden cards influence nothing before the player sticks. They are drawn then, in
    one draw from the exact distribution of the dealer's score.

    Source: R. S. Sutton, A. G. Barto, Reinforcement Learning: An Introduction, 2018, example 5.1,
    as Gymnasium's Blackjack-v1 (tests/parity/test_certificates.py).
    """

    natural: bool = struct.static(False)  # a win with a natural is worth 1.5
    sab: bool = struct.static(False)  # a natural wins against every other hand, as in the book

    @property
    def observation_space(self) -> spaces.Tuple:
        return spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2)])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[BlackjackState, TimeStep]:
        cards = _card(spaces.Discrete(len(CARDS)).sample(key, (3,)))
        state = BlackjackState(
            total=cards[0] + cards[1],
            has_ace=(cards[0] == ACE) | (cards[1] == ACE),
            is_first=jnp.bool_(True),
            dealer=cards[2],
        )
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: BlackjackState, key: chex.PRNGKey) -> BlackjackDraws:
        """Draws a card and the dealer's score. Only one is used, so both use one number."""
        u = jax.random.uniform(key, (), jnp.float32)
        limits = jnp.asarray(_dealer_table()[:, :-1])[state.dealer - 1]
        which = (limits <= u).sum(dtype=jnp.int32)
        score = jnp.where(which == 0, 0, jnp.where(which == 6, NATURAL, which + 16))
        # A product of less than 13 can be rounded up to 13.
        index = jnp.minimum((u * len(CARDS)).astype(jnp.int32), len(CARDS) - 1)
        return BlackjackDraws(card=_card(index), dealer_score=score)

    def apply(
        self, state: BlackjackState, action: chex.Array, draws: BlackjackDraws
    ) -> tuple[BlackjackState, TimeStep]:
        """Takes a step with the results of `draw`."""
        hits = jnp.asarray(action, jnp.int32) == 1
        own_natural = state.is_first & state.has_ace & (state.total == 11)
        score, _ = _score(state)
        dealer_natural = draws.dealer_score == NATURAL
        result = jnp.sign(score - jnp.minimum(draws.dealer_score, 21)).astype(jnp.float32)
        if self.sab:
            result = jnp.where(own_natural & ~dealer_natural, jnp.float32(1), result)
        elif self.natural:
            result = jnp.where(own_natural & (result == 1), jnp.float32(1.5), result)

        state = BlackjackState(
            total=jnp.where(hits, state.total + draws.card, state.total),
            has_ace=state.has_ace | (hits & (draws.card == ACE)),
            is_first=state.is_first & ~hits,
            dealer=state.dealer,
        )
        is_bust = state.total > 21
        reward = jnp.where(hits, jnp.where(is_bust, jnp.float32(-1), jnp.float32(0)), result)
        return state, TimeStep.transition(
            self._observe(state), reward=reward, terminated=~hits | is_bust
        )

    def step(
        self, state: BlackjackState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BlackjackState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: BlackjackState) -> jax.Array:
        """Draws the dealer's open card above the player's sum: uint8[200, 160, 3].

        The sum is red while an ace counts as 11.
        """
        x, y = pixel_grid((200, 160))
        score, usable = _score(state)
        dealer = (
            *_digits(x, y, (104.0, 150.0), state.dealer, BLACK),
            (box(x, y, (56.0, 150.0), (44.0, 64.0)), BLACK),
            (box(x, y, (56.0, 150.0), (38.0, 58.0)), _RED),
        )
        color = jnp.where(usable, 1.0, 0.0)
        digits = _digits(x, y, (80.0, 50.0), score, BLACK)
        red = [(shape * color, _RED) for shape, _ in digits]
        cards = (box(x, y, (104.0, 150.0), (44.0, 64.0)), box(x, y, (80.0, 50.0), (72.0, 72.0)))
        return paint(_FELT, *((card, WHITE) for card in cards), *dealer, *digits, *red)

    def _observe(self, state: BlackjackState) -> tuple[jax.Array, jax.Array, jax.Array]:
        score, usable = _score(state)
        return score, state.dealer, usable.astype(jnp.int32)


def _card(index: jax.Array) -> jax.Array:
    """Returns the value of a card of the suit, given its index from 0 to 12."""
    return jnp.minimum(index + 1, 10)


def _score(state: BlackjackState) -> tuple[jax.Array, jax.Array]:
    """Returns the player's sum, and whether an ace counts as 11 in it."""
    usable = state.has_ace & (state.total <= 11)
    return jnp.where(usable, state.total + 10, state.total), usable


@functools.cache
def _dealer_table() -> np.ndarray:
    """Returns the cumulative probabilities of SCORES for each open card, float32[10, 7]."""

    def scores(total: int, has_ace: bool) -> np.ndarray:
        """Returns the probabilities of SCORES for a hand of at least two cards."""
        best = total + 10 if has_ace and total <= 11 else total
        if best >= 17:
            score = best if best <= 21 else 0
            return np.equal(score, SCORES).astype(np.float64)
        return np.mean([scores(total + card, has_ace or card == ACE) for card in CARDS], axis=0)

    def with_open(card: int) -> np.ndarray:
        hands = []
        for hidden in CARDS:
            has_ace = ACE in (card, hidden)
            natural = has_ace and card + hidden == 11
            known = (SCORES == NATURAL).astype(np.float64)
            hands.append(known if natural else scores(card + int(hidden), has_ace))
        return np.mean(hands, axis=0)

    table = np.array([with_open(card) for card in range(1, 11)])
    return np.cumsum(table, axis=1).astype(np.float32)


# The segments of a digit: top, upper right, lower right, bottom, lower left, upper left, middle.
_SEGMENTS = np.array(
    [
        [1, 1, 1, 1, 1, 1, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 1, 1, 0, 1],
        [1, 1, 1, 1, 0, 0, 1],
        [0, 1, 1, 0, 0, 1, 1],
        [1, 0, 1, 1, 0, 1, 1],
        [1, 0, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 1, 1],
    ],
    np.float32,
)
_PLACES = ((0, 14, 1), (7, 7, 0), (7, -7, 0), (0, -14, 1), (-7, -7, 0), (-7, 7, 0), (0, 0, 1))


def _digits(
    x: chex.Array, y: chex.Array, center: tuple[float, float], number: jax.Array, color: Color
) -> list[tuple[jax.Array, Color]]:
    """Returns layers that show a number from 0 to 99 with two digits."""
    layers = []
    for offset, digit in ((-10, number // 10), (10, number % 10)):
        lit = jnp.asarray(_SEGMENTS)[digit]
        for i, (right, up, is_flat) in enumerate(_PLACES):
            size = (14.0, 3.0) if is_flat else (3.0, 14.0)
            middle = (center[0] + offset + right, center[1] + up)
            layers.append((box(x, y, middle, size) * lit[i], color))
    return layers
