"""What the faces of other learners are made of: a Gymnasium batch in the mode that they expect."""

from typing import Any

from jaxenvs.core import AutoresetMode, Environment
from jaxenvs.errors import ParameterError
from jaxenvs.faces.gym import GymVectorEnv, make_gym
from jaxenvs.factory import is_hosted


def gym_batch(
    face: str,
    autoreset_mode: AutoresetMode,
    env: str | Environment | GymVectorEnv,
    num_envs: int | None,
    options: dict[str, Any],
) -> GymVectorEnv:
    """The batch behind `face(env, num_envs, **options)`.

    Args:
        face: the name of the class, for messages.
        autoreset_mode: the mode that it needs.
        env: an id, an `Environment`, or a batch that is made already.
        num_envs: N, for the first two.
        options: of `make_gym`, likewise.

    Raises:
        ParameterError: `num_envs` or options are missing, superfluous or wrong.
    """
    if is_hosted(env) or not isinstance(env, str | Environment | GymVectorEnv):
        raise ParameterError(
            f"{face} got {env!r:.80}; it takes native environments, an id or an Environment, and"
            " batches of make_gym.  Of what is not JAX make_pool makes a Gymnasium batch."
        )
    if isinstance(env, GymVectorEnv):
        if num_envs not in (None, env.num_envs) or options:
            given = ", ".join([*options] or ["num_envs"])
            raise ParameterError(
                f"{face} got {given} beside an environment that is made already.  Pass it to"
                " make_gym, or pass an id."
            )
    elif num_envs is None:
        raise ParameterError(
            f"{face} got {env!r} without num_envs.  Say how many instances there are to be."
        )
    else:
        env = make_gym(env, num_envs, **{"autoreset_mode": autoreset_mode, **options})
    if not isinstance(env, GymVectorEnv):
        raise ParameterError(
            f'{face} got api="gym"; it builds on api="gymnasium".  Leave api away.'
        )
    if env.env.autoreset_mode != autoreset_mode:
        raise ParameterError(
            f'{face} got autoreset_mode="{env.env.autoreset_mode}"; its learners expect'
            f' "{autoreset_mode}".  Leave it to {face}, or pass it to make_gym.'
        )
    if env._convert is not None:
        raise ParameterError(
            f'{face} got output="torch"; its learners expect NumPy arrays.  Leave output away.'
        )
    return env
