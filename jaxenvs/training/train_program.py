"""Training in one jitted program that contains environments, networks and updates.

One update is `collect` followed by `Algorithm.learn`. T is the length of an unroll, N the number of
instances.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys, loops, prng, struct
from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.rollouts import evaluate
from jaxenvs.training.actors.actor import Networks
from jaxenvs.training.algorithms.algorithm import (
    Algorithm,
    BehaviorPolicy,
    TrainContext,
    normalize_inputs,
)
from jaxenvs.training.collection import (
    add_episodes,
    collect,
    no_recent_episodes,
    reset_collector,
    sum_ended_episodes,
    summarize_rows,
)
from jaxenvs.training.curricula.curriculum import Curriculum
from jaxenvs.training.curricula.scores import LevelSteps
from jaxenvs.training.evaluation import evaluation_metrics
from jaxenvs.training.numpy_policy import run_module, write_module
from jaxenvs.training.storages.storage import ReplayStorage, Storage
from jaxenvs.training.types import CollectorState, LearnerState, Transition, Unroll
from jaxenvs.wrappers.statistics import RunningStatistics

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

    def to_numpy(self, path: str | Path | None = None) -> Callable[..., Any]:
        """Returns the greedy policy as a function that uses only NumPy.

        It takes one observation or N stacked ones, and returns as many actions: `action =
        f(observation)`. With a recurrent actor it is `carry, action = f(carry, observation)`, with
        the carry None at the start of an episode.

        Args:
            path: a .py file to write, a module with this function, `policy`, and the weights. It
                runs where neither jaxenvs nor JAX is installed.

        Raises:
            TrainingError: the policy samples, or its networks use an operation that has no
                translation.
        """
        if not self.greedy:
            raise TrainingError(
                "to_numpy got a policy that samples.  Pass greedy=True to `policy`."
            )
        space = self.networks.observation_space.batch(1)
        shapes = jax.eval_shape(space.sample, jax.random.key(0))
        carry = self.networks.initial_carry(1)
        text = write_module(lambda carry, x: self._act(carry, x, None), shapes, carry)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return run_module(text)

    def _act(self, carry: Any, observation: chex.ArrayTree, key: chex.PRNGKey | None) -> Any:
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
    curriculum: Curriculum | None = None  # which levels are played; None for those of `env`

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
        if self.curriculum is not None:
            env: Any = self.env
            state = self.curriculum.init(env.env, env.num_envs)
            learner_state = learner_state.replace(curriculum=state)
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
        if self.curriculum is not None:
            return self._update_in_levels(self.curriculum, learner_state)
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

    def _update_in_levels(
        self, curriculum: Curriculum, learner_state: LearnerState
    ) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Does the same as `update` in the levels that the curriculum draws."""
        env: Any = self.env
        key, *keys = jax.random.split(prng.as_fast_key(learner_state.key), 5)
        draw_key, reset_key, collect_key, learn_key = map(self._device_key, keys)
        state, draw = curriculum.sample(
            env.env, learner_state.curriculum, prng.as_standard_keys(draw_key), env.num_envs
        )
        program = self.replace(env=env.at_levels(draw.levels))
        collector, unroll = program.collect(
            BehaviorPolicy.of(learner_state), program.init_collector(reset_key), collect_key
        )
        algorithm: Any = self.algorithm  # an `OnPolicyAlgorithm`
        _, batch = algorithm.estimate(self.context, learner_state, unroll)
        steps = LevelSteps(
            reward=unroll.transition.reward,
            done=unroll.transition.done,
            value=batch.value,
            advantage=batch.advantage,
        )
        state = curriculum.update(state, draw, steps)
        learner_state = learner_state.replace(collector=collector, curriculum=state)
        learner_state, metrics = self.learn(learner_state, unroll, learn_key, draw.learns)
        learner_state = learner_state.replace(key=prng.as_standard_keys(key))
        return learner_state, {**metrics, **curriculum.metrics(state)}

    def learn(
        self,
        learner_state: LearnerState,
        unroll: Unroll,
        key: chex.PRNGKey,
        when: jax.Array | None = None,
    ) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Learns from the concatenated unrolls of all collectors. Returns the state and metrics.

        Where `when`, bool[], is false, it learns nothing, and losses are NaN.
        """

        def take(key: chex.PRNGKey) -> tuple[LearnerState, dict[str, jax.Array]]:
            def learn() -> tuple[LearnerState, dict[str, jax.Array]]:
                return self.algorithm.learn(self.context, learner_state, unroll, key)

            if when is None:
                return learn()
            _, losses = jax.eval_shape(learn)
            nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), losses)
            return loops.cond(when, learn, lambda: (learner_state, nothing))

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
        return struct.replace(self, **changes)

    def _advance(self, learner_state: LearnerState, num_updates: int) -> TrainResult:
        def report(learner_state: LearnerState, _: Any, length: int = self.report_every) -> Any:
            learner_state, metrics = loops.scan(
                lambda state, _: self.update(state), learner_state, length=length
            )
            metrics = summarize_rows(metrics)
            if self.evaluate_every is not None:
                metrics |= self._evaluate(learner_state, length, self.evaluate_every)
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

    def _evaluate(
        self, learner_state: LearnerState, length: int, evaluate_every: int
    ) -> dict[str, jax.Array]:
        """Returns evaluation metrics, or NaN if none is due after the last `length` updates."""
        env: Any = self.evaluation_env
        updates, context = learner_state.updates, self.context
        every = min(-(-evaluate_every // context.steps_per_update), np.iinfo(np.int32).max)
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
