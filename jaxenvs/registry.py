"""The registry of environment ids. It contains strings, so it imports no environments."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxenvs.errors import RegistrationError, UnknownEnvironmentError, closest


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The registration of an id."""

    id: str
    entry_point: str | Callable[..., Any]  # "module:Class", or the class itself
    family: str = "user"
    time_limit: int | None = None  # steps after which an episode is truncated
    reward_threshold: float | None = None  # mean return at which the task counts as solved
    source: str = ""  # the paper or program that the task comes from
    compared_with: str = ""  # the reference implementation that tests compare with step by step
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    wrappers: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


# Families whose environments truncate their episodes themselves, by their parameter `max_steps`.
LIMITED = ("babyai", "minigrid")

registry: dict[str, EnvSpec] = {}

# Ids of large benchmarks, which have an entry for each of many settings. They are made like others.
unlisted: dict[str, EnvSpec] = {}

# Specs that every process has which imports jaxenvs: those of our ids, also Gymnasium's for them.
standard: list[Any] = []

# Functions to call with every new registration.
listeners: list[Callable[[EnvSpec], None]] = []


def register(
    id: str,
    entry_point: str | Callable[..., Any],
    *,
    family: str = "user",
    time_limit: int | None = None,
    reward_threshold: float | None = None,
    source: str = "",
    compared_with: str = "",
    kwargs: Mapping[str, Any] | None = None,
    wrappers: Mapping[str, Mapping[str, Any]] | None = None,
    overwrite: bool = False,
) -> EnvSpec:
    """Registers an environment under `id`.

    Args:
        id: the name to pass to `make`, such as "CartPole-v1".
        entry_point: "module:Class", imported when the id is first used, or a callable that
            returns an `Environment`.
        family: the group that the id is listed in.
        time_limit: steps after which an episode is truncated; None for no limit.
        reward_threshold: mean return at which the task counts as solved.
        source: the paper or program that the task comes from.
        compared_with: the reference implementation that tests compare with.
        kwargs: parameters that override the defaults of the class.
        wrappers: "module:Wrapper" and its arguments, the innermost first.
        overwrite: whether to replace an existing registration of the id.

    Returns:
        The registration.

    Raises:
        RegistrationError: the id is empty or already registered, or the entry point is malformed.
        ParameterError: the time limit is not an integer of at least 1.
    """
    if not isinstance(id, str) or not id.strip():
        raise RegistrationError(f"register got the id {id!r}; it must be a non-empty string.")
    if id in registry and not overwrite:
        raise RegistrationError(
            f'"{id}" is already registered, for {registry[id].entry_point}.'
            "  Choose another id, or pass overwrite=True."
        )
    if isinstance(entry_point, str):
        if entry_point.count(":") != 1 or not all(entry_point.split(":")):
            raise RegistrationError(
                f'register("{id}") got the entry point "{entry_point}"; it must be "module:Class".'
            )
    elif not callable(entry_point):
        raise RegistrationError(
            f'register("{id}") got the entry point {entry_point!r}; pass "module:Class" or a class.'
        )
    if time_limit is not None and not (type(time_limit) is int and 0 < time_limit < 2**31):
        from jaxenvs.parameters import check_time_limit  # imports JAX, which is not always needed

        check_time_limit(f'register("{id}")', time_limit)
    spec = EnvSpec(
        id=id,
        entry_point=entry_point,
        family=family,
        time_limit=time_limit,
        reward_threshold=reward_threshold,
        source=source,
        compared_with=compared_with,
        kwargs=dict(kwargs or {}),
        wrappers=dict(wrappers or {}),
    )
    registry[id] = spec
    for listener in listeners:
        listener(spec)
    return spec


def find(id: str) -> EnvSpec:
    """Returns the registration of `id`.

    Raises:
        UnknownEnvironmentError: the id is not registered; the message lists similar ids.
    """
    spec = registry.get(id) or unlisted.get(id)
    if spec is None:
        raise UnknownEnvironmentError(
            f'no environment is called "{id}".{closest(str(id), [*registry, *unlisted])}'
            "  `jaxenvs list` shows all ids."
        )
    return spec
