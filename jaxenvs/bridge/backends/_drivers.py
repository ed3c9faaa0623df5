"""One way to speak to vectorized environments: Gymnasium's, ale_py's and EnvPool's."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from jaxenvs.bridge._adapters import is_envpool, is_vectorized
from jaxenvs.bridge._arrays import AutoresetMode
from jaxenvs.bridge.hosts import VectorMaker
from jaxenvs.errors import PoolError, SeedError

_MODES: dict[str, AutoresetMode] = {
    "NEXT_STEP": "next_step",
    "SAME_STEP": "same_step",
    "DISABLED": "disabled",
}
# Whose reset heeds options["reset_mask"]. Others ignore what they do not know, and reset all.
_HEED_MASKS = ("AsyncVectorEnv", "AtariVectorEnv", "Pool", "SyncVectorEnv")


class Raw(NamedTuple):
    """What a vectorized environment answered, as it came."""

    ids: Any  # int32[n], whose rows these are; None for all, in order
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Mapping[str, Any]
    is_reset: bool = False


def driver_of(maker: VectorMaker, told: Mapping[str, Any]) -> "Driver":
    """Makes a vectorized environment, and what drives it."""
    env = maker(**told)
    if is_envpool(env):
        return EnvPoolDriver(env, maker, told)
    if not is_vectorized(env):
        raise PoolError(
            f"{maker.name} made {type(env).__name__}, which is no vectorized environment.  Return"
            " a gymnasium.vector.VectorEnv or an EnvPool, or use another backend."
        )
    if type(env.unwrapped).__name__ == "AtariVectorEnv":
        return AtariDriver(env)
    return Driver(env)


class Driver:
    """Drives a `gymnasium.vector.VectorEnv`.

    Attributes:
        fresh_memory: whether each answer is known to be in memory of its own.
        num_threads: its own; 0 if it has none, or does not say.
    """

    fresh_memory = False
    num_threads = 0

    def __init__(self, env: Any) -> None:
        self.env = env
        self.num_envs = self.batch_size = int(env.num_envs)
        self.observation_space: gymnasium.Space = env.single_observation_space
        self.action_space: gymnasium.Space = env.single_action_space
        mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
        # Gymnasium takes it for this one where an environment does not say.
        self.autoreset_mode: AutoresetMode = _MODES[getattr(mode, "name", "NEXT_STEP")]
        spec = getattr(env, "spec", None)
        self.spec = spec if isinstance(spec, EnvSpec) else None
        self._actions: Any = None

    # --- all ---

    def reset(
        self, mask: np.ndarray | None, seeds: Any, options: dict[str, Any] | None
    ) -> tuple[Any, Mapping[str, Any]]:
        """Resets all, or those of a mask.

        Args:
            seeds: None, the first of numbers that count up, or a list with one for each of N.
        """
        if mask is not None:
            options = {**(options or {}), "reset_mask": mask}
        return self.env.reset(seed=seeds, options=options)

    def step(self, actions: Any) -> Raw:
        return Raw(None, *self.env.step(actions))

    def begin_step(self, actions: Any) -> None:
        if hasattr(self.env, "step_async"):
            self.env.step_async(actions)
        else:
            self._actions = actions

    def end_step(self) -> Raw:
        if hasattr(self.env, "step_wait"):
            return Raw(None, *self.env.step_wait())
        return self.step(self._actions)

    # --- some ---

    def begin_reset_some(
        self, ids: np.ndarray, seeds: Any, options: dict[str, Any] | None
    ) -> tuple[Any, Mapping[str, Any]] | None:
        """Resets some; their rows if they are there at once, or None if `recv` gives them."""
        if type(self.env.unwrapped).__name__ not in _HEED_MASKS:
            raise PoolError(
                f"{type(self.env.unwrapped).__name__} resets all its environments together, not"
                f" {ids.tolist()} alone.  Call reset without env_ids and reset_mask."
            )
        mask = np.zeros(self.num_envs, bool)
        mask[ids] = True
        observation, info = self.reset(mask, self._seeds_of_some(ids, seeds), options)
        return _rows(observation, ids, self.num_envs), _rows(info, ids, self.num_envs)

    def _seeds_of_some(self, ids: np.ndarray, seeds: Any) -> Any:
        if seeds is None:
            return None
        every: list[int | None] = [None] * self.num_envs
        for i, seed in zip(ids.tolist(), seeds, strict=True):
            every[i] = seed
        return every

    def send(self, actions: Any, ids: np.ndarray) -> None:
        raise PoolError(
            f"{type(self.env.unwrapped).__name__} steps all its environments together, not"
            f" {ids.tolist()} alone.  Call step without env_ids, or use another backend."
        )

    def recv(self, count: int) -> Raw:
        raise NotImplementedError

    # --- beside stepping ---

    def call(self, name: str, ids: Sequence[int], args: Any, kwargs: Any) -> list[Any]:
        """Calls a method of the environments, or where they cannot be reached, of all in one."""
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
            raise AttributeError(
                f"{type(self.env.unwrapped).__name__} cannot set attributes of its environments"
            )
        self.env.unwrapped.set_attr(name, values)

    def close(self) -> None:
        self.env.close()


class AtariDriver(Driver):
    """Drives ale_py's `AtariVectorEnv`, also where it answers in batches of less than N."""

    fresh_memory = True

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.batch_size = int(env.unwrapped.batch_size)
        self._last: Any = None  # whose answer came last: they are the ones that can be sent to
        self._first: Any = None  # a batch that came with the reset

    def reset(
        self, mask: np.ndarray | None, seeds: Any, options: dict[str, Any] | None
    ) -> tuple[Any, Mapping[str, Any]]:
        if isinstance(seeds, list):  # it takes an array, -1 for none
            count = self.num_envs if mask is None else int(mask.sum())
            given = [-1 if seed is None else seed for seed in seeds]
            seeds = np.array(given if len(given) == count else np.array(given)[mask])
        return super().reset(mask, seeds, options)

    def begin_step(self, actions: Any) -> None:
        self.env.send(actions)

    def end_step(self) -> Raw:
        return Raw(None, *self.env.recv())

    def begin_reset_some(
        self, ids: np.ndarray, seeds: Any, options: dict[str, Any] | None
    ) -> tuple[Any, Mapping[str, Any]] | None:
        if self.batch_size == self.num_envs:
            return super().begin_reset_some(ids, seeds, options)
        if len(ids) != self.num_envs:
            raise PoolError(
                f"AtariVectorEnv with batch_size={self.batch_size} resets all its environments"
                f" together, not {ids.tolist()} alone.  Call async_reset() without env_ids."
            )
        self._first = self.reset(None, seeds, options)
        return None

    def send(self, actions: Any, ids: np.ndarray) -> None:
        if self.batch_size == self.num_envs:
            super().send(actions, ids)
        if self._last is None or set(ids.tolist()) != set(self._last.tolist()):
            last = [] if self._last is None else self._last.tolist()
            raise PoolError(
                f"AtariVectorEnv got actions for environments {ids.tolist()}; it takes them for"
                f" those whose answer came last: {last}.  Send to these, after each recv."
            )
        order = np.empty(self.num_envs, np.int32)
        order[ids] = np.arange(len(ids))
        self.env.send(np.ascontiguousarray(actions[order[self._last]]))
        self._last = None

    def recv(self, count: int) -> Raw:
        if self._first is not None:
            (observation, info), self._first = self._first, None
            zeros = np.zeros(self.batch_size)
            flags = zeros.astype(bool)
            raw = Raw(None, observation, zeros, flags, flags.copy(), info, is_reset=True)
        else:
            raw = Raw(None, *self.env.recv())
        self._last = raw.info["env_id"].copy()
        return raw._replace(ids=self._last)


