"""The structs that native/xla.cc and Python share."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.memory.layout import Leaf, leaves_of
from jaxenvs.bridge.native.libraries import xla_library
from jaxenvs.bridge.pool import Pool
from jaxenvs.bridge.pool.actions import discrete_bounds
from jaxenvs.errors import PoolError

_FIRST_WAIT = 100_000_000  # ns, after which native/xla.cc lets Python wait


class Column(ctypes.Structure):  # jx_column
    """An array with a row for each environment."""

    _fields_ = (
        ("data", ctypes.c_void_p * 2),
        ("elements", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("low", ctypes.c_void_p),
        ("high", ctypes.c_void_p),
    )


class Hosted(ctypes.Structure):  # jx_hosted
    """A pool, as calls see it."""

    _fields_ = (
        ("pool", ctypes.c_void_p),
        ("ledger", ctypes.c_void_p),
        ("owners", ctypes.c_void_p),
        ("wait_ns", ctypes.c_int64),
        ("num_actions", ctypes.c_int32),
        ("num_observations", ctypes.c_int32),
        ("num_fields", ctypes.c_int32),
        ("has_final", ctypes.c_int32),
        *((name, ctypes.POINTER(Column)) for name in ("actions", "observations", "finals")),
        *((name, ctypes.POINTER(Column)) for name in ("fields", "final_fields")),
        *((name, Column) for name in ("reward", "terminated", "truncated", "elapsed")),
        ("restarted", Column),
        ("calls", ctypes.c_void_p),
        ("last", ctypes.c_void_p),
        ("closing", ctypes.c_uint32),
        ("waited_until", ctypes.c_int64),
    )


class _Array(ctypes.Structure):  # jx_array
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("size", ctypes.c_int32),
    )


class _Call(ctypes.Structure):  # jx_call
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("id", "calls", "operation", "count")),
        *((name, ctypes.c_int32) for name in ("wants_final", "has_begun")),
        ("since", ctypes.c_int64),
        ("operands", ctypes.POINTER(_Array)),
        ("results", ctypes.POINTER(_Array)),
        ("num_operands", ctypes.c_int32),
        ("num_results", ctypes.c_int32),
        ("error", ctypes.c_void_p),
        ("error_room", ctypes.c_int64),
    )


FAILED, DONE, INTERRUPTED = range(3)  # what `PERFORM` returns
PERFORM = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Call))


def arrays(found: Any, count: int) -> list[np.ndarray]:
    """Returns the operands or results of a call as one-dimensional arrays over their memory."""
    views = []
    for each in found[:count]:
        if not each.type:
            raise PoolError("a program passed an array of a dtype that pools do not know.")
        memory = (ctypes.c_uint8 * (each.elements * each.size)).from_address(each.data or 0)
        views.append(np.frombuffer(memory, chr(each.type)) if each.elements else np.empty(0))
    return views


def put_error(call: Any, text: str) -> None:
    """Returns an error to native/xla.cc; the end of a long text, which says most, is kept."""
    room = call.error_room - 1
    data = text.encode(errors="replace")
    if len(data) > room:
        data = data[: room // 2] + b"\n...\n" + data[len(data) - room // 2 + 5 :]
    ctypes.memmove(call.error, data + b"\0", len(data) + 1)


def interrupted_at() -> int:
    """Returns when Ctrl-C was last pressed, in ns of CLOCK_MONOTONIC."""
    return ctypes.c_int64.in_dll(xla_library(), "jaxenvs_interrupted_at").value


def hosted(pool: Pool) -> tuple[Hosted, tuple[Any, ...]]:
    """Returns the struct of a pool, and the objects that it points to."""
    backend: Any = pool._backend
    found, words, ledger = backend.arrays, backend.words, pool._core.ledger
    first, second = found.answers
    patience = pool._core.patience
    bounds = [_bounds(leaf, pool) for leaf in leaves_of(pool.single_action_space)]
    actions = [_column(array) for array in found.actions]
    for each, pair in zip(actions, bounds, strict=True):
        if pair is not None:
            each.low, each.high = (array.ctypes.data for array in pair)
    struct = Hosted(
        pool=ctypes.addressof(words.struct),
        ledger=ctypes.addressof(ledger),
        owners=backend.owners.ctypes.data,
        wait_ns=_FIRST_WAIT if patience is None else min(int(patience * 1e9), _FIRST_WAIT),
        num_actions=len(actions),
        num_observations=len(first.observation),
        num_fields=len(first.fields),
        has_final=pool.autoreset_mode == "same_step",
        actions=(Column * len(actions))(*actions),
        observations=_columns(first.observation, second.observation),
        finals=_columns(first.final_observation, second.final_observation),
        fields=_columns(first.fields, second.fields),
        final_fields=_columns(first.final_fields, second.final_fields),
        reward=_column(first.reward, second.reward),
        terminated=_column(first.terminated, second.terminated),
        truncated=_column(first.truncated, second.truncated),
        elapsed=_column(found.elapsed),
        restarted=_column(found.restarted),
    )
    return struct, (words, found, ledger, backend.owners, bounds)


def _column(*views: np.ndarray) -> Column:
    view = views[0]
    data = (ctypes.c_void_p * 2)(views[0].ctypes.data, views[-1].ctypes.data)
    elements = int(np.prod(view.shape[1:], dtype=np.int64))
    letter = {"q": "l", "Q": "L"}.get(view.dtype.char, view.dtype.char)
    return Column(data, elements, ord(letter), view.dtype.itemsize)


def _columns(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> Any:
    columns = [_column(a, b) for a, b in zip(first, second, strict=True)]
    return (Column * len(columns))(*columns)


def _bounds(leaf: Leaf, pool: Pool) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the least and the largest integers of an action, int64[elements] each.

    None if no values are refused. For floats the bounds are unused, but NaN is refused.
    """
    kind = leaf.dtype.kind
    if not pool._settings.validate or kind not in "iuf":
        return None
    bounds = discrete_bounds(leaf.space_in(pool.single_action_space))
    if bounds is None:
        limits = np.iinfo(np.int64 if kind == "f" else leaf.dtype)
        bounds = limits.min, min(limits.max, np.iinfo(np.int64).max)  # of uint64
    low, high = (np.broadcast_to(np.asarray(each, np.int64), leaf.shape) for each in bounds)
    return low.ravel(), high.ravel()
