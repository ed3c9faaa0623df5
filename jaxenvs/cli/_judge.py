"""Whole episodes with what was learned, on environments that nothing is learned from."""

from typing import Any

import jax
import numpy as np

import jaxenvs
from jaxenvs import keys
from jaxenvs.cli._loop import close
from jaxenvs.core import VectorEnv
from jaxenvs.rollouts import Evaluation
from jaxenvs.training import ActorPolicy
from jaxenvs.training.config import Config
from jaxenvs.training.evaluation import evaluation_env, evaluation_metrics
from jaxenvs.vector.vectorize import VectorizedEnv


def playing_key(seed: int) -> jax.Array:
    """Returns the key of the episodes that eval, enjoy and render play.

    A training of the same seed draws nothing from it. Nor do its evaluations, which count updates:
    so the best policy was not chosen by the episodes that it is judged in afterwards.
    """
    return keys.evaluation_key(jax.random.key(seed), np.uint32(2**32 - 1))


def judged(
    env: VectorEnv,
    policy: ActorPolicy,
    episodes: int,
    key: jax.Array,
    max_steps: int | None = None,
) -> Evaluation:
    """Plays at least so many episodes: as many in each instance, else short ones would prevail.

    Without a time limit they end after 10,000 steps, as those of `make_train`'s evaluations.
    """
    if isinstance(env, VectorizedEnv) and max_steps is None:
        env = evaluation_env("eval", env, env.num_envs)
    return jaxenvs.evaluate(
        env,
        policy,
        -(-episodes // env.num_envs),
        key,
        policy_carry=policy.initial_carry(env.num_envs),
        max_steps=max_steps,
    )


class Judge:
    """Evaluates a policy while it is trained; several, with a leading axis, side by side.

    The episodes are others each time, and those of a resumed training as they would have been.
    """

    def __init__(self, config: Config, *, several: bool = False) -> None:
        number = config.evaluation_episodes
        if config.is_hosted:  # not more processes than the training has
            number = min(number, config.num_envs)
        self._env = config.make_env(number, training=False)
        self._key = jax.random.key(config.seed)

        def figures(policy: ActorPolicy, key: jax.Array) -> Any:
            evaluation = judged(self._env, policy, config.evaluation_episodes, key)
            return evaluation_metrics(evaluation)

        self._figures = jax.jit(jax.vmap(figures, in_axes=(0, None)) if several else figures)

    def __call__(self, policy: ActorPolicy, updates: int) -> dict[str, np.ndarray]:
        """The metrics of an evaluation after so many updates, [S] each."""
        metrics = self._figures(policy, keys.evaluation_key(self._key, updates))
        return {name: np.atleast_1d(value) for name, value in metrics.items()}

    def close(self) -> None:
        """Ends its environments."""
        close(self._env)
