"""Code shared by the adapters to other libraries' interfaces."""

import warnings
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.errors import PoolError


class Adapter(gymnasium.Env):
    """An environment of Gymnasium that wraps one with another interface.

    Attributes accessed by name are those of the wrapped environment, if it has them.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)

    @property
    def unwrapped(self) -> Any:
        """The wrapped environment."""
        return self.env

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self.env, name) or hasattr(self, name)

    def get_wrapper_attr(self, name: str) -> Any:
        own = name in ("step", "reset", "render", "close", "observation_space", "action_space")
        return getattr(self if own or not hasattr(self.env, name) else self.env, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        env = self.env
        while name not in getattr(env, "__dict__", {}) and hasattr(env, "env"):
            env = env.env
        setattr(env if hasattr(env, name) else self.env, name, value)
        return True

    def _take(self, seed: int | None = None, options: Any = None) -> None:
        """Handles arguments that the environment's own `reset` does not take.

        The environment is seeded in another way; a warning says so if there is none.

        Raises:
            PoolError: there are options.
        """
        name = type(self.env).__name__
        if options:
            raise PoolError(
                f"reset got options={options!r:.80}; reset of {name} takes none.  Leave them out."
            )
        if seed is not None and not self._seed(seed):
            warnings.warn(
                f"{name} cannot be seeded after construction, so the seed of reset is ignored."
                "  Seed it inside the environment function.",
                stacklevel=3,
            )

    def _seed(self, seed: int) -> bool:
        """Seeds the environment by its method `seed`; returns whether it has one."""
        has_method = callable(getattr(self.env, "seed", None))
        if has_method:
            self.env.seed(seed)
        return has_method

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> Any:
        return self.env.close() if hasattr(self.env, "close") else None


def unbounded(shape: tuple[int, ...], dtype: Any) -> gymnasium.spaces.Box:
    """Returns the space of all arrays of numbers or bools with this shape and dtype."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
    else:
        low, high = (0, 1) if kind.kind == "b" else (-np.inf, np.inf)
    of_any_type: Any = kind.type  # bools too, although Box does not declare them
    return gymnasium.spaces.Box(low, high, shape, of_any_type)
