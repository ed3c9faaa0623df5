"""One worker's environments, and the loop that steps them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxenvs.bridge.workers.calls import run_here
from jaxenvs.bridge.workers.rows import Rows
from jaxenvs.bridge.workers.views import View


class Instances(Rows):
    """Instances `first`, `first + 1`, ... of a pool; their rows are numbered from 0."""

    def step_all(self, buffer: int) -> int:
        """Steps every row; returns status flags."""
        view = self.begin_all(buffer)
        noted = self._run(self._rows, self.actions(None), view)
        for row in self.with_nan(view):
            noted |= run_here(self.refuse_nan(row, view, "step"))
        return noted

    def step_one(self, buffer: int, row: int) -> int:
        """Steps one row; returns status flags."""
        (action,) = self.actions(row)
        return self.step_here(row, self.begin_one(buffer, row), action)

    def step_here(self, row: int, view: View, action: Any, checks_nan: bool = True) -> int:
        """Like `step`, but faster, and in this thread."""
        noted = self._run((row,), (action,), view)
        if checks_nan and self._validate and view.row_has_nan(row):
            noted |= run_here(self.refuse_nan(row, view, "step"))
        return noted

    def reset_rows(self, buffer: int, rows: Iterable[int] | None = None) -> int:
        """Resets rows; None for all. Returns status flags."""
        noted = 0
        for row in self._rows if rows is None else rows:
            noted |= run_here(self.reset(buffer, row, self.options))
        return noted

    def _run(self, rows: Iterable[int], actions: Iterable[Any], view: View) -> int:
        # The hot loop. What does not happen at every step is in other methods.
        steps, puts, over, current = self._steps, view.puts, self._over, self._current
        rewards, targets, with_info = view.reward, view.targets, view.with_info
        has_optional_work = self._limit is not None or self._checks.left or view.fields
        first, noted = self.first + 1, 0
        for row, action in zip(rows, actions):  # noqa: B905
            if current is not None:
                current[0] = first + row
            if over and row in over:
                noted |= run_here(self._instead(row, view))
                continue
            try:
                observation, rewards[row], terminated, truncated, info = steps[row](action)
                if has_optional_work and self._do_optional_work(row, view, observation, info):
                    truncated = True
                if terminated or truncated:
                    noted |= self._end(row, view, observation, info, terminated, truncated)
                    if row in self._fresh:
                        noted |= run_here(self._reset_ended(row, view, info))
                    continue
                try:
                    # A one-dimensional memoryview accepts only an array of its own length and
                    # type, and some types (other byte order) not at all.
                    targets[row][:] = observation
                except (ValueError, TypeError, NotImplementedError):
                    puts[row](observation)
                if info:
                    noted |= view.put_info(row, info)
                elif with_info and row in with_info:
                    view.no_info(row)
            except self._passing:
                raise
            except BaseException as error:
                noted |= run_here(self._fail(row, view, "step", error))
        if current is not None:
            current[0] = 0
        return noted

    # --- between steps ---

    @property
    def is_recovering(self) -> bool:
        """Whether some instances have not answered since `recover`."""
        return bool(self._died)

    def kept_info(self, buffer: int, row: int) -> Any:
        """Returns a row's info and final info, if they are kept unpickled."""
        return self._views[buffer].kept_info(row)

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

    def close_one(self, row: int) -> Any:
        return self.envs[row].close()

    def close(self) -> tuple[int, str] | None:
        """Closes every environment; returns the first instance that raised, and its traceback."""
        return run_here(self._close_all())
