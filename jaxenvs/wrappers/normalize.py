"""Wrappers that normalize observations and rewards with running statistics."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import WrapperError
from jaxenvs.spaces import Box
from jaxenvs.wrappers._checks import check_single_agent, wrapped_box
from jaxenvs.wrappers.statistics import RunningStatistics
from jaxenvs.wrappers.vector import BatchWrapper

# The initial weight of mean 0 and variance 1, as in Gymnasium. It keeps the variance above 0 after
# the first value.
_PRIOR_COUNT = 1e-4


@chex.dataclass(frozen=True)
class NormalizeState:
    """The state of one environment. That of a batch is a `WrappedVectorState`."""

    inner: chex.ArrayTree  # the wrapped state
    statistics: RunningStatistics
    memory: Any  # float32[], NormalizeReward: the discounted return so far


class _Normalize(BatchWrapper[NormalizeState]):
    """A wrapper with running statistics in its state, which wraps a batch as a whole.

    A subclass has the fields `epsilon`, `statistics` and `update_running_mean`. It defines
    `on_batch_reset` and `on_batch_step`; a single environment is treated as a batch of one.
    """

    @classmethod
    def wrap_batch(cls, batch: VectorEnv, *args: Any, **kwargs: Any) -> VectorEnv:
        return cls.wrap_whole(batch, *args, **kwargs)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_single_agent(
            self, "RescaleObservation and ScaleReward wrap each agent, with constants."
        )
        epsilon: Any = self.epsilon  # pyright: ignore[reportAttributeAccessIssue] of a subclass
        if not struct.is_traced(epsilon) and not np.all(epsilon >= 0):
            raise WrapperError(
                f"{type(self).__name__} got epsilon={epsilon}; it must be at least 0.  Otherwise"
                " the square roots of small variances are NaN."
            )

    def on_batch_autoreset(
        self, raw: TimeStep, memory: Any, timestep: TimeStep
    ) -> tuple[Any, TimeStep]:
        del raw  # its observations are a part of `timestep`
        return jax.tree.map(jnp.zeros_like, memory), timestep

    def inner(self, state: NormalizeState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[NormalizeState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return self._from_batch_of_one(inner, *self.on_batch_reset(None, _add_batch_axis(timestep)))

    def step(
        self, state: NormalizeState, action: Any, key: chex.PRNGKey
    ) -> tuple[NormalizeState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        mapped = self.on_batch_step(
            state.statistics, _add_batch_axis(state.memory), _add_batch_axis(timestep)
        )
        return self._from_batch_of_one(inner, *mapped)

    def _from_batch_of_one(
        self, inner: Any, statistics: RunningStatistics, memory: Any, timestep: TimeStep
    ) -> tuple[NormalizeState, TimeStep]:
        """Removes the batch axis and returns the state and the timestep."""
        memory, timestep = jax.tree.map(lambda leaf: leaf[0], (memory, timestep))
        return NormalizeState(inner=inner, statistics=statistics, memory=memory), timestep


class NormalizeObservation(_Normalize):
    """Normalizes observations to mean 0 and standard deviation 1 with running statistics.

    Observation: float32, the shape of the wrapped `Box`, unbounded
    Statistics: per element, over all observations that an agent has seen, each counted once

    The state holds the statistics in its field `statistics`. `reset` starts from the wrapper's
    field `statistics`, or from empty statistics if it is None. To continue from earlier statistics,
    use `env.replace(statistics=state.statistics)`. With `update_running_mean=False` they do not
    change, for example during evaluation.

    Wrap a batch with `vector_env.wrap(NormalizeObservation)`. Then all instances share one set of
    statistics. Each step first updates the statistics with the whole batch and then normalizes the
    batch. Autoresets and `reset_where` keep the statistics; `reset` starts them over. With
    "same_step", the agent sees the first observation of the new episode instead of the last one of
    the old episode, so `final_observation` is normalized but not counted. On a mesh, the statistics
    cover the whole batch. For equal observations they have the same bits as on one device if the
    number of devices divides 16.

    Inside `vectorize`, each instance would have its own statistics and lose them at every reset.

    Raises:
        WrapperError: the wrapped observation space is not a `Box`, or there are several agents.
            From `reset`: `statistics` has the wrong shape.
    """

    epsilon: chex.Numeric = 1e-8  # added to the variance
    statistics: RunningStatistics | None = None
    update_running_mean: bool = struct.static(True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_space("observation_space")

    @property
    def observation_space(self) -> Box:
        box = wrapped_box(self, "observation_space")
        return Box(-np.inf, np.inf, box.shape, np.float32)

    def on_batch_reset(
        self, statistics: Any, timestep: TimeStep, mask: jax.Array | None = None
    ) -> tuple[RunningStatistics, None, TimeStep]:
        if statistics is None:
            statistics = _statistics_of_shape(self, self.observation_space.shape)
        return self.on_batch_step(statistics, None, timestep, shown=mask)

    def on_batch_step(
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
            if observation is None:  # a single environment sets no final observation
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

    A return is the discounted sum of the rewards of the current episode. It is added to the
    statistics at every step and cleared when the episode ends. Rewards are not centered. The
    statistics are stored, shared, frozen and replaced as in `NormalizeObservation`.

    Source: `VecNormalize` of OpenAI Baselines. Gymnasium's NormalizeReward agrees within an
    episode. Unlike this wrapper, it carries rewards of one episode over into the return of the
    next, and it drops the return on the step that terminates.

    Raises:
        WrapperError: there are several agents. From `reset`: `statistics` are not statistics of
            scalars.
    """

    gamma: chex.Numeric = 0.99  # the learner's discount factor
    epsilon: chex.Numeric = 1e-8  # added to the variance
    statistics: RunningStatistics | None = None
    update_running_mean: bool = struct.static(True)

    def on_batch_reset(
        self, statistics: Any, timestep: TimeStep, mask: jax.Array | None = None
    ) -> tuple[RunningStatistics, jax.Array, TimeStep]:
        del mask  # the rewards of resets do not count
        statistics = _statistics_of_shape(self, ()) if statistics is None else statistics
        return statistics, jnp.zeros_like(timestep.reward), timestep

    def on_batch_step(
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
        return statistics, discounted_return, timestep.replace(reward=reward * scale)


def _add_batch_axis(tree: chex.ArrayTree) -> Any:
    """Adds a leading axis of length 1 to every leaf."""
    return jax.tree.map(lambda leaf: leaf[None], tree)


def _statistics_of_shape(
    wrapper: NormalizeObservation | NormalizeReward, shape: tuple[int, ...]
) -> RunningStatistics:
    """Returns the wrapper's `statistics`, or empty ones of `shape` if they are None."""
    given = wrapper.statistics
    if given is None:
        return RunningStatistics.of_shape(shape, _PRIOR_COUNT)
    if given.mean.shape != shape:
        raise WrapperError(
            f"{type(wrapper).__name__} got statistics of shape {given.mean.shape}; expected shape"
            f" {shape}.  Do they belong to a different wrapper?"
        )
    return given
