"""Driving a `VectorEnv` from the host: what every NumPy interface is made of."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import numpy as np

from jaxenvs import _forks
from jaxenvs.core import VectorEnv
from jaxenvs.errors import ParameterError
from jaxenvs.faces._actions import Actions
from jaxenvs.faces._programs import HostStep, Programs, programs_for
from jaxenvs.faces._seeds import seeds_of


class Engine:
    """Keeps the state of a `VectorEnv` on a device, and answers with host arrays.

    Every instance follows a seed of its own, whatever others there are: `reset(seed=s)` means the
    seeds s, s + 1, ... A call is `env.reset(keys)` or `env.step(state, action, keys)` with
    `keys.call_keys` of the calls since each was seeded.

    Args:
        env: the environment.
        device: where it runs; None is the first CPU.
        validate: whether to look at the values of actions.

    Raises:
        ForkError: JAX does not work in this process.
    """

    def __init__(
        self, env: VectorEnv, *, device: jax.Device | None = None, validate: bool = True
    ) -> None:
        _forks.check_not_forked()
        self.env = own_arrays(env)
        self.num_envs = env.num_envs
        self._device = jax.devices("cpu")[0] if device is None else device
        self._validate = validate
        self._actions = Actions(self.env, self._device, self._validate)
        self._programs: Programs | None = None
        self._out: Any = None  # the last output of a program
        self._pending: str | None = None
        self._closed = False
        _forks.users.add(self)

    def close(self) -> None:
        """Drops the state; what is in flight is waited for."""
        if self._pending and self._programs is not None:
            self._programs.wait(self._out)
        self._pending = self._out = self._programs = None
        self._closed = True

    @property
    def has_state(self) -> bool:
        """Whether there are episodes: not before the first reset, which starts all of them."""
        return self._programs is not None

    def reset(self, seed: Any = None, mask: np.ndarray | None = None) -> HostStep:
        """Starts episodes, everywhere or where `mask`, bool[N], is true.

        Raises:
            SeedError: no seed, or not one for each instance.
            ClosedEnvironmentError, AlreadyPendingCallError: not now.
        """
        self.check_open("reset")
        programs = self._programs
        if programs is None:
            programs, mask = programs_for(self.env, self._device), None
            seeds, times = np.array(self.seeds(seed), np.uint32), np.zeros(self.num_envs, np.uint32)
        else:
            seeds, times = programs.clock(self._out)
            begun = slice(None) if mask is None else mask
            times[begun] += np.uint32(1)
            if seed is not None:
                seeds[begun], times[begun] = np.array(self.seeds(seed), np.uint32)[begun], 0
        if mask is None:
            self._out = programs.reset(seeds, times)
        else:
            self._out = programs.reset_where(self._out, mask, seeds, times)
        self._programs = programs
        return programs.read(self._out)

    def send(self, actions: Any, name: str = "step") -> None:
        """Starts a step and returns at once.

        Raises:
            ActionError: structure, shape, dtype or value do not fit; nothing was done.
            ResetNeeded, ClosedEnvironmentError, AlreadyPendingCallError: not now.
        """
        if self._pending or self._programs is None:
            self.check_open(name)
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
            _forks.check_not_forked()
            if self._closed:
                self.check_open(name)
            raise gymnasium.error.NoAsyncCallError(
                f"{name} was called while no step was under way.  Call step_async or send first.",
                name,
            )
        self._pending = None
        return self._programs.read(self._out)

    def render(self, indices: Sequence[int]) -> np.ndarray:
        """Frames of these instances: uint8[len(indices), H, W, 3]."""
        self.check_open("render")
        if self._programs is None:
            raise gymnasium.error.ResetNeeded("render was called before reset.  Call reset first.")
        return self._programs.render(self._out, np.asarray(indices, np.int32))

    def replace_env(self, env: VectorEnv) -> None:
        """Goes on with other parameters; the state stays as it is.

        Raises:
            ParameterError: states of `env` are of another form.
        """
        self.check_open("set_attr")
        env = own_arrays(env)
        actions = Actions(env, self._device, self._validate)
        if self._programs is not None:
            programs = programs_for(env, self._device)
            if programs.form != self._programs.form:
                raise ParameterError(
                    f"set_attr made {env!r} of {self.env!r}, whose state has other shapes; episodes"
                    " cannot go on.  Make a new environment."
                )
            self._programs = programs
        self.env, self._actions = env, actions

    def seeds(self, seed: Any) -> list[int]:
        """The N seeds that `seed` names.

        Raises:
            SeedError: not a seed, or not one for each instance.
        """
        return seeds_of(seed, self.num_envs, bits=32)

    def after_fork(self) -> None:
        """Makes every call look first, in a forked process."""
        self._programs = self._pending = None

    def check_open(self, name: str) -> None:
        _forks.check_not_forked()
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


def own_arrays(tree: Any) -> Any:
    """Copies the NumPy arrays among parameters, which somebody else may write to."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


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
