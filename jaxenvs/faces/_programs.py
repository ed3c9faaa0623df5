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

from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.faces._layout import Layout, host_memory
from jaxenvs.vector.vectorize import in_one_kernel

# Up to here a batch crosses as one buffer. Measured with classic control on two CPU cores: at
# 512 KiB (CartPole's N = 8,192) that saves a third to two thirds, at the double little. In jax
# 0.10 XLA divides operations on 256 KiB among threads, and then cannot make one kernel of them.
_PACKED_BYTES = (512 if jax.__version_info__ >= (0, 11) else 240) * 2**10

# How often to ask whether a step is done before going to sleep, since a sleeping thread takes 20
# to 50 us to wake: for some 60 us, or, where one thread computes and leaves a core, for 300.
_POLLS, _KERNEL_POLLS = (range(400), range(2000)) if (os.cpu_count() or 1) > 1 else ((), ())

KEY_IMPL = "threefry2x32"


@chex.dataclass(frozen=True)
class Carry:
    """What stays on the device between two calls."""

    state: chex.ArrayTree
    seed: jax.Array  # uint32[2], the words of one key for all, or [N, 2], of one for each
    time: jax.Array  # uint32[] or [N], how many keys came of the seed: call t takes fold_in(key, t)


class HostStep(NamedTuple):
    """What a call returned, as NumPy arrays that never change."""

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
        """The timestep's info."""
        return self.read("info")


class Programs:
    """The compiled functions of one environment, and how their output reads.

    Args:
        env: the environment; its parameters become constants of the programs.
        each: whether every instance has a key of its own.
        device: where they run.
    """

    def __init__(self, env: VectorEnv, each: bool, device: jax.Device) -> None:
        self._device = device
        shape = (env.num_envs,) if each else ()
        words = jax.ShapeDtypeStruct((*shape, 2), jnp.uint32)
        time = jax.ShapeDtypeStruct(shape, jnp.uint32)
        self._reset = jax.jit(partial(_reset, env))
        out = jax.eval_shape(self._reset, words, time)
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
            self._read = _array_reader(device.platform == "cpu")
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
        out = self._reset(*jax.device_put((seed, time), self._device))
        return self._pack(out) if self._is_packed else out

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

    def reset_where(
        self, state: Any, timestep: Any, mask: Any, begin: Any, seed: Any, time: Any
    ) -> Any:
        args = jax.device_put((mask, begin, seed, time), self._device)
        out = self._reset_where(state, timestep, *args)
        return self._pack(out) if self._is_packed else out

    def unpack(self, out: Any) -> tuple[Carry, TimeStep]:
        carry, _, timestep = self._unpack(out) if self._is_packed else out
        return carry, timestep

    def pack(self, carry: Carry, timestep: TimeStep) -> Any:
        out = (carry, jnp.any(timestep.done), timestep)
        return self._pack(out) if self._is_packed else out

    def clock(self, out: Any) -> tuple[np.ndarray, np.ndarray]:
        """Seed and time of the carry, as host arrays."""
        carry, _ = self.unpack(out)
        return np.array(carry.seed), np.array(carry.time)

    def render(self, out: Any, indices: np.ndarray) -> np.ndarray:
        return np.array(self._render(self.unpack(out)[0].state, indices))

    def wait(self, out: Any) -> None:
        """Returns when `out` is computed."""
        array, polls = (out, _KERNEL_POLLS) if self._is_packed else (out[1], _POLLS)
        for _ in polls:
            if array.is_ready():
                return
        array.block_until_ready()

    def read(self, out: Any) -> HostStep:
        """Waits for `out` and reads it."""
        self.wait(out)
        return self._read(out)


