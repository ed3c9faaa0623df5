"""A wrapper that records returns and lengths of episodes."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers.vector import InstanceView
from jaxenvs.wrappers.transform import Transform, TransformedState, TransformedVectorEnv


@chex.dataclass(frozen=True)
class EpisodeSoFar:
    episode_return: jax.Array  # float32[], the rewards' sum
    episode_length: jax.Array  # int32[], steps


class RecordEpisodeStatistics(Transform):
    """Adds the return and the length of the episode to `info`.

    Info, with the default `stats_key`, "episode":
        episode_return    float32[], the sum of the rewards so far
        episode_length    int32[], the number of steps so far
        episode_finished  bool[], true only on the step that ends the episode, where the other two
                          describe the whole episode

    In a batch with same-step autoreset, `timestep.final_info` has the entries of the episode that
    ended, and `timestep.info` those of the one that starts.

    The wrapper sums the rewards that it sees: the original ones inside a wrapper that changes
    rewards, the changed ones outside. Use another `stats_key` to record both.

    Around a batch, all entries are right in every autoreset mode. Inside
    `vectorize(..., autoreset_mode="disabled")`, a finished instance repeats its last info,
    `episode_finished` included.

    Raises:
        WrapperError: `info` contains one of these keys already.
    """

    stats_key: str = struct.static("episode")

    @classmethod
    def wrap_batch(cls, batch: VectorEnv, *args: Any, **kwargs: Any) -> VectorEnv:
        # A finished instance goes on returning its last timestep. Only from outside of the
        # instances can the step that ended the episode be told from those after it.
        if batch.autoreset_mode == "disabled":
            return _RecordedOnce(cls(InstanceView(batch), *args, **kwargs))
        return super().wrap_batch(batch, *args, **kwargs)

    def on_reset(self, timestep: TimeStep) -> tuple[EpisodeSoFar, TimeStep]:
        memory = EpisodeSoFar(
            episode_return=jnp.zeros_like(timestep.reward), episode_length=jnp.int32(0)
        )
        return memory, self._recorded(memory, timestep)

    def on_step(self, memory: EpisodeSoFar, timestep: TimeStep) -> tuple[EpisodeSoFar, TimeStep]:
        memory = EpisodeSoFar(
            episode_return=memory.episode_return + timestep.reward,
            episode_length=memory.episode_length + 1,
        )
        return memory, self._recorded(memory, timestep)

    def _recorded(self, memory: EpisodeSoFar, timestep: TimeStep) -> TimeStep:
        record = {
            f"{self.stats_key}_return": memory.episode_return,
            f"{self.stats_key}_length": memory.episode_length,
            f"{self.stats_key}_finished": timestep.done,
        }
        if taken := sorted(record.keys() & timestep.info.keys()):
            raise WrapperError(
                f'RecordEpisodeStatistics got an info with "{taken[0]}" in it already.'
                '  Record under another name: stats_key="clipped", for instance.'
            )
        return timestep.replace(info={**timestep.info, **record})


@struct.pytree_dataclass
class _RecordedOnce(TransformedVectorEnv):
    """Records instances that are not reset: only the first step at the end is marked."""

    def step(
        self, state: TransformedState, action: Any, key: chex.PRNGKey
    ) -> tuple[TransformedState, TimeStep]:
        was_finished = state.last.done
        state, timestep = super().step(state, action, key)
        wrapper = self.wrapper
        assert isinstance(wrapper, RecordEpisodeStatistics)
        name = f"{wrapper.stats_key}_finished"
        info = {**timestep.info, name: timestep.info[name] & ~was_finished}
        return state, timestep.replace(info=info, final_info=info)
