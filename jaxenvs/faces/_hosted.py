"""Pools of host environments behind the interfaces of other libraries."""

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from jaxenvs.bridge.foreign.adapters import adapted
from jaxenvs.bridge.foreign.ids import (
    GymnasiumFn,
    check_limit_of,
    fn_of_id,
    gymnasium_spec,
    name_of,
    refuse_kwargs,
)
from jaxenvs.bridge.making import make_pool
from jaxenvs.bridge.pool import Pool
from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError
from jaxenvs.factory import check_limit_argument, check_no_native_options


def make_hosted_gym(
    id: Any,
    num_envs: int | None,
    classes: tuple[type, type],
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
    """Makes the result of `make_gym` for a pool, or for an id that is not native.

    `classes` are those of api="gym", see `make_over_pool`.
    """
    check_no_native_options(ParameterError, "make_gym", id, **native_only)
    options = {**params, "autoreset_mode": autoreset_mode}
    if api == "gymnasium":
        if _is_single("make_gym", id, num_envs):
            given = {"seed": seed, "autoreset_mode": autoreset_mode}
            check_no_native_options(ParameterError, "make_gym", id, **given)
            return _make_single(id, render_mode, validate, time_limit, params)
        options |= {"seed": seed, "render_mode": render_mode}
        return _get_or_make_pool("make_gym", id, num_envs, validate, time_limit, options, {})
    defaults = {"autoreset_mode": "disabled"}
    if isinstance(id, str) and _takes_rgb_array(id, render_mode):
        defaults["render_mode"] = "rgb_array"  # the classic classes show these frames in windows
    return make_over_pool(
        "make_gym",
        id,
        num_envs,
        classes,
        validate=validate,
        time_limit=time_limit,
        options=options,
        defaults=defaults,
        seed=seed,
        render_mode=render_mode,
    )


def make_over_pool(
    interface: str,
    id: Any,
    num_envs: int | None,
    classes: tuple[type, type],
    *,
    validate: Any,
    time_limit: Any,
    options: dict[str, Any],
    defaults: dict[str, Any],
    **of_class: Any,
) -> Any:
    """Makes the object for `interface(id, num_envs, **options)` around a pool.

    Args:
        interface: the name of the function, for error messages.
        id: an argument of `make_pool`, or an existing pool.
        num_envs: N; not needed for an existing pool, and None for a single environment.
        classes: the classes for a batch and for a single environment.
        validate: an option of `make_pool`; True means not given.
        time_limit: see `make_gym`.
        options: other options, of `make_pool` or the environment; None means not given.
        defaults: values for options that were not given.
        **of_class: arguments of the class besides the pool.

    Raises:
        ParameterError: `id` has the wrong type, or there are options with an existing pool.
        PoolError: `make_pool` does not support the options.
    """
    is_single = _is_single(interface, id, num_envs)
    if is_single:
        num_envs, defaults = 1, {**defaults, "backend": "serial"}
    pool = _get_or_make_pool(interface, id, num_envs, validate, time_limit, options, defaults)
    try:
        return classes[is_single](pool, **of_class)
    except BaseException:
        if pool is not id:
            pool.close()
        raise


def _is_single(interface: str, id: Any, num_envs: int | None) -> bool:
    """Returns whether a single environment is requested, not a batch."""
    if isinstance(id, Pool) or (isinstance(id, Sequence) and not isinstance(id, str)):
        return False
    is_native_class = isinstance(id, type) and issubclass(id, Environment)
    if is_native_class or not (isinstance(id, str) or callable(id)):
        raise ParameterError(
            f"{interface} got {id!r:.80}; expected an id, an Environment, a pool from make_pool, or"
            " a function that makes an environment."
        )
    return num_envs is None


def _get_or_make_pool(
    interface: str,
    id: Any,
    num_envs: int | None,
    validate: Any,
    time_limit: Any,
    options: dict[str, Any],
    defaults: dict[str, Any],
) -> Pool:
    """Returns the pool of `make_over_pool`: `id` unchanged, or a new one that returns copies."""
    given = {name: value for name, value in options.items() if value is not None}
    if validate is not True:
        given["validate"] = validate
    if isinstance(id, Pool):
        if not isinstance(time_limit, str):
            given["time_limit"] = time_limit
        if num_envs not in (None, id.num_envs):
            given["num_envs"] = num_envs
        if given:
            raise ParameterError(
                f"{interface} got {', '.join(given)} with an existing pool.  Pass it to make_pool,"
                " or pass an id."
            )
        return id
    check_limit_argument(id, time_limit)
    options = {"time_limit": time_limit, "copy": True, **defaults, **given}
    return make_pool(id, num_envs, **options)


def _make_single(
    id: Any, render_mode: str | None, validate: Any, time_limit: Any, params: dict[str, Any]
) -> Any:
    """Makes a single Gymnasium environment."""
    of_pool = [name for name in params if name in inspect.signature(make_pool).parameters]
    if of_pool := [*of_pool, *(["validate"] if validate is not True else [])]:
        raise ParameterError(
            f"make_gym got {', '.join(of_pool)} for a single {id!s:.60}; these are options of"
            " pools, which batches are.  Pass num_envs, or omit them."
        )
    params = params if render_mode is None else {"render_mode": render_mode, **params}
    if not isinstance(id, str):
        refuse_kwargs(params)
    check_limit_argument(id, time_limit)
    fn = fn_of_id(id, params, time_limit) if isinstance(id, str) else id
    if isinstance(fn, GymnasiumFn):
        return gymnasium.make(fn.spec, **fn.kwargs)  # which adds its own checks
    env = adapted(fn())
    check_limit_of(getattr(env, "spec", None), name_of(fn), time_limit)
    has_limit = time_limit not in (None, "default")
    return gymnasium.wrappers.TimeLimit(env, int(time_limit)) if has_limit else env


def _takes_rgb_array(id: str, render_mode: str | None) -> bool:
    """Returns whether the constructor needs render_mode="rgb_array" to return frames."""
    library, _, name = id.partition("/")
    if library in ("dm_control", "envpool", "pettingzoo"):  # unknown before the environment is made
        return render_mode is not None
    if library == "gym":
        fn_of_id(id, {})  # raises if the id is invalid
        gym: Any = importlib.import_module("gym")
        creator, load = gym.spec(name).entry_point, gym.envs.registration.load
    else:
        creator, load = gymnasium_spec(id).entry_point, load_env_creator
    if isinstance(creator, str):
        creator = load(creator)
    # Older environments of gym, whose `render` takes the mode, call this "render.modes".
    modes = (getattr(creator, "metadata", None) or {}).get("render_modes", ())
    return "rgb_array" in modes
