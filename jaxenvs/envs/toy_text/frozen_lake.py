"""The frozen lake task."""

from collections.abc import Sequence
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.envs.toy_text._tabular import Tabular, TabularState, move, sign
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import Color, box, disc, line, paint, pixel_grid, polygon, union

CELL = 64  # pixels, side length of a cell in the image
MAPS = {
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": (
        *("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF"),
        *("FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
    ),
}
_S, _F, _H, _G = (ord(letter) for letter in "SFHG")

_ICE: Color = (219, 239, 250)
_GRID: Color = (180, 205, 225)
_WATER: Color = (74, 128, 168)
_DEEP: Color = (40, 84, 122)
_FLAG: Color = (204, 60, 60)
_POLE: Color = (90, 60, 40)
_COAT: Color = (40, 150, 70)
_SKIN: Color = (240, 200, 160)


class FrozenLake(Tabular[TabularState]):
    """Cross a frozen lake from the start to the goal without falling into a hole.

    Observation: int32[], row * columns + column of the cell
    Action: int32[], moves to the left (0), down (1), to the right (2), up (3); stops at the edges
    Reward: `reward_schedule`, for entering the goal, a hole, or any other cell
    Start: the cell S, drawn uniformly if there are several
    Terminates: at the goal G or in a hole H
    Time limit: none here; `FrozenLake-v1` is registered with 100 steps, `FrozenLake8x8-v1` with 200
    Info: prob, float32[], the probability of the transition

    If `is_slippery`, the agent moves as intended with probability `success_rate`, otherwise with
    equal probability in either perpendicular direction.

    A map of your own is `desc`, a list of strings of the letters S, F, H, G, or their character
    codes, uint8[rows, columns]. It is a leaf: instances can have different maps of one shape.
    `generate_random_map` makes them from a key.

    Source: Gymnasium's FrozenLake-v1 (tests/parity/test_certificates.py).
    """

    desc: Sequence[str] | chex.Array | None = None  # the map; None for `map_name`
    map_name: str = struct.static("4x4")  # "4x4" or "8x8"
    is_slippery: bool = struct.static(True)  # moves go astray
    success_rate: float = 1 / 3  # probability of moving as intended, if slippery
    reward_schedule: tuple[float, float, float] = (1.0, 0.0, 0.0)  # goal, hole, other cells

    num_actions: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if self.map_name not in MAPS:
            raise ParameterError(
                f'FrozenLake got map_name="{self.map_name}"; expected "4x4" or "8x8".'
                "  For a map of your own, pass desc."
            )
        if self.desc is not None and not isinstance(self.desc, jax.Array):
            object.__setattr__(self, "desc", _parse_map(self.desc))

    @property
    def num_states(self) -> int:
        rows, columns = self._shape
        return rows * columns

    @property
    def num_outcomes(self) -> int:
        return 3 if self.is_slippery else 1

    def initial_state(self, key: chex.PRNGKey) -> jax.Array:
        if self.desc is None:
            return jnp.int32(0)
        starts = (self._map == _S).reshape(-1)
        nth = jax.random.randint(key, (), 0, starts.sum(dtype=jnp.int32), jnp.int32)
        return jnp.argmax(jnp.cumsum(starts, dtype=jnp.int32) > nth).astype(jnp.int32)

    def probabilities(self, s: jax.Array, action: jax.Array) -> jax.Array:
        del action
        if not self.is_slippery:
            return jnp.ones(1, jnp.float32)
        success = jnp.asarray(self.success_rate, jnp.float32)
        aside = (1 - success) / 2
        letter = self._letter(s)
        only_first = np.array([1, 0, 0], np.float32)
        slips = jnp.stack([aside, success, aside])
        return jnp.where((letter == _G) | (letter == _H), only_first, slips)

    def transition(
        self, s: jax.Array, action: jax.Array, which: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        direction = (action + which - 1) & 3 if self.is_slippery else action
        down = sign(direction == 1, direction == 3)
        right = sign(direction == 2, direction == 0)
        rows, columns = self._shape
        row, column = move(s // columns, s % columns, down, right, (rows, columns))
        letter = self._letter(s)
        is_over = (letter == _G) | (letter == _H)  # the agent stays at the goal and in a hole
        s = jnp.where(is_over, s, row * columns + column)
        letter = self._letter(s)
        goal, hole, other = (jnp.asarray(reward, jnp.float32) for reward in self.reward_schedule)
        reward = jnp.where(letter == _G, goal, jnp.where(letter == _H, hole, other))
        return s, jnp.where(is_over, 0, reward), (letter == _G) | (letter == _H)

    def render(self, state: TabularState) -> jax.Array:
        """Draws the lake with the agent as a figure in green: uint8[64 rows, 64 columns, 3]."""
        rows, columns = self._shape
        x, y = pixel_grid((CELL * rows, CELL * columns))
        u, v = np.broadcast_arrays(x % CELL, y % CELL)  # coordinates inside the cell
        cells = _enlarge(jnp.asarray(self._map))
        place = jnp.arange(rows * columns, dtype=jnp.int32).reshape(rows, columns) == state.s
        here = _enlarge(place)
        tile = box(u, v, (32.0, 32.0), (62.0, 62.0))
        start = box(u, v, (32.0, 32.0), (40.0, 40.0)) - box(u, v, (32.0, 32.0), (34.0, 34.0))
        pole = line(u, v, (24.0, 10.0), (24.0, 54.0), 4.0)
        flag = polygon(u, v, [(26.0, 34.0), (50.0, 44.0), (26.0, 54.0)])
        body = union(box(u, v, (32.0, 24.0), (18.0, 22.0)), disc(u, v, (32.0, 34.0), 9.0))
        return paint(
            _GRID,
            (tile, _ICE),
            (jnp.where(cells == _S, start, 0), _GRID),
            (jnp.where(cells == _H, disc(u, v, (32.0, 32.0), 26.0), 0), _WATER),
            (jnp.where(cells == _H, disc(u, v, (32.0, 30.0), 20.0), 0), _DEEP),
            (jnp.where(cells == _G, pole, 0), _POLE),
            (jnp.where(cells == _G, flag, 0), _FLAG),
            (jnp.where(here, body, 0), _COAT),
            (jnp.where(here, disc(u, v, (32.0, 44.0), 9.0), 0), _SKIN),
        )

    @property
    def _map(self) -> chex.Array:
        return _parse_map(MAPS[self.map_name]) if self.desc is None else jnp.asarray(self.desc)

    @property
    def _shape(self) -> tuple[int, int]:
        rows, columns = self._map.shape[-2:]  # a batch of maps has one axis more
        return rows, columns

    def _letter(self, s: jax.Array) -> jax.Array:
        return jnp.asarray(self._map).reshape(-1)[s]


def _enlarge(board: jax.Array) -> jax.Array:
    """Returns an image whose pixels have the values of their cells."""
    return jnp.repeat(jnp.repeat(board, CELL, axis=0), CELL, axis=1)


def generate_random_map(
    key: chex.PRNGKey, size: int = 8, probability: chex.Numeric = 0.8
) -> jax.Array:
    """Draws a map with a path from the start, in the upper left, to the goal, in the lower right.

    Args:
        key: a random key.
        size: the number of rows and of columns, at least 2.
        probability: the probability that a cell is frozen rather than a hole, above 0.

    Returns:
        The map, uint8[size, size], to pass as `desc`. Like Gymnasium's function of this name, it
        draws maps until there is a path.
    """
    check_integer(ParameterError, "generate_random_map got size", size, 2)

    def draw(key: jax.Array) -> jax.Array:
        is_frozen = jax.random.uniform(key, (size, size), jnp.float32) < probability
        board = jnp.where(is_frozen, jnp.uint8(_F), jnp.uint8(_H))
        return board.at[0, 0].set(_S).at[-1, -1].set(_G)

    def redraw(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, draw_key = jax.random.split(carry[0])
        return key, draw(draw_key)

    return loops.while_loop(lambda carry: ~_has_path(carry[1]), redraw, redraw((key, None)))[1]  # pyright: ignore[reportArgumentType]


def _has_path(board: jax.Array) -> jax.Array:
    """Returns whether the goal in the last cell can be reached from the first cell, bool[]."""
    is_free = board != _H

    def spread(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reached, _ = carry
        wide = jnp.pad(reached, 1)
        near = wide[2:, 1:-1] | wide[:-2, 1:-1] | wide[1:-1, 2:] | wide[1:-1, :-2]
        grown = reached | (near & is_free)
        return grown, (grown != reached).any()

    first = jnp.zeros(board.shape, bool).at[0, 0].set(True)
    reached, _ = loops.while_loop(lambda carry: carry[1], spread, (first, jnp.bool_(True)))
    return reached[-1, -1]


def _parse_map(desc: Sequence[str] | chex.Array) -> np.ndarray:
    """Returns a map as uint8[..., rows, columns].

    Raises:
        ParameterError: the lines differ in length, a letter is unknown, or there is no start.
    """
    board = np.asarray(desc)
    if board.dtype.kind == "U" and board.ndim == 1:
        lengths = {len(line) for line in board.tolist()}
        letters = [list(map(ord, line)) for line in board.tolist()]
        board = np.array(letters) if len(lengths) == 1 else np.zeros(0)
    if board.ndim < 2 or not np.isin(board, (_S, _F, _H, _G)).all():
        raise ParameterError(
            f"FrozenLake got desc={desc!r:.80}; expected lines of equal length of the letters S, F,"
            ' H, G, such as ["SFF", "FHF", "FFG"].'
        )
    if not (board == _S).any(axis=(-2, -1)).all():
        raise ParameterError("FrozenLake got a map without a start; put an S into desc.")
    return board.astype(np.uint8)
