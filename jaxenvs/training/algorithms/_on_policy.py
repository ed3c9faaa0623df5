"""The base class of on-policy algorithms, which learn from each unroll once."""

import abc
import dataclasses
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp

from jaxenvs import loops
from jaxenvs.errors import TrainingError
from jaxenvs.training.actors.actor import Features, Networks
from jaxenvs.training.actors.actor_critic import ActorCritic, ActorCriticNetworks
from jaxenvs.training.algorithms import losses
from jaxenvs.training.algorithms.algorithm import (
    Algorithm,
    BehaviorPolicy,
    Metrics,
    TrainContext,
    gather_devices,
    mean_over_devices,
)
from jaxenvs.training.optimizers import linear_decay
from jaxenvs.training.storages.gae import GAE
from jaxenvs.training.storages.storage import OnPolicyStorage, Storage
from jaxenvs.training.types import LearnerState, Transition, Unroll, ValuedUnroll, Weights

Shuffle = Literal["steps", "instances", "time"]


@chex.dataclass(frozen=True)
class Batch:
    """The input of a loss: [B, ...] transitions, or [T, n, ...] sequences if recurrent."""

    features: Features
    action: jax.Array  # raw actions
    log_prob: Any  # float32, under the policy that acted; None without policy gradients
    value: jax.Array  # float32, the critic's value before the update
    advantage: jax.Array  # float32
    target: jax.Array  # float32, the critic's target
    memory: Any = None  # for sequences: the carry at the start, and first, bool[T, n]


@chex.dataclass(frozen=True)
class Predictions:
    """The outputs of the networks on a batch."""

    log_prob: jax.Array  # float32, of the batch's actions
    entropy: jax.Array  # float32[], the policy's mean entropy
    value: jax.Array  # float32


