"""Whole trainings in one jitted program: environments, networks and updates together.

    train = make_train("CartPole-v1", PPO(), num_envs=64, unroll_length=64, total_steps=500_000)
    result = jax.jit(train)(key)

One update is `collect`, which acts, and `Algorithm.learn`. T is the unroll's length, N the number
of instances.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import prng, spaces, struct
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.training._settings import check_settings, whole
from jaxenvs.training.actors.base import Actor, Networks, has_mask
from jaxenvs.training.algorithms.base import Algorithm, Behaviour, Parts, normalised
from jaxenvs.training.algorithms.ppo import PPO
from jaxenvs.training.collecting import (
    collect,
    ended_episodes,
    no_episodes,
    noted,
    start,
    summarised,
)
from jaxenvs.training.storages.base import ReplayStorage, Storage
from jaxenvs.training.types import Collector, LearnerState, Transition, Unroll
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.wrappers.statistics import RunningStatistics

OnUpdate = Callable[[Any, Mapping[str, Any]], None]  # (updates so far, metrics) on the host


@chex.dataclass(frozen=True)
class TrainResult:
    """What a training leaves behind.

    `metrics` has one float32[reports] for each of: episode_return, episode_length (means over the
    episodes that ended since the report before; NaN where none did), episode_count (how many did),
    steps (environment steps so far), and the means of what the algorithm's losses say.
    """

    learner_state: LearnerState
    metrics: dict[str, jax.Array]


@struct.pytree_dataclass
class ActorPolicy:
    """A trained actor as a `Policy`, on a batch of observations.

    It is called as (observation, key) -> action; that of a recurrent actor as
    (carry, timestep, key) -> (carry, action), as `rollout` and `evaluate` do.
    """

    params: dict[str, Any]
    observation_statistics: RunningStatistics | None  # None: observations are not normalised
    networks: Networks = struct.static()
    greedy: bool = struct.static(True)  # the best action; else one drawn
    observation_clip: float | None = None  # of normalised observations

    def __call__(self, *arguments: Any) -> Any:
        if not self.networks.is_recurrent:
            observation, key = arguments
            return self._act((), observation, key)[1]
        carry, timestep, key = arguments
        empty = self.networks.initial_carry(timestep.done.shape[0])
        return self._act(struct.select(timestep.done, empty, carry), timestep.observation, key)

    def initial_carry(self, num_envs: int) -> Any:
        """What a recurrent actor remembers when N episodes begin; None for others."""
        return self.networks.initial_carry(num_envs) if self.networks.is_recurrent else None

    def _act(self, carry: Any, observation: chex.ArrayTree, key: chex.PRNGKey) -> Any:
        features = normalised(
            self.networks.features(observation), self.observation_statistics, self.observation_clip
        )
        sample = None if self.greedy else getattr(self.networks, "sample", None)
        if sample is None:  # asked for, or there is but one action to take
            carry, action = self.networks.mode(self.params, carry, features)
        else:
            carry, action = sample(self.params, carry, features, key)
        return carry, self.networks.to_action(action)


@struct.pytree_dataclass
class Train:
    """A configured training: call it with a key, or drive it update by update.

    `train(key)` is `init` followed by `num_updates` times `update`. A restored learner state goes
    on with `train.resume(learner_state, num_updates)`.
    """

    env: VectorEnv
    algorithm: Algorithm
    storage: Storage
    networks: Networks = struct.static()
    unroll_length: int = struct.static()
    num_updates: int = struct.static()
    report_every: int = struct.static(1)
    on_update: OnUpdate | None = struct.static(None)
    axis_name: str | None = struct.static(None)  # of devices that do the same and learn together
    collectors: int = struct.static(1)  # whose unrolls are learned from as one, side by side
    learners: int = struct.static(1)  # that each do so, and share their gradients
    log_info: tuple[str, ...] = struct.static(())  # names in `info` that become metrics

    @property
    def parts(self) -> Parts:
        """What the algorithm works on."""
        return Parts(
            networks=self.networks,
            storage=self.storage,
            num_updates=self.num_updates,
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
        """Trains from nothing."""
        return self.resume(self.init(key), self.num_updates)

    def init(self, key: chex.PRNGKey) -> LearnerState:
        """Draws the weights and resets the environments."""
        key, reset_key = jax.random.split(prng.fast(key))
        return self.init_learner(key, self.init_collector(self._own(reset_key)))

    def init_collector(self, key: chex.PRNGKey) -> Collector:
        """Resets the environments."""
        return start(self.parts, self.env, key)

    def init_learner(self, key: chex.PRNGKey, collector: Collector) -> LearnerState:
        """Draws the weights, for instances such as those of `collector`."""
        key, network_key = jax.random.split(prng.fast(key))
        parts, algorithm = self.parts, self.algorithm
        features = self.networks.features(collector.observation)

        def draw(key: chex.PRNGKey) -> Any:
            return algorithm.initial_params(self.networks, key, features)

        params = prng.with_fast(draw, network_key)
        observation_statistics = return_statistics = None
        if getattr(algorithm, "normalise_observations", False):
            observation_statistics = RunningStatistics.of_shape(features.inputs.shape[1:])
        if getattr(algorithm, "normalise_rewards", False):
            return_statistics = RunningStatistics.of_shape(())
        learner_state = LearnerState(
            weights=algorithm.initial_weights(parts, params),
            updates=jnp.int32(0),
            key=prng.stock(key),
            storage=(),
            collector=collector,
            observation_statistics=observation_statistics,
            return_statistics=return_statistics,
            recent_episodes=no_episodes(self.log_info),
        )
        if isinstance(self.storage, ReplayStorage):
            learner_state = learner_state.replace(
                storage=self.storage.init(self._like(learner_state))
            )
        return learner_state

    def update(self, learner_state: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Collects one unroll and learns from it; returns this update's metrics, float32[] each."""
        key, collect_key, learn_key = jax.random.split(prng.fast(learner_state.key), 3)
        collector, unroll = self.collect(
            Behaviour.of(learner_state), learner_state.collector, self._own(collect_key)
        )
        learner_state = learner_state.replace(collector=collector)
        learner_state, metrics = self.learn(learner_state, unroll, self._own(learn_key))
        return learner_state.replace(key=prng.stock(key)), metrics

    def collect(
        self, behaviour: Behaviour, collector: Collector, key: chex.PRNGKey
    ) -> tuple[Collector, Unroll]:
        """Acts for T steps in N instances: where they stand then, and what happened."""

        def act(key: chex.PRNGKey) -> tuple[Collector, Unroll]:
            algorithm, parts, env = self.algorithm, self.parts, self.env
            length, names = self.unroll_length, self.log_info
            return collect(algorithm, parts, env, behaviour, collector, length, key, names)

        return prng.with_fast(act, key)

    def learn(
        self, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Learns from an unroll, of all collectors side by side; returns the metrics of it."""

        def take(key: chex.PRNGKey) -> tuple[LearnerState, dict[str, jax.Array]]:
            return self.algorithm.learn(self.parts, learner_state, unroll, key)

        learner_state, losses = prng.with_fast(take, key)
        recent, episodes = noted(
            learner_state.recent_episodes, ended_episodes(unroll, self.axis_name), self.log_info
        )
        learner_state = learner_state.replace(
            updates=learner_state.updates + 1, recent_episodes=recent
        )
        # As floats: int32 ends at two thousand million steps.
        steps = learner_state.updates.astype(jnp.float32) * self.parts.steps_per_update
        return learner_state, {**episodes, "steps": steps, **losses}

    def resume(self, learner_state: LearnerState, num_updates: int) -> TrainResult:
        """Does `num_updates` more updates; metrics are those of `report_every` updates together."""

        def report(learner_state: LearnerState, _: Any, length: int = self.report_every) -> Any:
            learner_state, metrics = jax.lax.scan(
                lambda state, _: self.update(state), learner_state, length=length
            )
            metrics = summarised(metrics)
            if self.on_update is not None:
                jax.debug.callback(self.on_update, learner_state.updates, metrics)
            return learner_state, metrics

        reports, rest = divmod(num_updates, self.report_every)
        learner_state, metrics = jax.lax.scan(report, learner_state, length=reports)
        if rest:
            learner_state, last = report(learner_state, None, rest)
            metrics = jax.tree.map(lambda x, y: jnp.append(x, y), metrics, last)
        return TrainResult(learner_state=learner_state, metrics=metrics)

    def cut(self, learner_state: LearnerState) -> LearnerState:
        """That state, for environments that begin other episodes than its memory ends with."""
        if not isinstance(self.storage, ReplayStorage):
            return learner_state
        return learner_state.replace(storage=self.storage.cut(learner_state.storage))

    def policy(self, learner_state: LearnerState, *, greedy: bool = True) -> ActorPolicy:
        """The policy that `learner_state` has learned; `greedy` takes the best action."""
        return ActorPolicy(
            params=learner_state.params,
            observation_statistics=learner_state.observation_statistics,
            networks=self.networks,
            greedy=greedy,
            observation_clip=getattr(self.algorithm, "observation_clip", None),
        )

    @property
    def _num_devices(self) -> int:
        return 1 if self.axis_name is None else jax.lax.axis_size(self.axis_name)

    def _own(self, key: chex.PRNGKey) -> chex.PRNGKey:
        """A key of this device's own, where several do the same."""
        if self.axis_name is None:
            return key
        return jax.random.fold_in(key, jax.lax.axis_index(self.axis_name))

    def _like(self, learner_state: LearnerState) -> Transition:
        """The shapes of an unroll's transitions."""

        _, unroll = jax.eval_shape(
            self.collect, Behaviour.of(learner_state), learner_state.collector, learner_state.key
        )

        def side_by_side(x: Any) -> Any:
            shape = (x.shape[0], x.shape[1] * self.collectors, *x.shape[2:])
            return jax.ShapeDtypeStruct(shape, x.dtype)

        return jax.tree.map(side_by_side, unroll.transition)


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
) -> Train:
    """Configures a training that is one pure function of a key.

    `jax.jit(train)(key)` runs it, `jax.vmap(train)(keys)` runs one for each seed. Hyper-parameters
    are leaves, so `jax.vmap(lambda rate: make_train(env, PPO(learning_rate=rate), ...)(key))` over
    an array of rates is a sweep in one program; parameters of the environment likewise. Neither
    can be had of hosted environments, which are as many as they are.

    Args:
        env: a vectorised environment with `same_step` autoreset, native or a `HostEnv`; a single
            one; or an id, as `make_vec` takes it.
        algorithm: what to learn with, and its hyper-parameters; None takes PPO's defaults, those
            of `PPO.continuous` for actions in a Box, with minibatches that fit.
        actor: the networks; None takes the algorithm's.
        storage: what becomes of experience; None takes the algorithm's.
        num_envs: N, needed unless `env` is vectorised.
        unroll_length: T, the steps that each instance takes between two updates.
        total_steps: environment steps in all; the last unroll is completed.
        report_every: updates that one row of the metrics sums up.
        on_update: called on the host after each report, as `on_update(updates, metrics)`, to show
            progress. It must not call JAX. None leaves no trace in the program.

    Returns:
        The training, see `Train`; `shard` lays it over several devices.

    Raises:
        TrainingError: the parts or the numbers do not fit together; the message says which two.
        UnknownEnvironmentError: `env` is an id that is not registered.

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
        on_update=on_update,
    )
    train.algorithm.check_sizes(train.networks, train.env.num_envs, unroll_length)
    return train


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
    on_update: OnUpdate | None = None,
) -> Train:
    """`make_train`, but for `check_sizes`: what is learned from may be the work of several."""
    if algorithm is None:
        env = resolve(env, num_envs)
        algorithm = _default_algorithm(env, actor, unroll_length)
    _check_type("algorithm", algorithm, Algorithm)
    actor = algorithm.default_actor() if actor is None else actor
    storage = algorithm.default_storage() if storage is None else storage
    _check_type("actor", actor, Actor)
    _check_type("storage", storage, Storage)
    check_settings(algorithm)
    check_settings(storage)
    env = resolve(env, num_envs)
    steps_per_update = env.num_envs * whole("make_train got unroll_length", unroll_length)
    networks = actor.build(env.single_observation_space, env.single_action_space)
    algorithm.check(networks, storage)
    if has_mask(env.single_observation_space):
        _check_mask(algorithm, networks, env)
    if isinstance(storage, ReplayStorage):
        storage = storage.bind(env)
    algorithm.check_steps(whole("make_train got total_steps", total_steps))
    return Train(
        env=env,
        algorithm=algorithm,
        storage=storage,
        networks=networks,
        unroll_length=unroll_length,
        num_updates=-(-total_steps // steps_per_update),
        report_every=whole("make_train got report_every", report_every),
        on_update=on_update,
    )


def _default_algorithm(env: VectorEnv, actor: Any, unroll_length: Any) -> PPO:
    """PPO with defaults for the spaces, and for a Box with minibatches of at least 64 steps."""
    algorithm = PPO.for_spaces(env.single_observation_space, env.single_action_space)
    if not isinstance(env.single_action_space, spaces.Box):
        return algorithm
    steps = whole("make_train got unroll_length", unroll_length) * env.num_envs
    rows, least = (steps, 64) if getattr(actor, "memory", None) is None else (env.num_envs, 1)
    number = math.gcd(algorithm.minibatches, rows, max(1, rows // least))
    return algorithm.replace(minibatches=number)


def resolve(env: VectorEnv | Environment | str, num_envs: int | None) -> VectorEnv:
    """The vectorised environment that `make_train` was given, or is to make."""
    if isinstance(env, str | Environment):
        if num_envs is None:
            raise TrainingError("make_train got no num_envs.  Pass num_envs=64, for instance.")
        if isinstance(env, Environment):
            return vectorize(env, num_envs)
        # The one place where training knows of ids; everything below takes environments.
        from jaxenvs.factory import make_vec

        return make_vec(env, num_envs)
    if not isinstance(env, VectorEnv):
        raise TrainingError(
            f"make_train got {env!r}; it takes an id, an Environment or a VectorEnv."
        )
    if num_envs not in (None, env.num_envs):
        raise TrainingError(
            f"make_train got num_envs={num_envs} and an environment of {env.num_envs} instances."
            "  Leave num_envs out, or pass a single environment."
        )
    if getattr(env, "autoreset", "same_step") != "same_step":
        raise TrainingError(
            f'make_train got an environment with autoreset="{env.autoreset}", whose unrolls hold'
            ' steps that belong to no episode.  Use autoreset="same_step".'
        )
    return env


def _check_type(name: str, part: Any, expected: type) -> None:
    if not isinstance(part, expected):
        is_class = isinstance(part, type) and issubclass(part, expected)
        instead = f"Call it: {part.__name__}()." if is_class else "See jaxenvs.training."
        raise TrainingError(
            f"make_train got {name}={part!r:.80}; it takes an instance of {expected.__name__}."
            f"  {instead}"
        )


def weight_shapes(algorithm: Algorithm, networks: Networks) -> Any:
    """The shapes of what is learned; nothing is computed."""
    draw = functools.partial(algorithm.initial_params, networks)
    return jax.eval_shape(draw, jax.random.key(0), networks.features_of_one())


def _check_mask(algorithm: Algorithm, networks: Networks, env: VectorEnv) -> None:
    """Refuses masks that are none of the actions; nothing is computed."""
    params, features = weight_shapes(algorithm, networks), networks.features_of_one()
    try:
        jax.eval_shape(networks.mode, params, networks.initial_carry(1), features)
    except TrainingError as error:
        raise TrainingError(
            f"the action_mask of {env.single_observation_space!r} is none of the actions"
            f" {env.single_action_space!r}: {error}"
        ) from error
