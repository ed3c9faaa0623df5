"""What a step of a `VectorEnv` compiles to for the host, and how its output is read.

Two ways to run a step. A small batch crosses as one buffer and is compiled to one kernel, since
there the crossing and XLA's own bookkeeping cost more than the work; a large one crosses as
arrays, its state donated. Both give the bits that `env.step` gives inside `jit`, see
`in_one_kernel` for what that asks of an environment.
"""

import ctypes
import math
import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys, prng
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.faces._layout import Layout
from jaxenvs.vector.vectorize import VectorizedEnv, in_one_kernel

# Up to here a batch crosses as one buffer. Measured with classic control on two CPU cores: at
# 512 KiB (CartPole's N = 8,192) that saves a third to two thirds, at the double little. In jax
# 0.10 XLA divides operations on 256 KiB among threads, and then cannot make one kernel of them.
_PACKED_BYTES = (512 if jax.__version_info__ >= (0, 11) else 240) * 2**10

# How often to ask whether a step is done before going to sleep, since a sleeping thread takes 20
# to 50 us to wake: for some 60 us, or, where one thread computes and leaves a core, for 300.
_POLLS, _KERNEL_POLLS = (range(400), range(2000)) if (os.cpu_count() or 1) > 1 else ((), ())

_KEY_IMPL = "threefry2x32"


@chex.dataclass(frozen=True)
class Carry:
    """What stays on the device between two calls."""

    state: chex.ArrayTree
    seed: jax.Array  # uint32[N]
    time: jax.Array  # uint32[N], calls since the seed was given; see `keys.call_keys`


class HostStep(NamedTuple):
    """What a call returned, as NumPy arrays of the caller's own."""

    observation: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    any_done: bool  # whether an episode ended anywhere
    read: Callable[[str], Any]  # other fields of the timestep, seldom asked for, by name

    @property
    def final_observation(self) -> Any:
        """What the step led to, in every instance."""
        return self.read("final_observation")

    @property
    def info(self) -> Any:
        """What belongs to `observation`."""
        return self.read("info")

    @property
    def final_info(self) -> Any:
        """What belongs to `final_observation`."""
        return self.read("final_info")


class Programs:
    """The compiled functions of one environment, and how their output reads.

    Args:
        env: the environment; its parameters become constants of the programs.
        device: where they run.
    """

    def __init__(self, env: VectorEnv, device: jax.Device) -> None:
        self._device = device
        each = jax.ShapeDtypeStruct((env.num_envs,), jnp.uint32)
        self._reset = jax.jit(partial(_reset, env))
        out = jax.eval_shape(self._reset, each, each)
        leaves, treedef = jax.tree.flatten(out)
        self.form = treedef, [(leaf.shape, leaf.dtype) for leaf in leaves]
        self._is_tried = False
        self._is_packed = device.platform == "cpu" and _can_pack(out)
        if self._is_packed:
            self._layout = Layout(out)
            self._read = _packed_reader(self._layout)
            # XLA aborts where a kernel leaves an argument unread, as environments may do with
            # actions: so the output ends with a word of each.
            actions = jax.eval_shape(env.action_space.sample, jax.random.key(0))
            room = len(jax.tree.leaves(actions))
            self._pack = jax.jit(lambda out: jnp.pad(self._layout.pack(out), (0, room)))
            self._unpack = jax.jit(self._layout.unpack)
            self._step = jax.jit(in_one_kernel(self._packed_step, env))
            self._plain_step = jax.jit(partial(self._packed_step, env))
        else:
            self._read = _read_arrays
            self._pack = self._unpack = lambda out: out
            self._step = jax.jit(partial(_step, env), donate_argnums=0)
        self._reset_where = jax.jit(partial(_reset_where, env))
        self._render = jax.jit(
            lambda state, indices: jax.vmap(lambda index: env.render(state, index))(indices)
        )

    def _packed_step(self, env: VectorEnv, words: jax.Array, action: Any) -> jax.Array:
        carry, _, _ = self._layout.unpack(words)
        words = self._layout.pack(_step(env, carry, action))
        return jnp.concatenate([words, *map(_first_word, jax.tree.leaves(action))])

    def reset(self, seed: np.ndarray, time: np.ndarray) -> Any:
        return self._pack(self._reset(*jax.device_put((seed, time), self._device)))

    def step(self, out: Any, action: Any, check: Callable[[], None]) -> Any:
        """Starts a step from the last output `out`.

        Args:
            out: of a reset or a step.
            action: what the step reads, as it lies on the device.
            check: raises where values of `action` are wrong. Then `out` is as it was.
        """
        if not self._is_packed:  # the memory of `out` becomes that of the next
            check()
            return self._step(out[0], action)
        following = self._packed(out, action)
        try:
            check()  # while the device works
        except BaseException:
            self.wait(following)  # it reads the memory that the next actions are written to
            raise
        return following

    def _packed(self, words: jax.Array, action: Any) -> jax.Array:
        if self._is_tried:
            return self._step(words, action)
        self._is_tried = True
        try:
            return self._step(words, action)
        except jax.errors.JaxRuntimeError:  # something in it cannot be part of a single kernel
            self._step = self._plain_step
            return self._step(words, action)

    def reset_where(self, out: Any, mask: np.ndarray, seed: np.ndarray, time: np.ndarray) -> Any:
        carry, _, timestep = self._unpack(out)
        args = jax.device_put((mask, seed, time), self._device)
        return self._pack(self._reset_where(carry.state, timestep, *args))

    def clock(self, out: Any) -> tuple[np.ndarray, np.ndarray]:
        """Seeds and times of the carry, as arrays to write to."""
        carry, _, _ = self._layout.read(out) if self._is_packed else out
        return np.array(carry.seed), np.array(carry.time)

    def render(self, out: Any, indices: np.ndarray) -> np.ndarray:
        return np.array(self._render(self._unpack(out)[0].state, indices))

    def wait(self, out: Any) -> None:
        """Returns when `out` is computed."""
        array, polls = (out, _KERNEL_POLLS) if self._is_packed else (out[1], _POLLS)
        for _ in polls:
            if array.is_ready():
                return
        array.block_until_ready()

    def read(self, out: Any) -> HostStep:
        """Waits for `out` and copies what the caller sees of it.

        A caller may write to what it gets, and the device's own is read again: by `reset_where`.
        """
        self.wait(out)
        return self._read(out)


