"""The base class of adapters to the interfaces of other libraries."""

from typing import Any

import gymnasium


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

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> Any:
        return self.env.close() if hasattr(self.env, "close") else None
