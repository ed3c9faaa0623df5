"""The ids of classic control tasks, with Gymnasium's time limits and reward thresholds."""

from functools import partial

from jaxenvs.registry import register

_register = partial(register, family="classic_control", compared_with="gymnasium")
_MODULES = "jaxenvs.envs.classic_control"
_CARTPOLE = "A. G. Barto, R. S. Sutton, C. W. Anderson, 1983"
_MOUNTAIN_CAR = "A. W. Moore, 1990"

for _version, _limit, _threshold in ((0, 200, 195.0), (1, 500, 475.0)):
    _register(
        f"CartPole-v{_version}",
        f"{_MODULES}.cartpole:CartPole",
        time_limit=_limit,
        reward_threshold=_threshold,
        source=_CARTPOLE,
    )
_register(
    "MountainCar-v0",
    f"{_MODULES}.mountain_car:MountainCar",
    time_limit=200,
    reward_threshold=-110.0,
    source=_MOUNTAIN_CAR,
)
_register(
    "MountainCarContinuous-v0",
    f"{_MODULES}.mountain_car_continuous:MountainCarContinuous",
    time_limit=999,
    reward_threshold=90.0,
    source=_MOUNTAIN_CAR,
)
_register(
    "Acrobot-v1",
    f"{_MODULES}.acrobot:Acrobot",
    time_limit=500,
    reward_threshold=-100.0,
    source="R. S. Sutton, 1996",
)
_register(
    "Pendulum-v1",
    f"{_MODULES}.pendulum:Pendulum",
    time_limit=200,
    source="Gymnasium (formerly OpenAI Gym)",
)
