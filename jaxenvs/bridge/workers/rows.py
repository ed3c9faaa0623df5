"""Stepping, resetting, and replacing environments. Each is a row of the pool's arrays."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxenvs.bridge.foreign.adapters import adapted
from jaxenvs.bridge.foreign.pettingzoo import without_rewards
from jaxenvs.bridge.memory.arrays import MODES, Arrays, Plan
from jaxenvs.bridge.memory.channel import DONE
from jaxenvs.bridge.workers.calls import Calls, original, run_here
from jaxenvs.bridge.workers.checks import Reporter, SpaceChecks, Validate, has_nan
from jaxenvs.bridge.workers.failures import REMAKING, FailedEnv, traceback_of
from jaxenvs.bridge.workers.views import View, action_reader, check_info, put_fields, snapshot

_NAN = "is NaN.  Pass validate=False to accept NaN."
# What is wrong if a result of an environment cannot be unpacked.
_HINTS = {
    "step": "step must return observation, reward, terminated, truncated, and info.  If it returns"
    " 4 values, as in classic gym, do not derive the class from gymnasium.Env.",
    "reset": "reset must return observation and info.",
}
_SAME_STEP, _NEXT_STEP, _DISABLED = map(MODES.index, ("same_step", "next_step", "disabled"))


class Rows:
    """Environments with the bookkeeping of steps, resets, ends of episodes, and failures.

    Operations are generators of calls into the environments, see `calls`. Threads may run
    different rows at the same time: they share sets and dicts of rows, whose operations are atomic.

    Args:
        env_fns: one function for each instance.
        first: the first instance.
        making: called with each instance before it is constructed.
        run: drives the generator that calls the constructors.

    Raises:
        BaseException: a constructor's exception, whose `jaxenvs_instance` is the instance.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        first: int = 0,
        making: Callable[[int], None] = lambda instance: None,
        run: Callable[[Calls], Any] = run_here,
    ) -> None:
        self._env_fns = list(env_fns)
        self.first = first
        self.envs: list[Any] = []
        error = run(self._make_all(making))
        if error is not None:
            raise error

    def __len__(self) -> int:
        return len(self._env_fns)

    def _make_all(self, making: Callable[[int], None]) -> Calls:
        for row in range(len(self)):
            try:
                making(self.first + row)
                self.envs.append((yield partial(self._make, row)))
            except GeneratorExit:
                raise
            except BaseException as thrown:
                error = original(thrown)
                error.jaxenvs_instance = self.first + row  # pyright: ignore[reportAttributeAccessIssue]
                yield from self._close_all()
                return error
        return None

    def attach(
        self,
        plan: Plan,
        arrays: Arrays,
        *,
        time_limit: int | None,
        validate: Validate,
        report: Reporter,
        current: Any = None,
        own_process: bool = False,
        alone: bool = False,
    ) -> None:
        """Sets the arrays for results, and how the environments are run.

        Args:
            plan, arrays: the arrays of the pool.
            time_limit: steps after which an episode is truncated; None for no limit.
            validate: see `make_pool`.
            report: called if an environment raises.
            current: an array of one element for the current instance plus 1, or 0 between steps;
                None if that is not needed.
            own_process: whether this does not run in the caller's thread, so that a
                KeyboardInterrupt is an environment's error.
            alone: whether the arrays have rows for these instances only.
        """
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
        self.actions = action_reader(plan, [array[rows] for array in arrays.actions])
        self._rows = range(len(self))
        self._steps = [env.step for env in self.envs]
        self._over: set[int] = set()  # rows whose episode has ended, which are not stepped
        self._fresh: set[int] = set()  # rows that were reset in the step that ended their episode
        numbers = range(self.first, self.first + len(self))
        self._checks = SpaceChecks(plan.observation_space, validate, numbers, report)
        self._died: set[int] = set()
        self._last: dict[int, tuple[Any, bool, bool, Any]] = {}  # the last results of finished rows
        # The view with a row's latest result, unless that was a step of all.
        self._elsewhere: dict[int, View] = {}
        self._previous: dict[int, View] = {}  # the same before the current request
        self._other = self._views[0]  # the view of the previous step of all
        self.options: dict[str, Any] | None = None  # of `Instances.reset_rows`

    # --- requests ---

    def begin_all(self, buffer: int) -> View:
        """Prepares a step of all rows; returns the view to write to."""
        elapsed = self._elapsed
        for row in self._fresh:
            elapsed[row] = 0
        self._fresh.clear()
        np.add(elapsed, 1, out=elapsed)
        self._previous, self._elsewhere = self._elsewhere, {}
        view, self._other = self._views[buffer], self._views[1 - buffer]
        view.flags_down()
        return view

    def begin_one(self, buffer: int, row: int) -> View:
        """Prepares a step of one row; returns the view to write to."""
        elapsed = self._elapsed
        if row in self._fresh:
            self._fresh.discard(row)
            elapsed[row] = 0
        elapsed[row] += 1
        view = self._move(buffer, row)
        view.terminated[row] = view.truncated[row] = False
        return view

    def _move(self, buffer: int, row: int) -> View:
        """Sets and returns the view for the result of a request for one row."""
        view = self._views[buffer]
        # The view of a lost instance's latest result is unknown.
        latest = view if row in self._died else self._views[1 - buffer]
        self._previous[row] = self._elsewhere.get(row, latest)
        self._elsewhere[row] = view
        return view

    def _keep_final(self, row: int, view: View) -> None:
        view.keep_final(row, self._previous.get(row, self._other))

    def step(self, row: int, view: View, action: Any, checks_nan: bool = True) -> Calls:
        """Steps a row whose step was prepared; returns status flags."""
        # Like `Instances._run` for one row, in one generator, since nested ones are slower.
        try:
            if row in self._over:
                noted = yield from self._instead(row, view)
            else:
                result = yield partial(self._steps[row], action)
                observation, view.reward[row], terminated, truncated, info = result
                if self._do_optional_work(row, view, observation, info):
                    truncated = True
                if terminated or truncated:
                    noted = self._end(row, view, observation, info, terminated, truncated)
                    if row in self._fresh:
                        noted |= yield from self._reset_ended(row, view, info)
                else:
                    view.puts[row](observation)
                    noted = view.put_info(row, info)
        except (GeneratorExit, *self._passing):
            raise
        except BaseException as error:
            noted = yield from self._fail(row, view, "step", error)
        if checks_nan and self._validate and view.row_has_nan(row):
            noted |= yield from self.refuse_nan(row, view, "step")
        return noted

    def with_nan(self, view: View) -> list[int]:
        """Returns the rows with NaN after a step of all, if those are refused."""
        if not self._validate or not view.has_nan():
            return []
        return [row for row in self._rows if view.row_has_nan(row)]

    def reset(self, buffer: int, row: int, options: dict[str, Any] | None) -> Calls:
        """Resets a row; returns status flags."""
        view, seed = self._move(buffer, row), int(self._seeds[row])
        noted = yield from self._begin(row, view, None if seed < 0 else seed, options)
        return noted | (yield from self.refuse_nan(row, view, "reset"))

    def replace_hung(self, row: int) -> Calls:
        """Replaces an environment that hangs."""
        noted = yield from self._remake(row)
        self.recover((row,))
        return noted

    def recover(self, rows: Iterable[int] | None = None) -> None:
        """Marks instances as replacements of lost ones; None for all.

        The next result of each is that of a reset, flagged as truncated and restarted.
        """
        rows = self._rows if rows is None else tuple(rows)
        self._died.update(rows)
        self._over.update(rows)
        for view in self._views:  # they may hold infos of the lost instances
            view.with_info.update(rows)

    def _close_all(self) -> Calls:
        envs, self.envs, failed = self.envs, [], None
        for row, env in enumerate(envs):
            try:
                yield env.close
            except BaseException as error:
                failed = failed or (self.first + row, traceback_of(original(error)))
        return failed

    def _do_optional_work(self, row: int, view: View, observation: Any, info: Any) -> bool:
        """Does the optional per-step work; returns whether the time limit is reached."""
        if self._checks.left:
            self._checks.check(row, observation)
        if view.fields:
            put_fields(view.fields, row, info)
        return self._limit is not None and bool(self._elapsed[row] >= self._limit)

    # --- not at every step ---

    def _end(
        self,
        row: int,
        view: View,
        observation: Any,
        info: Any,
        terminated: Any,
        truncated: Any,
    ) -> int:
        """Writes the end of an episode. If the row is now fresh, `_reset_ended` must follow."""
        view.terminated[row], view.truncated[row] = bool(terminated), bool(truncated)
        check_info(info)
        mode = self._mode[0]
        if view.final_puts is None or mode != _SAME_STEP:
            self._over.add(row)
            view.puts[row](observation)
            if mode == _DISABLED:
                flags = view.terminated[row], view.truncated[row]
                last_info = snapshot(without_rewards(info))
                self._last[row] = (copy.deepcopy(observation), *flags, last_info)
            return DONE | view.put_info(row, info)
        view.final_puts[row](observation)
        if self._validate and has_nan(observation):
            raise ValueError(f"a final observation {_NAN}")
        put_fields(view.final_fields, row, info)
        self._fresh.add(row)
        return DONE

    def _reset_ended(self, row: int, view: View, final_info: Any) -> Calls:
        """Resets a row in the step that ended its episode; returns status flags."""
        final_info = snapshot(final_info)  # before the reset, which may change it
        try:
            observation, info = yield partial(self.envs[row].reset, seed=None, options=None)
            return self._put_first(row, view, observation, info, final_info)
        except (GeneratorExit, *self._passing):
            raise
        except BaseException as error:
            return (yield from self._fail(row, view, "reset", error))

    def _instead(self, row: int, view: View) -> Calls:
        """Handles the step of a row whose episode has already ended."""
        if row in self._died:
            return self._begin_again(row, view)
        if self._mode[0] == _NEXT_STEP:
            return self._begin(row, view)
        return self._repeat(row, view)

    def _begin_again(self, row: int, view: View) -> Calls:
        """Truncates the episode of a lost row, and begins another."""
        self._keep_final(row, view)
        noted = yield from self._begin(row, view)
        view.truncated[row] = True
        return noted | DONE

    def _repeat(self, row: int, view: View) -> Calls:
        """Repeats the last result of an episode that was not reset."""
        observation, terminated, truncated, info = self._last[row]
        view.puts[row](observation)
        view.reward[row], view.terminated[row], view.truncated[row] = 0.0, terminated, truncated
        self._elapsed[row] -= 1
        if view.fields:
            put_fields(view.fields, row, info)
        return DONE | view.put_info(row, info)
        yield  # unreachable; makes this a generator like the others

    def _begin(
        self,
        row: int,
        view: View,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> Calls:
        """Begins an episode, whose first observation is the row's result."""
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
            observation, info = yield partial(self.envs[row].reset, seed=seed, options=options)
            if self._checks.left:
                self._checks.check(row, observation)
            noted = self._put_first(row, view, observation, info)
        except (GeneratorExit, *self._passing):
            raise
        except BaseException as error:
            noted = yield from self._fail(row, view, "reset", error)
        if self._current is not None:
            self._current[0] = 0
        return noted

    def _put_first(
        self, row: int, view: View, observation: Any, info: Any, final_info: Any = None
    ) -> int:
        view.puts[row](observation)
        if view.fields:
            put_fields(view.fields, row, info)
        return view.put_info(row, info, final_info)

    # --- failures ---

    def _fail(self, row: int, view: View, what: str, error: BaseException) -> Calls:
        """Reports an exception; constructs and resets the environment again."""
        error = original(error)
        _add_hint(error, what)
        self._report_error(row, what, error)
        self._keep_final(row, view)
        self._over.discard(row)
        self._fresh.discard(row)
        close = self.envs[row].close
        self._replace(row, FailedEnv(error))
        try:
            yield close
        except GeneratorExit:
            raise
        except BaseException:  # it has failed already
            pass
        noted = yield from self._remake(row, view)
        self._elapsed[row] = 0
        self._restarted[row] = True
        view.reward[row] = 0.0
        view.terminated[row], view.truncated[row] = False, True
        return noted | DONE

    def _remake(self, row: int, view: View | None = None) -> Calls:
        """Constructs an environment again; resets it if there is a view to write to."""
        try:
            self._replace(row, (yield partial(self._make, row)))
            if view is None:
                return 0
            observation, info = yield partial(self.envs[row].reset, seed=None, options=None)
            return self._put_first(row, view, observation, info)
        except (GeneratorExit, *self._passing):
            raise
        except BaseException as error:
            self._report_error(row, REMAKING, original(error))
            self._replace(row, FailedEnv(original(error)))
            return 0

    def refuse_nan(self, row: int, view: View, what: str) -> Calls:
        """Replaces an environment that has returned NaN; returns status flags."""
        if not self._validate or not view.row_has_nan(row):
            return 0
        which = "a reward" if view.reward[row] != view.reward[row] else "an observation"
        noted = yield from self._fail(row, view, what, ValueError(f"{which} {_NAN}"))
        if self._previous.get(row) is view:  # the previous observation was overwritten
            view.keep_final(row, view)
        return noted

    def _make(self, row: int) -> Any:
        return adapted(self._env_fns[row]())

    def _replace(self, row: int, env: Any) -> None:
        self.envs[row] = env
        self._steps[row] = env.step

    def _report_error(self, row: int, what: str, error: BaseException) -> None:
        self._report(self.first + row, what, traceback_of(error))


def _add_hint(error: BaseException, what: str) -> None:
    """Adds a hint to an error caused by a wrong return value of an environment."""
    frames = error.__traceback__
    if not isinstance(error, (TypeError, ValueError)) or frames is None or frames.tb_next:
        return  # the environment raised it itself
    if "unpack" in str(error) and what in _HINTS:
        error.add_note(_HINTS[what])
    elif str(error).startswith("memoryview: invalid"):
        error.add_note("the reward is not a single number.  Return float(reward).")
