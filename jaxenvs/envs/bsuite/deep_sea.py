"""The deep sea task."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.bsuite._mapping import mapping_generator
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, GRAY, TEAL, YELLOW, box, disc, paint, pixel_grid

IMAGE_SIZE = 400  # pixels, approximate width and height of the image


@chex.dataclass(frozen=True)
class DeepSeaState:
    """The position of the diver, and whether the episode can still be the best one."""

    row: jax.Array  # int32[], the depth, 0 at the top; `size` after the last step
    column: jax.Array  # int32[]
    is_bad: jax.Array  # bool[], whether the diver has left the diagonal by a wrong action


@chex.dataclass(frozen=True)
class DeepSeaDraws:
    """The random outcomes of a step of the stochastic task."""

    noise: jax.Array  # float32[], standard normal, added to the reward at the ends of the last row
    is_blown: jax.Array  # bool[], whether the wind stops a move to the right


class DeepSea(Environment[DeepSeaState]):
    """Dive to a treasure that only the one path of moves to the right at every step reaches.

    Observation: float32[size, size], 1 at the diver, otherwise 0; all 0 after the last step
    Action: int32[], 0 or 1; which of them moves right differs between cells
    Reward: 1 for an action to the right in the last column, minus unscaled_move_cost / size for
        each action to the right; if not deterministic, plus a standard normal number in the first
        and last cell of the last row
    Start: the upper left cell
    Terminates: after `size` steps
    Time limit: none; every episode terminates
    Info: bad_episode, bool[], whether an action to the left on the diagonal has made the treasure
        unreachable; denoised_reward, float32[], 1 when the treasure is reached

    Each step moves the diver down by one row, and left or right by one column; walls stop it. A
    random policy finds the treasure once in 2 ** size episodes, and the cost of each move on the
    way discourages it. The best return is 1 - unscaled_move_cost. If the task is not deterministic,
    an action to the right fails with probability 1 / size.

    The cells' actions are the bits that bsuite draws with NumPy for the same mapping_seed.
    `bsuite/deep_sea-v0` and `bsuite/deep_sea_stochastic-v0` have the size 10; bsuite uses sizes
    from 10 to 50.

    Source: I. Osband et al., Deep Exploration via Randomized Value Functions, 2017. Rules and
    observations are those of bsuite's DeepSea (tests/parity/test_certificates.py).
    """

    size: int = struct.static(10)  # number of rows, columns, and steps
    deterministic: bool = struct.static(True)  # no wind and no noise
    unscaled_move_cost: float = 0.01  # cost of `size` actions to the right
    randomize_actions: bool = struct.static(True)  # if False, 1 moves right in every cell
    mapping_seed: int = struct.static(42)  # seed of the actions that move right
    action_mapping: Any = None  # int8[size, size], these actions; None: those of mapping_seed

    def __post_init__(self) -> None:
        check_integer(ParameterError, "DeepSea got size", self.size)
        mapping_generator("DeepSea", self.mapping_seed)

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (self.size, self.size))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    @property
    def mapping(self) -> chex.Array:
        """The action that moves right in each cell, int8[size, size]."""
        if self.action_mapping is not None:
            return self.action_mapping
        if not self.randomize_actions:
            return np.ones((self.size, self.size), np.int8)
        generator = mapping_generator("DeepSea", self.mapping_seed)
        return generator.binomial(1, 0.5, (self.size, self.size)).astype(np.int8)

    def reset(self, key: chex.PRNGKey) -> tuple[DeepSeaState, TimeStep]:
        del key  # every episode starts in the same cell
        state = DeepSeaState(row=jnp.int32(0), column=jnp.int32(0), is_bad=jnp.bool_(False))
        return state, TimeStep.first(self._observe(state), info=_info(state, jnp.float32(0)))

    def draw(self, state: DeepSeaState, key: chex.PRNGKey) -> DeepSeaDraws | None:
        """Draws noise and wind; nothing if the task is deterministic."""
        if self.deterministic:
            return None
        noise_key, wind_key = jax.random.split(key)
        return DeepSeaDraws(
            noise=jax.random.normal(noise_key, (), jnp.float32),
            is_blown=jax.random.uniform(wind_key, (), jnp.float32) <= 1 / self.size,
        )

    def apply(
        self, state: DeepSeaState, action: chex.Array, draws: DeepSeaDraws | None
    ) -> tuple[DeepSeaState, TimeStep]:
        """Takes a step with the results of `draw`."""
        last = self.size - 1
        cell = jnp.minimum(state.row, last) * self.size + state.column
        mapping = jnp.asarray(self.mapping, jnp.int8).reshape(-1)
        right = jnp.asarray(action, jnp.int8) == mapping[cell]
        treasure = (right & (state.column == last)).astype(jnp.float32)
        reward = treasure - jnp.where(right, self.unscaled_move_cost / self.size, 0.0)
        moves = right
        if draws is not None:
            is_end = (state.column == 0) | (state.column == last)
            reward += jnp.where((state.row == last) & is_end, draws.noise, 0.0)
            moves = right & ~draws.is_blown
        shift = moves.astype(jnp.int32) - (~right).astype(jnp.int32)
        is_bad = state.is_bad | (~right & (state.row == state.column))
        state = DeepSeaState(
            row=jnp.minimum(state.row + 1, self.size),
            column=jnp.clip(state.column + shift, 0, last),
            is_bad=is_bad,
        )
        return state, TimeStep.transition(
            self._observe(state),
            reward=reward,
            terminated=state.row == self.size,
            info=_info(state, treasure),
        )

    def step(
        self, state: DeepSeaState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[DeepSeaState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: DeepSeaState) -> jax.Array:
        """Draws the diver, the path to the treasure, and the treasure: uint8[H, W, 3]."""
        cell = max(IMAGE_SIZE // self.size, 4)
        side = cell * self.size
        x, y = pixel_grid((side, side))
        path = (x // cell == (side - y) // cell) & (x % cell >= 1) & (y % cell >= 1)
        diver = (
            (state.column.astype(jnp.float32) + 0.5) * cell,
            side - (state.row.astype(jnp.float32) + 0.5) * cell,
        )
        return paint(
            BLACK,
            (0.4 * jnp.asarray(path, jnp.float32), GRAY),
            (box(x, y, (side - 0.5 * cell, 0.5 * cell), (0.8 * cell, 0.5 * cell)), YELLOW),
            (disc(x, y, diver, 0.4 * cell), TEAL),
        )

    def _observe(self, state: DeepSeaState) -> jax.Array:
        # The barriers have the same purpose as those of Catch.
        state = jax.lax.optimization_barrier(state)
        cells = np.arange(self.size**2, dtype=np.int32)
        board = (cells == state.row * self.size + state.column).astype(jnp.float32)
        return jax.lax.optimization_barrier(board).reshape(self.size, self.size)


def _info(state: DeepSeaState, treasure: jax.Array) -> dict[str, jax.Array]:
    return {"bad_episode": state.is_bad, "denoised_reward": treasure}
