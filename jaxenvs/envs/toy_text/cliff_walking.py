"""The cliff walking task."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.toy_text._tabular import Tabular, TabularState, move, sign
from jaxenvs.rendering.raster import Color, box, disc, line, paint, pixel_grid, polygon, union

CELL = 64  # pixels, side length of a cell in the image
ROWS, COLUMNS = 4, 12
START, GOAL = 36, 47  # the lower corners; the cells between them are the cliff

_GRASS: Color = (122, 172, 92)
_SOIL: Color = (96, 140, 70)
_ROCK: Color = (110, 86, 66)
_ABYSS: Color = (48, 36, 30)
_FLAG: Color = (204, 60, 60)
_POLE: Color = (70, 50, 30)
_COAT: Color = (60, 80, 170)
_SKIN: Color = (240, 200, 160)


class CliffWalking(Tabular[TabularState]):
    """Walk along the edge of a cliff to the goal; who falls starts again.

    Observation: int32[], row * 12 + column of the cell on a board of 4 rows
    Action: int32[], moves up (0), to the right (1), down (2), to the left (3); stops at the edges
    Reward: -1 per step, -100 for a step off the cliff
    Start: the lower left cell
    Terminates: in the lower right cell. A fall puts the agent back to the start and does not
        terminate
    Time limit: none, as in Gymnasium. A random policy takes thousands of steps, so pass
        `time_limit` if your training needs whole episodes
    Info: prob, float32[], the probability of the transition

    If `is_slippery`, the agent moves as intended with probability 1/3, otherwise in either
    perpendicular direction.

    Source: R. S. Sutton, A. G. Barto, Reinforcement Learning: An Introduction, 2018, example 6.6,
    as Gymnasium's CliffWalking-v1 (tests/parity/test_certificates.py).
    """

    is_slippery: bool = struct.static(False)  # moves go astray

    num_actions: ClassVar[int] = 4

    @property
    def num_states(self) -> int:
        return ROWS * COLUMNS

    @property
    def num_outcomes(self) -> int:
        return 3 if self.is_slippery else 1

    def initial_state(self, key: chex.PRNGKey) -> jax.Array:
        del key  # there is only one start state
        return jnp.int32(START)

    def probabilities(self, s: jax.Array, action: jax.Array) -> jax.Array:
        del s, action
        return jnp.full(self.num_outcomes, 1 / self.num_outcomes, jnp.float32)

    def transition(
        self, s: jax.Array, action: jax.Array, which: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        direction = (action + which - 1) & 3 if self.is_slippery else action
        down = sign(direction == 2, direction == 0)
        right = sign(direction == 1, direction == 3)
        row, column = move(s // COLUMNS, s % COLUMNS, down, right, (ROWS, COLUMNS))
        s = row * COLUMNS + column
        falls = (s > START) & (s < GOAL)
        reward = jnp.where(falls, jnp.float32(-100), jnp.float32(-1))
        return jnp.where(falls, START, s), reward, s == GOAL

    def render(self, state: TabularState) -> jax.Array:
        """Draws the meadow above the cliff: uint8[256, 768, 3]."""
        x, y = pixel_grid((CELL * ROWS, CELL * COLUMNS))
        u, v = np.broadcast_arrays(x % CELL, y % CELL)  # coordinates inside the cell
        tile = box(u, v, (32.0, 32.0), (62.0, 62.0))
        cliff = (x > CELL) & (x < CELL * (COLUMNS - 1)) & (y < CELL)
        edge = cliff & (y > 0.8 * CELL)
        at_goal = (x > CELL * (COLUMNS - 1)) & (y < CELL)
        pole = line(u, v, (24.0, 10.0), (24.0, 54.0), 4.0)
        flag = polygon(u, v, [(26.0, 34.0), (50.0, 44.0), (26.0, 54.0)])
        left = (state.s % COLUMNS).astype(jnp.float32) * CELL
        bottom = (ROWS - 1 - state.s // COLUMNS).astype(jnp.float32) * CELL
        torso = box(x, y, (left + 32, bottom + 24), (18.0, 22.0))
        body = union(torso, disc(x, y, (left + 32, bottom + 34), 9.0))
        return paint(
            _SOIL,
            (tile, _GRASS),
            (cliff, _ABYSS),
            (edge, _ROCK),
            (jnp.where(at_goal, pole, 0), _POLE),
            (jnp.where(at_goal, flag, 0), _FLAG),
            (body, _COAT),
            (disc(x, y, (left + 32, bottom + 44), 9.0), _SKIN),
        )
