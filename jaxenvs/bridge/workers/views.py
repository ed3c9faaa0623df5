"""Fast, checked writes to the rows of a result buffer."""

import copy
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from jaxenvs.bridge.memory.arrays import INFO_ROOM, Answer, Plan
from jaxenvs.bridge.memory.channel import INFO
from jaxenvs.bridge.memory.layout import Leaf, getter, leaves_of, tree_of

# Immutable types. Values of all other types are copied.
_FIXED = {bool, int, float, str, bytes, type(None)}
_FIXED |= {np.bool_, np.int32, np.int64, np.uint8, np.float32, np.float64}
_SMALL = 4096  # up to this size, a dot product finds NaN fastest and starts no threads


class View:
    """One worker's rows of one of the two result buffers, in a form that is fast to write."""

    def __init__(self, plan: Plan, answer: Answer, rows: slice) -> None:
        leaves = plan.observation_leaves
        count = rows.stop - rows.start
        self._observation = [array[rows] for array in answer.observation]
        self._final = [array[rows] for array in answer.final_observation]
        self.puts = [_writer(leaves, self._observation, row) for row in range(count)]
        self.final_puts = (
            [_writer(leaves, self._final, row) for row in range(count)] if self._final else None
        )
        simple = len(leaves) == 1 and not leaves[0].path and len(leaves[0].shape) == 1
        self.targets: list[Any] = [
            self._observation[0][row].data if simple else b"" for row in range(count)
        ]
        self._flags = answer.terminated[rows], answer.truncated[rows]
        self.reward: Any = answer.reward[rows].data
        self.terminated: Any = answer.terminated[rows].data
        self.truncated: Any = answer.truncated[rows].data
        self._info_size: Any = answer.info_size[rows].data
        self._info = answer.info[rows]
        self.with_info: set[int] = set()
        self._kept: dict[int, Any] = {}  # infos, unless they are pickled
        self._answer, self._first = answer, rows.start
        self._fields = [array[rows] for array in answer.fields]
        self._final_fields = [array[rows] for array in answer.final_fields]
        self.fields, self.final_fields = (
            [(name, _writer_for(space, each)) for name, space, each in _by_field(plan, arrays)]
            for arrays in (self._fields, self._final_fields)
        )
        floats = [array for array in self._observation if array.dtype.kind in "fc"]
        self._floats = [*floats, answer.reward[rows]]
        self._flat = [array.reshape(-1) for array in self._floats]
        self._flat_rows = [[array[row].reshape(-1) for array in floats] for row in range(count)]

    def flags_down(self) -> None:
        for flag in self._flags:
            flag.fill(False)

    def has_nan(self) -> bool:
        """Returns whether an observation or a reward in any row is NaN."""
        return any(map(flat_has_nan, self._flat))

    def row_has_nan(self, row: int) -> bool:
        reward = self.reward[row]
        if reward != reward:
            return True
        for flat in self._flat_rows[row]:  # noqa: SIM110 (a generator is slower)
            if flat_has_nan(flat):
                return True
        return False

    def put_info(self, row: int, info: Any, final_info: Any = None) -> int:
        """Writes a row's info, and its final info under same-step autoreset; returns status flags.

        Args:
            row: the row.
            info: the environment's info. The environment may change it later.
            final_info: a `snapshot` of the info before the reset.

        Raises:
            TypeError: an info is not a mapping.
        """
        if not info and not final_info:
            if row in self.with_info:
                self.no_info(row)
            return 0
        check_info(info)
        check_info(final_info)
        self.with_info.add(row)
        answer = self._answer
        if answer.overflow is None:
            self._kept[row] = snapshot(info), final_info or {}
            self._info_size[row] = -1
            return INFO
        data = pickled_infos((info, final_info))
        if len(data) <= INFO_ROOM:
            self._info[row, : len(data)] = np.frombuffer(data, np.uint8)
        else:
            answer.overflow.write(answer.place(self._first + row), data)
        self._info_size[row] = len(data)
        return INFO

    def no_info(self, row: int) -> None:
        self._info_size[row] = 0
        self.with_info.discard(row)

    def kept_info(self, row: int) -> Any:
        """Returns a row's info and final info, if they are kept unpickled."""
        return self._kept[row]

    def keep_final(self, row: int, previous: "View") -> None:
        """Copies the previous observation to the final one, for an episode that was cut off."""
        finals = [*self._final, *self._final_fields]
        for final, last in zip(finals, [*previous._observation, *previous._fields], strict=False):
            final[row] = last[row]


def flat_has_nan(flat: np.ndarray) -> Any:
    """Returns whether a one-dimensional array of floats contains NaN."""
    # Both results are NaN if any element is; squares cannot cancel out.
    found = flat.dot(flat) if flat.size <= _SMALL else flat.min()
    return found != found


def action_reader(plan: Plan, arrays: list[np.ndarray]) -> Callable[[Any], Any]:
    """Returns a function that takes a row, an array of rows, or None (all) and returns actions."""
    leaves, space = plan.action_leaves, plan.action_space

    def part(leaf: Leaf, array: np.ndarray, row: Any) -> list[Any]:
        rows = array
        if row is not None:
            rows = array[row : row + 1] if type(row) is int else array[row]
        # Python ints are the fastest index. Floats stay NumPy scalars, as Gymnasium's spaces
        # sample them. Arrays are copied, since environments may keep them.
        if not leaf.shape:
            return rows.tolist() if leaf.dtype.kind in "biu" else list(rows)
        return list(rows.copy())

    if len(leaves) == 1 and not leaves[0].path:
        (leaf,), (array,) = leaves, arrays
        return lambda row: part(leaf, array, row)

    def read(row: Any) -> list[Any]:
        parts = [part(leaf, array, row) for leaf, array in zip(leaves, arrays, strict=True)]
        return [tree_of(space, iter(each)) for each in zip(*parts, strict=True)]

    return read


