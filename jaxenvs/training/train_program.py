"""Training in one jitted program that contains environments, networks and updates.

    train = make_train("CartPole-v1", PPO(), num_envs=64, unroll_length=64, total_steps=500_000)
    result = jax.jit(train)(key)

One update is `collect` followed by `Algorithm.learn`. T is the length of an unroll, N the number of
instances.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from jaxenvs import keys, loops, prng, spaces, struct
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import SpaceError, TrainingError, check_integer, closest
from jaxenvs.rollouts import evaluate
from jaxenvs.training._validation import check_settings
from jaxenvs.training.actors.actor import Actor, Networks, has_mask
from jaxenvs.training.algorithms.algorithm import (
    Algorithm,
    BehaviorPolicy,
    TrainContext,
    normalize_inputs,
)
from jaxenvs.training.algorithms.ppo import PPO
from jaxenvs.training.collection import (
    add_episodes,
    collect,
    no_recent_episodes,
    reset_collector,
    sum_ended_episodes,
    summarize_rows,
)
from jaxenvs.training.evaluation import evaluation_env as other_instances
from jaxenvs.training.evaluation import evaluation_metrics
from jaxenvs.training.progress import ProgressBar
from jaxenvs.training.storages.storage import ReplayStorage, Storage
from jaxenvs.training.types import CollectorState, LearnerState, Transition, Unroll
from jaxenvs.vector.vectorize import VectorizedEnv, vectorize
from jaxenvs.wrappers.independent_agents import batch_of, split_agents
from jaxenvs.wrappers.statistics import RunningStatistics
from jaxenvs.wrappers.vector import OuterVectorEnv

OnUpdate = Callable[[Any, Mapping[str, Any]], Any]  # (updates so far, metrics) on the host
OnProgress = Callable[[Any, Any, Mapping[str, Any]], Any]  # (updates so far, of how many, metrics)


@chex.dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    `metrics` has one float32[reports] for each of:
        episode_return, episode_length
            means over the episodes of the last updates, at least 100 episodes. NaN until the first
            episode has ended.
        episode_count
            the number of episodes that ended since the previous report
        info/<name>
            the mean of an entry of `log_info` over the same episodes, at the step that ended each
        steps
            environment steps so far
        evaluation_return, evaluation_std, evaluation_length
            of greedy episodes, if `evaluate_every` is given; NaN in reports without an evaluation
        metrics of the algorithm, such as its losses, gradient_norm and learning_rate
            means over the updates since the previous report
    """

    learner_state: LearnerState
    metrics: dict[str, jax.Array]


@struct.pytree_dataclass
class ActorPolicy:
    """A trained actor as a policy for `rollout` and `evaluate`.

    Its signature is (observation, key) -> action, or for a recurrent actor
    (carry, timestep, key) -> (carry, action).
    """

    params: dict[str, Any]
    observation_statistics: RunningStatistics | None  # None: observations are not normalized
    networks: Networks = struct.static()
    greedy: bool = struct.static(True)  # take the best action; otherwise sample
    observation_clip: Any = None  # float32[] or None, the limit of normalized observations

    def __call__(self, *arguments: Any) -> Any:
        if not self.networks.is_recurrent:
            observation, key = arguments
            return self._act((), observation, key)[1]
        carry, timestep, key = arguments
        empty = self.networks.initial_carry(timestep.done.shape[0])
        return self._act(struct.select(timestep.done, empty, carry), timestep.observation, key)

    def initial_carry(self, num_envs: int) -> Any:
        """Returns a recurrent actor's carry at the start of N episodes, otherwise None."""
        return self.networks.initial_carry(num_envs) if self.networks.is_recurrent else None

    def _act(self, carry: Any, observation: chex.ArrayTree, key: chex.PRNGKey) -> Any:
        features = normalize_inputs(
            self.networks.features(observation), self.observation_statistics, self.observation_clip
        )
        sample = None if self.greedy else getattr(self.networks, "sample", None)
        if sample is None:  # greedy, or the policy is deterministic
            carry, action = self.networks.mode(self.params, carry, features)
        else:
            carry, action = sample(self.params, carry, features, key)
        return carry, self.networks.to_action(action)