class OnPolicyAlgorithm(Algorithm):
    """An algorithm that estimates advantages on each unroll and learns from its minibatches.

    A subclass has the fields below and defines `optimizer`, `act` and `gradients`. Its networks
    have the methods `value` and `value_after`.
    """

    storage_type = OnPolicyStorage

    gamma: float
    gae_lambda: float
    epochs: int
    minibatches: int
    observation_clip: float | None
    reward_clip: float | None
    normalize_observations: bool
    normalize_rewards: bool
    shuffle: Shuffle | None = None
    anneal: bool = False

    def default_storage(self) -> Storage:
        return GAE()

    def check(self, networks: Networks, storage: Storage) -> None:
        super().check(networks, storage)
        if networks.is_recurrent and self.shuffle not in (None, "instances"):
            raise TrainingError(
                f'{type(self).__name__} got shuffle="{self.shuffle}" and a recurrent actor, which'
                ' learns from whole sequences.  Pass shuffle="instances", or omit it.'
            )
        if self.normalize_observations:
            shapes = jax.tree.map(lambda x: x.shape[1:], networks.features_of_one().inputs)
            if not (isinstance(shapes, tuple) and len(shapes) == 1):
                raise TrainingError(
                    f"{type(self).__name__} got normalize_observations=True, which requires vectors"
                    f" of numbers; the actor's inputs have the shapes {shapes}.  Omit it, or wrap"
                    " the environment in FlattenObservation or NormalizeObservation."
                )

    def check_sizes(self, networks: Networks, num_envs: int, unroll_length: int) -> None:
        rows, what = {
            "steps": (num_envs * unroll_length, "steps per update"),
            "instances": (num_envs, "sequences, one per instance"),
            "time": (unroll_length, "time steps"),
        }[self._shuffle_mode(networks)]
        if rows % self.minibatches:
            raise TrainingError(
                f"make_train got num_envs={num_envs} and unroll_length={unroll_length}, so there"
                f" are {rows} {what}, which cannot be divided into {self.minibatches} equal"
                f" minibatches.  Choose a number of minibatches that divides {rows}."
            )

    def gradient_steps(self, environment_steps: int) -> int:
        del environment_steps  # the number of minibatches does not depend on the length
        return self.epochs * self.minibatches

    def process_unroll(
        self, context: TrainContext, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, tuple[Batch, jax.Array]]:
        learner_state, batch = self.estimate(context, learner_state, unroll)
        shuffle = self._shuffle_mode(context.networks)
        if shuffle == "steps":
            batch = jax.tree.map(_flat, batch)
        rows = batch.value.shape[1 if shuffle == "instances" else 0]
        keys = jax.random.split(key, self.epochs)
        order = jax.vmap(lambda key: permutation(key, rows))(keys)
        return learner_state, (batch, order.reshape((self.epochs * self.minibatches, -1)))

    def draw_batch(
        self,
        context: TrainContext,
        learner_state: LearnerState,
        work: tuple[Batch, jax.Array],
        index: Any,
        key: chex.PRNGKey,
    ) -> Batch:
        del learner_state, key  # `process_unroll` has drawn the order
        batch, order = work
        return minibatch(batch, order[index], self._shuffle_mode(context.networks))

    def unroll_metrics(self, context: TrainContext, work: tuple[Batch, jax.Array]) -> Metrics:
        """Returns the critic's explained variance of the targets before learning."""
        batch, _ = work

        def variance(x: jax.Array) -> jax.Array:
            mean = mean_over_devices(context, x.mean())
            return mean_over_devices(context, ((x - mean) ** 2).mean())

        unexplained, target = variance(batch.target - batch.value), variance(batch.target)
        return {"explained_variance": 1.0 - unexplained / target}

    def rate(self, num_updates: int) -> Any:
        rate = super().rate(num_updates)
        if callable(rate) or not self.anneal:
            return rate
        return linear_decay(rate, num_updates * self.epochs * self.minibatches)

    def estimate(
        self, context: TrainContext, learner_state: LearnerState, unroll: Unroll
    ) -> tuple[LearnerState, Batch]:
        """Estimates values, advantages and targets of an unroll, [T, N].

        Observations are normalized by the statistics that were used for acting. New statistics
        take effect in the next unroll; otherwise the first probability ratio would not be 1.
        """
        networks, params, steps = context.networks, learner_state.params, unroll.transition
        log_prob: Any = unroll.log_prob  # `behavior_log_prob`, None without policy gradients
        observations = jax.tree.map(
            lambda x, last: jnp.concatenate([x, last[None]]),
            steps.observation,
            unroll.last_observation,
        )
        raw = jax.vmap(networks.features)(observations)
        features = self.normalize_features(raw, learner_state.observation_statistics)
        first = _first_steps(steps)
        values, carries = _values(context, params, features, unroll.carry, first)
        at_cuts = self.truncation_values(context, learner_state, steps, carries)
        next_value = jnp.where(steps.truncated, at_cuts, values[1:])

        reward, return_statistics = steps.reward, learner_state.return_statistics
        if return_statistics is not None:
            returns = unroll.episodes.discounted_return.ravel()
            return_statistics = return_statistics.update(gather_devices(context, returns))
            reward = reward * jax.lax.rsqrt(return_statistics.variance + 1e-8)
            if self.reward_clip is not None:
                reward = jnp.clip(reward, -self.reward_clip, self.reward_clip)
        observation_statistics = learner_state.observation_statistics
        if observation_statistics is not None:
            seen = raw.inputs[:-1].reshape((-1, raw.inputs.shape[-1]))
            observation_statistics = observation_statistics.update(gather_devices(context, seen))

        features = jax.tree.map(lambda x: x[:-1], features)
        log_ratio = jnp.zeros_like(reward)
        if context.storage.corrects:
            log_ratio = _log_prob(context, params, features, steps, unroll.carry) - log_prob
        segment = ValuedUnroll(
            reward=reward,
            value=values[:-1],
            next_value=next_value,
            terminated=steps.terminated,
            truncated=steps.truncated,
            log_ratio=log_ratio,
        )
        estimates = context.storage.estimate(segment, gamma=self.gamma, gae_lambda=self.gae_lambda)
        advantage, target = _check_estimates(context.storage, estimates, reward.shape)
        batch = Batch(
            features=features,
            action=steps.action,
            log_prob=log_prob,
            value=segment.value,
            advantage=advantage,
            target=target,
            memory=(unroll.carry, first[:-1]) if networks.is_recurrent else None,
        )
        learner_state = learner_state.replace(
            observation_statistics=observation_statistics, return_statistics=return_statistics
        )
        return learner_state, batch

    def truncation_values(
        self, context: TrainContext, learner_state: LearnerState, steps: Transition, carries: Any
    ) -> jax.Array:
        """Returns the critic's values at final observations of truncated episodes, otherwise 0.

        They are float32[T, N]. Truncations are gathered N at a time, so the critic's second pass
        costs nothing in most unrolls. A `cond` on whether any step was truncated would evaluate
        all T * N values, and under `vmap` over seeds it would always do so.
        """
        networks, chunk = context.networks, steps.truncated.shape[1]
        truncated = (steps.truncated & ~steps.terminated).ravel()
        flat = jax.tree.map(
            _flat, (steps.next_observation, jax.tree.map(lambda x: x[:-1], carries))
        )
        size, count = truncated.size, jnp.sum(truncated, dtype=jnp.int32)
        # The positions of truncations, then only `size`. A cumulative sum would be compiled to
        # dozens of kernels.
        order = jax.lax.sort(jnp.where(truncated, jnp.arange(size, dtype=jnp.int32), size))

        def estimate(carry):
            judged, values = carry
            positions = jax.lax.dynamic_slice(order, (judged,), (chunk,))
            observation, remembered = jax.tree.map(lambda x: x[positions], flat)
            features = self.normalize_features(
                networks.features(observation), learner_state.observation_statistics
            )
            value = networks.value_after(learner_state.params, remembered, features)
            return judged + chunk, values.at[positions].set(value, mode="drop")

        _, values = loops.while_loop(
            lambda carry: carry[0] < count,
            estimate,
            (jnp.int32(0), jnp.zeros(size, jnp.float32)),
        )
        return values.reshape(steps.truncated.shape)

    def _shuffle_mode(self, networks: Networks) -> Shuffle:
        """Returns the units that minibatches consist of: by default single steps, if possible."""
        return self.shuffle or ("instances" if networks.is_recurrent else "steps")


