"""minigrid's images of the grid and of the agent's view: the same bytes, in pure JAX.

The image of a cell, its tile, depends on the object, on the direction of an agent in the cell, and
on whether the cell is highlighted. All tiles are drawn once, with NumPy. An image selects tiles.

Shapes and colors are those of minigrid 3.2.0. So are dtypes and the order of operations, because
most operations round.
"""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import at

TILE_SIZE = 32  # pixels, side length of a cell, as by default in minigrid
_SUPERSAMPLING = 3  # tiles are drawn this many times larger and then shrunk
_RGB = (
    *((255, 0, 0), (0, 255, 0), (0, 0, 255)),  # red, green, blue
    *((112, 39, 195), (255, 255, 0), (100, 100, 100)),  # purple, yellow, grey
)
_AGENT, _LINES, _LAVA = _RGB[cells.RED], _RGB[cells.GREY], (255, 128, 0)


def draw_grid(
    grid: jax.Array,
    x: jax.Array,
    y: jax.Array,
    direction: jax.Array,
    is_seen: jax.Array | None = None,
    tile_size: int = TILE_SIZE,
) -> jax.Array:
    """Draws a grid and the agent in it: uint8[H * tile_size, W * tile_size, 3].

    Args:
        grid: the cells, [H, W].
        x: column of the agent.
        y: row of the agent.
        direction: where the agent looks.
        is_seen: which cells of its view the agent sees, bool[size, size]. The grid is highlighted
            there. None for no highlights.
        tile_size: pixels, side length of a cell.
    """
    agent = jnp.where(at(grid, (x, y)), direction + 1, 0)
    if is_seen is None:
        highlight = np.zeros(grid.shape, bool)
    else:
        highlight = seen_in_grid(grid, x, y, direction, is_seen)
    return _draw(grid, agent, highlight, tile_size)


