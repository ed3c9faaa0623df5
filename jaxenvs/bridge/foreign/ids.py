"""Environment functions for the ids of other libraries.

An id starts with the name of its library: `gymnasium/`, `gym/`, `dm_control/`, `pettingzoo/` or
`envpool/`. An id without one is Gymnasium's.
"""

import copy
import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import load_env_creator

from jaxenvs.errors import PoolError, UnknownEnvironmentError, closest, missing_extra

TimeLimit = int | None | Literal["default"]

_LIBRARIES = ("dm_control", "envpool", "gym", "gymnasium", "pettingzoo")
# Prefixes of ids that a package registers when it is imported -> the package and its extra.
_REGISTERED_BY = {
    "ALE/": ("ale_py", "atari"),
    "AntMaze_": ("gymnasium_robotics", "robotics"),
    "BabyAI-": ("minigrid", "minigrid"),
    "FetchPickAndPlace": ("gymnasium_robotics", "robotics"),
    "FetchPush": ("gymnasium_robotics", "robotics"),
    "FetchReach": ("gymnasium_robotics", "robotics"),
    "FetchSlide": ("gymnasium_robotics", "robotics"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "PointMaze_": ("gymnasium_robotics", "robotics"),
    "Vizdoom": ("vizdoom.gymnasium_wrapper", "vizdoom"),
}
# Prefixes of the entry points of Gymnasium's own environments -> the package they need, its extra.
_NEEDED_BY = {
    "gymnasium.envs.box2d": ("Box2D", "box2d"),
    "gymnasium.envs.mujoco": ("mujoco", "mujoco"),
}


def is_host_id(id: str) -> bool:
    """Returns whether an id names an environment of another library, by its prefix.

    Does not look up whether that environment exists.
    """
    library, slash, _ = id.partition("/")
    named = bool(slash) and library in _LIBRARIES
    return named or ":" in id or id.startswith(tuple(_REGISTERED_BY))


def similar_host_ids(id: str) -> list[str]:
    """Returns up to two ids of Gymnasium most similar to `id`, prefixed with "gymnasium/"."""
    names = (name for name in gymnasium.registry if not name.startswith("jaxenvs/"))
    known = {name.lower(): f"gymnasium/{name}" for name in names}
    name = id.removeprefix("gymnasium/").lower()
    return [known[match] for match in difflib.get_close_matches(name, known, 2, cutoff=0.6)]


class GymnasiumFn:
    """A function that makes one environment from a Gymnasium spec.

    It omits Gymnasium's environment checker and order enforcement, since pools do both.
    """

    def __init__(self, spec: Any, kwargs: dict[str, Any], time_limit: TimeLimit) -> None:
        self.spec, self.kwargs = spec, kwargs
        if not isinstance(time_limit, str):
            self.kwargs = {**kwargs, "max_episode_steps": -1 if time_limit is None else time_limit}

    def __call__(self) -> gymnasium.Env:
        spec = copy.deepcopy(self.spec)
        spec.order_enforce = False
        return gymnasium.make(spec, disable_env_checker=True, **self.kwargs)


def env_fn_of(
    env: Any, num_envs: int | None, kwargs: dict[str, Any], time_limit: TimeLimit = "default"
) -> tuple[str, list[Callable[[], Any]]]:
    """Returns the name, and one function for each environment.

    Raises:
        PoolError: `env` is not an id or a function, `num_envs` does not match, or the time limit
            of the id cannot be replaced.
        UnknownEnvironmentError: no environment has this id.
        MissingExtraError: the id belongs to a package that is not installed.
    """
    if isinstance(env, str):
        if num_envs is None:
            raise PoolError(f'make_pool("{env}") needs num_envs, the number of environments.')
        return env, [fn_of_id(env, kwargs, time_limit)] * num_envs
    refuse_kwargs(kwargs)
    if isinstance(env, Sequence):
        fns = list(env)
    elif num_envs is None:
        raise PoolError("make_pool needs num_envs, the number of environments.")
    else:
        fns = [env] * num_envs
    if num_envs not in (None, len(fns)):
        raise PoolError(
            f"make_pool got {len(fns)} functions for num_envs={num_envs}.  Omit num_envs, or"
            " pass one function for each environment."
        )
    if not fns or not all(map(callable, fns)):
        raise PoolError(
            f"make_pool got {env!r:.80}; expected an id, a function that makes an environment, or"
            " a list of such functions."
        )
    return name_of(fns[0]), fns


def name_of(fn: Callable[[], Any]) -> str:
    """Returns the name of an environment function for messages."""
    return getattr(fn, "__name__", type(fn).__name__)


def refuse_kwargs(kwargs: dict[str, Any]) -> None:
    """Raises PoolError if there are arguments for the environment, which only ids accept."""
    if kwargs:
        raise PoolError(
            f"make_pool got {', '.join(map(repr, kwargs))} together with a function; only an id"
            " accepts arguments for the environment.  Pass them inside the function."
        )


def fn_of_id(
    id: str, kwargs: dict[str, Any], time_limit: TimeLimit = "default"
) -> Callable[[], Any]:
    """Returns a function that makes one environment of an id.

    With a `time_limit`, the environment does not have the limit of the id: it has the given one
    or none, and the caller counts the steps.

    Raises:
        PoolError: the library cannot replace the limit.
    """
    library, _, name = id.partition("/")
    if is_vectorized_id(id):
        raise PoolError(
            f'"{id}" is vectorized already: EnvPool steps all environments at once.'
            '  Pass backend="native", or omit backend.'
        )
    others = {"gym": _of_gym, "dm_control": _of_dm_control, "pettingzoo": _of_pettingzoo}
    if library in others:
        return others[library](id, name, kwargs, time_limit)
    return GymnasiumFn(gymnasium_spec(id), kwargs, time_limit)


def check_limit_of(spec: Any, name: str, time_limit: TimeLimit) -> None:
    """Checks that an environment lets a given time limit take effect.

    Raises:
        PoolError: its spec has a shorter limit, or any if there is to be none.
    """
    own = getattr(spec, "max_episode_steps", None)
    if own is None or isinstance(time_limit, str) or (time_limit is not None and time_limit <= own):
        return
    raise PoolError(
        f"{name!r} got time_limit={time_limit}, but the environment that it makes has a limit of"
        f" {own} steps itself.  Make it without: gymnasium.make(id, max_episode_steps=-1)."
    )


def gymnasium_spec(id: str) -> Any:
    """Returns Gymnasium's spec of an id, importing the package that registers it."""
    name = id.removeprefix("gymnasium/")
    module, _, rest = name.rpartition(":")
    if module:  # Gymnasium's notation for the package: "package:id"
        _import(module, id, None)
    for prefix, (package, extra) in _REGISTERED_BY.items():
        if rest.startswith(prefix):
            _import(package, id, extra)
    try:
        spec = gymnasium.spec(rest)
    except gymnasium.error.Error as error:
        prefix = "gymnasium/" if id.startswith("gymnasium/") else ""
        known = (f"{prefix}{each}" for each in gymnasium.registry)
        raise _unknown(id, known, str(error)) from None
    for prefix, (package, extra) in _NEEDED_BY.items():
        is_needed = str(spec.entry_point).startswith(prefix)
        if is_needed and importlib.util.find_spec(package) is None:
            raise missing_extra(f'"{id}"', package, extra)
    return spec


def _of_gym(id: str, name: str, kwargs: dict[str, Any], time_limit: TimeLimit) -> Callable[[], Any]:
    gym = _import("gym", id, "gym")
    registered = gym.envs.registry
    known = registered if hasattr(registered, "keys") else registered.env_specs  # until 0.25
    if name not in known:
        raise _unknown(id, (f"gym/{each}" for each in known))
    # Its checker fails with NumPy 2; older releases have no checker.
    taken = inspect.signature(gym.make).parameters
    unchecked = {"disable_env_checker": True} if "disable_env_checker" in taken else {}
    if isinstance(time_limit, str):
        return partial(gym.make, name, **unchecked, **kwargs)
    if "max_episode_steps" not in taken:  # older releases take no spec either
        raise _limit_refused(id, time_limit, "Use a newer release of gym")
    spec = copy.deepcopy(registered[name])
    spec.max_episode_steps = time_limit
    return partial(gym.make, spec, **unchecked, **kwargs)


def _of_dm_control(
    id: str, name: str, kwargs: dict[str, Any], time_limit: TimeLimit
) -> Callable[[], Any]:
    suite = _import("dm_control.suite", id, "dm_control")
    domain, _, task = name.partition("-")
    if (domain, task) not in suite.ALL_TASKS:
        raise _unknown(id, (f"dm_control/{each}-{of}" for each, of in suite.ALL_TASKS))
    if not isinstance(time_limit, str):  # its own limit is in seconds
        endless = {"time_limit": float("inf"), **(kwargs.get("task_kwargs") or {})}
        kwargs = {**kwargs, "task_kwargs": endless}
    return lambda: suite.load(domain, task, **copy.deepcopy(kwargs))


def _of_pettingzoo(
    id: str, name: str, kwargs: dict[str, Any], time_limit: TimeLimit
) -> Callable[[], Any]:
    family, _, game = name.partition("/")
    # The family mpe is now a separate package.
    root = "mpe2" if family == "mpe" else f"pettingzoo.{family}"
    zoo = _import(root.partition(".")[0], id, "pettingzoo")
    if family != "mpe":
        families = {each.name for each in pkgutil.iter_modules(zoo.__path__) if each.ispkg}
        families -= {"env_registry", "test", "utils"}
        if family not in families:
            raise _unknown(id, (f"pettingzoo/{each}/" for each in {*families, "mpe"}))
        zoo = importlib.import_module(root)
    games = [each.name for each in pkgutil.iter_modules(zoo.__path__) if "_v" in each.name]
    if game not in games:
        raise _unknown(id, (f"pettingzoo/{family}/{each}" for each in games))
    module = _import(f"{root}.{game}", id, "pettingzoo")
    if not hasattr(module, "parallel_env"):
        raise PoolError(
            f'"{id}" has no parallel API: its agents take turns.  A pool needs parallel_env().'
            "  Choose another environment, or wrap one agent's view of the game as an environment."
        )
    if not isinstance(time_limit, str):
        raise _limit_refused(
            id, time_limit, "It is a parameter of most environments, such as max_cycles=100"
        )
    return lambda: module.parallel_env(**kwargs)


def _limit_refused(id: str, time_limit: TimeLimit, instead: str) -> PoolError:
    return PoolError(
        f"{id} got time_limit={time_limit}, but its library cannot replace its own limit."
        f"  {instead}."
    )


def _import(module: str, id: str, extra: str | None) -> Any:
    """Imports a module that an id needs.

    Raises:
        MissingExtraError: the module, or one that it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if extra is None:
            raise UnknownEnvironmentError(f'"{id}" names the module {module}: {error}') from error
        raise missing_extra(f'"{id}"', error.name or module, extra) from error


def _unknown(id: str, known: Iterable[str], why: str = "") -> UnknownEnvironmentError:
    close = closest(id, known) or (f"  {why}" if why else "")
    return UnknownEnvironmentError(f'no environment is called "{id}".{close}')


# --- vectorized environments ---


@dataclasses.dataclass(frozen=True)
class VectorMaker:
    """A function that makes a vectorized environment.

    Attributes:
        name: the name of the environment in messages.
        make: makes the environment, with the arguments named by `accepts`.
        accepts: the options among "batch_size", "num_threads", "seed", "autoreset_mode" and
            "max_episode_steps" that `make` accepts.
    """

    name: str
    make: Callable[..., Any]
    accepts: Collection[str] = ()

    def __call__(self, **options: Any) -> Any:
        return self.make(**options)


def is_vectorized_id(env: Any) -> bool:
    """Returns whether an id always names a vectorized environment."""
    return isinstance(env, str) and env.startswith("envpool/")


def vector_maker_of(
    env: Any, num_envs: int | None, kwargs: dict[str, Any], time_limit: TimeLimit
) -> VectorMaker:
    """Returns the maker of a vectorized environment for the arguments of `make_pool`.

    Raises:
        PoolError: `env` is not a function or the id of a vectorized environment, or the time limit
            is None, which none of them supports.
        UnknownEnvironmentError: no environment has this id.
        MissingExtraError: the id belongs to a package that is not installed.
    """
    if time_limit is None:
        raise _limit_refused(
            env if isinstance(env, str) else name_of(env),
            time_limit,
            "Pass a number of steps, or a backend other than native",
        )
    if not isinstance(env, str):
        refuse_kwargs(kwargs)
        if not callable(env):
            raise PoolError(
                f"make_pool got {env!r:.80}; expected an id, or a function that makes a vectorized"
                " environment."
            )
        return VectorMaker(name_of(env), env)
    if num_envs is None:
        raise PoolError(f'make_pool("{env}") needs num_envs, the number of environments.')
    if is_vectorized_id(env):
        return _of_envpool(env, num_envs, kwargs)
    return _of_vector_entry_point(env, num_envs, kwargs)


def _of_envpool(id: str, num_envs: int, kwargs: dict[str, Any]) -> VectorMaker:
    envpool = _import("envpool", id, "envpool")
    name, known = id.removeprefix("envpool/"), envpool.list_all_envs()
    if name not in known:
        raise _unknown(id, (f"envpool/{each}" for each in known))

    def make(**options: Any) -> Any:
        return envpool.make(name, env_type="gymnasium", num_envs=num_envs, **options, **kwargs)

    return VectorMaker(id, make, ("batch_size", "num_threads", "seed", "max_episode_steps"))


def _of_vector_entry_point(id: str, num_envs: int, kwargs: dict[str, Any]) -> VectorMaker:
    spec = gymnasium_spec(id)
    if spec.vector_entry_point is None:
        raise PoolError(
            f'"{id}" has no vectorized version.  Use another backend, or pass a function that'
            " returns a gymnasium.vector.VectorEnv."
        )
    creator = load_env_creator(spec.vector_entry_point)
    taken = inspect.signature(creator).parameters
    names = ("batch_size", "num_threads", "autoreset_mode", "max_episode_steps")

    def make(
        *, autoreset_mode: str | None = None, max_episode_steps: int | None = None, **options: Any
    ) -> Any:
        if autoreset_mode is not None:
            options["autoreset_mode"] = gymnasium.vector.AutoresetMode[autoreset_mode.upper()]
        limited = copy.deepcopy(spec)  # as an option, the limit would not be that of the spec
        limited.max_episode_steps = max_episode_steps or spec.max_episode_steps
        return gymnasium.make_vec(
            limited, num_envs, vectorization_mode="vector_entry_point", **options, **kwargs
        )

    return VectorMaker(id, make, [name for name in names if name in taken])
