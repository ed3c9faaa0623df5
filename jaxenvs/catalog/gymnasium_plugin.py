"""Enters the ids in Gymnasium's own registry, as "jaxenvs/<id>". Strings only, as in ours."""

import sys

from jaxenvs.registry import EnvSpec, listeners, registry

_REGISTRATION = "gymnasium.envs.registration"


def gymnasium_id(id: str) -> str:
    """The id under which Gymnasium knows `id`; it allows one slash, so others become hyphens."""
    return f"jaxenvs/{id.replace('/', '-')}"


def enter(spec: EnvSpec) -> None:
    """Enters one id, if Gymnasium is loaded. An id that it cannot read is left out."""
    if _REGISTRATION not in sys.modules:
        return
    # Not `gymnasium.register`: that warns of an id that is entered again.
    from gymnasium.envs import registration
    from gymnasium.error import Error

    try:
        entry = registration.EnvSpec(
            id=gymnasium_id(spec.id),
            entry_point="jaxenvs.faces.plugin:single",
            vector_entry_point="jaxenvs.faces.plugin:batch",
            reward_threshold=spec.reward_threshold,
            max_episode_steps=spec.time_limit,
            kwargs={"env_id": spec.id},
        )
    except Error:
        return
    registration.registry[entry.id] = entry


def enter_all() -> None:
    """Enters all ids; doing so again changes nothing."""
    for spec in registry.values():
        enter(spec)


def install() -> None:
    """Enters all ids, now or when Gymnasium is imported, and from then on what is registered."""
    listeners.append(enter)
    if _REGISTRATION in sys.modules:
        enter_all()
        return
    try:
        import _jaxenvs_gymnasium
    except ModuleNotFoundError:  # someone copied the folder jaxenvs and nothing else
        import gymnasium  # noqa: F401

        enter_all()
    else:
        _jaxenvs_gymnasium.install()
