"""Acting in N instances for T steps, and counting the episodes that come by."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.training.algorithms.base import Algorithm, Behaviour, Parts
from jaxenvs.training.types import Collector, EpisodesUnderWay, Transition, Unroll


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
        ),
    )


def collect(
    algorithm: Algorithm,
    parts: Parts,
    env: VectorEnv,
    behaviour: Behaviour,
    collector: Collector,
    unroll_length: int,
    key: chex.PRNGKey,
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
            behaviour,
            collector.carry,
            algorithm.shown(features, behaviour.observation_statistics),
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
        return collector, (recorded, so_far)

    after, (transition, episodes) = jax.lax.scan(
        step, collector, jax.random.split(key, (unroll_length, 2))
    )
    unroll = Unroll(
        transition=transition,
        last_observation=after.observation,
        carry=collector.carry,
        log_prob=algorithm.recorded(parts, behaviour, transition, collector.carry),
        episodes=episodes,
    )
    return after, unroll


def count_step(
    episodes: EpisodesUnderWay, timestep: TimeStep, gamma: jax.Array | float
) -> tuple[EpisodesUnderWay, EpisodesUnderWay]:
    """Adds one step of N instances: what to carry on, and the sums as of this step."""
    so_far = EpisodesUnderWay(
        episode_return=episodes.episode_return + timestep.reward,
        episode_length=episodes.episode_length + 1,
        discounted_return=gamma * episodes.discounted_return + timestep.reward,
    )
    carried = jax.tree.map(lambda x: jnp.where(timestep.done, jnp.zeros_like(x), x), so_far)
    return carried, so_far


def episode_metrics(unroll: Unroll, axis_name: str | None = None) -> dict[str, jax.Array]:
    """Means over the episodes that ended within the unroll, and their number; float32[] each.

    On all devices of the axis together, if one is named.

    Where none ended the means are NaN: a number there would be made up.
    """
    done = unroll.transition.done

    def total(x: jax.Array) -> jax.Array:
        here = jnp.where(done, x, jnp.zeros_like(x)).sum().astype(jnp.float32)
        return here if axis_name is None else jax.lax.psum(here, axis_name)

    count = total(jnp.ones_like(done, jnp.float32))

    def mean(x: jax.Array) -> jax.Array:
        return jnp.where(count > 0, total(x) / jnp.maximum(count, 1.0), jnp.nan)

    return {
        "episode_return": mean(unroll.episodes.episode_return),
        "episode_length": mean(unroll.episodes.episode_length),
        "episode_count": count,
    }


def summarised(metrics: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """K rows, [K] each, as one: means over episodes and over what was computed, the last steps."""
    count = metrics["episode_count"]
    rows = {name: jnp.nanmean(values) for name, values in metrics.items()}
    for name in ("episode_return", "episode_length"):
        total = jnp.where(count > 0, metrics[name] * count, 0.0).sum()
        rows[name] = jnp.where(count.sum() > 0, total / jnp.maximum(count.sum(), 1.0), jnp.nan)
    return rows | {"episode_count": count.sum(), "steps": metrics["steps"][-1]}
