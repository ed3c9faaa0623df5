"""Tasks of bsuite, the Behaviour Suite for Reinforcement Learning. Each tests one capability."""

from jaxenvs.envs.bsuite._cart_pole import BsuiteCartPoleState as BsuiteCartPoleState
from jaxenvs.envs.bsuite.bandit import Bandit as Bandit
from jaxenvs.envs.bsuite.bandit import BanditState as BanditState
from jaxenvs.envs.bsuite.cart_pole import BsuiteCartPole as BsuiteCartPole
from jaxenvs.envs.bsuite.cart_pole_swingup import CartPoleSwingup as CartPoleSwingup
from jaxenvs.envs.bsuite.catch import Catch as Catch
from jaxenvs.envs.bsuite.catch import CatchState as CatchState
from jaxenvs.envs.bsuite.deep_sea import DeepSea as DeepSea
from jaxenvs.envs.bsuite.deep_sea import DeepSeaDraws as DeepSeaDraws
from jaxenvs.envs.bsuite.deep_sea import DeepSeaState as DeepSeaState
from jaxenvs.envs.bsuite.discounting_chain import DiscountingChain as DiscountingChain
from jaxenvs.envs.bsuite.discounting_chain import DiscountingChainState as DiscountingChainState
from jaxenvs.envs.bsuite.memory_chain import MemoryChain as MemoryChain
from jaxenvs.envs.bsuite.memory_chain import MemoryChainState as MemoryChainState
from jaxenvs.envs.bsuite.mnist import Mnist as Mnist
from jaxenvs.envs.bsuite.mnist import MnistState as MnistState
from jaxenvs.envs.bsuite.mountain_car import BsuiteMountainCar as BsuiteMountainCar
from jaxenvs.envs.bsuite.mountain_car import BsuiteMountainCarState as BsuiteMountainCarState
from jaxenvs.envs.bsuite.umbrella_chain import UmbrellaChain as UmbrellaChain
from jaxenvs.envs.bsuite.umbrella_chain import UmbrellaChainState as UmbrellaChainState
