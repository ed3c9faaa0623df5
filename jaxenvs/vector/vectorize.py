"""One environment out of many instances."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar, get_args

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh

from jaxenvs import prng, struct
from jaxenvs.core import AutoresetMode, Environment, TimeStep, VectorEnv, Wrapper
from jaxenvs.errors import RandomKeyError, VectorizeError, closest
from jaxenvs.spaces import Space
from jaxenvs.struct import select
from jaxenvs.vector.actions import checked_action
from jaxenvs.vector.autoreset import overwrite_where
from jaxenvs.vector.sharding import check_mesh, over_mesh

S = TypeVar("S")

# Instance i steps with fold_in(key, i) and, if it finished, resets with fold_in(key, i + 2**31):
# one hash an instance, no key is split, and neither depends on N.
_RESET = np.uint32(1 << 31)
# Up to here one kernel resets all instances at every step and selects: CartPole, two CPU cores.
_FEW = 32
_STAGGER = np.uint32((1 << 32) - 1)


@chex.dataclass(frozen=True)
class NextStepState:
    """The state under `autoreset="next_step"`."""

    inner: chex.ArrayTree  # [N, ...], the instances' own states
    finished: jax.Array  # bool[N], to be reset by the next step


@chex.dataclass(frozen=True)
class DisabledState:
    """The state under `autoreset="disabled"`."""

    inner: chex.ArrayTree  # [N, ...], the instances' own states
    last: TimeStep  # [N, ...], what a finished instance goes on returning


@struct.pytree_dataclass
class VectorizedEnv(VectorEnv[Any], Generic[S]):
    """`num_envs` instances of a native environment. Made by `vectorize`, which explains the fields.

    Under `same_step` the state is the instances' own, stacked; under the other modes it is a
    `NextStepState` or a `DisabledState` around it.
    """

    env: Environment[S]
    num_envs: int = struct.static()
    autoreset: AutoresetMode = struct.static("same_step")
    batched: tuple[str, ...] = struct.static(())
    reset_chunk: int | None = struct.static(None)
    stagger: int | Literal["limit"] | None = struct.static(None)  # not bool: True equals 1
    mesh: Mesh | None = struct.static(None)
    mesh_axis: str | None = struct.static(None)
    one_kernel: bool = struct.static(False)  # `step` is compiled to one kernel, see `in_one_kernel`

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.name not in ("env", "num_envs") and getattr(self, field.name) != field.default
        ]
        return f"VectorizedEnv({', '.join([repr(self.env), str(self.num_envs), *changed])})"

    @property
    def single_observation_space(self) -> Space:
        return self._instance(0).observation_space

    @property
    def single_action_space(self) -> Space:
        return self._instance(0).action_space

    def replace(self, **changes: Any) -> "VectorizedEnv[S]":
        """Returns a copy with other parameters of the environment: `env.replace(gravity=3.7)`."""
        changed = dataclasses.replace(self, env=self.env.replace(**changes))
        _check_batched(changed)
        return changed

    @property
    def parameters(self) -> dict[str, Any]:
        return self.env.parameters

    def wrap(self, wrapper: Callable[[Environment], Environment]) -> "VectorizedEnv[Any]":
        """Returns the same instances, each inside `wrapper`."""
        return dataclasses.replace(self, env=wrapper(self.env))

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        """Starts an episode in every instance; instance i from `fold_in(key, i)`.

        Args:
            key: one key for all instances, or [N] keys of their own, used as they are.

        Returns:
            The state and the timestep, each leaf with a leading [N] axis.
        """
        return self._run(VectorizedEnv._reset, key)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        """Takes one action in every instance; instance i draws from `fold_in(key, i)`.

        Args:
            state: from `reset` or `step`.
            action: one per instance, [N, ...] of the action space's dtype.
            key: one key for all instances, or [N] keys, one for each, used as they are; new
                ones every step.

        Returns:
            The state and the timestep. `final_observation` is what the step led to; `info`
            belongs to it.

        Raises:
            ActionError: the action has the wrong structure, shape or kind of dtype.
        """
        action = checked_action(
            self.single_action_space, action, self.num_envs, type(self.env.unwrapped).__name__
        )
        # Without the barrier XLA computes actions anew, draws included, wherever a step uses them.
        action = lax.optimization_barrier(action)
        return self._run(VectorizedEnv._step, key, state, action)

    def reset_where(
        self, mask: jax.Array, state: Any, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[Any, TimeStep]:
        """Starts an episode where `mask` is true, whatever the instance was doing.

        Args:
            mask: bool[N].
            state: from `reset` or `step`.
            timestep: its timestep.
            key: as for `reset`, with which the new rows agree.

        Returns:
            The state and the timestep, those rows begun anew, the others as given.
        """
        fresh = self.reset(key)
        return select(jnp.asarray(mask, bool), fresh, (state, timestep))

    def render(self, state: Any, index: int = 0) -> jax.Array:
        """Draws instance `index` as uint8[H, W, 3].

        Raises:
            VectorizeError: there is no such instance.
        """
        if isinstance(index, int) and not 0 <= index < self.num_envs:
            raise VectorizeError(
                f"render got index={index}; instances are 0 to {self.num_envs - 1}."
            )
        inner = state.inner if self.autoreset != "same_step" else state
        return self._instance(index).render(jax.tree.map(lambda leaf: leaf[index], inner))

    # What follows sees the N instances of one device: all of them, or one shard's.

    def _reset(self, key: chex.PRNGKey, first: jax.Array) -> tuple[Any, TimeStep]:
        indices = jnp.arange(self.num_envs, dtype=jnp.int32)
        inner, timestep = self._reset_at(0, (self.env, key, first), indices)
        if self.stagger is not None:
            inner, timestep = self._staggered(inner, timestep, key, first)
        return self._pack(inner, timestep), timestep

    def _step(
        self, key: chex.PRNGKey, first: jax.Array, state: Any, action: Any
    ) -> tuple[Any, TimeStep]:
        before = state if self.autoreset == "same_step" else state.inner
        inner, timestep = self._step_each(before, action, key, first)
        timestep = timestep.replace(final_observation=timestep.observation)
        params = (self.env, key, first)
        if self.autoreset == "same_step":
            old = (inner, timestep.observation)
            inner, observation = overwrite_where(
                partial(self._fresh_observation, _RESET),
                self._chunk,
                timestep.done,
                params,
                old,
                self.one_kernel,
            )
            timestep = timestep.replace(observation=observation)
        elif self.autoreset == "next_step":
            reset_at = partial(self._reset_at, _RESET)
            inner, timestep = overwrite_where(
                reset_at,
                self._chunk,
                state.finished,
                params,
                (inner, timestep),
                self.one_kernel,
            )
        else:
            frozen = state.last.replace(reward=jnp.zeros_like(timestep.reward))
            inner, timestep = select(state.last.done, (before, frozen), (inner, timestep))
        return self._pack(inner, timestep), timestep

    def _step_each(
        self, inner: Any, action: Any, key: chex.PRNGKey, first: Any
    ) -> tuple[Any, TimeStep]:
        keys = key if key.shape else _fold_in(key, self._indices(first))
        step = jax.vmap(lambda env, *args: env.step(*args), in_axes=(self._axes, 0, 0, 0))
        return prng.stock(step(self.env, inner, action, keys))  # a state may hold a key

    def _reset_at(
        self, offset: np.uint32 | int, params: Any, indices: jax.Array
    ) -> tuple[Any, TimeStep]:
        env, key, first = params
        rows = jnp.minimum(indices, self.num_envs - 1)  # those past the end are dropped later
        if self.batched:
            env = _rows(env, self._axes, rows)
        if not key.shape:
            keys = _fold_in(key, (indices.astype(jnp.uint32) + first) | jnp.uint32(offset))
        elif offset:
            keys = jax.vmap(lambda key: jax.random.fold_in(key, jnp.uint32(offset)))(key[rows])
        else:
            keys = key[rows]
        reset = jax.vmap(lambda env, key: env.reset(key), in_axes=(self._axes, 0))
        inner, timestep = prng.stock(reset(env, keys))
        return inner, timestep.replace(final_observation=timestep.observation)

    def _fresh_observation(
        self, offset: np.uint32 | int, params: Any, indices: jax.Array
    ) -> tuple[Any, Any]:
        inner, timestep = self._reset_at(offset, params, indices)
        return inner, timestep.observation

    def _staggered(
        self, inner: Any, timestep: TimeStep, key: chex.PRNGKey, first: jax.Array
    ) -> tuple[Any, TimeStep]:
        """Plays each instance on at random, for its own number of steps below the limit."""
        # Nothing that is played is differentiated: a loop of unknown length has no reverse mode.
        env, inner, timestep = lax.stop_gradient((self.env, inner, timestep))
        stepper = dataclasses.replace(self, env=env, autoreset="same_step")
        limit = jnp.broadcast_to(jnp.int32(self._stagger_steps), (self.num_envs,))
        phase_key, loop_key = jax.random.split(jax.random.fold_in(key, _STAGGER))
        indices = self._indices(first)
        # Below its own limit: the longest of all would depend on who shares the device.
        phase = jax.vmap(lambda key, limit: jax.random.randint(key, (), 0, limit))(
            _fold_in(phase_key, indices), limit
        )

        sample = jax.vmap(lambda env, key: env.action_space.sample(key), in_axes=(self._axes, 0))

        def play(t: jax.Array, carry: tuple[Any, TimeStep]) -> tuple[Any, TimeStep]:
            action_key, step_key = jax.random.split(jax.random.fold_in(loop_key, t))
            action = sample(env, _fold_in(action_key, indices))
            return select(t < phase, stepper._step(step_key, first, carry[0], action), carry)

        inner, played = lax.fori_loop(0, jnp.max(phase), play, (inner, timestep))
        # What is returned starts the agent's experience, though not the episode.
        return inner, timestep.replace(
            observation=played.observation,
            final_observation=played.observation,
            info=played.info,
        )

    def _pack(self, inner: Any, timestep: TimeStep) -> Any:
        if self.autoreset == "next_step":
            return NextStepState(inner=inner, finished=timestep.done)
        if self.autoreset == "disabled":
            return DisabledState(inner=inner, last=timestep)
        return inner

    def _indices(self, first: jax.Array) -> jax.Array:
        return jnp.arange(self.num_envs, dtype=jnp.uint32) + first

    @property
    def _axes(self) -> Any:
        """A tree like `env`: 0 where a parameter is batched, else None."""
        axes = jax.tree.map(lambda _: None, self.env)
        return axes.replace(**dict.fromkeys(self.batched, 0)) if self.batched else axes

    @property
    def _chunk(self) -> int | None:
        if self.one_kernel and self.reset_chunk == self.num_envs:
            return None
        chunk = choose_chunk(self.num_envs) if self.reset_chunk is None else self.reset_chunk
        # At least two rows, since compilers round otherwise where an array has one element.
        return None if chunk is None else min(max(2, chunk), self.num_envs)

    @property
    def _kernel_chunk(self) -> int:
        """Rows per pass where a pass costs nothing: few, but all at once where all are few."""
        few = self.num_envs <= _FEW
        return self.reset_chunk or (self.num_envs if few else max(8, self.num_envs // 16))

    @property
    def _stagger_steps(self) -> Any:
        return self.env.time_limit if self.stagger == "limit" else self.stagger

    def _instance(self, index: int) -> Environment[S]:
        return _rows(self.env, self._axes, index) if self.batched else self.env

    def _run(self, method: Callable[..., Any], key: Any, *args: Any) -> Any:
        key = prng.as_typed_key(key)
        if key.shape not in ((), (self.num_envs,)):
            raise RandomKeyError(
                f"expected one key for all instances or {self.num_envs}, one for each; got keys of"
                f" shape {list(key.shape)}.  jax.random.split(key, {self.num_envs}) makes them."
            )
        if key.shape and self.stagger is not None:
            raise RandomKeyError(
                "a staggered start takes one key for all instances, got one for each."
                "  Pass one key, or vectorize without stagger."
            )
        if self.one_kernel and self.num_envs == 1:
            # XLA runs a program of under 1,000 operations in the calling thread and hands others
            # over to another, which costs 1 to 20 us. JAX's generator, a loop, counts as few.
            return self._on_devices(method, key, args)
        return prng.with_fast(lambda key: self._on_devices(method, key, args), key)

    def _on_devices(self, method: Callable[..., Any], key: chex.PRNGKey, args: Any) -> Any:
        if self.mesh is None:
            return method(self, key, jnp.uint32(0), *args)
        axis = check_mesh(self.mesh, self.mesh_axis, self.num_envs)
        num_local = self.num_envs // self.mesh.shape[axis]

        def on_shard(env: Any, key: Any, shard: jax.Array, *args: Any) -> Any:
            local = dataclasses.replace(self, env=env, num_envs=num_local, mesh=None)
            if key is None:
                key, args = args[0], args[1:]
            return method(local, key, shard.astype(jnp.uint32) * np.uint32(num_local), *args)

        if key.shape:  # divided among the shards as the instances are
            return over_mesh(on_shard, self.mesh, axis, self.env, self._axes, None, (key, *args))
        return over_mesh(on_shard, self.mesh, axis, self.env, self._axes, key, args)


def vectorize(
    env: Environment[S],
    num_envs: int,
    *,
    autoreset: AutoresetMode = "same_step",
    batched: Sequence[str] = (),
    reset_chunk: int | None = None,
    stagger: bool | int = False,
    mesh: Mesh | None = None,
    mesh_axis: str | None = None,
) -> VectorizedEnv[S]:
    """Runs `num_envs` instances of `env` as one environment.

    N is `num_envs`. Everything that `env` returns gains a leading [N] axis; the key does not:
    instance i draws from the key folded with i, so results depend on the seed alone, not on
    devices, sharding or `reset_chunk`.

    What follows a finished episode is the autoreset mode, as in Gymnasium:
        "same_step": the instance starts anew in the step that ended it. `observation` is the
            first of the new episode, `final_observation` the last of the old one.
        "next_step": the next step ignores the action, starts anew, and returns reward 0.
        "disabled": it stays finished: flags as they are, reward 0, the observation frozen.

    Args:
        env: a single environment.
        num_envs: N, divisible by the mesh axis if `mesh` is given.
        autoreset: what follows a finished episode, see above.
        batched: names of parameters that carry a leading [N] axis, one value per instance.
            The spaces are those of the first instance.
        reset_chunk: instances reset per pass, as long as finished ones are left. Speed only; N
            makes it one pass over all, None chooses from N and the platform.
        stagger: start the instances at different phases of their episodes, so that they do not
            finish in lockstep: `reset` plays each on at random for a number of steps below the
            time limit, or below this number.
        mesh: lays the instances over an axis of the mesh; None keeps them where they are put.
        mesh_axis: the name of that axis; None takes the first.

    Raises:
        VectorizeError: a value cannot work: N, the mode, the chunk, a batched name or its length.
        ShardingError: N is not divisible by the mesh axis, or there is no such axis.

    Example:
        >>> env = jaxenvs.vectorize(jaxenvs.make("CartPole-v1"), 4)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> timestep.observation.shape
        (4, 4)
    """
    if not isinstance(env, Environment):
        raise VectorizeError(
            f"vectorize got {type(env).__name__}, expected an Environment."
            '  jaxenvs.make("CartPole-v1") makes one.'
        )
    _check_count("num_envs", num_envs, None)
    if autoreset not in get_args(AutoresetMode):
        raise VectorizeError(
            f'autoreset got "{autoreset}", expected one of {list(get_args(AutoresetMode))}.'
            f"{closest(str(autoreset), get_args(AutoresetMode))}"
        )
    if reset_chunk is not None:
        _check_count("reset_chunk", reset_chunk, num_envs)
    if not isinstance(stagger, bool):
        _check_count("stagger", stagger, None)
    if stagger is True and env.time_limit is None:
        raise VectorizeError(
            f"stagger=True needs a time limit, and {type(env.unwrapped).__name__} has none."
            "  Pass stagger=<number of steps>, or wrap it in TimeLimit."
        )
    if stagger is not False and autoreset == "disabled":
        raise VectorizeError(
            'stagger needs instances that reset, and autoreset is "disabled".'
            '  Use "same_step" or "next_step".'
        )
    if mesh is not None:
        check_mesh(mesh, mesh_axis, num_envs)
    elif mesh_axis is not None:
        raise VectorizeError(f'mesh_axis="{mesh_axis}" was given without a mesh.  Pass mesh= too.')
    batched = (batched,) if isinstance(batched, str) else tuple(batched)
    _check_not_static(env, batched)
    vector_env = VectorizedEnv(
        env=env,
        num_envs=int(num_envs),
        autoreset=autoreset,
        batched=batched,
        reset_chunk=None if reset_chunk is None else int(reset_chunk),
        stagger="limit" if stagger is True else None if stagger is False else int(stagger),
        mesh=mesh,
        mesh_axis=mesh_axis,
    )
    _check_batched(vector_env)
    return vector_env


def in_one_kernel(call: Callable[..., Any], env: Any) -> Callable[..., Any]:
    """Compiles `call(env, *args)` to a single CPU kernel; returns it as a function of `args`.

    XLA runs a CPU program as a sequence of small tasks, each of which costs a microsecond or so:
    more than a small environment's work. Called on jitted code that it cannot compile so, the
    result raises `jax.errors.JaxRuntimeError`. Bits are the same, if `call` takes care that no sum
    depends on what XLA fuses (`numerics.rounded`) and has no convolution. Every array has to be
    read: XLA aborts otherwise.

    Args:
        call: a pure function of a tree with `VectorizedEnv`s, and arrays.
        env: that tree.
    """
    env = jax.tree.map(
        lambda node: (
            dataclasses.replace(node, one_kernel=True, reset_chunk=node._kernel_chunk)
            if isinstance(node, VectorizedEnv)
            else node
        ),
        env,
        is_leaf=lambda node: isinstance(node, VectorizedEnv),
    )

    attributes = {"xla_cpu_small_call": "true", "inlineable": "false"}

    @jax.jit
    def kernel(*args: Any) -> Any:
        # Calls within, such as those that `jnp.where` makes, are not to become kernels themselves.
        with set_xla_metadata(**dict.fromkeys(attributes)):
            return call(env, *args)

    def compiled(*args: Any) -> Any:
        with set_xla_metadata(**attributes):
            return kernel(*args)

    return compiled


def choose_chunk(num_envs: int) -> int | None:
    """How many instances to reset per pass; None for all of them at every step, without a loop.

    Measured on CPU with the cheapest of resets, CartPole's: chunks of a sixteenth, which a
    random step seldom fills, beat resetting all from N = 16 on and lose nothing below; a dearer
    reset only gains more. Elsewhere a loop's condition may cost a round trip to the host.
    """
    if jax.default_backend() != "cpu":
        return None
    return min(num_envs, max(4, num_envs // 16))


def _fold_in(key: chex.PRNGKey, indices: jax.Array) -> chex.PRNGKey:
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, indices)


def _rows(env: Any, axes: Any, index: Any) -> Any:
    """`env` with only the rows `index` of its batched parameters."""
    # A NumPy parameter cannot be indexed by a traced array, and stays NumPy under a number.
    row = (lambda x: x[index]) if isinstance(index, int) else lambda x: jnp.asarray(x)[index]
    return jax.tree.map(
        lambda axis, leaf: leaf if axis is None else jax.tree.map(row, leaf),
        axes,
        env,
        is_leaf=lambda axis: axis is None,
    )


def _check_not_static(env: Environment, names: Sequence[str]) -> None:
    layer: Any = env
    while layer is not None:
        for field in dataclasses.fields(layer):
            if field.name in names and struct.is_static(field):
                raise VectorizeError(
                    f'batched got "{field.name}", a static field of {type(layer).__name__}: it'
                    " decides the program, which all instances share.  Vectorize one environment"
                    " for each of its values."
                )
        layer = layer.env if isinstance(layer, Wrapper) else None


def _check_batched(vector_env: VectorizedEnv) -> None:
    def check(axis: int | None, value: Any) -> None:
        if axis is not None and isinstance(value, (list, tuple)):
            raise VectorizeError(
                f"batched={list(vector_env.batched)} got a {type(value).__name__} for one of these"
                " parameters.  Pass an array: jnp.array([...])."
            )
        shapes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(value)}
        if axis is not None and shapes != {(vector_env.num_envs,)}:
            raise VectorizeError(
                f"num_envs={vector_env.num_envs}, batched={list(vector_env.batched)}, but one of"
                f" these parameters has shape {list(np.shape(value))}."
                f"  Give it one value per instance: [{vector_env.num_envs}, ...]."
            )

    jax.tree.map(check, vector_env._axes, vector_env.env, is_leaf=lambda axis: axis is None)


def _check_count(name: str, value: Any, limit: int | None) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise VectorizeError(f"{name} must be an int, got {type(value).__name__} {value!r}.")
    if value < 1:
        raise VectorizeError(f"{name} must be at least 1, got {value}.")
    if limit is not None and value > limit:
        raise VectorizeError(
            f"{name}={value} is more than num_envs={limit}.  Take at most {limit}, or None."
        )
