"""Batches of instances of one environment, see `vectorize`."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxenvs import keys, loops, prng, struct
from jaxenvs._cpu.chunks import Resets
from jaxenvs.calls import call_with_state, check_order, without_checks
from jaxenvs.core import AutoresetMode, Environment, FixedLevel, TimeStep, VectorEnv
from jaxenvs.errors import VectorizeError, as_integer, describe
from jaxenvs.meshes import check_mesh, mesh_from_data, mesh_to_data
from jaxenvs.parameters import check_numbers
from jaxenvs.spaces import Space
from jaxenvs.spaces.validation import check_action
from jaxenvs.vector import batched as batched_parameters
from jaxenvs.vector.sharding import over_mesh

S = TypeVar("S")


@chex.dataclass(frozen=True)
class NextStepState:
    """The state of a batch with `autoreset_mode="next_step"`."""

    inner: chex.ArrayTree  # [N, ...], the instances' own states
    finished: jax.Array  # bool[N], the next step resets these instances


@chex.dataclass(frozen=True)
class DisabledState:
    """The state of a batch with `autoreset_mode="disabled"`."""

    inner: chex.ArrayTree  # [N, ...], the instances' own states
    last: TimeStep  # [N, ...], finished instances keep returning this


@struct.pytree_dataclass
class VectorizedEnv(VectorEnv[Any], Generic[S]):
    """A batch of `num_envs` instances of a native environment, created by `vectorize`.

    See `vectorize` for the fields. With `autoreset_mode="same_step"`, the state is the stacked
    states of the instances. With the other modes, a `NextStepState` or a `DisabledState` contains
    it.
    """

    env: Environment[S]
    num_envs: int = struct.static()
    autoreset_mode: AutoresetMode = struct.static("same_step")
    batched: tuple[str, ...] = struct.static(())
    resets: Resets = struct.static(Resets())
    stagger: int | Literal["limit"] | None = struct.static(None)  # not bool: True equals 1
    mesh: Mesh | None = struct.static(None)
    mesh_axis: str | None = struct.static(None)

    def __post_init__(self) -> None:
        batched_parameters.check_rows(self.env, self.batched, self.num_envs)
        check_numbers(self.env, self._axes)

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.name not in ("env", "num_envs") and getattr(self, field.name) != field.default
        ]
        return f"VectorizedEnv({', '.join([repr(self.env), str(self.num_envs), *changed])})"

    # A mesh contains devices, which cannot be pickled. Unpickling rebuilds it from device ids.
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "mesh": mesh_to_data(self.mesh)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "mesh": mesh_from_data(state["mesh"])})

    @property
    def is_staggered(self) -> bool:
        return self.stagger is not None

    @property
    def agents(self) -> tuple[str, ...]:
        return self.env.agents

    @property
    def single_observation_space(self) -> Space:
        return self._instance(0).observation_space

    @property
    def single_action_space(self) -> Space:
        return self._instance(0).action_space

    def replace(self, **changes: Any) -> "VectorizedEnv[S]":
        """Returns a copy with some parameters changed: `env.replace(gravity=3.7)`."""
        return dataclasses.replace(self, env=self.env.replace(**changes))

    @property
    def parameters(self) -> dict[str, Any]:
        return self.env.parameters

    def wrap_instances(self, wrapper: Callable[[Environment], Environment]) -> "VectorizedEnv[Any]":
        """Returns this batch with `wrapper` applied to every instance."""
        return dataclasses.replace(self, env=wrapper(self.env))

    def at_levels(self, levels: Any) -> "VectorizedEnv[Any]":
        env, batched = self.env, self.batched
        if isinstance(env, FixedLevel) and "fixed_level" in batched:
            env, batched = env.env, tuple(name for name in batched if name != "fixed_level")
        return dataclasses.replace(
            self,
            env=FixedLevel(env, levels),
            batched=(*batched, "fixed_level"),
            stagger=None,
        )

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        """Starts an episode in every instance. Instance i draws from `fold_in(key, i)`.

        Args:
            key: one key for all instances, or [N] keys, one per instance, used without `fold_in`.

        Returns:
            The state and the timestep, each leaf with a leading [N] axis.
        """
        return self._run(VectorizedEnv._reset, key)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        """Takes one action in every instance. Instance i draws from `fold_in(key, i)`.

        Args:
            state: the state from the last `reset` or `step`.
            action: one action per instance, [N, ...] in the dtype of the action space.
            key: one key for all instances, or [N] keys, one per instance, used without `fold_in`.
                Pass a new key at every step.

        Returns:
            The state and the timestep. `observation` and `info` are the input for the next action;
            `final_observation` and `final_info` are the result of this step.

        Raises:
            ActionError: the action has the wrong structure, shape or dtype kind.
            StateError: the state belongs to another environment, mode or N.
            RandomKeyError: the key is not a key, or their number is neither 1 nor N.
        """
        check_order(state, key)
        name = type(self.env.unwrapped).__name__
        action = check_action(self.single_action_space, action, self.num_envs, name)
        # Without the barrier, XLA recomputes the actions, and their random draws, at every use.
        action = lax.optimization_barrier(action)
        step = partial(self._run, VectorizedEnv._step, key, state, action)
        return call_with_state(self, f"{name} with num_envs={self.num_envs}", step, state, key)

    def reset_where(
        self, mask: jax.Array, state: Any, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[Any, TimeStep]:
        """Starts an episode in the instances where `mask` is true.

        Args:
            mask: bool[N].
            state: the state from the last `reset` or `step`.
            timestep: the timestep returned with that state.
            key: a key as for `reset`. The new rows equal those of `reset` with the same key.

        Returns:
            The state and the timestep. Rows where `mask` is true start a new episode; all others
            are unchanged.

        Raises:
            VectorizeError: the mask is not bool[N].
        """
        array: Any = mask if isinstance(mask, jax.Array) else np.asarray(mask)
        if array.shape != (self.num_envs,) or array.dtype != np.bool_:
            raise VectorizeError(
                f"reset_where got a mask of {describe(array)}; expected bool[{self.num_envs}], true"
                " for the instances to reset."
            )
        inner, fresh = self.reset(key)
        if timestep.final_observation is None:  # rollouts drop the final fields
            fresh = fresh.replace(final_observation=None, final_info=None)
        return struct.select(array, (inner, fresh), (state, timestep))

    def render(self, state: Any, index: int = 0) -> jax.Array:
        """Draws instance `index` as uint8[H, W, 3].

        Raises:
            VectorizeError: there is no such instance.
        """
        if not isinstance(index, Tracer):
            number = as_integer(index)
            if number is None or not 0 <= number < self.num_envs:
                raise VectorizeError(
                    f"render got index={index!r:.60}; it must be from 0 to {self.num_envs - 1}."
                )
            index = number
        inner = state.inner if self.autoreset_mode != "same_step" else state
        sharding = None
        if self.mesh is not None and AxisType.Explicit in self.mesh.axis_types:
            sharding = NamedSharding(self.mesh, PartitionSpec())  # required for indexing

        def row(leaf: jax.Array) -> jax.Array:
            return leaf[index] if sharding is None else leaf.at[index].get(out_sharding=sharding)

        return self._instance(index).render(jax.tree.map(row, inner))

    # The methods below see the N instances of one device: all instances, or those of one shard.
    # `first` is the global index of the first of them.

    def _reset(self, key: chex.PRNGKey, first: jax.Array) -> tuple[Any, TimeStep]:
        instance_keys = self._instance_keys(key, first)
        inner, timestep = self._reset_instances(self.env, instance_keys)
        if self.stagger is not None:
            inner, timestep = self._stagger(inner, timestep, instance_keys)
        return self._make_state(inner, timestep), timestep

    def _step(
        self, key: chex.PRNGKey, first: jax.Array, state: Any, action: Any
    ) -> tuple[Any, TimeStep]:
        before = state if self.autoreset_mode == "same_step" else state.inner
        inner, timestep = self._step_instances(before, action, key, first)
        timestep = _copy_to_final(timestep)
        overwrite = partial(self.resets.overwrite, params=(self.env, key, first))
        if self.autoreset_mode == "same_step":
            inner, observation, info = overwrite(
                self._autoreset_same_step,
                needed=timestep.done,
                old=(inner, timestep.observation, timestep.info),
            )
            timestep = timestep.replace(observation=observation, info=info)
        elif self.autoreset_mode == "next_step":
            inner, timestep = overwrite(
                self._autoreset, needed=state.finished, old=(inner, timestep)
            )
        else:
            frozen = state.last.replace(reward=jax.tree.map(jnp.zeros_like, timestep.reward))
            inner, timestep = struct.select(state.last.done, (before, frozen), (inner, timestep))
        return self._make_state(inner, timestep), timestep

    def _step_instances(
        self, inner: Any, action: Any, key: chex.PRNGKey, first: Any
    ) -> tuple[Any, TimeStep]:
        instance_keys = self._instance_keys(key, first)
        step = jax.vmap(lambda env, *args: env.step(*args), in_axes=(self._axes, 0, 0, 0))
        with without_checks():
            result = step(self.env, inner, action, instance_keys)
        return prng.as_standard_keys(result)  # a state may contain keys

    def _reset_instances(self, env: Any, instance_keys: chex.PRNGKey) -> tuple[Any, TimeStep]:
        reset = jax.vmap(lambda env, key: env.reset(key), in_axes=(self._axes, 0))
        with without_checks():
            inner, timestep = prng.as_standard_keys(reset(env, instance_keys))
        return inner, _copy_to_final(timestep)

    def _autoreset(self, params: Any, indices: jax.Array) -> tuple[Any, TimeStep]:
        """Resets the instances `indices` as part of a step."""
        env, key, first = params
        rows = jnp.minimum(indices, self.num_envs - 1)  # indices past the end are dropped later
        if self.batched:
            env = batched_parameters.rows_of(env, self._axes, rows)
        if key.shape:
            instance_keys = jax.vmap(keys.autoreset_key)(key[rows])
        else:
            instance_keys = jax.vmap(keys.autoreset_key, (None, 0))(
                key, rows.astype(jnp.uint32) + first
            )
        return self._reset_instances(env, instance_keys)

    def _autoreset_same_step(self, params: Any, indices: jax.Array) -> tuple[Any, Any, Any]:
        inner, timestep = self._autoreset(params, indices)
        return inner, timestep.observation, timestep.info

    def _stagger(
        self, inner: Any, timestep: TimeStep, instance_keys: chex.PRNGKey
    ) -> tuple[Any, TimeStep]:
        """Advances each instance by a random number of random actions, fewer than its limit."""
        # Stop gradients here, because a loop of unknown length has no reverse-mode derivative.
        env, inner, timestep = lax.stop_gradient((self.env, inner, timestep))
        stepper = dataclasses.replace(self, env=env, autoreset_mode="same_step")
        steps: Any = self.env.time_limit if self.stagger == "limit" else self.stagger
        limit = jnp.broadcast_to(jnp.int32(steps), (self.num_envs,))
        base = jax.vmap(keys.stagger_key)(instance_keys)
        child = jax.vmap(jax.random.fold_in, (0, None))
        # Draw below the instance's own limit. The largest limit would depend on which instances
        # share the device.
        phase = jax.vmap(lambda key, limit: jax.random.randint(key, (), 0, limit))(
            child(base, jnp.uint32(0)), limit
        )
        sample = jax.vmap(lambda env, key: env.action_space.sample(key), in_axes=(self._axes, 0))

        def play(t: jax.Array, carry: tuple[Any, TimeStep]) -> tuple[Any, TimeStep]:
            number = 2 * t.astype(jnp.uint32)
            action = sample(env, child(base, number + np.uint32(1)))
            step_keys = child(base, number + np.uint32(2))
            played = stepper._step(step_keys, jnp.uint32(0), carry[0], action)
            return struct.select(t < phase, played, carry)

        inner, played = loops.fori_loop(0, jnp.max(phase), play, (inner, timestep))
        # Keep the flags and reward of `reset`: this is where the agent's experience starts, even if
        # it is not where the episode started.
        return inner, _copy_to_final(
            timestep.replace(observation=played.observation, info=played.info)
        )

    def _make_state(self, inner: Any, timestep: TimeStep) -> Any:
        if self.autoreset_mode == "next_step":
            return NextStepState(inner=inner, finished=timestep.done)
        if self.autoreset_mode == "disabled":
            return DisabledState(inner=inner, last=timestep)
        return inner

    def _instance_keys(self, key: chex.PRNGKey, first: jax.Array) -> chex.PRNGKey:
        """Returns one key per instance, given one key for all instances or [N] keys."""
        if key.shape:
            return key[:]
        return keys.instance_keys(key, jnp.arange(self.num_envs, dtype=jnp.uint32) + first)

    @property
    def _axes(self) -> Any:
        return batched_parameters.axes_of(self.env, self.batched)

    def _instance(self, index: int) -> Environment[S]:
        return batched_parameters.rows_of(self.env, self._axes, index) if self.batched else self.env

    def _run(self, method: Callable[..., Any], key: Any, *args: Any) -> Any:
        key = keys.checked_keys(key, self.num_envs)
        result = keys.call_with_fast_keys(lambda key: self._on_devices(method, key, args), key)
        # A user's `scan` inside `shard_map` carries the results, so constants must vary, too.
        return loops.vary_like(result, (self.env, key, args))

    def _on_devices(self, method: Callable[..., Any], key: Any, args: Any) -> Any:
        if self.mesh is None:
            return method(self, key, jnp.uint32(0), *args)
        axis = check_mesh(self.mesh, self.mesh_axis, self.num_envs)
        num_local = self.num_envs // self.mesh.shape[axis]

        def on_shard(env: Any, key: Any, shard: jax.Array, *args: Any) -> Any:
            local = dataclasses.replace(self, env=env, num_envs=num_local, mesh=None)
            if key is None:
                key, args = args[0], args[1:]
            return method(local, key, shard.astype(jnp.uint32) * np.uint32(num_local), *args)

        if key.shape:  # shard the keys like the instances
            return over_mesh(on_shard, self.mesh, axis, self.env, self._axes, None, (key, *args))
        return over_mesh(on_shard, self.mesh, axis, self.env, self._axes, key, args)


def _copy_to_final(timestep: TimeStep) -> TimeStep:
    """Copies `observation` and `info` to the final fields."""
    return timestep.replace(final_observation=timestep.observation, final_info=timestep.info)
