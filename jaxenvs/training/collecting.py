"""Acts in N instances for T steps, and counts the episodes that end."""

from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.training.algorithms.base import Algorithm, Behavior, Parts
from jaxenvs.training.types import Collector, EpisodesUnderWay, Transition, Unroll

WINDOW = 100  # episodes, or some more, that returns and lengths are means over


def start(parts: Parts, env: VectorEnv, key: chex.PRNGKey) -> Collector:
    """Resets all instances."""
    env_state, timestep = env.reset(key)
    num_envs = env.num_envs
    return Collector(
        env_state=env_state,
        observation=timestep.observation,
        carry=parts.networks.initial_carry(num_envs),
        episodes=EpisodesUnderWay(
            episode_return=jnp.zeros(num_envs, jnp.float32),
            episode_length=jnp.zeros(num_envs, jnp.int32),
            discounted_return=jnp.zeros(num_envs, jnp.float32),
            # What is left of an episode that a staggered start cut is no episode's return.
            is_whole=jnp.zeros(num_envs, bool) if env.is_staggered else None,
        ),
    )


def collect(
    algorithm: Algorithm,
    parts: Parts,
    env: VectorEnv,
    behavior: Behavior,
    collector: Collector,
    unroll_length: int,
    key: chex.PRNGKey,
    log_info: Sequence[str] = (),
) -> tuple[Collector, Unroll]:
    """Acts for T steps in N instances, with the weights as they are.

    Only what depends on the step before is computed in the loop; the critic and the
    log-probabilities follow for all steps at once.
    """
    networks = parts.networks
    gamma: Any = algorithm.gamma  # pyright: ignore[reportAttributeAccessIssue] every one has it

    def step(collector: Collector, keys: chex.PRNGKey) -> tuple[Collector, Any]:
        features = networks.features(collector.observation)
        carry, action = algorithm.act(
            parts,
            behavior,
            collector.carry,
            algorithm.shown(features, behavior.observation_statistics),
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
        collector = Collector(
            env_state=env_state, observation=timestep.observation, carry=carry, episodes=episodes
        )
        info = {name: timestep.final_info[name] for name in log_info}
        return collector, (recorded, so_far, info)

    after, (transition, episodes, info) = jax.lax.scan(
        step, collector, jax.random.split(key, (unroll_length, 2))
    )
    unroll = Unroll(
        transition=transition,
        last_observation=after.observation,
        carry=collector.carry,
        log_prob=algorithm.recorded(parts, behavior, transition, collector.carry),
        episodes=episodes,
        ended=transition.done if episodes.is_whole is None else transition.done & episodes.is_whole,
        info=info,
    )
    return after, unroll


def count_step(
    episodes: EpisodesUnderWay, timestep: TimeStep, gamma: jax.Array | float
) -> tuple[EpisodesUnderWay, EpisodesUnderWay]:
    """Adds one step of N instances: what to carry on, and the sums as of this step."""
    done, is_whole = timestep.done, episodes.is_whole
    so_far = EpisodesUnderWay(
        episode_return=episodes.episode_return + timestep.reward,
        episode_length=episodes.episode_length + 1,
        discounted_return=gamma * episodes.discounted_return + timestep.reward,
    )
    carried = jax.tree.map(lambda x: jnp.where(done, jnp.zeros_like(x), x), so_far)
    return (
        carried.replace(is_whole=None if is_whole is None else is_whole | done),
        so_far.replace(is_whole=is_whole),
    )


def no_episodes(log_info: Sequence[str] = ()) -> jax.Array:
    """float32[3 + I, K]: what `noted` starts from, where I names are logged."""
    return jnp.zeros((3 + len(log_info), WINDOW), jnp.float32)


def ended_episodes(unroll: Unroll, axis_name: str | None = None) -> jax.Array:
    """float32[3 + I]: how many episodes ended; sums of their returns, lengths and infos.

    They are those of all devices of the axis, if one is named.
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


def noted(
    recent: jax.Array, ended: jax.Array, log_info: Sequence[str] = ()
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Adds the `ended_episodes` of an update to the recent ones; returns the metrics, float32[].

    `recent` has a column for each of the last K updates in which an episode ended, newest first.
    Means are over as many of them as it takes to have K episodes. K columns always do, and no sum
    runs on for longer than these, so nothing is lost to rounding in a long training.

    `episode_count` is the number that ended in this update. Before the first one the means are NaN.
    """
    moved = jnp.concatenate([ended[:, None], recent[:, :-1]], axis=1)
    recent = jnp.where(ended[0] > 0, moved, recent)
    count = recent[0]
    is_in = jnp.cumsum(count) - count < WINDOW  # the newer ones are too few without it
    total = jnp.where(is_in[None], recent, 0.0).sum(axis=1)
    means = jnp.where(total[0] > 0, total[1:] / jnp.maximum(total[0], 1.0), jnp.nan)
    names = ("episode_return", "episode_length", *(f"info/{name}" for name in log_info))
    return recent, {**dict(zip(names, means, strict=True)), "episode_count": ended[0]}


def summarized(metrics: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """K rows, [K] each, as one.

    That is the last of what `noted` says and of the steps, how many episodes ended in all, and
    means of the rest over the rows that have a value.
    """
    rows = {name: jnp.nanmean(values) for name, values in metrics.items()}
    for name in metrics:
        if name in ("episode_return", "episode_length", "steps") or name.startswith("info/"):
            rows[name] = metrics[name][-1]
    return rows | {"episode_count": metrics["episode_count"].sum()}
