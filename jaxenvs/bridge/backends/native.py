"""The "native" backend, which drives an environment that is vectorized already."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from jaxenvs.bridge.backends._batches import (
    Batch,
    Form,
    Raw,
    copy_rows,
    field_of,
    fitting,
    has_nan,
    rows_of,
)
from jaxenvs.bridge.backends._drivers import Driver, driver_of
from jaxenvs.bridge.backends.base import (
    RESET,
    STEP_ALL,
    Backend,
    Broken,
    Post,
    Settings,
    private_arrays,
)
from jaxenvs.bridge.foreign.ids import VectorMaker
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.bridge.memory.layout import leaves_of, tree_of
from jaxenvs.bridge.workers.instances import traceback_of
from jaxenvs.errors import JaxenvsError, PoolError

_WATCHED_BATCHES = 4  # copied until it is known whether each batch has its own memory
_CHECKED_BATCHES = 3  # whose observations are compared with the space, under validate="first"
ALL = -1  # the instance number that means the vectorized environment as a whole


class NativeBackend(Backend):
    """A backend that drives one vectorized environment.

    It returns the environment's own arrays without a copy. If the environment writes to the same
    arrays at every step, they are copied.

    Args:
        maker: makes the vectorized environment.
        wanted: the requested "num_envs", "batch_size", "num_threads", "seed", "autoreset_mode" and
            "max_episode_steps"; None accepts the environment's own.

    Raises:
        PoolError: the environment differs from `wanted` and does not accept that option.
        Broken: its constructor raised.
    """

    name = "native"
    makes_batches = True

    def __init__(self, maker: VectorMaker, wanted: Mapping[str, Any]) -> None:
        given = {name: value for name, value in wanted.items() if value is not None}
        _refuse_unaccepted(maker, given)
        options = {name: value for name, value in given.items() if name in maker.accepts}
        try:
            driver = driver_of(maker, options)
        except PoolError:
            raise
        except Exception as error:
            raise Broken(_post("its constructor", error)) from error
        self._driver: Driver | None = driver
        try:
            _refuse_other(maker, driver, given)
        except BaseException:
            driver.close()
            raise
        self.maker = maker
        self.num_envs, self.batch_size = driver.num_envs, driver.batch_size
        self.num_workers = driver.num_threads
        self.autoreset_mode = driver.autoreset_mode
        self.facts = [
            {
                "observation_space": driver.observation_space,
                "action_space": driver.action_space,
                "metadata": dict(getattr(driver.env, "metadata", None) or {}),
                "render_mode": getattr(driver.env, "render_mode", None),
                "spec": driver.spec,
                "agents": (),
            }
        ]

    def info_samples(self) -> list[Mapping[str, Any]]:
        """Returns infos after a reset and a step, from another vectorized environment."""
        driver = driver_of(self.maker, {})
        try:
            actions = batch_space(driver.action_space, driver.num_envs).sample()
            infos = driver.reset(None, None, None).info, driver.step(actions).info
        finally:
            driver.close()
        return [
            {
                name: value[0]  # of the first environment
                for name, value in info.items()
                if isinstance(value, np.ndarray) and value.dtype != object and name[0] != "_"
            }
            for info in infos
        ]

    def attach(self, settings: Settings) -> None:
        self._settings = settings
        self.plan, private = private_arrays(settings, self.num_envs)
        # Batches of all environments are kept by reference; partial ones are copied to their rows.
        self._memory = private.answers
        self._answers: list[Any] = list(self._memory)
        self.arrays: Any = dataclasses.replace(private, answers=self._answers)
        self._form, self._action_form = (
            Form(settings.observation_space),
            Form(settings.action_space),
        )
        self._floats = [i for i, leaf in enumerate(self._form.leaves) if leaf.dtype.kind in "fc"]
        self._options: dict[str, Any] | None = None
        self._posts: list[Post] = []
        self._as_array = np.asarray if self._live.fresh_memory else np.array
        self._copies = not self._live.fresh_memory
        self._held: list[list[np.ndarray]] | None = []  # None once memory was reused
        self._unchecked = _CHECKED_BATCHES if settings.validate else 0
        self._every_id = np.arange(self.num_envs, dtype=np.int32)
        self._true, self._false = np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for constant in (self._every_id, self._true, self._false):
            constant.flags.writeable = False
        self._over = self._false.copy()  # environments whose episode ended in their latest step
        self._begun: tuple[str, Raw | Exception | None] | None = None  # what, its answer if known
        self._parts: list[Raw] = []  # partial answers that were not taken yet
        self._some_buffer = 0
        self._latest: Any = None

    @property
    def _live(self) -> Driver:
        assert self._driver is not None
        return self._driver

    # --- requests of the pool ---

    def lock_step(self, timeout: float | None) -> Callable[[int], int]:
        driver = self._live
        return lambda buffer: self._answered(
            "step", lambda: driver.step(self._actions(None)), buffer
        )

    def start_all(self, op: int, buffer: int) -> None:
        what, answer = "step" if op == STEP_ALL else "reset", None
        try:
            if op == STEP_ALL:
                answer = self._live.begin_step(self._actions(None))
            else:
                answer = self._live.reset(None, self._seeds(self._every_id), self._options)
        except JaxenvsError:
            raise
        except Exception as error:
            answer = error
        self._begun = what, answer

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        if self._begun is None:
            return self._attention()
        (what, answer), self._begun = self._begun, None

        def finish() -> Raw:
            if isinstance(answer, Exception):
                raise answer
            return self._live.end_step() if answer is None else answer

        return self._answered(what, finish, buffer)

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self._some_buffer = buffer
        if op != RESET:
            self._live.send(self._actions(instances), instances)
            return
        found = self._live.reset_some(instances, self._seeds(instances), self._options)
        if found is not None:
            self._parts.append(found)

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        count = len(out)
        if self.batch_size < self.num_envs and count % self.batch_size:
            raise PoolError(
                f"{self.maker.name} answers in batches of {self.batch_size}, but {count} results"
                f" were requested.  Send and receive multiples of {self.batch_size}."
            )

        def finish() -> Raw:
            parts, self._parts = self._parts, []
            while sum(len(part.ids) for part in parts) < count:
                parts.append(self._live.recv())
            found = Raw.together(parts)
            out[:] = found.ids
            return found

        return self._answered("step", finish, self._some_buffer)

    def batch(self, order: np.ndarray | None = None) -> Any:
        """Returns the latest batch, with its rows in the order of the environments `order`."""
        latest = self._latest
        observation = self._form.tree(latest.observation)
        found = observation, latest.reward, latest.terminated, latest.truncated, latest.infos
        if order is None:
            return found
        where = np.empty(self.num_envs, np.int32)
        ids = latest.infos["env_id"]
        where[ids] = np.arange(len(ids))
        return rows_of(found, where[order], len(ids))

    def _actions(self, ids: np.ndarray | None) -> Any:
        # Copies, because some environments keep the arrays.
        arrays = self.arrays.actions
        return self._action_form.tree(
            [array.copy() if ids is None else array[ids] for array in arrays]
        )

    def _seeds(self, ids: np.ndarray) -> Any:
        """Returns None, a base seed, or a list with one seed for each environment."""
        seeds = self.arrays.seeds[ids]
        if (seeds < 0).all():
            return None
        if ids[0] == 0 and len(ids) == self.num_envs and (np.diff(seeds) == 1).all():
            return int(seeds[0])
        return [int(seed) if seed >= 0 else None for seed in seeds]

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        name = what[0]
        try:
            if kind == "set_attr":
                self._live.set_attr(name, list(what[1]))
                return [None] * len(instances)
            return self._live.call(name, instances, *what[1:])
        except Exception as error:
            raise Broken(_post(f"{kind}({name!r})", error)) from error

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    def read_posts(self) -> list[Post]:
        posts, self._posts = self._posts, []
        return posts

    def close(self, grace: float) -> list[Post]:
        driver, self._driver = self._driver, None
        try:
            if driver is not None:
                driver.close()
        except Exception as error:
            return [_post("close", error)]
        return []

    # --- conversion of answers ---

    def _attention(self) -> int:
        return _lines.ATTENTION if self._posts else _lines.OK

    def _answered(self, what: str, finish: Callable[[], Raw], buffer: int) -> int:
        """Puts the answer that `finish` returns into a buffer; reports what it raises."""
        try:
            self._put(finish(), buffer)
        except Exception as error:
            self._posts.append(_post(what, error))
        return self._attention()

    def _put(self, raw: Raw, buffer: int) -> None:
        ids = self._every_id if raw.ids is None else raw.ids
        found = zip(self._form.parts(raw.observation), self._form.leaves, strict=True)
        observation = self._kept([fitting(part, leaf, len(ids)) for part, leaf in found])
        reward = self._as_array(raw.reward, np.float64)
        terminated = self._as_array(raw.terminated, bool)
        truncated = self._as_array(raw.truncated, bool)
        infos = self._infos(raw, ids, terminated | truncated)
        batch = Batch(
            *(self._form, self._settings.info_fields, observation),
            *(reward, terminated, truncated, infos),
        )
        self._latest = batch
        if raw.ids is None:
            self._answers[buffer] = batch
        else:
            memory = self._memory[buffer]
            if self._answers[buffer] is not memory:
                copy_rows(self._answers[buffer], memory, slice(None))
                self._answers[buffer] = memory
            copy_rows(batch, memory, ids)
        if self._settings.validate:
            self._check(observation, reward, ids)

    def _kept(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the arrays, in memory that the environment will not overwrite."""
        if self._copies and self._held is not None:  # it is not known yet whether it does
            held = (old for each in self._held for old in each)
            if any(np.may_share_memory(array, old) for old in held for array in arrays):
                self._held = None
            elif len(self._held) == _WATCHED_BATCHES - 1:
                self._copies, self._held = False, None
            else:
                self._held.append(arrays)
        return [array.copy() for array in arrays] if self._copies else arrays

    def _infos(self, raw: Raw, ids: np.ndarray, done: np.ndarray) -> dict[str, Any]:
        count, info = len(ids), raw.info
        true = self._true[:count]
        infos: dict[str, Any] = {
            "env_id": ids,
            "_env_id": true,
            "elapsed_step": self._elapsed(raw, done),
            "_elapsed_step": true,
            "restarted": self._false[:count],
            "_restarted": true,
        }
        for name, value in info.items():
            if name not in infos:
                infos[name] = value
                if name[0] != "_" and f"_{name}" not in info:
                    infos[f"_{name}"] = true
        if "final_obs" in info:
            infos["final_obs"] = self._finals(info["final_obs"], done)
            infos["_final_obs"] = infos["_final_info"] = done
            infos.setdefault("final_info", {})
        for name, space in self._settings.info_fields.items():
            arrays = (field_of(infos.get(name), leaf, count) for leaf in leaves_of(space))
            infos[name], infos[f"_{name}"] = tree_of(space, arrays), true
        return infos

    def _elapsed(self, raw: Raw, done: np.ndarray) -> np.ndarray:
        """Returns the steps of each row's episode, counted here if the environment does not."""
        rows = slice(None) if raw.ids is None else raw.ids
        elapsed = self.arrays.elapsed
        if "elapsed_step" in raw.info:
            steps = np.array(raw.info["elapsed_step"], np.int32)
        else:
            steps = elapsed[rows] + 1
            if raw.is_reset:
                steps[:] = 0
            elif self.autoreset_mode == "disabled":
                np.putmask(steps, self._over[rows], elapsed[rows])
            else:
                steps[self._over[rows]] = int(self.autoreset_mode == "same_step")
            self._over[rows] = done
        elapsed[rows] = steps
        return steps

    def _finals(self, finals: Any, done: np.ndarray) -> np.ndarray:
        """Returns an object array with the last observation of each environment, or None."""
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            return finals
        rows = np.full(len(done), None, object)
        for row in np.flatnonzero(done).tolist():
            parts = self._form.parts(finals)
            rows[row] = self._form.tree([np.array(part[row]) for part in parts])
        return rows

    def _check(self, observation: list[np.ndarray], reward: np.ndarray, ids: np.ndarray) -> None:
        if has_nan(reward):
            self._tell_nan("a reward", reward, ids)
            return
        for i in self._floats:
            if has_nan(observation[i]):
                self._tell_nan("an observation", observation[i], ids)
                return
        if self._unchecked:
            self._check_space(observation, ids)

    def _tell_nan(self, what: str, array: np.ndarray, ids: np.ndarray) -> None:
        rows = np.isnan(array.reshape(len(array), -1)).any(axis=1)
        text = (
            f"{what} is NaN in environments {ids[rows].tolist()}.  Pass validate=False to accept"
            " NaN."
        )
        self._posts.append(Post(ALL, "a check", text))

    def _check_space(self, observation: list[np.ndarray], ids: np.ndarray) -> None:
        space, warns = self._settings.observation_space, self._settings.validate == "first"
        self._unchecked -= warns
        for row, number in enumerate(ids.tolist()):
            if not space.contains(self._form.tree([array[row] for array in observation])):
                text = f"environment {number} returned an observation outside its space, {space}"
                self._posts.append(Post(ALL, "warning" if warns else "a check", text))
                self._unchecked = 0 if warns else self._unchecked
                return


# --- checks of the options ---


def _refuse_unaccepted(maker: VectorMaker, given: Mapping[str, Any]) -> None:
    unaccepted = [
        name
        for name in ("num_threads", "max_episode_steps")
        if name in given and name not in maker.accepts
    ]
    if unaccepted:
        own = {"num_threads": "num_workers", "max_episode_steps": "time_limit"}
        names = ", ".join(own[name] for name in unaccepted)
        raise PoolError(
            f"make_pool got {names}, which {maker.name} does not accept.  Pass it to the"
            " constructor of the vectorized environment inside the function."
        )


def _refuse_other(maker: VectorMaker, driver: Driver, given: Mapping[str, Any]) -> None:
    for name, has in (
        ("autoreset_mode", driver.autoreset_mode),
        ("batch_size", driver.batch_size),
        ("num_envs", driver.num_envs),
    ):
        if given.get(name, has) != has:
            raise PoolError(
                f"make_pool got {name}={given[name]!r}, but {maker.name} has {has!r}, which a pool"
                f" cannot change.  Omit {name}, pass it to the constructor of the vectorized"
                " environment, or use another backend."
            )


def _post(what: str, error: Exception) -> Post:
    return Post(ALL, what, traceback_of(error))
