"""`make_gym`, which makes environments with a Gymnasium or classic gym interface."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import gymnasium
import jax
from gymnasium.vector import AutoresetMode as GymAutoresetMode

from jaxenvs.catalog.gymnasium_registration import gymnasium_id
from jaxenvs.core import AutoresetMode, Environment, VectorEnv
from jaxenvs.errors import check_choice
from jaxenvs.faces._native import make_native_batch
from jaxenvs.faces._runner import device_name, parse_device
from jaxenvs.faces.gym_classic import ClassicEnv, ClassicVectorEnv
from jaxenvs.faces.gym_env import GymEnv, innermost
from jaxenvs.faces.gym_vector_env import RENDER_MODES, GymVectorEnv, with_limit_of
from jaxenvs.factory import is_native

if TYPE_CHECKING:
    from jaxenvs.bridge.pool import Pool


# What is returned depends on `num_envs` and `api`. The last definition has all options.
_One = str | Environment | Callable[[], Any]
_Gymnasium = Literal["gymnasium"]


@overload
def make_gym(
    id: _One, num_envs: None = None, *, api: _Gymnasium = "gymnasium", **options: Any
) -> gymnasium.Env[Any, Any]: ...


@overload
def make_gym(
    id: _One, num_envs: int, *, api: _Gymnasium = "gymnasium", **options: Any
) -> GymVectorEnv: ...


@overload
def make_gym(
    id: _One, num_envs: None = None, *, api: Literal["gym"], **options: Any
) -> ClassicEnv: ...


@overload
def make_gym(
    id: _One, num_envs: int, *, api: Literal["gym"], **options: Any
) -> ClassicVectorEnv: ...


@overload
def make_gym(
    id: "Pool | Sequence[Callable[[], Any]]", num_envs: int | None = None, **options: Any
) -> Any: ...


def make_gym(
    id: "str | Environment | Pool | Callable[[], Any] | Sequence[Callable[[], Any]]",
    num_envs: int | None = None,
    *,
    seed: int | Sequence[int] | None = None,
    autoreset_mode: AutoresetMode | GymAutoresetMode | None = None,
    api: Literal["gymnasium", "gym"] = "gymnasium",
    render_mode: str | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    output: Literal["numpy", "torch"] = "numpy",
    validate: bool = True,
    device: jax.Device | str | None = None,
    time_limit: int | None | Literal["default"] = "default",
    batched: Sequence[str] = (),
    stagger: bool | int = False,
    **params: Any,
) -> Any:
    """Makes an environment for programs that use Gymnasium and NumPy.

    Args:
        id: a registered id or an `Environment`. For environments that are not written in JAX: an id
            with its library in front, such as "gymnasium/CartPole-v1", a function that makes an
            environment, or a pool from `make_pool`; a pool returns views unless it was made with
            `copy=True`.
        num_envs: N for a `gymnasium.vector.VectorEnv`; None for a `gymnasium.Env`.
        seed: the seed of the first `reset` if `reset` gets none.
        autoreset_mode: what happens after the end of an episode: "next_step" (the default of a
            batch, as in Gymnasium and EnvPool), "same_step", "disabled", or Gymnasium's
            `AutoresetMode`. Under "disabled" a finished instance keeps its state and flags, with
            reward 0, until it is reset.
        api: "gymnasium", or "gym" for the classic interface: `reset() -> observation`,
            `step(action) -> observation, reward, done, info`.
        render_mode: "rgb_array", "rgb_array_list", "human" or None.
        wrappers: wrappers to compile into the step, innermost first, as for `VectorEnv.wrap`: a
            class from `jaxenvs.wrappers`, a `functools.partial` of one, or a function that takes a
            batch and returns one.
        output: "torch" returns PyTorch tensors that share memory with the arrays, and accepts
            tensors as actions.
        validate: whether to refuse actions that are out of range or NaN.
        device: the device that the environment runs on, a `jax.Device` or "cpu", "gpu", "gpu:1".
            None is the CPU, because a small batch runs there in less time than a transfer to an
            accelerator and back takes.
        time_limit: the number of steps after which an episode is truncated; None for no limit,
            "default" for the limit of the id.
        batched: names of parameters with [N] values, one per instance.
        stagger: see `jaxenvs.vectorize`.
        **params: parameters of the environment, such as `gravity=3.7`, and `levels` of
            `jaxenvs.make`. For an environment that is not written in JAX, options of `make_pool`.

    Returns:
        A `GymVectorEnv`, or a `GymEnv` without `num_envs`; with `api="gym"`, a `ClassicVectorEnv`
        or a `ClassicEnv`. For environments that are not written in JAX and api="gymnasium", a
        `Pool`, or the Gymnasium environment itself without `num_envs`; they do not support
        `wrappers`, `output`, `device`, `batched` and `stagger`.

    Raises:
        UnknownEnvironmentError: there is no such id; the message names the closest one.
        UnknownParameterError: there is no such parameter; the message names the closest one.
        ParameterError: an option has an invalid value.
        WrapperError: a wrapper is not one of jaxenvs, or does not return a batch.
        MissingExtraError: output="torch" needs PyTorch, which is not installed.
        ForkError: this process was forked from one that had used JAX.

    Example:
        >>> envs = jaxenvs.make_gym("CartPole-v1", num_envs=3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 4)
    """
    check_choice("make_gym got api", api, ("gymnasium", "gym"))
    check_choice("make_gym got output", output, ("numpy", "torch"))
    check_choice("make_gym got render_mode", render_mode, (None, *RENDER_MODES))
    of_batch: dict[str, Any] = {"wrappers": wrappers, "batched": batched, "stagger": stagger}
    if not is_native(id):
        # Imported here because most programs need no pools.
        from jaxenvs.faces._hosted import make_hosted_gym

        return make_hosted_gym(
            id,
            num_envs,
            (ClassicVectorEnv, ClassicEnv),
            seed=seed,
            autoreset_mode=autoreset_mode,
            api=api,
            render_mode=render_mode,
            validate=validate,
            time_limit=time_limit,
            params=params,
            output=output,
            device=device,
            **of_batch,
        )
    mode = _parse_mode(autoreset_mode)
    is_single = num_envs is None
    default: AutoresetMode = "disabled" if is_single or api == "gym" else "next_step"
    env = make_native_batch(
        id,
        1 if is_single else num_envs,
        autoreset_mode=mode or default,
        time_limit=time_limit,
        params=params,
        device=parse_device(device),
        **of_batch,
    )
    options: dict[str, Any] = {
        "seed": seed,
        "render_mode": render_mode,
        "output": output,
        "validate": validate,
    }
    spec = None
    if isinstance(id, str):
        kwargs = {**options, **of_batch, "device": device_name(device), "autoreset_mode": mode}
        spec = _make_spec(id, num_envs, env, time_limit, kwargs, params)
    options |= {"device": parse_device(device), "spec": spec}
    if api == "gym":
        return (ClassicEnv if is_single else ClassicVectorEnv)(env, **options)
    if not is_single:
        return GymVectorEnv(env, **options)
    task = innermost(env)
    if not hasattr(task, "table"):
        return GymEnv(env, **options)
    # Imported here because it imports the environments of toy text.
    from jaxenvs.faces._tabular import tabular_face

    return tabular_face(task)(env, **options)


def _make_spec(
    id: str,
    num_envs: int | None,
    env: VectorEnv,
    time_limit: Any,
    options: dict[str, Any],
    params: dict[str, Any],
) -> Any:
    """Returns a spec from which `gymnasium.make` or `make_vec` makes an equal environment."""
    entry = gymnasium.registry.get(gymnasium_id(id))
    if entry is None:  # Gymnasium cannot parse the id
        return None
    defaults = make_gym.__kwdefaults__ or {}
    kwargs = {name: value for name, value in options.items() if value is not defaults[name]}
    if num_envs is not None:
        kwargs |= {"num_envs": num_envs, "vectorization_mode": "vector_entry_point"}
        if "wrappers" in kwargs:  # `make_vec` uses this name for Gymnasium's wrappers
            kwargs["native_wrappers"] = kwargs.pop("wrappers")
        if time_limit is None:  # as a part of the spec, None would be the limit of the id
            kwargs["max_episode_steps"] = -1
    elif not isinstance(time_limit, str) and env.parameters.get("max_steps") is not None:
        kwargs["max_steps"] = env.parameters["max_steps"]  # which truncates episodes by itself
    entry = dataclasses.replace(entry, kwargs={**entry.kwargs, **kwargs, **params})
    return with_limit_of(env, entry)


def _parse_mode(mode: Any) -> AutoresetMode | None:
    """Returns the mode named by "next_step", Gymnasium's `AutoresetMode` or its value."""
    if mode in [gym_mode.value for gym_mode in GymAutoresetMode]:
        mode = GymAutoresetMode(mode)
    if isinstance(mode, GymAutoresetMode):
        mode = mode.name.lower()
    check_choice("make_gym got autoreset_mode", mode, (None, *get_args(AutoresetMode)))
    return mode
