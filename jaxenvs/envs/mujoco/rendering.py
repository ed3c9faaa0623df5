"""Pictures of MuJoCo models in pure JAX: one ray per pixel, from a camera that follows a body."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import loops
from jaxenvs.physics.models import Fields, Model

FIELDS = ("xpos", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat")  # of the data
FRAME_SHAPE = (480, 480)  # height, width
_FIELD_OF_VIEW = 45.0  # degrees, MuJoCo's default
_SKY = ((0.82, 0.86, 0.9), (0.35, 0.5, 0.68))  # at the horizon, above
_TILES = ((0.28, 0.34, 0.4), (0.2, 0.25, 0.3))
_GROUPS = 3  # geoms and sites of further groups are hidden, as in MuJoCo
_NO_COLOR = (0.5, 0.5, 0.5, 1)  # MuJoCo's default
_FAR = 1e6

_Kind = mujoco.mjtGeom


def draw(
    model: Model, original: mujoco.MjModel, data: Fields, camera: Mapping[str, Any]
) -> jax.Array:
    """Draws geoms and sites: uint8[480, 480, 3].

    Args:
        model: the arrays of the model.
        original: the model, which has the colors.
        data: where bodies are, `FIELDS`.
        camera: the body that it follows and, with defaults, its `distance` in m, its `elevation`
            in degrees, the `height` that it looks at if not the body's, and how many `groups` of
            geoms and sites it shows.
    """
    elevation = math.radians(camera.get("elevation", -20.0))
    forward = np.array([0, math.cos(elevation), math.sin(elevation)], np.float32)
    right = np.array([1, 0, 0], np.float32)
    target = data.xpos[camera["body"]]
    if "height" in camera:
        target = target.at[2].set(camera["height"])
    eye = target - camera["distance"] * forward
    directions = _rays(forward, right)
    sky = np.clip(2 * directions[..., 2:], 0, 1)
    picture = jnp.asarray(np.array(_SKY[0]) * (1 - sky) + np.array(_SKY[1]) * sky, jnp.float32)
    rays = jnp.asarray(directions)

    def add(kind: mujoco.mjtGeom, drawn: Any, shape: Any) -> tuple[Any, None]:
        (picture, nearest), (place, turn, size, rgb) = drawn, shape
        start, local = (eye - place) @ turn, rays @ turn
        distance = _SURFACES[kind](start, local, size)
        hit = start + distance[..., None] * local
        if kind == _Kind.mjGEOM_PLANE:
            color = _tiles(hit)
        else:
            color = _shade(rgb, _NORMALS[kind](hit, size), local, turn[2])
        return _put(picture, nearest, color, distance), None

    drawn = picture, jnp.full(FRAME_SHAPE, _FAR)
    for i in np.flatnonzero(original.geom_type == _Kind.mjGEOM_HFIELD):
        place, turn = data.geom_xpos[i], data.geom_xmat[i]
        height = _height(model, original, original.geom_dataid[i])
        start, local = (eye - place) @ turn, rays @ turn
        distance = _terrain(start, local, height)
        hit = start + distance[..., None] * local
        color = _shade(2 * _tiles(hit), _terrain_normal(hit, height), local, turn[2])
        drawn = _put(*drawn, color, distance)
    shapes = [*_visible(original, camera.get("groups", _GROUPS))]
    for kind in _SURFACES:  # a loop over the shapes of a kind compiles faster than all of them
        of_kind = [
            (
                getattr(data, f"{name}_xpos")[i],
                getattr(data, f"{name}_xmat")[i],
                getattr(model, f"{name}_size")[i],
                rgb,
            )
            for name, i, each, rgb in shapes
            if each == kind
        ]
        if of_kind:
            stacked = [jnp.stack(parts) for parts in zip(*of_kind, strict=True)]
            drawn, _ = loops.scan(functools.partial(add, kind), drawn, stacked)
    return jnp.clip(255 * drawn[0], 0, 255).astype(jnp.uint8)


def _put(
    picture: jax.Array, nearest: jax.Array, color: jax.Array, distance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Adds a shape to a picture, where nothing is nearer."""
    is_nearer = distance < nearest
    picture = jnp.where(is_nearer[..., None], color, picture)
    return picture, jnp.where(is_nearer, distance, nearest)


def _tiles(hit: jax.Array) -> jax.Array:
    is_even = (jnp.floor(hit[..., :1]) + jnp.floor(hit[..., 1:2])) % 2 == 0
    return jnp.where(is_even, *map(jnp.asarray, _TILES))


