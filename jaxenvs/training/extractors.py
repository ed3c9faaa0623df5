"""Feature extractors: networks that turn observations into features for the heads.

An extractor is any flax module that maps observations [B, ...], prepared by `features_of`, to
features, float32[B, F]. B is the number of observations; H, W and C are the height, width and
channels of an image. Integer pixels are divided by 255; floating-point pixels are not scaled.
"""

from collections.abc import Callable, Mapping, Sequence

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.errors import TrainingError, closest, describe
from jaxenvs.training.layers import Conv

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "silu": nn.silu,
}

_ORTHOGONAL = nn.initializers.orthogonal(2**0.5)
_SHORTEST_SIDE = 5  # pixels; a narrower array is not an image
_NATURE_SIDE = 36  # pixels; the smallest side that NatureCNN's three kernels support


class MLP(nn.Module):
    """A multilayer perceptron with orthogonal initial weights.

    Inputs are flattened to [B, F]; the entries of a Dict are concatenated.
    """

    hidden_sizes: Sequence[int] = (64, 64)
    activation: str | Callable[[jax.Array], jax.Array] = "tanh"  # a name in ACTIVATIONS
    layer_norm: bool = False  # normalize between each layer and its activation

    @nn.compact
    def __call__(self, x: chex.ArrayTree) -> jax.Array:
        activation = _activation(self.activation)
        leaves = [leaf.reshape((leaf.shape[0], -1)) for leaf in jax.tree.leaves(x)]
        leaves = [leaf.astype(jnp.float32) for leaf in leaves]
        x = leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves, axis=-1)
        for size in self.hidden_sizes:
            x = nn.Dense(size, kernel_init=_ORTHOGONAL)(x)
            x = activation(_normalized(x, self.layer_norm))
        return x


class NatureCNN(nn.Module):
    """A network of three convolutions and a dense layer, for images of at least 36x36.

    Source: V. Mnih et al., Human-level control through deep reinforcement learning, 2015.

    Raises:
        TrainingError: the images are too small for the kernels.
    """

    features: int = 512
    layer_norm: bool = False  # normalize between each layer and its activation

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = _pixels(x, _NATURE_SIDE, "NatureCNN", "Use ImpalaCNN, or SmallCNN for 3x3 and larger")
        for channels, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            convolution = Conv(
                channels, (size, size), (stride, stride), padding="VALID", kernel_init=_ORTHOGONAL
            )
            x = nn.relu(_normalized(convolution(x), self.layer_norm))
        return _flatten_and_project(x, self.features, _ORTHOGONAL, self.layer_norm)


class SmallCNN(nn.Module):
    """A network of one convolution and a dense layer, for small images such as MinAtar's 10x10.

    Source: K. Young and T. Tian, MinAtar, 2019.

    Raises:
        TrainingError: the images are smaller than the kernel, or have other channels than
            `categories`.
    """

    channels: int = 16
    features: int = 128
    layer_norm: bool = False  # normalize between each layer and its activation
    kernel_size: int = 3  # side of the convolution's kernel
    # If the channels of images are categories, the number of each: (11, 6, 3) for MiniGrid's type,
    # color, and state. They become one-hot vectors, and numbers from there on become zeros.
    categories: Sequence[int] | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if self.categories is not None:
            x = _one_hot_channels(x, self.categories)
        x = _pixels(x, self.kernel_size, "SmallCNN", "Use ImpalaCNN")
        kernel_size = self.kernel_size, self.kernel_size
        x = Conv(self.channels, kernel_size, padding="VALID", kernel_init=_ORTHOGONAL)(x)
        x = nn.relu(_normalized(x, self.layer_norm))
        return _flatten_and_project(x, self.features, _ORTHOGONAL, self.layer_norm)


class ImpalaCNN(nn.Module):
    """A residual network whose stages are a convolution, a pooling by 2 and two residual blocks.

    Images can have any size. As in the authors' code, initial kernels are truncated normals scaled
    by the number of inputs.

    Source: L. Espeholt et al., IMPALA, 2018, figure 3 (the large architecture, without LSTM).
    """

    channels: Sequence[int] = (16, 32, 32)
    features: int = 256

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = _pixels(x, 1, "ImpalaCNN", "")
        for channels in self.channels:
            x = _pool_by_two(Conv(channels, (3, 3))(x))
            for _ in range(2):
                y = Conv(channels, (3, 3))(nn.relu(x))
                x = x + Conv(channels, (3, 3))(nn.relu(y))
        return _flatten_and_project(nn.relu(x), self.features, nn.initializers.lecun_normal())


