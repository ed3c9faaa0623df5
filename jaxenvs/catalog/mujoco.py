"""The ids of Gymnasium's MuJoCo tasks, with its time limits and reward thresholds."""

from jaxenvs.registry import register

_TASSA = "Y. Tassa, T. Erez, E. Todorov, 2012"
_EREZ = "T. Erez, Y. Tassa, E. Todorov, 2011"
_GYM = "Gymnasium (formerly OpenAI Gym)"

for _name, _module, _limit, _threshold, _source in (
    ("Ant", "ant", 1_000, 6_000.0, "J. Schulman et al., 2016"),
    ("HalfCheetah", "half_cheetah", 1_000, 4_800.0, "P. Wawrzynski, 2009"),
    ("Hopper", "hopper", 1_000, 3_800.0, _EREZ),
    ("Humanoid", "humanoid", 1_000, None, _TASSA),
    ("HumanoidStandup", "humanoid_standup", 1_000, None, _TASSA),
    ("InvertedDoublePendulum", "inverted_double_pendulum", 1_000, 9_100.0, _GYM),
    (
        "InvertedPendulum",
        "inverted_pendulum",
        1_000,
        950.0,
        "A. G. Barto, R. S. Sutton, C. W. Anderson, 1983",
    ),
    ("Pusher", "pusher", 100, 0.0, _GYM),
    ("Reacher", "reacher", 50, -3.75, _GYM),
    ("Swimmer", "swimmer", 1_000, 360.0, "R. Coulom, 2002"),
    ("Walker2d", "walker2d", 1_000, None, _EREZ),
):
    register(
        f"{_name}-v5",
        f"jaxenvs.envs.mujoco.{_module}:{_name}",
        time_limit=_limit,
        reward_threshold=_threshold,
        source=_source,
        family="mujoco",
        compared_with="gymnasium",
    )