class PolicyGradientAlgorithm(OnPolicyAlgorithm):
    """An on-policy algorithm with a policy and a critic.

    A subclass has the fields below and defines `optimizer` and `loss`.
    """

    actor_type = ActorCriticNetworks

    target_kl: float | None
    normalize_advantage: bool

    def default_actor(self) -> ActorCritic:
        return ActorCritic()

    def act(
        self,
        context: TrainContext,
        behavior: BehaviorPolicy,
        carry: Any,
        features: Features,
        key: chex.PRNGKey,
    ) -> tuple[Any, jax.Array]:
        return context.networks.sample(behavior.params, carry, features, key)

    def behavior_log_prob(
        self, context: TrainContext, behavior: BehaviorPolicy, steps: Transition, carry: Any
    ) -> jax.Array:
        features = jax.vmap(context.networks.features)(steps.observation)
        features = self.normalize_features(features, behavior.observation_statistics)
        return _log_prob(context, behavior.params, features, steps, carry)

    @property
    def may_skip_steps(self) -> bool:
        return self.target_kl is not None

    def should_stop(self, metrics: Metrics) -> jax.Array:
        if self.target_kl is None:
            return jnp.bool_(False)
        return metrics["approx_kl"] > self.target_kl

    @abc.abstractmethod
    def loss(self, batch: Batch, predictions: Predictions) -> tuple[jax.Array, Metrics]:
        """Returns the loss of a batch, float32[], and its terms as metrics, float32[] each."""

    def gradients(
        self, context: TrainContext, weights: Weights, batch: Batch, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, None]:
        del key  # the losses are deterministic
        if self.normalize_advantage:
            advantage = normalize_advantage(context, batch.advantage)
            batch = dataclasses.replace(batch, advantage=advantage)

        def loss(params: Any) -> tuple[jax.Array, Metrics]:
            log_prob, entropy = context.networks.log_prob_and_entropy(
                params, batch.features, batch.action, batch.memory
            )
            value = context.networks.value(params, batch.features, batch.memory)
            predictions = Predictions(log_prob=log_prob, entropy=entropy.mean(), value=value)
            total, reported = self.loss(batch, predictions)
            divergence = losses.kl_estimate(log_prob - batch.log_prob).mean()
            return total, {**reported, "entropy": predictions.entropy, "approx_kl": divergence}

        gradients, metrics = jax.grad(loss, has_aux=True)(weights.params)
        return gradients, metrics, None


