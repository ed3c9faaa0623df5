"""One interface to the vectorized environments of Gymnasium, ale_py and EnvPool."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from jaxenvs.bridge.backends._batches import Raw
from jaxenvs.bridge.foreign.adapters import is_envpool, is_vectorized
from jaxenvs.bridge.foreign.ids import VectorMaker
from jaxenvs.bridge.memory.arrays import AutoresetMode
from jaxenvs.errors import PoolError, SeedError

_MODES: dict[str, AutoresetMode] = {
    "NEXT_STEP": "next_step",
    "SAME_STEP": "same_step",
    "DISABLED": "disabled",
}
# Classes whose reset supports options["reset_mask"]. Others ignore it and reset everything.
_HEED_MASKS = ("AsyncVectorEnv", "AtariVectorEnv", "Pool", "SyncVectorEnv")


def driver_of(maker: VectorMaker, wanted: Mapping[str, Any]) -> "Driver":
    """Makes a vectorized environment and returns a driver for it.

    Args:
        maker: makes the vectorized environment.
        wanted: the options that it should have; None accepts the environment's own.

    Raises:
        PoolError: it is not vectorized, or differs from `wanted` and does not accept that option.
    """
    wanted = {name: value for name, value in wanted.items() if value is not None}
    needed = {"num_threads": "num_workers", "max_episode_steps": "time_limit"}
    unaccepted = [name for name in needed if name in wanted and name not in maker.accepts]
    if unaccepted:
        raise PoolError(
            f"make_pool got {', '.join(needed[name] for name in unaccepted)}, which {maker.name}"
            " does not accept.  Pass it to the constructor of the vectorized environment inside the"
            " function."
        )
    options = {name: value for name, value in wanted.items() if name in maker.accepts}
    driver = _driver_for(maker(**options), maker, options)
    for name in ("autoreset_mode", "batch_size", "num_envs"):
        has = getattr(driver, name)
        if wanted.get(name, has) != has:
            driver.close()
            raise PoolError(
                f"make_pool got {name}={wanted[name]!r}, but {maker.name} has {has!r}, which a pool"
                f" cannot change.  Omit {name}, pass it to the constructor of the vectorized"
                " environment, or use another backend."
            )
    return driver


def _driver_for(env: Any, maker: VectorMaker, options: Mapping[str, Any]) -> "Driver":
    if is_envpool(env):
        return EnvPoolDriver(env, maker, options)
    if not is_vectorized(env):
        raise PoolError(
            f"{maker.name} made {type(env).__name__}, which is not a vectorized environment."
            "  Return a gymnasium.vector.VectorEnv or an EnvPool, or use another backend."
        )
    is_atari = type(env.unwrapped).__name__ == "AtariVectorEnv"
    return AtariDriver(env) if is_atari else Driver(env)


class Driver:
    """The driver of a `gymnasium.vector.VectorEnv`.

    Attributes:
        fresh_memory: whether each answer is known to have its own memory.
        num_threads: the environment's number of threads; 0 if it has none or is unknown.
    """

    fresh_memory = False
    num_threads = 0
    _begin, _end = "step_async", "step_wait"  # its methods, which it need not have

    def __init__(self, env: Any) -> None:
        self.env = env
        self.num_envs = self.batch_size = int(env.num_envs)
        self.observation_space: gymnasium.Space = env.single_observation_space
        self.action_space: gymnasium.Space = env.single_action_space
        mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
        # Gymnasium's default for an environment that does not say.
        self.autoreset_mode: AutoresetMode = _MODES[getattr(mode, "name", "NEXT_STEP")]
        spec = getattr(env, "spec", None)
        self.spec = spec if isinstance(spec, EnvSpec) else None
        self._name = type(env.unwrapped).__name__

    # --- all ---

    def reset(self, mask: np.ndarray | None, seeds: Any, options: dict[str, Any] | None) -> Raw:
        """Resets all environments, or those selected by a mask.

        Args:
            mask: bool[N]; None for all.
            seeds: None, the seed of environment 0 (others count up), or a list with N seeds.
            options: passed on to the environment.
        """
        if mask is not None:
            options = {**(options or {}), "reset_mask": mask}
        return Raw.of_reset(self.env.reset(seed=seeds, options=options), self.batch_size)

    def step(self, actions: Any) -> Raw:
        return Raw(None, *self.env.step(actions))

    def begin_step(self, actions: Any) -> Raw | None:
        """Starts a step; returns its answer, or None if `end_step` will return it."""
        begin = getattr(self.env, self._begin, None)
        return self.step(actions) if begin is None else begin(actions)

    def end_step(self) -> Raw:
        return Raw(None, *getattr(self.env, self._end)())

    # --- some ---

    def reset_some(self, ids: np.ndarray, seeds: Any, options: dict[str, Any] | None) -> Raw | None:
        """Resets some environments; returns their rows, or None if `recv` will return them."""
        if self._name not in _HEED_MASKS:
            raise PoolError(
                f"{self._name} resets all its environments together; it cannot reset only"
                f" {ids.tolist()}.  Call reset without env_ids and reset_mask."
            )
        mask = np.zeros(self.num_envs, bool)
        mask[ids] = True
        if seeds is not None:
            every: list[int | None] = [None] * self.num_envs
            for i, each in zip(ids.tolist(), seeds, strict=True):
                every[i] = each
            seeds = every
        return self.reset(mask, seeds, options).rows(ids, self.num_envs, ids)

    def send(self, actions: Any, ids: np.ndarray) -> None:
        raise PoolError(
            f"{self._name} steps all its environments together; it cannot step only"
            f" {ids.tolist()}.  Call step without env_ids, or use another backend."
        )

    def recv(self) -> Raw:
        """Returns the next batch of those that `send` or `reset_some` started."""
        raise NotImplementedError

    # --- between steps ---

    def call(self, name: str, ids: Sequence[int], args: Any, kwargs: Any) -> list[Any]:
        """Calls a method of each environment, or of the vectorized one if it has no `call`."""
        if name == "render":
            found = self.env.render(*args, **kwargs)
        elif hasattr(self.env.unwrapped, "call"):
            found = self.env.unwrapped.call(name, *args, **kwargs)
        else:
            value = getattr(self.env, name)
            return [value(*args, **kwargs) if callable(value) else value] * len(ids)
        return [None if found is None else found[i] for i in ids]

    def set_attr(self, name: str, values: list[Any]) -> None:
        if not hasattr(self.env.unwrapped, "set_attr"):
            raise AttributeError(f"{self._name} cannot set attributes of its environments")
        self.env.unwrapped.set_attr(name, values)

    def close(self) -> None:
        self.env.close()


class AtariDriver(Driver):
    """The driver of ale_py's `AtariVectorEnv`, which may answer in batches of less than N."""

    fresh_memory = True
    _begin, _end = "send", "recv"

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.batch_size = int(env.unwrapped.batch_size)
        self._last: Any = None  # ids of the last answer: only they accept actions
        self._first: Raw | None = None  # the first batch, returned by the reset

    def reset(self, mask: np.ndarray | None, seeds: Any, options: dict[str, Any] | None) -> Raw:
        if isinstance(seeds, list):  # it expects an array, with -1 for no seed
            given = np.array([-1 if seed is None else seed for seed in seeds])
            seeds = given if mask is None else given[mask]
        return super().reset(mask, seeds, options)

    def reset_some(self, ids: np.ndarray, seeds: Any, options: dict[str, Any] | None) -> Raw | None:
        if self.batch_size == self.num_envs:
            return super().reset_some(ids, seeds, options)
        if len(ids) != self.num_envs:
            raise PoolError(
                f"AtariVectorEnv with batch_size={self.batch_size} resets all its environments"
                f" together; it cannot reset only {ids.tolist()}.  Call async_reset() without"
                " env_ids."
            )
        self._first = self.reset(None, seeds, options)
        return None

    def send(self, actions: Any, ids: np.ndarray) -> None:
        if self.batch_size == self.num_envs:
            super().send(actions, ids)
        if self._last is None or set(ids.tolist()) != set(self._last.tolist()):
            last = [] if self._last is None else self._last.tolist()
            raise PoolError(
                f"AtariVectorEnv got actions for environments {ids.tolist()}; it only accepts them"
                f" for those of the latest recv: {last}.  Send actions for these after each recv."
            )
        order = np.empty(self.num_envs, np.int32)
        order[ids] = np.arange(len(ids))
        self.env.send(np.ascontiguousarray(actions[order[self._last]]))
        self._last = None

    def recv(self) -> Raw:
        raw, self._first = self._first or self.end_step(), None
        self._last = raw.info["env_id"].copy()
        return raw._replace(ids=self._last)


