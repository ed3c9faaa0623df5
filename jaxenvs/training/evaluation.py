"""Evaluation of policies in separate environments, during and after training."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError, check_integer
from jaxenvs.rollouts import Evaluation, evaluate
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.vector.vectorized_env import VectorizedEnv
from jaxenvs.wrappers.independent_agents import IndependentAgents, batch_of, split_agents
from jaxenvs.wrappers.time_limit import TimeLimit

MAX_STEPS = 10_000  # length at which episodes end if the environment has no time limit


def evaluation_env(caller: str, env: VectorEnv | Environment | str, num_episodes: int) -> VectorEnv:
    """Returns instances like those of `env`, one per episode, with a time limit.

    With batched parameters, there are as many instances as in `env`.

    Raises:
        TrainingError: `env` cannot be copied.
    """
    check_integer(TrainingError, f"{caller} got evaluation_episodes", num_episodes)
    if isinstance(env, str):
        from jaxenvs.factory import make_vec

        env = make_vec(env, num_episodes)
        if not isinstance(env, VectorizedEnv):
            return env  # hosted, and new
    if isinstance(env, Environment):
        env = vectorize(env, num_episodes)
    given, env = env, batch_of(env)
    if not isinstance(env, VectorizedEnv):
        raise TrainingError(
            f"{caller} cannot copy {env!r:.80} for the evaluation, because it is hosted or inside a"
            " wrapper around all instances.  Pass evaluation_env=."
        )
    single: Any = env.env
    if single.time_limit is None:
        single = TimeLimit(single, time_limit=MAX_STEPS)
    number = env.num_envs if env.batched else num_episodes
    copied = vectorize(single, number, batched=env.batched)
    is_split = isinstance(given, IndependentAgents)
    return given.with_env(copied) if is_split else split_agents(copied)


def play_episodes(
    env: VectorEnv,
    policy: Any,
    num_episodes: int,
    key: chex.PRNGKey,
    *,
    max_steps: int | None = None,
) -> Evaluation:
    """Plays at least `num_episodes`, the same number in each instance.

    Short episodes therefore do not count more than long ones. In native environments without a
    time limit, episodes end after 10,000 steps.
    """
    batch = batch_of(env)
    single: Any = batch.env if isinstance(batch, VectorizedEnv) else None
    if single is not None and single.time_limit is None and max_steps is None:
        env = evaluation_env("evaluate", env, batch.num_envs)
    return evaluate(env, policy, -(-num_episodes // env.num_envs), key, max_steps=max_steps)


def evaluation_metrics(evaluation: Evaluation) -> dict[str, jax.Array]:
    """Returns mean and standard deviation over the finished episodes, float32[] each."""
    finished = evaluation.finished.sum().astype(jnp.float32)
    return {
        "evaluation_return": evaluation.mean,
        "evaluation_std": evaluation.std,
        "evaluation_length": evaluation.episode_length.sum().astype(jnp.float32) / finished,
    }