def _check_estimates(storage: Storage, estimates: Any, shape: tuple[int, ...]) -> Any:
    """Returns the estimates of a user's storage, unless they would be broadcast silently.

    Raises:
        TrainingError: they are not two arrays of `shape`.
    """
    shapes = (
        [jnp.shape(each) for each in estimates] if isinstance(estimates, tuple | list) else None
    )
    if shapes != [shape, shape]:
        raise TrainingError(
            f"{type(storage).__name__}.estimate returned"
            f" {'no pair' if shapes is None else f'arrays of {shapes}'}; it must return"
            f" advantages and targets, each [T, N] = {list(shape)}."
        )
    return estimates


def normalize_advantage(context: TrainContext, advantage: jax.Array) -> jax.Array:
    """Normalizes advantages to mean 0 and standard deviation 1 over all devices."""
    mean = mean_over_devices(context, advantage.mean())
    variance = mean_over_devices(context, ((advantage - mean) ** 2).mean())
    return (advantage - mean) / (jnp.sqrt(variance) + 1e-8)


def permutation(key: chex.PRNGKey, size: int) -> jax.Array:
    """Returns 0 to size - 1 in random order, int32[size].

    Sorts once, by 32 random bits; `jax.random.permutation` sorts twice or more. One pair in 2**32
    has equal bits and keeps its order.
    """
    bits = jax.random.bits(key, (size,), jnp.uint32)
    _, order = jax.lax.sort((bits, jnp.arange(size, dtype=jnp.int32)), num_keys=1)
    return order


def minibatch(batch: Batch, drawn: jax.Array, shuffle: Shuffle) -> Batch:
    """Returns the drawn rows of a batch: single steps [B, ...], instances or time steps."""
    if shuffle == "steps":
        return jax.tree.map(lambda x: x[drawn], batch)
    if shuffle == "time":
        return jax.tree.map(lambda x: _flat(x[drawn]), batch)
    without_carry = (
        batch
        if batch.memory is None
        else dataclasses.replace(batch, memory=(None, batch.memory[1]))
    )
    taken = jax.tree.map(lambda x: x[:, drawn], without_carry)
    if batch.memory is None:
        return jax.tree.map(_flat, taken)
    carry = jax.tree.map(lambda x: x[drawn], batch.memory[0])
    return dataclasses.replace(taken, memory=(carry, taken.memory[1]))


def _first_steps(steps: Transition) -> jax.Array:
    """Returns where an episode starts within the unroll, bool[T + 1, N].

    The first row is false even if an episode starts there, because its carry was already reset.
    """
    return jnp.concatenate([jnp.zeros_like(steps.done[:1]), steps.done])


def _log_prob(
    context: TrainContext, params: Any, features: Features, steps: Transition, carry: Any
) -> jax.Array:
    """Returns the log-probabilities of the actions that were taken, float32[T, N]."""
    networks, action = context.networks, steps.action
    if networks.is_recurrent:
        memory = (carry, _first_steps(steps)[:-1])
        return networks.log_prob_and_entropy(params, features, action, memory)[0]
    log_prob, _ = networks.log_prob_and_entropy(
        params, jax.tree.map(_flat, features), _flat(action)
    )
    return log_prob.reshape(steps.reward.shape)


def _values(
    context: TrainContext, params: Any, features: Features, carry: Any, first: jax.Array
) -> tuple[jax.Array, Any]:
    """Returns the critic's values, float32[T + 1, N], and its carry after each step."""
    if context.networks.is_recurrent:
        return context.networks.value_and_carry(params, features, (carry, first))
    values = context.networks.value(params, jax.tree.map(_flat, features))
    return values.reshape(first.shape), ()


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape((-1, *x.shape[2:]))