class EnvPoolDriver(Driver):
    """The driver of an EnvPool with the interface "gymnasium" ("gym" in older releases)."""

    fresh_memory = True
    _begin, _end = "send", "recv"

    def __init__(self, env: Any, maker: VectorMaker, options: Mapping[str, Any]) -> None:
        self.env: Any = env
        self._maker, self._options = maker, dict(options)
        if not isinstance(getattr(env, "observation_space", None), gymnasium.Space):
            raise PoolError(
                f"{maker.name} made an EnvPool without Gymnasium's interface.  Make it with"
                ' env_type="gymnasium".'
            )
        config = env.config
        self.num_envs = int(config["num_envs"])
        self.batch_size = int(config["batch_size"]) or self.num_envs
        self.num_threads = int(config.get("num_threads", 0))
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.autoreset_mode: AutoresetMode = "next_step"
        self.spec = None
        self._is_new = True
        self._step = self._stepper()

    @property
    def _steps_together(self) -> bool:
        return self.batch_size == self.num_envs

    def reset(self, mask: np.ndarray | None, seeds: Any, options: dict[str, Any] | None) -> Raw:
        self._seed(seeds)
        self._refuse_options(options)
        if self._steps_together:
            return Raw.of_reset(self.env.reset(), self.num_envs)
        self.env.async_reset()
        found = self._all_of_them()
        return Raw.of_reset((found.observation, found.info), self.num_envs)

    def step(self, actions: Any) -> Raw:
        if self._step is not None:
            return Raw(None, *self._step(actions))
        self.begin_step(actions)
        return self.end_step()

    def _stepper(self) -> Any:
        """Returns a faster `env.step` for one array of actions, or None if it does not apply.

        EnvPool's own handling of trees and names costs 10 us or more, a fifth of a CartPole step.
        """
        env, spec = self.env, getattr(self.env, "_spec", None)
        keys = list(getattr(spec, "_action_keys", ()))
        parts: list[Any] = [getattr(env, name, None) for name in ("_send", "_recv", "_to")]
        simple = self._steps_together and keys[:2] == ["env_id", "players.env_id"]
        if not (simple and len(keys) == 3 and all(parts)) or env.config["max_num_players"] != 1:
            return None
        dtype = np.dtype(spec._action_spec[-1][0])  # pyright: ignore[reportOptionalMemberAccess]
        send, recv, to = parts
        ids = np.arange(self.num_envs, dtype=np.int32)

        def step(actions: np.ndarray) -> Any:
            send([ids, ids, np.ascontiguousarray(actions, dtype)])
            return to(recv(), False, True)

        return step

    def end_step(self) -> Raw:
        return super().end_step() if self._steps_together else self._all_of_them()

    def reset_some(self, ids: np.ndarray, seeds: Any, options: dict[str, Any] | None) -> Raw | None:
        self._refuse_options(options)
        if seeds is not None and len(ids) != self.num_envs:
            raise SeedError(
                "an EnvPool is seeded as a whole when it is made, so some of its environments"
                " cannot be seeded alone.  Reset them without a seed, or reset all."
            )
        self._seed(seeds)
        if self._steps_together:
            return Raw.of_reset(self.env.reset(ids), len(ids))._replace(ids=ids)
        if len(ids) == self.num_envs:
            self.env.async_reset()
        else:
            self.env._reset(ids)
        return None

    def send(self, actions: Any, ids: np.ndarray) -> None:
        self.env.send(actions, ids)

    def recv(self) -> Raw:
        answer = self.env.recv()
        return Raw(answer[4]["env_id"], *answer)

    def call(self, name: str, ids: Sequence[int], args: Any, kwargs: Any) -> list[Any]:
        if name == "render":
            found = self.env.render(np.asarray(ids, np.int32), *args, **kwargs)
            return [None] * len(ids) if found is None else list(found)
        return super().call(name, ids, args, kwargs)

    def set_attr(self, name: str, values: list[Any]) -> None:
        raise AttributeError("an EnvPool cannot set attributes of its environments")

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()
        self.env = self._step = None  # ends its threads

    def _seed(self, seeds: Any) -> None:
        """Makes a new EnvPool if the seed changes, since an EnvPool cannot be seeded again."""
        was_new, self._is_new = self._is_new, False
        if seeds is None or (was_new and self._options.get("seed") == seeds):
            return
        if "seed" not in self._maker.accepts:
            raise SeedError(
                "an EnvPool is seeded when it is made.  Pass the seed to envpool.make inside the"
                ' function, or pass the id "envpool/..." instead of a function.'
            )
        if isinstance(seeds, list) and None in seeds:
            raise SeedError(
                "an EnvPool is seeded as a whole, but some seeds are None.  Pass a seed for every"
                " environment."
            )
        self._options["seed"] = seeds
        self.close()
        self.env = self._maker(**self._options)
        self._step = self._stepper()

    def _refuse_options(self, options: dict[str, Any] | None) -> None:
        if options:
            raise PoolError(
                f"reset got the options {sorted(options)}, but an EnvPool accepts no options."
                "  Omit them."
            )

    def _all_of_them(self) -> Raw:
        """Receives partial batches until all N have answered; returns them in order."""
        if self.num_envs % self.batch_size:
            raise PoolError(
                f"an EnvPool with batch_size={self.batch_size} cannot be stepped as a whole:"
                f" num_envs={self.num_envs} is not a multiple of it.  Use async_reset, recv and"
                " send."
            )
        found = Raw.together([self.recv() for _ in range(self.num_envs // self.batch_size)])
        return found.rows(np.argsort(found.ids), self.num_envs, None)
