"""Training on several devices, each with its share of the environments."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, reshard

from jaxenvs import struct
from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.training.train_program import ActorPolicy, Train, TrainResult
from jaxenvs.training.types import LearnerState
from jaxenvs.vector.vectorized_env import VectorizedEnv
from jaxenvs.wrappers.independent_agents import IndependentAgents, batch_of


@struct.pytree_dataclass
class ShardedTrain:
    """A `Train` whose instances, storage and minibatches are divided among a mesh's devices.

    Each of D devices collects with N / D instances, keeps its own storage, and computes the
    gradients of its share of each minibatch. All devices apply the mean gradient, so their weights
    stay equal. The interface is that of `Train`.

    In a `LearnerState`, the collector and the storage have a leading axis with one row per device;
    the rest is replicated.
    """

    train: Train  # the program of one device, with the first device's batched parameters
    batched: dict[str, Any]  # parameters that are divided among the devices, [N, ...] by name
    mesh: Mesh = struct.static()

    @property
    def num_updates(self) -> int:
        """The total number of updates."""
        return self.train.num_updates

    @property
    def env(self) -> VectorEnv:
        """The instances of one device."""
        return self.train.env

    def __call__(self, key: chex.PRNGKey) -> TrainResult:
        """Trains from scratch."""
        return self.resume(self.init(key), self.num_updates)

    def init(self, key: chex.PRNGKey) -> LearnerState:
        """Draws the weights once and resets the environments."""

        def start(train: Train, key: chex.PRNGKey) -> LearnerState:
            return _add_device_axis(train.init(key))

        return self._on_devices(start, PartitionSpec(), _layout(self.mesh))(self.train, key)

    def update(self, learner_state: LearnerState) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Does one update, see `Train.update`; metrics are those of all devices."""

        def update(train: Train, learner_state: LearnerState) -> Any:
            learner_state, metrics = train.update(_remove_device_axis(learner_state))
            return _add_device_axis(learner_state), metrics

        layout = _layout(self.mesh)
        program = self._on_devices(update, layout, (layout, PartitionSpec()))
        return program(self.train, learner_state)

    def resume(self, learner_state: LearnerState, num_updates: int) -> TrainResult:
        """Does `num_updates` more updates, see `Train.resume`."""

        def resume(train: Train, learner_state: LearnerState) -> TrainResult:
            result = train.resume(_remove_device_axis(learner_state), num_updates)
            return TrainResult(
                learner_state=_add_device_axis(result.learner_state), metrics=result.metrics
            )

        layout = _layout(self.mesh)
        metrics: Any = PartitionSpec()
        results = TrainResult(learner_state=layout, metrics=metrics)
        return self._on_devices(resume, layout, results)(self.train, learner_state)

    def truncate_memory(self, learner_state: LearnerState) -> LearnerState:
        """Truncates the last episodes in a replay memory, see `Train.truncate_memory`."""

        def truncate_memory(train: Train, learner_state: LearnerState) -> LearnerState:
            return _add_device_axis(train.truncate_memory(_remove_device_axis(learner_state)))

        layout = _layout(self.mesh)
        return self._on_devices(truncate_memory, layout, layout)(self.train, learner_state)

    def policy(self, learner_state: LearnerState, *, greedy: bool = True) -> ActorPolicy:
        """Returns the policy of a learner state, see `Train.policy`."""
        return self.train.policy(learner_state, greedy=greedy)

    def _on_devices(self, function: Callable[..., Any], layout: Any, results: Any) -> Any:
        def with_own_rows(train: Train, batched: Any, argument: Any) -> Any:
            number = batch_of(train.env).num_envs
            own = jax.lax.axis_index(self.mesh.axis_names[0])
            rows = jax.tree.map(
                lambda x: jax.lax.dynamic_slice_in_dim(x, own * number, number), batched
            )
            return function(train.replace(env=train.env.replace(**rows)), argument)

        def program(train: Train, argument: Any) -> Any:
            everywhere = PartitionSpec()
            if AxisType.Explicit in self.mesh.axis_types:  # restored states may be elsewhere
                argument = jax.tree.map(
                    lambda place, part: reshard(part, NamedSharding(self.mesh, place)),
                    layout,
                    argument,
                    is_leaf=lambda place: isinstance(place, PartitionSpec),
                )
            return jax.shard_map(
                with_own_rows,
                mesh=self.mesh,
                in_specs=(everywhere, everywhere, layout),
                out_specs=results,
                # Weights stay replicated because gradients are averaged, which JAX cannot infer.
                check_vma=False,
            )(train, self.batched, argument)

        return program


