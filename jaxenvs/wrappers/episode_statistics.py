"""A wrapper that records the returns and lengths of episodes."""

from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers.transform import Transform


@chex.dataclass(frozen=True)
class EpisodeStatisticsMemory:
    """The return and length of the current episode so far."""

    episode_return: chex.ArrayTree  # float32[], the sum of rewards; a dict for several agents
    episode_length: jax.Array  # int32[], the number of steps


class RecordEpisodeStatistics(Transform):
    """Adds the return and length of the current episode to `info`.

    Entries of `info`, with the default `stats_key` of "episode":
        episode_return    float32[], the sum of rewards so far; a dict for several agents
        episode_length    int32[], the number of steps so far
        episode_finished  bool[], true only on the step that ends the episode, where return and
                          length are those of the whole episode

    In a batch with `autoreset_mode="same_step"`, the values of a finished episode are in
    `timestep.final_info`; `timestep.info` belongs to the new episode.

    The wrapper sums the rewards that it receives. Inside a wrapper that changes rewards, these are
    the original rewards; outside it, the changed ones. To record both, use a different `stats_key`
    for one of them.

    Applied to a batch, the values are correct at every step in all autoreset modes. Applied to a
    single environment that is then vectorized with `autoreset_mode="disabled"`, a finished instance
    repeats its last info, including `episode_finished`.

    Raises:
        WrapperError: `info` already has one of these keys.
    """

    per_agent: ClassVar[bool] = False

    stats_key: str = struct.static("episode")

    @classmethod
    def wrap_batch(cls, batch: VectorEnv, *args: Any, **kwargs: Any) -> VectorEnv:
        # A finished instance keeps returning its last timestep. Only a wrapper outside the
        # instances can tell the step that ended the episode from the steps after it.
        if batch.autoreset_mode == "disabled":
            return cls.wrap_whole(batch, *args, **kwargs)
        return super().wrap_batch(batch, *args, **kwargs)

    def frozen(self, timestep: TimeStep) -> TimeStep:
        name = f"{self.stats_key}_finished"
        info = {**timestep.info, name: jnp.zeros_like(timestep.info[name])}
        return super().frozen(timestep).replace(info=info, final_info=info)

    def on_reset(self, timestep: TimeStep) -> tuple[EpisodeStatisticsMemory, TimeStep]:
        memory = EpisodeStatisticsMemory(
            episode_return=jax.tree.map(jnp.zeros_like, timestep.reward),
            episode_length=jnp.int32(0),
        )
        return memory, self._add_to_info(memory, timestep)

    def on_step(
        self, memory: EpisodeStatisticsMemory, timestep: TimeStep
    ) -> tuple[EpisodeStatisticsMemory, TimeStep]:
        memory = EpisodeStatisticsMemory(
            episode_return=jax.tree.map(jnp.add, memory.episode_return, timestep.reward),
            episode_length=memory.episode_length + 1,
        )
        return memory, self._add_to_info(memory, timestep)

    def _add_to_info(self, memory: EpisodeStatisticsMemory, timestep: TimeStep) -> TimeStep:
        record = {
            f"{self.stats_key}_return": memory.episode_return,
            f"{self.stats_key}_length": memory.episode_length,
            f"{self.stats_key}_finished": timestep.done,
        }
        if taken := sorted(record.keys() & timestep.info.keys()):
            raise WrapperError(
                f'RecordEpisodeStatistics got an info that already has the key "{taken[0]}".'
                '  Use a different name, such as stats_key="clipped".'
            )
        return timestep.replace(info={**timestep.info, **record})
