"""The batches of a pool, made of the rows that workers have written."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxenvs.bridge.backends.backend import Settings
from jaxenvs.bridge.memory.arrays import INFO_ROOM, Answer, AutoresetMode
from jaxenvs.bridge.memory.channel import DONE, INFO
from jaxenvs.bridge.memory.layout import leaves_in, leaves_of, tree_of
from jaxenvs.bridge.pool.infos import merged, unpickled
from jaxenvs.bridge.pool.state import PoolState

log = logging.getLogger("jaxenvs")

Batch = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]

_OWN_INFOS = ("env_id", "elapsed_step", "restarted", "final_obs", "final_info")


class Batches:
    """Makes the batches of a pool.

    Args:
        state: of the pool.
        copy: whether a batch owns its arrays, rather than views of memory that is used again.
    """

    def __init__(self, state: PoolState, *, copy: bool) -> None:
        self._state, self._settings, self._copy = state, state.settings, copy
        settings = state.settings
        self._space, self._fields = settings.observation_space, settings.info_fields
        own = (*_OWN_INFOS, *self._fields)
        self._reserved = frozenset((*own, *(f"_{name}" for name in own)))
        self._true, self._false = np.ones(state.num_envs, bool), np.zeros(state.num_envs, bool)
        for constant in (self._true, self._false):
            constant.flags.writeable = False
        self._infos = {
            "env_id": state.every_id,
            "restarted": self._false,
            **self._masks(state.num_envs),
        }
        self._some_masks = self._masks(state.batch_size)
        self._rows = [_Rows(settings, state.batch_size) for _ in range(2)]
        self._latest = 0
        self._views = [self._views_of(answer) for answer in state.backend.arrays.answers]

    def take_mode(self, mode: AutoresetMode) -> None:
        """Sets the autoreset mode."""
        self._is_same_step = mode == "same_step"
        # The status bits that need infos: the end of an episode adds some under same-step only.
        self._telling = INFO | (DONE if self._is_same_step else 0)

    def of_all(self, status: int) -> Batch:
        """Returns the latest batch of all environments; `status` is that of the wait for it."""
        state = self._state
        infos = self._infos.copy()
        infos["elapsed_step"] = state.backend.arrays.elapsed.copy()
        if state.handle_attention(status):
            infos["restarted"] = state.take_restarted(slice(None))
        if state.backend.makes_batches:
            observation, reward, terminated, truncated, own = state.backend.batch()
            own.update(infos)
            return observation, reward, terminated, truncated, own
        buffer = state.ledger.buffer
        observation, reward, terminated, truncated, fields = self._views[buffer]
        if self._copy:
            observation = copied(observation)
            reward, terminated, truncated = reward.copy(), terminated.copy(), truncated.copy()
        if fields:
            infos.update(copied(fields) if self._copy else fields)
        if status & self._telling:
            self._add_infos(infos, buffer, state.every_id, terminated | truncated)
        return observation, reward, terminated, truncated, infos

    def of_some(self, count: int, order: np.ndarray | None = None) -> Batch:
        """Waits for `count` environments; returns their rows.

        Args:
            count: the number of environments.
            order: int32[count], all pending environments in the order of the rows; None for the
                order of arrival.
        """
        state = self._state
        ids, may_be_restarted = state.take(count)
        if order is not None:
            ids[:] = order
        count = len(ids)
        if order is None and not self._copy:  # `send` need not check this array again
            ids.flags.writeable = False
            state.ledger.received = ids
        arrays, buffer = state.backend.arrays, state.ledger.buffer ^ 1
        answer = arrays.answers[buffer]
        if state.backend.makes_batches:
            observation, reward, terminated, truncated, fields = state.backend.batch(order)
        else:
            if self._copy or count > state.batch_size:
                rows = _Rows(self._settings, count)
            else:
                self._latest ^= 1
                rows = self._rows[self._latest]
            observation, reward, terminated, truncated, fields = rows.gather(answer, ids)
        infos = {
            **fields,
            "env_id": ids,
            "elapsed_step": arrays.elapsed[ids],
            "restarted": state.take_restarted(ids) if may_be_restarted else self._false[:count],
            **(self._some_masks if count == state.batch_size else self._masks(count)),
        }
        if state.backend.makes_batches:
            return observation, reward, terminated, truncated, infos
        done = terminated | truncated if self._is_same_step else None
        if answer.info_size[ids].any() or (done is not None and done.any()):
            self._add_infos(infos, buffer, ids, done)
        return observation, reward, terminated, truncated, infos

    def patched(self, ids: np.ndarray, batch: Batch) -> tuple[Any, dict[str, Any]]:
        """Returns all N observations: those of `ids` from `batch`, the others unchanged."""
        state, ledger = self._state, self._state.ledger
        state.backend.flush(ledger.buffer)
        answers = state.backend.arrays.answers
        latest, following = (answers[b].observation for b in (ledger.buffer, ledger.buffer ^ 1))
        here = ~ledger.elsewhere
        for i, part in enumerate(leaves_in(batch[0], self._space)):
            following[i][here] = latest[i][here]
            following[i][ids] = part
        ledger.gather()
        ledger.buffer ^= 1  # the previous batch stays valid
        infos = spread(batch[4], ids, state.num_envs)
        infos["env_id"] = state.every_id
        observation = tree_of(self._space, iter(following))
        return copied(observation) if self._copy else observation, infos

    def _masks(self, count: int) -> dict[str, np.ndarray]:
        """Returns the masks of the info entries that every row of a batch has."""
        names = ("env_id", "elapsed_step", "restarted", *self._fields)
        return {f"_{name}": self._true[:count] for name in names}

    def _views_of(self, answer: Answer) -> tuple[Any, ...]:
        observation = tree_of(self._space, iter(answer.observation))
        fields = fields_of(self._settings, answer.fields)
        return observation, answer.reward, answer.terminated, answer.truncated, fields

    # --- infos ---

    def _add_infos(
        self, infos: dict[str, Any], buffer: int, ids: np.ndarray, done: np.ndarray | None
    ) -> None:
        answer = self._state.backend.arrays.answers[buffer]
        own: list[tuple[int, Mapping[str, Any]]] = []
        final: dict[int, Mapping[str, Any]] = {}
        for row, data in self._packed_infos(answer, buffer, ids):
            try:
                info, final[row] = unpickled(data)
            except Exception as error:
                log.warning(
                    'the info of environment %d ("%s") cannot be unpickled, and is left out: %r',
                    *(ids[row], self._state.name, error),
                )
                continue
            if not self._reserved.isdisjoint(info):
                info = {name: info[name] for name in info if name not in self._reserved}
            own.append((row, info))
        count = len(ids)
        merged(infos, own, count)
        if self._is_same_step and done is not None and done.any():
            observations = np.full(count, None, object)
            for row in np.flatnonzero(done).tolist():
                leaves = (array[ids[row]].copy() for array in answer.final_observation)
                observations[row] = tree_of(self._space, leaves)
            final_info: dict[str, Any] = {}
            merged(final_info, final.items(), count)
            infos.update(
                final_obs=observations,
                _final_obs=done.copy(),
                final_info=final_info,
                _final_info=done.copy(),
            )

    def _packed_infos(self, answer: Answer, buffer: int, ids: np.ndarray) -> Any:
        """Yields (row, info) where there is one."""
        sizes = answer.info_size[ids]
        for row in np.flatnonzero(sizes).tolist():
            instance, size = int(ids[row]), int(sizes[row])
            if size < 0:
                yield row, self._state.backend.kept_info(buffer, instance)
            elif size <= INFO_ROOM:
                yield row, answer.info[instance, :size].data
            else:
                assert answer.overflow is not None
                yield row, answer.overflow.read(answer.place(instance), size)


class _Rows:
    """The arrays of a partial batch, to which rows of an answer are copied."""

    def __init__(self, settings: Settings, size: int) -> None:
        self._settings = settings
        leaves = leaves_of(settings.observation_space)
        self._observation = [np.empty((size, *leaf.shape), leaf.dtype) for leaf in leaves]
        self._reward = np.empty(size)
        self._terminated, self._truncated = np.empty(size, bool), np.empty(size, bool)

    def gather(self, answer: Any, ids: np.ndarray) -> tuple[Any, ...]:
        count = len(ids)
        observation = iter(
            [
                # "clip" spares a second copy; the numbers are in range.
                source.take(ids, 0, target[:count], "clip")
                for source, target in zip(answer.observation, self._observation, strict=True)
            ]
        )
        return (
            tree_of(self._settings.observation_space, observation),
            answer.reward.take(ids, 0, self._reward[:count], "clip"),
            answer.terminated.take(ids, 0, self._terminated[:count], "clip"),
            answer.truncated.take(ids, 0, self._truncated[:count], "clip"),
            fields_of(self._settings, [array[ids] for array in answer.fields]),
        )


def fields_of(settings: Settings, arrays: list[np.ndarray]) -> dict[str, Any]:
    """Returns the info fields as trees."""
    leaves = iter(arrays)
    return {name: tree_of(space, leaves) for name, space in settings.info_fields.items()}


def copied(tree: Any) -> Any:
    """Returns a tree with copies of its arrays."""
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(copied, tree))
    return tree.copy()


def spread(infos: Mapping[str, Any], ids: np.ndarray, size: int) -> dict[str, Any]:
    """Returns the infos of some environments as infos of all `size`, with masks of the valid rows.

    Entries without a row for each of `ids` stay unchanged; vectorized environments may have some.
    """
    found: dict[str, Any] = {}
    for name, value in infos.items():
        if isinstance(value, Mapping):
            found[name] = spread(value, ids, size)
        elif isinstance(value, tuple):
            found[name] = tuple(spread({"": each}, ids, size)[""] for each in value)
        elif isinstance(value, np.ndarray) and value.shape[:1] == ids.shape:
            shape = size, *value.shape[1:]
            is_any = value.dtype == object
            found[name] = np.full(shape, None) if is_any else np.zeros(shape, value.dtype)
            found[name][ids] = value
        else:
            found[name] = value
    return found
