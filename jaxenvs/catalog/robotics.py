"""The ids of Gymnasium-Robotics' mazes and Fetch tasks, with its time limits."""

from jaxenvs.registry import register

# The name of a map without its kind -> steps of the point, of the ant.
_STEPS = {"UMaze": (300, 700), "Open": (300, 700), "Medium": (600, 1_000), "Large": (800, 1_000)}

for _name, _limits in _STEPS.items():
    for _kind in ("", "_Diverse_G", "_Diverse_GR")[: 1 if _name == "UMaze" else 3]:
        for _suffix, _reward in (("", "sparse"), ("Dense", "dense")):
            for _agent, _version, _limit in zip(("Point", "Ant"), (3, 5), _limits, strict=True):
                register(
                    f"{_agent}Maze_{_name}{_kind}{_suffix}-v{_version}",
                    f"jaxenvs.envs.robotics.{_agent.lower()}_maze:{_agent}Maze",
                    family="robotics",
                    time_limit=_limit,
                    source="J. Fu et al., D4RL, 2020",
                    compared_with="gymnasium_robotics",
                    kwargs={"maze_map": _name + _kind, "reward_type": _reward},
                )

for _name in ("Reach", "Push", "Slide", "PickAndPlace"):
    for _suffix, _reward in (("", "sparse"), ("Dense", "dense")):
        register(
            f"Fetch{_name}{_suffix}-v4",
            f"jaxenvs.envs.robotics.fetch:Fetch{_name}",
            family="robotics",
            time_limit=50,
            source="M. Plappert et al., Multi-Goal Reinforcement Learning, 2018",
            compared_with="gymnasium_robotics",
            kwargs={"reward_type": _reward},
        )
