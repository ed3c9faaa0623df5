"""Wrappers for image observations."""

import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep, Wrapper
from jaxenvs.errors import WrapperError, check_integer
from jaxenvs.wrappers._checks import check_single_agent
from jaxenvs.wrappers._observation import ObservationTransform

# The luminance weights of red, green and blue in units of 1/10,000: ITU-R BT.709, rounded as in
# Gymnasium.
_LUMINANCE = np.array([2125, 7154, 721], np.int32)


class AddRenderObservation(Wrapper[Any]):
    """Adds the image that `render` draws, uint8[H, W, 3], to the observation.

    Rendering is compiled into the step. With `render_only`, the image replaces the observation.
    Otherwise the observation becomes `{obs_key: ..., render_key: image}`, or, if it is already a
    dict, gains the key `render_key`.

    Rendering needs the wrapped state, so a batch can be wrapped only if its instances are
    accessible.

    Raises:
        WrapperError: the environment does not define `render` or has several agents, the
            observation already has the key `render_key`, or the instances of a batch are not
            accessible.

    Source: Gymnasium's AddRenderObservation.
    """

    render_only: bool = struct.static(True)
    render_key: str = struct.static("pixels")
    obs_key: str = struct.static("state")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_single_agent(self, "Draw the whole environment with env.render(state).")
        self._check_space("observation_space")

    @property
    def observation_space(self) -> spaces.Space:
        inner = self.env.observation_space
        if self.render_only:
            return self._image_space
        parts = inner.spaces if isinstance(inner, spaces.Dict) else {self.obs_key: inner}
        if self.render_key in parts:
            raise WrapperError(
                f'AddRenderObservation got render_key="{self.render_key}", but observations already'
                f" have that key: {list(parts)}.  Pass a different one."
            )
        return spaces.Dict({**parts, self.render_key: self._image_space})

    @property
    def _image_space(self) -> spaces.Box:
        unwrapped = type(self.env.unwrapped)
        if unwrapped.render is Environment.render:
            raise WrapperError(
                f"AddRenderObservation needs render(state), which {unwrapped.__name__} does not"
                " define.  Define a render method that returns uint8[H, W, 3]."
            )

        def first_image() -> jax.Array:
            return self.env.render(self.env.reset(jax.random.key(0))[0])

        return spaces.Box(0, 255, jax.eval_shape(first_image).shape, np.uint8)

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self._with_image(*self.env.reset(key))

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self._with_image(*self.env.step(state, action, key))

    def _with_image(self, state: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        # Keep rendering separate from the rest of the step. If XLA fused the two, colors could
        # round differently in different programs, and XLA would render again at every use.
        image = lax.optimization_barrier(self.env.render(lax.optimization_barrier(state)))
        observation = image
        if not self.render_only:
            inner = timestep.observation
            parts = inner if isinstance(inner, dict) else {self.obs_key: inner}
            observation = {**parts, self.render_key: image}
        return state, timestep.replace(observation=observation)


class GrayscaleObservation(ObservationTransform):
    """Converts images, uint8[H, W, 3], to grayscale: uint8[H, W], or [H, W, 1] with `keep_dim`.

    The gray level is 0.2125 R + 0.7154 G + 0.0721 B, rounded down. It is exact, because it is
    computed in integers. Gymnasium rounds a float64 sum down, which can give one level less where
    the exact sum is an integer.

    Raises:
        WrapperError: observations are not uint8[H, W, 3].

    Source: Gymnasium's GrayscaleObservation.
    """

    keep_dim: bool = struct.static(False)

    @property
    def observation_space(self) -> spaces.Box:
        shape = _image_shape(self, channels=3)
        return spaces.Box(0, 255, shape[:2] + ((1,) if self.keep_dim else ()), np.uint8)

    def map_observation(self, observation: jax.Array) -> jax.Array:
        total = (observation.astype(jnp.int32) * _LUMINANCE[None, None]).sum(-1, dtype=jnp.int32)
        gray = (total // 10_000).astype(jnp.uint8)
        return gray[..., None] if self.keep_dim else gray


class ResizeObservation(ObservationTransform):
    """Resizes images, uint8[H, W] or uint8[H, W, C], to `shape`, (height, width).

    Each new pixel is the mean of the area it covers, with halves rounded up. This is OpenCV's
    INTER_AREA, which Gymnasium uses. The results differ by at most one of 255 levels due to
    rounding, unless one axis shrinks and the other grows: then OpenCV does not average areas.

    Raises:
        WrapperError: observations are not images of these shapes, or `shape` is not a pair of
            positive integers.

    Source: Gymnasium's ResizeObservation.
    """

    shape: tuple[int, int] = struct.static()

    def __post_init__(self) -> None:
        is_pair = isinstance(self.shape, tuple | list) and len(self.shape) == 2
        if not is_pair:
            raise WrapperError(
                f"ResizeObservation got shape={self.shape!r}; it must be (height, width)."
            )
        name = "ResizeObservation takes shape=(height, width) and got a length"
        shape = tuple(check_integer(WrapperError, name, length) for length in self.shape)
        object.__setattr__(self, "shape", shape)
        super().__post_init__()

    @property
    def observation_space(self) -> spaces.Box:
        old = _image_shape(self)
        if math.prod(old[:2]) > 1 << 23:
            raise WrapperError(
                f"ResizeObservation got images of {old[0]} by {old[1]} pixels; sums over more than"
                " 2**23 pixels overflow.  Render smaller images."
            )
        return spaces.Box(0, 255, (*self.shape, *old[2:]), np.uint8)

    def map_observation(self, observation: jax.Array) -> jax.Array:
        rows, columns = map(_overlaps, observation.shape, self.shape)
        area = int(rows[0].sum() * columns[0].sum())
        # Sum integers, so that rounding does not depend on the order of the sum. Integers below
        # 2**24 are exact in float32 too, and float32 products are much faster.
        exact = np.float32 if 255 * area < 1 << 24 else np.int32
        total = jnp.einsum(
            "ih,jw,hw...->ij...",
            rows.astype(exact),
            columns.astype(exact),
            observation.astype(exact),
            precision=lax.Precision.HIGHEST,
        )
        return ((total.astype(jnp.int32) + area // 2) // area).astype(jnp.uint8)


def _overlaps(old: int, new: int) -> np.ndarray:
    """Returns int[new, old]: how much of each old pixel a new one covers, in a common unit."""
    old_length, new_length = (length // math.gcd(old, new) for length in (new, old))
    old_starts = np.arange(old)[None, :] * old_length
    new_starts = np.arange(new)[:, None] * new_length
    ends = np.minimum(old_starts + old_length, new_starts + new_length)
    return np.maximum(ends - np.maximum(old_starts, new_starts), 0)


def _image_shape(wrapper: ObservationTransform, channels: int | None = None) -> tuple[int, ...]:
    """Returns the shape of the wrapped observations after checking that they are images."""
    space = wrapper.env.observation_space
    shape = space.shape or ()
    fits = len(shape) in (2, 3) if channels is None else len(shape) == 3 and shape[2] == channels
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or not fits:
        expected = "uint8[H, W] or uint8[H, W, C]" if channels is None else "uint8[H, W, 3]"
        raise WrapperError(
            f"{type(wrapper).__name__} needs image observations, {expected}; got {space}."
            "  Add images with AddRenderObservation, or select them from a dict with"
            " FilterObservation."
        )
    return shape