def _packed_reader(layout: Layout) -> Callable[[Any], HostStep]:
    _, any_done, timestep = layout.fields()
    timestep = _with_final(timestep)
    reward, terminated, truncated = timestep.reward, timestep.terminated, timestep.truncated
    observation, is_one = timestep.observation, isinstance(timestep.observation, str)
    start, dtype = layout.record_from(any_done)  # what precedes stays on the device
    memory_at = (ctypes.c_char * dtype.itemsize).from_address
    # Called once a step: every name is local, and nothing is read twice.
    as_record = partial(np.ndarray, (), dtype)
    make = partial(tuple.__new__, HostStep)  # its own `__new__` is a Python function
    tree_map, copy = jax.tree.map, bytearray

    def read(out: jax.Array) -> HostStep:
        field = as_record(copy(memory_at(out.unsafe_buffer_pointer() + start))).__getitem__
        return make(
            (
                field(observation) if is_one else tree_map(field, observation),
                field(reward),
                field(terminated),
                field(truncated),
                bool(field(any_done)),
                lambda name: tree_map(field, getattr(timestep, name)),
            )
        )

    return read


def _read_arrays(out: Any) -> HostStep:
    _, any_done, timestep = out
    timestep = _with_final(timestep)
    return HostStep(
        observation=jax.tree.map(np.array, timestep.observation),
        reward=np.array(timestep.reward),
        terminated=np.array(timestep.terminated),
        truncated=np.array(timestep.truncated),
        any_done=bool(any_done),
        read=lambda name: jax.tree.map(np.array, getattr(timestep, name)),
    )


def programs_for(env: VectorEnv, device: jax.Device) -> Programs:
    """The programs of `env`; those of an equal one are used again."""
    leaves, treedef = jax.tree.flatten(env)
    if all(isinstance(leaf, (bool, int, float)) for leaf in leaves):
        values = tuple((type(leaf), leaf) for leaf in leaves)
        x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
        return _cached_programs(treedef, values, device, x64)
    return Programs(env, device)


@lru_cache(maxsize=32)
def _cached_programs(treedef: Any, values: Any, device: jax.Device, x64: bool) -> Programs:
    return Programs(jax.tree.unflatten(treedef, [value for _, value in values]), device)


def _step(env: VectorEnv, carry: Carry, action: Any) -> tuple[Carry, jax.Array, TimeStep]:
    time = carry.time + np.uint32(1)
    state, timestep = env.step(carry.state, action, _keys(env, carry.seed, time))
    return _out(env, state, timestep, carry.seed, time)


def _reset(env: VectorEnv, seed: jax.Array, time: jax.Array) -> Any:
    state, timestep = env.reset(_keys(env, seed, time))
    return _out(env, state, timestep, seed, time)


def _reset_where(
    env: VectorEnv, state: Any, timestep: TimeStep, mask: jax.Array, seed: jax.Array, time: Any
) -> Any:
    timestep = _with_final(timestep)
    state, timestep = env.reset_where(mask, state, timestep, _keys(env, seed, time))
    return _out(env, state, timestep, seed, time)


def _out(
    env: VectorEnv, state: Any, timestep: TimeStep, seed: jax.Array, time: jax.Array
) -> tuple[Carry, jax.Array, TimeStep]:
    any_done = jnp.any(timestep.done)
    if env.autoreset_mode != "same_step":  # they are what `observation` and `info` are
        timestep = timestep.replace(final_observation=None, final_info=None)
    return Carry(state=state, seed=seed, time=time), any_done, timestep


def _with_final(timestep: TimeStep) -> TimeStep:
    """`timestep` with the fields that `_out` left out."""
    if timestep.final_observation is not None:
        return timestep
    return timestep.replace(final_observation=timestep.observation, final_info=timestep.info)


def _first_word(leaf: jax.Array) -> jax.Array:
    return leaf.reshape(-1)[:1].astype(jnp.uint32)


def _keys(env: VectorEnv, seed: jax.Array, time: jax.Array) -> Any:
    own = jax.vmap(partial(jax.random.key, impl=_KEY_IMPL))(seed)
    # XLA runs a program of under 1,000 operations in the calling thread, and JAX's own generator
    # is few, see `VectorizedEnv._run`.
    if env.num_envs == 1:
        return keys.call_keys(own, time)
    if isinstance(env, VectorizedEnv):
        return keys.CallKeys(keys=own, calls=time)
    return keys.call_keys(prng.fast(own), time)


def _can_pack(out: Any) -> bool:
    """Whether `out` is small, and of dtypes that words can hold."""
    size = 0
    for leaf in jax.tree.leaves(out):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            if "fry" not in str(leaf.dtype):
                return False
            size += 8 * math.prod(leaf.shape)
        elif leaf.dtype.kind not in "biuf":
            return False
        else:
            size += leaf.dtype.itemsize * math.prod(leaf.shape)
    return size <= _PACKED_BYTES
