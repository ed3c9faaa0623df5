"""The environments of one worker, and the loop that steps them: where a pool spends its time."""

import contextlib
import copy
import os
import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from jaxenvs.bridge._adapters import adapted
from jaxenvs.bridge._arrays import INFO_ROOM, MODES, Arrays, Plan
from jaxenvs.bridge._lines import DONE, INFO
from jaxenvs.bridge._views import View, action_reader, contains, fits, has_nan, put_fields

Validate = Literal["first", True, False]
Report = Callable[[int, str, str], None]  # (instance, what it did, the traceback)

REMAKING = "making it anew"  # what failed, where an environment could not be replaced
_NAN = "is not a number (NaN).  Pass validate=False to let it pass."
_CHECKED_STEPS = 3  # of each instance, under validate="first"
_SAME_STEP, _NEXT_STEP, _DISABLED = map(MODES.index, ("same_step", "next_step", "disabled"))
_HERE = os.path.dirname(__file__) + os.sep


class Instances:
    """Instances `first`, `first + 1`, ... of a pool. Rows count from 0 within these.

    Args:
        env_fns: one for each.
        first: the number of the first one.

    Raises:
        Whatever a constructor raises, with a note that says which, and `jaxenvs_instance`.
    """

    def __init__(self, env_fns: Sequence[Callable[[], Any]], first: int = 0) -> None:
        self._env_fns = list(env_fns)
        self.first = first
        self.envs: list[Any] = []
        try:
            for row in range(len(self._env_fns)):
                self.envs.append(self._make(row))
        except BaseException:
            self.close()
            raise

    def extend(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        """Makes more of them, before `attach`."""
        for env_fn in env_fns:
            self._env_fns.append(env_fn)
            self.envs.append(self._make(len(self.envs)))

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
        """Says where answers go.

        Args:
            plan, arrays: what the pool shares.
            time_limit: truncates episodes; None does not.
            validate: see `make_pool`.
            report: told where an environment raised.
            current: one writable number, told which instance is at work, plus 1; None for nobody.
            own_process: whether Ctrl-C is none of ours.
            alone: whether the arrays have rows for these instances only.
            keeps_infos: whether the caller takes infos as they are, by `kept_info`; else pickled.
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
        self._over: set[int] = set()  # rows whose next step is none: their episode has ended
        self._fresh: set[int] = set()  # rows that were reset in the step that ended their episode
        self._unchecked = dict.fromkeys(self._rows, _CHECKED_STEPS) if validate else {}
        self._died: set[int] = set()
        self._last: dict[int, tuple[Any, bool, bool, Any]] = {}  # what finished rows stay at
        self._previous = self._views[0]
        self._kept: dict[tuple[int, int], Any] = {}  # infos too large for their slots, or all
        self._keeps_infos = keeps_infos
        self.options: dict[str, Any] | None = None  # of the next reset

    # --- what a worker is asked for ---

    def step_all(self, buffer: int) -> int:
        """Steps every row; returns what there is to note."""
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
        """Steps one row; returns what there is to note."""
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
        """Begins an episode in rows; None for all. Returns what there is to note."""
        noted = 0
        for row in self._rows if rows is None else rows:
            noted |= self.reset_one(buffer, row, self.options)
        return noted

    def reset_one(self, buffer: int, row: int, options: dict[str, Any] | None) -> int:
        """Begins an episode in one row; returns what there is to note."""
        view, seed = self._views[buffer], int(self._seeds[row])
        noted = self._begin(row, view, None if seed < 0 else seed, options)
        return noted | self._after_one(row, view, "reset")

    def recover(self, rows: Iterable[int] | None = None) -> None:
        """Says that instances stand in for others that are lost; None for all.

        The next answer of each one begins an episode and says that the one before was cut.
        """
        rows = self._rows if rows is None else tuple(rows)
        self._died.update(rows)
        self._over.update(rows)
        for view in self._views:  # of which some may be left
            view.with_info.update(rows)

    @property
    def is_recovering(self) -> bool:
        """Whether there are some that have yet to begin after `recover`."""
        return bool(self._died)

    def kept_info(self, buffer: int, row: int) -> Any:
        """The info that is in no slot: pickled, or as it is."""
        return self._kept.get((buffer, row)) or _pickled(({}, {}))  # it went with its process

    def call(self, row: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a method of an environment, or reads an attribute."""
        env = self.envs[row]
        found = (
            env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)
        )
        return found(*args, **kwargs) if callable(found) else found

    def set_attr(self, row: int, name: str, value: Any) -> None:
        """Sets an attribute of an environment, under its wrappers where it is there."""
        env = self.envs[row]
        if hasattr(env, "set_wrapper_attr"):
            env.set_wrapper_attr(name, value)
        else:
            setattr(env, name, value)

    def close(self) -> tuple[int, str] | None:
        """Closes every environment; the first that raised, with its traceback."""
        envs, self.envs, failed = self.envs, [], None
        for row, env in enumerate(envs):
            try:
                env.close()
            except BaseException as error:
                failed = failed or (self.first + row, traceback_of(error))
        return failed

    # --- the loop ---

    def _run(self, rows: Iterable[int], actions: Iterable[Any], view: "View") -> int:
        # Whatever happens at every step stands here; all else is a call away.
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
                    # A memoryview of one axis takes an array of its own length and type only, and
                    # none of some types, as of bytes in the other order.
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
        """What only some pools do at every step; whether the limit of steps is reached."""
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
                self._last[row] = (copy.deepcopy(observation), *flags, info)
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
        """Answers for a row whose episode ended before this step."""
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

    # --- what happens seldom ---

    def _make(self, row: int) -> Any:
        try:
            return adapted(self._env_fns[row]())
        except BaseException as error:
            error.jaxenvs_instance = self.first + row  # pyright: ignore[reportAttributeAccessIssue]
            error.add_note(f"in the constructor of environment {self.first + row}")
            raise

    def _shut(self, row: int) -> None:
        with contextlib.suppress(BaseException):
            self.envs[row].close()

    def _step_of(self, row: int) -> Callable[[Any], Any]:
        """What `_run` calls with an action of a row."""
        return self.envs[row].step

    def _reset(self, row: int, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Any]:
        observation, info = self.envs[row].reset(seed=seed, options=options)
        return observation, info

    def _put_info(self, row: int, view: "View", info: Any, final_info: Any) -> int:
        """Writes what there is of infos, the final one under same-step autoreset."""
        if not info and not final_info:
            if row in view.with_info:
                self._no_info(row, view)
            return 0
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
        """Reports an exception, makes the environment anew and begins an episode in it."""
        if str(error).startswith("memoryview: invalid"):  # of _run, which says nothing to anybody
            error.add_note("TypeError: the reward is not a single number")
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
            self._replace(row, Unmakeable(again))
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
        """Looks whether an observation is in its space, as long as rows are to be checked."""
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
            f"environment {self.first + row} returned an observation outside of its space:"
            f" {_brief(observation)} is not in {space}"
        )
        if self._validate is True:
            raise ValueError(message)
        if not has_nan(observation):  # which is told for itself
            self._report(self.first + row, "warning", message)
            self._unchecked.pop(row, None)

    def _refuse_nans(self, rows: Iterable[int], view: "View", what: str = "step") -> int:
        noted = 0
        for row in rows:
            if view.row_has_nan(row):
                which = "a reward" if view.reward[row] != view.reward[row] else "an observation"
                noted |= self._fail(row, view, what, ValueError(f"{which} {_NAN}"))
        return noted


class Unmakeable:
    """Stands in for an environment that cannot be made any more."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def step(self, action: Any) -> Any:
        raise RuntimeError("the environment could not be made anew") from self._error

    def reset(self, **kwargs: Any) -> Any:
        raise RuntimeError("the environment could not be made anew") from self._error

    def close(self) -> None:
        pass


def _pickled(infos: tuple[Any, Any]) -> bytes:
    try:
        return pickle.dumps(infos, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # an entry that cannot travel is left out, and its name kept
        return pickle.dumps(tuple(info and _portable(info) for info in infos))


def _portable(info: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in info.items():
        try:
            pickle.dumps(value)
            kept[name] = value
        except Exception:
            kept[name] = f"<{type(value).__name__}, which cannot be pickled>"
    return kept


def traceback_of(error: BaseException) -> str:
    """The traceback from the environment on: frames of ours say nothing to its author."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_ours(frames: Any) -> bool:
    return frames.tb_frame.f_code.co_filename.startswith(_HERE)


def _brief(value: Any, limit: int = 200) -> str:
    text = f"{value!r}"
    return text if len(text) <= limit else f"{text[:limit]} ..."
