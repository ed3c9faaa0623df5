"""The umbrella chain task."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, GRAY, RED, TEAL, WHITE, box, paint, pixel_grid

CELL = 48  # pixels, side length of a square in the image
ROW = 10  # distractors per row of the image


@chex.dataclass(frozen=True)
class UmbrellaChainState:
    """The time, the umbrella, and the distractors."""

    elapsed: jax.Array  # int32[], steps since reset
    bits: jax.Array  # int8[2 + n_distractor], whether it is needed and carried, and distractors


class UmbrellaChain(Environment[UmbrellaChainState]):
    """Take an umbrella in the first step if the forecast says so, and be judged at the end.

    Observation: float32[1, 3 + n_distractor]
        0  1 if the umbrella is needed, otherwise 0
        1  1 if the umbrella is carried, otherwise 0; drawn at random before the first step
        2  time left, decreasing from 1 to 0 in steps of 1 / chain_length
        3+ distractors, 0 or 1, drawn again in every step
    Action: int32[], 1 takes the umbrella, 0 does not; ignored after the first step
    Reward: on the last step, 1 if the umbrella is carried exactly if it is needed, otherwise -1;
        before that, -1 or 1 at random
    Start: all bits uniform
    Terminates: after chain_length steps
    Time limit: none; every episode terminates

    Only the first action has an effect, and the rewards in between are noise: the task tests the
    assignment of credit over time, and among distracting inputs. `bsuite/umbrella_length-v0` has
    20 distractors, and bsuite uses lengths from 1 to 100. `bsuite/umbrella_distract-v0` has 20
    steps, and bsuite uses 1 to 100 distractors.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its UmbrellaChain (tests/parity/test_certificates.py).
    """

    chain_length: int = 10  # steps of an episode, at least 1
    n_distractor: int = struct.static(0)  # number of distractors

    def __post_init__(self) -> None:
        check_integer(ParameterError, "UmbrellaChain got n_distractor", self.n_distractor, 0)
        if not hasattr(self.chain_length, "shape"):  # traced, or one number per instance
            check_integer(ParameterError, "UmbrellaChain got chain_length", self.chain_length)

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (1, 3 + self.n_distractor))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[UmbrellaChainState, TimeStep]:
        bits = spaces.MultiBinary(2 + self.n_distractor).sample(key)
        state = UmbrellaChainState(elapsed=jnp.int32(0), bits=bits)
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: UmbrellaChainState, key: chex.PRNGKey) -> jax.Array:
        """Draws int8[1 + n_distractor]: whether a reward in between is positive; distractors."""
        return spaces.MultiBinary(1 + self.n_distractor).sample(key)

    def apply(
        self, state: UmbrellaChainState, action: chex.Array, draws: jax.Array
    ) -> tuple[UmbrellaChainState, TimeStep]:
        """Takes a step with the results of `draw`."""
        need, has = state.bits[0], state.bits[1]
        has = jnp.where(state.elapsed == 0, jnp.asarray(action, jnp.int8), has)
        state = UmbrellaChainState(
            elapsed=jnp.minimum(state.elapsed + 1, self._length()),
            bits=jnp.concatenate([jnp.stack([need, has]), draws[1:]]),
        )
        over = state.elapsed == self._length()
        is_positive = jnp.where(over, need == has, draws[0] == 1)
        reward = jnp.where(is_positive, 1.0, -1.0)
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=over)

    def step(
        self, state: UmbrellaChainState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[UmbrellaChainState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: UmbrellaChainState) -> jax.Array:
        """Draws exactly what the agent observes: uint8[H, 480, 3].

        The bar at the top shows the time left. The large squares below are need and umbrella,
        white for 1. The small squares are the distractors, teal for 1 and red for 0.
        """
        rows = -(-self.n_distractor // ROW)
        height, width = (2 + rows) * CELL, ROW * CELL
        x, y = pixel_grid((height, width))
        time = self._time_left(state)
        bar = box(x, y, (width * time / 2, height - 0.5 * CELL), (width * time, 0.4 * CELL))
        # The place of each pixel's bit in the state; need and umbrella have a row of their own.
        row, column = (height - y) // CELL - 1, x // CELL
        index = np.where(row == 0, column, (row - 1) * ROW + column + 2).astype(np.int32)
        exists = (row >= 0) & (index < len(state.bits)) & ((row > 0) | (column < 2))
        from_center = np.maximum(np.abs(x % CELL - CELL / 2), np.abs(y % CELL - CELL / 2))
        is_square = exists & (from_center < np.where(row == 0, 0.4, 0.2) * CELL)
        is_one = state.bits[np.clip(index, 0, len(state.bits) - 1)] == 1
        is_large = row == 0
        return paint(
            BLACK,
            (bar, WHITE),
            (is_square & is_large, GRAY),
            (is_square & is_large & is_one, WHITE),
            (is_square & ~is_large, RED),
            (is_square & ~is_large & is_one, TEAL),
        )

    def _observe(self, state: UmbrellaChainState) -> jax.Array:
        bits = state.bits.astype(jnp.float32)
        return jnp.concatenate([bits[:2], self._time_left(state)[None], bits[2:]])[None]

    def _time_left(self, state: UmbrellaChainState) -> jax.Array:
        length = self._length()
        return (length - state.elapsed).astype(jnp.float32) / length.astype(jnp.float32)

    def _length(self) -> jax.Array:
        return jnp.asarray(self.chain_length, jnp.int32)
