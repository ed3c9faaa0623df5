"""One interface to the vectorized environments of Gymnasium, ale_py, and EnvPool."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from jaxenvs.bridge.backends._vector_batches import VectorBatch
from jaxenvs.bridge.foreign.adapters import is_envpool, is_vectorized
from jaxenvs.bridge.foreign.ids import VectorMaker
from jaxenvs.errors import PoolError, SeedError

Options = dict[str, Any] | None  # of `reset`

# Classes whose reset supports options["reset_mask"]. Others ignore it and reset everything.
_SUPPORT_RESET_MASK = ("AsyncVectorEnv", "AtariVectorEnv", "Pool", "SyncVectorEnv")


def make_adapter(maker: VectorMaker, wanted: Mapping[str, Any]) -> "VectorAdapter":
    """Makes a vectorized environment and returns its adapter.

    Args:
        maker: makes the vectorized environment.
        wanted: the options that it should have; None accepts the environment's own.

    Raises:
        PoolError: it is not vectorized, or differs from `wanted` and does not accept that option.
    """
    wanted = {name: value for name, value in wanted.items() if value is not None}
    arguments = {"num_threads": "num_workers", "max_episode_steps": "time_limit"}
    refused = [arguments[n] for n in arguments if n in wanted and n not in maker.accepts]
    if refused:
        raise PoolError(
            f"make_pool got {', '.join(refused)}, which {maker.name} does not accept.  Pass it to"
            " the constructor of the vectorized environment inside the function."
        )
    options = {name: value for name, value in wanted.items() if name in maker.accepts}
    env = maker(**options)
    if is_envpool(env):
        adapter = EnvPoolAdapter(env, maker, options)
    elif not is_vectorized(env):
        raise PoolError(
            f"{maker.name} made {type(env).__name__}, which is not a vectorized environment."
            "  Return a gymnasium.vector.VectorEnv or an EnvPool, or use another backend."
        )
    else:
        is_atari = type(env.unwrapped).__name__ == "AtariVectorEnv"
        adapter = AtariVectorAdapter(env) if is_atari else VectorAdapter(env)
    for name in ("autoreset_mode", "batch_size", "num_envs"):
        has = getattr(adapter, name)
        if wanted.get(name, has) != has:
            adapter.close()
            raise PoolError(
                f"make_pool got {name}={wanted[name]!r}, but {maker.name} has {has!r}, which a pool"
                f" cannot change.  Omit {name}, pass it to the constructor of the vectorized"
                " environment, or use another backend."
            )
    return adapter


class VectorAdapter:
    """The adapter of a `gymnasium.vector.VectorEnv`.

    Attributes:
        returns_new_arrays: whether every batch is known to have arrays of its own.
        returns_new_observations: the same of the observations alone.
        num_threads: the environment's number of threads; 0 if it has none or is unknown.
    """

    returns_new_arrays = returns_new_observations = False
    num_threads = 0
    # The environment's methods that start and finish a step; it need not have them.
    _start_method, _finish_method = "step_async", "step_wait"

    def __init__(self, env: Any) -> None:
        self.env = env
        self.num_envs = self.batch_size = int(env.num_envs)
        self.observation_space: gymnasium.Space = env.single_observation_space
        self.action_space: gymnasium.Space = env.single_action_space
        mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
        # Gymnasium's default for an environment that does not say.
        self.autoreset_mode: Any = getattr(mode, "name", "NEXT_STEP").lower()
        spec = getattr(env, "spec", None)
        self.spec = spec if isinstance(spec, EnvSpec) else None
        self._name = type(env.unwrapped).__name__
        if type(env) in (SyncVectorEnv, AsyncVectorEnv):
            self.returns_new_observations = bool(env.copy)

    # --- all environments ---

    def reset(self, seeds: Any, options: Options) -> VectorBatch:
        """Resets all environments, or those that options["reset_mask"] selects.

        Args:
            seeds: None, the seed of environment 0 (others count up), or a list with N seeds.
            options: passed on to the environment.
        """
        return VectorBatch.of_reset(self.env.reset(seed=seeds, options=options), self.batch_size)

    def step(self, actions: Any) -> VectorBatch:
        return VectorBatch(None, *self.env.step(actions))

    def start_step(self, actions: Any) -> VectorBatch | None:
        """Starts a step; returns its result, or None if `finish_step` will return it."""
        start = getattr(self.env, self._start_method, None)
        return self.step(actions) if start is None else start(actions)

    def finish_step(self) -> VectorBatch:
        return VectorBatch(None, *getattr(self.env, self._finish_method)())

    # --- some environments ---

    def reset_some(self, ids: np.ndarray, seeds: Any, options: Options) -> VectorBatch | None:
        """Resets some environments; returns their rows, or None if `recv` will return them."""
        if self._name not in _SUPPORT_RESET_MASK:
            raise PoolError(
                f"{self._name} resets all its environments together; it cannot reset only"
                f" {ids.tolist()}.  Call reset without env_ids and reset_mask."
            )
        mask = np.zeros(self.num_envs, bool)
        mask[ids] = True
        if seeds is not None:
            seed_of = dict(zip(ids.tolist(), seeds, strict=True))
            seeds = [seed_of.get(i) for i in range(self.num_envs)]
        options = {**(options or {}), "reset_mask": mask}
        return self.reset(seeds, options).take(ids, self.num_envs, ids)

    def send(self, actions: Any, ids: np.ndarray) -> None:
        raise PoolError(
            f"{self._name} steps all its environments together; it cannot step only"
            f" {ids.tolist()}.  Call step without env_ids, or use another backend."
        )

    def recv(self) -> VectorBatch:
        """Returns the next batch of those that `send` or `reset_some` started."""
        raise NotImplementedError

    # --- between steps ---

    def call(self, name: str, ids: Sequence[int], args: Any, kwargs: Any) -> list[Any]:
        """Calls a method of each environment, or of the vectorized one if it has no `call`."""
        if name == "render":
            values = self.env.render(*args, **kwargs)
        elif hasattr(self.env.unwrapped, "call"):
            values = self.env.unwrapped.call(name, *args, **kwargs)
        else:
            value = getattr(self.env, name)
            return [value(*args, **kwargs) if callable(value) else value] * len(ids)
        return [None if values is None else values[i] for i in ids]

    def set_attr(self, name: str, values: list[Any]) -> None:
        if not hasattr(self.env.unwrapped, "set_attr"):
            raise AttributeError(f"{self._name} cannot set attributes of its environments")
        self.env.unwrapped.set_attr(name, values)

    def close(self) -> None:
        self.env.close()


class AtariVectorAdapter(VectorAdapter):
    """The adapter of ale_py's `AtariVectorEnv`, which may return batches of less than N."""

    returns_new_arrays = returns_new_observations = True
    _start_method, _finish_method = "send", "recv"

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.batch_size = int(env.unwrapped.batch_size)
        self._last_ids: Any = None  # of the last batch: only they accept actions
        self._reset_batch: VectorBatch | None = None  # the first batch, which `recv` returns

    def reset(self, seeds: Any, options: Options) -> VectorBatch:
        if isinstance(seeds, list):  # it expects an array, with -1 for no seed
            given = np.array([-1 if seed is None else seed for seed in seeds])
            seeds = given[(options or {}).get("reset_mask", slice(None))]
        return super().reset(seeds, options)

    def reset_some(self, ids: np.ndarray, seeds: Any, options: Options) -> VectorBatch | None:
        if self.batch_size == self.num_envs:
            return super().reset_some(ids, seeds, options)
        if len(ids) != self.num_envs:
            raise PoolError(
                f"AtariVectorEnv with batch_size={self.batch_size} resets all its environments"
                f" together; it cannot reset only {ids.tolist()}.  Call async_reset() without"
                " env_ids."
            )
        self._reset_batch = self.reset(seeds, options)
        return None

    def send(self, actions: Any, ids: np.ndarray) -> None:
        if self.batch_size == self.num_envs:
            super().send(actions, ids)
        last = [] if self._last_ids is None else self._last_ids.tolist()
        if set(ids.tolist()) != set(last):
            raise PoolError(
                f"AtariVectorEnv got actions for environments {ids.tolist()}; it only accepts them"
                f" for those of the latest recv: {last}.  Send actions for these after each recv."
            )
        order = np.empty(self.num_envs, np.int32)
        order[ids] = np.arange(len(ids))
        self.env.send(np.ascontiguousarray(actions[order[last]]))
        self._last_ids = None

    def recv(self) -> VectorBatch:
        batch, self._reset_batch = self._reset_batch or self.finish_step(), None
        self._last_ids = batch.info["env_id"].copy()
        return batch._replace(ids=self._last_ids)