class FixupCNN(nn.Module):
    """A deeper `ImpalaCNN` that can be trained without normalization layers.

    Each residual block starts as the identity: its last kernel is zero. Its first kernel is scaled
    by the number of blocks to the power -1/2, so the first update changes the features as much as
    in a shallow network. Each block has scalar biases and one multiplier. Images can have any size.

    Source: H. Zhang, Y. N. Dauphin, T. Ma, Fixup Initialization, 2019, section 3. The sizes are
    those of A. Nichol's agent for the Obstacle Tower Challenge, 2019, which Nappo also uses.
    """

    channels: Sequence[int] = (32, 64, 64)
    blocks: Sequence[int] = (2, 2, 4)  # residual blocks after each pooling
    features: int = 256

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = _pixels(x, 1, "FixupCNN", "")
        for channels, blocks in zip(self.channels, self.blocks, strict=True):
            x = _pool_by_two(Conv(channels, (3, 3), kernel_init=nn.initializers.he_normal())(x))
            for _ in range(blocks):
                x = _FixupBlock(sum(self.blocks))(x)
        return _flatten_and_project(nn.relu(x), self.features, nn.initializers.he_normal())


class _FixupBlock(nn.Module):
    depth: int  # residual blocks in the whole network

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        channels = x.shape[-1]
        first = nn.initializers.variance_scaling(2.0 / self.depth, "fan_in", "truncated_normal")
        y = nn.relu(x) + self._scalar("bias_1a", 0.0)
        y = Conv(channels, (3, 3), use_bias=False, kernel_init=first, name="first")(y)
        y = nn.relu(y + self._scalar("bias_1b", 0.0)) + self._scalar("bias_2a", 0.0)
        zeros = nn.initializers.zeros_init()
        y = Conv(channels, (3, 3), use_bias=False, kernel_init=zeros, name="last")(y)
        return x + y * self._scalar("multiplier", 1.0) + self._scalar("bias_2b", 0.0)

    def _scalar(self, name: str, value: float) -> jax.Array:
        # Four axes, because jax_numpy_rank_promotion may forbid implicit broadcasting.
        return self.param(name, nn.initializers.constant(value), (1, 1, 1, 1))


class DictExtractor(nn.Module):
    """A network with an extractor for each entry of a Dict; concatenates features in sorted order.

    The parts of a Tuple have the names "0", "1" and so on.

    Raises:
        TrainingError: the observations have other entries.
    """

    extractors: Mapping[str, nn.Module]

    def __call__(self, x: Mapping[str, chex.ArrayTree]) -> jax.Array:
        if not isinstance(x, Mapping) or set(x) != set(self.extractors):
            given = sorted(x) if isinstance(x, Mapping) else describe(x)
            raise TrainingError(
                f"DictExtractor got observations with {given}, but has extractors for"
                f" {sorted(self.extractors)}.  Pass one extractor for each entry."
            )
        return jnp.concatenate([self.extractors[name](x[name]) for name in sorted(x)], axis=-1)


def default_extractor(
    space: spaces.Space,
    *,
    hidden_sizes: Sequence[int] = (64, 64),
    activation: str | Callable[[jax.Array], jax.Array] = "tanh",
    layer_norm: bool = False,
) -> nn.Module:
    """Returns the default extractor for observations of `space`.

    Images of at least 36x36 get `NatureCNN`, and smaller ones `SmallCNN`; everything else gets one
    `MLP`. A Dict or Tuple that contains an image gets an extractor for each entry. An image is a
    `Box` of three axes and dtype uint8, or of two or three axes with both sides at least 5.

    Args:
        space: the space of one observation.
        hidden_sizes: the sizes of the layers of each `MLP`.
        activation: the activation of each `MLP`, a name in `ACTIVATIONS` or a function.
        layer_norm: whether each layer is normalized, except those of `ImpalaCNN`.

    Raises:
        TrainingError: there is no such activation.
    """
    _activation(activation)
    if (shape := _image_shape(space)) is not None:
        side = min(shape[:2])
        if side < 3:
            return ImpalaCNN()
        cnn = NatureCNN if side >= _NATURE_SIDE else SmallCNN
        return cnn(layer_norm=layer_norm)
    if isinstance(space, spaces.Dict | spaces.Tuple) and _has_image(space):
        settings = {"activation": activation, "layer_norm": layer_norm}
        return DictExtractor(
            {
                name: default_extractor(part, hidden_sizes=hidden_sizes, **settings)
                for name, part in _entries(space).items()
            }
        )
    return MLP(tuple(hidden_sizes), activation, layer_norm)


