"""Learning, in the same program as the environments. Needs the extra `train`."""

from jaxenvs.errors import missing_extra as _missing_extra

try:
    import flax as _flax
    import optax as _optax
except ImportError as _error:
    raise _missing_extra("jaxenvs.training", _error.name or "optax", "train") from _error

from jaxenvs.training.algorithms.ppo import PPO as PPO
from jaxenvs.training.anakin import ActorPolicy as ActorPolicy
from jaxenvs.training.anakin import LearnerState as LearnerState
from jaxenvs.training.anakin import Train as Train
from jaxenvs.training.anakin import TrainResult as TrainResult
from jaxenvs.training.anakin import make_train as make_train
from jaxenvs.training.checkpoint import restore as restore
from jaxenvs.training.checkpoint import save as save
from jaxenvs.training.storages.gae import gae as gae

del _flax, _optax
