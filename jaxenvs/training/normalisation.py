"""Running means and variances of what streams by."""

import dataclasses
from typing import Self

import chex
import jax
import jax.numpy as jnp


@chex.dataclass(frozen=True)
class RunningStatistics:
    """Mean and variance of all values seen so far, for each element of shape [...]."""

    count: jax.Array  # float32[], values seen
    mean: jax.Array  # float32[...]
    variance: jax.Array  # float32[...], of the population

    @classmethod
    def of_shape(cls, shape: tuple[int, ...]) -> Self:
        """Nothing seen yet: mean 0, variance 1, so that `normalise` changes nothing."""
        return cls(
            count=jnp.float32(0),
            mean=jnp.zeros(shape, jnp.float32),
            variance=jnp.ones(shape, jnp.float32),
        )

    def update(self, values: jax.Array) -> Self:
        """Takes in `values`, float32[B, ...]: a batch of B on the leading axis.

        Source: T. F. Chan, G. H. Golub, R. J. LeVeque, Updating Formulae and a Pairwise Algorithm
        for Computing Sample Variances, 1979.
        """
        seen = jnp.float32(values.shape[0])
        count = self.count + seen
        difference = values.mean(0) - self.mean
        mean = self.mean + difference * (seen / count)
        spread = self.variance * self.count + values.var(0) * seen
        spread += difference**2 * (self.count * seen / count)
        return dataclasses.replace(self, count=count, mean=mean, variance=spread / count)

    def normalise(self, values: jax.Array, limit: float = 10.0) -> jax.Array:
        """Centres and scales `values`, float32[..., *shape], and clips them to +-`limit`."""
        scale = jax.lax.rsqrt(self.variance + 1e-8)
        leading = (1,) * (values.ndim - self.mean.ndim)
        mean, scale = (x.reshape(leading + x.shape) for x in (self.mean, scale))
        return jnp.clip((values - mean) * scale, -limit, limit)
