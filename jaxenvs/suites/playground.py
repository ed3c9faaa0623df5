"""Environments of MuJoCo Playground as native environments.

Playground's automatic reset returns to the first state of the program, unless asked for a full
reset, and loses the last observation. Here every episode starts with a reset of its own.

Source: K. Zakka et al., MuJoCo Playground, 2025.
"""

from typing import Any, ClassVar

import jax

from jaxenvs import physics
from jaxenvs.core import Environment
from jaxenvs.errors import missing_extra
from jaxenvs.suites._brax_like import BraxLike
from jaxenvs.suites._shared import ByIdentity, check_single, mujoco_picture, with_time_limit

try:
    from mujoco_playground import MjxEnv, registry, wrapper
except ImportError as error:
    raise missing_extra(__name__, "playground", "playground") from error

_BATCHING = (
    wrapper.BraxAutoResetWrapper,
    wrapper.BraxDomainRandomizationVmapWrapper,
    wrapper.brax_training.VmapWrapper,
)


class FromPlayground(BraxLike):
    """An environment of MuJoCo Playground."""

    model_attribute: ClassVar[str] = "_mjx_model"

    def render(self, state: Any) -> jax.Array:
        return mujoco_picture(self.env.value.unwrapped.render, state, self.example)


def from_playground(env: Any) -> FromPlayground:
    """Returns an environment of MuJoCo Playground as a native environment without a time limit.

    Args:
        env: a single instance, without a wrapper that resets or batches it.

    Raises:
        WrapperError: `env` is not a Playground environment, or has such a wrapper.
    """
    check_single("from_playground", env, MjxEnv, _BATCHING, "env")
    return FromPlayground(env=ByIdentity(env))


def names() -> list[str]:
    """Returns the names of Playground's environments."""
    return [*registry.ALL_ENVS]


def make(name: str, *, engine: str = "auto", **parameters: Any) -> Environment:
    """Makes an environment of MuJoCo Playground by its name.

    Args:
        name: one of `names()`.
        engine: "mjx" or "warp", by default "warp" on NVIDIA's GPUs if it is installed.
        **parameters: entries of the environment's configuration, such as `episode_length`, which
            is the time limit in steps. A nested one is `{"reward_config.scale": 2.0}`.

    Raises:
        ParameterError: the environment does not run in that engine.
    """
    config = registry.get_default_config(name)
    engines = ("mjx", "warp") if "impl" in config else ("mjx",)
    engine = physics.check_among(f"playground/{name}", engine, engines)
    if "impl" in config:
        parameters = {"impl": "jax" if engine == "mjx" else engine, **parameters}
    env = registry.load(name, config=config, config_overrides=parameters)
    return with_time_limit(from_playground(env), config.episode_length, "episode_length")
