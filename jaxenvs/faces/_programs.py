"""The compiled programs that run a `VectorEnv` for the host, and the reading of their output.

There are two ways to run a step. A small batch is passed as one buffer and compiled to one kernel,
because transfers and XLA's own bookkeeping would take longer than the work itself. A large batch is
passed as separate arrays, with its state donated.
"""

import contextlib
import ctypes
import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys, prng
from jaxenvs._cpu.kernels import FewKernels
from jaxenvs._cpu.packing import PackedLayout, can_pack
from jaxenvs._machine import num_cores
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import RenderError
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.vector.vectorized_env import VectorizedEnv

# The size up to which a batch is passed as one buffer. Measured with classic control on two CPU
# cores, that saves a third to two thirds of the time at 512 KiB (CartPole with N = 8,192) and
# little at twice the size. XLA splits larger operations among threads and then cannot compile them
# to one kernel: those of 256 KiB until jax 0.11.
_PACKED_WORDS = (128 if jax.__version_info__ >= (0, 11) else 60) * 2**10

# Up to this N, a single kernel resets all instances at every step and selects the finished ones.
# Measured with CartPole on two CPU cores.
_FEW_ROWS = 32

# How often to poll for the end of a step of another device before blocking, about 60 us, because a
# blocked thread takes 20 to 50 us to wake up.
_POLLS = range(400 if num_cores() > 1 else 1)

_KEY_IMPL = "threefry2x32"


@chex.dataclass(frozen=True)
class RunnerState:
    """The part of the output that stays on the device between two calls."""

    env_state: chex.ArrayTree
    seed: jax.Array  # uint32[N]
    calls: jax.Array  # uint32[N], the calls since the seed was given; see `keys.call_keys`


