"""MJX, with some of its functions replaced while jaxenvs traces a program.

- `plane_capsule` takes another tangent of a contact than C MuJoCo where a capsule stands steeply on
  the plane (https://github.com/google-deepmind/mujoco/issues/2774). With pyramidal friction cones,
  velocities of Ant then differ from C by up to 0.46 after one step.
- The closest points of segments, on which contacts of capsules and edges depend, are off by about
  1e-6, which is added to a denominator: velocities of Humanoid differ by up to 1e-4 after one step.
- `plane_convex` leaves out corners of a box that are more than 1 mm above its lowest one, so a box
  that falls flat lands on one edge: velocities of the Control Suite's stacker differ by up to 8.7.
- The line search of the constraint solver runs `ls_iterations` times in a batch, because it is a
  `scan`. A `while_loop` gives the same bits and ends when all instances have finished. It cannot
  be differentiated in reverse mode, like the solver around it.

Other programs that use MJX in the same process, such as brax, keep its own functions.

Source: MuJoCo's engine_collision_primitive.c.
"""

import contextlib
import contextvars
import io
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxenvs.errors import missing_extra

try:
    with contextlib.redirect_stdout(io.StringIO()):  # it prints that Warp is not installed
        import mujoco
        import mujoco.mjx
        from mujoco.mjx._src import collision_driver, collision_primitive, math, solver
except ImportError as error:
    raise missing_extra(__name__, "mujoco-mjx", "mujoco") from error

mjx: Any = mujoco.mjx
Model = Data = Any  # MJX's own types do not describe its implementation in JAX

_CORNERS = [(x, y, z) for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)]  # in C MuJoCo's order

_is_ours = contextvars.ContextVar("is_ours", default=False)


@contextlib.contextmanager
def conventions(dtype: Any) -> Iterator[None]:
    """Traces MJX in `dtype`, with our functions, whatever the settings of the program are."""
    token = _is_ours.set(True)
    try:
        with (
            jax.enable_x64(dtype == "float64"),
            jax.numpy_rank_promotion("allow"),
            jax.numpy_dtype_promotion("standard"),
            jax.default_matmul_precision("highest"),  # otherwise GPUs round to ten bits
        ):
            yield
    finally:
        _is_ours.reset(token)


def _ours_or(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def choose(*args: Any) -> Any:
        return (ours if _is_ours.get() else theirs)(*args)

    return choose


@collision_primitive.collider(ncon=2)
def _plane_capsule(plane: Any, capsule: Any) -> Any:
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
def _plane_box(plane: Any, box: Any) -> Any:
    """Returns the contacts of the lower four corners of a box with a plane."""
    normal = plane.mat[:, 2]
    corners = jnp.asarray(_CORNERS) * box.size @ box.mat.T
    lower = jnp.sort(jax.lax.top_k(-(corners @ normal), 4)[1])
    points = box.pos + corners[lower]
    distance = (points - plane.pos) @ normal
    frame = math.make_frame(normal)
    return distance, points - distance[:, None] / 2 * normal, jnp.stack([frame] * 4)


def _closest_on_segment(a: jax.Array, b: jax.Array, point: jax.Array) -> jax.Array:
    """Returns the point of the segment from `a` to `b` that is closest to a point."""
    along = b - a
    length = jnp.maximum(jnp.dot(along, along), mujoco.mjMINVAL)
    return a + jnp.clip(jnp.dot(point - a, along) / length, 0, 1) * along


def _closest_on_segments(
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


def _while_loop(
    is_going: Callable[[Any], Any], advance: Callable[[Any], Any], start: Any, limit: int
) -> Any:
    del limit  # `is_going` counts the iterations
    return jax.lax.while_loop(is_going, advance, start)


def _install() -> None:
    functions, kinds = collision_driver._COLLISION_FUNC, mjx.GeomType
    for pair, ours in {
        (kinds.PLANE, kinds.CAPSULE): _plane_capsule,
        (kinds.PLANE, kinds.BOX): _plane_box,
    }.items():
        collide = _ours_or(functions[pair], ours)
        collide.ncon = ours.ncon  # pyright: ignore[reportFunctionMemberAccess]
        functions[pair] = collide
    for module, name, ours in (
        (math, "closest_segment_point", _closest_on_segment),
        (math, "closest_segment_to_segment_points", _closest_on_segments),
        (solver, "_while_loop_scan", _while_loop),
    ):
        setattr(module, name, _ours_or(getattr(module, name), ours))


_install()
