"""From what a user names to functions that make environments of Gymnasium."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from jaxenvs.errors import PoolError, UnknownEnvironmentError


class GymnasiumFn:
    """Makes one environment of a Gymnasium spec.

    The checker and the guard of the order of calls stay out: pools do both.
    """

    def __init__(self, spec: Any, kwargs: dict[str, Any]) -> None:
        self._spec, self._kwargs = spec, kwargs

    def __call__(self) -> gymnasium.Env:
        import copy

        spec = copy.deepcopy(self._spec)
        spec.order_enforce = False
        return gymnasium.make(spec, disable_env_checker=True, **self._kwargs)


def env_fn_of(
    env: Any, num_envs: int | None, kwargs: dict[str, Any]
) -> tuple[str, list[Callable[[], Any]]]:
    """The name, and one function for each environment."""
    if isinstance(env, str):
        if num_envs is None:
            raise PoolError(f'make_pool("{env}") needs num_envs, how many of them to make.')
        return env, [_of_id(env, kwargs)] * num_envs
    if kwargs:
        raise PoolError(
            f"make_pool got {', '.join(map(repr, kwargs))}, which only an id takes."
            "  Pass them to the environment inside the function."
        )
    if isinstance(env, Sequence):
        fns = list(env)
        if num_envs not in (None, len(fns)):
            raise PoolError(f"make_pool got {len(fns)} functions for num_envs={num_envs}.")
    else:
        if num_envs is None:
            raise PoolError("make_pool needs num_envs, how many environments to make.")
        fns = [env] * num_envs
    if not fns or not all(map(callable, fns)):
        raise PoolError(
            f"make_pool got {env!r:.80}; expected an id, a function that makes an environment, or"
            " a list of such functions."
        )
    return getattr(fns[0], "__name__", type(fns[0]).__name__), fns


def _of_id(id: str, kwargs: dict[str, Any]) -> Callable[[], Any]:
    name = id.removeprefix("gymnasium/")
    try:
        return GymnasiumFn(gymnasium.spec(name), kwargs)
    except gymnasium.error.Error as error:
        raise UnknownEnvironmentError(f'no environment is called "{id}": {error}') from error
