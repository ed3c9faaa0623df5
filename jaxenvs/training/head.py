"""The last layer of a network."""

import flax.linen as nn
import jax
import jax.numpy as jnp

_FEW_OUTPUTS = 6
_MANY_ROWS = 512


class Head(nn.Module):
    """A dense layer with few outputs; its parameters are those of `flax.linen.Dense`.

    On CPU, the gradient of a product with a narrow kernel takes the slow way through XLA, that of
    one product a column a quick one. Gradient steps of a 4-64-64-n tanh network, us, dense /
    columns, on 2 cores (jax 0.12.0; 0.10.2 likewise):

        rows     128            512            1,024          4,096
        n = 2    54.6 / 46.6    221 / 184      565 / 479      1901 / 1600
        n = 3    54.8 / 80.0    223 / 205      575 / 482      1924 / 1632
        n = 6    57.7 / 84.0    232 / 221      608 / 523      2002 / 1739

    With one output the two are the same program.
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
        few = self.features == 2 or (2 < self.features <= _FEW_OUTPUTS and rows >= _MANY_ROWS)
        if few and jax.default_backend() == "cpu":
            y = jnp.stack([x @ kernel[:, i] for i in range(self.features)], axis=-1)
        else:
            y = x @ kernel
        return y + bias.reshape((1,) * (y.ndim - 1) + bias.shape)
