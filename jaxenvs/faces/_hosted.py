"""Pools of host environments behind the interfaces of other libraries."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxenvs.bridge.making import make_pool
from jaxenvs.bridge.pool import Pool
from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError
from jaxenvs.factory import check_limit_argument, is_given

_WHY_NATIVE_ONLY = {
    "wrappers": "are compiled into native environments; use Gymnasium's wrappers in an environment"
    " function, or jaxenvs.wrappers around make_vec",
    "device": "is where JAX runs, but these run on the host",
    "batched": "names parameters of native environments; pass make_pool a list of functions",
    "stagger": "works with native environments only",
    "output": "works with native environments only; gymnasium.wrappers.vector.NumpyToTorch(pool)"
    " returns tensors",
    "seed": "is an argument of reset here",
    "autoreset_mode": "applies to a batch; pass num_envs",
}


def is_single(interface: str, id: Any, num_envs: int | None) -> bool:
    """Returns whether a single environment is requested, not a batch.

    Raises:
        ParameterError: `id` has the wrong type.
    """
    if isinstance(id, Pool) or (isinstance(id, Sequence) and not isinstance(id, str)):
        return False
    is_native_class = isinstance(id, type) and issubclass(id, Environment)
    if is_native_class or not (isinstance(id, str) or callable(id)):
        raise ParameterError(
            f"{interface} got {id!r:.80}; expected an id, an Environment, a pool from make_pool, or"
            " a function that makes an environment."
        )
    return num_envs is None


def get_or_make_pool(
    interface: str,
    id: Any,
    num_envs: int | None,
    *,
    time_limit: Any = "default",
    options: dict[str, Any],
    defaults: Mapping[str, Any],
) -> Pool:
    """Returns the pool for `interface(id, num_envs, **options)`.

    Args:
        interface: the name of the function, for error messages.
        id: an argument of `make_pool`, or an existing pool, which is returned unchanged.
        num_envs: N; not needed for an existing pool.
        time_limit: see `make_gym`.
        options: other options, of `make_pool` or the environment; None means not given.
        defaults: values for options that were not given.

    Raises:
        ParameterError: there are options with an existing pool.
        PoolError: `make_pool` does not support the options.
    """
    given = {name: value for name, value in options.items() if value is not None}
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
    options = {"time_limit": time_limit, **defaults, **given}
    return make_pool(id, num_envs, **options)


def check_no_native_options(interface: str, id: Any, **options: Any) -> None:
    """Raises ParameterError if an option is set that only native environments support."""
    for name, value in options.items():
        if is_given(value):
            raise ParameterError(
                f"{interface} got {name}={value!r} for {id}, which is not written in JAX: {name}"
                f" {_WHY_NATIVE_ONLY[name]}."
            )
