"""The ids of Gymnasium's Box2D tasks, with its time limits and reward thresholds."""

from jaxenvs.registry import register

for _name, _settings in (("LunarLander", {}), ("LunarLanderContinuous", {"continuous": True})):
    register(
        f"{_name}-v3",
        "jaxenvs.envs.box2d.lunar_lander:LunarLander",
        time_limit=1_000,
        reward_threshold=200.0,
        source="O. Klimov, OpenAI Gym, 2016",
        family="box2d",
        compared_with="gymnasium",
        kwargs=_settings,
    )

for _name, _limit, _settings in (
    ("BipedalWalker", 1_600, {}),
    ("BipedalWalkerHardcore", 2_000, {"hardcore": True}),
):
    register(
        f"{_name}-v3",
        "jaxenvs.envs.box2d.bipedal_walker:BipedalWalker",
        time_limit=_limit,
        reward_threshold=300.0,
        source="O. Klimov, OpenAI Gym, 2016",
        family="box2d",
        compared_with="gymnasium",
        kwargs=_settings,
    )
