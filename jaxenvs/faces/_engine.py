"""Driving a `VectorEnv` from the host: what every NumPy interface is made of.

Two ways to run a step. A small batch crosses as one buffer and is compiled to one kernel, since
there the crossing and XLA's own bookkeeping cost more than the work; a large one crosses as
arrays, its state donated. Both give the bits that `env.step` gives inside `jit`, see
`in_one_kernel` for what that asks of an environment.
"""

import ctypes
import math
import os
import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import ActionError, ParameterError, SeedError
from jaxenvs.faces._actions import Actions
from jaxenvs.faces._layout import Layout, host_memory
from jaxenvs.vector.vectorize import in_one_kernel

# Up to here a batch crosses as one buffer. Measured with classic control on two CPU cores: at
# 512 KiB (CartPole's N = 8,192) that saves a third to two thirds, at the double little. In jax
# 0.10 XLA divides operations on 256 KiB among threads, and then cannot make one kernel of them.
_PACKED_BYTES = (512 if jax.__version_info__ >= (0, 11) else 240) * 2**10

# How often to ask whether a step is done before going to sleep, since a sleeping thread takes 20
# to 50 us to wake: for some 60 us, or, where one thread computes and leaves a core, for 300.
_POLLS, _KERNEL_POLLS = (range(400), range(2000)) if (os.cpu_count() or 1) > 1 else ((), ())


_IMPL = "threefry2x32"


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


class Engine:
    """Keeps the state of a `VectorEnv` on a device, and answers with host arrays.

    After `reset(seed=s)` call number t = 1, 2, ... is `env.step(state, action, fold_in(key(s), t))`
    and the reset itself is `env.reset(key(s))`: one key for all. After `reset(seed=[...])` every
    instance follows its own seed in this way, and does the same however many others there are.

    Args:
        env: the environment.
        device: where it runs; None is the first CPU.
        validate: whether to look at the values of actions.
    """

    def __init__(
        self, env: VectorEnv, *, device: jax.Device | None = None, validate: bool = True
    ) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self._device = jax.devices("cpu")[0] if device is None else device
        self._validate = validate
        self._take(env)
        self._programs: Programs | None = None
        self._out: Any = None  # the last output of a program
        self._pending: str | None = None
        self._closed = False

    def close(self) -> None:
        """Drops the state; what is in flight is waited for."""
        if self._pending and self._programs is not None:
            self._programs.wait(self._out)
        self._pending = self._out = self._programs = None
        self._closed = True

    def reset(
        self, seed: int | Sequence[int | None] | None = None, mask: np.ndarray | None = None
    ) -> HostStep:
        """Starts episodes, everywhere or where `mask`, bool[N], is true.

        Raises:
            SeedError: no seed, or not one for each instance.
            ClosedEnvironmentError, AlreadyPendingCallError: not now.
        """
        self._check_open("reset")
        words = self.seed_words(seed)
        if mask is not None and self._programs is not None:
            self._reset_where(words, mask)
        else:
            if words is None:
                words, time = self._next_key()
            else:
                time = np.zeros(words.shape[:-1], np.uint32)
            self._programs = programs_for(self.env, words.ndim == 2, self._device)
            self._out = self._programs.reset(words, time)
        return self._programs.read(self._out)

    def send(self, actions: Any, name: str = "step") -> None:
        """Starts a step and returns at once.

        Raises:
            ActionError: structure, shape, dtype or value do not fit; nothing was done.
            ResetNeeded, ClosedEnvironmentError, AlreadyPendingCallError: not now.
        """
        if self._pending or self._programs is None:
            self._check_open(name)
            raise gymnasium.error.ResetNeeded(f"{name} was called before reset.  Call reset first.")
        self._advance(self._programs, actions)
        self._pending = name

    def step(self, actions: Any) -> HostStep:
        """`send` and `receive` in one."""
        programs = self._programs
        if self._pending or programs is None:
            self.send(actions)
        else:
            self._advance(programs, actions)
        return programs.read(self._out)  # pyright: ignore[reportOptionalMemberAccess]

    def _advance(self, programs: "Programs", actions: Any) -> None:
        out, check = self._out, self._check
        actions = self._convert(actions)
        if check is None:
            self._out = programs.step(out, actions)
        elif programs.donates:
            check()
            self._out = programs.step(out, actions)
        else:
            # Values are looked at while the device works; if one is wrong, nothing has happened.
            new = programs.step(out, actions)
            try:
                check()
            except ActionError:
                programs.wait(new)  # it reads the memory that the next actions are written to
                raise
            self._out = new

    def receive(self, name: str = "step_wait") -> HostStep:
        """Waits for the step that `send` started.

        Raises:
            NoAsyncCallError, ClosedEnvironmentError: there is none.
        """
        if not self._pending or self._programs is None:
            if self._closed:
                self._check_open(name)
            raise gymnasium.error.NoAsyncCallError(
                f"{name} was called while no step was under way.  Call step_async or send first.",
                name,
            )
        self._pending = None
        return self._programs.read(self._out)

    def render(self, indices: Sequence[int]) -> np.ndarray:
        """Frames of these instances: uint8[len(indices), H, W, 3]."""
        self._check_open("render")
        if self._programs is None:
            raise gymnasium.error.ResetNeeded("render was called before reset.  Call reset first.")
        return self._programs.render(self._out, np.asarray(indices, np.int32))

    def replace_env(self, env: VectorEnv) -> None:
        """Goes on with other parameters; the state stays as it is."""
        self._check_open("set_attr")
        self.env = env
        self._take(env)
        if self._programs is not None:
            carry, timestep = self._programs.unpack(self._out)
            self._programs = programs_for(env, carry.seed.ndim == 2, self._device)
            self._out = self._programs.pack(carry, timestep)

    def _take(self, env: VectorEnv) -> None:
        actions = Actions(env, self._device, self._validate)
        self._convert, self._check = actions.convert, actions.check

    def _check_open(self, name: str) -> None:
        if self._closed:
            raise gymnasium.error.ClosedEnvironmentError(
                f"{name} was called after close.  Make the environment anew."
            )
        if self._pending:
            raise gymnasium.error.AlreadyPendingCallError(
                f"{name} was called while a step is under way, begun by {self._pending}."
                "  Call step_wait or recv first.",
                name,
            )

    def seed_words(self, seed: Any) -> np.ndarray | None:
        """The words of the key, uint32[2], or of the keys, [N, 2], that `seed` names.

        Raises:
            SeedError: not a seed, or not one for each instance.
        """
        if seed is None:
            return None
        if _is_int(seed):
            return _key_words(seed)
        if isinstance(seed, (str, bytes)) or not hasattr(seed, "__len__"):
            raise SeedError(
                f"expected a seed, a list of {self.num_envs} seeds or None, got {seed!r}."
            )
        if len(seed) != self.num_envs:
            raise SeedError(
                f"got {len(seed)} seeds for num_envs={self.num_envs}.  Pass one for each, or a"
                " single int."
            )
        return np.stack([_key_words(_random_seed() if s is None else s) for s in seed])

    def _next_key(self) -> tuple[np.ndarray, np.ndarray]:
        if self._programs is None:
            return _key_words(_random_seed()), np.zeros((), np.uint32)
        seed, time = self._programs.clock(self._out)
        return seed, time + np.uint32(1)

    def _reset_where(self, words: np.ndarray | None, mask: np.ndarray) -> None:
        assert self._programs is not None
        carry, timestep = self._programs.unpack(self._out)
        seed: Any = np.array(carry.seed)
        time: Any = np.array(carry.time)
        each = words is not None and words.ndim == 2
        if each and seed.ndim == 1:  # from here on every instance follows a key of its own
            seed = _split_words(seed, self.num_envs)
            time = np.full(self.num_envs, time, np.uint32)
        if seed.ndim == 2 and words is not None:
            if words.ndim == 1:
                # One seed for all, where each follows its own: those of instance 0, 1, ...
                words = _split_words(words, self.num_envs)
            seed[mask], time[mask] = words[mask], 0
            begin = (seed, time)
        elif words is not None:  # the others go on with the key that they have
            begin = (words, np.zeros((), np.uint32))
        else:
            time = np.where(mask, time + 1, time) if time.ndim else time + 1
            time = np.asarray(time, np.uint32)
            begin = (seed, time)
        self._programs = programs_for(self.env, seed.ndim == 2, self._device)
        self._out = self._programs.reset_where(
            carry.state, timestep, mask, begin, seed, np.asarray(time, np.uint32)
        )


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
        self.donates = not self._is_packed  # the state that a step is given is gone after it
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

    def step(self, out: Any, action: Any) -> Any:
        if self._is_tried:
            return self._step(out, action)
        if not self._is_packed:
            return self._step(out[0], action)
        self._is_tried = True
        try:
            return self._step(out, action)
        except jax.errors.JaxRuntimeError:  # something in it cannot be part of a single kernel
            self._step = self._plain_step
            return self._step(out, action)

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


