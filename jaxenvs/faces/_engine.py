"""Driving a `VectorEnv` from the host: what every NumPy interface is made of."""

import secrets
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import VectorEnv
from jaxenvs.errors import ParameterError, SeedError
from jaxenvs.faces._actions import Actions
from jaxenvs.faces._programs import KEY_IMPL, HostStep, Programs, programs_for


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
        self._actions = Actions(env, self._device, self._validate)
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

    def _advance(self, programs: Programs, actions: Any) -> None:
        passed = self._actions
        self._out = programs.step(self._out, passed.convert(actions), passed.check)

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
        self._actions = Actions(env, self._device, self._validate)
        if self._programs is not None:
            carry, timestep = self._programs.unpack(self._out)
            self._programs = programs_for(env, carry.seed.ndim == 2, self._device)
            self._out = self._programs.pack(carry, timestep)

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


def _is_int(seed: Any) -> bool:
    return isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)


def _key_words(seed: Any) -> np.ndarray:
    if not _is_int(seed) or not 0 <= seed < 2**32:
        raise SeedError(f"expected a seed from 0 to 2**32 - 1, got {seed!r}.")
    return np.array([0, seed], np.uint32)  # what jax.random.key(seed) holds


def _split_words(words: np.ndarray, num_keys: int) -> np.ndarray:
    """The words of `num_keys` keys that come of one: uint32[num_keys, 2]."""
    key = jax.random.wrap_key_data(jnp.asarray(words), impl=KEY_IMPL)
    return np.array(jax.random.key_data(jax.random.split(key, num_keys)))


def _random_seed() -> int:
    return secrets.randbits(32)
