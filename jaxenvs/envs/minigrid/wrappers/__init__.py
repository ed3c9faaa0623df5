"""minigrid's wrappers, with the same observations and rewards.

They apply to a level of MiniGrid, with any other wrappers between the two. int64 and float64 become
int32 and float32. `ReseedWrapper` has no counterpart, because seeds are keys here: to repeat a few
episodes, call `reset` with keys from a fixed list.
"""

from jaxenvs.envs.minigrid.wrappers.dynamics import ActionBonus as ActionBonus
from jaxenvs.envs.minigrid.wrappers.dynamics import BonusState as BonusState
from jaxenvs.envs.minigrid.wrappers.dynamics import NoDeath as NoDeath
from jaxenvs.envs.minigrid.wrappers.dynamics import PositionBonus as PositionBonus
from jaxenvs.envs.minigrid.wrappers.dynamics import StochasticAction as StochasticAction
from jaxenvs.envs.minigrid.wrappers.observation import DictObservationSpace as DictObservationSpace
from jaxenvs.envs.minigrid.wrappers.observation import DirectionObs as DirectionObs
from jaxenvs.envs.minigrid.wrappers.observation import FlatObs as FlatObs
from jaxenvs.envs.minigrid.wrappers.observation import FullyObs as FullyObs
from jaxenvs.envs.minigrid.wrappers.observation import ImgObs as ImgObs
from jaxenvs.envs.minigrid.wrappers.observation import OneHotPartialObs as OneHotPartialObs
from jaxenvs.envs.minigrid.wrappers.observation import RGBImgObs as RGBImgObs
from jaxenvs.envs.minigrid.wrappers.observation import RGBImgPartialObs as RGBImgPartialObs
from jaxenvs.envs.minigrid.wrappers.observation import SymbolicObs as SymbolicObs
from jaxenvs.envs.minigrid.wrappers.observation import ViewSize as ViewSize