class EnvPoolDriver(Driver):
    """Drives an EnvPool of the interface "gymnasium" (or, of older releases, "gym")."""

    fresh_memory = True

    def __init__(self, env: Any, maker: VectorMaker, told: Mapping[str, Any]) -> None:
        self.env: Any = env
        self._maker, self._told = maker, dict(told)
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

    def reset(
        self, mask: np.ndarray | None, seeds: Any, options: dict[str, Any] | None
    ) -> tuple[Any, Mapping[str, Any]]:
        self._seed(seeds)
        self._refuse_options(options)
        if self._steps_together:
            return self.env.reset()
        self.env.async_reset()
        found = self._all_of_them()
        return found.observation, found.info

    def step(self, actions: Any) -> Raw:
        if self._step is not None:
            return Raw(None, *self._step(actions))
        self.begin_step(actions)
        return self.end_step()

    def _stepper(self) -> Any:
        """What `env.step` does for one array of actions, or None where it is not as expected.

        Its own detours through trees and names cost 10 us and more, a fifth of a step of CartPole.
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

    def begin_step(self, actions: Any) -> None:
        self.env.send(actions)

    def end_step(self) -> Raw:
        if self._steps_together:
            return Raw(None, *self.env.recv())
        return self._all_of_them()

    def begin_reset_some(
        self, ids: np.ndarray, seeds: Any, options: dict[str, Any] | None
    ) -> tuple[Any, Mapping[str, Any]] | None:
        self._refuse_options(options)
        if seeds is not None and len(ids) != self.num_envs:
            raise SeedError(
                "an EnvPool is seeded when it is made, not some of its environments later."
                "  Reset these without a seed, or reset all."
            )
        self._seed(seeds)
        self._is_new = False
        if self._steps_together:
            return self.env.reset(ids)
        if len(ids) == self.num_envs:
            self.env.async_reset()
        else:
            self.env._reset(ids)
        return None

    def send(self, actions: Any, ids: np.ndarray) -> None:
        self.env.send(actions, ids)

    def recv(self, count: int) -> Raw:
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
        self.env = self._step = None  # which is what ends its threads

    def _seed(self, seeds: Any) -> None:
        """Makes the EnvPool anew where it has to begin from another seed: it has no other way."""
        was_new, self._is_new = self._is_new, False
        if seeds is None or (was_new and self._told.get("seed") == seeds):
            return
        if "seed" not in self._maker.accepts:
            raise SeedError(
                "an EnvPool is seeded when it is made.  Give the seed to envpool.make inside the"
                ' function, or name the EnvPool by its id, "envpool/...".'
            )
        if isinstance(seeds, list) and None in seeds:
            raise SeedError("an EnvPool is seeded as a whole.  Give every environment a seed.")
        self._told["seed"] = seeds
        self.close()
        self.env = self._maker(**self._told)
        self._step = self._stepper()

    def _refuse_options(self, options: dict[str, Any] | None) -> None:
        if options:
            raise PoolError(f"an EnvPool takes no options of reset; it got {sorted(options)}.")

    def _all_of_them(self) -> Raw:
        """Batches of less than N, put together in the order of the environments."""
        if self.num_envs % self.batch_size:
            raise PoolError(
                f"an EnvPool with batch_size={self.batch_size} cannot be waited for as a whole:"
                f" num_envs={self.num_envs} is no multiple of it.  Use async_reset, recv and send."
            )
        parts = [self.recv(0) for _ in range(self.num_envs // self.batch_size)]
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids)

        def joined(*trees: Any) -> Any:
            if isinstance(trees[0], Mapping):
                return {key: joined(*(tree[key] for tree in trees)) for key in trees[0]}
            return np.concatenate(trees)[order]

        return Raw(None, *(joined(*(part[i] for part in parts)) for i in range(1, 6)))


def _rows(tree: Any, rows: np.ndarray, count: int) -> Any:
    if isinstance(tree, Mapping):
        return {name: _rows(value, rows, count) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_rows(value, rows, count) for value in tree)
    is_batch = isinstance(tree, np.ndarray) and tree.shape[:1] == (count,)
    return tree[rows] if is_batch else tree
