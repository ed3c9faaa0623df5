"""Every error that jaxenvs raises by name.

A message has three parts: what was given, what is expected, what to do. Each class also
subclasses the built-in exception that one would catch for such a mistake.
"""

import difflib
from collections.abc import Iterable
from typing import Any


class JaxenvsError(Exception):
    """The base of all errors of this package."""


class UnknownEnvironmentError(JaxenvsError, LookupError):
    """No environment is registered under the id that was asked for."""


class UnknownParameterError(JaxenvsError, TypeError):
    """An environment has no parameter of that name."""


class ParameterError(JaxenvsError, ValueError):
    """A parameter of an environment has a value that it does not allow."""


class RegistrationError(JaxenvsError, ValueError):
    """A registration is malformed, or its id is taken."""


class SpaceError(JaxenvsError, ValueError):
    """A space was described inconsistently, or cannot be converted."""


class ActionError(JaxenvsError, ValueError):
    """An action has the wrong tree structure, shape or dtype for its space."""


class WrapperError(JaxenvsError, ValueError):
    """A wrapper cannot be put around this environment, or was given a value that cannot work."""


class SeedError(JaxenvsError, ValueError):
    """A seed is no number, out of range, or not one for each instance."""


class VectorizeError(JaxenvsError, ValueError):
    """A vectorized environment was configured with a value that cannot work."""


class ShardingError(JaxenvsError, ValueError):
    """Instances cannot be laid over the mesh as asked."""


class RandomKeyError(JaxenvsError, TypeError):
    """Something that is not a JAX random key was passed as a key."""


class RolloutError(JaxenvsError, ValueError):
    """A rollout or an evaluation was asked for with values that cannot work."""


class RenderError(JaxenvsError, NotImplementedError):
    """The environment cannot draw itself, or the file cannot be written."""


class PoolError(JaxenvsError, ValueError):
    """A pool of environments was asked for with values that cannot work, or used out of order."""


class AlreadyPendingError(PoolError, RuntimeError):
    """Environments of a pool were asked for a step while they still owe a result."""


class NothingPendingError(PoolError, RuntimeError):
    """A result of a pool was waited for that nobody asked for."""


class ClosedError(PoolError, RuntimeError):
    """A pool was used after it was closed."""


class EnvIdError(PoolError, IndexError):
    """Numbers of environments are out of range, or one was given twice."""


class WorkerError(JaxenvsError, RuntimeError):
    """An environment of a pool raised, or its process ended; the message has its traceback.

    Attributes:
        env_ids: the environments concerned.
    """

    env_ids: tuple[int, ...] = ()


class EnvTimeoutError(WorkerError, TimeoutError):
    """An environment of a pool did not answer in time."""


class StaleStateError(PoolError, RuntimeError):
    """A state of hosted environments was stepped a second time; they cannot go back."""


class ForkError(JaxenvsError, RuntimeError):
    """JAX was used, and then the process forked: its threads are not in this one."""


class TrainingError(JaxenvsError, ValueError):
    """A training was configured with values that cannot work, or its state cannot be restored."""


class EnvironmentCheckError(JaxenvsError, AssertionError):
    """`check_env` found that an environment breaks the contract."""


class InstallationError(JaxenvsError, RuntimeError):
    """Something that was asked for does not work in this installation."""


class MissingExtraError(JaxenvsError, ImportError):
    """A feature needs a package that the bare install does not bring."""


def missing_extra(feature: str, package: str, extra: str) -> MissingExtraError:
    """Returns the error that names the extra which brings `package`."""
    return MissingExtraError(
        f'{feature} needs the package {package}. Install it with `pip install "jaxenvs[{extra}]"`.',
        name=package,
    )


def closest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Returns '  Close: "a", "b".' with the known names nearest to `name`, or an empty string."""
    lowered = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), lowered, n=count, cutoff=0.5)
    if not matches:
        return ""
    return "  Close: " + ", ".join(f'"{lowered[match]}"' for match in matches) + "."


def describe(value: Any) -> str:
    """`float32[4]` for an array, the kind of thing for anything else."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (dict, tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__}"
