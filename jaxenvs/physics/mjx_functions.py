"""MJX, with some of its functions replaced while jaxenvs traces a program.

- `plane_capsule` takes another tangent of a contact than C MuJoCo where a capsule stands steeply on
  the plane (https://github.com/google-deepmind/mujoco/issues/2774). With pyramidal friction cones,
  velocities of Ant then differ from C by up to 0.46 after one step.
- The closest points of segments, on which contacts of capsules and edges depend, are off by about
  1e-6, which is added to a denominator: velocities of Humanoid differ by up to 1e-4 after one step.
- `plane_convex` leaves out corners of a box that are more than 1 mm above its lowest one, so a box
  that falls flat lands on one edge: velocities of the Control Suite's stacker differ by up to 8.7.
- `box_box` puts contacts onto the face of one box, not midway between both, has at most four, not
  eight, and takes a corner of a face where two edges cross: when boxes of the stacker touch each
  other, observations differ by up to 6.7 after one step.
- The line search of the constraint solver runs `ls_iterations` times in a batch, because it is a
  `scan`. A `while_loop` gives the same bits and ends when all instances have finished. It cannot
  be differentiated in reverse mode, like the solver around it.
- Loops start with constants, which JAX refuses inside `jax.shard_map`.

Other programs that use MJX in the same process, such as brax, keep its own functions.
"""

import contextlib
import contextvars
import io
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jaxenvs import loops
from jaxenvs.errors import missing_extra

try:
    with contextlib.redirect_stdout(io.StringIO()):  # it prints that Warp is not installed
        import mujoco
        import mujoco.mjx
        from mujoco.mjx._src import collision_driver, collision_sdf, math, solver, support
except ImportError as error:
    raise missing_extra(__name__, "mujoco-mjx", "mujoco") from error

from jaxenvs.physics import mjx_collisions
from jaxenvs.physics.models import precision

mjx: Any = mujoco.mjx
Model = Data = Any  # MJX's own types do not describe its implementation in JAX

_is_ours = contextvars.ContextVar("is_ours", default=False)


@contextlib.contextmanager
def conventions(dtype: Any) -> Iterator[None]:
    """Traces MJX in `dtype`, with our functions, whatever the settings of the program are."""
    token = _is_ours.set(True)
    try:
        with precision(dtype):
            yield
    finally:
        _is_ours.reset(token)


class _Choice:
    """The function `ours` while jaxenvs traces a program, otherwise `theirs`."""

    def __init__(self, theirs: Callable[..., Any], ours: Callable[..., Any]) -> None:
        self._theirs, self._ours = theirs, ours

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._chosen(*args, **kwargs)

    @property
    def ncon(self) -> int:
        """The largest number of contacts, if it is a function of collisions."""
        return self._chosen.ncon

    @property
    def _chosen(self) -> Any:
        return self._ours if _is_ours.get() else self._theirs


def _while_loop(
    is_going: Callable[[Any], Any], advance: Callable[[Any], Any], start: Any, limit: int
) -> Any:
    del limit  # `is_going` counts the iterations
    return loops.while_loop(is_going, advance, start)


class _With:
    """A module in which some names have other values."""

    def __init__(self, module: Any, **values: Any) -> None:
        self._module = module
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _install() -> None:
    functions, kinds = collision_driver._COLLISION_FUNC, mjx.GeomType
    for pair, ours in {
        (kinds.PLANE, kinds.CAPSULE): mjx_collisions.plane_capsule,
        (kinds.PLANE, kinds.BOX): mjx_collisions.plane_box,
        (kinds.BOX, kinds.BOX): mjx_collisions.box_box,
    }.items():
        functions[pair] = _Choice(functions[pair], ours)
    for module, name, ours in (
        (math, "closest_segment_point", mjx_collisions.closest_on_segment),
        (math, "closest_segment_to_segment_points", mjx_collisions.closest_on_segments),
        (solver, "_while_loop_scan", _while_loop),
    ):
        setattr(module, name, _Choice(getattr(module, name), ours))
    while_loop = _Choice(jax.lax.while_loop, loops.while_loop)
    scan = _Choice(jax.lax.scan, loops.scan)
    for module in (collision_sdf, solver, support):
        vars(module)["jax"] = _With(jax, lax=_With(jax.lax, while_loop=while_loop, scan=scan))


_install()
