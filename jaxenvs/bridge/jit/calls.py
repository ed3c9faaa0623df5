"""One call of a pool in a compiled program: by custom call (XLA FFI), or by callback."""

import contextlib
import functools
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback

from jaxenvs.bridge.jit.hosted import Call, Hosted
from jaxenvs.bridge.native.libraries import xla_library
from jaxenvs.errors import PoolError

_TARGET = "jaxenvs_pool_call"


def called(
    name: str, path: str | None, call: Call, results: Sequence[Any], *operands: Any
) -> list[Any]:
    """Calls the pool that a token names; refuses `vmap`.

    Args:
        name: of the HostEnv.
        path: "ffi" or "callback".
        call: what to do; `calls` is not used, because the token has it.
        results: the shapes and dtypes of the results; the first is the token, int32[1, 2].
        operands: the token, and those of the call.
    """
    by_path = _by_ffi if path == "ffi" else _by_callback

    @jax.custom_batching.custom_vmap
    def guarded(*arguments: Any) -> list[Any]:
        return by_path(call, results, *arguments)

    @guarded.def_vmap
    def refuse(axis_size: int, in_batched: Any, *arguments: Any) -> Any:
        raise PoolError(
            f"{name} was called under vmap, which would need {axis_size} copies of its"
            " environments.  Make a larger pool, or several pools and call each; apply vmap to the"
            " policy and the loss only."
        )

    return guarded(*operands)


def _by_ffi(call: Call, results: Sequence[Any], *arguments: Any) -> list[Any]:
    _register_target()
    attributes = {
        "operation": np.int32(call.operation),
        "count": np.int32(call.num_rows),
        "wants_final": np.int32(call.wants_final),
    }
    ffi_call = jax.ffi.ffi_call(_TARGET, results, has_side_effect=True)
    return list(ffi_call(*arguments, **attributes))


@functools.cache
def _register_target() -> None:
    handler = jax.ffi.pycapsule(xla_library().jaxenvs_pool_call_handler)
    # Once a backend runs, a handler that XLA refuses (too old, for example) is an ordinary error;
    # before that, it would keep every backend from starting.
    with contextlib.suppress(RuntimeError):
        jax.devices("cpu")
    jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")


def _by_callback(call: Call, results: Sequence[Any], *arguments: Any) -> list[Any]:
    def perform(token: Any, *operands: Any) -> list[np.ndarray]:
        # Nothing here may call JAX: on a CPU it would wait for the program that waits for this.
        ((id, calls),) = np.asarray(token).tolist()
        hosted = Hosted.find(id)
        given = [np.asarray(part).copy() for part in operands]  # the program reuses its memory
        try:
            outputs = hosted.called_back(call._replace(calls=calls), given)
        except KeyboardInterrupt:
            # JAX turns it into an error of its own, so raise it again outside of the callback.
            threading.Thread(target=_interrupt_again, daemon=True).start()
            raise
        token = np.array([[id, hosted.calls]], np.int32)
        found = [
            np.ascontiguousarray(part, result.dtype)
            for part, result in zip([token, *outputs], results, strict=True)
        ]
        for part, result in zip(found, results, strict=True):
            if part.shape != result.shape:
                raise hosted.of_another_kind()
        return found

    def in_place(_: Any, memory: Sequence[Any], *arguments: Any) -> None:
        for target, part in zip(memory, perform(*arguments), strict=True):
            np.asarray(target)[...] = part

    if jax.default_backend() == "cpu":  # where it takes less than a tenth of the time
        return list(buffer_callback(in_place, results, has_side_effect=True)(*arguments))
    return list(io_callback(perform, results, *arguments, ordered=False))


def _interrupt_again() -> None:
    """Raises KeyboardInterrupt in the main thread once it has left the callback."""
    callbacks = io_callback, buffer_callback
    inside = __file__, *(sys.modules[each.__module__].__file__ for each in callbacks)
    main = threading.main_thread().ident or 0
    while (frame := sys._current_frames().get(main)) is not None and any(
        each.f_code.co_filename in inside for each, _ in traceback.walk_stack(frame)
    ):
        time.sleep(1e-4)
    signal.pthread_kill(main, signal.SIGINT)
