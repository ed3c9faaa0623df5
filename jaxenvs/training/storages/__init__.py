"""Storages: advantage estimators and replay memories."""

from jaxenvs.training.storages.discounted_returns import DiscountedReturns as DiscountedReturns
from jaxenvs.training.storages.gae import GAE as GAE
from jaxenvs.training.storages.gae import gae as gae
from jaxenvs.training.storages.hindsight import HindsightReplay as HindsightReplay
from jaxenvs.training.storages.prioritized import PrioritizedReplay as PrioritizedReplay
from jaxenvs.training.storages.replay import Replay as Replay
from jaxenvs.training.storages.storage import OnPolicyStorage as OnPolicyStorage
from jaxenvs.training.storages.storage import ReplayStorage as ReplayStorage
from jaxenvs.training.storages.storage import Storage as Storage
from jaxenvs.training.storages.vtrace import VTrace as VTrace
from jaxenvs.training.storages.vtrace import vtrace as vtrace
