"""The memory chain task."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, GRAY, RED, TEAL, WHITE, box, paint, pixel_grid

CELL = 48  # pixels, side length of a cell in the image


@chex.dataclass(frozen=True)
class MemoryChainState:
    """The time, the bits to remember and the index of the queried bit."""

    elapsed: jax.Array  # int32[], steps since reset
    context: jax.Array  # int8[num_bits], 0 or 1, the bits to remember
    query: jax.Array  # int32[], the index of the queried bit


class MemoryChain(Environment[MemoryChainState]):
    """Recall a bit that was shown at the start of the episode.

    Observation: float32[1, num_bits + 2]
        0  time left, decreasing from 1 to 0 in steps of 1 / memory_length
        1  the index of the queried bit, before the last step; otherwise 0
        2+ the bits as -1 or 1, from the reset and the first step; otherwise 0
    Action: int32[], 0 or 1, the value of the queried bit; ignored before the last step
    Reward: on the last step, 1 if the action equals the queried bit, otherwise -1; before that, 0
    Start: every bit and the index of the queried bit uniform
    Terminates: after memory_length + 1 steps
    Time limit: none; every episode terminates

    As in bsuite, the first step repeats the observation of the reset, and the query is shown by
    step number memory_length. If memory_length is at least 2, the bits are no longer visible then:
    a policy that uses only the last observation returns 0 on average, a policy that remembers the
    bits returns 1. `bsuite/memory_len-v0` has the default of 10; bsuite uses lengths from 1 to 100.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its MemoryChain (tests/parity/test_certificates.py).
    """

    memory_length: int = 10  # number of steps to remember the bits, at least 1
    num_bits: int = struct.static(1)  # number of bits shown, of which one is queried

    def __post_init__(self) -> None:
        check_integer(ParameterError, "MemoryChain got num_bits", self.num_bits)
        if not hasattr(self.memory_length, "shape"):  # traced, or one number per instance
            check_integer(ParameterError, "MemoryChain got memory_length", self.memory_length)

    @property
    def observation_space(self) -> spaces.Box:
        low = [0.0, 0.0, *[-1.0] * self.num_bits]
        high = [1.0, max(self.num_bits - 1.0, 1.0), *[1.0] * self.num_bits]
        return spaces.Box([low], [high])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[MemoryChainState, TimeStep]:
        context_key, query_key = jax.random.split(key)
        state = MemoryChainState(
            elapsed=jnp.int32(0),
            context=spaces.MultiBinary(self.num_bits).sample(context_key),
            query=spaces.Discrete(self.num_bits).sample(query_key),
        )
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: MemoryChainState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MemoryChainState, TimeStep]:
        del key  # a step is deterministic
        state = MemoryChainState(
            elapsed=state.elapsed + 1, context=state.context, query=state.query
        )
        over = state.elapsed > self._length()
        asked = np.arange(self.num_bits, dtype=np.int32) == state.query
        correct = jnp.any(asked & (state.context == jnp.asarray(action, jnp.int8)))
        reward = jnp.where(over, jnp.where(correct, 1.0, -1.0), 0.0)
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=over)

    def render(self, state: MemoryChainState) -> jax.Array:
        """Draws exactly what the agent observes: uint8[96, 48 max(num_bits, 2), 3].

        The bar at the top shows the time left. Below it, each bit is a square: teal for 1, red for
        0, gray if hidden. The queried bit has a frame.
        """
        time, in_view, asked = self._view(state)
        height, width = 2 * CELL, CELL * max(self.num_bits, 2)
        x, y = pixel_grid((height, width))
        layers = [(box(x, y, (width * time / 2, 1.5 * CELL), (width * time, 0.4 * CELL)), WHITE)]
        for i in range(self.num_bits):
            center = (width - (self.num_bits - 1) * CELL) / 2 + i * CELL, 0.5 * CELL
            frame = box(x, y, center, (0.8 * CELL, 0.8 * CELL))
            square = box(x, y, center, (0.6 * CELL, 0.6 * CELL))
            layers += [
                (jnp.where(asked & (state.query == i), frame, 0.0), WHITE),
                (square, GRAY),
                (jnp.where(in_view & (state.context[i] == 1), square, 0.0), TEAL),
                (jnp.where(in_view & (state.context[i] == 0), square, 0.0), RED),
            ]
        return paint(BLACK, *layers)

    def _observe(self, state: MemoryChainState) -> jax.Array:
        time, in_view, asked = self._view(state)
        query = jnp.where(asked, state.query, 0).astype(jnp.float32)
        context = jnp.where(in_view, 2 * state.context - 1, 0).astype(jnp.float32)
        return jnp.concatenate([jnp.stack([time, query]), context])[None]

    def _view(self, state: MemoryChainState) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the time left, float32[], and whether bits and query are visible, bool[]."""
        length = self._length()
        shown = jnp.clip(state.elapsed - 1, 0, length)  # a step shows the time before it
        time = (length - shown).astype(jnp.float32) / length.astype(jnp.float32)
        return time, shown == 0, shown == length - 1

    def _length(self) -> jax.Array:
        return jnp.asarray(self.memory_length, jnp.int32)
