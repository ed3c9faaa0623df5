"""MuJoCo's own renderer, which draws outside of the compiled program."""

import atexit
import contextlib
import copy
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import loops
from jaxenvs.errors import ParameterError, RenderError, check_integer, closest
from jaxenvs.physics import models
from jaxenvs.struct import is_traced


@dataclasses.dataclass(frozen=True)
class Renderer:
    """Pictures as dm_control and Gymnasium draw them, with lights, shadows, and textures.

    Pass it to `make` as `renderer`. It needs OpenGL: a display, or the environment variable
    `MUJOCO_GL`, which is "egl" (GPUs, Mesa) or "osmesa", set before the program starts. A picture
    is drawn on the host, one after the other.

    Args:
        height: of a picture, in pixels.
        width: of a picture, in pixels.
        camera: the number or the name of one of the model's cameras, or -1 for the free camera that
            looks at all of the model. By default, the model's first camera if it has one.

    Raises:
        ParameterError: a size is not a positive integer.
    """

    height: int = 480
    width: int = 480
    camera: int | str | None = None

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            check_integer(ParameterError, f"Renderer got {name}", getattr(self, name))

    def check(self, caller: str, original: mujoco.MjModel) -> None:
        """Checks that a model has the camera.

        Raises:
            ParameterError: it has not.
        """
        names = [original.camera(i).name for i in range(original.ncam)]
        is_known = self.camera in names or self.camera in (None, *range(-1, original.ncam))
        if not is_known:
            raise ParameterError(
                f"{caller} got a Renderer with camera={self.camera!r}; the model has the cameras"
                f" {', '.join(f'{i} ({name!r})' for i, name in enumerate(names)) or 'none'}, and"
                f" -1 is the free one.{closest(str(self.camera), names)}"
            )


def picture(
    renderer: Renderer,
    original: mujoco.MjModel,
    changes: Mapping[str, Any],
    engine: Any,
    state: Any,
) -> jax.Array:
    """Returns the picture of a state, uint8[height, width, 3].

    Args:
        renderer: how to draw.
        original: the model.
        changes: arrays that replace those of the model.
        engine: the module whose `restore` puts a state into MuJoCo's data.
        state: the state of the task.

    Raises:
        RenderError: MuJoCo cannot draw on this machine.
    """

    def draw(given: Any) -> np.ndarray:
        given = jax.tree.map(np.asarray, given)
        batch = given["state"]["qpos"].shape[:-1]
        pictures = np.empty((*batch, renderer.height, renderer.width, 3), np.uint8)
        for i in np.ndindex(*batch):
            one = jax.tree.map(lambda x, i=i: x[i], given)
            painted = _thread().submit(_paint, renderer, original, engine, **one)
            pictures[i] = painted.result()
        return pictures

    moved = {name: getattr(state, name) for name in ("qpos", "qvel", "kept")}
    given = {"changes": dict(changes), "state": moved}
    if not is_traced(*jax.tree.leaves(given)):
        return jnp.asarray(draw(given))
    result = jax.ShapeDtypeStruct((renderer.height, renderer.width, 3), np.uint8)
    drawn = jax.pure_callback(draw, result, given, vmap_method="broadcast_all")
    return loops.vary_like(drawn, given)


@contextlib.contextmanager
def drawing_errors() -> Iterator[None]:
    """Turns errors of the library behind `MUJOCO_GL` into one that says what to do.

    Raises:
        RenderError: MuJoCo cannot draw.
    """
    try:
        yield
    except Exception as error:  # depends on that library
        raise RenderError(
            f"MuJoCo cannot draw: {error!r:.200}.  Without a display, set the environment"
            " variable MUJOCO_GL to egl or osmesa before the program starts."
        ) from error


@functools.cache
def _thread() -> ThreadPoolExecutor:
    """Returns the thread that draws, since a context of OpenGL belongs to a thread."""
    return ThreadPoolExecutor(1, "mujoco-renderer")


def _paint(
    renderer: Renderer,
    original: mujoco.MjModel,
    engine: Any,
    changes: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
) -> np.ndarray:
    with drawing_errors():
        canvas = _canvas(renderer, original)
        canvas.see(changes)
        engine.restore(original, canvas.data, SimpleNamespace(**state))
        return canvas.paint()


@functools.lru_cache(maxsize=8)
def _canvas(renderer: Renderer, original: mujoco.MjModel) -> "_Canvas":
    return _Canvas(renderer, original)


class _Canvas:
    """A model with a context of OpenGL."""

    def __init__(self, renderer: Renderer, original: mujoco.MjModel) -> None:
        self.model = model = copy.copy(original)
        size = model.vis.global_
        size.offwidth, size.offheight = renderer.width, renderer.height
        self.data, self.original = mujoco.MjData(model), original
        self.changed: dict[str, np.ndarray] = {}  # what the original has, of arrays that differ
        self.gl = mujoco.GLContext(renderer.width, renderer.height)
        atexit.register(self.gl.free)
        self.gl.make_current()
        self.context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        self.scene = mujoco.MjvScene(model, maxgeom=10_000)
        self.camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(model, self.camera)
        number = renderer.camera
        if number is None and model.ncam:
            number = 0
        if isinstance(number, str):
            number = model.camera(number).id
        if number is not None and number >= 0:
            self.camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self.camera.fixedcamid = number
        self.options = mujoco.MjvOption()
        self.options.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False  # as in dm_control
        self.picture = np.empty((renderer.height, renderer.width, 3), np.uint8)

    def see(self, changes: Mapping[str, np.ndarray]) -> None:
        """Replaces arrays of the model."""
        self.gl.make_current()
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        changes = {**self.changed, **changes}
        self.changed = {name: models.array(self.original, name) for name in changes}
        models.change(self.model, changes)
        if "hfield_data" in changes:
            mujoco.mjr_uploadHField(self.model, self.context, 0)

    def paint(self) -> np.ndarray:
        """Returns the picture of the data."""
        mujoco.mj_forward(self.model, self.data)
        whole, every = mujoco.MjrRect(0, 0, *self.picture.shape[1::-1]), mujoco.mjtCatBit.mjCAT_ALL
        options, camera = self.options, self.camera
        mujoco.mjv_updateScene(self.model, self.data, options, None, camera, every, self.scene)
        mujoco.mjr_render(whole, self.scene, self.context)
        mujoco.mjr_readPixels(self.picture, None, whole, self.context)
        return self.picture[::-1].copy()
