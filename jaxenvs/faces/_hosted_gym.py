"""`make_gym` for environments that are not written in JAX."""

import importlib
import inspect
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
from jaxenvs.errors import ParameterError
from jaxenvs.faces._hosted import check_no_native_options, get_or_make_pool, is_single
from jaxenvs.faces.gym_classic import ClassicEnv, ClassicVectorEnv
from jaxenvs.factory import check_limit_argument


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
    """Makes the result of `make_gym` for a pool, or for an id that is not native."""
    check_no_native_options("make_gym", id, **native_only)
    single = is_single("make_gym", id, num_envs)
    if single and api == "gymnasium":
        check_no_native_options("make_gym", id, seed=seed, autoreset_mode=autoreset_mode)
        of_pool = [name for name in params if name in inspect.signature(make_pool).parameters]
        if of_pool := [*of_pool, *(["validate"] if validate is not True else [])]:
            raise ParameterError(
                f"make_gym got {', '.join(of_pool)} for a single {id!s:.60}; these are options of"
                " pools, which batches are.  Pass num_envs, or omit them."
            )
        return _make_single(id, render_mode, time_limit, params)
    options = {
        **params,
        "autoreset_mode": autoreset_mode,
        "validate": None if validate is True else validate,
    }
    defaults: dict[str, Any] = {"copy": True}
    if api == "gymnasium":
        options |= {"seed": seed, "render_mode": render_mode}
        return get_or_make_pool(
            "make_gym", id, num_envs, time_limit=time_limit, options=options, defaults=defaults
        )
    defaults["autoreset_mode"] = "disabled"
    if isinstance(id, str) and _takes_rgb_array(id, render_mode):
        defaults["render_mode"] = "rgb_array"  # the classic classes show these frames in windows
    if single:
        num_envs, defaults["backend"] = 1, "serial"
    pool = get_or_make_pool(
        "make_gym", id, num_envs, time_limit=time_limit, options=options, defaults=defaults
    )
    try:
        cls = ClassicEnv if single else ClassicVectorEnv
        return cls(pool, seed=seed, render_mode=render_mode, spec=pool.spec)
    except BaseException:
        if pool is not id:
            pool.close()
        raise


def _make_single(id: Any, render_mode: str | None, time_limit: Any, params: Any) -> Any:
    """Makes a single Gymnasium environment."""
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