def draw_view(view: jax.Array, is_seen: jax.Array, tile_size: int = TILE_SIZE) -> jax.Array:
    """Draws what the agent sees: uint8[size * tile_size, size * tile_size, 3].

    Args:
        view: the cells, [size, size], indexed by column and row.
        is_seen: which of them the agent sees, bool[size, size].
        tile_size: pixels, side length of a cell.
    """
    size = len(view)
    agent = np.zeros((size, size), np.int32)
    agent[-1, size // 2] = 4  # looks up
    shown = jnp.where(is_seen, view, np.array(cells.EMPTY, view.dtype))
    return _draw(shown.T, jnp.asarray(agent), is_seen.T, tile_size)


def seen_in_grid(
    grid: jax.Array, x: jax.Array, y: jax.Array, direction: jax.Array, is_seen: jax.Array
) -> jax.Array:
    """Returns which cells of a grid the agent sees, bool[H, W], given the cells of its view."""
    last = len(is_seen) - 1
    rows, columns = np.indices(grid.shape, np.int32)
    right, down = columns - x, rows - y
    turn = jnp.broadcast_to(direction, grid.shape)
    i = jax.lax.select_n(turn, down, -right, -down, right) + last // 2
    j = last - jax.lax.select_n(turn, right, down, -right, -down)
    is_inside = (i >= 0) & (i <= last) & (j >= 0) & (j <= last)
    return is_inside & is_seen[jnp.clip(i, 0, last), jnp.clip(j, 0, last)]


def _draw(grid: jax.Array, agent: jax.Array, highlight: Any, tile_size: int) -> jax.Array:
    """Draws cells. `agent` is 1 more than the direction of an agent in a cell, 0 without one."""
    tiles, numbers = _tiles(tile_size)
    number = jnp.asarray(numbers)[cells.appearance(grid), agent, jnp.asarray(highlight, np.int32)]
    # Without the barrier, XLA on CPU computes the number again for each pixel.
    number = jax.lax.optimization_barrier(number)
    height, width = grid.shape
    pixels = jnp.asarray(tiles)[number].transpose(0, 2, 1, 3, 4)
    return pixels.reshape(height * tile_size, width * tile_size, 3)


@functools.lru_cache
def _tiles(tile_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tiles, uint8[K, tile_size, tile_size, 3], and the number of the tile of a cell.

    The numbers, int32[128, 5, 2], are indexed by the appearance of the cell, by 1 more than the
    direction of an agent in it or 0 without one, and by whether it is highlighted.
    """
    size = tile_size * _SUPERSAMPLING
    y, x = (np.indices((size, size)) + 0.5) / size
    background = np.zeros((size, size, 3), np.uint8)
    background[_rectangle(x, y, 0, 0.031, 0, 1) | _rectangle(x, y, 0, 1, 0, 0.031)] = _LINES
    agents = [np.zeros((size, size), bool), *(_agent(x, y, direction) for direction in range(4))]

    agent_rgb, lava = np.array(_AGENT, np.uint8), cells.kind(cells.LAVA)
    variants = np.arange(10, dtype=np.int32).reshape(5, 2)
    numbers = np.tile(variants, (128, 1, 1))  # what is not an object looks empty
    tiles = []
    for kind, shapes in _shapes(x, y).items():
        for color in (cells.RED,) if kind in (cells.EMPTY, lava) else range(len(cells.COLORS)):
            rgb = np.array(_LAVA if kind == lava else _RGB[color])
            image = background.copy()
            for mask, brightness in shapes:
                image[mask] = brightness * rgb
            images = np.stack([np.where(m[..., None], agent_rgb, image) for m in agents])
            highlighted = (images + 0.3 * (255 - images)).astype(np.uint8)
            numbers[cells.make(kind, color)] = variants + 10 * len(tiles)
            tiles.append(_shrink(np.stack([images, highlighted], axis=1)))
    return np.concatenate(tiles), numbers


def _shrink(images: np.ndarray) -> np.ndarray:
    """Returns images with means of blocks of pixels: [5, 2, H, W, 3] to [10, H / 3, W / 3, 3]."""
    small = images.shape[2] // _SUPERSAMPLING
    blocks = images.reshape(-1, small, _SUPERSAMPLING, small, _SUPERSAMPLING, 3)
    return blocks.mean(axis=4).mean(axis=2).astype(np.uint8)


def _shapes(x: np.ndarray, y: np.ndarray) -> dict[int, list[tuple[np.ndarray, float]]]:
    """Returns the shapes of each kind of object, as masks, with the brightness of their color."""

    def rectangle(left: float, right: float, top: float, bottom: float) -> np.ndarray:
        return _rectangle(x, y, left, right, top, bottom)

    def square(margin: float) -> np.ndarray:
        # Not 1 - margin, which may round differently than the number that minigrid has.
        return rectangle(margin, round(1 - margin, 2), margin, round(1 - margin, 2))

    def disc(center_x: float, center_y: float, radius: float) -> np.ndarray:
        u, v = x - center_x, y - center_y
        return u * u + v * v <= radius * radius

    waves = []
    for i in range(3):
        high, low = 0.3 + 0.2 * i, 0.4 + 0.2 * i
        path = [(0.1, high), (0.3, low), (0.5, high), (0.7, low), (0.9, high)]
        waves += [(_line(x, y, *ends, 0.03), 0) for ends in itertools.pairwise(path)]
    whole = square(0)
    return {
        cells.EMPTY: [],
        cells.kind(cells.WALL): [(whole, 1)],
        cells.kind(cells.GOAL): [(whole, 1)],
        cells.kind(cells.LAVA): [(whole, 1), *waves],
        cells.FLOOR: [(rectangle(0.031, 1, 0.031, 1), 0.5)],
        cells.OPEN_DOOR: [
            (rectangle(0.88, 1, 0, 1), 1),
            (rectangle(0.92, 0.96, 0.04, 0.96), 0),
        ],
        cells.CLOSED_DOOR: [
            (whole, 1),
            (square(0.04), 0),
            (square(0.08), 1),
            (square(0.12), 0),
            (disc(0.75, 0.5, 0.08), 1),
        ],
        cells.LOCKED_DOOR: [
            (whole, 1),
            (square(0.06), 0.45),
            (rectangle(0.52, 0.75, 0.5, 0.56), 1),
        ],
        cells.KEY: [
            (rectangle(0.5, 0.63, 0.31, 0.88), 1),
            (rectangle(0.38, 0.5, 0.59, 0.66), 1),
            (rectangle(0.38, 0.5, 0.81, 0.88), 1),
            (disc(0.56, 0.28, 0.19), 1),
            (disc(0.56, 0.28, 0.064), 0),
        ],
        cells.BALL: [(disc(0.5, 0.5, 0.31), 1)],
        cells.BOX: [
            (square(0.12), 1),
            (square(0.18), 0),
            (rectangle(0.16, 0.84, 0.47, 0.53), 1),
        ],
    }


def _rectangle(
    x: np.ndarray, y: np.ndarray, left: float, right: float, top: float, bottom: float
) -> np.ndarray:
    return (x >= left) & (x <= right) & (y >= top) & (y <= bottom)


def _line(
    x: np.ndarray,
    y: np.ndarray,
    start: tuple[float, float],
    end: tuple[float, float],
    radius: float,
) -> np.ndarray:
    """Returns the points near a line: at most `radius` away from it, and inside its box."""
    left, right = sorted((start[0], end[0]))
    top, bottom = sorted((start[1], end[1]))
    box = _rectangle(x, y, left - radius, right + radius, top - radius, bottom + radius)
    origin = np.array(start, np.float32)
    way = np.array(end, np.float32) - origin
    length = np.linalg.norm(way)
    unit = way / length
    u, v = x - origin[0], y - origin[1]
    along = np.clip(u * unit[0] + v * unit[1], 0, length)
    u, v = x - (origin[0] + along * unit[0]), y - (origin[1] + along * unit[1])
    return box & (np.sqrt(u * u + v * v) <= radius)


def _agent(x: np.ndarray, y: np.ndarray, direction: int) -> np.ndarray:
    """Returns the agent's triangle."""
    cos, sin = math.cos(-0.5 * math.pi * direction), math.sin(-0.5 * math.pi * direction)
    x, y = x - 0.5, y - 0.5
    x, y = 0.5 + x * cos - y * sin, 0.5 + y * cos + x * sin
    back, tip, other_back = np.array([(0.12, 0.19), (0.87, 0.5), (0.12, 0.81)], np.float32)
    # s and t are the coordinates of a point if two sides of the triangle are the axes.
    p, q = other_back - back, tip - back
    u, v = x - back[0], y - back[1]
    along_p, along_q = p[0] * u + p[1] * v, q[0] * u + q[1] * v
    pp, pq, qq = np.dot(p, p), np.dot(p, q), np.dot(q, q)
    scale = 1 / (pp * qq - pq * pq)
    s, t = (qq * along_p - pq * along_q) * scale, (pp * along_q - pq * along_p) * scale
    return (s >= 0) & (t >= 0) & (s + t < 1)