@struct.pytree_dataclass
class Train:
    """A training program: call it with a key, or run it update by update.

    `train(key)` calls `init` once and `update` `num_updates` times. `train.resume(learner_state,
    num_updates)` continues from a restored state. If you call `update` yourself, donate the state:
    `jax.jit(train.update, donate_argnums=0)`. Otherwise each call copies the replay memory.

    `jax.jit(train)` compiles the parameters of the environment and the algorithm into the program.
    As an argument, `jax.jit(lambda train, key: train(key))`, they are inputs of it, see `replace`.
    """

    env: VectorEnv
    algorithm: Algorithm
    storage: Storage
    networks: Networks = struct.static()
    unroll_length: int = struct.static()
    num_updates: int = struct.static()
    report_every: int = struct.static(1)
    on_update: OnUpdate | None = struct.static(None)
    progress: OnProgress | None = struct.static(None)
    axis_name: str | None = struct.static(None)  # mesh axis of the devices that learn together
    collectors: int = struct.static(1)  # number of collectors whose unrolls are concatenated
    learners: int = struct.static(1)  # number of learners that share their gradients
    log_info: tuple[str, ...] = struct.static(())  # names in `info` to log
    evaluate_every: int | None = struct.static(None)  # environment steps
    evaluation_episodes: int = struct.static(20)
    evaluation_env: VectorEnv | None = None
    last_update: Any = None  # int32[], the update at which rates reach 0; None: `num_updates`

    @property
    def context(self) -> TrainContext:
        """The parts of this training program that the algorithm uses."""
        return TrainContext(
            networks=self.networks,
            storage=self.storage,
            num_updates=self.num_updates if self.last_update is None else self.last_update,
            steps_per_update=(
                self.unroll_length
                * self.env.num_envs
                * self.collectors
                * self.learners
                * self._num_devices
            ),
            axis_name=self.axis_name,
        )

    def __call__(self, key: chex.PRNGKey) -> TrainResult:
        """Trains from scratch."""
        return self._advance(self.init(key), self.num_updates)

    def init(self, key: chex.PRNGKey) -> LearnerState:
        """Draws the weights and resets the environments."""
        key, reset_key = jax.random.split(prng.as_fast_key(key))
        learner_state = self.init_learner(key, self.init_collector(self._device_key(reset_key)))
        # Outside of jit, an array may be used twice or belong to the environment. Copies make it
        # possible to donate the state. Replay memories are new, and too large to copy.
        copied = jax.tree.map(jnp.copy, learner_state.replace(storage=()))
        return copied.replace(storage=learner_state.storage)

    def init_collector(self, key: chex.PRNGKey) -> CollectorState:
        """Resets the environments."""
        return reset_collector(self.context, self.env, key)

    def init_learner(self, key: chex.PRNGKey, collector: CollectorState) -> LearnerState:
        """Draws the weights for instances like those of `collector`."""
        key, network_key = jax.random.split(prng.as_fast_key(key))
        context, algorithm = self.context, self.algorithm
        features = self.networks.features(collector.observation)

        def draw(key: chex.PRNGKey) -> Any:
            return algorithm.initial_params(self.networks, key, features)

        params = prng.call_with_fast_key(draw, network_key)
        observation_statistics = return_statistics = None
        if getattr(algorithm, "normalize_observations", False):
            observation_statistics = RunningStatistics.of_shape(features.inputs.shape[1:])
        if getattr(algorithm, "normalize_rewards", False):
            return_statistics = RunningStatistics.of_shape(())
        learner_state = LearnerState(
            weights=algorithm.initial_weights(context, params),
            updates=jnp.int32(0),
            steps_per_update=jnp.int32(context.steps_per_update),
            key=prng.as_standard_keys(key),
            storage=(),
            collector=collector,
            observation_statistics=observation_statistics,
            return_statistics=return_statistics,
            recent_episodes=no_recent_episodes(self.log_info),
        )
        if isinstance(self.storage, ReplayStorage):
            learner_state = learner_state.replace(
                storage=self.storage.init(self._transition_shapes(learner_state))
            )
        return learner_state

    def update(self, learner_state: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Collects one unroll and learns from it. Returns the state and metrics, float32[] each.

        An annealed learning rate is 0 after `num_updates`; with `resume` it is not. Evaluations,
        `on_update` and the progress bar belong to `train(key)` and `resume`; `resume(state, 1)` is
        an update with all of them.
        """
        key, collect_key, learn_key = jax.random.split(prng.as_fast_key(learner_state.key), 3)
        collector, unroll = self.collect(
            BehaviorPolicy.of(learner_state), learner_state.collector, self._device_key(collect_key)
        )
        learner_state = learner_state.replace(collector=collector)
        learner_state, metrics = self.learn(learner_state, unroll, self._device_key(learn_key))
        return learner_state.replace(key=prng.as_standard_keys(key)), metrics

    def collect(
        self, behavior: BehaviorPolicy, collector: CollectorState, key: chex.PRNGKey
    ) -> tuple[CollectorState, Unroll]:
        """Acts for T steps in N instances. Returns the new collector state and the unroll."""

        def act(key: chex.PRNGKey) -> tuple[CollectorState, Unroll]:
            algorithm, context, env = self.algorithm, self.context, self.env
            length, names = self.unroll_length, self.log_info
            return collect(algorithm, context, env, behavior, collector, length, key, names)

        return prng.call_with_fast_key(act, key)

    def learn(
        self, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Learns from the concatenated unrolls of all collectors. Returns the state and metrics."""

        def take(key: chex.PRNGKey) -> tuple[LearnerState, dict[str, jax.Array]]:
            return self.algorithm.learn(self.context, learner_state, unroll, key)

        learner_state, losses = prng.call_with_fast_key(take, key)
        recent, episodes = add_episodes(
            learner_state.recent_episodes, sum_ended_episodes(unroll, self.axis_name), self.log_info
        )
        learner_state = learner_state.replace(
            updates=learner_state.updates + 1, recent_episodes=recent
        )
        # A float, because int32 overflows at 2**31 steps.
        steps = learner_state.updates.astype(jnp.float32) * self.context.steps_per_update
        return learner_state, {**episodes, "steps": steps, **losses}

    def resume(self, learner_state: LearnerState, num_updates: int) -> TrainResult:
        """Does `num_updates` more updates; each row of metrics summarizes `report_every` of them.

        Beyond the original end, annealed rates are those of a longer training run that ends with
        the last of these updates.
        """
        last_update = jnp.maximum(self.num_updates, learner_state.updates + num_updates)
        return self.replace(last_update=last_update)._advance(learner_state, num_updates)

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other fields, such as `env=train.env.replace(gravity=3.7)`.

        A jitted function that takes the training program as an argument compiles again only if
        static fields, shapes or types change. Fields do not follow each other: with another number
        of instances, change `num_updates`, too.

        Raises:
            UnknownParameterError: there is no such field; the message suggests the closest name.
        """
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType]

    def _advance(self, learner_state: LearnerState, num_updates: int) -> TrainResult:
        def report(learner_state: LearnerState, _: Any, length: int = self.report_every) -> Any:
            learner_state, metrics = loops.scan(
                lambda state, _: self.update(state), learner_state, length=length
            )
            metrics = summarize_rows(metrics)
            if self.evaluate_every is not None:
                metrics |= self._evaluate(learner_state, length)
            updates, num_updates = learner_state.updates, jnp.int32(self.context.num_updates)
            if self.progress is not None:
                self._call_host(self.progress, (updates, num_updates), metrics)
            if self.on_update is not None:
                self._call_host(self.on_update, (updates,), metrics)
            return learner_state, metrics

        reports, rest = divmod(num_updates, self.report_every)
        learner_state, metrics = loops.scan(report, learner_state, length=reports)
        if rest:
            learner_state, last = report(learner_state, None, rest)
            metrics = jax.tree.map(lambda x, y: jnp.append(x, y), metrics, last)
        return TrainResult(learner_state=learner_state, metrics=metrics)

    def _call_host(self, listener: Callable[..., Any], counts: Any, metrics: Any) -> None:
        """Calls `listener(*counts, metrics)` on the host, once for all devices."""
        call = functools.partial(_call_host, listener, counts, metrics)
        if self.axis_name is None:
            call()
        else:
            loops.cond(jax.lax.axis_index(self.axis_name) == 0, call, lambda: None)

    def _evaluate(self, learner_state: LearnerState, length: int) -> dict[str, jax.Array]:
        """Returns evaluation metrics, or NaN if none is due after the last `length` updates."""
        env: Any = self.evaluation_env
        updates, context = learner_state.updates, self.context
        every: int = -(-self.evaluate_every // context.steps_per_update)  # pyright: ignore[reportOptionalOperand]
        every = min(every, np.iinfo(np.int32).max)
        is_due = updates // every > (updates - length) // every

        def play(_: Any) -> Any:
            key = keys.evaluation_key(learner_state.key, updates)
            number = -(-self.evaluation_episodes // env.num_envs)
            evaluation = evaluate(env, self.policy(learner_state), number, key)
            return jnp.bool_(False), evaluation_metrics(evaluation)

        _, like = jax.eval_shape(play, None)
        # A loop with at most one iteration, because under `vmap`, `cond` would always evaluate.
        nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), like)
        start = (is_due | (updates >= context.num_updates), nothing)
        return loops.while_loop(lambda carry: carry[0], play, start)[1]

    def truncate_memory(self, learner_state: LearnerState) -> LearnerState:
        """Truncates the last episodes in the replay memory, before environments start new ones."""
        if not isinstance(self.storage, ReplayStorage):
            return learner_state
        return learner_state.replace(storage=self.storage.truncate(learner_state.storage))

    def policy(self, learner_state: LearnerState, *, greedy: bool = True) -> ActorPolicy:
        """Returns the policy of a learner state; `greedy` takes the best action."""
        clip = getattr(self.algorithm, "observation_clip", None)
        if clip is not None:  # broadcast to seeds, like the other leaves
            clip = jnp.broadcast_to(clip, learner_state.updates.shape)
        return ActorPolicy(
            params=learner_state.params,
            observation_statistics=learner_state.observation_statistics,
            networks=self.networks,
            greedy=greedy,
            observation_clip=clip,
        )

    @property
    def _num_devices(self) -> int:
        return 1 if self.axis_name is None else jax.lax.axis_size(self.axis_name)

    def _device_key(self, key: chex.PRNGKey) -> chex.PRNGKey:
        """Returns a different key for each device."""
        if self.axis_name is None:
            return key
        return jax.random.fold_in(key, jax.lax.axis_index(self.axis_name))

    def _transition_shapes(self, learner_state: LearnerState) -> Transition:
        """Returns the shapes of an unroll's transitions."""

        _, unroll = jax.eval_shape(
            self.collect,
            BehaviorPolicy.of(learner_state),
            learner_state.collector,
            learner_state.key,
        )

        def concatenate_instances(x: Any) -> Any:
            shape = (x.shape[0], x.shape[1] * self.collectors, *x.shape[2:])
            return jax.ShapeDtypeStruct(shape, x.dtype)

        return jax.tree.map(concatenate_instances, unroll.transition)


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
    inside: Any = env
    while isinstance(inside, OuterVectorEnv):
        inside = inside.env
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


def _call_host(listener: Callable[..., Any], counts: tuple[jax.Array, ...], metrics: Any) -> None:
    """Calls `listener(*counts, metrics)` on the host, once for all seeds of a `vmap`."""

    @jax.custom_batching.custom_vmap
    def call(counts: tuple[jax.Array, ...], metrics: Any) -> jax.Array:
        jax.debug.callback(lambda counts, metrics: listener(*counts, metrics), counts, metrics)
        return counts[0]

    @call.def_vmap
    def _(size: int, are_mapped: Any, counts: Any, metrics: Any) -> tuple[Any, bool]:
        def each(is_mapped: bool, x: jax.Array) -> jax.Array:
            return x if is_mapped else jnp.broadcast_to(x, (size, *x.shape))

        counts = tuple(  # the same for all seeds
            x.max(axis=0) if is_mapped else x
            for is_mapped, x in zip(are_mapped[0], counts, strict=True)
        )
        return call(counts, jax.tree.map(each, are_mapped[1], metrics)), False

    call(counts, metrics)


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
