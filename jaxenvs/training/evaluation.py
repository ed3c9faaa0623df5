"""Evaluates policies beside a training, in environments that nothing is learned from."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.rollouts import Evaluation
from jaxenvs.training._settings import whole
from jaxenvs.vector.vectorize import VectorizedEnv, vectorize
from jaxenvs.wrappers.time_limit import TimeLimit

MAX_STEPS = 10_000  # of an episode, where the environment has no time limit


def evaluation_env(caller: str, env: VectorEnv | Environment | str, num_episodes: int) -> VectorEnv:
    """Returns instances like those of `env`, one for each episode, whose episodes all end.

    Where parameters are batched there are as many instances as in `env`.

    Raises:
        TrainingError: `env` cannot be copied.
    """
    whole(f"{caller} got evaluation_episodes", num_episodes)
    if isinstance(env, str):
        from jaxenvs.factory import make_vec

        env = make_vec(env, num_episodes)
        if not isinstance(env, VectorizedEnv):
            return env  # of another library: they are new
    if isinstance(env, Environment):
        env = vectorize(env, num_episodes)
    if not isinstance(env, VectorizedEnv):
        raise TrainingError(
            f"{caller} has no environments to evaluate in: {env!r:.80} is hosted, or inside a"
            " wrapper around all instances, so that no others can be made like it.  Pass"
            " evaluation_env=."
        )
    single: Any = env.env
    if single.time_limit is None:
        single = TimeLimit(single, time_limit=MAX_STEPS)
    number = env.num_envs if env.batched else num_episodes
    return vectorize(single, number, batched=env.batched)


def evaluation_metrics(evaluation: Evaluation) -> dict[str, jax.Array]:
    """Means and deviation over the episodes that finished, float32[] each."""
    finished = evaluation.finished.sum().astype(jnp.float32)
    return {
        "evaluation_return": evaluation.mean,
        "evaluation_std": evaluation.std,
        "evaluation_length": evaluation.episode_length.sum().astype(jnp.float32) / finished,
    }