def _packed_reader(layout: Layout) -> Callable[[Any], HostStep]:
    _, any_done, timestep = layout.fields()
    reward, terminated, truncated = timestep.reward, timestep.terminated, timestep.truncated
    observation, is_one = timestep.observation, isinstance(timestep.observation, str)
    kind = ctypes.c_uint32 * layout.num_words
    # Called once a step: every name is local, and nothing is read twice.
    as_record = partial(np.ndarray, (), layout.record_dtype)
    make = partial(tuple.__new__, HostStep)  # its own `__new__` is a Python function
    tree_map = jax.tree.map

    def read(out: jax.Array) -> HostStep:
        memory = kind.from_address(out.unsafe_buffer_pointer())
        memory.array = out  # keeps the device buffer alive  # pyright: ignore
        record = as_record(memory)  # pyright: ignore[reportArgumentType]
        field = record.__getitem__
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


def _array_reader(on_cpu: bool) -> Callable[[Any], HostStep]:
    def read_leaf(array: jax.Array) -> np.ndarray:
        if not on_cpu:
            return np.array(array)
        return np.ndarray(array.shape, array.dtype, host_memory(array))

    def read(out: Any) -> HostStep:
        _, any_done, timestep = out
        return HostStep(
            jax.tree.map(read_leaf, timestep.observation),
            read_leaf(timestep.reward),
            read_leaf(timestep.terminated),
            read_leaf(timestep.truncated),
            bool(any_done),
            lambda name: jax.tree.map(read_leaf, getattr(timestep, name)),
        )

    return read


def programs_for(env: VectorEnv, each: bool, device: jax.Device) -> Programs:
    """The programs of `env`; those of an equal one are used again."""
    leaves, treedef = jax.tree.flatten(env)
    if all(isinstance(leaf, (bool, int, float)) for leaf in leaves):
        values = tuple((type(leaf), leaf) for leaf in leaves)
        x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
        return _cached_programs(treedef, values, each, device, x64)
    return Programs(env, each, device)


@lru_cache(maxsize=32)
def _cached_programs(
    treedef: Any, values: Any, each: bool, device: jax.Device, x64: bool
) -> Programs:
    return Programs(jax.tree.unflatten(treedef, [value for _, value in values]), each, device)


def _step(env: VectorEnv, carry: Carry, action: Any) -> tuple[Carry, jax.Array, TimeStep]:
    time = carry.time + np.uint32(1)
    state, timestep = env.step(carry.state, action, _key(carry.seed, time))
    carry = Carry(state=state, seed=carry.seed, time=time)
    return carry, jnp.any(timestep.done), timestep


def _reset(env: VectorEnv, seed: jax.Array, time: jax.Array) -> Any:
    state, timestep = env.reset(_first_key(seed, time))
    return Carry(state=state, seed=seed, time=time), jnp.any(timestep.done), timestep


def _reset_where(
    env: VectorEnv,
    state: Any,
    timestep: TimeStep,
    mask: jax.Array,
    begin: tuple[jax.Array, jax.Array],
    seed: jax.Array,
    time: jax.Array,
) -> Any:
    state, timestep = env.reset_where(mask, state, timestep, _first_key(*begin))
    return Carry(state=state, seed=seed, time=time), jnp.any(timestep.done), timestep


def _first_word(leaf: jax.Array) -> jax.Array:
    return leaf.reshape(-1)[:1].astype(jnp.uint32)


def _key(seed: jax.Array, time: jax.Array) -> chex.PRNGKey:
    keys = jax.random.wrap_key_data(seed, impl=KEY_IMPL)
    if not keys.shape:
        return jax.random.fold_in(keys, time)
    return jax.vmap(jax.random.fold_in)(keys, time)


def _first_key(seed: jax.Array, time: jax.Array) -> chex.PRNGKey:
    """The key of a reset: a fresh seed's own, or the next that comes of it."""
    later = jax.random.key_data(_key(seed, time))
    fresh = jnp.expand_dims(time == 0, -1)
    return jax.random.wrap_key_data(jnp.where(fresh, seed, later), impl=KEY_IMPL)


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
