"""The class that runs a native `VectorEnv` for every NumPy interface."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import gymnasium
import jax
import numpy as np

from jaxenvs import _forks
from jaxenvs.core import VectorEnv
from jaxenvs.errors import ParameterError
from jaxenvs.faces._action_converter import ActionConverter
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.faces._programs import Programs, programs_for
from jaxenvs.faces._seeds import parse_seeds
from jaxenvs.spaces import Dict, Discrete, MultiDiscrete, Space, Tuple

_HANDOVER = 1e-4  # seconds; `send` does not hand shorter steps to another thread


class BatchRunner:
    """Keeps the state of a `VectorEnv` on a device and returns host arrays.

    Each instance has its own seed, so its episodes do not depend on the others. `reset(seed=s)`
    gives the instances the seeds s, s + 1, ... Each call runs `env.reset(keys)` or
    `env.step(state, action, keys)`, where `keys.call_keys` derives the keys from the seeds and the
    number of calls since each instance was seeded.

    Args:
        env: the environment.
        device: the device that it runs on; None for the CPU.
        validate: whether to check the values of actions.
        discrete_dtype: the dtype of observations in `Discrete` and `MultiDiscrete` spaces; int64 as
            in Gymnasium's spaces.

    Raises:
        ForkError: JAX does not work in this process.
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        device: jax.Device | None = None,
        validate: bool = True,
        discrete_dtype: Any = np.int64,
    ) -> None:
        _forks.check_not_forked()
        self.env = copy_arrays(env)
        self.num_envs = env.num_envs
        self._state_device = device or jax.devices("cpu")[0]
        on_host = self._state_device.platform == "cpu"
        self._device = _host_device() if on_host else self._state_device
        self._validate = validate
        self._cast = _discrete_caster(env.single_observation_space, discrete_dtype)
        self._converter = ActionConverter(self.env, self._device, self._validate)
        self._programs: Programs | None = None
        self._out: Any = None  # the last output of a program
        self._pending: str | None = None  # the call that started the step in flight
        self._send_seconds = 0.0  # how long the latest step took that `send` started
        self._sender: ThreadPoolExecutor | None = None
        self._sent: Future[Any] | None = None  # the output of the step in flight
        self._closed = False
        _forks.users.add(self)

    def close(self) -> None:
        """Drops the state, after waiting for the step in flight."""
        if self._sender is not None:
            self._sender.shutdown()
        if self._pending and self._programs is not None and self._sent is None:
            self._programs.wait(self._out)
        self._pending = self._out = self._programs = self._sender = self._sent = None
        self._closed = True

    @functools.cached_property
    def has_info(self) -> bool:
        """Whether timesteps have infos."""
        return bool(jax.eval_shape(self.env.reset, jax.random.key(0))[1].info)

    @property
    def has_state(self) -> bool:
        """Whether the environment has been reset; the first reset starts every instance."""
        return self._programs is not None

    def reset(
        self,
        seed: Any = None,
        mask: np.ndarray | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> HostTimeStep:
        """Starts an episode in every instance, or where `mask`, bool[N], is true.

        Args:
            seed: see `parse_seeds`; None continues with the random numbers of the last seeds.
            mask: the instances to reset; None for all.
            params: parameters of the environment that this reset replaces.

        Raises:
            SeedError: a seed is invalid, or the number of seeds is not N.
            ClosedEnvironmentError: the environment was closed.
            AlreadyPendingCallError: a step is in flight.
        """
        self.check_ready("reset")
        programs = self._programs
        if programs is None:
            programs, mask = programs_for(self.env, self._device), None
            seeds, calls = (
                np.array(self.parse_seeds(seed), np.uint32),
                np.zeros(self.num_envs, np.uint32),
            )
        else:
            seeds, calls = programs.seeds_and_calls(self._out)
            rows = slice(None) if mask is None else mask
            calls[rows] += np.uint32(1)
            if seed is not None:
                seeds[rows], calls[rows] = np.array(self.parse_seeds(seed), np.uint32)[rows], 0
        env = self.env.replace(**params) if params else None
        if mask is None:
            self._out = programs.reset(seeds, calls, env)
        else:
            self._out = programs.reset_where(self._out, mask, seeds, calls, env)
        self._programs = programs
        return self._read(programs)

    def send(self, actions: Any, name: str = "step") -> None:
        """Starts a step, and returns before a long one ends.

        Args:
            actions: [N, ...].
            name: the name of the caller's method, for error messages.

        Raises:
            ActionError: structure, shape, dtype or value do not fit; no step was taken.
            ResetNeeded: there was no reset.
            ClosedEnvironmentError: the environment was closed.
            AlreadyPendingCallError: a step is in flight.
        """
        programs = self._reset_programs(name)
        action = self._converter.convert(actions)
        if self._device.platform != "cpu" or self._send_seconds < _HANDOVER:
            self._out = self._timed_step(programs, action)
        else:
            if self._sender is None:
                self._sender = ThreadPoolExecutor(1, "jaxenvs-step")
            self._sent = self._sender.submit(self._timed_step, programs, action)
        self._pending = name

    def step(self, actions: Any) -> HostTimeStep:
        """Takes one action in every instance, like `send` and then `receive`."""
        programs = self._programs
        if self._pending or programs is None:
            self.send(actions)  # raises
        else:
            self._out = programs.step(self._out, self._converter.convert(actions))
        return self._read(programs)  # pyright: ignore[reportArgumentType]

    def _timed_step(self, programs: Programs, action: Any) -> Any:
        began = time.perf_counter()
        out = programs.step(self._out, action)
        self._send_seconds = time.perf_counter() - began
        return out

    def receive(self) -> HostTimeStep:
        """Waits for the step that `send` started.

        Raises:
            NoAsyncCallError: no step is in flight.
            ClosedEnvironmentError: the environment was closed.
        """
        if not self._pending or self._programs is None:
            _forks.check_not_forked()
            if self._closed:
                self.check_ready("step_wait")
            raise gymnasium.error.NoAsyncCallError(
                "step_wait was called without a step in flight.  Call step_async or send first.",
                "step_wait",
            )
        if self._sent is not None:
            wait((self._sent,))  # an interrupt of it leaves the step in flight
            sent, self._sent, self._pending = self._sent, None, None
            self._out = sent.result()
        self._pending = None
        return self._read(self._programs)

    def _read(self, programs: Programs) -> HostTimeStep:
        timestep, cast = programs.read(self._out), self._cast
        if cast is None:
            return timestep
        read = timestep.read
        return timestep._replace(
            observation=cast(timestep.observation),
            read=lambda name: cast(read(name)) if name == "final_observation" else read(name),
        )

    def render(self, indices: Sequence[int] | None = None) -> np.ndarray:
        """Returns frames of the instances `indices`, or of all: uint8[len(indices), H, W, 3]."""
        indices = range(self.num_envs) if indices is None else indices
        programs = self._reset_programs("render")
        return programs.render(self._out, np.asarray(indices, np.int32))

    def read_state(self) -> Any:
        """Returns the state of the environment, arrays on the device.

        Raises:
            ResetNeeded: there was no reset.
        """
        state = self._reset_programs("read_state").env_state(self._out)
        return jax.device_put(state, self._state_device)

    def write_state(self, state: Any) -> None:
        """Continues from `state`, which has the structure and shapes of `read_state`'s result."""
        state = jax.device_put(state, self._device)
        self._out = self._reset_programs("write_state").with_env_state(self._out, state)

    def _reset_programs(self, name: str) -> Programs:
        self.check_ready(name)
        if self._programs is None:
            raise gymnasium.error.ResetNeeded(f"{name} was called before reset.  Call reset first.")
        return self._programs

    def replace_env(self, env: VectorEnv) -> None:
        """Continues with `env`, which has other parameters; the state stays the same.

        Raises:
            ParameterError: the state of `env` has other shapes.
        """
        self.check_ready("set_attr")
        env = copy_arrays(env)
        converter = ActionConverter(env, self._device, self._validate)
        if self._programs is not None:
            programs = programs_for(env, self._device)
            if programs.signature != self._programs.signature:
                raise ParameterError(
                    f"set_attr would turn {self.env!r} into {env!r}, whose state has other shapes,"
                    " so episodes could not continue.  Make a new environment."
                )
            self._programs = programs
        self.env, self._converter = env, converter

    def parse_seeds(self, seed: Any) -> list[int]:
        """Returns the seeds of the N instances.

        Raises:
            SeedError: a seed is invalid, or the number of seeds is not N.
        """
        return parse_seeds(seed, self.num_envs, bits=32)

    def after_fork(self) -> None:
        """Makes every later call raise ForkError; called in a forked process."""
        self._programs = self._pending = None

    def check_ready(self, name: str) -> None:
        """Raises an error if the environment is closed, forked or in the middle of a step."""
        _forks.check_not_forked()
        if self._closed:
            raise gymnasium.error.ClosedEnvironmentError(
                f"{name} was called after close.  Make a new environment."
            )
        if self._pending:
            raise gymnasium.error.AlreadyPendingCallError(
                f"{name} was called while the step started by {self._pending} is in flight."
                "  Call step_wait or recv first.",
                name,
            )


@functools.cache
def _host_device() -> jax.Device:
    """Returns a CPU device that runs a program in the thread that calls it.

    JAX's own CPU device hands all but the smallest programs to another thread. If other processes
    keep the cores busy, it takes 50 us until that thread runs, ten times as long as a small step.

    It is a device of its own: arrays have to be put on it, and from it on one of `jax.devices()`.
    """
    try:
        from jaxlib import xla_client  # JAX has an option for whole processes only

        return xla_client.make_cpu_client(asynchronous=False, num_devices=1).devices()[0]
    except (ImportError, AttributeError, TypeError):  # it is not a public interface
        return jax.devices("cpu")[0]


def _discrete_caster(space: Space, dtype: Any) -> Callable[[Any], Any] | None:
    """Returns a function that converts the members of discrete spaces in [N, ...] observations.

    Returns None if nothing needs to be converted.
    """
    if isinstance(space, Dict | Tuple):
        is_dict = isinstance(space, Dict)
        parts = space.spaces.items() if is_dict else enumerate(space.spaces)
        casters = {name: _discrete_caster(part, dtype) for name, part in parts}
        casters = {name: cast for name, cast in casters.items() if cast is not None}

        def cast_parts(batch: Any) -> Any:
            changed = {name: cast(batch[name]) for name, cast in casters.items()}
            if is_dict:
                return {**batch, **changed}
            return tuple(changed.get(i, part) for i, part in enumerate(batch))

        return cast_parts if casters else None
    if not isinstance(space, Discrete | MultiDiscrete) or space.dtype == dtype:
        return None
    return lambda batch: batch.astype(dtype)


def copy_arrays(tree: Any) -> Any:
    """Copies the NumPy arrays among an environment's parameters, which the caller may write to."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def parse_device(device: jax.Device | str | None) -> jax.Device | None:
    """Returns the device named "cpu" or "gpu:1"; returns a device or None unchanged.

    Raises:
        ParameterError: there is no such device.
    """
    if device is None or isinstance(device, jax.Device):
        return device
    if not isinstance(device, str):
        raise ParameterError(
            f"device={device!r:.60} is not a device; expected one of jax.devices(), or a name such"
            ' as "cpu" or "gpu:1".'
        )
    platform, _, index = device.partition(":")
    try:
        return jax.devices(platform)[int(index or 0)]
    except (IndexError, RuntimeError, ValueError) as error:
        raise ParameterError(
            f'device="{device}" does not exist: {error}.  jax.devices() lists the devices;'
            ' "gpu:1" is the second GPU.'
        ) from error


def device_name(device: jax.Device | str | None) -> str | None:
    """Returns the name that `parse_device` turns into `device`."""
    if isinstance(device, str) or (device := parse_device(device)) is None:
        return device
    return f"{device.platform}:{jax.devices(device.platform).index(device)}"