class Programs:
    """The compiled programs of one environment.

    Args:
        env: the environment; its parameters become constants of the programs.
        device: the device that the programs run on.
    """

    def __init__(self, env: VectorEnv, device: jax.Device) -> None:
        self._env, self._device = env, device
        each = jax.ShapeDtypeStruct((env.num_envs,), jnp.uint32)
        out = jax.eval_shape(partial(_reset, env), each, each)
        leaves, treedef = jax.tree.flatten(out)
        self.signature = treedef, [(leaf.shape, leaf.dtype) for leaf in leaves]
        layout = PackedLayout(out) if device.platform == "cpu" and can_pack(out) else None
        self._is_packed = layout is not None and layout.num_words <= _PACKED_WORDS
        place = jax.sharding.SingleDeviceSharding(device)  # of NumPy arrays
        if layout and self._is_packed:
            self._layout = layout
            self._fields: RunnerState = self._layout.fields()[0]
            self._record_dtype = self._layout.record_dtype()[1]
            self._read = _make_packed_reader(self._layout)
            self._pack, self._unpack = jax.jit(self._packed), jax.jit(self._layout.unpack)
            whole = _select_few(env)
            self._step = FewKernels(
                partial(self._packed_step, env), partial(self._packed_step, whole)
            )
            self._reset = FewKernels(
                partial(self._packed_reset, env),
                partial(self._packed_reset, whole),
                in_shardings=place,
            )
        else:
            self._read = _read_arrays
            self._pack = self._unpack = lambda out: out
            self._step = jax.jit(partial(_step, env), donate_argnums=0)
            self._reset = jax.jit(partial(_reset, env), in_shardings=place)
        self._reset_where = jax.jit(partial(_reset_where, env))
        self._reset_of, self._reset_where_of = jax.jit(_reset), jax.jit(_reset_where)
        self._render = jax.jit(
            lambda state, indices: jax.vmap(lambda index: env.render(state, index))(indices)
        )

    def _packed(self, out: Any) -> jax.Array:
        return jnp.pad(self._layout.pack(out), (0, 1))  # see `FewKernels`

    def _packed_reset(self, env: VectorEnv, seed: jax.Array, calls: jax.Array) -> jax.Array:
        return self._layout.pack(_reset(env, seed, calls))

    def _packed_step(self, env: VectorEnv, words: jax.Array, action: Any) -> jax.Array:
        state, _, _ = self._layout.unpack(words)
        return self._layout.pack(_step(env, state, action))

    def reset(self, seed: np.ndarray, calls: np.ndarray, env: VectorEnv | None = None) -> Any:
        """Resets every instance, as `env` does, an environment with other parameters."""
        if env is None:
            return self._reset(seed, calls)
        return self._pack(self._reset_of(env, *jax.device_put((seed, calls), self._device)))

    def step(self, out: Any, action: Any) -> Any:
        """Starts a step, or takes it if the device runs programs in the calling thread.

        Args:
            out: the output of the last reset or step.
            action: the action, converted by `ActionConverter`.
        """
        # Arrays that are not packed are donated: the step reuses their memory.
        return self._step(out if self._is_packed else out[0], action)

    def reset_where(
        self,
        out: Any,
        mask: np.ndarray,
        seed: np.ndarray,
        calls: np.ndarray,
        env: VectorEnv | None = None,
    ) -> Any:
        """Resets the instances where `mask` is true, as `env` does."""
        reset = self._reset_where if env is None else partial(self._reset_where_of, env)
        state, _, timestep = self._unpack(out)
        args = jax.device_put((mask, seed, calls), self._device)
        return self._pack(reset(state.env_state, timestep, *args))

    def seeds_and_calls(self, out: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns writable copies of the seeds and the numbers of calls."""
        if not self._is_packed:
            return np.array(out[0].seed), np.array(out[0].calls)
        record = np.ndarray((), self._record_dtype, np.asarray(out))
        return record[self._fields.seed].copy(), record[self._fields.calls].copy()

    def env_state(self, out: Any) -> Any:
        """Returns the state of the environment."""
        return self._unpack(out)[0].env_state

    def with_env_state(self, out: Any, state: Any) -> Any:
        """Returns `out` with another state of the environment."""
        runner_state, *rest = self._unpack(out)
        return self._pack((runner_state.replace(env_state=state), *rest))

    def render(self, out: Any, indices: np.ndarray) -> np.ndarray:
        """Returns frames of the instances `indices`."""
        state = self._unpack(out)[0].env_state
        with contextlib.suppress(RenderError):
            return np.array(self._render(state, indices))
        # Some libraries draw outside of compiled programs only.
        return np.stack([self._env.render(state, int(index)) for index in indices])

    def wait(self, out: Any) -> None:
        """Waits until `out` is computed."""
        array = out if self._is_packed else out[1]
        for _ in _POLLS:
            if array.is_ready():
                return
        array.block_until_ready()

    def read(self, out: Any) -> HostTimeStep:
        """Waits for `out` and copies the part that callers see.

        It is a copy because callers may write to it, and `reset_where` reads `out` again.
        """
        self.wait(out)
        return self._read(out)


def _select_few(env: VectorEnv) -> VectorEnv:
    """Returns `env` with vectorized environments that reset few instances by a selection."""

    def select(node: Any) -> Any:
        if not isinstance(node, VectorizedEnv):
            return node
        resets = dataclasses.replace(node.resets, select_up_to=_FEW_ROWS)
        return dataclasses.replace(node, resets=resets)

    return jax.tree.map(select, env, is_leaf=lambda node: isinstance(node, VectorizedEnv))


def _make_packed_reader(layout: PackedLayout) -> Callable[[Any], HostTimeStep]:
    _, any_done, timestep = layout.fields()
    timestep = _with_final(timestep)
    reward, terminated, truncated = timestep.reward, timestep.terminated, timestep.truncated
    observation, is_array = timestep.observation, isinstance(timestep.observation, str)
    has_agents = not isinstance(reward, str)
    start, dtype = layout.record_dtype(any_done)  # what precedes it stays on the device
    memory_at = (ctypes.c_char * dtype.itemsize).from_address
    # Called in every step, so all names are local, and nothing is looked up twice.
    to_record = partial(np.ndarray, (), dtype)
    make = partial(tuple.__new__, HostTimeStep)  # faster than `HostTimeStep(...)`
    tree_map, copy = jax.tree.map, bytearray
    readers = {
        name: _make_tree_reader(getattr(timestep, name))
        for name in ("final_observation", "info", "final_info")
    }

    def read(out: jax.Array) -> HostTimeStep:
        field = to_record(copy(memory_at(out.unsafe_buffer_pointer() + start))).__getitem__
        return make(
            (
                field(observation) if is_array else tree_map(field, observation),
                tree_map(field, reward) if has_agents else field(reward),
                tree_map(field, terminated) if has_agents else field(terminated),
                tree_map(field, truncated) if has_agents else field(truncated),
                bool(field(any_done)),
                lambda name: readers[name](field),
            )
        )

    return read


def _make_tree_reader(fields: Any) -> Callable[[Callable[[str], Any]], Any]:
    """Returns a function that maps another one over a tree of the names of fields."""
    if isinstance(fields, dict) and all(isinstance(name, str) for name in fields.values()):
        items = [*fields.items()]  # `jax.tree.map` takes four times as long
        return lambda field: {key: field(name) for key, name in items}
    return lambda field: jax.tree.map(field, fields)


def _read_arrays(out: Any) -> HostTimeStep:
    _, any_done, timestep = out
    timestep = _with_final(timestep)
    return HostTimeStep(
        observation=jax.tree.map(np.array, timestep.observation),
        reward=jax.tree.map(np.array, timestep.reward),
        terminated=jax.tree.map(np.array, timestep.terminated),
        truncated=jax.tree.map(np.array, timestep.truncated),
        any_done=bool(any_done),
        read=lambda name: jax.tree.map(np.array, getattr(timestep, name)),
    )


def programs_for(env: VectorEnv, device: jax.Device) -> Programs:
    """Returns the programs of `env`, from a cache if an equal environment was compiled before."""
    leaves, treedef = jax.tree.flatten(env)
    if all(isinstance(leaf, (bool, int, float)) for leaf in leaves):
        values = tuple((type(leaf), leaf) for leaf in leaves)
        x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
        return _cached_programs(treedef, values, device, x64)
    return Programs(env, device)


@lru_cache(maxsize=32)
def _cached_programs(treedef: Any, values: Any, device: jax.Device, x64: bool) -> Programs:
    return Programs(jax.tree.unflatten(treedef, [value for _, value in values]), device)


def _step(
    env: VectorEnv, state: RunnerState, action: Any
) -> tuple[RunnerState, jax.Array, TimeStep]:
    calls = state.calls + np.uint32(1)
    env_state, timestep = env.step(state.env_state, action, _keys(env, state.seed, calls))
    return _output(env, env_state, timestep, state.seed, calls)


def _reset(env: VectorEnv, seed: jax.Array, calls: jax.Array) -> Any:
    env_state, timestep = env.reset(_keys(env, seed, calls))
    return _output(env, env_state, timestep, seed, calls)


def _reset_where(
    env: VectorEnv,
    env_state: Any,
    timestep: TimeStep,
    mask: jax.Array,
    seed: jax.Array,
    calls: jax.Array,
) -> Any:
    timestep = _with_final(timestep)
    env_state, timestep = env.reset_where(mask, env_state, timestep, _keys(env, seed, calls))
    return _output(env, env_state, timestep, seed, calls)


def _output(
    env: VectorEnv, env_state: Any, timestep: TimeStep, seed: jax.Array, calls: jax.Array
) -> tuple[RunnerState, jax.Array, TimeStep]:
    any_done = jnp.any(timestep.done)
    if env.autoreset_mode != "same_step":  # equal to `observation` and `info`
        timestep = timestep.replace(final_observation=None, final_info=None)
    return RunnerState(env_state=env_state, seed=seed, calls=calls), any_done, timestep


def _with_final(timestep: TimeStep) -> TimeStep:
    """Restores the fields that `_output` dropped."""
    if timestep.final_observation is not None:
        return timestep
    return timestep.replace(final_observation=timestep.observation, final_info=timestep.info)


def _keys(env: VectorEnv, seed: jax.Array, calls: jax.Array) -> Any:
    seed_keys = jax.vmap(partial(jax.random.key, impl=_KEY_IMPL))(seed)
    if isinstance(env, VectorizedEnv):
        return keys.CallKeys(keys=seed_keys, calls=calls)
    return keys.call_keys(prng.as_fast_key(seed_keys), calls)
