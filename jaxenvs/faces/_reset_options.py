"""Options of `reset`: the range of first states, with Gymnasium's names."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxenvs.core import VectorEnv
from jaxenvs.errors import ParameterError, closest

# Option -> the parameter that it replaces, in environments that have the parameter.
_PARAMETERS = {"low": "start_low", "high": "start_high", "x_init": "x_init", "y_init": "y_init"}


def parse_options(
    env: VectorEnv, options: dict[str, Any] | None, others: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the parameters of `env` that the options of one `reset` replace.

    Args:
        env: the environment.
        options: the options.
        others: the names of options that are not parameters.

    Raises:
        ParameterError: there is no such option, or its value is not a finite number, or the lower
            bound is above the upper one.
    """
    if options is None:
        return {}
    given, known = options, env.parameters
    names = {option: name for option, name in _PARAMETERS.items() if name in known}
    all_names = [*names, *others]
    unknown = [name for name in given if name not in all_names] if isinstance(given, dict) else []
    if unknown or not isinstance(given, dict):
        raise ParameterError(
            f"reset got options={options!r:.80}; expected a dict with the options of"
            f" {env!r:.80}: {', '.join(all_names) or 'none'}."
            + "".join(closest(str(name), all_names) for name in unknown[:1])
        )
    params = {names[option]: _number(option, given[option]) for option in given if option in names}
    low, high = ({**known, **params}.get(name, 0) for name in ("start_low", "start_high"))
    if params and np.any(low > high):
        raise ParameterError(
            f"reset got options={options!r:.80}; the first states would lie between {low} and"
            f" {high}.  Pass a low that is at most high."
        )
    batched = getattr(env, "batched", ())
    return {
        name: np.full(env.num_envs, value) if name in batched else value
        for name, value in params.items()
    }


def _number(option: str, value: Any) -> np.float32:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ParameterError(f"options['{option}'] got {value!r:.80}; expected a finite number.")
    return np.float32(number)
