"""The ids of MinAtar's games, which have no time limit: v0 with all actions, v1 with fewer."""

from jaxenvs.registry import register

for _module in ("asterix", "breakout", "seaquest", "space_invaders"):
    _name = _module.title().replace("_", "")
    for _version in (0, 1):
        register(
            f"MinAtar/{_name}-v{_version}",
            f"jaxenvs.envs.minatar.{_module}:{_name}",
            family="minatar",
            source="K. Young, T. Tian, 2019",
            compared_with="MinAtar",
            kwargs={"use_minimal_action_set": True} if _version else None,
        )
