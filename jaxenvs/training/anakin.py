"""Whole trainings in one jitted program: environments, networks and updates together.

    train = make_train("CartPole-v1", PPO(), num_envs=64, unroll_length=64, total_steps=500_000)
    result = jax.jit(train)(key)

One update is `collect`, `prepare`, `improve`, in this order. T is the unroll's length, N the number
of instances.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from jaxenvs import prng, struct
from jaxenvs.core import Environment, TimeStep, VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.training.algorithms.ppo import PPO, Batch, ppo_loss
from jaxenvs.training.networks import ActorCritic, make_actor_critic
from jaxenvs.training.storages.gae import gae
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.wrappers.statistics import RunningStatistics

OnUpdate = Callable[[Any, Mapping[str, Any]], None]  # (updates so far, metrics) on the host


@chex.dataclass(frozen=True)
class EpisodesUnderWay:
    """What the current episode of each instance has brought so far."""

    episode_return: jax.Array  # float32[N], since the last reset
    episode_length: jax.Array  # int32[N]
    discounted_return: jax.Array  # float32[N], what normalised rewards are scaled by


@chex.dataclass(frozen=True)
class LearnerState:
    """All that a training carries from one update to the next."""

    params: dict[str, Any]  # the networks' weights, see `ActorCritic`
    optimiser_state: optax.OptState
    updates: jax.Array  # int32[], done so far
    key: chex.PRNGKey
    env_state: chex.ArrayTree
    observation: chex.ArrayTree  # [N, ...], what to act on next
    episodes: EpisodesUnderWay
    observation_statistics: RunningStatistics  # of each feature, for normalise_observations
    return_statistics: RunningStatistics  # of discounted returns, for normalise_rewards


@chex.dataclass(frozen=True)
class Unroll:
    """T steps of N instances, as they happened; observations flat, and never normalised."""

    observation: jax.Array  # float32[T, N, F]
    action: jax.Array  # [T, N, ...], raw actions
    reward: jax.Array  # float32[T, N]
    terminated: jax.Array  # bool[T, N]
    truncated: jax.Array  # bool[T, N]
    final_observation: jax.Array  # float32[T, N, F], what each step itself led to, before resets
    last_observation: jax.Array  # float32[N, F], what the next unroll starts from
    episodes: EpisodesUnderWay  # [T, N], as of each step; whole episodes where done


@chex.dataclass(frozen=True)
class TrainResult:
    """What a training leaves behind.

    `metrics` has one float32[updates] for each of: episode_return, episode_length (means over the
    episodes that ended in that update's unroll; NaN where none did), episode_count (how many did),
    steps (environment steps so far), and the means over the update's minibatches of what
    `ppo_loss` returns.
    """

    learner_state: LearnerState
    metrics: dict[str, jax.Array]


@struct.pytree_dataclass
class ActorPolicy:
    """A trained actor as a `Policy`: (observation, key) -> action, on a batch of observations."""

    params: dict[str, Any]
    observation_statistics: RunningStatistics | None  # None: observations are not normalised
    network: ActorCritic = struct.static()
    greedy: bool = struct.static(True)  # the most likely action; else one drawn

    def __call__(self, observation: chex.ArrayTree, key: chex.PRNGKey) -> jax.Array:
        features = self.network.flatten(observation)
        if self.observation_statistics is not None:
            features = self.observation_statistics.normalise(features)
        if self.greedy:
            action = self.network.mode(self.params, features)
        else:
            action = self.network.sample(self.params, features, key)
        return self.network.distribution.to_action(action)


@struct.pytree_dataclass
class Train:
    """A configured training: call it with a key, or drive it update by update.

    `train(key)` is `init` followed by `num_updates` times `update`. A restored learner state goes
    on with `train.resume(learner_state, num_updates)`.
    """

    env: VectorEnv
    ppo: PPO
    network: ActorCritic = struct.static()
    unroll_length: int = struct.static()
    num_updates: int = struct.static()
    on_update: OnUpdate | None = struct.static(None)

    def __call__(self, key: chex.PRNGKey) -> TrainResult:
        """Trains from nothing."""
        return self.resume(self.init(key), self.num_updates)

    def init(self, key: chex.PRNGKey) -> LearnerState:
        """Draws the weights and resets the environments."""
        key, network_key, reset_key = jax.random.split(key, 3)
        env_state, timestep = self.env.reset(reset_key)
        features = self.network.flatten(timestep.observation)
        params = self.network.init(network_key, features)
        num_envs = self.env.num_envs
        return LearnerState(
            params=params,
            optimiser_state=self.optimiser().init(params),
            updates=jnp.int32(0),
            key=key,
            env_state=env_state,
            observation=timestep.observation,
            episodes=EpisodesUnderWay(
                episode_return=jnp.zeros(num_envs, jnp.float32),
                episode_length=jnp.zeros(num_envs, jnp.int32),
                discounted_return=jnp.zeros(num_envs, jnp.float32),
            ),
            observation_statistics=RunningStatistics.of_shape(features.shape[1:]),
            return_statistics=RunningStatistics.of_shape(()),
        )

    def update(self, learner_state: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Collects one unroll and learns from it; returns this update's metrics, float32[] each."""
        key, collect_key, improve_key = jax.random.split(learner_state.key, 3)
        learner_state, unroll = collect(self, learner_state, collect_key)
        learner_state, batch = prepare(self, learner_state, unroll)
        learner_state, losses = improve(self, learner_state, batch, improve_key)
        learner_state = dataclasses.replace(
            learner_state, key=key, updates=learner_state.updates + 1
        )

        steps = learner_state.updates * (self.unroll_length * self.env.num_envs)
        metrics = {**episode_metrics(unroll), "steps": steps.astype(jnp.float32), **losses}
        if self.on_update is not None:
            jax.debug.callback(self.on_update, learner_state.updates, metrics)
        return learner_state, metrics

    def resume(self, learner_state: LearnerState, num_updates: int) -> TrainResult:
        """Does `num_updates` more updates."""
        learner_state, metrics = jax.lax.scan(
            lambda state, _: self.update(state), learner_state, length=num_updates
        )
        return TrainResult(learner_state=learner_state, metrics=metrics)

    def policy(self, learner_state: LearnerState, *, greedy: bool = True) -> ActorPolicy:
        """The policy that `learner_state` has learned; `greedy` takes the most likely action."""
        return ActorPolicy(
            params=learner_state.params,
            observation_statistics=(
                learner_state.observation_statistics if self.ppo.normalise_observations else None
            ),
            network=self.network,
            greedy=greedy,
        )

    def optimiser(self) -> optax.GradientTransformation:
        """The optimiser, its learning rate annealed over the whole training."""
        return self.ppo.optimiser(self.num_updates * self.ppo.epochs * self.ppo.minibatches)


def make_train(
    env: VectorEnv | Environment | str,
    ppo: PPO | None = None,
    *,
    num_envs: int | None = None,
    unroll_length: int,
    total_steps: int,
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
        ppo: the hyper-parameters; None takes the defaults.
        num_envs: N, needed unless `env` is vectorised.
        unroll_length: T, the steps that each instance takes between two updates.
        total_steps: environment steps in all; the last unroll is completed.
        on_update: called on the host after each update, as `on_update(updates, metrics)`, to show
            progress. It must not call JAX. None leaves no trace in the program.

    Returns:
        The training, see `Train`.

    Raises:
        TrainingError: the numbers do not fit together, or no actor fits the action space.
        UnknownEnvironmentError: `env` is an id that is not registered.

    Example:
        >>> train = make_train("CartPole-v1", PPO(), num_envs=4, unroll_length=32, total_steps=512)
        >>> result = jax.jit(train)(jax.random.key(0))
        >>> result.metrics["episode_return"].shape
        (4,)
    """
    ppo = PPO() if ppo is None else ppo
    env = _resolve(env, num_envs)
    steps_per_update = env.num_envs * _positive("unroll_length", unroll_length)
    if steps_per_update % ppo.minibatches:
        raise TrainingError(
            f"make_train got num_envs={env.num_envs} and unroll_length={unroll_length}, which make"
            f" {steps_per_update} steps an update: they cannot be cut into {ppo.minibatches} equal"
            " minibatches.  Choose numbers whose product is divisible."
        )
    return Train(
        env=env,
        ppo=ppo,
        network=make_actor_critic(
            env.single_observation_space,
            env.single_action_space,
            hidden_sizes=ppo.hidden_sizes,
            activation=ppo.activation,
        ),
        unroll_length=unroll_length,
        num_updates=-(-_positive("total_steps", total_steps) // steps_per_update),
        on_update=on_update,
    )


def collect(
    train: Train, learner_state: LearnerState, key: chex.PRNGKey
) -> tuple[LearnerState, Unroll]:
    """Acts for T steps in N instances, with the weights as they are.

    Only what depends on the step before is computed here; the critic and the log-probabilities
    follow in `prepare`, all steps at once.
    """

    def step(carry, keys):
        env_state, observation, episodes = carry
        features = train.network.flatten(observation)
        action = train.network.sample(
            learner_state.params, normalise(train, learner_state, features), keys[0]
        )
        env_state, timestep = train.env.step(
            env_state, train.network.distribution.to_action(action), keys[1]
        )
        episodes, so_far = count_step(episodes, timestep, train.ppo.gamma)
        recorded = {
            "observation": features,
            "action": action,
            "reward": timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "final_observation": train.network.flatten(timestep.final_observation),
            "episodes": so_far,
        }
        return (env_state, timestep.observation, episodes), recorded

    (env_state, observation, episodes), recorded = jax.lax.scan(
        step,
        (learner_state.env_state, learner_state.observation, learner_state.episodes),
        prng.fast(jax.random.split(key, (train.unroll_length, 2))),
    )
    learner_state = dataclasses.replace(
        learner_state, env_state=env_state, observation=observation, episodes=episodes
    )
    return learner_state, Unroll(last_observation=train.network.flatten(observation), **recorded)


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


def episode_metrics(unroll: Unroll) -> dict[str, jax.Array]:
    """Means over the episodes that ended within the unroll, and their number; float32[] each.

    Where none ended the means are NaN: a number there would be made up.
    """
    done = unroll.terminated | unroll.truncated
    count = done.sum().astype(jnp.float32)

    def mean(x):
        total = jnp.where(done, x, jnp.zeros_like(x)).sum().astype(jnp.float32)
        return jnp.where(count > 0, total / jnp.maximum(count, 1.0), jnp.nan)

    return {
        "episode_return": mean(unroll.episodes.episode_return),
        "episode_length": mean(unroll.episodes.episode_length),
        "episode_count": count,
    }


def normalise(train: Train, learner_state: LearnerState, observation: jax.Array) -> jax.Array:
    """Flat observations, float32[..., F], as the networks see them."""
    if not train.ppo.normalise_observations:
        return observation
    return learner_state.observation_statistics.normalise(observation)


def prepare(
    train: Train, learner_state: LearnerState, unroll: Unroll
) -> tuple[LearnerState, Batch]:
    """Judges an unroll: values, advantages and log-probabilities, as T * N transitions.

    The networks see observations through the statistics that they acted with; new statistics
    hold from the next unroll on. Otherwise the first ratio would not be 1.
    """
    network, ppo, params = train.network, train.ppo, learner_state.params
    observations = jnp.concatenate([unroll.observation, unroll.last_observation[None]])
    features = normalise(train, learner_state, observations)
    values = network.value(params, features)
    value, next_value = values[:-1], values[1:]
    next_value = jnp.where(
        unroll.truncated, truncation_values(train, learner_state, unroll), next_value
    )
    return_statistics, reward = learner_state.return_statistics, unroll.reward
    if ppo.normalise_rewards:
        return_statistics = return_statistics.update(unroll.episodes.discounted_return.ravel())
        reward = reward * jax.lax.rsqrt(return_statistics.variance + 1e-8)
    observation_statistics = learner_state.observation_statistics
    if ppo.normalise_observations:
        seen = unroll.observation.reshape((-1, unroll.observation.shape[-1]))
        observation_statistics = observation_statistics.update(seen)

    advantage = gae(
        reward,
        value,
        next_value,
        unroll.terminated,
        unroll.truncated,
        gamma=ppo.gamma,
        gae_lambda=ppo.gae_lambda,
    )
    log_prob, _ = network.log_prob_and_entropy(params, features[:-1], unroll.action)
    batch = Batch(
        features=features[:-1],
        action=unroll.action,
        log_prob=log_prob,
        value=value,
        advantage=advantage,
        target=advantage + value,
    )
    learner_state = dataclasses.replace(
        learner_state,
        observation_statistics=observation_statistics,
        return_statistics=return_statistics,
    )
    return learner_state, jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), batch)


def truncation_values(train: Train, learner_state: LearnerState, unroll: Unroll) -> jax.Array:
    """float32[T, N]: the critic at the final observations of truncated episodes, elsewhere 0.

    They are gathered N at a time until all are done, so that the critic's second pass costs what
    was truncated, nothing at all in most unrolls. (A `cond` on whether any was truncated would
    evaluate all T * N, and under `vmap` over seeds always.)
    """
    truncated = (unroll.truncated & ~unroll.terminated).ravel()
    size, chunk = truncated.size, train.env.num_envs
    final_observation = unroll.final_observation.reshape((size, -1))
    rank = jnp.cumsum(truncated.astype(jnp.int32))  # the k-th truncation is where it reaches k

    def judge(carry):
        judged, values = carry
        positions = jnp.searchsorted(rank, judged + 1 + jnp.arange(chunk))  # size: no such one
        features = normalise(train, learner_state, final_observation[positions])
        value = train.network.value(learner_state.params, features)
        return judged + chunk, values.at[positions].set(value, mode="drop")

    _, values = jax.lax.while_loop(
        lambda carry: carry[0] < rank[-1],
        judge,
        (jnp.int32(0), jnp.zeros(size, jnp.float32)),
    )
    return values.reshape(unroll.truncated.shape)


def improve(
    train: Train, learner_state: LearnerState, batch: Batch, key: chex.PRNGKey
) -> tuple[LearnerState, dict[str, jax.Array]]:
    """Takes `epochs * minibatches` gradient steps on a batch; returns the losses' means."""
    optimiser = train.optimiser()
    size = batch.advantage.shape[0]

    def gradient_step(carry, indices):
        params, optimiser_state = carry
        minibatch = jax.tree.map(lambda x: x[indices], batch)
        gradient, losses = jax.grad(ppo_loss, has_aux=True)(
            params, train.network, train.ppo, minibatch
        )
        with jax.numpy_dtype_promotion("standard"):  # Adam raises floats to its int32 count
            updates, optimiser_state = optimiser.update(gradient, optimiser_state, params)
        return (optax.apply_updates(params, updates), optimiser_state), losses

    keys = jax.random.split(key, train.ppo.epochs)
    indices = jax.vmap(lambda key: permutation(key, size))(keys)
    (params, optimiser_state), losses = jax.lax.scan(
        gradient_step,
        (learner_state.params, learner_state.optimiser_state),
        indices.reshape((train.ppo.epochs * train.ppo.minibatches, -1)),
    )
    learner_state = dataclasses.replace(
        learner_state, params=params, optimiser_state=optimiser_state
    )
    return learner_state, jax.tree.map(jnp.mean, losses)


def permutation(key: chex.PRNGKey, size: int) -> jax.Array:
    """int32[size]: 0 to size - 1 in random order.

    One sort of 32 random bits each, where `jax.random.permutation` takes two or more. Equal bits
    leave the order of a pair as it was, in one pair out of 2**32.
    """
    bits = jax.random.bits(key, (size,), jnp.uint32)
    _, order = jax.lax.sort((bits, jnp.arange(size, dtype=jnp.int32)), num_keys=1)
    return order


def _resolve(env: VectorEnv | Environment | str, num_envs: int | None) -> VectorEnv:
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


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise TrainingError(f"make_train got {name}={value}; it must be at least 1.")
    return value