def _writer(leaves: list[Leaf], arrays: list[np.ndarray], row: int) -> Callable[[Any], None]:
    """Returns a function that writes an observation to its row, if it fits."""
    if len(leaves) == 1 and not leaves[0].path:
        return _leaf_writer(leaves[0], arrays[0], row)
    parts = [
        (getter(leaf.path), _leaf_writer(leaf, array, row))
        for leaf, array in zip(leaves, arrays, strict=True)
    ]

    def write(observation: Any) -> None:
        for get, put in parts:
            put(get(observation))

    return write


def _leaf_writer(leaf: Leaf, array: np.ndarray, row: int) -> Callable[[Any], None]:
    shape, dtype = leaf.shape, leaf.dtype
    if not shape:

        def put(value: Any) -> None:
            if type(value) is not int:
                value = fitting(value, leaf)
            array[row] = value

        return put
    target = array[row]

    def put_array(value: Any) -> None:
        if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
            value = fitting(value, leaf)
        target[...] = value

    return put_array


def fitting(value: Any, leaf: Leaf) -> np.ndarray:
    """Returns `value` as an array with the shape of a leaf and a dtype that fits it.

    Raises:
        ValueError: the shape or the kind of dtype is wrong, or an integer does not fit the dtype of
            the leaf.
    """
    found = np.asarray(value)
    # Floats of any width are converted, and so are integers that keep their value.
    fits = np.can_cast(found.dtype, leaf.dtype, "same_kind") or (
        found.dtype.kind in "iu" and leaf.dtype.kind in "iu" and not found.shape
    )
    if found.shape != leaf.shape or not fits:
        raise ValueError(
            f"{_named(leaf)} is {found.dtype}{list(found.shape)}; its space expects"
            f" {leaf.dtype}{list(leaf.shape)}"
        )
    if found.dtype.kind in "iu" and leaf.dtype.kind in "iu":
        _refuse_overflow(found, leaf)
    return found


def _refuse_overflow(found: np.ndarray, leaf: Leaf) -> None:
    # A narrower dtype would silently change the value.
    if np.can_cast(found.dtype, leaf.dtype) or not found.size:
        return
    limits = np.iinfo(leaf.dtype)
    for value in (int(found.min()), int(found.max())):
        if not limits.min <= value <= limits.max:
            raise ValueError(
                f"{_named(leaf)} contains {value}, which does not fit the {leaf.dtype} of its"
                f" space; expected {limits.min} to {limits.max}"
            )


def _named(leaf: Leaf) -> str:
    return f"entry {leaf.at} of the observation" if leaf.at else "an observation"


def _by_field(plan: Plan, arrays: list[np.ndarray]) -> Iterable[tuple[str, Any, list[np.ndarray]]]:
    found = iter(arrays)
    for name, space in plan.info_fields.items() if arrays else ():
        yield name, space, [next(found) for _ in leaves_of(space)]


def _writer_for(space: gymnasium.Space, arrays: list[np.ndarray]) -> Callable[[int, Any], None]:
    """Returns a function that writes an entry of info to a row; zeros if it is missing."""
    leaves = leaves_of(space)

    def write(row: int, value: Any) -> None:
        for leaf, array in zip(leaves, arrays, strict=True):
            array[row] = 0 if value is None else getter(leaf.path)(value)

    return write


def put_fields(
    fields: list[tuple[str, Callable[[int, Any], None]]], row: int, info: Mapping[str, Any]
) -> None:
    for name, write in fields:
        write(row, info.get(name))


def check_info(info: Any) -> None:
    """Raises TypeError if an info is not a mapping."""
    if info and not isinstance(info, Mapping):
        raise TypeError(f"info is {brief(info)}; expected a dict")


def snapshot(info: Any) -> dict[str, Any]:
    """Returns a copy of an info, since environments may reuse theirs.

    Values that cannot be copied, such as locks, are shared.
    """
    return {
        name: value if type(value) in _FIXED else own_copy(value)
        for name, value in (info or {}).items()
    }


def own_copy(value: Any) -> Any:
    """Returns a copy of a value, or the same object if it cannot be copied."""
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy()  # faster than deepcopy
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def pickled_infos(infos: tuple[Any, Any]) -> bytes:
    """Pickles an info and a final info. A description replaces values that cannot be pickled."""
    try:
        return pickle.dumps(infos, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # classes of a script, or values that cannot be pickled at all
        return cloudpickle.dumps(tuple(info and _portable(info) for info in infos))


def _portable(info: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces values that cannot be pickled by a description."""
    kept = {}
    for name, value in info.items():
        try:
            cloudpickle.dumps(value)
            kept[name] = value
        except Exception:
            kept[name] = f"<{type(value).__name__}, which cannot be pickled>"
    return kept


def brief(value: Any) -> str:
    text = f"{value!r}"
    return text if len(text) <= 200 else f"{text[:200]} ..."
