"""The ids of gymnax's other tasks, under gymnax's names and with its time limits."""

from functools import partial

from jaxenvs.registry import register

_register = partial(register, family="misc", compared_with="gymnax")
_MODULES = "jaxenvs.envs.misc"
_IVY = "Ivy Gym, 2021"

_register(
    "FourRooms-misc",
    f"{_MODULES}.four_rooms:FourRooms",
    time_limit=500,
    source="R. S. Sutton, D. Precup, S. Singh, 1999",
)
_register(
    "MetaMaze-misc",
    f"{_MODULES}.meta_maze:MetaMaze",
    time_limit=200,
    source="T. Miconi et al., 2019",
)
_register(
    "PointRobot-misc",
    f"{_MODULES}.point_robot:PointRobot",
    time_limit=100,
    source="R. Dorfman, I. Shenfeld, A. Tamar, 2021",
)
_register(
    "BernoulliBandit-misc",
    f"{_MODULES}.bernoulli_bandit:BernoulliBandit",
    time_limit=100,
    source="J. X. Wang et al., 2017",
)
_register(
    "GaussianBandit-misc",
    f"{_MODULES}.gaussian_bandit:GaussianBandit",
    time_limit=100,
    source="R. T. Lange, H. Sprekeler, 2022",
)
_register("Reacher-misc", f"{_MODULES}.reacher:Reacher", time_limit=100, source=_IVY)
_register("Swimmer-misc", f"{_MODULES}.swimmer:Swimmer", time_limit=500, source=_IVY)
_register(
    "Pong-misc", f"{_MODULES}.pong:Pong", time_limit=1_000, source="A. Kirsch, batch_pong_poc"
)
