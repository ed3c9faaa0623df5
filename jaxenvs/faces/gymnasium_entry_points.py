"""The functions that `gymnasium.make("jaxenvs/<id>")` and `gymnasium.make_vec` call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxenvs.errors import ParameterError, UnknownParameterError
from jaxenvs.faces.gym import make_gym
from jaxenvs.faces.gym_env import GymEnv
from jaxenvs.faces.gym_vector_env import GymVectorEnv
from jaxenvs.registry import LIMITED, find


def make_env(*, env_id: str, **options: Any) -> GymEnv:
    """Makes `env_id` for `gymnasium.make`, which adds the time limit of the id or another one.

    Args:
        env_id: the id, as `jaxenvs.make` takes it.
        **options: options of `make_gym`, or parameters of the environment.

    Raises:
        UnknownParameterError: there is no such option or parameter.
        ParameterError: an option has an invalid value, or is a time limit.
    """
    _check_no_time_limit("make", env_id, options)
    try:
        return make_gym(env_id, time_limit="own", **options)
    except UnknownParameterError as error:
        # TorchRL's GymEnv tries `frameskip`, and drops it if the message has Python's own words.
        name = next((name for name in options if f'"{name}"' in str(error)), "")
        raise UnknownParameterError(f"{error}  (unexpected keyword argument '{name}')") from None


def make_vector_env(
    *,
    env_id: str,
    num_envs: int = 1,
    max_episode_steps: int | None = None,
    native_wrappers: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> GymVectorEnv:
    """Makes `num_envs` instances of `env_id` for `gymnasium.make_vec`.

    Args:
        env_id: the id, as `jaxenvs.make` takes it.
        num_envs: N.
        max_episode_steps: the number of steps after which an episode is truncated; -1 for no
            limit, None for the limit of the id.
        native_wrappers: the `wrappers` of `make_gym`; `make_vec` uses that name itself.
        **options: options of `make_gym`, or parameters of the environment.

    Raises:
        ParameterError: an option has an invalid value, or is a time limit.
    """
    _check_no_time_limit("make_vec", env_id, options)
    limit: Any = {None: "default", -1: None}.get(max_episode_steps, max_episode_steps)
    return make_gym(env_id, num_envs, time_limit=limit, wrappers=native_wrappers, **options)


def _check_no_time_limit(function: str, env_id: str, options: Mapping[str, Any]) -> None:
    """Raises ParameterError if there is a limit that Gymnasium does not know of."""
    if "time_limit" in options:
        name = "max_steps" if find(env_id).family in LIMITED else "max_episode_steps"
        limit = options["time_limit"]
        raise ParameterError(
            f"gymnasium.{function} got time_limit={limit!r} for {env_id}, where it is called"
            f" {name}.  Pass {name}={-1 if limit is None else limit}."
        )
