"""JAX-native batched environments for reinforcement learning."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxenvs import _forks as _forks
from jaxenvs import catalog as catalog
from jaxenvs import errors as errors
from jaxenvs.registry import EnvSpec as EnvSpec
from jaxenvs.registry import register as register
from jaxenvs.registry import registry as registry

__version__ = "0.1.0"

# `import jaxenvs` only fills our registry and Gymnasium's with strings. Everything else is imported
# on first use, because most of it imports JAX, and some of it other libraries.
_NAMES = {
    "Environment": "core",
    "MultiAgentEnvironment": "multi_agent",
    "MultiAgentTimeStep": "multi_agent",
    "sample_legal": "multi_agent",
    "Policy": "core",
    "TimeStep": "timestep",
    "VectorEnv": "core",
    "Wrapper": "core",
    "make_dm": "faces.dm_env",
    "make_gym": "faces.gym",
    "make_gymnax": "faces.gymnax",
    "make_pettingzoo": "faces.pettingzoo",
    "make_pool": "bridge.making",
    "HostEnv": "bridge.jit",
    "make": "factory",
    "make_vec": "factory",
    "evaluate": "rollouts",
    "load_policy": "pretrained",
    "rollout": "rollouts",
    "vectorize": "vector.vectorize",
}
_MODULES = (
    *("bridge", "core", "envs", "faces", "factory", "levels", "multi_agent", "numerics"),
    *("prng", "rendering", "rollouts", "spaces", "statistics", "struct", "suites", "testing"),
    *("training", "vector"),
    "wrappers",
)

if _TYPE_CHECKING:
    from jaxenvs import bridge as bridge
    from jaxenvs import core as core
    from jaxenvs import envs as envs
    from jaxenvs import faces as faces
    from jaxenvs import factory as factory
    from jaxenvs import levels as levels
    from jaxenvs import multi_agent as multi_agent
    from jaxenvs import numerics as numerics
    from jaxenvs import prng as prng
    from jaxenvs import rendering as rendering
    from jaxenvs import rollouts as rollouts
    from jaxenvs import spaces as spaces
    from jaxenvs import statistics as statistics
    from jaxenvs import struct as struct
    from jaxenvs import suites as suites
    from jaxenvs import testing as testing
    from jaxenvs import training as training
    from jaxenvs import vector as vector
    from jaxenvs import wrappers as wrappers
    from jaxenvs.bridge.jit import HostEnv as HostEnv
    from jaxenvs.bridge.making import make_pool as make_pool
    from jaxenvs.core import Environment as Environment
    from jaxenvs.core import Policy as Policy
    from jaxenvs.core import VectorEnv as VectorEnv
    from jaxenvs.core import Wrapper as Wrapper
    from jaxenvs.faces.dm_env import make_dm as make_dm
    from jaxenvs.faces.gym import make_gym as make_gym
    from jaxenvs.faces.gymnax import make_gymnax as make_gymnax
    from jaxenvs.faces.pettingzoo import make_pettingzoo as make_pettingzoo
    from jaxenvs.factory import make as make
    from jaxenvs.factory import make_vec as make_vec
    from jaxenvs.multi_agent import MultiAgentEnvironment as MultiAgentEnvironment
    from jaxenvs.multi_agent import MultiAgentTimeStep as MultiAgentTimeStep
    from jaxenvs.multi_agent import sample_legal as sample_legal
    from jaxenvs.pretrained import load_policy as load_policy
    from jaxenvs.rollouts import evaluate as evaluate
    from jaxenvs.rollouts import rollout as rollout
    from jaxenvs.timestep import TimeStep as TimeStep
    from jaxenvs.vector.vectorize import vectorize as vectorize
else:

    def __getattr__(name):
        if name in _MODULES:
            return _importlib.import_module(f"jaxenvs.{name}")
        if name in _NAMES:
            value = getattr(_importlib.import_module(f"jaxenvs.{_NAMES[name]}"), name)
            globals()[name] = value  # later lookups bypass this function
            return value
        known = [each for each in __dir__() if not each.startswith("_")]
        raise AttributeError(
            f"module 'jaxenvs' has no attribute {name!r}.{errors.closest(name, known)}"
        )

    def __dir__():
        return sorted({*globals(), *_MODULES, *_NAMES})
