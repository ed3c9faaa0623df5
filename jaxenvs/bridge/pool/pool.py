"""Pools: batches of environments that are not written in JAX, stepped together or not."""

import contextlib
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode as GymAutoresetMode
from gymnasium.vector.utils import batch_space

from jaxenvs.bridge.backends.base import (
    RESET,
    RESET_ALL,
    STEP,
    STEP_ALL,
    Backend,
    Broken,
    Late,
    Post,
    Settings,
)
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.bridge.memory.arrays import MODES, AutoresetMode
from jaxenvs.bridge.memory.layout import leaves_in, tree_of
from jaxenvs.bridge.pool.actions import action_taker
from jaxenvs.bridge.pool.arguments import checked_ids, seeds_of, short, without_mask
from jaxenvs.bridge.pool.infos import merged, unpickled
from jaxenvs.bridge.pool.rows import Rows, copied, fields_of, spread
from jaxenvs.bridge.workers.instances import REMAKING
from jaxenvs.errors import (
    AlreadyPendingError,
    ClosedError,
    EnvTimeoutError,
    JaxenvsError,
    NothingPendingError,
    PoolError,
    WorkerError,
)

log = logging.getLogger("jaxenvs")

Batch = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]

_OWN_INFOS = ("env_id", "elapsed_step", "restarted", "final_obs", "final_info")
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
        *,
        batch_size: int,
        seed: int | Sequence[int] | None,
        settings: Settings,
        timeout: float | None,
        on_failure: Literal["raise", "restart"],
        copy: bool,
        name: str,
    ) -> None:
        self._backend = backend
        self._finalizer = weakref.finalize(self, _close_unasked, backend)
        _pools.add(self)
        self.num_envs = backend.plan.num_envs
        self.batch_size = batch_size
        self.name = name
        self._settings, self._mode_is_open = settings, settings.mode_is_open
        self._seed = seed
        # How long to wait before checking for environments that hang.
        self._patience = None if timeout is None else timeout / 2
        self._timeout, self._on_failure, self._copy = timeout, on_failure, copy
        facts = backend.facts[0]
        self.spec = facts["spec"]
        self.render_mode = facts["render_mode"]
        self.metadata = dict(facts["metadata"])
        self.agents: tuple[str, ...] = facts["agents"]
        self._take_mode(settings.autoreset_mode)
        self.info_fields = settings.info_fields
        self.single_observation_space = settings.observation_space
        self.single_action_space = settings.action_space
        self.observation_space = batch_space(settings.observation_space, self.num_envs)
        self.action_space = batch_space(settings.action_space, self.num_envs)
        self.closed = False
        self._hosted: Any = None  # a _hosted.Hosted, once compiled programs step the pool
        self._lock = threading.RLock()
        self._all_pending: int | None = None  # the pending operation of all environments
        self._busy = np.zeros(self.num_envs, bool)  # environments with a pending call of their own
        self._num_busy = 0
        self._ready = np.zeros(self.num_envs, bool)  # environments that have been reset
        self._all_ready = False
        self._seeded = np.zeros(self.num_envs, bool)  # environments that were ever reset
        self._was_cut = False  # Ctrl-C interrupted a call, which may still be running
        self._left: np.ndarray | None = None  # ids of a recv that raised; the next returns them
        self._fatal: list[Post] = []
        self._buffer = 0  # the buffer with the latest batch of all environments
        # Environments that were stepped separately since then: their rows are in the other buffer.
        self._elsewhere = np.zeros(self.num_envs, bool)
        self._any_elsewhere = False
        self._look_for_restarts = False
        self._take_action = action_taker(settings, backend.arrays.actions)
        self._batches = [Rows(settings, batch_size) for _ in range(2)]
        self._latest = 0
        self._every_id = np.arange(self.num_envs, dtype=np.int32)
        self._every_true = np.ones(self.num_envs, bool)
        self._every_false = np.zeros(self.num_envs, bool)
        for constant in (self._every_id, self._every_true, self._every_false):
            constant.flags.writeable = False
        self._reserved = frozenset((*_OWN_INFOS, *settings.info_fields))
        self._some_masks = self._masks(batch_size)
        self._received: np.ndarray | None = None  # the env_ids that the latest `recv` returned
        self._lock_step = backend.lock_step(self._patience)
        self._infos = {
            "env_id": self._every_id,
            "restarted": self._every_false,
            **self._masks(self.num_envs),
        }
        self._views = [self._answer_views(buffer) for buffer in range(2)]

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
        return self.num_envs if self._all_pending is not None else self._num_busy

    @property
    def unwrapped(self) -> "Pool":
        return self

    def __repr__(self) -> str:
        return (
            f"Pool({self.name!r}, num_envs={self.num_envs}, batch_size={self.batch_size},"
            f" backend={self.backend!r}, num_workers={self.num_workers})"
        )

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
            is_open = self._mode_is_open and not self._seeded.any()
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
        # The status bits that need infos: the end of an episode adds some under same-step only.
        self._telling = _lines.INFO | (_lines.DONE if mode == "same_step" else 0)

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
            self._refuse_busy("reset", ids)
            if self._num_busy:
                self._refuse_pending("reset of some")
            self._begin_reset(ids, seed, options, one_by_one=True)
            batch = self._collect(np.empty(len(ids), np.int32), order=ids)
            if mask is None:
                return batch[0], batch[4]
            return self._patched(ids, batch)

    def reset_async(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Starts a reset of all environments; `reset_wait` returns the result."""
        with self._lock:
            self._refuse_pending("reset")
            self._begin_reset(self._every_id, seed, options, one_by_one=False)

    def reset_wait(self) -> tuple[Any, dict[str, Any]]:
        """Returns the result of `reset_async`, waiting for it if necessary.

        Raises:
            NothingPendingError: no reset was started.
        """
        with self._lock:
            self._refuse_closed()
            if self._all_pending != RESET_ALL:
                raise NothingPendingError(
                    "reset_wait was called, but no reset was started.  Call reset_async() first."
                )
            batch = self._wait_for_all()
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
            ids = self._every_id if env_ids is None else self._ids(env_ids)
            if self.batch_size == self.num_envs and len(ids) == self.num_envs:
                self.reset_async(seed=seed, options=options)
                return
            self._refuse_busy("async_reset", ids)
            self._begin_reset(ids, seed, options, one_by_one=True)

    def _begin_reset(
        self, ids: np.ndarray, seed: Any, options: dict[str, Any] | None, *, one_by_one: bool
    ) -> None:
        if self._was_cut:
            self._drain()
        if seed is None and self._seed is not None:  # of the first reset of each
            own = seeds_of(self._seed, self._every_id)
            seed = [None if self._seeded[i] else own[i] for i in ids.tolist()]
        self._backend.arrays.seeds[ids] = seeds_of(seed, ids)
        self._tell_backend(self._backend.set_options, options)
        if one_by_one:
            self._start_some(RESET, ids)
        else:
            self._start_all(RESET_ALL)
        self._ready[ids] = self._seeded[ids] = True
        self._all_ready = bool(self._ready.all())

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
            if env_ids is not None:
                ids = self._ids(env_ids)
                if self._all_pending is not None or self._num_busy:
                    self._refuse_pending("step of some")
                self._begin_step(actions, ids)
                return self._collect(np.empty(len(ids), np.int32), order=ids)
            if self._all_pending is not None or self._num_busy or not self._all_ready:
                self._refuse_pending("step")  # also closed and hosted ones
            self._take_action(actions, None, self.num_envs)
            buffer = self._buffer ^ 1
            self._all_pending, self._buffer = STEP_ALL, buffer
            if self._any_elsewhere:
                self._all_are_here()
            try:
                status = self._lock_step(buffer)
                if not status & 3:
                    self._all_pending = None
                    return self._batch_of_all(buffer, status)
            except JaxenvsError:
                raise
            except BaseException:
                self._lose_track()
                raise
            return self._wait_for_all(status)

    def step_async(self, actions: Any) -> None:
        """Starts a step of all environments; `step_wait` returns the result."""
        with self._lock:
            self._refuse_pending("step_async")
            self._take_action(actions, None, self.num_envs)
            self._start_all(STEP_ALL)

    def step_wait(self) -> Batch:
        """Returns the result of `step_async`, waiting for it if necessary.

        Raises:
            NothingPendingError: no step was started.
        """
        with self._lock:
            self._refuse_closed()
            if self._all_pending != STEP_ALL:
                raise NothingPendingError(
                    "step_wait was called, but no step was started.  Call step_async(actions)"
                    " first."
                )
            return self._wait_for_all()

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Starts a step of some environments; `recv` returns results as they arrive, as in EnvPool.

        Args:
            actions: one action for each of `env_ids`, [n, ...].
            env_ids: int[n], usually `info["env_id"]` of the latest `recv`; None for all.
        """
        with self._lock:
            if self.batch_size == self.num_envs and (env_ids is None or self._are_all(env_ids)):
                self.step_async(actions)
            else:
                ids = self._every_id if env_ids is None else self._ids(env_ids)
                self._begin_step(actions, ids)

    def recv(self) -> Batch:
        """Returns the first `batch_size` environments that finish their step or reset.

        If fewer environments are pending, returns those.

        Raises:
            NothingPendingError: no environment is pending.
        """
        with self._lock:
            self._refuse_closed()
            self._refuse_hosted("recv")
            if self._all_pending is not None:
                return self._wait_for_all()
            if not self._num_busy:
                raise NothingPendingError(
                    "recv was called, but no environment has a pending result.  Call"
                    " send(actions, env_ids) or async_reset() first."
                )
            count = min(self.batch_size, self._num_busy)
            return self._collect(np.empty(count, np.int32), keep=True)

    def _begin_step(self, actions: Any, ids: np.ndarray) -> None:
        if ids is not self._received or self._all_pending is not None or self.closed:
            self._refuse_busy("send", ids)
        if not self._all_ready and not self._ready[ids].all():
            missing = ids[~self._ready[ids]].tolist()
            raise PoolError(
                f"environments {short(missing)} were stepped before they were reset."
                "  Call reset() or async_reset() first."
            )
        self._take_action(actions, ids, len(ids))
        self._start_some(STEP, ids)

    def _start_all(self, op: int) -> None:
        self._received = None
        self._buffer ^= 1
        self._all_pending = op
        self._all_are_here()
        try:
            self._backend.start_all(op, self._buffer)
        except JaxenvsError:  # the backend refused and started nothing
            self._all_pending = None
            raise
        except BaseException:
            self._lose_track()
            raise

    def _all_are_here(self) -> None:
        self._elsewhere[:] = self._any_elsewhere = False

    def _start_some(self, op: int, ids: np.ndarray) -> None:
        self._received = None
        self._elsewhere[ids] = self._any_elsewhere = True
        self._busy[ids] = True
        self._num_busy += len(ids)
        try:
            # Not the buffer of the latest batch of all, which the caller may still be reading.
            self._backend.start_some(op, self._buffer ^ 1, np.ascontiguousarray(ids, np.int32))
        except JaxenvsError:  # the backend refused and started nothing
            self._busy[ids] = False
            self._num_busy -= len(ids)
            raise
        except BaseException:
            self._lose_track()
            raise

    def _wait_for_all(self, status: int | None = None) -> Batch:
        buffer = self._buffer
        status = self._waited(lambda time: self._backend.wait_all(buffer, time), status)
        self._all_pending = None
        return self._batch_of_all(buffer, status)

    def _waited(self, wait: Callable[[Any], int], status: int | None = None) -> int:
        try:
            while True:
                if status is None:
                    status = wait(self._patience)
                if not status & 3:
                    return status
                if status == _lines.TIMEOUT and self._timeout:
                    stuck = self._backend.stuck(self._timeout)
                    if stuck:
                        self._handle_hang(stuck)
                status = None
        except JaxenvsError:
            raise
        except BaseException:
            self._lose_track()
            raise

    def _lose_track(self) -> None:
        """Requires a reset after Ctrl-C, since the state of the environments is unknown."""
        self._all_pending, self._num_busy, self._all_ready = None, 0, False
        self._busy[:] = self._ready[:] = False
        self._left, self._was_cut, self._received = None, True, None

    def _drain(self) -> None:
        """Waits for the call that Ctrl-C interrupted and drops its result."""
        self._backend.forget()
        self._waited(lambda time: self._backend.wait_all(self._buffer, time))
        self._backend.read_posts()
        self._was_cut = False

    def _handle_hang(self, stuck: list[int]) -> None:
        what = self._too_late(stuck)
        if self._on_failure == "restart" and self._backend.restart(stuck):
            log.warning("%s; constructing them again", what)
            return
        again = {STEP_ALL: "step_wait() or recv()", RESET_ALL: "reset_wait()", None: "recv()"}
        wait = f"Wait again with {again[self._all_pending]}, close"
        if self._hosted is not None:
            wait = "Close"
        advice = f'{wait} the pool, or make it with on_failure="restart".'
        raise _timeout_error(f"{what}.  {advice}", stuck)

    def _too_late(self, ids: list[int]) -> str:
        names = f"environments {short(ids)}" if len(ids) > 1 else f"environment {ids[0]}"
        return f'{names} ("{self.name}") did not answer within {self._timeout:g} s'

    # --- results ---

    def _batch_of_all(self, buffer: int, status: int) -> Batch:
        infos = self._infos.copy()
        infos["elapsed_step"] = self._backend.arrays.elapsed.copy()
        if status & _lines.ATTENTION or self._look_for_restarts:
            self._attend(status)
            infos["restarted"] = self._take_restarted(self._every_id)
        if self._backend.makes_batches:
            observation, reward, terminated, truncated, own = self._backend.batch()
            own.update(infos)
            return observation, reward, terminated, truncated, own
        observation, reward, terminated, truncated, fields = self._views[buffer]
        if self._copy:
            observation = copied(observation)
            reward, terminated, truncated = reward.copy(), terminated.copy(), truncated.copy()
        if fields:
            infos.update(copied(fields) if self._copy else fields)
        if status & self._telling:
            self._add_infos(infos, buffer, self._every_id, terminated | truncated)
        return observation, reward, terminated, truncated, infos

    def _collect(
        self, ids: np.ndarray, order: np.ndarray | None = None, *, keep: bool = False
    ) -> Batch:
        """Waits for len(ids) environments to finish and gathers their rows into one batch.

        If an environment failed and `keep` is true, the next call returns the finished rows.
        """
        try:
            return self._collected(ids, order, keep)
        except JaxenvsError:
            raise
        except BaseException:
            self._lose_track()
            raise

    def _collected(self, ids: np.ndarray, order: np.ndarray | None, keep: bool) -> Batch:
        if self._left is not None:
            ids, status = self._left, 0
        else:
            status = self._waited(lambda time: self._backend.take(ids, time))
        self._left = None
        if keep and status & _lines.ATTENTION:
            self._left = ids
            self._attend(status)
            self._left, status = None, 0
        if order is not None:
            ids[:] = order  # all are there, so the rows can have the requested order
        self._busy[ids] = False
        self._num_busy -= len(ids)
        if order is None and not self._copy:  # `send` need not check this array again
            ids.flags.writeable = False
            self._received = ids
        attended = status & _lines.ATTENTION or self._look_for_restarts
        if attended:
            self._attend(status)
        arrays, buffer = self._backend.arrays, self._buffer ^ 1
        answer = arrays.answers[buffer]
        if self._backend.makes_batches:
            observation, reward, terminated, truncated, fields = self._backend.batch(order)
        else:
            if self._copy or len(ids) > self.batch_size:
                rows = Rows(self._settings, len(ids))
            else:
                self._latest ^= 1
                rows = self._batches[self._latest]
            observation, reward, terminated, truncated, fields = rows.gather(answer, ids)
        count = len(ids)
        infos = {
            **fields,
            "env_id": ids,
            "elapsed_step": arrays.elapsed[ids],
            "restarted": self._take_restarted(ids) if attended else self._every_false[:count],
            **(self._some_masks if count == self.batch_size else self._masks(count)),
        }
        if self._backend.makes_batches:
            return observation, reward, terminated, truncated, infos
        done = None
        if self.autoreset_mode == "same_step":
            done = terminated | truncated
        if answer.info_size[ids].any() or (done is not None and done.any()):
            self._add_infos(infos, buffer, ids, terminated | truncated)
        return observation, reward, terminated, truncated, infos

    def _masks(self, count: int) -> dict[str, np.ndarray]:
        """Returns the masks of the info entries that every row of a batch has."""
        every = self._every_true[:count]
        names = ("env_id", "elapsed_step", "restarted", *self._settings.info_fields)
        return {f"_{name}": every for name in names}

    def _patched(self, ids: np.ndarray, batch: Batch) -> tuple[Any, dict[str, Any]]:
        """Returns all N observations: those of `ids` from `batch`, the others unchanged."""
        answers = self._backend.arrays.answers
        latest, following = (answers[b].observation for b in (self._buffer, self._buffer ^ 1))
        parts = leaves_in(batch[0], self.single_observation_space)
        here = ~self._elsewhere
        for i, part in enumerate(parts):
            following[i][here] = latest[i][here]
            following[i][ids] = part
        self._all_are_here()
        self._buffer ^= 1  # the previous batch stays valid
        infos = spread(batch[4], ids, self.num_envs)
        infos["env_id"] = self._every_id
        observation = tree_of(self.single_observation_space, iter(following))
        return copied(observation) if self._copy else observation, infos

    def _add_infos(
        self, infos: dict[str, Any], buffer: int, ids: np.ndarray, done: np.ndarray
    ) -> None:
        answer = self._backend.arrays.answers[buffer]
        sizes = answer.info_size[ids]
        own: list[tuple[int, Mapping[str, Any]]] = []
        final: dict[int, Mapping[str, Any]] = {}
        rows = np.flatnonzero(sizes)
        kept = rows[sizes[rows] < 0]
        data_of: dict[int, Any] = {}
        if len(kept):
            found = self._tell_backend(
                self._backend.message, "kept_info", ids[kept].tolist(), buffer
            )
            data_of = dict(zip(kept.tolist(), found, strict=True))
        for row in rows.tolist():
            data = data_of.get(row)
            if data is None:
                data = answer.info[ids[row], : sizes[row]].data
            try:
                info, final[row] = unpickled(data)
            except Exception as error:
                log.warning(
                    'the info of environment %d ("%s") cannot be unpickled, and is left out: %r',
                    *(ids[row], self.name, error),
                )
                continue
            if not self._reserved.isdisjoint(info):
                info = {name: info[name] for name in info if name not in self._reserved}
            own.append((row, info))
        count = len(ids)
        merged(infos, own, count)
        if self.autoreset_mode == "same_step" and done.any():
            observations = np.full(count, None, object)
            for row in np.flatnonzero(done).tolist():
                leaves = (array[ids[row]].copy() for array in answer.final_observation)
                observations[row] = tree_of(self.single_observation_space, leaves)
            final_info: dict[str, Any] = {}
            merged(final_info, final.items(), count)
            infos.update(
                final_obs=observations,
                _final_obs=done.copy(),
                final_info=final_info,
                _final_info=done.copy(),
            )

    def _answer_views(self, buffer: int) -> tuple[Any, ...]:
        answer = self._backend.arrays.answers[buffer]
        observation = tree_of(self.single_observation_space, iter(answer.observation))
        fields = fields_of(self._settings, answer.fields)
        return observation, answer.reward, answer.terminated, answer.truncated, fields

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
        from jaxenvs.bridge.jit.host_env import xla_functions

        return xla_functions(self)

    # --- faults ---

    def _attend(self, status: int) -> None:
        self._refuse_closed()  # another thread may have closed the pool
        self._look_for_restarts = True
        failures, odd = [], []
        for post in self._backend.read_posts() if status & _lines.ATTENTION else ():
            if post.what == "warning":
                odd.append(post)
            elif self._on_failure == "restart" and not post.fatal and post.what != REMAKING:
                log.warning("%s", self._message_of(post))
            else:
                failures.append(post)
        if odd:
            more = f", and {len(odd) - 1} others did the same" if len(odd) > 1 else ""
            message = f"{odd[0].text}{more}.  Pass validate=False to turn this warning off."
            warnings.warn(message, stacklevel=4)
        if failures:
            self._fatal = [post for post in failures if post.fatal]
            if self._fatal:
                self._all_ready = False  # makes step take the slow path, which raises
            raise self._error(failures)

    def _error(self, posts: Sequence[Post]) -> WorkerError:
        error = WorkerError("\n".join(map(self._message_of, posts)))
        ids = (self._every_id if post.instance < 0 else (post.instance,) for post in posts)
        error.env_ids = tuple(int(i) for each in ids for i in each)
        return error

    def _message_of(self, post: Post) -> str:
        where = "" if post.worker is None else f", worker {post.worker}, process {post.pid}"
        kind = post.text.strip().rsplit("\n", 1)[-1]
        who = f"environment {post.instance}" if post.instance >= 0 else "the vectorized environment"
        head = f'{who} ("{self.name}"{where}) failed in {post.what}: {kind}'
        if post.fatal:
            head += "\n  The pool cannot continue.  Close it and make another."
        elif post.what in ("step", "reset") and post.instance >= 0:
            head += '\n  It was constructed again, reset, and flagged in info["restarted"].'
        return f"{head}\n  Its traceback:\n{post.text}"

    def _take_restarted(self, ids: np.ndarray) -> np.ndarray:
        restarted = self._backend.arrays.restarted
        found = restarted[ids]
        restarted[ids] = False
        self._look_for_restarts = bool(restarted.any())
        return found

    def _tell_backend(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Broken as error:
            raise self._error([error.post]) from None
        except Late as late:
            ids = [int(i) for i in late.instances]
            what = self._too_late(ids)
            if self._on_failure == "restart" and self._backend.restart(ids):
                what += ", and will be constructed again"
            raise _timeout_error(f"{what}.", ids) from None

    # --- misuse ---

    def _refuse_closed(self) -> None:
        if self.closed:
            why = "was used after close()"
            if self._backend._owner not in (None, os.getpid()):
                why = f"belongs to process {self._backend._owner}, which this process forked from"
            raise ClosedError(f"{self!r} {why}.  Make another pool.")
        if self._fatal:
            raise self._error(self._fatal)

    def _refuse_hosted(self, what: str) -> None:
        if self._hosted is not None:
            raise PoolError(
                f"{what} was called on {self!r}, which is stepped by compiled programs.  Use its"
                " HostEnv, or make another pool."
            )

    def _refuse_pending(self, what: str) -> None:
        self._refuse_closed()
        self._refuse_hosted(what)
        if self._all_pending is not None or self._num_busy:
            begun = "a step" if self._all_pending == STEP_ALL else "a reset"
            waits = "step_wait() or recv()" if self._all_pending == STEP_ALL else "reset_wait()"
            if self._all_pending is None:
                begun, waits = "send or async_reset", "recv()"
            busy = "all environments"
            if self._num_busy:
                busy = f"environments {short(np.flatnonzero(self._busy).tolist())}"
            raise AlreadyPendingError(
                f"{what} was called while the result of {begun} is still pending for {busy}."
                f"  Call {waits} first."
            )
        if "reset" not in what and not self._all_ready:
            raise PoolError(
                f"{what} was called before environments"
                f" {short(np.flatnonzero(~self._ready).tolist())} were reset.  Call reset() first."
            )

    def _refuse_busy(self, what: str, ids: np.ndarray) -> None:
        self._refuse_closed()
        if what in ("send", "reset", "async_reset"):
            self._refuse_hosted(what)
        if self._all_pending is not None:
            self._refuse_pending(what)
        if self._num_busy and self._busy[ids].any():
            raise AlreadyPendingError(
                f"{what} was called for environments {short(ids[self._busy[ids]].tolist())},"
                " whose last result is still pending.  Call recv() first."
            )

    def _ids(self, env_ids: Any) -> np.ndarray:
        if env_ids is self._received and env_ids is not None:
            return env_ids  # it is read-only, and nothing was started since
        return checked_ids(env_ids, self.num_envs)

    def _are_all(self, env_ids: Any) -> bool:
        return np.array_equal(env_ids, self._every_id)

    # --- between steps ---

    def render(self, env_ids: Any = None) -> tuple[Any, ...]:
        """Returns the result of `render` of each environment, or of the given ones."""
        return self.call("render", env_ids=env_ids)

    def call(self, name: str, *args: Any, env_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method, or reads an attribute, of each environment or of the given ones.

        Raises:
            AlreadyPendingError: an environment is being stepped.
            WorkerError: an environment raised.
        """
        with self._lock:
            ids = self._every_id if env_ids is None else self._ids(env_ids)
            self._refuse_busy(f"call({name!r})", ids)
            return tuple(self._ask_between_steps("call", ids.tolist(), name, args, kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment; a list or tuple holds one value for each."""
        with self._lock:
            self._refuse_busy(f"set_attr({name!r})", self._every_id)
            each = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
            if len(each) != self.num_envs:
                raise PoolError(
                    f'set_attr("{name}") got {len(each)} values for num_envs={self.num_envs}.'
                    "  Pass one value for each environment, or a single value for all."
                )
            ids = self._every_id.tolist()
            self._ask_between_steps("set_attr", ids, name, each)

    def _ask_between_steps(self, kind: str, ids: list[int], *what: Any) -> Any:
        """Sends the backend a message while no compiled program steps the pool."""
        if self._hosted is not None:
            self._hosted.hold()
        try:
            return self._tell_backend(self._backend.message, kind, ids, *what)
        finally:
            if self._hosted is not None:
                self._hosted.release()

    def close(self, *, grace: float = _GRACE, **kwargs: Any) -> None:
        """Closes all environments and stops all workers. A second call does nothing.

        Args:
            grace: seconds that the environments get for `close`; then their processes are killed.

        Raises:
            WorkerError: the `close` of an environment raised; the pool is closed nevertheless.
        """
        if self._hosted is not None and not self.closed:
            self._hosted.wait_for_programs(grace)
        is_free = self._lock.acquire(timeout=grace)  # false: another thread is waiting in a call
        try:
            if self.closed:
                return
            self.closed = True
            if self._hosted is not None:
                self._hosted.close()
            if self._finalizer.detach() is None:
                return
            self._all_ready = False
            posts = self._backend.close(grace if is_free else 0)
        finally:
            if is_free:
                self._lock.release()
        if posts and self._on_failure == "raise":
            raise self._error(posts)
        for post in posts:
            log.warning("%s", self._message_of(post))

    def _disown(self) -> None:
        """Leaves the environments to the parent process, in a forked child."""
        self._lock = threading.RLock()
        if self._backend._owner is not None:
            self._finalizer.detach()
            self.closed, self._all_ready = True, False

    def __del__(self) -> None:  # overrides Gymnasium's, which closes; the finalizer does that here
        pass


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _disown_all() -> None:
    for pool in list(_pools):
        pool._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _timeout_error(message: str, ids: Sequence[int]) -> EnvTimeoutError:
    error = EnvTimeoutError(message)
    error.env_ids = tuple(ids)
    return error


def _close_unasked(backend: Backend) -> None:
    """Closes a pool that the user never closed, at garbage collection or at exit."""
    with contextlib.suppress(Exception):
        backend.close(1.0)
