"""Collection of unrolls, and statistics of finished episodes."""

from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import loops, struct
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.training.algorithms.algorithm import Algorithm, BehaviorPolicy, TrainContext
from jaxenvs.training.types import CollectorState, RunningEpisodes, Transition, Unroll

WINDOW = 100  # minimum number of episodes in mean returns and lengths


def reset_collector(context: TrainContext, env: VectorEnv, key: chex.PRNGKey) -> CollectorState:
    """Resets all instances."""
    env_state, timestep = env.reset(key)
    num_envs = env.num_envs
    return CollectorState(
        env_state=env_state,
        observation=timestep.observation,
        carry=context.networks.initial_carry(num_envs),
        episodes=RunningEpisodes(
            episode_return=jnp.zeros(num_envs, jnp.float32),
            episode_length=jnp.zeros(num_envs, jnp.int32),
            discounted_return=jnp.zeros(num_envs, jnp.float32),
            # The first episode of a staggered start is partial.
            is_whole=jnp.zeros(num_envs, bool) if env.is_staggered else None,
        ),
    )


def collect(
    algorithm: Algorithm,
    context: TrainContext,
    env: VectorEnv,
    behavior: BehaviorPolicy,
    collector: CollectorState,
    unroll_length: int,
    key: chex.PRNGKey,
    log_info: Sequence[str] = (),
) -> tuple[CollectorState, Unroll]:
    """Acts for T steps in N instances with fixed weights.

    The loop computes only values that depend on the previous step. Log-probabilities are computed
    for all steps at once after the loop, and the critic's values during learning.
    """
    networks = context.networks
    gamma: Any = algorithm.gamma  # pyright: ignore[reportAttributeAccessIssue] all algorithms have it

    def step(collector: CollectorState, keys: chex.PRNGKey) -> tuple[CollectorState, Any]:
        features = networks.features(collector.observation)
        carry, action = algorithm.act(
            context,
            behavior,
            collector.carry,
            algorithm.normalize_features(features, behavior.observation_statistics),
            keys[0],
        )
        env_state, timestep = env.step(collector.env_state, networks.to_action(action), keys[1])
        episodes, so_far = count_step(collector.episodes, timestep, gamma)
        if networks.is_recurrent:
            carry = struct.select(timestep.done, networks.initial_carry(env.num_envs), carry)
        recorded = Transition(
            observation=collector.observation,
            action=action,
            reward=timestep.reward,
            terminated=timestep.terminated,
            truncated=timestep.truncated,
            next_observation=timestep.final_observation,
        )
        collector = CollectorState(
            env_state=env_state, observation=timestep.observation, carry=carry, episodes=episodes
        )
        info = {name: timestep.final_info[name] for name in log_info}
        return collector, (recorded, so_far, info)

    after, (transition, episodes, info) = loops.scan(
        step, collector, jax.random.split(key, (unroll_length, 2))
    )
    unroll = Unroll(
        transition=transition,
        last_observation=after.observation,
        carry=collector.carry,
        log_prob=algorithm.behavior_log_prob(context, behavior, transition, collector.carry),
        episodes=episodes,
        ended=transition.done if episodes.is_whole is None else transition.done & episodes.is_whole,
        info=info,
    )
    return after, unroll


def count_step(
    episodes: RunningEpisodes, timestep: TimeStep, gamma: jax.Array | float
) -> tuple[RunningEpisodes, RunningEpisodes]:
    """Adds one step of N instances. Returns the sums for the next step, and those at this step."""
    done, is_whole = timestep.done, episodes.is_whole
    so_far = RunningEpisodes(
        episode_return=episodes.episode_return + timestep.reward,
        episode_length=episodes.episode_length + 1,
        discounted_return=gamma * episodes.discounted_return + timestep.reward,
    )
    carried = jax.tree.map(lambda x: jnp.where(done, jnp.zeros_like(x), x), so_far)
    return (
        carried.replace(is_whole=None if is_whole is None else is_whole | done),
        so_far.replace(is_whole=is_whole),
    )


def no_recent_episodes(log_info: Sequence[str] = ()) -> jax.Array:
    """Returns the initial state of `add_episodes` with I logged names, float32[3 + I, K]."""
    return jnp.zeros((3 + len(log_info), WINDOW), jnp.float32)


def sum_ended_episodes(unroll: Unroll, axis_name: str | None = None) -> jax.Array:
    """Returns the number of finished episodes and the sums of their returns, lengths and infos.

    The result is float32[3 + I], summed over all devices of the axis if there is one.
    """
    episodes = unroll.episodes
    of_each = (
        jnp.ones_like(unroll.ended),
        episodes.episode_return,
        episodes.episode_length,
        *unroll.info.values(),
    )
    sums = jnp.stack([jnp.where(unroll.ended, x.astype(jnp.float32), 0.0).sum() for x in of_each])
    return sums if axis_name is None else jax.lax.psum(sums, axis_name)


def add_episodes(
    recent: jax.Array, ended: jax.Array, log_info: Sequence[str] = ()
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Adds the episodes that ended in an update to the recent ones.

    `ended` is from `sum_ended_episodes`. `recent` has a column for each of the last K updates in
    which an episode ended, newest first. Means are over as many of these columns as are needed for
    K episodes; K columns are always enough. Because sums stay this short, rounding errors do not
    accumulate in a long training run.

    Returns:
        The new `recent`, and the metrics, float32[] each. Means are NaN before the first episode
        has ended. `episode_count` is the number of episodes that ended in this update.
    """
    moved = jnp.concatenate([ended[:, None], recent[:, :-1]], axis=1)
    recent = jnp.where(ended[0] > 0, moved, recent)
    count = recent[0]
    is_in = jnp.cumsum(count) - count < WINDOW  # newer columns have too few episodes
    total = jnp.where(is_in[None], recent, 0.0).sum(axis=1)
    means = jnp.where(total[0] > 0, total[1:] / jnp.maximum(total[0], 1.0), jnp.nan)
    names = ("episode_return", "episode_length", *(f"info/{name}" for name in log_info))
    return recent, {**dict(zip(names, means, strict=True)), "episode_count": ended[0]}


def summarize_rows(metrics: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Summarizes K rows of metrics, [K] each, in one row.

    Metrics of `add_episodes` and the steps are taken from the last row, `episode_count` is summed,
    and the others are averaged over the rows that have a value.
    """
    rows = {name: jnp.nanmean(values) for name, values in metrics.items()}
    for name in metrics:
        if name in ("episode_return", "episode_length", "steps") or name.startswith("info/"):
            rows[name] = metrics[name][-1]
    return rows | {"episode_count": metrics["episode_count"].sum()}
