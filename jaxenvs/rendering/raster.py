"""A rasterizer in pure JAX. Shapes are arrays of coverage, which painting uses to blend colors.

H and W are the height and width of an image in pixels. Coordinates are in pixels, x to the right
and y upward from the lower left corner. A shape is float32[H, W]: 1 inside, 0 outside, and in
between for pixels on its edge, so that motion looks smooth. All functions work under `jit` and
`vmap`, so states can be turned into pixel observations.

    x, y = pixel_grid((400, 600))
    ball = disc(x, y, (300.0, 100.0), radius=8.0)
    frame = paint(WHITE, (ball, RED))
"""

import functools
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

Color = tuple[int, int, int]  # red, green, blue, 0 to 255
Point = tuple[chex.Numeric, chex.Numeric]  # x, y

BLACK: Color = (0, 0, 0)
GRAY: Color = (128, 128, 128)
RED: Color = (204, 77, 77)
TAN: Color = (202, 152, 101)
TEAL: Color = (0, 204, 204)
VIOLET: Color = (129, 132, 203)
WHITE: Color = (255, 255, 255)
YELLOW: Color = (204, 204, 0)


def pixel_grid(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixel centers of an image of `shape` (H, W).

    They are x, float32[1, W], and y, float32[H, 1]. Row 0 is the top, where y is H - 0.5.
    """
    height, width = shape
    x = np.arange(width, dtype=np.float32)[None, :] + 0.5
    y = np.arange(height, dtype=np.float32)[::-1, None] + 0.5
    return x, y


def fill(distance: jax.Array) -> jax.Array:
    """Returns a shape's coverage, given the signed distance to its edge in pixels.

    The distance is negative inside the shape.
    """
    return jnp.clip(0.5 - distance, 0.0, 1.0)


def disc(x: chex.Array, y: chex.Array, center: Point, radius: chex.Numeric) -> jax.Array:
    """Returns a filled circle."""
    return fill(jnp.hypot(x - center[0], y - center[1]) - radius)


def box(
    x: chex.Array,
    y: chex.Array,
    center: Point,
    size: tuple[chex.Numeric, chex.Numeric],
    angle: chex.Numeric = 0.0,
) -> jax.Array:
    """Returns a filled rectangle of `size` (width, height).

    It is rotated counterclockwise by `angle`, in radians.
    """
    along, across = _rotate(x - center[0], y - center[1], angle)
    return fill(jnp.maximum(jnp.abs(along) - size[0] / 2, jnp.abs(across) - size[1] / 2))


def line(
    x: chex.Array, y: chex.Array, start: Point, end: Point, width: chex.Numeric = 1.0
) -> jax.Array:
    """Returns a straight line with round ends."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length_squared = jnp.maximum(dx * dx + dy * dy, 1e-12)
    part = ((x - start[0]) * dx + (y - start[1]) * dy) / length_squared
    part = jnp.clip(part, 0.0, 1.0)
    gap = jnp.hypot(x - start[0] - part * dx, y - start[1] - part * dy)
    return fill(gap - width / 2)


def polygon(
    x: chex.Array, y: chex.Array, corners: Sequence[Point], outline: chex.Numeric = 0.0
) -> jax.Array:
    """Returns a filled convex polygon with counterclockwise `corners`, grown by `outline`."""
    distance = jnp.float32(-jnp.inf)
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        dx, dy = x1 - x0, y1 - y0
        outward = ((x - x0) * dy - (y - y0) * dx) / jnp.hypot(dx, dy)
        distance = jnp.maximum(distance, outward)
    return fill(distance - outline)


def union(*shapes: jax.Array) -> jax.Array:
    """Returns the union of the shapes."""
    return functools.reduce(jnp.maximum, shapes)


def paint(background: Color | jax.Array, *layers: tuple[chex.Array, Color]) -> jax.Array:
    """Paints colored shapes over a background, later ones on top.

    Args:
        background: a color, or an image, uint8[H, W, 3].
        *layers: pairs of a shape, float32[H, W] coverage or a bool[H, W] mask, and its color.

    Returns:
        The image, uint8[H, W, 3].
    """
    image = jnp.asarray(background, jnp.float32)
    for shape, color in layers:
        shape = jnp.asarray(shape, jnp.float32)[..., None]
        color = np.asarray(color, np.float32)[None, None]
        if image.ndim == 1:
            image = image[None, None]
        image = image + shape * (color - image)
    return jnp.round(image).astype(jnp.uint8)


def _rotate(x: chex.Array, y: chex.Array, angle: chex.Numeric) -> tuple[jax.Array, jax.Array]:
    """Returns the coordinates in a frame that is rotated counterclockwise by `angle`."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return cos * x + sin * y, cos * y - sin * x
