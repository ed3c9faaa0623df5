"""Pools: batches of environments that are not written in JAX, stepped together or not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.memory.channel import RESET, RESET_ALL, STEP, STEP_ALL
from jaxenvs.bridge.pool.arguments import seeds_of, without_mask
from jaxenvs.bridge.pool.batches import Batch
from jaxenvs.bridge.pool.pool_base import PoolBase
from jaxenvs.errors import EnvTimeoutError, NothingPendingError, PoolError, WorkerError


class Pool(PoolBase):
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
