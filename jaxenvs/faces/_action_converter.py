"""Validation of actions, and their transfer to the device."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxenvs.core import VectorEnv
from jaxenvs.errors import ActionError, describe
from jaxenvs.spaces import Dict, Discrete, Space, Tuple
from jaxenvs.spaces.space import ArraySpace

_ALIGNMENT = 64  # bytes; XLA uses host memory in place only if it is aligned to this


class ActionConverter:
    """Converts actions from a caller into the inputs of a compiled step.

    Passing a NumPy array to a compiled function takes about 3 us. On a CPU, one device array is
    therefore created over host memory once, and each batch of actions is copied there. That is
    safe because a step has finished before the next one starts.

    Args:
        env: the environment that takes the actions.
        device: the device that the step runs on.
        validate: whether to check the values of actions, too.
    """

    def __init__(self, env: VectorEnv, device: jax.Device, validate: bool) -> None:
        self._num_envs = env.num_envs
        self._validate = validate
        self.convert = self._make_converter(env.single_action_space, device, "")

    def _make_converter(self, space: Space, device: jax.Device, path: str) -> Callable[[Any], Any]:
        if isinstance(space, Dict):
            parts = {
                key: self._make_converter(sub, device, f"{path}[{key!r}]")
                for key, sub in space.spaces.items()
            }

            def convert_dict(actions: Any) -> Any:
                if not isinstance(actions, dict) or set(actions) != set(parts):
                    raise ActionError(
                        f"step got {describe(actions)}{_at(path)}; expected a dict with keys"
                        f" {sorted(parts)}."
                    )
                return {key: convert(actions[key]) for key, convert in parts.items()}

            return convert_dict
        if isinstance(space, Tuple):
            converters = [
                self._make_converter(sub, device, f"{path}[{i}]")
                for i, sub in enumerate(space.spaces)
            ]

            def convert_tuple(actions: Any) -> Any:
                if not isinstance(actions, (tuple, list)) or len(actions) != len(converters):
                    raise ActionError(
                        f"step got {describe(actions)}{_at(path)}; expected a tuple of"
                        f" {len(converters)} arrays."
                    )
                return tuple(
                    convert(part) for convert, part in zip(converters, actions, strict=True)
                )

            return convert_tuple
        assert isinstance(space, ArraySpace)
        return self._make_array_converter(space, device, path)

    def _make_array_converter(
        self, space: ArraySpace, device: jax.Device, path: str
    ) -> Callable[[Any], Any]:
        shape, dtype = (self._num_envs, *space.shape), space.dtype
        kinds = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}[dtype.kind]
        host, on_device = _shared_array(shape, dtype, device)
        copyto, casting = np.copyto, "same_kind" if dtype.kind != "u" else "unsafe"
        is_valid = _make_value_check(space, host) if self._validate else None

        def convert(actions: Any) -> Any:
            if type(actions) is not np.ndarray:
                actions = _to_array(actions, path)
            if actions.shape != shape or actions.dtype.kind not in kinds:
                raise ActionError(
                    f"step got an action of {describe(actions)}{_at(path)}; num_envs="
                    f"{self._num_envs} expects {dtype}{list(shape)}.  Pass one action per"
                    " instance; env.action_space.sample() returns an example."
                )
            copyto(host, actions, casting)
            if is_valid is not None and not is_valid(actions):
                raise ActionError(_invalid_values_message(space, actions, path))
            # Without shared memory the transfer is asynchronous, so it needs a copy of its own.
            return host.copy() if on_device is None else on_device

        return convert


def _at(path: str) -> str:
    return f" at action{path}" if path else ""


def _to_array(actions: Any, path: str) -> np.ndarray:
    if actions is None or isinstance(actions, (dict, str)):
        raise ActionError(f"step got {describe(actions)}{_at(path)}; expected an array.")
    if hasattr(actions, "detach"):  # a PyTorch tensor, possibly on another device
        actions = actions.detach().cpu()
    try:
        return np.asarray(actions)
    except ValueError as error:
        raise ActionError(f"step got actions that are not an array{_at(path)}: {error}.") from error


def _shared_array(
    shape: tuple[int, ...], dtype: np.dtype, device: jax.Device
) -> tuple[np.ndarray, jax.Array | None]:
    """Returns a host array and a device array that share memory, or None if not possible."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    host = raw[start : start + size].view(dtype).reshape(shape)
    if device.platform != "cpu" or not size:
        return host, None
    on_device = jax.device_put(host, device, may_alias=True)
    shared = on_device.unsafe_buffer_pointer() == host.ctypes.data
    return host, on_device if shared else None


def _make_value_check(space: ArraySpace, host: np.ndarray) -> Callable[[np.ndarray], bool]:
    """Returns a function that checks whether actions lie in `space`.

    Args:
        space: the space of one action.
        host: the array that holds a copy of the actions when the function is called. The function
            checks integers wider than its dtype in their original array, because the copy
            truncates them: 2**32 becomes 0.
    """
    largest, smallest = np.maximum.reduce, np.minimum.reduce
    if isinstance(space, Discrete) and int(space.start) == 0 and host.dtype == np.int32:
        # The most common case: as unsigned integers, negative numbers are large.
        unsigned, n, wide = host.view(np.uint32), int(space.n), np.uint64
        return lambda actions: (
            largest(actions.view(wide) if actions.itemsize == 8 else unsigned) < n
        )
    low, high = (np.broadcast_to(bound, host.shape[1:]) for bound in space.bounds)
    is_uniform = (low == low.flat[:1]).all() and (high == high.flat[:1]).all() and low.size
    first, last = (low.flat[0], high.flat[0]) if is_uniform else (low, high)
    is_integer, size = host.dtype.kind != "f", host.itemsize

    def is_valid(actions: np.ndarray) -> bool:
        source = actions if is_integer and actions.itemsize > size else host
        if is_uniform:
            return bool(first <= smallest(source, None) and largest(source, None) <= last)
        return bool(((first <= source) & (source <= last)).all())

    return is_valid


def _invalid_values_message(space: ArraySpace, actions: np.ndarray, path: str) -> str:
    low, high = space.bounds
    with np.errstate(invalid="ignore"):
        outside = ~((low <= actions) & (actions <= high))
    rows = np.flatnonzero(outside.reshape(len(actions), -1).any(axis=1))
    shown = ", ".join(str(row) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
    return (
        f"step got actions outside of {space}{_at(path)} in instances [{shown}], for example"
        f" {actions[rows[0]] if len(rows) else actions.flat[0]}."
        "  Clip them (jaxenvs.wrappers.ClipAction does), or pass validate=False to let the"
        " environment decide."
    )