class EnvPoolAdapter(VectorAdapter):
    """The adapter of an EnvPool with the interface "gymnasium" ("gym" in older releases)."""

    returns_new_arrays = returns_new_observations = True
    _start_method, _finish_method = "send", "recv"

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
        self.autoreset_mode = "next_step"
        self.spec = None
        self._steps_together = self.batch_size == self.num_envs
        self._is_new = True
        self._step = self._fast_step()

    def reset(self, seeds: Any, options: Options) -> VectorBatch:
        self._seed(seeds)
        self._refuse_options(options)
        if self._steps_together:
            return VectorBatch.of_reset(self.env.reset(), self.num_envs)
        self.env.async_reset()
        batch = self.finish_step()
        return VectorBatch.of_reset((batch.observation, batch.info), self.num_envs)

    def step(self, actions: Any) -> VectorBatch:
        if self._step is not None:
            return VectorBatch(None, *self._step(actions))
        self.env.send(actions)
        return self.finish_step()

    def _fast_step(self) -> Any:
        """Returns a faster `env.step` for one array of actions, or None if it does not apply.

        EnvPool's own handling of trees and names costs 10 us or more, a fifth of a CartPole step.
        """
        env, spec = self.env, getattr(self.env, "_spec", None)
        keys = list(getattr(spec, "_action_keys", ()))
        methods: list[Any] = [getattr(env, name, None) for name in ("_send", "_recv", "_to")]
        is_simple = self._steps_together and keys[:2] == ["env_id", "players.env_id"]
        if not (is_simple and len(keys) == 3 and all(methods)):
            return None
        if env.config["max_num_players"] != 1:
            return None
        dtype = np.dtype(spec._action_spec[-1][0])  # pyright: ignore[reportOptionalMemberAccess]
        send, recv, to = methods
        ids = np.arange(self.num_envs, dtype=np.int32)

        def step(actions: np.ndarray) -> Any:
            send([ids, ids, np.ascontiguousarray(actions, dtype)])
            return to(recv(), False, True)

        return step

    def finish_step(self) -> VectorBatch:
        """Receives batches until all N environments have returned; returns them in order."""
        if self._steps_together:
            return super().finish_step()
        if self.num_envs % self.batch_size:
            raise PoolError(
                f"an EnvPool with batch_size={self.batch_size} cannot be stepped as a whole:"
                f" num_envs={self.num_envs} is not a multiple of it.  Use async_reset, recv and"
                " send."
            )
        parts = [self.recv() for _ in range(self.num_envs // self.batch_size)]
        batch = VectorBatch.concatenated(parts)
        return batch.take(np.argsort(batch.ids), self.num_envs, None)

    def reset_some(self, ids: np.ndarray, seeds: Any, options: Options) -> VectorBatch | None:
        self._refuse_options(options)
        if seeds is not None and len(ids) != self.num_envs:
            raise SeedError(
                "an EnvPool is seeded as a whole when it is made, so some of its environments"
                " cannot be seeded alone.  Reset them without a seed, or reset all."
            )
        self._seed(seeds)
        if self._steps_together:
            return VectorBatch.of_reset(self.env.reset(ids), len(ids), ids)
        if len(ids) == self.num_envs:
            self.env.async_reset()
        else:
            self.env._reset(ids)
        return None

    def send(self, actions: Any, ids: np.ndarray) -> None:
        self.env.send(actions, ids)

    def recv(self) -> VectorBatch:
        result = self.env.recv()
        return VectorBatch(result[4]["env_id"], *result)

    def call(self, name: str, ids: Sequence[int], args: Any, kwargs: Any) -> list[Any]:
        if name == "render":
            frames = self.env.render(np.asarray(ids, np.int32), *args, **kwargs)
            return [None] * len(ids) if frames is None else list(frames)
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
        self._step = self._fast_step()

    def _refuse_options(self, options: Options) -> None:
        if options:
            raise PoolError(
                f"reset got the options {sorted(options)}, but an EnvPool accepts no options."
                "  Omit them."
            )
