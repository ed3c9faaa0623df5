"""Wrappers that normalize observations and rewards by running statistics."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.core import TimeStep, VectorEnv, Wrapper
from jaxenvs.errors import WrapperError
from jaxenvs.spaces import Box
from jaxenvs.struct import select
from jaxenvs.wrappers.vector import InstanceView, WrappedVectorEnv, laid_like
from jaxenvs.wrappers._checks import checked_box
from jaxenvs.wrappers.statistics import RunningStatistics

# The weight of the initial mean 0 and variance 1, as in Gymnasium. So the variance is not 0 after
# the first value.
_PRIOR_COUNT = 1e-4


@chex.dataclass(frozen=True)
class NormalizeState:
    """The state of one environment, or of N that share the statistics."""

    inner: chex.ArrayTree  # the wrapped state
    statistics: RunningStatistics
    memory: Any = None  # float32[] or [N], the discounted return so far, if rewards are scaled
    last: Any = None  # for N: what the next step needs, see `WrappedVectorEnv._last`


class _Normalize(Wrapper[NormalizeState]):
    """The base of wrappers that keep statistics in their state and wrap a batch as a whole.

    A subclass has the fields `statistics` and `update_running_mean`. It defines `_first` and
    `_next` for N environments; a single one is a batch of one.
    """

    @classmethod
    def wrap_batch(cls, batch: VectorEnv, *args: Any, **kwargs: Any) -> VectorEnv:
        return NormalizedVectorEnv(cls(InstanceView(batch), *args, **kwargs))

    def __post_init__(self) -> None:
        super().__post_init__()
        epsilon: Any = self.epsilon  # pyright: ignore[reportAttributeAccessIssue] of a subclass
        if not struct.is_traced(epsilon) and not np.all(epsilon >= 0):
            raise WrapperError(
                f"{type(self).__name__} got epsilon={epsilon}; it must be at least 0, or roots of"
                " small variances are NaN."
            )

    def _start(self) -> RunningStatistics:
        """Returns the statistics that `reset` starts from."""
        raise NotImplementedError

    def _first(
        self, statistics: RunningStatistics, timestep: TimeStep, mask: jax.Array | None = None
    ) -> tuple[RunningStatistics, Any, TimeStep]:
        """Starts the memory where `mask` is true, and normalizes the timestep of a reset."""
        raise NotImplementedError

    def _next(
        self,
        statistics: RunningStatistics,
        memory: Any,
        timestep: TimeStep,
        acted: jax.Array | None = None,
        shown: jax.Array | None = None,
    ) -> tuple[RunningStatistics, Any, TimeStep]:
        """Normalizes the timestep of a step.

        Args:
            statistics: the statistics before the step.
            memory: the memory before the step.
            timestep: the timestep of the wrapped batch.
            acted: bool[N], which instances took an action; None for all.
            shown: bool[N], which instances show a new observation; None for all.
        """
        raise NotImplementedError

    def inner(self, state: NormalizeState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[NormalizeState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return self._packed(inner, *self._first(self._start(), _lead(timestep)))

    def step(
        self, state: NormalizeState, action: Any, key: chex.PRNGKey
    ) -> tuple[NormalizeState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        mapped = self._next(state.statistics, _lead(state.memory), _lead(timestep))
        return self._packed(inner, *mapped)

    def _packed(
        self, inner: Any, statistics: RunningStatistics, memory: Any, timestep: TimeStep
    ) -> tuple[NormalizeState, TimeStep]:
        memory, timestep = jax.tree.map(lambda leaf: leaf[0], (memory, timestep))
        return NormalizeState(inner=inner, statistics=statistics, memory=memory), timestep


class NormalizeObservation(_Normalize):
    """Normalizes observations to mean 0 and standard deviation 1, by those seen so far.

    Observation: float32, of the shape of the wrapped `Box`, without bounds
    Statistics: of each element, over every observation that an agent was shown, counted once

    The statistics are in the state, under `statistics`. `reset` starts from the field of that name,
    or from empty statistics if it is None. `env.replace(statistics=state.statistics)` continues
    from others. With `update_running_mean=False` they do not change, for evaluation.

    Wrap a batch with `vector_env.wrap(NormalizeObservation)`. All instances then share one set of
    statistics: a step first adds the whole batch, then normalizes it. Resets of instances and
    `reset_where` keep the statistics; `reset` of the batch starts over. With same-step autoreset,
    the agent sees first observations in place of last ones, so `final_observation` is normalized
    but not counted. On a mesh, the statistics are those of the whole batch. Equal observations give
    the same bits as on one device if the number of devices divides 16.

    Inside `vectorize`, each instance would have its own statistics and lose them with each episode.

    Raises:
        WrapperError: the wrapped observation space is not a `Box`; or, from `reset`, the
            `statistics` belong to values of another shape.
    """

    epsilon: chex.Numeric = 1e-8  # added to the variance
    statistics: RunningStatistics | None = None
    update_running_mean: bool = struct.static(True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_space("observation_space")

    @property
    def observation_space(self) -> Box:
        box = checked_box(self, "observation_space", self.env.observation_space)
        return Box(-np.inf, np.inf, box.shape, np.float32)

    def _start(self) -> RunningStatistics:
        return _given_or_new(self, self.observation_space.shape)

    def _first(
        self, statistics: RunningStatistics, timestep: TimeStep, mask: jax.Array | None = None
    ) -> tuple[RunningStatistics, None, TimeStep]:
        return self._next(statistics, None, timestep, shown=mask)

    def _next(
        self,
        statistics: RunningStatistics,
        memory: None,
        timestep: TimeStep,
        acted: jax.Array | None = None,
        shown: jax.Array | None = None,
    ) -> tuple[RunningStatistics, None, TimeStep]:
        seen = timestep.observation.astype(jnp.float32)
        if self.update_running_mean:
            statistics = statistics.update(seen, shown)

        def normalized(observation: jax.Array | None) -> jax.Array | None:
            if observation is None:  # a single environment has no final observation
                return None
            values = observation.astype(jnp.float32)
            return statistics.normalize(values, limit=None, epsilon=self.epsilon)

        return (
            statistics,
            None,
            timestep.replace(
                observation=normalized(timestep.observation),
                final_observation=normalized(timestep.final_observation),
            ),
        )


class NormalizeReward(_Normalize):
    """Divides rewards by the standard deviation of the discounted returns seen so far.

    A return is the discounted sum of the rewards of an episode up to now. It is counted at each
    step and cleared when the episode ends. Rewards are not centered. The statistics are kept,
    shared, frozen and replaced like those of `NormalizeObservation`.

    Source: `VecNormalize` of OpenAI Baselines. Gymnasium's wrapper of this name agrees within an
    episode, but counts rewards of one episode in the return of the next, and drops the return on
    the step that terminates.

    Raises:
        WrapperError: from `reset`, the `statistics` are not those of single numbers.
    """

    gamma: chex.Numeric = 0.99  # the learner's discount factor
    epsilon: chex.Numeric = 1e-8  # added to the variance
    statistics: RunningStatistics | None = None
    update_running_mean: bool = struct.static(True)

    def _start(self) -> RunningStatistics:
        return _given_or_new(self, ())

    def _first(
        self, statistics: RunningStatistics, timestep: TimeStep, mask: jax.Array | None = None
    ) -> tuple[RunningStatistics, jax.Array, TimeStep]:
        return statistics, jnp.zeros_like(timestep.reward), timestep

    def _next(
        self,
        statistics: RunningStatistics,
        memory: jax.Array,
        timestep: TimeStep,
        acted: jax.Array | None = None,
        shown: jax.Array | None = None,
    ) -> tuple[RunningStatistics, jax.Array, TimeStep]:
        reward = timestep.reward
        discounted_return = jnp.asarray(self.gamma, reward.dtype) * memory + reward
        if self.update_running_mean:
            statistics = statistics.update(discounted_return.astype(jnp.float32), acted)
        scale = jax.lax.rsqrt(statistics.variance + self.epsilon).astype(reward.dtype)
        over = timestep.done if acted is None else timestep.done | ~acted
        memory = jnp.where(over, jnp.zeros_like(reward), discounted_return)
        return statistics, memory, timestep.replace(reward=reward * scale)


@struct.pytree_dataclass
class NormalizedVectorEnv(WrappedVectorEnv):
    """A batch with shared statistics in its state."""

    wrapper: _Normalize

    def reset(self, key: chex.PRNGKey) -> tuple[NormalizeState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return self._pack(inner, *self.wrapper._first(self.wrapper._start(), timestep))

    def reset_where(
        self, mask: jax.Array, state: NormalizeState, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[NormalizeState, TimeStep]:
        inner, fresh = self._reset_inside(mask, state.inner, key)
        mask = laid_like(state.inner, jnp.asarray(mask))
        statistics, memory, fresh = self.wrapper._first(state.statistics, fresh, mask)
        memory, timestep = select(mask, (memory, fresh), (state.memory, timestep))
        return self._pack(inner, statistics, memory, timestep)

    def step(
        self, state: NormalizeState, action: Any, key: chex.PRNGKey
    ) -> tuple[NormalizeState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        rows: dict[str, jax.Array] = {}
        if self.autoreset_mode == "next_step":
            rows = {"acted": ~state.last}
        elif self.autoreset_mode == "disabled":
            rows = dict.fromkeys(("acted", "shown"), ~state.last.done)
        statistics, memory, timestep = self.wrapper._next(
            state.statistics, state.memory, timestep, **rows
        )
        if self.autoreset_mode == "disabled":
            frozen = state.last.replace(reward=jnp.zeros_like(timestep.reward))
            timestep = select(state.last.done, frozen, timestep)
        return self._pack(inner, statistics, memory, timestep)

    def _pack(
        self, inner: Any, statistics: RunningStatistics, memory: Any, timestep: TimeStep
    ) -> tuple[NormalizeState, TimeStep]:
        last = self._last(timestep)
        state = NormalizeState(inner=inner, statistics=statistics, memory=memory, last=last)
        return state, timestep


def _lead(tree: chex.ArrayTree) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], tree)


def _given_or_new(
    wrapper: NormalizeObservation | NormalizeReward, shape: tuple[int, ...]
) -> RunningStatistics:
    given = wrapper.statistics
    if given is None:
        return RunningStatistics.of_shape(shape, _PRIOR_COUNT)
    if given.mean.shape != shape:
        raise WrapperError(
            f"{type(wrapper).__name__} got statistics of values of shape {given.mean.shape}; it"
            f" needs those of {shape}.  Were they those of another wrapper?"
        )
    return given
