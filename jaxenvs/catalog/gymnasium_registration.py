"""Registration of every id with Gymnasium, as "jaxenvs/<id>".

Only strings are registered: no environment is imported before Gymnasium makes it.
"""

from gymnasium.envs import registration
from gymnasium.error import Error

from jaxenvs.registry import LIMITED, EnvSpec, listeners, registry, standard


def gymnasium_id(id: str) -> str:
    """Returns the id for Gymnasium, which allows only one slash, so others become hyphens."""
    return f"jaxenvs/{id.replace('/', '-')}"


def register_with_gymnasium(spec: EnvSpec) -> None:
    """Registers one id. An id that Gymnasium cannot parse is skipped."""
    try:
        entry = registration.EnvSpec(
            id=gymnasium_id(spec.id),
            entry_point="jaxenvs.faces.gymnasium_entry_points:make_env",
            vector_entry_point="jaxenvs.faces.gymnasium_entry_points:make_vector_env",
            reward_threshold=spec.reward_threshold,
            max_episode_steps=None if spec.family in LIMITED else spec.time_limit,
            kwargs={"env_id": spec.id},
        )
    except Error:
        return
    # `gymnasium.register` would warn if the id is registered again.
    registration.registry[entry.id] = entry


def register_all() -> None:
    """Registers all ids now, and each new id when `jaxenvs.register` adds it."""
    for spec in registry.values():
        register_with_gymnasium(spec)
    listeners.append(register_with_gymnasium)
    standard.extend(registry.values())
    standard.extend(registration.registry.get(gymnasium_id(id)) for id in registry)
