"""The interfaces over environments that are not JAX: NumPy from a pool, NumPy to the caller."""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

from jaxenvs.bridge._adapters import adapted
from jaxenvs.bridge.hosts import GymnasiumFn, fn_of_id, gymnasium_spec, refuse_kwargs
from jaxenvs.bridge.making import make_pool
from jaxenvs.bridge.pool import Pool
from jaxenvs.core import Environment
from jaxenvs.errors import (
    AlreadyPendingError,
    ClosedError,
    NothingPendingError,
    ParameterError,
    PoolError,
)
from jaxenvs.faces._programs import HostStep
from jaxenvs.faces._seeds import seeds_of
from jaxenvs.factory import host_limit


def is_single(face: str, id: Any, num_envs: int | None) -> bool:
    """Whether one environment is asked for, not a batch.

    Raises:
        ParameterError: nothing that is made into either.
    """
    if isinstance(id, Pool) or (isinstance(id, Sequence) and not isinstance(id, str)):
        return False
    is_native_class = isinstance(id, type) and issubclass(id, Environment)
    if is_native_class or not (isinstance(id, str) or callable(id)):
        raise ParameterError(
            f"{face} got {id!r:.80}; expected an id, an Environment, a pool of make_pool, or a"
            " function that makes an environment."
        )
    return num_envs is None


def pool_of(
    face: str,
    id: Any,
    num_envs: int | None,
    *,
    time_limit: Any = "default",
    options: dict[str, Any],
    defaults: Mapping[str, Any],
) -> Pool:
    """The pool behind `face(id, num_envs, **options)`.

    Args:
        face: the name of the function, for messages.
        id: what `make_pool` takes, or a pool that is made already.
        num_envs: N, of an id.
        time_limit: as `make_gym` takes it.
        options: what was given besides, for `make_pool` or the environment.
        defaults: what is meant where it was not.

    Raises:
        ParameterError: options beside a pool.
        PoolError: `make_pool` cannot follow.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(id, Pool):
        if not isinstance(time_limit, str):
            given["time_limit"] = time_limit
        if num_envs not in (None, id.num_envs):
            given["num_envs"] = num_envs
        if given:
            raise ParameterError(
                f"{face} got {', '.join(given)} beside a pool that is made already.  Pass it to"
                " make_pool, or pass an id."
            )
        return id
    options = {"time_limit": host_limit(id, time_limit), **defaults, **given}
    return make_pool(id, num_envs, **options)


def refuse_native_only(face: str, id: Any, **given: Any) -> None:
    """Raises ParameterError for what only native environments follow."""
    reasons = {
        "wrappers": "compile with the step of native ones; use Gymnasium's in an environment"
        " function, or jaxenvs.wrappers around make_vec",
        "device": "is where JAX runs, and these run on the host",
        "batched": "are parameters of native ones; pass make_pool a list of functions",
        "stagger": "is for native ones",
        "output": "is for native ones; gymnasium.wrappers.vector.NumpyToTorch(pool) has tensors",
        "seed": "belongs to reset here",
        "autoreset_mode": "is of a batch: pass num_envs",
    }
    for name, value in given.items():
        is_empty = np.ndim(value) == 1 and not len(value)
        if value is not None and value is not False and not is_empty and value != "numpy":
            raise ParameterError(
                f"{face} got {name}={value!r} for {id}, which is not JAX: {name} {reasons[name]}."
            )


# --- Gymnasium ---


def make_hosted_gym(
    id: Any,
    num_envs: int | None,
    *,
    seed: Any,
    autoreset_mode: Any,
    api: str,
    render_mode: str | None,
    validate: Any,
    time_limit: Any,
    params: dict[str, Any],
    **native_only: Any,
) -> Any:
    """What `make_gym` returns for a pool, or for an id that is not native."""
    refuse_native_only("make_gym", id, **native_only)
    single = is_single("make_gym", id, num_envs)
    if single and api == "gymnasium":
        refuse_native_only("make_gym", id, seed=seed, autoreset_mode=autoreset_mode)
        return _single_gym(id, render_mode, host_limit(id, time_limit), params)
    options = {
        **params,
        "autoreset_mode": autoreset_mode,
        "validate": None if validate is True else validate,
    }
    if api == "gymnasium":
        options |= {"seed": seed, "render_mode": _told(id, render_mode)}
        defaults = {"copy": True}
        return pool_of(
            "make_gym", id, num_envs, time_limit=time_limit, options=options, defaults=defaults
        )
    from jaxenvs.faces.gym_classic import ClassicEnv, ClassicVectorEnv

    defaults = {"copy": True, "autoreset_mode": "disabled"}
    if isinstance(id, str) and _draws_when_told(id, render_mode):
        defaults["render_mode"] = "rgb_array"  # of which the face makes windows, too
    if single:
        num_envs, defaults["backend"] = 1, "serial"
    pool = pool_of(
        "make_gym", id, num_envs, time_limit=time_limit, options=options, defaults=defaults
    )
    face = ClassicEnv if single else ClassicVectorEnv
    try:
        return face(pool, seed=seed, render_mode=render_mode, spec=pool.spec)
    except BaseException:
        if pool is not id:
            pool.close()
        raise


def _single_gym(id: Any, render_mode: str | None, limit: int | None, params: Any) -> Any:
    """The Gymnasium environment itself."""
    mode = _told(id, render_mode)
    params = params if mode is None else {"render_mode": mode, **params}
    if not isinstance(id, str):
        refuse_kwargs(params)
    fn = fn_of_id(id, params) if isinstance(id, str) else id
    if isinstance(fn, GymnasiumFn):  # with the checks that Gymnasium adds
        return gymnasium.make(gymnasium_spec(id), max_episode_steps=limit, **params)
    env = adapted(fn())
    return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)


def _told(id: Any, render_mode: str | None) -> str | None:
    """What the constructor is told; dm_control's draw arrays without, and cannot be told."""
    draws_anyway = isinstance(id, str) and id.startswith("dm_control/")
    return None if draws_anyway and render_mode == "rgb_array" else render_mode


