"""Running means and variances of what streams by."""

import math
from typing import Self

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, reshard

# A batch is summed in this many blocks at most. Laid over devices whose number divides that of
# the blocks, each block lies on one of them.
_BLOCKS = 16
_LANES = 64  # neighboring rows summed side by side, as many as make a long vector
_TERMS = 16  # summed in one pass


@chex.dataclass(frozen=True)
class RunningStatistics:
    """Mean and variance of all values seen so far, for each element of shape [...]."""

    count: jax.Array  # float32[], values seen; exact up to 2**24, from there on to 7 digits
    mean: jax.Array  # float32[...]
    variance: jax.Array  # float32[...], of the population

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], count: float = 0.0) -> Self:
        """Nothing seen yet: mean 0, variance 1, so that `normalize` changes nothing.

        They weigh as much as `count` values.
        """
        return cls(
            count=jnp.float32(count),
            mean=jnp.zeros(shape, jnp.float32),
            variance=jnp.ones(shape, jnp.float32),
        )

    def update(self, values: jax.Array, mask: jax.Array | None = None) -> Self:
        """Takes in a batch of B values.

        The result is the same, bit for bit, on one device and with the batch laid over several,
        if their number divides both B and 16.

        Args:
            values: float32[B, ...].
            mask: bool[B], which of them count; None for all.
        """
        return self.merge(type(self).of_batch(values, mask))

    @classmethod
    def of_batch(cls, values: jax.Array, mask: jax.Array | None = None) -> Self:
        """The statistics of one batch alone; the arguments are those of `update`."""
        # Without the barrier, each sum computes the values again, possibly rounded differently.
        values = jax.lax.optimization_barrier(_gathered(values))
        origin = values[0]  # near the values, so that differences from it do not cancel
        differences = values - origin[None]
        if mask is None:
            count = jnp.float32(values.shape[0])
        else:
            mask = _gathered(mask)
            count = mask.sum(dtype=jnp.int32).astype(jnp.float32)
            rows = mask.reshape(mask.shape + (1,) * (values.ndim - 1))
            differences = jnp.where(rows, differences, 0.0)
        divisor = jnp.maximum(count, 1.0)
        mean = _sums(differences) / divisor
        square = _sums(_product(differences, differences)) / divisor
        variance = jnp.maximum(square - _product(mean, mean), 0.0)
        return cls(count=count, mean=origin + mean, variance=variance)

    def merge(self, other: Self) -> Self:
        """The statistics of what either has seen.

        Source: T. F. Chan, G. H. Golub, R. J. LeVeque, Updating Formulae and a Pairwise Algorithm
        for Computing Sample Variances, 1979.
        """
        count = self.count + other.count
        divisor = jnp.maximum(count, np.finfo(np.float32).tiny)
        old, new = self.count / divisor, other.count / divisor
        difference = other.mean - self.mean
        variance = _product(old, self.variance) + _product(new, other.variance)
        variance = variance + _product(old * new, difference * difference)
        return type(self)(
            count=count,
            mean=self.mean + difference / (divisor / other.count),
            variance=jnp.where(count > 0, variance, self.variance),
        )

    def normalize(
        self, values: jax.Array, limit: float | None = 10.0, epsilon: chex.Numeric = 1e-8
    ) -> jax.Array:
        """Centers and scales `values`, float32[..., *shape], and clips them to +-`limit`.

        `epsilon` is added to the variance; a limit of None clips nothing.
        """
        scale = jax.lax.rsqrt(self.variance + epsilon)
        leading = (1,) * (values.ndim - self.mean.ndim)
        mean, scale = (x.reshape(leading + x.shape) for x in (self.mean, scale))
        normalized = (values - mean) * scale
        return normalized if limit is None else jnp.clip(normalized, -limit, limit)


def _gathered(values: jax.Array) -> jax.Array:
    """`values` on every device, where the mesh has shapes carry their sharding."""
    sharding = jax.typeof(values).sharding
    if not any(sharding.spec):
        return values
    return reshard(values, NamedSharding(sharding.mesh, PartitionSpec()))


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a * b where that is at least 0.

    The maximum is without effect but for one: compilers cannot fuse the product with a sum,
    which would round differently from program to program.
    """
    return jnp.maximum(a * b, 0.0)


def _sums(values: jax.Array) -> jax.Array:
    """Sums [B, ...] over B, in an order that does not depend on how B lies over devices."""
    blocks = math.gcd(len(values), _BLOCKS)
    lanes = math.gcd(len(values) // blocks, _LANES)
    rest = values.shape[1:]
    sums = _added(values.reshape(blocks, -1, lanes * math.prod(rest)))
    sums = _added(sums[None])
    return _added(sums.reshape(1, lanes, -1)).reshape(rest)


def _added(values: jax.Array) -> jax.Array:
    """Sums [A, R, W] over R.

    The additions are written out, since a reduction takes the order that the compiler likes,
    and along a short W takes five times as long.
    """
    while values.shape[1] > 1:
        terms = next(n for n in range(_TERMS, 0, -1) if values.shape[1] % n == 0)
        if terms == 1:  # a large prime
            return values.sum(1)
        parts = values.reshape(values.shape[0], terms, -1, values.shape[2])
        values = sum((parts[:, i] for i in range(1, terms)), start=parts[:, 0])
    return values[:, 0]
