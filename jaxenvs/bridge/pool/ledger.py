"""The state of a pool: which environments are pending or ready, which buffer is current.

Every way to step a pool goes through this one account: `step`, `send` and `recv`, and compiled
programs, whose calls in native/xla.cc read and write the same struct.
"""

import ctypes

import numpy as np

from jaxenvs.bridge.memory.channel import STEP_ALL
from jaxenvs.bridge.pool.arguments import short
from jaxenvs.errors import AlreadyPendingError, PoolError


class Ledger(ctypes.Structure):  # jx_ledger
    """The account of N environments.

    Either all of them are pending together (`op`), or some are by themselves (`busy`).

    Attributes:
        op: the pending operation of all environments, STEP_ALL or RESET_ALL, or 0.
        num_pending: the environments whose results were not returned yet.
        buffer: the buffer with the latest batch of all; batches of some use the other.
        calls: the number of calls of compiled programs, modulo 2**31.
        busy: bool[N], the environments that are pending by themselves.
        ready: bool[N], the environments that may be stepped: they were reset.
        all_ready: whether all may be stepped. Also false where `step` has to raise an error.
        seeded: bool[N], the environments that were ever reset.
        elsewhere: bool[N], the environments whose latest row is in the buffer of some.
        received: the ids that the latest `recv` returned, if nothing was started since.
        was_cut: whether Ctrl-C interrupted a call, so that workers may still be busy.
    """

    _fields_ = (
        ("busy_address", ctypes.c_void_p),
        ("num_envs", ctypes.c_int32),
        ("num_pending", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("buffer", ctypes.c_int32),
        ("calls", ctypes.c_int32),
    )

    def __init__(self, num_envs: int) -> None:
        self.busy, self.ready, self.seeded, self.elsewhere = np.zeros((4, num_envs), bool)
        super().__init__(busy_address=self.busy.ctypes.data, num_envs=num_envs)
        self.all_ready = self.any_elsewhere = self.was_cut = False
        self.received: np.ndarray | None = None

    # --- events ---

    def reset(self, ids: np.ndarray) -> None:
        """Records that environments are reset, and may be stepped after that."""
        self.ready[ids] = self.seeded[ids] = True
        self.all_ready = bool(self.ready.all())

    def begin_all(self, op: int) -> None:
        """Records that all were asked for STEP_ALL or RESET_ALL."""
        self.buffer ^= 1
        self.op, self.num_pending, self.received = op, self.num_envs, None
        if self.any_elsewhere:
            self.gather()

    def begin_some(self, ids: np.ndarray) -> None:
        """Records that each of `ids` was asked for a step or a reset."""
        self.busy[ids] = self.elsewhere[ids] = self.any_elsewhere = True
        self.num_pending += len(ids)
        self.received = None

    def end_all(self) -> None:
        """Records that nothing is pending any more."""
        if not self.op:
            self.busy[:] = False
        self.op = self.num_pending = 0

    def end_some(self, ids: np.ndarray) -> None:
        """Records that the results of `ids` were returned."""
        self.busy[ids] = False
        self.num_pending -= len(ids)

    def gather(self) -> None:
        """Records that the latest rows of all are in one buffer."""
        self.elsewhere[:] = self.any_elsewhere = False

    def cut(self) -> None:
        """Requires a reset after Ctrl-C, since the state of the environments is unknown."""
        self.end_all()
        self.ready[:] = self.all_ready = False
        self.received, self.was_cut = None, True

    def count_call(self) -> None:
        """Invalidates the state of the program that makes this call."""
        self.calls = (self.calls + 1) & 0x7FFFFFFF

    # --- misuse ---

    def refuse_pending(self, what: str, wait: str | None = None) -> None:
        """Raises AlreadyPendingError if a result is pending.

        Args:
            what: the call that is refused.
            wait: what waits for results; None for the pool's own method.
        """
        if not self.num_pending:
            return
        busy = "all environments"
        if self.op:
            is_step = self.op == STEP_ALL
            begun = "a step" if is_step else "a reset"
            waits = "step_wait() or recv()" if is_step else "reset_wait()"
        else:
            begun, waits = "send or async_reset", "recv()"
            busy = f"environments {short(np.flatnonzero(self.busy).tolist())}"
        raise AlreadyPendingError(
            f"{what} was called while the result of {begun} is still pending for {busy}."
            f"  Call {wait or waits} first."
        )

    def refuse_busy(self, what: str, ids: np.ndarray) -> None:
        """Raises AlreadyPendingError if a result of `ids` is pending."""
        if self.op:
            self.refuse_pending(what)
        if self.num_pending and self.busy[ids].any():
            raise AlreadyPendingError(
                f"{what} was called for environments {short(ids[self.busy[ids]].tolist())},"
                " whose last result is still pending.  Call recv() first."
            )

    def refuse_unready(self, what: str, ids: np.ndarray) -> None:
        """Raises PoolError if some of `ids` were not reset."""
        if not self.all_ready and not self.ready[ids].all():
            raise PoolError(
                f"{what} was called before environments"
                f" {short(ids[~self.ready[ids]].tolist())} were reset.  Call reset() first."
            )
