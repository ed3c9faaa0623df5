"""Collisions of C MuJoCo in JAX, where those of MJX differ.

Colliders take two shapes with `pos` (3,), `mat` (3, 3), and `size` (3,), and return distances (n,),
points (n, 3), and frames (n, 3, 3) of n contacts. A distance of 1 is no contact.

Source: MuJoCo's engine_collision_primitive.c and engine_collision_box.c.
"""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from mujoco.mjx._src import collision_primitive, math

# In C MuJoCo's order.
_CORNERS = [(x, y, z) for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)]
_FACE_CORNERS = [(1, 1), (-1, 1), (-1, -1), (1, -1)]


@collision_primitive.collider(ncon=2)
def plane_capsule(plane: Any, capsule: Any) -> Any:
    """Returns the contacts of both ends of a capsule with a plane: distances, points, frames."""
    normal, axis = plane.mat[:, 2], capsule.mat[:, 2]
    tangent = axis - normal * jnp.dot(normal, axis)
    length = jnp.sqrt(jnp.dot(tangent, tangent))
    is_upright = length < mujoco.mjMINVAL  # then C MuJoCo takes the x-axis
    tangent = jnp.where(is_upright, jnp.eye(3)[0], tangent / jnp.where(is_upright, 1, length))
    frame = jnp.stack([normal, tangent, jnp.cross(normal, tangent)])
    radius, half = capsule.size[0], axis * capsule.size[1]
    ends = jnp.stack([capsule.pos + half, capsule.pos - half])
    distance = (ends - plane.pos) @ normal - radius
    points = ends - normal * (radius + distance / 2)[:, None]
    return distance, points, jnp.stack([frame, frame])


@collision_primitive.collider(ncon=4)
def plane_box(plane: Any, box: Any) -> Any:
    """Returns the contacts of the lower four corners of a box with a plane."""
    normal = plane.mat[:, 2]
    corners = jnp.asarray(_CORNERS) * box.size @ box.mat.T
    lower = jnp.sort(jax.lax.top_k(-(corners @ normal), 4)[1])
    points = box.pos + corners[lower]
    distance = (points - plane.pos) @ normal
    frame = math.make_frame(normal)
    return distance, points - distance[:, None] / 2 * normal, jnp.stack([frame] * 4)


def closest_on_segment(a: jax.Array, b: jax.Array, point: jax.Array) -> jax.Array:
    """Returns the point of the segment from `a` to `b` that is closest to a point."""
    along = b - a
    length = jnp.maximum(jnp.dot(along, along), mujoco.mjMINVAL)
    return a + jnp.clip(jnp.dot(point - a, along) / length, 0, 1) * along