def shard(train: Train, mesh: Mesh) -> ShardedTrain:
    """Divides training among the D devices of the mesh's first axis.

    An update takes as many steps as one of `train`, but with other random numbers, because each
    device draws its own.

    Raises:
        TrainingError: instances or minibatches cannot be divided by D, or the environment is
            hosted, because a program cannot divide its pools.

    Example:
        >>> train = make_train("CartPole-v1", num_envs=16, unroll_length=32, total_steps=4096)
        >>> sharded = shard(train, jax.make_mesh((2,), ("devices",), devices=jax.devices()[:2]))
        >>> sharded.train.env.num_envs  # jax.jit(sharded)(key) trains
        8
    """
    axis_name = mesh.axis_names[0]
    share, env = mesh.shape[axis_name], batch_of(train.env)
    if not isinstance(env, VectorizedEnv):
        raise TrainingError(
            f"shard got {env!r:.80}; only native environments, made by vectorize, can be divided."
            "  Use a Scheme with collection=remote(n), which makes environments for each worker."
        )
    if train.curriculum is not None:
        raise TrainingError(
            f"shard got a training program with {type(train.curriculum).__name__}; a curriculum has"
            " one buffer of levels for all instances.  Divide the environments instead:"
            " vectorize(env, num_envs, mesh=mesh)."
        )
    if env.num_envs % share:
        raise TrainingError(
            f"shard got num_envs={env.num_envs} for {share} devices.  Choose a multiple of {share}."
        )
    number = env.num_envs // share
    batched = {name: env.parameters[name] for name in env.batched}
    rows = jax.tree.map(lambda x: x[:number], batched)
    single = env.env.replace(**rows) if rows else env.env
    env = dataclasses.replace(env, env=single, num_envs=number, mesh=None, mesh_axis=None)
    env = train.env.with_env(env) if isinstance(train.env, IndependentAgents) else env
    algorithm = train.algorithm.per_device(share)
    algorithm.check_sizes(train.networks, env.num_envs, train.unroll_length)
    part = train.replace(env=env, algorithm=algorithm, axis_name=axis_name)
    return ShardedTrain(train=part, batched=batched, mesh=mesh)


def _layout(mesh: Mesh) -> Any:
    """Returns the partition specs of a learner state."""
    everywhere: Any = PartitionSpec()
    in_rows: Any = PartitionSpec(mesh.axis_names[0])
    return LearnerState(
        weights=everywhere,
        updates=everywhere,
        steps_per_update=everywhere,
        key=everywhere,
        storage=in_rows,
        collector=in_rows,
        observation_statistics=everywhere,
        return_statistics=everywhere,
        recent_episodes=everywhere,
    )


def _add_device_axis(learner_state: LearnerState) -> LearnerState:
    return _map_device_parts(lambda x: x[None], learner_state)


def _remove_device_axis(learner_state: LearnerState) -> LearnerState:
    return _map_device_parts(lambda x: x[0], learner_state)


def _map_device_parts(function: Callable[[Any], Any], learner_state: LearnerState) -> LearnerState:
    each = functools.partial(jax.tree.map, function)
    return learner_state.replace(
        collector=each(learner_state.collector), storage=each(learner_state.storage)
    )
