"""A wrapper that truncates episodes after a number of steps."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import TimeStep, Wrapper
from jaxenvs.errors import WrapperError
from jaxenvs.parameters import check_time_limit
from jaxenvs.struct import is_traced


@chex.dataclass(frozen=True)
class TimeLimitState:
    """The wrapped state and the number of steps since the last reset."""

    inner: chex.ArrayTree  # the wrapped state
    elapsed: jax.Array  # int32[], steps since reset


class TimeLimit(Wrapper[TimeLimitState]):
    """Truncates an episode on step number `time_limit`.

    `terminated` does not change. An episode that terminates on the same step has both flags set, so
    a learner that bootstraps must check `terminated`.

    Raises:
        ParameterError: `time_limit` is not an integer of at least 1.
        WrapperError: the wrapped environment has a shorter limit, so this one would have no effect.
    """

    # A leaf, so that limits can differ between instances. It replaces the inherited property.
    time_limit: int  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_time_limit("TimeLimit", self.time_limit)
        own: Any = self.env.time_limit
        if _is_known(own) and _is_known(self.time_limit) and np.any(self.time_limit > own):
            raise WrapperError(
                f"TimeLimit got time_limit={self.time_limit!r:.60} around {self.env!r:.80}, which"
                f" truncates its episodes after {own!r:.60} steps.  Change that limit, or pass"
                " time_limit to make, which replaces it."
            )

    def inner(self, state: TimeLimitState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[TimeLimitState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return TimeLimitState(inner=inner, elapsed=jnp.int32(0)), timestep

    def step(
        self, state: TimeLimitState, action: Any, key: chex.PRNGKey
    ) -> tuple[TimeLimitState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        elapsed = state.elapsed + 1
        limit = jnp.asarray(self.time_limit, jnp.int32)  # under x64 it may be int64
        return TimeLimitState(inner=inner, elapsed=elapsed), timestep.truncate(elapsed >= limit)


def _is_known(limit: Any) -> bool:
    is_number = isinstance(limit, int | np.generic | np.ndarray | jax.Array)
    return is_number and not is_traced(limit)
