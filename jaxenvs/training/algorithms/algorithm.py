"""The base class of algorithms: hyperparameters and pure functions that use them."""

import abc
import dataclasses
from typing import Any, ClassVar, Self

import chex
import jax
import jax.numpy as jnp
import optax

from jaxenvs import loops, spaces, struct
from jaxenvs.errors import TrainingError
from jaxenvs.training.actors.actor import Actor, Features, Networks
from jaxenvs.training.optimizers import Schedule, global_norm
from jaxenvs.training.storages.storage import OnPolicyStorage, Storage
from jaxenvs.training.types import LearnerState, Transition, Unroll, Weights
from jaxenvs.wrappers.statistics import RunningStatistics

Metrics = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class TrainContext:
    """The parts of a training run that an algorithm uses."""

    networks: Any  # `Networks`, of the algorithm's `actor_type`
    storage: Any  # a `Storage`, of the algorithm's `storage_type`
    num_updates: int  # total, for schedules
    steps_per_update: int  # environment steps of all instances
    axis_name: str | None = None  # the mesh axis of the devices that learn together


@struct.pytree_dataclass
class Algorithm(abc.ABC):
    """A pytree of hyperparameters. Numbers are leaves, so a sweep is a `vmap`.

    Static hyperparameters determine shapes or control flow; changing one triggers recompilation.
    Methods that take a `context` are pure: all mutable data is in the `LearnerState`.
    """

    actor_type: ClassVar[type[Networks]]  # the networks that the losses need
    storage_type: ClassVar[type[Storage]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        struct.check_annotations(cls)  # also if it is not decorated

    def __post_init__(self) -> None:
        for field in struct.fields(self):
            rate: Any = getattr(self, field.name)
            if field.name.endswith("learning_rate") and callable(rate):
                object.__setattr__(self, field.name, Schedule(rate))

    @classmethod
    def for_spaces(cls, observation_space: spaces.Space, action_space: spaces.Space) -> Self:
        """Returns the algorithm with defaults for these spaces of one instance."""
        del observation_space, action_space  # the same for all spaces
        return cls()

    @abc.abstractmethod
    def default_actor(self) -> Actor:
        """Returns the default actor."""

    @abc.abstractmethod
    def default_storage(self) -> Storage:
        """Returns the default storage."""

    @abc.abstractmethod
    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        """Returns the optax optimizer for a training run of `num_updates`.

        The number may be a tracer, because `Train.resume` can continue past the end.
        """

    def rate(self, num_updates: int) -> Any:
        """Returns the learning rate: a number, or a function of the gradient steps so far.

        Returns None if there is no field `learning_rate`.
        """
        del num_updates  # no annealing
        return getattr(self, "learning_rate", None)

    @abc.abstractmethod
    def act(
        self,
        context: TrainContext,
        behavior: "BehaviorPolicy",
        carry: Any,
        features: Features,
        key: chex.PRNGKey,
    ) -> tuple[Any, jax.Array]:
        """Returns the carry and N raw actions for exploration."""

    @abc.abstractmethod
    def process_unroll(
        self, context: TrainContext, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, Any]:
        """Processes an unroll. Returns the new state and the data for `draw_batch`."""

    @abc.abstractmethod
    def draw_batch(
        self,
        context: TrainContext,
        learner_state: LearnerState,
        work: Any,
        index: Any,
        key: chex.PRNGKey,
    ) -> Any:
        """Returns the batch of gradient step `index` on an unroll."""

    @abc.abstractmethod
    def gradients(
        self, context: TrainContext, weights: Weights, batch: Any, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, jax.Array | None]:
        """Returns the gradient of the losses on a batch, the losses, and each row's TD error."""

    def unroll_metrics(self, context: TrainContext, work: Any) -> Metrics:
        """Returns metrics of a whole unroll, float32[] each."""
        del context, work  # no metrics
        return {}

    @abc.abstractmethod
    def gradient_steps(self, environment_steps: int) -> int:
        """Returns the maximum number of gradient steps after an unroll of `environment_steps`."""

    def gradient_steps_of(self, environment_steps: int, update: Any) -> Any:
        """Returns the number of gradient steps in update number `update`, int32[]."""
        del update
        return self.gradient_steps(environment_steps)

    @property
    def may_skip_steps(self) -> bool:
        """Whether some of these gradient steps may be skipped."""
        return False

    def is_warming_up(self, context: TrainContext, learner_state: LearnerState) -> jax.Array:
        """Returns whether learning has not started yet, bool[]."""
        del context, learner_state
        return jnp.bool_(False)

    def should_stop(self, metrics: Metrics) -> jax.Array:
        """Returns whether a gradient step with these losses ends its update, bool[]."""
        del metrics
        return jnp.bool_(False)

    def update_priorities(
        self,
        context: TrainContext,
        learner_state: LearnerState,
        batch: Any,
        error: jax.Array | None,
    ) -> LearnerState:
        """Updates the priorities of a batch from its TD errors, which are NaN for skipped steps."""
        del context, batch, error
        return learner_state

    def learn(
        self, context: TrainContext, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, Metrics]:
        """Takes all gradient steps on an unroll. Returns the new state and mean metrics.

        The metrics, float32[] each, are losses and `gradient_metrics`, NaN if no step was taken,
        and `unroll_metrics`.
        """
        begin_key, steps_key = jax.random.split(key)
        learner_state, work = self.process_unroll(context, learner_state, unroll, begin_key)

        def step(carry: Any, inputs: Any) -> Any:
            (weights, storage), is_over = carry
            index, (draw_key, gradient_key) = inputs
            now = learner_state.replace(weights=weights, storage=storage)
            batch = self.draw_batch(context, now, work, index, draw_key)

            def learn() -> Any:
                gradients, losses, error = self.compute_gradients(
                    context, weights, batch, gradient_key
                )
                gradients, losses = mean_over_devices(context, (gradients, losses))
                losses = {**self.gradient_metrics(context, weights, gradients), **losses}
                return self.apply_gradients(context, weights, gradients), losses, error

            def skip() -> Any:
                _, *unknown = jax.eval_shape(learn)
                nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), unknown)
                return weights, *nothing

            if self.may_skip_steps:  # updates only weights, because `cond` would copy a memory
                is_skipped = is_over | (index >= taken)
                weights, losses, error = loops.cond(is_skipped, skip, learn)
            else:
                weights, losses, error = learn()
            now = self.update_priorities(context, now, batch, error)
            return ((weights, now.storage), is_over | self.should_stop(losses)), losses

        number = self.gradient_steps(context.steps_per_update)
        taken = self.gradient_steps_of(context.steps_per_update, learner_state.updates)
        keys = jax.random.split(steps_key, (number, 2))
        is_over = self.is_warming_up(context, learner_state)
        ((weights, storage), _), losses = loops.scan(
            step,
            ((learner_state.weights, learner_state.storage), is_over),
            (jnp.arange(number, dtype=jnp.int32), keys),
        )
        learner_state = learner_state.replace(weights=weights, storage=storage)
        losses = jax.tree.map(jnp.nanmean, losses)
        return learner_state, {**losses, **self.unroll_metrics(context, work)}

    def compute_gradients(
        self, context: TrainContext, weights: Weights, batch: Any, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, jax.Array | None]:
        """Calls `gradients` and checks its result.

        Raises:
            TrainingError: the result does not consist of gradients, losses and errors.
        """
        found: Any = self.gradients(context, weights, batch, key)
        name = f"{type(self).__name__}.gradients"
        if not isinstance(found, tuple) or len(found) != 3:
            number = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise TrainingError(
                f"{name} returned {number}; it must return three values: the gradients, a dict of"
                " losses, and the error of each row of the batch or None."
            )
        gradients, losses, _ = found
        if jax.tree.structure(gradients) != jax.tree.structure(weights.params):
            raise TrainingError(
                f"{name} returned gradients whose structure differs from that of the weights:"
                f" {jax.tree.structure(gradients)!s:.200}; expected"
                f" {jax.tree.structure(weights.params)!s:.200}."
            )
        if not isinstance(losses, dict) or any(jnp.shape(x) for x in losses.values()):
            raise TrainingError(
                f"{name} returned the losses {losses!r:.200}; expected a dict from names to single"
                " numbers."
            )
        return found

    def check(self, networks: Networks, storage: Storage) -> None:
        """Checks that the parts fit together and fit this algorithm.

        Raises:
            TrainingError: two parts conflict; the message names them and suggests an alternative.
        """
        name = type(self).__name__
        if not isinstance(storage, self.storage_type):
            raise TrainingError(
                f"{name} got the storage {type(storage).__name__}, but it {self._learns_from()}."
            )
        if not isinstance(networks, self.actor_type):
            raise TrainingError(
                f"{name} got an actor that builds {type(networks).__name__}, but its losses need"
                f" {self.actor_type.__name__}.  Pass actor={type(self.default_actor()).__name__}"
                "(...), or omit actor."
            )

    def check_sizes(self, networks: Networks, num_envs: int, unroll_length: int) -> None:
        """Checks that the sizes fit together.

        Raises:
            TrainingError: they do not.
        """
        del networks, num_envs, unroll_length  # any sizes work

    def check_steps(self, total_steps: int) -> None:
        """Warns if the training run is too short to learn anything."""
        del total_steps  # any number works

    def behavior_log_prob(
        self, context: TrainContext, behavior: "BehaviorPolicy", steps: Transition, carry: Any
    ) -> jax.Array | None:
        """Returns the log-probabilities of [T, N] actions under the policy that took them."""
        del context, behavior, steps, carry

    def normalize_features(
        self, features: Features, statistics: RunningStatistics | None
    ) -> Features:
        """Normalizes features if there are statistics."""
        return normalize_inputs(features, statistics, getattr(self, "observation_clip", None))

    def initial_weights(self, context: TrainContext, params: dict[str, Any]) -> Weights:
        """Returns the weights, targets and optimizer state before the first gradient step."""
        return Weights(
            params=params,
            # Copies, because a state with the same array twice cannot be donated.
            target_params=jax.tree.map(jnp.copy, self.initial_targets(params)),
            optimizer_state=self.optimizer(context.num_updates).init(params),
            gradient_steps=jnp.int32(0),
        )

    def initial_params(self, networks: Networks, key: chex.PRNGKey, features: Features) -> Any:
        """Returns the initial weights of the networks and other parameters with gradients.

        Under `vmap` they are drawn for one key at a time. Up to jax 0.10, XLA can deadlock on few
        cores when it factorizes a batch of matrices, as for the orthogonal weights of two seeds or
        two critics.
        """

        @jax.custom_batching.custom_vmap
        def draw(key: chex.PRNGKey) -> Any:
            # Zeros, because mapped values may not be closed over and only shapes matter.
            like = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), features)
            return networks.init(key, like)

        @draw.def_vmap
        def _(axis_size: int, in_batched: list[bool], keys: chex.PRNGKey) -> tuple[Any, Any]:
            del axis_size, in_batched
            drawn = jax.lax.map(draw, keys)
            return drawn, jax.tree.map(lambda _: True, drawn)

        return draw(key)

    def initial_targets(self, params: Any) -> Any:
        """Returns the target network's initial weights, or () without a target network."""
        del params
        return ()

    def update_targets(self, params: Any, targets: Any, gradient_steps: jax.Array) -> Any:
        """Returns the target weights after `gradient_steps`, where `params` are the new weights."""
        del params, gradient_steps
        return targets

    def apply_gradients(self, context: TrainContext, weights: Weights, gradients: Any) -> Weights:
        """Takes one gradient step and updates the targets."""
        with jax.numpy_dtype_promotion("standard"):  # Adam mixes floats with its int32 count
            changes, optimizer_state = self.optimizer(context.num_updates).update(
                gradients, weights.optimizer_state, weights.params
            )
        params: Any = optax.apply_updates(weights.params, changes)
        gradient_steps = weights.gradient_steps + 1
        return Weights(
            params=params,
            target_params=self.update_targets(params, weights.target_params, gradient_steps),
            optimizer_state=optimizer_state,
            gradient_steps=gradient_steps,
        )

    def gradient_metrics(self, context: TrainContext, weights: Weights, gradients: Any) -> Metrics:
        """Returns the metrics of a gradient step other than its losses, float32[] each."""
        reported = {"gradient_norm": global_norm(gradients)}  # before clipping
        rate = self.rate(context.num_updates)
        if callable(rate):
            with jax.numpy_dtype_promotion("standard"):  # a user's function
                rate = rate(weights.gradient_steps)
        if rate is not None:
            reported["learning_rate"] = jnp.asarray(rate, jnp.float32)
        return reported

    def per_device(self, share: int) -> Self:
        """Returns the algorithm for one of `share` devices that together replace this one.

        Raises:
            TrainingError: its batches cannot be divided.
        """
        del share  # batches consist of what a device collected
        return self

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other hyperparameters.

        Raises:
            UnknownParameterError: there is no such hyperparameter; the message suggests the closest
                name.
        """
        return struct.replace(self, **changes)

    def _learns_from(self) -> str:
        if issubclass(self.storage_type, OnPolicyStorage):
            return "learns from each unroll once.  Pass GAE(), DiscountedReturns() or VTrace()"
        return (
            "draws transitions from a memory.  Pass Replay(), PrioritizedReplay() or"
            " HindsightReplay()"
        )


@chex.dataclass(frozen=True)
class BehaviorPolicy:
    """The part of a learner state that acting needs."""

    params: dict[str, Any]
    observation_statistics: RunningStatistics | None  # None: observations are not normalized
    updates: jax.Array  # int32[], the learner's updates so far

    @classmethod
    def of(cls, learner_state: LearnerState) -> "BehaviorPolicy":
        """Returns the behavior policy of a learner state."""
        return cls(
            params=learner_state.params,
            observation_statistics=learner_state.observation_statistics,
            updates=learner_state.updates,
        )


def normalize_inputs(
    features: Features, statistics: RunningStatistics | None, clip: float | None
) -> Features:
    """Normalizes features with flat inputs, [..., F]."""
    if statistics is None:
        return features
    return dataclasses.replace(features, inputs=statistics.normalize(features.inputs, clip))


def steps_of(context: TrainContext, updates: jax.Array) -> jax.Array:
    """Returns the environment steps of `updates`: float32[], because int32 may overflow."""
    return updates.astype(jnp.float32) * context.steps_per_update


def polyak_update(params: Any, targets: Any, tau: chex.Numeric) -> Any:
    """Moves `targets` toward `params` by the fraction `tau` (Polyak averaging)."""
    return jax.tree.map(lambda new, old: old + tau * (new - old), params, targets)


def gather_devices(context: TrainContext, x: jax.Array) -> jax.Array:
    """Returns the rows of all devices that learn together, [B, ...]; on one device, `x` itself."""
    if context.axis_name is None:
        return x
    return jax.lax.all_gather(x, context.axis_name, tiled=True)


def mean_over_devices(context: TrainContext, x: Any) -> Any:
    """Averages a tree over the devices that learn together."""
    return x if context.axis_name is None else jax.lax.pmean(x, context.axis_name)
