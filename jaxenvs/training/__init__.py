"""Training of agents in the same program as the environments. Needs the extra `train`."""

from jaxenvs.errors import missing_extra as _missing_extra

try:
    import flax as _flax
    import optax as _optax
    import pydantic as _pydantic
except ImportError as _error:
    raise _missing_extra("jaxenvs.training", _error.name or "optax", "train") from _error

from jaxenvs.training.actors import Actor as Actor
from jaxenvs.training.actors import ActorCritic as ActorCritic
from jaxenvs.training.actors import ActorTwinQ as ActorTwinQ
from jaxenvs.training.actors import QNetwork as QNetwork
from jaxenvs.training.algorithms import A2C as A2C
from jaxenvs.training.algorithms import DQN as DQN
from jaxenvs.training.algorithms import PPO as PPO
from jaxenvs.training.algorithms import PQN as PQN
from jaxenvs.training.algorithms import SAC as SAC
from jaxenvs.training.algorithms import TD3 as TD3
from jaxenvs.training.algorithms import VPG as VPG
from jaxenvs.training.algorithms import Algorithm as Algorithm
from jaxenvs.training.assembly import make_train as make_train
from jaxenvs.training.checkpoint import restore as restore
from jaxenvs.training.checkpoint import save as save
from jaxenvs.training.config import Config as Config
from jaxenvs.training.config import config_for as config_for
from jaxenvs.training.learner import Learner as Learner
from jaxenvs.training.logs import open_logs as open_logs
from jaxenvs.training.schemes import Scheme as Scheme
from jaxenvs.training.schemes import central as central
from jaxenvs.training.schemes import remote as remote
from jaxenvs.training.sharded import ShardedTrain as ShardedTrain
from jaxenvs.training.sharded import shard as shard
from jaxenvs.training.storages import GAE as GAE
from jaxenvs.training.storages import DiscountedReturns as DiscountedReturns
from jaxenvs.training.storages import HindsightReplay as HindsightReplay
from jaxenvs.training.storages import PrioritizedReplay as PrioritizedReplay
from jaxenvs.training.storages import Replay as Replay
from jaxenvs.training.storages import Storage as Storage
from jaxenvs.training.storages import VTrace as VTrace
from jaxenvs.training.storages import gae as gae
from jaxenvs.training.storages import vtrace as vtrace
from jaxenvs.training.train_program import ActorPolicy as ActorPolicy
from jaxenvs.training.train_program import Train as Train
from jaxenvs.training.train_program import TrainResult as TrainResult
from jaxenvs.training.types import LearnerState as LearnerState

del _flax, _optax, _pydantic
