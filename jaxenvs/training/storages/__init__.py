"""What becomes of collected experience before it is learned from."""

from jaxenvs.training.storages.base import OnPolicyStorage as OnPolicyStorage
from jaxenvs.training.storages.base import ReplayStorage as ReplayStorage
from jaxenvs.training.storages.base import Storage as Storage
from jaxenvs.training.storages.gae import GAE as GAE
from jaxenvs.training.storages.gae import gae as gae
from jaxenvs.training.storages.hindsight import Hindsight as Hindsight
from jaxenvs.training.storages.prioritized import PrioritizedReplay as PrioritizedReplay
from jaxenvs.training.storages.replay import Replay as Replay
from jaxenvs.training.storages.rollout import Rollout as Rollout
from jaxenvs.training.storages.vtrace import VTrace as VTrace
from jaxenvs.training.storages.vtrace import vtrace as vtrace
