"""What an algorithm is: hyper-parameters, and the pure functions that learn with them."""

import abc
import dataclasses
from typing import Any, ClassVar, Self

import chex
import jax
import jax.numpy as jnp
import optax

from jaxenvs import spaces, struct
from jaxenvs.errors import TrainingError, closest
from jaxenvs.training.actors.base import Actor, Features, Networks
from jaxenvs.training.optimizers import Schedule, global_norm
from jaxenvs.training.storages.base import OnPolicyStorage, Storage
from jaxenvs.training.types import LearnerState, Transition, Unroll, Weights
from jaxenvs.wrappers.statistics import RunningStatistics

Metrics = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a training is assembled of, besides the environment."""

    networks: Any  # `Networks`, of the algorithm's `actor_type`
    storage: Any  # a `Storage`, of the algorithm's `storage_type`
    num_updates: int  # in all; schedules run over them
    steps_per_update: int  # taken by all instances together
    axis_name: str | None = None  # of the devices that learn together


@struct.pytree_dataclass
class Algorithm(abc.ABC):
    """Hyper-parameters: a pytree whose numbers are leaves, so that a sweep is a `vmap`.

    The static ones decide shapes or control flow; another value of theirs compiles anew. A method
    that takes `parts` is pure, and all that changes is in the `LearnerState`.
    """

    actor_type: ClassVar[type[Networks]]  # the networks that the losses ask
    storage_type: ClassVar[type[Storage]]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            rate: Any = getattr(self, field.name)
            if field.name.endswith("learning_rate") and callable(rate):
                object.__setattr__(self, field.name, Schedule(rate))

    @classmethod
    def for_spaces(cls, observation_space: spaces.Space, action_space: spaces.Space) -> Self:
        """The defaults for an environment with such spaces, those of one instance."""
        del observation_space, action_space  # there is one set for all
        return cls()

    @abc.abstractmethod
    def default_actor(self) -> Actor:
        """The actor of a training that names none."""

    @abc.abstractmethod
    def default_storage(self) -> Storage:
        """The storage of a training that names none."""

    @abc.abstractmethod
    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        """What turns gradients into changes of the weights, over so many updates in all.

        Their number may be a tracer: `Train.resume` can go on past the end.
        """

    def rate(self, num_updates: int) -> Any:
        """The learning rate over so many updates in all, a number or a function of gradient steps.

        None where there is no field `learning_rate`.
        """
        del num_updates  # it is annealed nowhere
        return getattr(self, "learning_rate", None)

    @abc.abstractmethod
    def act(
        self,
        parts: Parts,
        behavior: "Behavior",
        carry: Any,
        features: Features,
        key: chex.PRNGKey,
    ) -> tuple[Any, jax.Array]:
        """What to remember, and N raw actions to explore with."""

    @abc.abstractmethod
    def begin(
        self, parts: Parts, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, Any]:
        """Takes in an unroll: the state after it, and what `draw` draws from besides."""

    @abc.abstractmethod
    def draw(
        self, parts: Parts, learner_state: LearnerState, work: Any, index: Any, key: chex.PRNGKey
    ) -> Any:
        """The batch of gradient step `index` on an unroll."""

    @abc.abstractmethod
    def gradients(
        self, parts: Parts, weights: Weights, batch: Any, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, jax.Array | None]:
        """The gradient of the losses on a batch, their values, and the error of each row."""

    def overview(self, parts: Parts, work: Any) -> Metrics:
        """What `begin` found out about an unroll as a whole, to report: float32[] each."""
        del parts, work  # nothing
        return {}

    @abc.abstractmethod
    def gradient_steps(self, environment_steps: int) -> int:
        """How many gradient steps follow so many environment steps, those of an unroll, at most."""

    def gradient_steps_of(self, environment_steps: int, update: Any) -> Any:
        """Returns how many of them this update takes, int32[]; updates count from 0."""
        del update
        return self.gradient_steps(environment_steps)

    @property
    def may_stop(self) -> bool:
        """Whether some of these gradient steps may be left out."""
        return False

    def waits(self, parts: Parts, learner_state: LearnerState) -> jax.Array:
        """bool[]: nothing is to be learned yet."""
        del parts, learner_state
        return jnp.bool_(False)

    def is_enough(self, metrics: Metrics) -> jax.Array:
        """bool[]: a gradient step with these losses is the last one of its update."""
        del metrics
        return jnp.bool_(False)

    def settle(
        self, parts: Parts, learner_state: LearnerState, batch: Any, error: jax.Array | None
    ) -> LearnerState:
        """Notes how wrong the rows of a batch were; NaN where nothing was learned."""
        del parts, batch, error
        return learner_state

    def learn(
        self, parts: Parts, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, Metrics]:
        """Takes all gradient steps on an unroll; returns means over them, float32[] each.

        They are those of the losses and of what is `reported`, NaN where no step was taken.
        """
        begin_key, steps_key = jax.random.split(key)
        learner_state, work = self.begin(parts, learner_state, unroll, begin_key)

        def step(carry: Any, inputs: Any) -> Any:
            (weights, storage), is_over = carry
            index, (draw_key, gradient_key) = inputs
            now = learner_state.replace(weights=weights, storage=storage)
            batch = self.draw(parts, now, work, index, draw_key)

            def learn() -> Any:
                gradients, losses, error = self.checked_gradients(
                    parts, weights, batch, gradient_key
                )
                gradients, losses = over_devices(parts, (gradients, losses))
                losses = {**self.reported(parts, weights, gradients), **losses}
                return self.apply_gradients(parts, weights, gradients), losses, error

            def leave_out() -> Any:
                _, *unknown = jax.eval_shape(learn)
                nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), unknown)
                return weights, *nothing

            if self.may_stop:  # only weights pass through: a memory would be copied there
                is_left_out = is_over | (index >= taken)
                weights, losses, error = jax.lax.cond(is_left_out, leave_out, learn)
            else:
                weights, losses, error = learn()
            now = self.settle(parts, now, batch, error)
            return ((weights, now.storage), is_over | self.is_enough(losses)), losses

        number = self.gradient_steps(parts.steps_per_update)
        taken = self.gradient_steps_of(parts.steps_per_update, learner_state.updates)
        keys = jax.random.split(steps_key, (number, 2))
        is_over = self.waits(parts, learner_state)
        ((weights, storage), _), losses = jax.lax.scan(
            step,
            ((learner_state.weights, learner_state.storage), is_over),
            (jnp.arange(number, dtype=jnp.int32), keys),
        )
        learner_state = learner_state.replace(weights=weights, storage=storage)
        losses = jax.tree.map(jnp.nanmean, losses)
        return learner_state, {**losses, **self.overview(parts, work)}

    def checked_gradients(
        self, parts: Parts, weights: Weights, batch: Any, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, jax.Array | None]:
        """`gradients`, which somebody else may have written.

        Raises:
            TrainingError: they are not what gradients, losses and errors are.
        """
        found: Any = self.gradients(parts, weights, batch, key)
        name = f"{type(self).__name__}.gradients"
        if not isinstance(found, tuple) or len(found) != 3:
            number = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise TrainingError(
                f"{name} returned {number}; it returns three values: the gradients, a dict of"
                " losses, and the error of each row of the batch, or None."
            )
        gradients, losses, _ = found
        if jax.tree.structure(gradients) != jax.tree.structure(weights.params):
            raise TrainingError(
                f"{name} returned gradients of another structure than the weights:"
                f" {jax.tree.structure(gradients)!s:.200}, not"
                f" {jax.tree.structure(weights.params)!s:.200}."
            )
        if not isinstance(losses, dict) or any(jnp.shape(x) for x in losses.values()):
            raise TrainingError(
                f"{name} returned losses {losses!r:.200}; they are a dict of single numbers by"
                " name."
            )
        return found

    def check(self, networks: Networks, storage: Storage) -> None:
        """Refuses parts that do not fit together, or this algorithm.

        Raises:
            TrainingError: saying which two parts conflict, and what fits instead.
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
                "(...), or none."
            )

    def check_sizes(self, networks: Networks, num_envs: int, unroll_length: int) -> None:
        """Refuses numbers that do not fit together.

        Raises:
            TrainingError: saying which, and why.
        """
        del networks, num_envs, unroll_length  # any will do

    def check_steps(self, total_steps: int) -> None:
        """Warns of a training of so few steps that nothing is learned."""
        del total_steps  # any will do

    def recorded(
        self, parts: Parts, behavior: "Behavior", steps: Transition, carry: Any
    ) -> jax.Array | None:
        """What of [T, N] steps is known only to the policy that took them: log-probabilities."""
        del parts, behavior, steps, carry

    def shown(self, features: Features, statistics: RunningStatistics | None) -> Features:
        """Features as the networks see them: normalized, where there are statistics."""
        return normalized(features, statistics, getattr(self, "observation_clip", None))

    def initial_weights(self, parts: Parts, params: dict[str, Any]) -> Weights:
        """What gradient steps start from."""
        return Weights(
            params=params,
            # Copies: a state with an array in two places cannot be donated to a program.
            target_params=jax.tree.map(jnp.copy, self.initial_targets(params)),
            optimizer_state=self.optimizer(parts.num_updates).init(params),
            gradient_steps=jnp.int32(0),
        )

    def initial_params(self, networks: Networks, key: chex.PRNGKey, features: Features) -> Any:
        """The networks' initial weights, and what else is learned by gradients.

        Under `vmap` they are drawn for one key after the other. Up to jax 0.10 XLA's threads that
        factorise a batch of matrices, as orthogonal weights ask for, wait for each other in the
        same pool: on few cores two seeds, or two critics, would hang forever.
        """

        @jax.custom_batching.custom_vmap
        def draw(key: chex.PRNGKey) -> Any:
            # What is seen does not matter, and what is mapped may not be closed over: zeros do.
            like = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), features)
            return networks.init(key, like)

        @draw.def_vmap
        def _(axis_size: int, in_batched: list[bool], keys: chex.PRNGKey) -> tuple[Any, Any]:
            del axis_size, in_batched
            drawn = jax.lax.map(draw, keys)
            return drawn, jax.tree.map(lambda _: True, drawn)

        return draw(key)

    def initial_targets(self, params: Any) -> Any:
        """The slow copies of weights that targets are computed with; () without any."""
        del params
        return ()

    def moved_targets(self, params: Any, targets: Any, gradient_steps: jax.Array) -> Any:
        """`targets` after so many gradient steps, the last of which led to `params`."""
        del params, gradient_steps
        return targets

    def apply_gradients(self, parts: Parts, weights: Weights, gradients: Any) -> Weights:
        """One gradient step, and the targets moved."""
        with jax.numpy_dtype_promotion("standard"):  # Adam raises floats to its int32 count
            changes, optimizer_state = self.optimizer(parts.num_updates).update(
                gradients, weights.optimizer_state, weights.params
            )
        params: Any = optax.apply_updates(weights.params, changes)
        gradient_steps = weights.gradient_steps + 1
        return Weights(
            params=params,
            target_params=self.moved_targets(params, weights.target_params, gradient_steps),
            optimizer_state=optimizer_state,
            gradient_steps=gradient_steps,
        )

    def reported(self, parts: Parts, weights: Weights, gradients: Any) -> Metrics:
        """What is told of each gradient step besides its losses, float32[] each."""
        reported = {"gradient_norm": global_norm(gradients)}  # before it is clipped
        rate = self.rate(parts.num_updates)
        if callable(rate):
            with jax.numpy_dtype_promotion("standard"):  # somebody else wrote it
                rate = rate(weights.gradient_steps)
        if rate is not None:
            reported["learning_rate"] = jnp.asarray(rate, jnp.float32)
        return reported

    def divided(self, share: int) -> Self:
        """What each of `share` devices does, so that together they do what this does.

        Raises:
            TrainingError: its batches cannot be divided.
        """
        del share  # batches are those of what a device collected
        return self

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other hyper-parameters.

        Raises:
            TrainingError: there is no such hyper-parameter; the message names the closest.
        """
        names = [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        for name in changes:
            if name not in names:
                raise TrainingError(
                    f'{type(self).__name__} has no hyper-parameter "{name}".{closest(name, names)}'
                )
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportType]

    def _learns_from(self) -> str:
        if issubclass(self.storage_type, OnPolicyStorage):
            return (
                "learns from each unroll once it is collected.  Pass GAE(), Rollout() or VTrace()"
            )
        return "draws transitions from a memory.  Pass Replay(), PrioritizedReplay() or Hindsight()"


@chex.dataclass(frozen=True)
class Behavior:
    """What acting needs of a learner: small enough to be sent to those who collect."""

    params: dict[str, Any]
    observation_statistics: RunningStatistics | None  # None: observations are not normalized
    updates: jax.Array  # int32[], that the learner has done

    @classmethod
    def of(cls, learner_state: LearnerState) -> "Behavior":
        """The behavior that a learner has arrived at."""
        return cls(
            params=learner_state.params,
            observation_statistics=learner_state.observation_statistics,
            updates=learner_state.updates,
        )


def normalized(
    features: Features, statistics: RunningStatistics | None, clip: float | None
) -> Features:
    """Features with flat inputs, [..., F], as the networks see them."""
    if statistics is None:
        return features
    return dataclasses.replace(features, inputs=statistics.normalize(features.inputs, clip))


def slowly(params: Any, targets: Any, tau: chex.Numeric) -> Any:
    """`targets`, moved by the fraction `tau` towards `params` (Polyak averaging)."""
    return jax.tree.map(lambda new, old: old + tau * (new - old), params, targets)


def gathered(parts: Parts, x: jax.Array) -> jax.Array:
    """The rows of all devices that learn together, [B, ...]; `x` itself on one."""
    if parts.axis_name is None:
        return x
    return jax.lax.all_gather(x, parts.axis_name, tiled=True)


def over_devices(parts: Parts, x: Any) -> Any:
    """The means of a tree over the devices that learn together; the tree itself on one."""
    return x if parts.axis_name is None else jax.lax.pmean(x, parts.axis_name)