def _draws_when_told(id: str, render_mode: str | None) -> bool:
    """Whether environments draw arrays only if their constructor is told so."""
    library, _, name = id.partition("/")
    if library == "dm_control":
        return False
    if library in ("envpool", "pettingzoo"):  # of which one cannot know beforehand
        return render_mode is not None
    if library == "gym":
        fn_of_id(id, {})  # says what is wrong with the id
        gym: Any = importlib.import_module("gym")
        creator, load = gym.spec(name).entry_point, gym.envs.registration.load
    else:
        creator, load = gymnasium_spec(id).entry_point, load_env_creator
    if isinstance(creator, str):
        creator = load(creator)
    # The package gym called them "render.modes" as long as `render` was told, not the constructor.
    modes = (getattr(creator, "metadata", None) or {}).get("render_modes", ())
    return "rgb_array" in modes


# --- what the classic interface and dm_env's are made of ---


class PoolEngine:
    """Drives a pool as `Engine` drives a native batch, with the same errors and results."""

    def __init__(self, pool: Pool) -> None:
        self.env = pool
        self.num_envs = pool.num_envs
        if pool.batch_size != pool.num_envs:
            raise ParameterError(
                f"this interface steps all environments together, and {pool!r} answers in batches"
                f" of {pool.batch_size}.  Make it without batch_size."
            )

    def reset(self, seed: Any = None) -> HostStep:
        """Begins an episode in every environment."""
        with _gymnasiums_errors("reset"):
            observation, infos = self.env.reset(seed=seed)
        none = np.zeros(self.num_envs, bool)
        return _host_step((observation, np.zeros(self.num_envs), none, none.copy(), infos))

    def send(self, actions: Any, name: str = "step") -> None:
        """Begins a step."""
        with _gymnasiums_errors(name):
            self.env.step_async(actions)

    def receive(self, name: str = "step_wait") -> HostStep:
        """Waits for the step that `send` began."""
        with _gymnasiums_errors(name):
            return _host_step(self.env.step_wait())

    def step(self, actions: Any) -> HostStep:
        """Takes one action in every environment."""
        with _gymnasiums_errors("step"):
            return _host_step(self.env.step(actions))

    def close(self) -> None:
        """Closes the pool."""
        self.env.close()

    def seeds(self, seed: Any) -> list[int]:
        """The N seeds that `seed` names.

        Raises:
            SeedError: not a seed, or not one for each environment.
        """
        return seeds_of(seed, self.num_envs, bits=63)


class ClassicBatch:
    """A pool as `GymVectorEnv` is to the classic interface."""

    def __init__(self, pool: Pool) -> None:
        self.engine = PoolEngine(pool)
        self.env = pool
        self.num_envs = pool.num_envs
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space
        self.observation_space = pool.observation_space
        self.action_space = pool.action_space
        self.call, self.get_attr, self.set_attr = pool.call, pool.get_attr, pool.set_attr
        self.close = pool.close
        self._has_info = True

    def _out(self, tree: Any) -> Any:
        return tree

    def _draw(self) -> tuple[np.ndarray, ...]:
        with _gymnasiums_errors("render"):
            frames = self.env.render()
        if any(frame is None for frame in frames):
            raise ParameterError(
                f"{self.env!r} returned no frames: its environments have"
                f" render_mode={self.env.render_mode!r}.  Make them with"
                ' render_mode="rgb_array".'
            )
        return tuple(np.asarray(frame) for frame in frames)


