"""The discounting chain task."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.rendering.raster import BLACK, GRAY, TEAL, WHITE, YELLOW, box, disc, paint, pixel_grid

DELAYS = (1, 3, 10, 30, 100)  # steps until the reward of each chain
LENGTH = DELAYS[-1]  # steps of an episode
BONUS = 0.1
FRAME_SHAPE = (200, 440)  # height, width


@chex.dataclass(frozen=True)
class DiscountingChainState:
    """The time and the chosen chain."""

    elapsed: jax.Array  # int32[], steps since reset
    chain: jax.Array  # int32[], the chosen chain, -1 before the first step


class DiscountingChain(Environment[DiscountingChainState]):
    """Choose between rewards of almost the same size that come after 1 to 100 steps.

    Observation: float32[1, 2]
        0  the chosen chain, -1 before the first step
        1  steps since reset / 100
    Action: int32[], the chain from 0 to 4; ignored after the first step
    Reward: 1 in step 1, 3, 10, 30, or 100, depending on the chain; 1.1 for the chain with a bonus;
        0 in other steps
    Start: no chain is chosen
    Terminates: after 100 steps
    Time limit: none; every episode terminates

    The task shows which discount an agent effectively uses: one that values later rewards too
    little misses the bonus of a long chain. bsuite uses the mapping_seeds from 0 to 19.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its DiscountingChain (tests/parity/test_certificates.py).
    """

    mapping_seed: int = 0  # the chain with the bonus is mapping_seed modulo 5

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box([[-1.0, 0.0]], [[len(DELAYS) - 1.0, 1.0]])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(len(DELAYS))

    def reset(self, key: chex.PRNGKey) -> tuple[DiscountingChainState, TimeStep]:
        del key  # every episode starts in the same state
        state = DiscountingChainState(elapsed=jnp.int32(0), chain=jnp.int32(-1))
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: DiscountingChainState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[DiscountingChainState, TimeStep]:
        del key  # a step is deterministic
        chain = jnp.where(state.elapsed == 0, jnp.asarray(action, jnp.int32), state.chain)
        elapsed = jnp.minimum(state.elapsed + 1, LENGTH)
        state = DiscountingChainState(elapsed=elapsed, chain=chain)
        chains = np.arange(len(DELAYS), dtype=np.int32)
        is_due = jnp.any((chains == chain) & (np.array(DELAYS, np.int32) == elapsed))
        bonus = jnp.where(chain == self._bonus_chain(), jnp.float32(BONUS), 0.0)
        reward = jnp.where(is_due, 1 + bonus, 0.0)
        return state, TimeStep.transition(
            self._observe(state), reward=reward, terminated=elapsed == LENGTH
        )

    def render(self, state: DiscountingChainState) -> jax.Array:
        """Draws the chains, their rewards, and the position on the chosen one: uint8[200, 440, 3].

        The reward with the bonus is yellow.
        """
        x, y = pixel_grid(FRAME_SHAPE)
        left, scale = 20.0, 4.0  # pixels, pixels per step
        time = left + scale * state.elapsed.astype(jnp.float32)
        layers = []
        for i, delay in enumerate(DELAYS):
            middle, end = FRAME_SHAPE[0] * (1 - (i + 0.5) / len(DELAYS)), left + scale * delay
            chain = box(x, y, ((left + end) / 2, middle), (end - left, 4.0))
            reward, walker = disc(x, y, (end, middle), 9.0), disc(x, y, (time, middle), 7.0)
            is_possible = (state.chain == i) | (state.chain < 0)
            layers += [
                (chain, GRAY),
                (reward, WHITE),
                (jnp.where(self._bonus_chain() == i, reward, 0.0), YELLOW),
                (jnp.where(is_possible, walker, 0.0), TEAL),
            ]
        return paint(BLACK, *layers)

    def _bonus_chain(self) -> jax.Array:
        return jnp.asarray(self.mapping_seed, jnp.int32) % len(DELAYS)

    def _observe(self, state: DiscountingChainState) -> jax.Array:
        chain, elapsed = state.chain.astype(jnp.float32), state.elapsed.astype(jnp.float32)
        return jnp.stack([chain, elapsed / LENGTH])[None]
