"""Layers that train quickly on a CPU."""

import flax.linen as nn
import jax
import jax.numpy as jnp

_FEW_OUTPUTS = 6
_MANY_ROWS = 512


class NarrowDense(nn.Module):
    """A dense layer with few outputs and the parameters of `flax.linen.Dense`.

    On CPU, XLA computes the gradient of a product with a narrow kernel slowly, but that of one
    product per column quickly. Time in us for a gradient step of a 4-64-64-n tanh network, dense /
    columns, on 2 cores (jax 0.12.0; similar in 0.10.2):

        rows     128            512            1,024          4,096
        n = 2    54.6 / 46.6    221 / 184      565 / 479      1901 / 1600
        n = 3    54.8 / 80.0    223 / 205      575 / 482      1924 / 1632
        n = 6    57.7 / 84.0    232 / 221      608 / 523      2002 / 1739

    With one output, the two are the same program.
    """

    features: int
    kernel_init: nn.initializers.Initializer = nn.initializers.lecun_normal()
    bias_init: nn.initializers.Initializer = nn.initializers.zeros_init()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        bias = self.param("bias", self.bias_init, (self.features,), jnp.float32)
        rows = x.size // x.shape[-1]
        many = isinstance(rows, int) and rows >= _MANY_ROWS  # jax.export may not know the number
        few = self.features == 2 or (2 < self.features <= _FEW_OUTPUTS and many)
        if few and jax.default_backend() == "cpu":
            y = jnp.stack([x @ kernel[:, i] for i in range(self.features)], axis=-1)
        else:
            y = x @ kernel
        return y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)


class Conv(nn.Module):
    """A convolution of images [B, H, W, C] with the parameters of `flax.linen.Conv`.

    On CPU it is computed as a product of windows with the kernel. XLA's fast CPU convolution does
    not support gradients within a loop, which training needs, nor `vmap` over seeds
    (https://github.com/jax-ml/jax/issues/12868). Microseconds per image for the gradient of all
    parameters within a `scan`, convolution / product of windows, on 2 cores (jax 0.12.0):

        SmallCNN on 10x10x4, 256 images        186 / 29, vmapped over 4 seeds 311 / 42
        NatureCNN on 84x84x4, 64 images     31,461 / 1,868
        ImpalaCNN on 64x64x4, 16 images    222,848 / 18,138

    Acting alone takes up to twice as long with NatureCNN, and equally long with the others.
    """

    features: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: str = "SAME"  # or "VALID"
    use_bias: bool = True
    kernel_init: nn.initializers.Initializer = nn.initializers.lecun_normal()
    bias_init: nn.initializers.Initializer = nn.initializers.zeros_init()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (*self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape, jnp.float32)
        convolved = (window_convolution if jax.default_backend() == "cpu" else convolution)(
            x, kernel, self.strides, self.padding
        )
        if not self.use_bias:
            return convolved
        bias = self.param("bias", self.bias_init, (self.features,), jnp.float32)
        return convolved + bias.reshape((1, 1, 1, -1))


def convolution(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], padding: str
) -> jax.Array:
    """Convolves images [B, H, W, C] with a kernel [h, w, C, F] to float32[B, H', W', F]."""
    return jax.lax.conv_general_dilated(
        x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def window_convolution(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], padding: str
) -> jax.Array:
    """Computes `convolution` as a product of windows with the kernel, see `Conv`.

    First turns blocks of pixels into channels, so windows overlap as little as possible: an 8x8
    kernel with stride 4 covers 2x2 blocks instead of 64 pixels.
    """
    (height, width, channels, features), (down, right) = kernel.shape, strides
    batch = x.shape[0]
    pads = jax.lax.padtype_to_pads(x.shape[1:3], (height, width), strides, padding)
    rows, columns = -(-height // down), -(-width // right)  # blocks that a kernel covers
    out_rows = (x.shape[1] + sum(pads[0]) - height) // down + 1
    out_columns = (x.shape[2] + sum(pads[1]) - width) // right + 1
    x = _pad_to_size(x, 1, pads[0][0], (out_rows + rows - 1) * down)
    x = _pad_to_size(x, 2, pads[1][0], (out_columns + columns - 1) * right)
    kernel = _pad_to_size(_pad_to_size(kernel, 0, 0, rows * down), 1, 0, columns * right)

    size = down * right * channels  # elements of a block
    x = x.reshape((batch, out_rows + rows - 1, down, out_columns + columns - 1, right, channels))
    x = x.transpose((0, 1, 3, 2, 4, 5)).reshape((*x.shape[:2], x.shape[3], size))
    kernel = kernel.reshape((rows, down, columns, right, channels, features))
    kernel = kernel.transpose((0, 2, 1, 3, 4, 5)).reshape((-1, features))

    blocks = [
        jax.lax.slice(  # not an index, which jax.export writes as a gather
            x, (0, row, column, 0), (batch, row + out_rows, column + out_columns, x.shape[-1])
        )
        for row in range(rows)
        for column in range(columns)
    ]
    windows = jnp.concatenate(blocks, axis=-1).reshape((-1, kernel.shape[0]))
    return (windows @ kernel).reshape((batch, out_rows, out_columns, features))


def _pad_to_size(x: jax.Array, axis: int, before: int, size: int) -> jax.Array:
    """Pads `x` with `before` zeros along an axis, then crops or pads its end to `size`."""
    pads = [(0, 0)] * x.ndim
    pads[axis] = (before, max(0, size - before - x.shape[axis]))
    return jax.lax.slice_in_dim(jnp.pad(x, pads), 0, size, axis=axis)
