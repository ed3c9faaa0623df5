"""Running means and variances."""

import math
from typing import Self

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, reshard

# The maximum number of blocks that a batch is summed in. If the number of devices divides the
# number of blocks, each block lies on a single device.
_BLOCKS = 16
_LANES = 64  # the number of neighboring rows that are summed in parallel, as one long vector
_TERMS = 16  # the number of terms summed in one pass


@chex.dataclass(frozen=True)
class RunningStatistics:
    """Mean and variance of all values seen so far, for each element of shape [...]."""

    count: jax.Array  # float32[], number of values; exact up to 2**24, then to 7 digits
    mean: jax.Array  # float32[...]
    variance: jax.Array  # float32[...], the population variance

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], count: float = 0.0) -> Self:
        """Returns initial statistics: mean 0 and variance 1, with the weight of `count` values.

        `normalize` with these statistics only clips.
        """
        return cls(
            count=jnp.float32(count),
            mean=jnp.zeros(shape, jnp.float32),
            variance=jnp.ones(shape, jnp.float32),
        )

    def update(self, values: jax.Array, mask: jax.Array | None = None) -> Self:
        """Returns statistics that include a batch of B values.

        If the number of devices divides both B and 16, a batch that is sharded over them gives the
        same bits as on one device.

        Args:
            values: float32[B, ...].
            mask: bool[B], the values to include. None includes all.
        """
        return self.merge(type(self).of_batch(values, mask))

    @classmethod
    def of_batch(cls, values: jax.Array, mask: jax.Array | None = None) -> Self:
        """Returns the statistics of a single batch. See `update` for the arguments."""
        # Without the barrier, each sum recomputes the values and may round them differently.
        values = jax.lax.optimization_barrier(_replicate(values))
        origin = values[0]  # close to all values, so that the differences keep their precision
        differences = values - origin[None]
        if mask is None:
            count = jnp.float32(values.shape[0])
        else:
            mask = _replicate(mask)
            count = mask.sum(dtype=jnp.int32).astype(jnp.float32)
            rows = mask.reshape(mask.shape + (1,) * (values.ndim - 1))
            differences = jnp.where(rows, differences, 0.0)
        divisor = jnp.maximum(count, 1.0)
        mean = _sum_batch(differences) / divisor
        square = _sum_batch(_product(differences, differences)) / divisor
        variance = jnp.maximum(square - _product(mean, mean), 0.0)
        return cls(count=count, mean=origin + mean, variance=variance)

    def merge(self, other: Self) -> Self:
        """Returns the statistics of all values in either set.

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
        """Normalizes `values` to mean 0 and standard deviation 1 and clips them.

        Args:
            values: float32[..., *shape].
            limit: the result is clipped to [-limit, limit]. None disables clipping.
            epsilon: added to the variance.
        """
        scale = jax.lax.rsqrt(self.variance + epsilon)
        leading = (1,) * (values.ndim - self.mean.ndim)
        mean, scale = (x.reshape(leading + x.shape) for x in (self.mean, scale))
        normalized = (values - mean) * scale
        return normalized if limit is None else jnp.clip(normalized, -limit, limit)


def _replicate(values: jax.Array) -> jax.Array:
    """Replicates `values` over the devices if they are sharded over an explicit mesh."""
    sharding = jax.typeof(values).sharding
    if not any(sharding.spec):
        return values
    return reshard(values, NamedSharding(sharding.mesh, PartitionSpec()))


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns a * b, which must be at least 0.

    The maximum does not change the result. It keeps compilers from fusing the product with a sum,
    which would round differently in different programs.
    """
    return jnp.maximum(a * b, 0.0)


def _sum_batch(values: jax.Array) -> jax.Array:
    """Sums [B, ...] over B, in an order that does not depend on how B is sharded."""
    blocks = math.gcd(len(values), _BLOCKS)
    lanes = math.gcd(len(values) // blocks, _LANES)
    rest = values.shape[1:]
    sums = _add_rows(values.reshape(blocks, -1, lanes * math.prod(rest)))
    sums = _add_rows(sums[None])
    return _add_rows(sums.reshape(1, lanes, -1)).reshape(rest)


def _add_rows(values: jax.Array) -> jax.Array:
    """Sums [A, R, W] over R.

    The additions are explicit because the compiler chooses the order of a reduction, and because a
    reduction with a short W takes five times as long.
    """
    while values.shape[1] > 1:
        terms = next(n for n in range(_TERMS, 0, -1) if values.shape[1] % n == 0)
        if terms == 1:  # a large prime
            return values.sum(1)
        parts = values.reshape(values.shape[0], terms, -1, values.shape[2])
        values = sum((parts[:, i] for i in range(1, terms)), start=parts[:, 0])
    return values[:, 0]
