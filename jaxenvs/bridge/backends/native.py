"""The "native" backend, which drives an environment that is vectorized already."""

import dataclasses
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.backends._batches import (
    Answers,
    field_of,
    first_of,
    fitting,
    has_nan,
    rows_of,
    together,
)
from jaxenvs.bridge.backends._drivers import Driver, Raw, driver_of
from jaxenvs.bridge.backends.base import (
    RESET,
    RESET_ALL,
    STEP_ALL,
    Backend,
    Broken,
    Post,
    Settings,
    private_arrays,
)
from jaxenvs.bridge.foreign.ids import VectorMaker
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.bridge.memory.layout import getter, leaves_of, tree_of
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
            raise _broken("its constructor", error) from error
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
            _, reset_info = driver.reset(None, None, None)
            info = driver.step(_some_actions(driver)).info
        finally:
            driver.close()
        return [first_of(reset_info), first_of(info)]

    def attach(self, settings: Settings) -> None:
        self._settings = settings
        self.plan, private = private_arrays(settings, self.num_envs)
        self._answers = Answers(private.answers, settings)
        self.arrays = dataclasses.replace(private, answers=self._answers)
        self._leaves = leaves_of(settings.observation_space)
        self._gets = [getter(leaf.path) for leaf in self._leaves]
        self._is_plain = len(self._leaves) == 1 and not self._leaves[0].path
        self._options: dict[str, Any] | None = None
        self._posts: list[Post] = []
        self._is_fresh = self._live.fresh_memory
        self._watched = 0 if self._is_fresh else _WATCHED_BATCHES
        self._copies = self._watched > 0
        self._held: list[np.ndarray] = []
        self._unchecked = _CHECKED_BATCHES if settings.validate else 0
        self._every_id = np.arange(self.num_envs, dtype=np.int32)
        self._true = np.ones(self.num_envs, bool)
        self._false = np.zeros(self.num_envs, bool)
        for constant in (self._every_id, self._true, self._false):
            constant.flags.writeable = False
        self._own_infos = {
            "env_id": self._every_id,
            "_env_id": self._true,
            "elapsed_step": None,
            "_elapsed_step": self._true,
            "restarted": self._false,
            "_restarted": self._true,
        }
        self._over, self._any_over = self._false, False  # environments whose episode just ended
        self._floats = [i for i, leaf in enumerate(self._leaves) if leaf.dtype.kind in "fc"]
        self._action = self.arrays.actions[0]
        self._is_plain_action = len(leaves_of(settings.action_space)) == 1 and not (
            leaves_of(settings.action_space)[0].path
        )
        self._begun: tuple[int, Any] | None = None  # op of all, and its answer if available
        self._parts: list[Raw] = []  # partial answers that were not taken yet
        self._some_buffer = 0
        self._batch: Any = None

    @property
    def _live(self) -> Driver:
        assert self._driver is not None
        return self._driver

    # --- all ---

    def lock_step(self, timeout: float | None) -> Callable[[int], int]:
        driver = self._live

        def step(buffer: int) -> int:
            try:
                return self._answer(driver.step(self._actions()), buffer)
            except Exception as error:
                return self._failed("step", error)

        return step

    def start_all(self, op: int, buffer: int) -> None:
        try:
            if op == STEP_ALL:
                self._live.begin_step(self._actions())
                self._begun = op, None
            else:
                found = self._live.reset(None, self._seeds(self._every_id), self._options)
                self._begun = op, self._of_reset(*found, self.num_envs)
        except JaxenvsError:
            raise
        except Exception as error:
            self._begun = op, error

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        if self._begun is None:
            return self._attention()
        op, raw = self._begun
        self._begun = None
        try:
            if isinstance(raw, Exception):
                raise raw
            return self._answer(self._live.end_step() if raw is None else raw, buffer)
        except Exception as error:
            return self._failed("reset" if op == RESET_ALL else "step", error)

    # --- some ---

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self._some_buffer = buffer
        driver = self._live
        if op == RESET:
            found = driver.begin_reset_some(instances, self._seeds(instances), self._options)
            if found is not None:
                self._parts.append(self._of_reset(*found, len(instances), instances))
        else:
            driver.send(self._actions(instances), instances)

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        try:
            taken = self._taken(len(out))
        except PoolError:
            raise
        except Exception as error:
            return self._failed("step", error)
        out[:] = taken.ids
        return self._answer(taken, self._some_buffer)

    def _taken(self, count: int) -> Raw:
        if self.batch_size < self.num_envs and count % self.batch_size:
            raise PoolError(
                f"{self.maker.name} answers in batches of {self.batch_size}, but {count} results"
                f" were requested.  Send and receive multiples of {self.batch_size}."
            )
        parts, self._parts = self._parts, []
        while (missing := count - sum(len(part.ids) for part in parts)) > 0:
            parts.append(self._live.recv(missing))
        return parts[0] if len(parts) == 1 else together(parts, self._gets, self._rebuilt)

    # --- conversion of answers ---

    def _of_reset(
        self, observation: Any, info: Mapping[str, Any], count: int, ids: np.ndarray | None = None
    ) -> Raw:
        flags = np.zeros(count, bool)
        return Raw(ids, observation, np.zeros(count), flags, flags.copy(), info, is_reset=True)

    def _answer(self, raw: Raw, buffer: int) -> int:
        ids, observation, reward, terminated, truncated, info, _ = raw
        leaves = self._own(observation, self.num_envs if ids is None else len(ids))
        if self._is_fresh:
            if reward.dtype != np.float64:
                reward = reward.astype(np.float64)
        else:
            reward = np.array(reward, np.float64)
            terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        done = terminated | truncated
        infos = self._infos(raw, ids, done) if ids is not None else self._infos_of_all(raw, done)
        if "final_obs" in info and done.any():
            infos["final_obs"] = self._finals(info["final_obs"], done)
            infos["_final_obs"] = infos["_final_info"] = done
            infos.setdefault("final_info", {})
        if self._settings.info_fields:
            self._put_fields(infos, len(done))
        observation = leaves[0] if self._is_plain else self._rebuilt(leaves)
        self._batch = observation, reward, terminated, truncated, infos
        self._answers.put(buffer, ids, leaves, self._batch)
        if self._settings.validate:
            self._check(leaves, reward, ids)
        return _lines.ATTENTION if self._posts else _lines.OK

    def _own(self, observation: Any, count: int) -> list[np.ndarray]:
        """Returns the arrays, in memory that the environment will not overwrite."""
        if self._is_plain:
            leaves = [fitting(observation, self._leaves[0], count)]
        else:
            leaves = [
                fitting(get(observation), leaf, count)
                for get, leaf in zip(self._gets, self._leaves, strict=True)
            ]
        if self._watched:
            if any(np.may_share_memory(leaf, old) for leaf in leaves for old in self._held):
                self._watched, self._held = 0, []  # memory is reused, so keep copying
            elif self._watched == 1:
                self._watched, self._copies, self._held = 0, False, []
            else:
                self._watched -= 1
                self._held += leaves
        return [leaf.copy() for leaf in leaves] if self._copies else leaves

    def _rebuilt(self, leaves: Sequence[np.ndarray]) -> Any:
        return tree_of(self._settings.observation_space, iter(leaves))

    def _infos_of_all(self, raw: Raw, done: np.ndarray) -> dict[str, Any]:
        infos, info, elapsed = self._own_infos.copy(), raw.info, self.arrays.elapsed
        if "elapsed_step" in info:  # EnvPool counts itself
            elapsed[...] = info["elapsed_step"]
        elif raw.is_reset:
            elapsed[...] = 0
            self._over, self._any_over = self._false, False
        else:
            over, mode = self._over, self.autoreset_mode
            if self._any_over and mode == "same_step":
                elapsed[over] = 0
            np.add(elapsed, 1, elapsed)
            if self._any_over and mode != "same_step":
                np.putmask(elapsed, over, 0 if mode == "next_step" else elapsed - 1)
            self._over, self._any_over = done, b"\1" in done.tobytes()  # a fifth of done.any()
        infos["elapsed_step"] = elapsed.copy()
        self._add(infos, info, self._true)
        return infos

    def _infos(self, raw: Raw, ids: np.ndarray, done: np.ndarray) -> dict[str, Any]:
        true, elapsed = self._true[: len(ids)], self.arrays.elapsed
        if "elapsed_step" in raw.info:
            elapsed[ids] = raw.info["elapsed_step"]
        else:
            over, mode = self._over[ids], self.autoreset_mode
            steps = elapsed[ids] * ~over if mode == "same_step" else elapsed[ids]
            steps = np.zeros_like(steps) if raw.is_reset else steps + 1
            if mode == "next_step":
                steps *= ~over
            elapsed[ids] = steps
            self._over = self._over.copy()
            self._over[ids] = done
            self._any_over = bool(self._over.any())
        infos: dict[str, Any] = {
            "env_id": ids,
            "_env_id": true,
            "elapsed_step": elapsed[ids],
            "_elapsed_step": true,
            "restarted": self._false[: len(ids)],
            "_restarted": true,
        }
        self._add(infos, raw.info, true)
        return infos

    def _add(self, infos: dict[str, Any], info: Mapping[str, Any], true: np.ndarray) -> None:
        """Adds the environment's own entries, with masks where they are missing."""
        for name, value in info.items():
            if name not in infos:
                infos[name] = value
                if name[0] != "_" and (mask := f"_{name}") not in info:
                    infos[mask] = true

    def _put_fields(self, infos: dict[str, Any], count: int) -> None:
        for name, space in self._settings.info_fields.items():
            arrays = (field_of(infos.get(name), leaf, count) for leaf in leaves_of(space))
            infos[name], infos[f"_{name}"] = tree_of(space, arrays), self._true[:count]

    def _finals(self, finals: Any, done: np.ndarray) -> np.ndarray:
        """Returns an object array with the last observation of each environment, or None."""
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            return finals
        rows = np.full(len(done), None, object)
        for row in np.flatnonzero(done).tolist():
            rows[row] = self._rebuilt([np.array(get(finals)[row]) for get in self._gets])
        return rows

    def _check(self, leaves: Sequence[np.ndarray], reward: np.ndarray, ids: Any) -> None:
        if has_nan(reward):
            self._tell_nan("a reward", reward, ids)
            return
        for i in self._floats:
            if has_nan(leaves[i]):
                self._tell_nan("an observation", leaves[i], ids)
                return
        if self._unchecked:
            self._check_space(leaves, ids)

    def _tell_nan(self, what: str, array: np.ndarray, ids: Any) -> None:
        rows = np.isnan(array.reshape(len(array), -1)).any(axis=1)
        numbers = np.flatnonzero(rows) if ids is None else ids[rows]
        text = (
            f"{what} is NaN in environments {numbers.tolist()}.  Pass validate=False to accept NaN."
        )
        self._posts.append(Post(ALL, "a check", text))

    def _check_space(self, leaves: Sequence[np.ndarray], ids: Any) -> None:
        if self._settings.validate == "first":
            self._unchecked -= 1
        space = self._settings.observation_space
        for row in range(len(leaves[0])):
            one = self._rebuilt([leaf[row] for leaf in leaves])
            if not space.contains(one):
                number = row if ids is None else int(ids[row])
                text = f"environment {number} returned an observation outside its space, {space}"
                what = "a check" if self._settings.validate is True else "warning"
                self._posts.append(Post(ALL, what, text))
                self._unchecked = 0 if what == "warning" else self._unchecked
                return

    # --- requests of the pool ---

    def batch(self, order: np.ndarray | None = None) -> Any:
        """Returns the latest batch, with its rows in the order of the environments `order`."""
        observation, reward, terminated, truncated, infos = self._batch
        ids = infos["env_id"]
        if order is None or np.array_equal(ids, order):
            return self._batch
        where = np.empty(self.num_envs, np.int32)
        where[ids] = np.arange(len(ids))
        rows = where[order]
        leaves = [get(observation)[rows] for get in self._gets]
        self._batch = (
            self._rebuilt(leaves),
            *(array[rows] for array in (reward, terminated, truncated)),
            rows_of(infos, rows, len(ids)),
        )
        return self._batch

    def _actions(self, ids: np.ndarray | None = None) -> Any:
        # A copy, because some environments keep the array.
        if ids is None and self._is_plain_action:
            return self._action.copy()
        arrays = [array.copy() if ids is None else array[ids] for array in self.arrays.actions]
        return tree_of(self._settings.action_space, iter(arrays))

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
            raise _broken(f"{kind}({name!r})", error) from error

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    def read_posts(self) -> list[Post]:
        posts, self._posts = self._posts, []
        return posts

    def _failed(self, what: str, error: Exception) -> int:
        self._posts.append(Post(ALL, what, "".join(traceback.format_exception(error))))
        return self._attention()

    def _attention(self) -> int:
        return _lines.ATTENTION if self._posts else _lines.OK

    def close(self, grace: float) -> list[Post]:
        driver, self._driver = self._driver, None
        try:
            if driver is not None:
                driver.close()
        except Exception as error:
            return [Post(ALL, "close", "".join(traceback.format_exception(error)))]
        return []


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


def _broken(what: str, error: Exception) -> Broken:
    return Broken(Post(ALL, what, "".join(traceback.format_exception(error))))


def _some_actions(driver: Driver) -> Any:
    space = driver.action_space
    leaves = (np.array(getter(leaf.path)(space.sample())) for leaf in leaves_of(space))
    arrays = (np.stack([leaf] * driver.num_envs) for leaf in leaves)
    return tree_of(space, arrays)
