"""Pools: batches of environments that are not written in JAX, stepped together or not."""

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
from jaxenvs.bridge.memory.channel import RESET, RESET_ALL, STEP, STEP_ALL
from jaxenvs.bridge.pool.arguments import checked_ids, seeds_of, without_mask
from jaxenvs.bridge.pool.batches import Batch, Batches
from jaxenvs.bridge.pool.state import PoolState, log
from jaxenvs.bridge.workers.views import own_copy
from jaxenvs.errors import EnvTimeoutError, NothingPendingError, PoolError, WorkerError

_GRACE = 5.0  # seconds that environments get for their close()


class Pool(gymnasium.vector.VectorEnv):
    """A batch of environments that are not written in JAX, made by `jaxenvs.make_pool`.

    N is `num_envs`, B is `batch_size`. A batch is `(observation, reward, terminated, truncated,
    info)`, each with a leading axis: [N] if all environments are stepped together (B = N),
    otherwise [B]. `reward` is float64, the flags are bool, and `observation` has the structure and
    the dtypes of the environments' space. `info` contains

    - `env_id`: int32, the index of the environment that each row belongs to;
    - `elapsed_step`: int32, the step of the episode that the reward belongs to; 0 after a reset;
    - `restarted`: bool, true if the environment failed and was constructed again, which cuts its
      episode;
    - `final_obs` and `final_info` under same-step autoreset, where an episode ended, with masks;
    - the entries of the environments' own infos, as arrays where possible, each with a mask
      `_name`.

    The returned arrays are views of two buffers that the pool writes in turn, so a batch is valid
    until the second call after it. With `copy=True` the arrays are copies.
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
        xla_functions: Callable[["Pool"], Any],  # an argument, because it imports JAX
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

    # --- reset ---

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, or the given ones.

        Args:
            seed: environment i is seeded with `seed + i`; or a sequence with one seed for each
                environment that is reset. With None, the first reset of each environment uses the
                pool's seed, and later resets use none.
            options: passed on to the environments' `reset`, except for the entry "reset_mask",
                bool[N], which selects the environments to reset.
            env_ids: int[n], the environments to reset.

        Returns:
            The observation and info of all N environments; with `env_ids`, of those n.

        Raises:
            AlreadyPendingError: an environment to reset still has a pending result.
            SeedError: a seed is invalid, or the number of seeds is wrong.
            EnvIdError: an index is out of range, or was given twice.
        """
        with self._lock:
            options, mask = without_mask(options, self.num_envs)
            if mask is not None and env_ids is not None:
                raise PoolError("reset got env_ids and options['reset_mask'].  Pass one of them.")
            if mask is None and env_ids is None:
                self.reset_async(seed=seed, options=options)
                return self.reset_wait()
            ids = self._ids(env_ids if mask is None else np.flatnonzero(mask))
            has_each = isinstance(seed, (Sequence, np.ndarray)) and len(seed) == self.num_envs
            if mask is not None and has_each:
                seeds: Any = seed  # as in Gymnasium: one for each environment, used or not
                seed = [seeds[i] for i in ids]
            self._state.refuse_hosted("reset")
            self._ledger.refuse_busy("reset", ids)
            self._ledger.refuse_pending("reset of some")
            self._begin_reset(ids, seed, options, one_by_one=True)
            batch = self._batch_of(ids)
            return (batch[0], batch[4]) if mask is None else self._batches.patched(ids, batch)

    def reset_async(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Starts a reset of all environments; `reset_wait` returns the result."""
        with self._lock:
            self._state.refuse_hosted("reset")
            self._ledger.refuse_pending("reset")
            self._begin_reset(self._state.every_id, seed, options, one_by_one=False)

    def reset_wait(self) -> tuple[Any, dict[str, Any]]:
        """Returns the result of `reset_async`, waiting for it if necessary.

        Raises:
            NothingPendingError: no reset was started.
        """
        with self._lock:
            self._state.refuse_hosted("reset_wait")
            if self._ledger.op != RESET_ALL:
                raise NothingPendingError(
                    "reset_wait was called, but no reset was started.  Call reset_async() first."
                )
            batch = self._batches.of_all(self._state.end_all())
            return batch[0], batch[4]

    def async_reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        env_ids: Any = None,
    ) -> None:
        """Starts a reset of all or some environments; `recv` returns the results as they arrive.

        The arguments are those of `reset`.
        """
        with self._lock:
            ids = self._state.every_id if env_ids is None else self._ids(env_ids)
            if self.batch_size == self.num_envs and len(ids) == self.num_envs:
                self.reset_async(seed=seed, options=options)
                return
            self._state.refuse_hosted("async_reset")
            self._ledger.refuse_busy("async_reset", ids)
            self._begin_reset(ids, seed, options, one_by_one=True)

    def _begin_reset(
        self, ids: np.ndarray, seed: Any, options: dict[str, Any] | None, *, one_by_one: bool
    ) -> None:
        state, ledger = self._state, self._ledger
        if ledger.was_cut:
            state.drop_pending()
        if seed is None and self._seed is not None:  # of the first reset of each
            own = seeds_of("reset", self._seed, state.every_id)
            seed = [None if ledger.seeded[i] else own[i] for i in ids.tolist()]
        self._backend.arrays.seeds[ids] = seeds_of("reset", seed, ids)
        state.send_message(self._backend.set_options, options)
        if one_by_one:
            state.begin_some(RESET, ids)
        else:
            state.begin_all(RESET_ALL)
        ledger.reset(ids)

    # --- step ---

    def step(self, actions: Any, env_ids: Any = None) -> Batch:
        """Steps all environments, or the given ones, and waits for the results.

        Args:
            actions: one action for each environment, [N, ...] or [n, ...], with the structure of
                the action space.
            env_ids: int[n], the environments to step; None for all, in order.

        Returns:
            observation, reward, terminated, truncated, info; rows in the order of `env_ids`.

        Raises:
            ActionError: the actions have the wrong shape, are outside a discrete space, or are
                NaN.
            AlreadyPendingError: an environment to step still has a pending result.
            WorkerError: an environment raised. All have stepped, and the one that raised was
                constructed again.
            EnvTimeoutError: an environment exceeded the timeout.
        """
        with self._lock:
            state, ledger = self._state, self._ledger
            if env_ids is not None:
                ids = self._ids(env_ids)
                state.refuse_hosted("step")
                ledger.refuse_pending("step of some")
                self._begin_step("step", actions, ids)
                return self._batch_of(ids)
            if ledger.num_pending or not ledger.all_ready:
                state.refuse_step("step")  # also if it is closed or hosted
            state.take_action(actions, None, self.num_envs)
            try:
                ledger.begin_all(STEP_ALL)
                status = self._lock_step(ledger.buffer)
                if not status & 3:
                    ledger.end_all()
            except BaseException:  # Ctrl-C
                state.cut()
                raise
            if status & 3:
                status = state.end_all(status)
            return self._batches.of_all(status)

    def step_async(self, actions: Any) -> None:
        """Starts a step of all environments; `step_wait` returns the result."""
        with self._lock:
            self._state.refuse_step("step_async")
            self._state.take_action(actions, None, self.num_envs)
            self._state.begin_all(STEP_ALL)

    def step_wait(self) -> Batch:
        """Returns the result of `step_async`, waiting for it if necessary.

        Raises:
            NothingPendingError: no step was started.
        """
        with self._lock:
            self._state.refuse_hosted("step_wait")
            if self._ledger.op != STEP_ALL:
                raise NothingPendingError(
                    "step_wait was called, but no step was started.  Call step_async(actions)"
                    " first."
                )
            return self._batches.of_all(self._state.end_all())

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Starts a step of some environments; `recv` returns results as they arrive, as in EnvPool.

        Args:
            actions: one action for each of `env_ids`, [n, ...].
            env_ids: int[n], usually `info["env_id"]` of the latest `recv`; None for all.
        """
        with self._lock:
            every_id = self._state.every_id
            is_all = env_ids is None or np.array_equal(env_ids, every_id)
            if is_all and self.batch_size == self.num_envs:
                self.step_async(actions)
                return
            ids = every_id if env_ids is None else self._ids(env_ids)
            if ids is not self._ledger.received or self.closed:
                self._state.refuse_hosted("send")
                self._ledger.refuse_busy("send", ids)
            self._begin_step("send", actions, ids)

    def recv(self) -> Batch:
        """Returns the first `batch_size` environments that finish their step or reset.

        If fewer environments are pending, returns those.

        Raises:
            NothingPendingError: no environment is pending.
        """
        with self._lock:
            self._state.refuse_hosted("recv")
            if self._ledger.op:
                return self._batches.of_all(self._state.end_all())
            if not self._ledger.num_pending:
                raise NothingPendingError(
                    "recv was called, but no environment has a pending result.  Call"
                    " send(actions, env_ids) or async_reset() first."
                )
            return self._batches.of_some(min(self.batch_size, self._ledger.num_pending))

    def _begin_step(self, what: str, actions: Any, ids: np.ndarray) -> None:
        self._ledger.refuse_unready(what, ids)
        self._state.take_action(actions, ids, len(ids))
        self._state.begin_some(STEP, ids)

    def _batch_of(self, ids: np.ndarray) -> Batch:
        """Waits for `ids`, which are all that is pending; returns their rows in this order."""
        try:
            return self._batches.of_some(len(ids), ids)
        except EnvTimeoutError:  # it can be waited for again
            raise
        except WorkerError:
            self._state.drop_pending()
            raise

    # --- inside compiled programs ---

    def xla(self) -> tuple[Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """Returns `handle, recv, send, step` for use in compiled programs, as in EnvPool.

            handle, batch = recv(handle)
            handle = send(handle, action, env_id)
            handle, batch = step(handle, action, env_id)

        A batch is `(observation, reward, terminated, truncated, info)`, and `info["env_id"]` is
        the environment of each row. Without `env_id`, actions are for all environments, in order.
        Each call takes the handle that the previous one returned. After the first call of `xla`,
        the pool's own `step`, `reset`, `send` and `recv` raise `PoolError`, so call `reset` or
        `async_reset` first. `jaxenvs.HostEnv` offers the same through the `VectorEnv` interface.
        """
        return self._xla_functions(self)

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


def state_of(pool: Pool) -> PoolState:
    """Returns the state of a pool, through which compiled programs step it."""
    return pool._state


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _disown_all() -> None:
    for pool in list(_pools):
        pool._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _close_unasked(backend: Backend) -> None:
    """Closes a pool that the user never closed, at garbage collection or at exit."""
    with contextlib.suppress(Exception):
        backend.close(1.0)
