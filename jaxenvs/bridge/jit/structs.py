"""The structs that native/xla.cc and Python share."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxenvs.bridge.backends.backend import Settings
from jaxenvs.bridge.memory.layout import Leaf, leaves_of
from jaxenvs.bridge.pool.actions import discrete_bounds
from jaxenvs.bridge.pool.state import PoolState
from jaxenvs.errors import PoolError


class _Column(ctypes.Structure):  # jx_column
    _fields_ = (
        ("data", ctypes.c_void_p * 2),
        ("final", ctypes.c_void_p * 2),
        ("elements", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("low", ctypes.c_void_p),
        ("high", ctypes.c_void_p),
    )


class Hosted(ctypes.Structure):  # jx_hosted
    """A pool, as calls see it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("pool", "ledger", "owners")),
        ("wait_ns", ctypes.c_int64),
        *((name, ctypes.POINTER(_Column)) for name in ("actions", "results")),
        *((name, ctypes.c_int32) for name in ("num_actions", "num_results")),
        *((name, ctypes.c_int32) for name in ("first_final", "num_finals")),
        *((name, ctypes.c_void_p * 2) for name in ("terminated", "truncated")),
        *((name, ctypes.c_void_p) for name in ("restarted", "calls", "last")),
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


class Result(NamedTuple):
    """A result of a call, in each of the two buffers."""

    latest: tuple[np.ndarray, np.ndarray]
    final: tuple[np.ndarray, np.ndarray] | None = None  # where an episode ended, instead


def results(state: PoolState, wants_final: bool) -> list[Result]:
    """Returns the arrays from which a call is answered.

    They are: observation, reward, terminated, truncated, elapsed steps, restarted, ids, info
    fields; under same-step autoreset also final observations, if wanted, and final info fields.
    """
    arrays = state.backend.arrays
    first, second = arrays.answers

    def pairs(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
        return [*zip(getattr(first, name), getattr(second, name), strict=True)]

    flags = ("reward", "terminated", "truncated")
    latest = [*pairs("observation"), *((getattr(first, n), getattr(second, n)) for n in flags)]
    latest += [(each, each) for each in (arrays.elapsed, arrays.restarted, state.every_id)]
    found = [Result(pair) for pair in (*latest, *pairs("fields"))]
    if arrays.autoreset_mode == "same_step":
        for name in ("observation", "fields") if wants_final else ("fields",):
            found += map(Result, pairs(name), pairs(f"final_{name}"))
    return found


def hosted(state: PoolState) -> tuple[Hosted, tuple[Any, ...]]:
    """Returns the struct of a pool, and the objects that it points to."""
    backend: Any = state.backend
    arrays, channel, ledger = backend.arrays, backend.channel, state.ledger
    bounds = [_bounds(leaf, state.settings) for leaf in leaves_of(state.settings.action_space)]
    actions = [_column(Result((array, array))) for array in arrays.actions]
    for each, pair in zip(actions, bounds, strict=True):
        if pair is not None:
            each.low, each.high = (array.ctypes.data for array in pair)
    all_results = results(state, True)
    columns = [_column(result) for result in all_results]
    num_finals = len(columns) - len(results(state, False))
    num_fields = len(arrays.answers[0].fields)
    struct = Hosted(
        pool=ctypes.addressof(channel.struct),
        ledger=ctypes.addressof(ledger),
        owners=backend.owners.ctypes.data,
        wait_ns=int(state.patience * 1e9),  # then native/xla.cc lets Python wait
        actions=(_Column * len(actions))(*actions),
        results=(_Column * len(columns))(*columns),
        num_actions=len(actions),
        num_results=len(columns),
        first_final=len(columns) - num_fields - num_finals,
        num_finals=num_finals,
        terminated=_pointers([answer.terminated for answer in arrays.answers]),
        truncated=_pointers([answer.truncated for answer in arrays.answers]),
        restarted=arrays.restarted.ctypes.data,
    )
    return struct, (channel, arrays, ledger, backend.owners, bounds, all_results)


def _column(result: Result) -> _Column:
    view = result.latest[0]
    elements = int(np.prod(view.shape[1:], dtype=np.int64))
    letter = {"q": "l", "Q": "L"}.get(view.dtype.char, view.dtype.char)
    final = _pointers(result.final or ())
    return _Column(_pointers(result.latest), final, elements, ord(letter), view.dtype.itemsize)


def _pointers(views: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * 2)(*(view.ctypes.data for view in views))


def _bounds(leaf: Leaf, settings: Settings) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the least and the largest integers of an action, int64[elements] each.

    None if no values are refused. For floats the bounds are unused, but NaN is refused.
    """
    kind = leaf.dtype.kind
    if not settings.validate or kind not in "iuf":
        return None
    bounds = discrete_bounds(leaf.space_in(settings.action_space))
    if bounds is None:
        limits = np.iinfo(np.int64 if kind == "f" else leaf.dtype)
        bounds = limits.min, min(limits.max, np.iinfo(np.int64).max)  # of uint64
    low, high = (np.broadcast_to(np.asarray(each, np.int64), leaf.shape) for each in bounds)
    return low.ravel(), high.ravel()
