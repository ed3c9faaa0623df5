"""`HostEnv`: pools inside compiled programs."""

from jaxenvs.bridge.jit.host_env import HostEnv as HostEnv
from jaxenvs.bridge.jit.order import after as after