def classic_infos(step: HostStep, autoreset_mode: str) -> Callable[[], list[dict[str, Any]]]:
    """A function that makes one info for each environment, as the classic interface has them."""
    infos, num_envs = step.info, len(step.terminated)
    done = step.terminated | step.truncated if step.any_done else np.zeros(num_envs, bool)
    cut = step.truncated & ~step.terminated

    def make() -> list[dict[str, Any]]:
        made = [_row_of(infos, i) for i in range(num_envs)]
        for i in np.flatnonzero(done).tolist():
            final_observation = made[i].pop("final_obs", None)
            final_info = made[i].pop("final_info", {})
            if autoreset_mode == "same_step" and final_observation is not None:
                # The rest is of the episode that has begun, but for what the pool counts.
                own = {name: made[i][name] for name in _POOLS if name in made[i]}
                made[i] = {**final_info, **own, "terminal_observation": final_observation}
            made[i]["TimeLimit.truncated"] = bool(cut[i])
        return made

    return make


_POOLS = ("env_id", "elapsed_step", "restarted")


def _row_of(infos: Mapping[str, Any], i: int) -> dict[str, Any]:
    """What the infos of a batch say of one environment."""
    row = {}
    for name, value in infos.items():
        mask = infos.get(f"_{name}")
        if mask is None or not mask[i]:  # a mask itself, or somebody else's
            continue
        row[name] = _row_of(value, i) if isinstance(value, dict) else _tree_row(value, i)
    return row


def _tree_row(value: Any, i: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_tree_row(part, i) for part in value)
    return value[i]


def _host_step(batch: Any) -> HostStep:
    observation, reward, terminated, truncated, infos = batch
    any_done = bool(terminated.any() or truncated.any())
    read = functools.partial(_read, infos)
    return HostStep(observation, reward, terminated, truncated, any_done, read)


def _read(infos: Mapping[str, Any], name: str) -> Any:
    return infos if name == "info" else infos.get("final_obs")


@contextlib.contextmanager
def _gymnasiums_errors(name: str) -> Iterator[None]:
    """Of calls out of order, whose errors in these interfaces are Gymnasium's."""
    try:
        yield
    except ClosedError as error:
        raise gymnasium.error.ClosedEnvironmentError(str(error)) from error
    except AlreadyPendingError as error:
        raise gymnasium.error.AlreadyPendingCallError(str(error), name) from error
    except NothingPendingError as error:
        raise gymnasium.error.NoAsyncCallError(str(error), name) from error


# --- dm_env ---


def make_hosted_dm(
    id: Any,
    num_envs: int | None,
    *,
    seed: Any,
    validate: Any,
    time_limit: Any,
    params: dict[str, Any],
    **native_only: Any,
) -> Any:
    """What `make_dm` returns for a pool, or for an id that is not native."""
    from jaxenvs.faces.dm_env import DmEnv, DmVectorEnv

    refuse_native_only("make_dm", id, **native_only)
    single = is_single("make_dm", id, num_envs)
    defaults: dict[str, Any] = {"copy": True, "autoreset_mode": "next_step"}
    if single:
        num_envs, defaults["backend"] = 1, "serial"
    options = {**params, "validate": None if validate is True else validate}
    pool = pool_of(
        "make_dm", id, num_envs, time_limit=time_limit, options=options, defaults=defaults
    )
    try:
        if pool.autoreset_mode != "next_step":
            raise PoolError(
                f'make_dm got {pool!r} with autoreset_mode="{pool.autoreset_mode}"; a FIRST has a'
                ' step of its own in dm_env.  Make it with autoreset_mode="next_step".'
            )
        return (DmEnv if single else DmVectorEnv)(pool, seed=seed)
    except BaseException:
        if pool is not id:
            pool.close()
        raise


def specs_of(space: gymnasium.Space, name: str) -> Any:
    """dm_env's spec of a Gymnasium space, or a dict or tuple of them; dtypes are kept."""
    from dm_env import specs

    if isinstance(space, gymnasium.spaces.Dict):
        return {key: specs_of(part, f"{name}/{key}") for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(specs_of(part, f"{name}/{i}") for i, part in enumerate(space.spaces))
    low: Any
    high: Any
    dtype: Any = space.dtype
    if isinstance(space, gymnasium.spaces.Discrete):
        if not space.start:
            return specs.DiscreteArray(int(space.n), dtype, name)
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, gymnasium.spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, gymnasium.spaces.MultiBinary):
        low, high = 0, 1
    elif isinstance(space, gymnasium.spaces.Box):
        low, high = space.low, space.high
        if np.isneginf(low).all() and np.isposinf(high).all():
            return specs.Array(space.shape, dtype, name)
    else:
        raise PoolError(f"{space} has no counterpart in dm_env.")
    return specs.BoundedArray(space.shape, dtype, low, high, name)
