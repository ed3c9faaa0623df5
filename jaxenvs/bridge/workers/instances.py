"""The environments of one worker, and the loop that steps them."""

import contextlib
import copy
import os
import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import cloudpickle
import numpy as np

from jaxenvs.bridge.foreign.adapters import adapted
from jaxenvs.bridge.foreign.pettingzoo import without_rewards
from jaxenvs.bridge.memory.arrays import INFO_ROOM, MODES, Arrays, Plan
from jaxenvs.bridge.memory.lines import DONE, INFO
from jaxenvs.bridge.workers.views import View, action_reader, contains, fits, has_nan, put_fields

Validate = Literal["first", True, False]
Report = Callable[[int, str, str], None]  # (instance, operation, traceback)

REMAKING = "reconstruction"  # the operation that failed if an environment could not be replaced
_NAN = "is NaN.  Pass validate=False to accept NaN."
_CHECKED_STEPS = 3  # of each instance, under validate="first"
_SAME_STEP, _NEXT_STEP, _DISABLED = map(MODES.index, ("same_step", "next_step", "disabled"))
_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # the bridge


class Instances:
    """Instances `first`, `first + 1`, ... of a pool; their rows are numbered from 0.

    Args:
        env_fns: one function for each instance.
        first: the number of the first instance.
        making: called with the number of an instance before it is constructed.

    Raises:
        BaseException: any exception of a constructor, with the instance as `jaxenvs_instance`.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        first: int = 0,
        making: Callable[[int], None] = lambda instance: None,
    ) -> None:
        self._env_fns = list(env_fns)
        self.first = first
        self.envs: list[Any] = []
        try:
            for row in range(len(self._env_fns)):
                making(first + row)
                self.envs.append(self._make(row))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._env_fns)

    def attach(
        self,
        plan: Plan,
        arrays: Arrays,
        *,
        time_limit: int | None,
        validate: Validate,
        report: Report,
        current: Any = None,
        own_process: bool = False,
        alone: bool = False,
        keeps_infos: bool = False,
    ) -> None:
        """Sets the arrays to which results are written, and how environments are run.

        Args:
            plan, arrays: the arrays of the pool.
            time_limit: steps after which an episode is truncated; None for no limit.
            validate: see `make_pool`.
            report: called when an environment raises.
            current: a writable array of one element, set to the instance at work plus 1, and to 0
                between steps; None if it is not needed.
            own_process: whether this is a worker process, where Ctrl-C is an environment's error.
            alone: whether the arrays have rows for these instances only.
            keeps_infos: whether the caller reads infos unpickled through `kept_info`.
        """
        self._plan, self._arrays = plan, arrays
        self._limit = time_limit
        self._validate = validate
        self._report, self._current = report, current
        self._passing: tuple[type[BaseException], ...] = () if own_process else (KeyboardInterrupt,)
        start = 0 if alone else self.first
        rows = slice(start, start + len(self))
        self._views = [View(plan, answer, rows) for answer in arrays.answers]
        self._elapsed = arrays.elapsed[rows]
        self._restarted = arrays.restarted[rows]
        self._seeds = arrays.seeds[rows]
        self._mode: Any = arrays.mode.data
        self._actions = action_reader(plan, [array[rows] for array in arrays.actions])
        self._rows = range(len(self))
        self._steps = [self._step_of(row) for row in self._rows]
        self._over: set[int] = set()  # rows whose episode has ended, so they are not stepped
        self._fresh: set[int] = set()  # rows that were reset in the step that ended their episode
        self._unchecked = dict.fromkeys(self._rows, _CHECKED_STEPS) if validate else {}
        self._died: set[int] = set()
        self._last: dict[int, tuple[Any, bool, bool, Any]] = {}  # last results of finished rows
        self._previous = self._views[0]
        self._kept: dict[tuple[int, int], Any] = {}  # infos too large for their slots, or all
        self._keeps_infos = keeps_infos
        self.options: dict[str, Any] | None = None  # of the next reset

    # --- requests ---

    def step_all(self, buffer: int) -> int:
        """Steps every row; returns status flags."""
        view = self._before_all(buffer)
        noted = self._run(self._rows, self._actions(None), view)
        return noted | self._after_all(view)

    def _before_all(self, buffer: int) -> "View":
        elapsed = self._elapsed
        for row in self._fresh:
            elapsed[row] = 0
        self._fresh.clear()
        np.add(elapsed, 1, out=elapsed)
        self._previous = self._views[1 - buffer]
        view = self._views[buffer]
        view.flags_down()
        return view

    def _after_all(self, view: "View") -> int:
        if self._validate and view.has_nan():
            return self._refuse_nans(self._rows, view)
        return 0

    def step_one(self, buffer: int, row: int) -> int:
        """Steps one row; returns status flags."""
        view = self._before_one(buffer, row)
        return self._run((row,), self._actions(row), view) | self._after_one(row, view)

    def _before_one(self, buffer: int, row: int) -> "View":
        elapsed = self._elapsed
        if row in self._fresh:
            self._fresh.discard(row)
            elapsed[row] = 0
        elapsed[row] += 1
        view = self._previous = self._views[buffer]
        view.terminated[row] = view.truncated[row] = False
        return view

    def _after_one(self, row: int, view: "View", what: str = "step") -> int:
        if self._validate and view.row_has_nan(row):
            return self._refuse_nans((row,), view, what)
        return 0

    def reset_rows(self, buffer: int, rows: Iterable[int] | None = None) -> int:
        """Resets rows; None for all. Returns status flags."""
        noted = 0
        for row in self._rows if rows is None else rows:
            noted |= self.reset_one(buffer, row, self.options)
        return noted

    def reset_one(self, buffer: int, row: int, options: dict[str, Any] | None) -> int:
        """Resets one row; returns status flags."""
        view, seed = self._views[buffer], int(self._seeds[row])
        noted = self._begin(row, view, None if seed < 0 else seed, options)
        return noted | self._after_one(row, view, "reset")

    def recover(self, rows: Iterable[int] | None = None) -> None:
        """Marks instances as replacements of lost ones; None for all.

        The next answer of each one is a reset, flagged as truncated and restarted.
        """
        rows = self._rows if rows is None else tuple(rows)
        self._died.update(rows)
        self._over.update(rows)
        for view in self._views:  # they may contain infos of the lost instances
            view.with_info.update(rows)

    @property
    def is_recovering(self) -> bool:
        """Whether some instances have not answered since `recover`."""
        return bool(self._died)

    def kept_info(self, buffer: int, row: int) -> Any:
        """Returns an info that is not in its slot, pickled or not."""
        return self._kept.get((buffer, row)) or _pickled(({}, {}))  # lost with its process

    def call(self, row: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a method of an environment, or returns an attribute."""
        env = self.envs[row]
        found = (
            env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)
        )
        return found(*args, **kwargs) if callable(found) else found

    def set_attr(self, row: int, name: str, value: Any) -> None:
        """Sets an attribute of an environment, below its wrappers if it exists there."""
        env = self.envs[row]
        if hasattr(env, "set_wrapper_attr"):
            env.set_wrapper_attr(name, value)
        else:
            setattr(env, name, value)

    def close(self) -> tuple[int, str] | None:
        """Closes every environment; returns the first that raised, with its traceback."""
        envs, self.envs, failed = self.envs, [], None
        for row, env in enumerate(envs):
            try:
                env.close()
            except BaseException as error:
                failed = failed or (self.first + row, traceback_of(error))
        return failed

    # --- the loop ---

    def _run(self, rows: Iterable[int], actions: Iterable[Any], view: "View") -> int:
        # The hot loop: everything that does not happen at every step is in another method.
        steps, puts, over, current = self._steps, view.puts, self._over, self._current
        rewards, targets, with_info = view.reward, view.targets, view.with_info
        looks_closer = self._limit is not None or self._unchecked or view.fields
        first, noted = self.first + 1, 0
        for row, action in zip(rows, actions):  # noqa: B905
            if current is not None:
                current[0] = first + row
            if over and row in over:
                noted |= self._instead(row, view)
                continue
            try:
                observation, rewards[row], terminated, truncated, info = steps[row](action)
                if looks_closer and self._look_closer(row, view, observation, info):
                    truncated = True
                if terminated or truncated:
                    noted |= self._end(row, view, observation, info, terminated, truncated)
                    continue
                try:
                    # A one-dimensional memoryview accepts only an array of its own length and
                    # type, and some types (other byte order) not at all.
                    targets[row][:] = observation
                except (ValueError, TypeError, NotImplementedError):
                    puts[row](observation)
                if info:
                    noted |= self._put_info(row, view, info, None)
                elif with_info and row in with_info:
                    self._no_info(row, view)
            except self._passing:
                raise
            except BaseException as error:
                noted |= self._fail(row, view, "step", error)
        if current is not None:
            current[0] = 0
        return noted

    def _look_closer(self, row: int, view: "View", observation: Any, info: Any) -> bool:
        """Does the optional per-step work; returns whether the time limit is reached."""
        if self._unchecked:
            self._check(row, observation)
        if view.fields:
            put_fields(view.fields, row, info)
        return self._limit is not None and bool(self._elapsed[row] >= self._limit)

    def _end(
        self,
        row: int,
        view: "View",
        observation: Any,
        info: Any,
        terminated: Any,
        truncated: Any,
    ) -> int:
        view.terminated[row], view.truncated[row] = bool(terminated), bool(truncated)
        mode = self._mode[0]
        if view.final_puts is None or mode != _SAME_STEP:
            self._over.add(row)
            view.puts[row](observation)
            if mode == _DISABLED:
                flags = view.terminated[row], view.truncated[row]
                self._last[row] = (copy.deepcopy(observation), *flags, without_rewards(info))
            return DONE | self._put_info(row, view, info, None)
        view.final_puts[row](observation)
        if self._validate and has_nan(observation):
            raise ValueError(f"a final observation {_NAN}")
        put_fields(view.final_fields, row, info)
        self._fresh.add(row)
        try:
            observation, first_info = self._reset(row, None, None)
            view.puts[row](observation)
            put_fields(view.fields, row, first_info)
        except self._passing:
            raise
        except BaseException as error:
            return self._fail(row, view, "reset", error)
        return DONE | self._put_info(row, view, first_info, info)

    def _instead(self, row: int, view: "View") -> int:
        """Answers for a row whose episode has already ended."""
        if row in self._died:
            view.keep_final(row, self._previous)
            noted = self._begin(row, view, None, None)
            view.truncated[row] = True
            return noted | DONE
        if self._mode[0] == _NEXT_STEP:
            return self._begin(row, view, None, None)
        observation, terminated, truncated, info = self._last[row]
        view.puts[row](observation)
        view.reward[row], view.terminated[row], view.truncated[row] = 0.0, terminated, truncated
        self._elapsed[row] -= 1
        if view.fields:
            put_fields(view.fields, row, info)
        return DONE | self._put_info(row, view, info, None)

    def _begin(
        self, row: int, view: "View", seed: int | None, options: dict[str, Any] | None
    ) -> int:
        self._over.discard(row)
        self._fresh.discard(row)
        if row in self._died:
            self._died.discard(row)
            self._restarted[row] = True
        self._elapsed[row] = 0
        view.reward[row] = 0.0
        view.terminated[row] = view.truncated[row] = False
        if self._current is not None:
            self._current[0] = self.first + row + 1
        try:
            observation, info = self._reset(row, seed, options)
            if self._unchecked:
                self._check(row, observation)
            view.puts[row](observation)
            if view.fields:
                put_fields(view.fields, row, info)
            return self._put_info(row, view, info, None)
        except self._passing:
            raise
        except BaseException as error:
            return self._fail(row, view, "reset", error)
        finally:
            if self._current is not None:
                self._current[0] = 0

    # --- rare cases ---

    def _make(self, row: int) -> Any:
        try:
            return adapted(self._env_fns[row]())
        except BaseException as error:
            error.jaxenvs_instance = self.first + row  # pyright: ignore[reportAttributeAccessIssue]
            raise

    def _shut(self, row: int) -> None:
        with contextlib.suppress(BaseException):
            self.envs[row].close()

    def _step_of(self, row: int) -> Callable[[Any], Any]:
        """Returns the function that `_run` calls with an action of the row."""
        return self.envs[row].step

    def _reset(self, row: int, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Any]:
        observation, info = self.envs[row].reset(seed=seed, options=options)
        return observation, info

    def _put_info(self, row: int, view: "View", info: Any, final_info: Any) -> int:
        """Writes the infos of a row, including the final info under same-step autoreset."""
        if not info and not final_info:
            if row in view.with_info:
                self._no_info(row, view)
            return 0
        for each in (info, final_info):
            if each and not isinstance(each, Mapping):
                raise TypeError(f"info is {_brief(each)}; expected a dict")
        if self._keeps_infos:
            self._kept[self._views.index(view), row] = info or {}, final_info or {}
            view.info_size[row] = -1
            view.with_info.add(row)
            return INFO
        data = _pickled((info, final_info))
        if len(data) <= INFO_ROOM:
            view.info[row, : len(data)] = np.frombuffer(data, np.uint8)
            view.info_size[row] = len(data)
        else:
            self._kept[self._views.index(view), row] = data
            view.info_size[row] = -1
        view.with_info.add(row)
        return INFO

    def _no_info(self, row: int, view: "View") -> None:
        view.info_size[row] = 0
        view.with_info.discard(row)

    def _fail(self, row: int, view: "View", what: str, error: BaseException) -> int:
        """Reports an exception, and constructs and resets the environment again."""
        if isinstance(error, TypeError) and str(error).startswith("memoryview: invalid"):
            error.add_note("TypeError: the reward is not a single number")  # raised by _run
        self._tell(row, what, error)
        view.keep_final(row, self._previous)
        self._shut(row)
        self._over.discard(row)
        self._fresh.discard(row)
        try:
            self._replace(row, self._make(row))
            observation, info = self._reset(row, None, None)
            view.puts[row](observation)
            put_fields(view.fields, row, info)
            noted = self._put_info(row, view, info, None)
        except self._passing:
            raise
        except BaseException as again:
            self._tell(row, REMAKING, again)
            self._replace(row, FailedEnv(again))
            noted = 0
        self._elapsed[row] = 0
        self._restarted[row] = True
        view.reward[row] = 0.0
        view.terminated[row], view.truncated[row] = False, True
        return noted | DONE

    def _replace(self, row: int, env: Any) -> None:
        self.envs[row] = env
        self._steps[row] = self._step_of(row)

    def _tell(self, row: int, what: str, error: BaseException) -> None:
        self._report(self.first + row, what, traceback_of(error))

    def _check(self, row: int, observation: Any) -> None:
        """Checks whether an observation is in its space, if the row is still to be checked."""
        left = self._unchecked.get(row, 0)
        if not left:
            return
        if self._validate == "first":
            if left == 1:
                del self._unchecked[row]
            else:
                self._unchecked[row] = left - 1
        space = self._plan.observation_space
        fits(observation, space)
        if contains(space, observation):
            return
        message = (
            f"environment {self.first + row} returned an observation outside its space:"
            f" {_brief(observation)} is not in {space}"
        )
        if self._validate is True:
            raise ValueError(message)
        if not has_nan(observation):  # NaN has its own message
            self._report(self.first + row, "warning", message)
            self._unchecked.pop(row, None)

    def _refuse_nans(self, rows: Iterable[int], view: "View", what: str = "step") -> int:
        noted = 0
        for row in rows:
            if view.row_has_nan(row):
                which = "a reward" if view.reward[row] != view.reward[row] else "an observation"
                noted |= self._fail(row, view, what, ValueError(f"{which} {_NAN}"))
        return noted


class FailedEnv:
    """A placeholder for an environment that could not be constructed again; its calls raise."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def step(self, action: Any) -> Any:
        raise RuntimeError("the environment could not be constructed again") from self._error

    def reset(self, **kwargs: Any) -> Any:
        raise RuntimeError("the environment could not be constructed again") from self._error

    def close(self) -> None:
        pass


def _pickled(infos: tuple[Any, Any]) -> bytes:
    try:
        return pickle.dumps(infos, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # classes that a script defines, and what cannot be pickled
        return cloudpickle.dumps(tuple(info and _portable(info) for info in infos))


def _portable(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an info in which a description replaces what cannot be pickled."""
    kept = {}
    for name, value in info.items():
        try:
            cloudpickle.dumps(value)
            kept[name] = value
        except Exception:
            kept[name] = f"<{type(value).__name__}, which cannot be pickled>"
    return kept


def traceback_of(error: BaseException) -> str:
    """Returns the traceback without the frames of this package above the environment."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_ours(frames: Any) -> bool:
    return frames.tb_frame.f_code.co_filename.startswith(_HERE)


def _brief(value: Any, limit: int = 200) -> str:
    text = f"{value!r}"
    return text if len(text) <= limit else f"{text[:limit]} ..."