def closest_on_segments(
    a0: jax.Array, a1: jax.Array, b0: jax.Array, b1: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns the closest points of two segments, as C MuJoCo finds those of two capsules.

    C MuJoCo has several contacts of capsules that are exactly parallel.
    """
    a, b = (a1 - a0) / 2, (b1 - b0) / 2
    a_middle, b_middle = (a0 + a1) / 2, (b0 + b1) / 2
    apart = a_middle - b_middle
    ab = -jnp.dot(a, b)
    aa, bb = (jnp.maximum(jnp.dot(c, c), mujoco.mjMINVAL) for c in (a, b))
    u, v = -jnp.dot(a, apart), jnp.dot(b, apart)
    determinant = aa * bb - ab**2
    is_parallel = jnp.abs(determinant) < mujoco.mjMINVAL
    determinant = jnp.where(is_parallel, 1, determinant)
    x = jnp.where(is_parallel, 0, (bb * u - ab * v) / determinant)
    y = jnp.where(is_parallel, v / bb, (aa * v - ab * u) / determinant)
    # Clip the point on one segment, then find the closest on the other.
    y = jnp.where(jnp.abs(x) > 1, (v - jnp.sign(x) * ab) / bb, y)
    x = jnp.clip(x, -1, 1)
    x = jnp.where(jnp.abs(y) > 1, jnp.clip((u - jnp.sign(y) * ab) / aa, -1, 1), x)
    return a_middle + x * a, b_middle + jnp.clip(y, -1, 1) * b


@collision_primitive.collider(ncon=8)
def box_box(a: Any, b: Any) -> Any:
    """Returns the contacts of two boxes: of two edges, or the corners of two faces' overlap."""
    rotation = a.mat.T @ b.mat
    to_b, to_a = a.mat.T @ (b.pos - a.pos), b.mat.T @ (a.pos - b.pos)
    # Of the axes that may separate the boxes, the one on which they are farthest apart decides: a
    # normal of a face, or a normal of two edges that is more than a little better.
    apart_a = jnp.abs(to_b) - a.size - jnp.abs(rotation) @ b.size
    apart_b = jnp.abs(to_a) - b.size - a.size @ jnp.abs(rotation)
    apart_faces = jnp.concatenate([apart_a, apart_b])
    face, apart_face = jnp.argmax(apart_faces), jnp.max(apart_faces)
    axes = jnp.cross(jnp.eye(3)[:, None], rotation.T[None])  # of each pair of edges
    squares = jnp.sum(axes**2, axis=2)
    is_parallel = squares < (1e-16 if axes.dtype == jnp.float64 else 1e-7)
    axes = axes / jnp.sqrt(jnp.where(is_parallel, 1, squares))[..., None]
    apart_edges = jnp.abs(axes @ to_b) - jnp.abs(axes) @ a.size - jnp.abs(axes @ rotation) @ b.size
    apart_edges = jnp.where(is_parallel, -jnp.inf, apart_edges).ravel()
    edges, apart = jnp.int32(-1), apart_face
    for i, each in enumerate(apart_edges):
        is_better = (each - 1e-6 * jnp.abs(each) > apart) & (each > apart_face)
        edges, apart = jnp.where(is_better, i, edges), jnp.where(is_better, each, apart)
    axis = axes.reshape(9, 3)[edges]
    # Edges whose axis is nearly a face's normal must be better by five percent.
    along = jnp.abs(jnp.concatenate([jnp.eye(3), rotation.T])[face] @ axis)
    is_worth = apart >= apart_face + 0.05 * jnp.abs(apart_face) + mujoco.mjMINVAL
    is_edge = (edges >= 0) & ((along <= 0.99) | is_worth)
    on_edges = _edge_contact(axis, edges // 3, edges % 3, rotation, to_b, a, b)
    on_faces = _face_contacts(face, a, b)
    distances, points, normal = jax.tree.map(
        lambda edge, face: jnp.where(is_edge, edge, face), on_edges, on_faces
    )
    return distances, points, jnp.stack([math.make_frame(normal)] * 8)


def _edge_contact(
    axis: jax.Array,
    i: jax.Array,
    j: jax.Array,
    rotation: jax.Array,
    to_b: jax.Array,
    a: Any,
    b: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the contact of edge direction `i` of box `a` and `j` of `b`, and its normal."""
    axis = jnp.where(axis @ to_b < 0, -axis, axis)
    along_a, along_b = jnp.eye(3)[i], jnp.eye(3)[j]
    corner_a = jnp.where(axis >= 0, a.size, -a.size) * (1 - along_a)
    corner_b = jnp.where(axis @ rotation >= 0, -b.size, b.size) * (1 - along_b)
    half_a, half_b = a.size * along_a, b.size * along_b
    on_a, on_b = closest_on_segments(
        corner_a - half_a,
        corner_a + half_a,
        to_b + rotation @ (corner_b - half_b),
        to_b + rotation @ (corner_b + half_b),
    )
    point = a.pos + a.mat @ ((on_a + on_b) / 2)
    distances = jnp.ones(8).at[0].set((on_b - on_a) @ axis)
    return distances, jnp.broadcast_to(point, (8, 3)), a.mat @ axis


def _face_contacts(face: jax.Array, a: Any, b: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the contacts of face axis `face`, 0 to 2 of box `a`, 3 to 5 of `b`, and the normal.

    The face of the other box that looks at it is clipped to its four sides.
    """
    is_a = face < 3
    box, other = (
        jax.tree.map(lambda x, y: jnp.where(is_a, x, y), *pair) for pair in ((a, b), (b, a))
    )
    mat, size, other_size = box.mat, box.size, other.size
    rotation, center = mat.T @ other.mat, mat.T @ (other.pos - box.pos)
    # The axis of the face comes last, then that of the other box's face.
    order = (face + jnp.arange(1, 4)) % 3
    mat, size, rotation, center = mat[:, order], size[order], rotation[order], center[order]
    other_order = (jnp.argmax(jnp.abs(rotation[2])) + jnp.arange(1, 4)) % 3
    rotation, other_size = rotation[:, other_order], other_size[other_order]
    sign = jnp.where(center[2] >= 0, 1, -1)
    other_sign = jnp.where(sign * rotation[2, 2] > 0, -1, 1)
    # Coordinates in the face, and the height above it.
    above = jnp.ones(3).at[2].set(sign)
    u, v, w = (above[:, None] * rotation * other_size).T
    middle = above * center + other_sign * w - jnp.zeros(3).at[2].set(size[2])
    corners = jnp.stack([middle + s * u + t * v for s, t in _FACE_CORNERS])
    polygon, number = jnp.zeros((8, 3)).at[:4].set(corners), jnp.int32(4)
    for dimension in (0, 1):
        for side in (1, -1):
            beyond = side * polygon[:, dimension] - size[dimension]
            polygon, number = _clip(polygon, number, beyond)
    squares = jnp.sum((polygon[:, None, :2] - polygon[None, :, :2]) ** 2, axis=2)
    is_near = squares < (1e-14 if size.dtype == jnp.float64 else 1e-10) * jnp.sum(size[:2] ** 2)
    is_contact = (jnp.arange(8) < number) & ~jnp.tril(is_near, -1).any(axis=1)
    heights = polygon[:, 2]
    points = box.pos + polygon.at[:, 2].set(sign * (size[2] + heights / 2)) @ mat.T
    normal = jnp.where(is_a, sign, -sign) * mat[:, 2]
    return jnp.where(is_contact, heights, 1), points, normal


def _clip(polygon: jax.Array, number: jax.Array, beyond: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cuts off the part of a convex polygon where `beyond` (8,) is positive.

    Args:
        polygon: corners (8, 3), of which `number` are used.
        number: the number of corners.
        beyond: how far each corner lies beyond the line of the cut.
    """
    index = jnp.arange(8)
    is_corner, following = index < number, jnp.where(index + 1 < number, index + 1, 0)
    is_cut = is_corner & (jnp.sign(beyond) * jnp.sign(beyond[following]) < 0)
    fraction = beyond / jnp.where(is_cut, beyond - beyond[following], 1)
    cuts = polygon + fraction[:, None] * (polygon[following] - polygon)
    candidates = jnp.stack([polygon, cuts], axis=1).reshape(16, 3)
    is_kept = jnp.stack([is_corner & (beyond <= 0), is_cut], axis=1).ravel()
    place = jnp.where(is_kept, jnp.cumsum(is_kept) - 1, 8)
    kept = jnp.zeros((8, 3)).at[place].set(candidates, mode="drop")
    return kept, jnp.sum(is_kept, dtype=jnp.int32)