def as_device(device: jax.Device | str | None) -> jax.Device | None:
    """The device that "cpu" or "gpu:1" names; a device or None as it is.

    Raises:
        ParameterError: there is none of that name.
    """
    if not isinstance(device, str):
        return device
    platform, _, index = device.partition(":")
    try:
        return jax.devices(platform)[int(index or 0)]
    except (IndexError, RuntimeError, ValueError) as error:
        raise ParameterError(
            f'device="{device}" is not there: {error}.  jax.devices() shows what is; "gpu:1" is'
            " the second GPU."
        ) from error


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
    keys = jax.random.wrap_key_data(seed, impl=_IMPL)
    if not keys.shape:
        return jax.random.fold_in(keys, time)
    return jax.vmap(jax.random.fold_in)(keys, time)


def _first_key(seed: jax.Array, time: jax.Array) -> chex.PRNGKey:
    """The key of a reset: a fresh seed's own, or the next that comes of it."""
    later = jax.random.key_data(_key(seed, time))
    fresh = jnp.expand_dims(time == 0, -1)
    return jax.random.wrap_key_data(jnp.where(fresh, seed, later), impl=_IMPL)


def _is_int(seed: Any) -> bool:
    return isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)


def _key_words(seed: Any) -> np.ndarray:
    if not _is_int(seed) or not 0 <= seed < 2**32:
        raise SeedError(f"expected a seed from 0 to 2**32 - 1, got {seed!r}.")
    return np.array([0, seed], np.uint32)  # what jax.random.key(seed) holds


def _split_words(words: np.ndarray, num_keys: int) -> np.ndarray:
    """The words of `num_keys` keys that come of one: uint32[num_keys, 2]."""
    key = jax.random.wrap_key_data(jnp.asarray(words), impl=_IMPL)
    return np.array(jax.random.key_data(jax.random.split(key, num_keys)))


def _random_seed() -> int:
    return secrets.randbits(32)


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
