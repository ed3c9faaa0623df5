"""The base class of `Pool`: properties, calls between steps, and closing."""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode as GymAutoresetMode
from gymnasium.vector.utils import batch_space

from jaxenvs.bridge.backends.backend import Backend, Settings
from jaxenvs.bridge.memory.arrays import MODES, AutoresetMode
from jaxenvs.bridge.pool.arguments import checked_ids
from jaxenvs.bridge.pool.batches import Batches
from jaxenvs.bridge.pool.state import PoolState, log
from jaxenvs.bridge.workers.views import own_copy
from jaxenvs.errors import PoolError

_GRACE = 5.0  # seconds that environments get for their close()


class PoolBase(gymnasium.vector.VectorEnv):
    """The part of `Pool` that steps nothing.

    `xla_functions` is called by `Pool.xla`. It is an argument because it imports JAX, which pools
    do not.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        *,
        batch_size: int,
        seed: int | Sequence[int] | None,
        on_failure: Literal["raise", "restart"],
        copy: bool,
        name: str,
        xla_functions: Callable[["PoolBase"], Any],
    ) -> None:
        self._backend = backend
        self._state = state = PoolState(
            backend, settings, name=name, batch_size=batch_size, on_failure=on_failure
        )
        self._ledger, self._lock = state.ledger, state.lock
        self._finalizer = weakref.finalize(self, _close_unasked, backend)
        _pools.add(self)
        self.name, self.num_envs, self.batch_size = name, state.num_envs, batch_size
        self._mode_is_open = settings.mode_is_open
        self._seed, self._xla_functions = seed, xla_functions
        self._batches = Batches(state, copy=copy)
        description = backend.descriptions[0]
        self.spec = description["spec"]
        self.render_mode = description["render_mode"]
        self.metadata = dict(description["metadata"])
        self.agents: tuple[str, ...] = description["agents"]
        self._take_mode(settings.autoreset_mode)
        self.info_fields = settings.info_fields
        self.single_observation_space = settings.observation_space
        self.single_action_space = settings.action_space
        self.observation_space = batch_space(settings.observation_space, self.num_envs)
        self.action_space = batch_space(settings.action_space, self.num_envs)
        self._lock_step = backend.lock_step(state.patience)

    # --- properties ---

    @property
    def backend(self) -> str:
        """The name of the backend: "serial", "thread", "process" ..."""
        return self._backend.name

    @property
    def num_workers(self) -> int:
        """The number of processes, threads or actors; 0 if the caller steps all environments."""
        return self._backend.num_workers

    @property
    def worker_bounds(self) -> tuple[int, ...] | None:
        """The index of each worker's first environment, followed by the end of the last range."""
        return self._backend.bounds

    @property
    def caller_steps(self) -> bool:
        """Whether the caller steps the environments below `worker_bounds[0]` itself."""
        return self._backend.caller_steps

    @property
    def num_pending(self) -> int:
        """The number of environments whose result has been requested but not yet returned."""
        return self._ledger.num_pending

    @property
    def closed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the pool was closed."""
        return self._state.closed

    @property
    def unwrapped(self) -> Self:
        return self

    def __repr__(self) -> str:
        return repr(self._state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fix_autoreset_mode(self, mode: AutoresetMode | None = None) -> None:
        """Sets the autoreset mode for good; `HostEnv` calls this when it takes the pool over.

        Args:
            mode: the mode to use. None keeps the pool's mode if it was made with one or has
                started episodes, and otherwise means "same_step".

        Raises:
            PoolError: the pool was made with another mode, or has started episodes in another one.
        """
        with self._lock:
            is_open = self._mode_is_open and not self._ledger.seeded.any()
            if mode is not None and mode != self.autoreset_mode and not is_open:
                why = "was made with" if not self._mode_is_open else "has started episodes with"
                raise PoolError(
                    f'got autoreset_mode="{mode}" for {self!r}, which {why}'
                    f' autoreset_mode="{self.autoreset_mode}".  Make the pool with'
                    f' autoreset_mode="{mode}".'
                )
            if is_open:
                self._take_mode(mode or "same_step")
            self._mode_is_open = False

    def _take_mode(self, mode: AutoresetMode) -> None:
        self.autoreset_mode: AutoresetMode = mode
        self.metadata["autoreset_mode"] = GymAutoresetMode[mode.upper()]
        self._backend.arrays.mode[0] = MODES.index(mode)
        self._batches.take_mode(mode)

    # --- between steps ---

    def render(self, env_ids: Any = None) -> tuple[Any, ...]:
        """Returns a copy of the result of `render` of each environment, or of the given ones."""
        return tuple(map(own_copy, self.call("render", env_ids=env_ids)))

    def call(self, name: str, *args: Any, env_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method, or reads an attribute, of each environment or of the given ones.

        Raises:
            AlreadyPendingError: an environment is being stepped.
            WorkerError: an environment raised.
        """
        with self._lock:
            ids = self._state.every_id if env_ids is None else self._ids(env_ids)
            self._state.refuse_closed()
            self._ledger.refuse_busy(f"call({name!r})", ids)
            return tuple(self._ask_between_steps("call", ids.tolist(), name, args, kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment; a list or tuple holds one value for each."""
        with self._lock:
            self._state.refuse_closed()
            self._ledger.refuse_busy(f"set_attr({name!r})", self._state.every_id)
            each = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
            if len(each) != self.num_envs:
                raise PoolError(
                    f'set_attr("{name}") got {len(each)} values for num_envs={self.num_envs}.'
                    "  Pass one value for each environment, or a single value for all."
                )
            ids = self._state.every_id.tolist()
            self._ask_between_steps("set_attr", ids, name, each)

    def _ask_between_steps(self, kind: str, ids: list[int], *what: Any) -> Any:
        """Sends the backend a message while no compiled program steps the pool."""
        state = self._state
        with contextlib.nullcontext() if state.hosted is None else state.hosted.held():
            return state.send_message(self._backend.message, kind, ids, *what)

    def _ids(self, env_ids: Any) -> np.ndarray:
        if env_ids is not None and env_ids is self._ledger.received:
            return env_ids  # it is read-only, and nothing was started since
        return checked_ids(env_ids, self.num_envs)

    def close(self, *, grace: float = _GRACE, **kwargs: Any) -> None:
        """Closes all environments and stops all workers. A second call does nothing.

        Args:
            grace: seconds that the environments get for `close`; then their processes are killed.

        Raises:
            WorkerError: the `close` of an environment raised; the pool is closed nevertheless.
        """
        state, hosted = self._state, self._state.hosted
        if hosted is not None and not self.closed:
            hosted.wait_for_programs(grace)
        is_free = self._lock.acquire(timeout=grace)  # false: another thread is waiting in a call
        try:
            if self.closed:
                return
            state.closed = True
            if hosted is not None:
                hosted.close()
            if self._finalizer.detach() is None:
                return
            self._ledger.all_ready = False
            reports = self._backend.close(grace if is_free else 0)
        finally:
            if is_free:
                self._lock.release()
        if reports and state.on_failure == "raise":
            raise state.error(reports)
        for report in reports:
            log.warning("%s", state.message_of(report))

    def _disown(self) -> None:
        """Leaves the environments to the parent process, in a forked child."""
        self._lock = self._state.lock = threading.RLock()
        if self._backend.owner is not None:
            self._finalizer.detach()
            self._state.closed, self._ledger.all_ready = True, False

    def __del__(self) -> None:  # overrides Gymnasium's, which closes; the finalizer does that here
        pass


def state_of(pool: PoolBase) -> PoolState:
    """Returns the state of a pool, through which compiled programs step it."""
    return pool._state


_pools: "weakref.WeakSet[PoolBase]" = weakref.WeakSet()


def _disown_all() -> None:
    for pool in list(_pools):
        pool._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _close_unasked(backend: Backend) -> None:
    """Closes a pool that the user never closed, at garbage collection or at exit."""
    with contextlib.suppress(Exception):
        backend.close(1.0)
