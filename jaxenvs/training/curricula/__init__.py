"""Curricula: which levels a policy plays next, see `curriculum`."""

from jaxenvs.training.curricula.buffer import BufferState as BufferState
from jaxenvs.training.curricula.buffer import LevelBuffer as LevelBuffer
from jaxenvs.training.curricula.curriculum import ACCEL as ACCEL
from jaxenvs.training.curricula.curriculum import Curriculum as Curriculum
from jaxenvs.training.curricula.curriculum import DomainRandomization as DomainRandomization
from jaxenvs.training.curricula.curriculum import Draw as Draw
from jaxenvs.training.curricula.curriculum import PrioritizedLevelReplay as PrioritizedLevelReplay
from jaxenvs.training.curricula.curriculum import SamplingForLearnability as SamplingForLearnability
from jaxenvs.training.curricula.curriculum import new_levels as new_levels
from jaxenvs.training.curricula.scores import LevelSteps as LevelSteps
from jaxenvs.training.curricula.scores import score as score
