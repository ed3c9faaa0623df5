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
from jaxenvs.bridge.workers.failures import traceback_of
from jaxenvs.bridge.workers.views import own_copy, snapshot
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
        try:
            driver = driver_of(maker, wanted)
        except PoolError:
            raise
        except Exception as error:
            raise Broken(_post("its constructor", error)) from error
        self._driver: Driver | None = driver
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
        self._form = Form(settings.observation_space)
        self._action_form = Form(settings.action_space)
        self._leaves, self._fields = self._form.leaves, settings.info_fields
        self._floats = [i for i, leaf in enumerate(self._leaves) if leaf.dtype.kind in "fc"]
        self._action_arrays = private.actions
        self._options: dict[str, Any] | None = None
        self._posts: list[Post] = []
        self._is_fresh, self._mode = self._live.fresh_memory, self._live.autoreset_mode
        self._copies = not self._is_fresh
        self._held: list[list[np.ndarray]] | None = []  # None once memory was reused
        self._unchecked = _CHECKED_BATCHES if settings.validate else 0
        self._every_id = np.arange(self.num_envs, dtype=np.int32)
        self._true = np.ones(self.num_envs, bool)
        self._every_id.flags.writeable = self._true.flags.writeable = False
        self._over = np.zeros(self.num_envs, bool)  # where the latest step ended the episode
        self._any_over = False
        self._begun: tuple[str, Raw | Exception | None] | None = None  # what, its answer if known
        self._parts: list[Raw] = []  # partial answers that were not taken yet
        self._some_buffer = 0
        self._latest: Any = None

    @property
    def _live(self) -> Driver:
        assert self._driver is not None
        return self._driver

    # --- requests of the pool ---

    def lock_step(self, timeout: float) -> Callable[[int], int]:
        driver = self._live

        def step(buffer: int) -> int:
            try:
                return self._put(driver.step(self._actions(None)), buffer)
            except Exception as error:
                return self._failed("step", error)

        return step

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

    def wait_all(self, buffer: int, timeout: float) -> int:
        if self._begun is None:
            return self._attention()
        (what, answer), self._begun = self._begun, None

        try:
            if isinstance(answer, Exception):
                raise answer
            return self._put(self._live.end_step() if answer is None else answer, buffer)
        except Exception as error:
            return self._failed(what, error)

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self._some_buffer = buffer
        if op != RESET:
            self._live.send(self._actions(instances), instances)
            return
        found = self._live.reset_some(instances, self._seeds(instances), self._options)
        if found is not None:
            self._parts.append(found)

    def take(self, out: np.ndarray, timeout: float) -> int:
        count = len(out)
        if self.batch_size < self.num_envs and count % self.batch_size:
            raise PoolError(
                f"{self.maker.name} answers in batches of {self.batch_size}, but {count} results"
                f" were requested.  Send and receive multiples of {self.batch_size}."
            )
        parts, self._parts = self._parts, []
        try:
            while sum(len(part.ids) for part in parts) < count:
                parts.append(self._live.recv())
            found = Raw.together(parts)
            out[:] = found.ids
            return self._put(found, self._some_buffer)
        except Exception as error:
            out[:] = -1
            return self._failed("step", error)

    def batch(self, order: np.ndarray | None = None) -> Any:
        latest = self._latest
        observation = self._form.tree(latest.observation)
        found = observation, latest.reward, latest.terminated, latest.truncated, latest.infos
        if order is None:
            return found
        row_of = np.empty(self.num_envs, np.int32)
        row_of[latest.ids] = np.arange(len(order))
        return rows_of(found, row_of[order], len(order))

    def _actions(self, ids: np.ndarray | None) -> Any:
        # Copies, because some environments keep the arrays.
        arrays = self._action_arrays
        if ids is None and self._action_form.is_plain:
            return arrays[0].copy()
        return self._action_form.tree([a.copy() if ids is None else a[ids] for a in arrays])

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

    def _failed(self, what: str, error: Exception) -> int:
        self._posts.append(_post(what, error))
        return self._attention()

    def _put(self, raw: Raw, buffer: int) -> int:
        """Puts an answer into a buffer; returns the status."""
        ids, observation, reward, terminated, truncated, _, _ = raw
        every = self._every_id if ids is None else ids
        parts, count = self._form.parts(observation), len(every)
        arrays = [fitting(part, leaf, count) for part, leaf in zip(parts, self._leaves)]  # noqa: B905
        if self._copies:
            arrays = self._copied(arrays)
        if not self._is_fresh:
            terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
            reward = np.array(reward, np.float64)
        elif reward.dtype != np.float64:
            reward = reward.astype(np.float64)
        infos = self._infos(raw, terminated, truncated, count)
        batch = Batch(self._form, self._fields, every, arrays, reward, terminated, truncated, infos)
        self._latest = batch
        if ids is None:
            self._answers[buffer] = batch
        else:
            memory = self._memory[buffer]
            if self._answers[buffer] is not memory:
                copy_rows(self._answers[buffer], memory, slice(None))
                self._answers[buffer] = memory
            copy_rows(batch, memory, ids)
        if self._settings.validate:
            self._check(arrays, reward, every)
        return self._attention()

    def _copied(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Copies arrays, unless enough batches have shown that each has its own memory."""
        if self._held is not None:
            held = (old for each in self._held for old in each)
            if any(np.may_share_memory(array, old) for old in held for array in arrays):
                self._held = None  # memory is reused, so copy for good
            elif len(self._held) == _WATCHED_BATCHES - 1:
                self._copies, self._held = False, None
                return arrays
            else:
                self._held.append(arrays)
        return [array.copy() for array in arrays]

    def _infos(
        self, raw: Raw, terminated: np.ndarray, truncated: np.ndarray, count: int
    ) -> dict[str, Any]:
        """Returns the environment's infos with masks and the info_fields; counts the steps."""
        info, true = raw.info, self._true[:count]
        infos = {name: value for name, value in info.items() if name != "final_obs"}
        if not self._is_fresh:
            infos = snapshot(infos)
        for name in info:
            if name[0] != "_" and f"_{name}" not in info:
                infos[f"_{name}"] = true
        if "final_obs" in info:
            done = terminated | truncated
            infos["final_obs"] = self._finals(info["final_obs"], done)
            infos["_final_obs"] = infos["_final_info"] = done
            infos.setdefault("final_info", {})
        for name, space in self._fields.items():
            found = (field_of(info.get(name), leaf, count) for leaf in leaves_of(space))
            infos[name] = tree_of(space, found)
        if "elapsed_step" in info:  # EnvPool counts itself
            rows = slice(None) if raw.ids is None else raw.ids
            self.arrays.elapsed[rows] = info["elapsed_step"]
        else:
            self._count(raw, terminated | truncated)
        return infos

    def _count(self, raw: Raw, over: np.ndarray) -> None:
        """Counts a step of each episode; `over` is where it ended one."""
        elapsed, before = self.arrays.elapsed, self._over
        steps = elapsed
        if raw.ids is not None:
            steps, before = elapsed[raw.ids], before[raw.ids]
        if raw.is_reset:
            steps[:] = 0
        else:
            np.add(steps, 1, steps)
            if self._any_over:
                first = {"same_step": 1, "next_step": 0}.get(self._mode)
                np.putmask(steps, before, steps - 1 if first is None else first)
        if raw.ids is None:
            self._over = over
        else:
            elapsed[raw.ids] = steps
            self._over = self._over.copy()
            self._over[raw.ids] = over
        self._any_over = b"\1" in self._over.tobytes()  # a fifth of the time of any()

    def _finals(self, finals: Any, done: np.ndarray) -> np.ndarray:
        """Returns an object array with the last observation of each environment, or None."""
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            return own_copy(finals)
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


def _post(what: str, error: Exception) -> Post:
    return Post(ALL, what, traceback_of(error))