def features_of(space: spaces.Space) -> Callable[[chex.ArrayTree], chex.ArrayTree]:
    """Returns a function from observations of `space` to an extractor's input.

    Images keep their dtype and become [..., H, W, C] or [..., H, W]: leading channels move to the
    last axis, and stacked frames become channels. Other arrays become float32[..., F], and integers
    of Discrete and MultiDiscrete one-hot vectors. A Dict stays a dict. A Tuple becomes a dict with
    the entries "0", "1" and so on.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        prepare = {name: features_of(part) for name, part in _entries(space).items()}
        is_tuple = isinstance(space, spaces.Tuple)

        def prepare_entries(x):
            x = {str(i): part for i, part in enumerate(x)} if is_tuple else x
            return {name: prepare[name](x[name]) for name in prepare}

        return prepare_entries
    shape = space.shape or ()
    if _image_shape(space) is not None:
        return lambda x: _channels_last(x, shape)
    is_numbers = isinstance(space, spaces.Box | spaces.MultiBinary)

    def flat(x):
        leading = x.shape[: x.ndim - len(shape)]
        if not is_numbers:
            x = jax.vmap(space.flatten)(x.reshape((-1, *shape)))
        return x.reshape((*leading, -1)).astype(jnp.float32)

    return flat


def num_features(extractor: nn.Module, space: spaces.Space) -> int:
    """Returns the number of features F of observations of `space`, without computing any.

    Raises:
        TrainingError: `extractor` is not a module of flax.linen, does not support the space, or
            does not return floats, [B, F].
    """
    if not isinstance(extractor, nn.Module):
        raise TrainingError(
            f"the actor got an extractor of type {type(extractor).__name__}; expected a module of"
            " flax.linen.  For a class of flax.nnx, pass flax.nnx.bridge.to_linen(Class, ...), with"
            " its arguments except rngs."
        )

    def extract(key):
        # Only traced, so spaces of 64-bit arrays work too.
        inputs = features_of(space)(_zeros(space, 2))
        # Training passes weights only: no other state, and no key for dropout.
        return extractor.apply(extractor.init(key, inputs), inputs)

    try:
        features = jax.eval_shape(extract, jax.random.key(0))
    except TrainingError:
        raise
    except Exception as error:
        raise TrainingError(
            f"{type(extractor).__name__} does not support observations of {space!r}: {error}  Pass"
            " another extractor, or None for the default."
        ) from error
    is_array = isinstance(features, jax.ShapeDtypeStruct)
    is_flat = is_array and features.ndim == 2 and features.shape[0] == 2
    if not is_flat or not jnp.issubdtype(features.dtype, jnp.floating):
        fix = "Convert them to floats" if is_flat else "Flatten all axes except the first"
        raise TrainingError(
            f"{type(extractor).__name__} returned {describe(features)} for 2 observations of"
            f" {space!r}; expected floats, [2, F].  {fix}."
        )
    return features.shape[1]


def _zeros(space: spaces.Space, size: int) -> chex.ArrayTree:
    if isinstance(space, spaces.Dict):
        return {name: _zeros(part, size) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_zeros(part, size) for part in space.spaces)
    return jnp.zeros((size, *(space.shape or ())), space.dtype)


def _activation(
    activation: str | Callable[[jax.Array], jax.Array],
) -> Callable[[jax.Array], jax.Array]:
    if not isinstance(activation, str):
        return activation
    if activation not in ACTIVATIONS:
        raise TrainingError(
            f'there is no activation "{activation}".{closest(activation, ACTIVATIONS)}'
            f"  Choose one of {', '.join(ACTIVATIONS)}, or pass a function."
        )
    return ACTIVATIONS[activation]


def _pixels(x: jax.Array, shortest_side: int, what: str, instead: str) -> jax.Array:
    """Returns images [B, H, W, C] or [B, H, W] as float32[B, H, W, C]."""
    if x.ndim not in (3, 4):
        raise TrainingError(
            f"{what} got {describe(x)}; expected images [B, H, W, C] or [B, H, W].  Use MLP for"
            " vectors."
        )
    height, width = x.shape[1:3]
    if min(height, width) < shortest_side:
        raise TrainingError(
            f"{what} got images of {height}x{width} ({describe(x)}); its kernels need at least"
            f" {shortest_side}x{shortest_side}.  {instead}."
        )
    is_integer = jnp.issubdtype(x.dtype, jnp.integer)
    x = x.astype(jnp.float32) / 255.0 if is_integer else x.astype(jnp.float32)
    return x[..., None] if x.ndim == 3 else x


def _one_hot_channels(x: jax.Array, categories: Sequence[int]) -> jax.Array:
    """Returns images of categories [B, H, W, C] as one-hot vectors: float32[B, H, W, F]."""
    if x.ndim != 4 or x.shape[-1] != len(categories):
        raise TrainingError(
            f"SmallCNN got {describe(x)} and categories={tuple(categories)}; expected images"
            f" [B, H, W, {len(categories)}].  Pass the number of categories of each channel."
        )
    vectors = [  # of slices, since jax.export writes an index as a gather
        jax.nn.one_hot(jax.lax.index_in_dim(x, i, axis=-1, keepdims=False), n, dtype=jnp.float32)
        for i, n in enumerate(categories)
    ]
    return jnp.concatenate(vectors, axis=-1)


def _pool_by_two(x: jax.Array) -> jax.Array:
    return nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")


def _normalized(x: jax.Array, layer_norm: bool) -> jax.Array:
    """Normalizes the last axis if asked to. The module that calls this owns the parameters."""
    return nn.LayerNorm()(x) if layer_norm else x


def _flatten_and_project(
    x: jax.Array,
    features: int,
    kernel_init: nn.initializers.Initializer,
    layer_norm: bool = False,
) -> jax.Array:
    """Applies the last layer of a CNN. The module that calls this owns the parameters."""
    x = nn.Dense(features, kernel_init=kernel_init)(x.reshape((x.shape[0], -1)))
    return nn.relu(_normalized(x, layer_norm))


def _entries(space: spaces.Dict | spaces.Tuple) -> dict[str, spaces.Space]:
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return {str(i): part for i, part in enumerate(space.spaces)}


def _has_image(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return any(_has_image(part) for part in _entries(space).values())
    return _image_shape(space) is not None


def _image_shape(space: spaces.Space) -> tuple[int, ...] | None:
    """Returns the shape (H, W, C) or (H, W) of an image, or None for other spaces."""
    if (
        not isinstance(space, spaces.Box)
        or space.shape is None
        or len(space.shape) not in (2, 3, 4)
    ):
        return None
    height, width, *channels = _shape_with_channels_last(space.shape)
    is_bytes = space.dtype == np.uint8 and len(channels) == 1
    if is_bytes or min(height, width) >= _SHORTEST_SIDE:
        return (height, width, *channels)
    return None


def _shape_with_channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 4:  # frames stacked on the first axis
        return (*shape[1:3], shape[0] * shape[3])
    return (*shape[1:], shape[0]) if _channels_come_first(shape) else shape


def _channels_come_first(shape: tuple[int, ...]) -> bool:
    """Returns whether (C, H, W) is more likely than (H, W, C).

    It is if the first axis is the shortest, and either too short for a side or the other two axes
    are equal.
    """
    if len(shape) != 3 or shape[0] >= min(shape[1:]):
        return False
    too_short = shape[0] < _SHORTEST_SIDE <= min(shape[1:])
    return too_short or shape[1] == shape[2] >= _SHORTEST_SIDE


def _channels_last(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    if len(shape) == 4:
        x = jnp.moveaxis(x, -4, -2)
        return x.reshape((*x.shape[:-2], -1))
    return jnp.moveaxis(x, -3, -1) if _channels_come_first(shape) else x
