"""Actions on their way in: checked, and put where the compiled step reads them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxenvs.core import VectorEnv
from jaxenvs.errors import ActionError, describe
from jaxenvs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

_ALIGNMENT = 64  # bytes, from which XLA takes host memory as it is


class Actions:
    """Turns what the caller passes as actions into what a compiled step takes.

    Handing a NumPy array to a compiled function costs some 3 us. So, on a CPU, one array of the
    device is laid over host memory once, and each batch of actions is copied there: nothing is in
    flight then, since a step is waited for before the next begins.

    Structure, shape and dtype are looked at by `convert`. Looking at the values takes longer, and
    can be done while the step is under way: by `check`, which is None where there is nothing to do.

    Args:
        env: whose actions they are.
        device: where the step runs.
        validate: whether to look at values.
    """

    def __init__(self, env: VectorEnv, device: jax.Device, validate: bool) -> None:
        self._num_envs = env.num_envs
        self._validate = validate
        self._checks: list[Callable[[], None]] = []
        self.convert = self._converter(env.single_action_space, device, "")

    def check(self) -> None:
        """Looks at the values of what was converted last.

        Raises:
            ActionError: some are out of range, or not a number.
        """
        for check in self._checks:
            check()

    def _converter(self, space: Space, device: jax.Device, where: str) -> Callable[[Any], Any]:
        if isinstance(space, Dict):
            parts = {
                key: self._converter(sub, device, f"{where}[{key!r}]")
                for key, sub in space.spaces.items()
            }

            def convert_dict(actions: Any) -> Any:
                if not isinstance(actions, dict) or set(actions) != set(parts):
                    raise ActionError(
                        f"step got {describe(actions)}{_at(where)}; expected a dict with keys"
                        f" {sorted(parts)}."
                    )
                return {key: convert(actions[key]) for key, convert in parts.items()}

            return convert_dict
        if isinstance(space, Tuple):
            converters = [
                self._converter(sub, device, f"{where}[{i}]") for i, sub in enumerate(space.spaces)
            ]

            def convert_tuple(actions: Any) -> Any:
                if not isinstance(actions, (tuple, list)) or len(actions) != len(converters):
                    raise ActionError(
                        f"step got {describe(actions)}{_at(where)}; expected a tuple of"
                        f" {len(converters)} arrays."
                    )
                return tuple(
                    convert(part) for convert, part in zip(converters, actions, strict=True)
                )

            return convert_tuple
        return self._array_converter(space, device, where)

    def _array_converter(
        self, space: Space, device: jax.Device, where: str
    ) -> Callable[[Any], Any]:
        shape = (self._num_envs, *(space.shape or ()))
        dtype = np.dtype(space.dtype)
        kinds = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}[dtype.kind]
        host, on_device = _shared_array(shape, dtype, device)
        copyto, casting = np.copyto, "same_kind" if dtype.kind != "u" else "unsafe"
        given: Any = None  # what was converted last

        def convert(actions: Any) -> Any:
            nonlocal given
            if type(actions) is not np.ndarray:
                actions = _as_array(actions, where)
            if actions.shape != shape or actions.dtype.kind not in kinds:
                raise ActionError(
                    f"step got an action of {describe(actions)}{_at(where)}; num_envs="
                    f"{self._num_envs} expects {dtype}{list(shape)}.  Pass one action per"
                    " instance; env.action_space.sample() shows the form."
                )
            copyto(host, actions, casting)
            given = actions
            # Where memory is not shared, the copy that crosses must not be written to again.
            return host.copy() if on_device is None else on_device

        is_valid = _value_check(space, host) if self._validate else None
        if is_valid is not None:

            def check() -> None:
                if not is_valid(given):
                    raise ActionError(_bad_values(space, given, where))

            self._checks.append(check)
        return convert


def _at(where: str) -> str:
    return f" at action{where}" if where else ""


def _as_array(actions: Any, where: str) -> np.ndarray:
    if actions is None or isinstance(actions, (dict, str)):
        raise ActionError(f"step got {describe(actions)}{_at(where)}; expected an array.")
    if hasattr(actions, "detach"):  # a PyTorch tensor, perhaps of another device
        actions = actions.detach().cpu()
    try:
        return np.asarray(actions)
    except ValueError as error:
        raise ActionError(f"step got actions that are no array{_at(where)}: {error}.") from error


def _shared_array(
    shape: tuple[int, ...], dtype: np.dtype, device: jax.Device
) -> tuple[np.ndarray, jax.Array | None]:
    """A host array, and the array of the device that lies in the same memory, if that can be."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    host = raw[start : start + size].view(dtype).reshape(shape)
    if device.platform != "cpu" or not size:
        return host, None
    on_device = jax.device_put(host, device, may_alias=True)
    shared = on_device.unsafe_buffer_pointer() == host.ctypes.data
    return host, on_device if shared else None


def _value_check(space: Space, host: np.ndarray) -> Callable[[np.ndarray], bool] | None:
    """A function that says whether actions, of which `host` is a copy, lie in `space`.

    NaN does not. Whole numbers too long for `host` are looked at themselves: there 2**32 is 0.
    """
    largest, smallest = np.maximum.reduce, np.minimum.reduce
    if isinstance(space, Discrete) and int(space.start) == 0 and host.dtype == np.int32:
        # Called once a step, mostly with int64. A negative number is a large one.
        unsigned, n, wide = host.view(np.uint32), int(space.n), np.uint64
        return lambda actions: (
            largest(actions.view(wide) if actions.itemsize == 8 else unsigned) < n
        )
    low, high = _bounds(space)
    if low is None or high is None:
        return None
    low, high = (np.broadcast_to(bound, host.shape[1:]) for bound in (low, high))
    is_one = (low == low.flat[:1]).all() and (high == high.flat[:1]).all() and low.size
    first, last = (low.flat[0], high.flat[0]) if is_one else (low, high)
    whole, size = host.dtype.kind != "f", host.itemsize

    def is_valid(actions: np.ndarray) -> bool:
        source = actions if whole and actions.itemsize > size else host
        if is_one:
            return bool(first <= smallest(source, None) and largest(source, None) <= last)
        return bool(((first <= source) & (source <= last)).all())

    return is_valid


def _bounds(space: Space) -> tuple[np.ndarray | None, np.ndarray | None]:
    if isinstance(space, Box):
        return np.asarray(space.low), np.asarray(space.high)
    if isinstance(space, Discrete):
        return np.asarray(space.start), np.asarray(space.start) + np.asarray(space.n) - 1
    if isinstance(space, MultiDiscrete):
        start = np.asarray(getattr(space, "start", 0))
        return np.broadcast_to(start, np.shape(space.nvec)), start + np.asarray(space.nvec) - 1
    if isinstance(space, MultiBinary) and np.dtype(space.dtype).kind != "b":
        return np.asarray(0), np.asarray(1)
    return None, None


def _bad_values(space: Space, actions: np.ndarray, where: str) -> str:
    low, high = _bounds(space)
    with np.errstate(invalid="ignore"):
        outside = ~((np.asarray(low) <= actions) & (actions <= np.asarray(high)))
    rows = np.flatnonzero(outside.reshape(len(actions), -1).any(axis=1))
    shown = ", ".join(str(row) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
    return (
        f"step got actions outside of {space}{_at(where)}: instances [{shown}], such as"
        f" {actions[rows[0]] if len(rows) else actions.flat[0]}."
        "  Clip them (jaxenvs.wrappers.ClipAction does), or pass validate=False to let the"
        " environment decide."
    )