def _rays(forward: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the directions of the pixels' rays, float32[H, W, 3]."""
    height, width = FRAME_SHAPE
    half = math.tan(math.radians(_FIELD_OF_VIEW / 2))
    x = half * (np.arange(width) + 0.5 - width / 2)[None, :, None] / (height / 2)
    y = half * (height / 2 - 0.5 - np.arange(height))[:, None, None] / (height / 2)
    rays = forward + x * right + y * np.cross(right, forward)
    return (rays / np.linalg.norm(rays, axis=-1, keepdims=True)).astype(np.float32)


def _visible(
    original: mujoco.MjModel, num_groups: int
) -> Iterator[tuple[str, int, mujoco.mjtGeom, np.ndarray]]:
    """Yields "geom" or "site", the index, the shape, and the color of what MuJoCo shows."""
    for name in ("geom", "site"):
        kinds, groups, colors, materials = (
            getattr(original, f"{name}_{part}") for part in ("type", "group", "rgba", "matid")
        )
        for i, (kind, material) in enumerate(zip(map(_Kind, kinds), materials, strict=True)):
            has_own = material < 0 or (colors[i] != _NO_COLOR).any()
            *rgb, alpha = colors[i] if has_own else original.mat_rgba[material]
            if kind in _SURFACES and groups[i] < num_groups and alpha > 0:
                yield name, i, kind, np.array(rgb, np.float32)


def _shade(rgb: jax.Array, normal: jax.Array, ray: jax.Array, up: jax.Array) -> jax.Array:
    """Returns the color under a lamp at the camera and a light from above."""
    lamp = jnp.clip(-(normal * ray).sum(-1, keepdims=True), 0, 1)
    light = jnp.clip((normal * up).sum(-1, keepdims=True), 0, 1)
    return rgb * (0.25 + 0.45 * lamp + 0.4 * light)


# Distances along rays to surfaces, in the frame of a geom. `start` is [3], `ray` is [H, W, 3].


def _plane(start: jax.Array, ray: jax.Array, size: jax.Array) -> jax.Array:
    distance = -start[2] / jnp.where(ray[..., 2] < 0, ray[..., 2], -1e-9)
    hit = jnp.abs(start[:2] + distance[..., None] * ray[..., :2])
    is_inside = ((hit <= size[:2]) | (size[:2] <= 0)).all(-1)
    return jnp.where(is_inside & (ray[..., 2] < 0), distance, _FAR)


def _sphere(start: jax.Array, ray: jax.Array, size: jax.Array) -> jax.Array:
    return _first(1.0, (ray * start).sum(-1), (start**2).sum() - size[0] ** 2)


def _side(start: jax.Array, ray: jax.Array, size: jax.Array) -> jax.Array:
    """Returns the distance to the side of a cylinder."""
    flat, origin = ray[..., :2], start[:2]
    a = jnp.maximum((flat**2).sum(-1), 1e-12)
    distance = _first(a, (flat * origin).sum(-1), (origin**2).sum() - size[0] ** 2)
    return jnp.where(jnp.abs(start[2] + distance * ray[..., 2]) <= size[1], distance, _FAR)


def _capsule(start: jax.Array, ray: jax.Array, size: jax.Array) -> jax.Array:
    half = jnp.zeros_like(start).at[2].set(size[1])
    ends = [_sphere(start + end, ray, size) for end in (half, -half)]
    return jnp.minimum(_side(start, ray, size), jnp.minimum(*ends))


def _cylinder(start: jax.Array, ray: jax.Array, size: jax.Array) -> jax.Array:
    nearest = _side(start, ray, size)
    for end in (-1, 1):
        distance = (end * size[1] - start[2]) / jnp.where(ray[..., 2] == 0, 1e-9, ray[..., 2])
        hit = start[:2] + distance[..., None] * ray[..., :2]
        is_inside = ((hit**2).sum(-1) <= size[0] ** 2) & (distance > 0)
        nearest = jnp.minimum(nearest, jnp.where(is_inside, distance, _FAR))
    return nearest


def _box(start: jax.Array, ray: jax.Array, size: jax.Array) -> jax.Array:
    slope = 1 / jnp.where(ray == 0, 1e-9, ray)
    ends = jnp.stack([(-size - start) * slope, (size - start) * slope])
    enter, leave = ends.min(0).max(-1), ends.max(0).min(-1)
    return jnp.where((enter <= leave) & (enter > 0), enter, _FAR)


def _ellipsoid(start: jax.Array, ray: jax.Array, size: jax.Array) -> jax.Array:
    ray, start = ray / size, start / size
    return _first((ray**2).sum(-1), (ray * start).sum(-1), (start**2).sum() - 1)


def _height(model: Model, original: mujoco.MjModel, field: int) -> Callable[..., jax.Array]:
    """Returns the function from x and y to the height of terrain, which is low beyond its sides."""
    rows, columns = (getattr(original, f"hfield_{name}")[field] for name in ("nrow", "ncol"))
    start = original.hfield_adr[field]
    heights = model.hfield_data[start : start + rows * columns].reshape(rows, columns)
    size = model.hfield_size[field]

    def height(x: jax.Array, y: jax.Array) -> jax.Array:
        place = [(y / size[1] + 1) / 2 * (rows - 1), (x / size[0] + 1) / 2 * (columns - 1)]
        return size[2] * jax.scipy.ndimage.map_coordinates(heights, place, order=1, cval=-_FAR)

    return height


def _terrain(start: jax.Array, ray: jax.Array, height: Callable[..., jax.Array]) -> jax.Array:
    """Walks along rays, in steps that grow, until they are below the ground, and back in halves."""
    steps = 0.2 * 1.08 ** np.arange(80, dtype=np.float32)

    def is_below(distance: jax.Array) -> jax.Array:
        x, y, z = jnp.moveaxis(start + distance[..., None] * ray, -1, 0)
        return z < height(x, y)

    def walk(ends: tuple[jax.Array, jax.Array], step: jax.Array) -> Any:
        above, below = ends
        is_new = (below == _FAR) & is_below(jnp.full_like(above, step))
        below = jnp.where(is_new, step, below)
        return (jnp.where(below == _FAR, step, above), below), None

    def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        above, below = ends
        middle = (above + below) / 2
        is_deep = is_below(middle)
        return jnp.where(is_deep, above, middle), jnp.where(is_deep, middle, below)

    ends = jnp.zeros(FRAME_SHAPE), jnp.full(FRAME_SHAPE, _FAR)
    ends, _ = loops.scan(walk, ends, jnp.asarray(steps))
    _, near = loops.fori_loop(0, 8, halve, ends)
    return jnp.where(ends[1] == _FAR, _FAR, near)


def _first(a: Any, b: jax.Array, c: jax.Array) -> jax.Array:
    """Returns the smaller root of a t^2 + 2 b t + c, or a large number if it is not positive."""
    root = b**2 - a * c
    distance = (-b - jnp.sqrt(jnp.maximum(root, 0))) / a
    return jnp.where((root > 0) & (distance > 0), distance, _FAR)


# Normals of surfaces at points [H, W, 3].


def _unit(vector: jax.Array) -> jax.Array:
    return vector / jnp.maximum(jnp.sqrt((vector**2).sum(-1, keepdims=True)), 1e-9)


def _terrain_normal(hit: jax.Array, height: Callable[..., jax.Array]) -> jax.Array:
    x, y, _ = jnp.moveaxis(hit, -1, 0)
    slope = [height(x - a, y - b) - height(x + a, y + b) for a, b in ((0.1, 0), (0, 0.1))]
    return _unit(jnp.stack([*slope, jnp.full_like(x, 0.2)], -1))


def _capsule_normal(hit: jax.Array, size: jax.Array) -> jax.Array:
    return _unit(hit.at[..., 2].add(-jnp.clip(hit[..., 2], -size[1], size[1])))


def _cylinder_normal(hit: jax.Array, size: jax.Array) -> jax.Array:
    is_end = (jnp.abs(hit[..., 2:]) > size[1] * 0.999) & (
        (hit[..., :2] ** 2).sum(-1, keepdims=True) < (size[0] * 0.999) ** 2
    )
    end = jnp.zeros_like(hit).at[..., 2].set(jnp.sign(hit[..., 2]))
    return jnp.where(is_end, end, _unit(hit.at[..., 2].set(0)))


def _box_normal(hit: jax.Array, size: jax.Array) -> jax.Array:
    # Not by comparing numbers with their maximum: XLA may compute either twice and round otherwise.
    axis = jnp.abs(hit / size).argmax(-1)[..., None]
    return jnp.where(np.arange(3) == axis, jnp.sign(hit), 0)


_SURFACES = {
    _Kind.mjGEOM_PLANE: _plane,
    _Kind.mjGEOM_SPHERE: _sphere,
    _Kind.mjGEOM_CAPSULE: _capsule,
    _Kind.mjGEOM_CYLINDER: _cylinder,
    _Kind.mjGEOM_BOX: _box,
    _Kind.mjGEOM_ELLIPSOID: _ellipsoid,
    _Kind.mjGEOM_MESH: _ellipsoid,  # about as large
}
_NORMALS = {
    _Kind.mjGEOM_SPHERE: lambda hit, size: _unit(hit),
    _Kind.mjGEOM_CAPSULE: _capsule_normal,
    _Kind.mjGEOM_CYLINDER: _cylinder_normal,
    _Kind.mjGEOM_BOX: _box_normal,
    _Kind.mjGEOM_ELLIPSOID: lambda hit, size: _unit(hit / size**2),
    _Kind.mjGEOM_MESH: lambda hit, size: _unit(hit / size**2),
}
