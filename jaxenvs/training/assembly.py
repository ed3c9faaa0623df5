"""Training programs, assembled from parts that fit together.

train = make_train("CartPole-v1", PPO(), num_envs=64, unroll_length=64, total_steps=500_000)
result = jax.jit(train)(key)
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AxisType

from jaxenvs import spaces
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import SpaceError, TrainingError, check_integer, closest
from jaxenvs.training._validation import check_settings
from jaxenvs.training.actors.actor import Actor, Networks, has_mask
from jaxenvs.training.algorithms._on_policy import OnPolicyAlgorithm
from jaxenvs.training.algorithms.algorithm import Algorithm
from jaxenvs.training.algorithms.ppo import PPO
from jaxenvs.training.curricula.curriculum import Curriculum
from jaxenvs.training.evaluation import evaluation_env as other_instances
from jaxenvs.training.progress import ProgressBar
from jaxenvs.training.storages.storage import ReplayStorage, Storage
from jaxenvs.training.train_program import OnUpdate, Train
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.vector.vectorized_env import VectorizedEnv
from jaxenvs.wrappers.independent_agents import batch_of, split_agents


def make_train(
    env: VectorEnv | Environment | str,
    algorithm: Algorithm | None = None,
    *,
    actor: Actor | None = None,
    storage: Storage | None = None,
    num_envs: int | None = None,
    unroll_length: int,
    total_steps: int,
    report_every: int = 1,
    on_update: OnUpdate | None = None,
    evaluate_every: int | None = None,
    evaluation_episodes: int = 20,
    evaluation_env: VectorEnv | Environment | str | None = None,
    log_info: Sequence[str] = (),
    progress: bool = False,
    curriculum: Curriculum | None = None,
) -> Train:
    """Makes a training program, which is a pure function of a key.

    `jax.jit(train)(key)` runs it, and `jax.vmap(train)(keys)` runs it for several seeds.
    Hyperparameters are leaves, so `jax.vmap(lambda rate: make_train(env,
    PPO(learning_rate=rate), ...)(key))` over an array of rates is a sweep in one program. The same
    works for parameters of the environment. Hosted environments support neither, because their
    number is fixed when the pool is made.

    Args:
        env: a vectorized environment with `same_step` autoreset, native or a `HostEnv`; a single
            environment; or an id for `make_vec`. With several agents, each of them is an instance,
            see `IndependentAgents`, and a step is that of one agent.
        algorithm: the algorithm with its hyperparameters; None means PPO's defaults, or those of
            `PPO.continuous` for actions in a Box, with minibatches that fit.
        actor: the networks; None means the algorithm's default.
        storage: the advantage estimator or replay memory; None means the algorithm's default.
        num_envs: N, required unless `env` is vectorized. With several agents, the number of
            environments.
        unroll_length: T, the steps that each instance takes between two updates.
        total_steps: the total number of environment steps, rounded up to whole unrolls.
        report_every: the number of updates per row of metrics.
        on_update: a function `on_update(updates, metrics)` that is called on the host after each
            report, to show progress. It must not call JAX. Under `vmap` it is called once for all
            seeds, and each metric has an axis of seeds.
        evaluate_every: environment steps between two evaluations of the greedy policy, rounded up
            to whole updates; one more follows the last update. Evaluations run at the end of a
            report. None never evaluates.
        evaluation_episodes: the number of whole episodes per evaluation, each in an instance of its
            own. Instances that are given, or whose parameters are batched, play the same number of
            episodes each.
        evaluation_env: the environment for evaluations; None makes new instances like those of
            `env`, which is not possible for hosted environments and wrappers around a `VectorEnv`.
            Without a time limit, episodes end after 10,000 steps, except those of a `VectorEnv`
            given here.
        log_info: names in `timestep.info` with one number per instance. `metrics["info/<name>"]`
            is the mean over episodes of the number at their last step.
        progress: whether to show a bar, in a terminal or a notebook (needs the extra `cli`).
        curriculum: decides in which levels each update plays, see `jaxenvs.training.curricula`;
            None for those that the resets of `env` draw. For on-policy algorithms.

    Returns:
        The training program, see `Train`; `shard` divides it among several devices.

    Raises:
        TrainingError: the parts or the numbers do not fit together; the message names them.
        UnknownEnvironmentError: `env` is an id that is not registered.
        MissingExtraError: `progress` needs a package that is not installed.

    Example:
        >>> train = make_train("CartPole-v1", PPO(), num_envs=4, unroll_length=32, total_steps=512)
        >>> result = jax.eval_shape(train, jax.random.key(0))  # jax.jit(train)(...) trains
        >>> result.metrics["episode_return"].shape
        (4,)
    """
    train = assemble(
        env,
        algorithm,
        actor=actor,
        storage=storage,
        num_envs=num_envs,
        unroll_length=unroll_length,
        total_steps=total_steps,
        report_every=report_every,
        log_info=log_info,
    )
    train.algorithm.check_sizes(train.networks, train.env.num_envs, unroll_length)
    changes: dict[str, Any] = {"on_update": on_update}
    if curriculum is not None:
        _check_curriculum(curriculum, train)
        changes["curriculum"] = curriculum
    if progress:
        changes["progress"] = ProgressBar(train.context.steps_per_update)
    if evaluate_every is not None:
        check_integer(TrainingError, "make_train got evaluate_every", evaluate_every)
        if not isinstance(evaluation_env, VectorEnv):
            is_copied = evaluation_env is None and not isinstance(env, str)
            like = train.env if is_copied else env if evaluation_env is None else evaluation_env
            evaluation_env = other_instances("make_train", like, evaluation_episodes)
        changes |= {
            "evaluate_every": evaluate_every,
            "evaluation_episodes": evaluation_episodes,
            "evaluation_env": evaluation_env,
        }
    return train.replace(**changes)


def _check_curriculum(curriculum: Curriculum, train: Train) -> None:
    _check_type("curriculum", curriculum, Curriculum)
    check_settings(curriculum)
    if not isinstance(train.algorithm, OnPolicyAlgorithm):
        raise TrainingError(
            f"make_train got a curriculum and {type(train.algorithm).__name__}, which does not"
            " learn from whole unrolls.  Use an on-policy algorithm, such as PPO."
        )
    env = train.env
    if not isinstance(env, VectorizedEnv) or env.is_staggered:
        raise TrainingError(
            f"make_train got a curriculum and {env!r:.80}; it needs a native environment with"
            " one agent, vectorized without stagger, and not wrapped as a batch.  The algorithm"
            " normalizes observations and rewards: PPO(normalize_observations=True)."
        )
    jax.eval_shape(lambda: curriculum.init(env.env, env.num_envs))  # checks sizes


def assemble(
    env: VectorEnv | Environment | str,
    algorithm: Algorithm | None = None,
    *,
    actor: Actor | None = None,
    storage: Storage | None = None,
    num_envs: int | None = None,
    unroll_length: int,
    total_steps: int,
    report_every: int = 1,
    log_info: Sequence[str] = (),
) -> Train:
    """Makes a training program without `check_sizes`, because there may be several collectors."""
    sizes = {
        "unroll_length": unroll_length,
        "total_steps": total_steps,
        "report_every": report_every,
    }
    for name, size in sizes.items():
        check_integer(TrainingError, f"make_train got {name}", size)
    if algorithm is None:
        env = resolve(env, num_envs)
        algorithm = default_algorithm(env, actor, unroll_length)
    _check_type("algorithm", algorithm, Algorithm)
    actor = algorithm.default_actor() if actor is None else actor
    storage = algorithm.default_storage() if storage is None else storage
    _check_type("actor", actor, Actor)
    _check_type("storage", storage, Storage)
    check_settings(algorithm)
    check_settings(storage)
    env = resolve(env, num_envs)
    networks = _networks(actor, env.single_observation_space, env.single_action_space)
    algorithm.check(networks, storage)
    if has_mask(env.single_observation_space):
        _check_mask(algorithm, networks, env)
    if isinstance(storage, ReplayStorage):
        storage = storage.bind(env)
    algorithm.check_steps(total_steps)
    return Train(
        env=env,
        algorithm=algorithm,
        storage=storage,
        networks=networks,
        unroll_length=unroll_length,
        num_updates=-(-total_steps // (env.num_envs * unroll_length)),
        report_every=report_every,
        log_info=_check_log_info(env, log_info),
    )


def _networks(actor: Actor, *both_spaces: spaces.Space) -> Networks:
    """Builds an actor's networks, once for equal actors and spaces.

    Networks are compared by identity, and compiled programs are found by their networks: a second
    training of equal parts would compile its programs again.
    """
    try:
        hash((actor, both_spaces))
    except (TypeError, SpaceError):  # a dict of extractors, or a traced bound
        return actor.build(*both_spaces)
    return _build(actor, *both_spaces)


@functools.lru_cache(maxsize=128)
def _build(actor: Actor, *both_spaces: spaces.Space) -> Networks:
    return actor.build(*both_spaces)


def default_algorithm(
    env: VectorEnv, actor: Any, unroll_length: Any, *, normalize: bool = True
) -> PPO:
    """Returns PPO with defaults for the spaces; in a Box, minibatches have at least 64 steps.

    Without `normalize`, it normalizes neither observations nor rewards.
    """
    algorithm = PPO.for_spaces(env.single_observation_space, env.single_action_space)
    if not normalize:
        algorithm = algorithm.replace(normalize_observations=False, normalize_rewards=False)
    if not isinstance(env.single_action_space, spaces.Box):
        return algorithm
    steps = unroll_length * env.num_envs
    rows, least = (steps, 64) if getattr(actor, "memory", None) is None else (env.num_envs, 1)
    number = math.gcd(algorithm.minibatches, rows, max(1, rows // least))
    return algorithm.replace(minibatches=number)


def resolve(env: VectorEnv | Environment | str, num_envs: int | None) -> VectorEnv:
    """Returns `env` as a vectorized environment, which is made if necessary."""
    if isinstance(env, str | Environment):
        if num_envs is None:
            raise TrainingError("make_train got no num_envs.  Pass a number, such as num_envs=64.")
        if isinstance(env, Environment):
            env = vectorize(env, num_envs)
        else:
            # Only this module, `evaluation` and `config` make environments from ids.
            from jaxenvs.factory import make_vec

            env = make_vec(env, num_envs)
        return split_agents(env)
    if not isinstance(env, VectorEnv):
        raise TrainingError(
            f"make_train got {env!r}; expected an id, an Environment or a VectorEnv."
        )
    env = split_agents(env)
    number = batch_of(env).num_envs
    if num_envs not in (None, number):
        raise TrainingError(
            f"make_train got num_envs={num_envs} and an environment of {number} instances."
            "  Omit num_envs, or pass a single environment."
        )
    inside = env.unwrapped
    mesh = inside.mesh if isinstance(inside, VectorizedEnv) else None
    if mesh is not None and AxisType.Explicit in mesh.axis_types:
        raise TrainingError(
            f"make_train got instances over an explicit mesh, {mesh.axis_types}, which algorithms"
            " do not support.  Omit the mesh, and divide the training program: shard(train, mesh)."
        )
    if getattr(env, "autoreset_mode", "same_step") != "same_step":
        raise TrainingError(
            f'make_train got an environment with autoreset_mode="{env.autoreset_mode}", whose'
            ' unrolls have steps that belong to no episode.  Use autoreset_mode="same_step".'
        )
    return env


def _check_log_info(env: VectorEnv, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names to log, after checking the environment's timestep."""
    names = (names,) if isinstance(names, str) else tuple(sorted(set(names)))  # like dict keys
    if isinstance(env, VectorizedEnv) and not names:
        return ()  # without tracing the environment
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    if timestep.final_observation is None:
        raise TrainingError(
            f"make_train got {env!r:.80}, whose timesteps have no final_observation, which is"
            " needed for the value of truncated episodes.  Make the HostEnv without"
            " final_observation=False."
        )
    infos = timestep.final_info or {}
    for name in names:
        found = infos.get(name)
        if found is None:
            raise TrainingError(
                f'make_train got log_info="{name}", but `final_info` of {env!r:.80} has'
                f" {sorted(infos) or 'no entries'}.{closest(name, infos)}"
            )
        if getattr(found, "shape", None) != (env.num_envs,):
            raise TrainingError(
                f'make_train got log_info="{name}", which is {found!s:.80}; expected one number per'
                " instance."
            )
    return names


def _check_type(name: str, part: Any, expected: type) -> None:
    if not isinstance(part, expected):
        is_class = isinstance(part, type) and issubclass(part, expected)
        instead = f"Pass {part.__name__}()." if is_class else "See jaxenvs.training."
        raise TrainingError(
            f"make_train got {name}={part!r:.80}; expected an instance of {expected.__name__}."
            f"  {instead}"
        )


def weight_shapes(algorithm: Algorithm, networks: Networks) -> Any:
    """Returns the shapes of the weights without computing them."""
    draw = functools.partial(algorithm.initial_params, networks)
    return jax.eval_shape(draw, jax.random.key(0), networks.features_of_one())


def _check_mask(algorithm: Algorithm, networks: Networks, env: VectorEnv) -> None:
    """Raises TrainingError if the action mask does not fit the actions. Computes nothing."""
    params, features = weight_shapes(algorithm, networks), networks.features_of_one()
    try:
        jax.eval_shape(networks.mode, params, networks.initial_carry(1), features)
    except TrainingError as error:
        raise TrainingError(
            f"the action_mask of {env.single_observation_space!r} does not fit the actions"
            f" {env.single_action_space!r}: {error}"
        ) from error
