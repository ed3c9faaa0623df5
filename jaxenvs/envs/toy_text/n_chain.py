"""The chain task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.toy_text._tabular import Tabular, TabularState
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, GRAY, TEAL, WHITE, YELLOW, disc, line, paint, pixel_grid

CELL = 64  # pixels, distance between two links in the image


class NChain(Tabular[TabularState]):
    """Walk to the end of a chain for a large reward, or return to its start for a small one.

    Observation: int32[], the index of the link, 0 to n - 1
    Action: int32[], 0 moves forward, 1 returns to the first link
    Reward: `large` for moving forward at the last link, where the agent stays; `small` for
        returning; otherwise 0
    Start: the first link
    Terminates: never
    Time limit: none here; `NChain-v0` is registered with 1,000 steps
    Info: prob, float32[], the probability of the transition

    With probability `slip`, the other action is taken instead.

    Source: M. Strens, A Bayesian Framework for Reinforcement Learning, 2000, as NChain-v0 of
    OpenAI Gym and EnvPool (tests/parity/test_toy_text.py).
    """

    n: int = struct.static(5)  # number of links, at least 2
    slip: float = 0.2  # probability that the other action is taken
    small: float = 2.0  # reward for returning
    large: float = 10.0  # reward at the end of the chain

    num_actions: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_integer(ParameterError, "NChain got n", self.n, 2)

    @property
    def num_states(self) -> int:
        return self.n

    @property
    def num_outcomes(self) -> int:
        return 2

    def initial_state(self, key: chex.PRNGKey) -> jax.Array:
        del key  # there is only one start state
        return jnp.int32(0)

    def probabilities(self, s: jax.Array, action: jax.Array) -> jax.Array:
        del s, action
        slip = jnp.asarray(self.slip, jnp.float32)
        return jnp.stack([slip, 1 - slip])

    def transition(
        self, s: jax.Array, action: jax.Array, which: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        returns = (action == 1) == (which == 1)
        at_end = s == self.n - 1
        small, large = (jnp.asarray(r, jnp.float32) for r in (self.small, self.large))
        reward = jnp.where(returns, small, jnp.where(at_end, large, jnp.float32(0)))
        s = jnp.where(returns, 0, jnp.minimum(s + 1, self.n - 1))
        return s, reward, jnp.bool_(False)

    def render(self, state: TabularState) -> jax.Array:
        """Draws the links as discs, the agent's in yellow: uint8[64, 64 n, 3]."""
        x, y = pixel_grid((CELL, CELL * self.n))
        middle = CELL / 2
        chain = line(x, y, (middle, middle), (CELL * self.n - middle, middle), 4.0)
        links = disc(x % CELL, y, (middle, middle), 22.0)
        end = disc(x, y, (CELL * self.n - middle, middle), 22.0)
        agent = disc(x, y, (state.s.astype(jnp.float32) * CELL + middle, middle), 14.0)
        return paint(BLACK, (chain, GRAY), (links, WHITE), (end, TEAL), (agent, YELLOW))
