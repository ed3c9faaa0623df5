"""The MNIST task, and the reading of its images."""

import functools
import gzip
import os
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError

FOLDER = "JAXENVS_MNIST_DIR"  # the environment variable that names the default folder
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
ZOOM = 8  # pixels of the picture per pixel of an image


@chex.dataclass(frozen=True)
class MnistState:
    """The index of the image, and whether it was classified."""

    index: jax.Array  # int32[]
    is_over: jax.Array  # bool[]


class Mnist(Environment[MnistState]):
    """Name the handwritten digit in an image.

    Observation: float32[28, 28], the image, values / 255; after the step, 0
    Action: int32[], the digit
    Reward: 1 for the right digit, otherwise -1
    Start: a uniformly drawn image
    Terminates: after one step
    Time limit: none; every episode terminates

    The images are MNIST's training images. jaxenvs does not contain them. Download
    train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz, and pass their folder as data_dir, or
    name it in the environment variable JAXENVS_MNIST_DIR. You can also pass images and labels.

    bsuite 0.3.6 reads pixels as signed bytes, so values above 127 become negative. The default
    does the same; signed_pixels=False gives observations from 0 to 1.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its MNISTBandit (tests/parity/test_certificates.py).
    """

    images: Any = None  # uint8[K, H, W]; None: read from $JAXENVS_MNIST_DIR
    labels: Any = None  # uint8[K], from 0 to 9
    data_dir: str | None = struct.static(None)  # read images and labels from this folder instead
    fraction: float = struct.static(1.0)  # use only this part of the images, from the start
    signed_pixels: bool = struct.static(True)  # subtract 256 from values above 127, as bsuite does

    def __post_init__(self) -> None:
        if (self.images is None) != (self.labels is None):
            raise ParameterError(
                "Mnist got either images or labels, but not both.  Pass both, or only data_dir."
            )
        if not 0 < self.fraction <= 1:
            raise ParameterError(
                f"Mnist got fraction={self.fraction}; it must be above 0 and at most 1."
            )
        folder = self.data_dir
        if folder is None and self.images is None:
            folder = os.environ.get(FOLDER)
        if folder is not None:
            images, labels = read_images(os.path.abspath(folder))
            vars(self).update(images=images, labels=labels, data_dir=None)
        if self.images is not None and not int(self.fraction * self.images.shape[-3]):
            raise ParameterError(
                f"Mnist got fraction={self.fraction} of {self.images.shape[-3]} images, which is"
                " less than one image.  Pass a larger fraction."
            )

    @property
    def observation_space(self) -> spaces.Box:
        shape = (28, 28) if self.images is None else tuple(self.images.shape[-2:])
        low, high = (-128 / 255, 127 / 255) if self.signed_pixels else (0.0, 1.0)
        return spaces.Box(low, high, shape)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(10)

    def reset(self, key: chex.PRNGKey) -> tuple[MnistState, TimeStep]:
        count = int(self.fraction * self._data()[0].shape[0])
        index = jax.random.randint(key, (), 0, count, jnp.int32)
        state = MnistState(index=index, is_over=jnp.bool_(False))
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: MnistState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[MnistState, TimeStep]:
        del key  # a step is deterministic
        label = self._data()[1][state.index].astype(jnp.int32)
        reward = jnp.where(jnp.asarray(action, jnp.int32) == label, 1.0, -1.0)
        state = MnistState(index=state.index, is_over=jnp.bool_(True))
        black = jnp.zeros(self.observation_space.shape, jnp.float32)
        return state, TimeStep.transition(black, reward=reward, terminated=True)

    def render(self, state: MnistState) -> jax.Array:
        """Draws the image, white on black: uint8[8 H, 8 W, 3]."""
        image = self._data()[0][state.index]
        large = jnp.repeat(jnp.repeat(image, ZOOM, axis=0), ZOOM, axis=1)
        return jnp.broadcast_to(large[..., None], (*large.shape, 3))

    def _observe(self, state: MnistState) -> jax.Array:
        pixels = self._data()[0][state.index].astype(jnp.float32)
        if self.signed_pixels:
            pixels = jnp.where(pixels > 127, pixels - 256, pixels)
        return jnp.where(state.is_over, 0.0, pixels / 255)

    def _data(self) -> tuple[jax.Array, jax.Array]:
        if self.images is None:
            raise ParameterError(
                "Mnist got no images.  Pass data_dir, a folder with MNIST's files"
                f" {FILES[0]}.gz and {FILES[1]}.gz; or name it in the environment"
                f" variable {FOLDER}; or pass images and labels."
            )
        return jnp.asarray(self.images), jnp.asarray(self.labels)


@functools.lru_cache(maxsize=2)
def read_images(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images, uint8[K, H, W], and the labels, uint8[K], of MNIST's files in a folder.

    Raises:
        ParameterError: a file is missing, or is not one of MNIST's.
    """
    arrays = []
    for name in FILES:
        path = Path(folder, f"{name}.gz")
        is_packed = path.is_file()
        path = path if is_packed else Path(folder, name)
        if not path.is_file():
            raise ParameterError(
                f'Mnist got the folder "{folder}", which does not contain {name}.gz.  Download it,'
                " or correct data_dir."
            )
        content = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
        # Four bytes whose last is the number of axes, the lengths of the axes, and the values.
        axes = content[3] if content[:3] == b"\0\0\x08" else 0
        shape = np.frombuffer(content, ">u4", axes, offset=4) if axes else np.zeros(1, int)
        if len(content) != 4 + 4 * axes + int(np.prod(shape)):
            raise ParameterError(f'Mnist got "{path}", which is not a file of MNIST.')
        arrays.append(np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape))
    return arrays[0], arrays[1]
