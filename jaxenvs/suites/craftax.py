"""Environments of Craftax as native environments, always those without automatic resets.

Craftax merges its time limit, 10,000 or 100,000 steps, with the end of the task. Here the limit
truncates.

Source: M. Matthews et al., Craftax: A Lightning-Fast Benchmark for Open-Ended Reinforcement
Learning, 2024.
"""

import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp

from jaxenvs.core import Environment
from jaxenvs.errors import missing_extra
from jaxenvs.suites import _gymnax_like
from jaxenvs.suites._shared import check_kind, replace_parameters

try:
    from craftax.craftax_env import make_craftax_env_from_name
    from craftax.environment_base.environment_bases import EnvironmentNoAutoReset
except ImportError as error:
    raise missing_extra(__name__, "craftax", "craftax") from error

_NAMES = [
    "Craftax-Classic-Pixels-v1",
    "Craftax-Classic-Symbolic-v1",
    "Craftax-Pixels-v1",
    "Craftax-Symbolic-v1",
]


class FromCraftax(_gymnax_like.GymnaxLike):
    """An environment of Craftax."""

    def render(self, state: Any) -> jax.Array:
        picture = _renderer(type(self.env.value).__module__.split(".")[1])(state)
        return jnp.clip(picture, 0, 255).astype(jnp.uint8)


@functools.cache
def _renderer(package: str) -> Any:
    """Returns the function of craftax.craftax or craftax.craftax_classic that draws a state."""
    constants = importlib.import_module(f"craftax.{package}.constants")
    renderer = importlib.import_module(f"craftax.{package}.renderer")
    with jax.ensure_compile_time_eval():  # loads textures
        return renderer.make_craftax_pixel_renderer(constants.BLOCK_PIXEL_SIZE_IMG)


def from_craftax(env: Any, params: Any = None) -> Environment:
    """Returns an environment of Craftax as a native environment.

    Args:
        env: an environment without automatic resets, such as `CraftaxSymbolicEnvNoAutoReset`.
        params: its parameters; None for `env.default_params`. The number of steps `max_timesteps`
            becomes the time limit.

    Raises:
        WrapperError: `env` is not a Craftax environment, or resets itself.
    """
    check_kind("from_craftax", env, EnvironmentNoAutoReset)
    params = env.default_params if params is None else params
    return _gymnax_like.adapt(env, params, limit="max_timesteps", is_merged=True, cls=FromCraftax)


def names() -> list[str]:
    """Returns the names of Craftax's environments."""
    return _NAMES


def make(name: str, **parameters: Any) -> Environment:
    """Makes an environment of Craftax by its name.

    Args:
        name: one of `names()`.
        **parameters: fields of the environment's parameters or of its static parameters.
    """
    env = make_craftax_env_from_name(name, auto_reset=False)
    params, fixed = replace_parameters(
        f"craftax/{name}", parameters, env.default_params, env.static_env_params
    )
    return from_craftax(type(env)(fixed), params)
