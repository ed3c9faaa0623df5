"""All exceptions of jaxenvs.

A message has three parts: what was given, what was expected, and how to fix it. Each class also
subclasses the built-in exception for that kind of mistake.
"""

import difflib
import operator
from collections.abc import Iterable, Sequence
from typing import Any


class JaxenvsError(Exception):
    """The base class of all exceptions of this package."""


class UnknownEnvironmentError(JaxenvsError, LookupError):
    """No environment is registered under the requested id."""


class UnknownParameterError(JaxenvsError, TypeError):
    """There is no parameter of that name, or it was declared without a type."""


class ParameterError(JaxenvsError, ValueError):
    """A parameter of an environment has an invalid value."""


class RegistrationError(JaxenvsError, ValueError):
    """A registration is malformed, or its id is already in use."""


class SpaceError(JaxenvsError, ValueError):
    """The arguments of a space are invalid or inconsistent, or it cannot be converted."""


class ActionError(JaxenvsError, ValueError, TypeError):
    """An action does not fit its space: wrong structure, shape, dtype or value."""


class WrapperError(JaxenvsError, ValueError):
    """A wrapper does not apply to this environment, or an argument of it is invalid."""


class SeedError(JaxenvsError, ValueError):
    """A seed is not an integer or out of range, or the number of seeds is wrong."""


class VectorizeError(JaxenvsError, ValueError):
    """An argument of a vectorized environment is invalid."""


class ShardingError(JaxenvsError, ValueError):
    """The instances cannot be distributed over the mesh."""


class RandomKeyError(JaxenvsError, TypeError):
    """A key is not a JAX random key."""


class StateError(JaxenvsError, ValueError):
    """A state does not belong to the environment that was asked to step it."""


class RolloutError(JaxenvsError, ValueError):
    """An argument of a rollout or an evaluation is invalid."""


class RenderError(JaxenvsError, NotImplementedError):
    """The environment does not support rendering, or the file cannot be written."""


class PoolError(JaxenvsError, ValueError):
    """An argument of a pool is invalid, or its methods were called in the wrong order."""


class AlreadyPendingError(PoolError, RuntimeError):
    """A pool was asked to step environments whose last result is still pending."""


class NothingPendingError(PoolError, RuntimeError):
    """A pool was asked for a result, but no environment is stepping."""


class ClosedError(PoolError, RuntimeError):
    """A pool was used after it was closed."""


class EnvIdError(PoolError, IndexError):
    """The index of an environment is out of range, or was given twice."""


class WorkerError(JaxenvsError, RuntimeError):
    """An environment of a pool raised, or its process died; the message has the traceback.

    Attributes:
        env_ids: indices of the affected environments.
    """

    env_ids: tuple[int, ...] = ()


class EnvTimeoutError(WorkerError, TimeoutError):
    """An environment of a pool exceeded its timeout."""


class StaleStateError(PoolError, RuntimeError):
    """A state of hosted environments was stepped twice, but they cannot go back in time."""


class ForkError(JaxenvsError, RuntimeError):
    """The process was forked after JAX was used; the threads of JAX do not survive a fork."""


class TrainingError(JaxenvsError, ValueError):
    """A training argument is invalid, or a training state cannot be restored."""


class StatisticsError(JaxenvsError, ValueError):
    """Scores do not have the expected axes, or an argument of a statistic is out of range."""


class EnvironmentCheckError(JaxenvsError, AssertionError):
    """`check_env` found that an environment breaks the contract."""


class InstallationError(JaxenvsError, RuntimeError):
    """A feature does not work in this installation."""


class MissingExtraError(JaxenvsError, ImportError):
    """A feature needs an optional package that is not installed."""


def missing_extra(feature: str, package: str, extra: str) -> MissingExtraError:
    """Returns an error whose message names the extra that installs `package`."""
    return MissingExtraError(
        f'{feature} needs the package {package}. Install it with `pip install "jaxenvs[{extra}]"`.',
        name=package,
    )


def closest(name: str, candidates: Iterable[str], count: int = 3) -> str:
    """Returns '  Close: "a", "b".' with the candidates most similar to `name`, or ""."""
    lowered = {candidate.lower(): candidate for candidate in candidates}
    name = name.lower()
    matches = [each for each in lowered if _initials(each) == name]  # lr for learning_rate
    matches = matches or difflib.get_close_matches(name, lowered, n=count, cutoff=0.5)
    if not matches:
        return ""
    return "  Close: " + ", ".join(f'"{lowered[match]}"' for match in matches) + "."


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.split("_"))


def check_parameters(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises UnknownParameterError if a name in `given` is not in `known`.

    `owner` begins the message: what the parameters belong to.
    """
    known = [*known]
    for name in given:
        if name not in known:
            raise UnknownParameterError(
                f'{owner} has no parameter "{name}".{closest(name, known)}'
                f"  It has: {', '.join(known) or 'none'}."
            )


def check_integer(error: type[JaxenvsError], name: str, value: Any, least: int | None = 1) -> int:
    """Returns an argument as a Python int.

    Args:
        error: the class of the exception.
        name: the beginning of the message, such as "make got num_envs".
        value: the argument.
        least: the smallest valid integer; None for no limit.

    Raises:
        error: the argument is not an integer, or is less than `least`.
    """
    number = as_integer(value)
    if number is None or (least is not None and number < least):
        limit = "" if least is None else f" of at least {least}"
        message = f"{name}={value!r:.60}; it must be an integer{limit}."
        if hasattr(value, "aval"):  # an array of JAX
            message += (
                "  It determines shapes, so it must be static, not traced.  Declare the parameter"
                " that it comes from with struct.static()."
            )
        raise error(message)
    return number


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises ParameterError if an argument is not one of `choices`.

    `name` begins the message, such as "make_gym got api".
    """
    if value not in choices:
        known = [choice for choice in choices if choice is not None]
        raise ParameterError(
            f"{name}={value!r}; expected one of {list(choices)}.{closest(str(value), known)}"
        )


def as_integer(value: Any) -> int | None:
    """Returns an integer of Python, NumPy or JAX as an int, and None for anything else."""
    if isinstance(value, bool) or getattr(value, "shape", ()):
        return None
    try:
        return operator.index(value)
    except TypeError:  # arrays of bool and traced values, too
        return None


def describe(value: Any) -> str:
    """Returns "float32[4]" for an array, "a dict of 2" for a container, otherwise the type."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (dict, tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
