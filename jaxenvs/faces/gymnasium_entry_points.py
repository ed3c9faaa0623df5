"""The functions that `gymnasium.make("jaxenvs/<id>")` and `gymnasium.make_vec` call."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxenvs.errors import UnknownParameterError
from jaxenvs.faces._native import native_engine
from jaxenvs.faces.gym import make_gym
from jaxenvs.faces.gym_env import GymEnv
from jaxenvs.faces.gym_vector_env import GymVectorEnv


def make_env(*, env_id: str, **options: Any) -> GymEnv:
    """Makes `env_id` for `gymnasium.make`, which adds its own time limit.

    Args:
        env_id: the id, as `jaxenvs.make` takes it.
        **options: options of `make_gym`, or parameters of the environment.

    Raises:
        UnknownParameterError: there is no such option or parameter.
    """
    defaults: dict[str, Any] = native_engine(env_id)
    is_dm_control = env_id.startswith("dm_control/")
    if options.get("engine") != "pool" or not is_dm_control:  # it keeps its own limit
        defaults["time_limit"] = None
    try:
        return make_gym(env_id, **{**defaults, **options})
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
        max_episode_steps: the number of steps after which an episode is truncated; None or -1
            for no limit.
        native_wrappers: the `wrappers` of `make_gym`; `make_vec` uses that name itself.
        **options: options of `make_gym`, or parameters of the environment.
    """
    limit = None if max_episode_steps == -1 else max_episode_steps
    options = {"time_limit": limit, "wrappers": native_wrappers, **options}
    return make_gym(env_id, num_envs, **{**native_engine(env_id), **options})
