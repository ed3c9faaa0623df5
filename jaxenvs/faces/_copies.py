"""Copies of what holds a device's memory, or threads: made again, not copied."""

from typing import Any

import jax

from jaxenvs.core import VectorEnv
from jaxenvs.errors import PoolError
from jaxenvs.faces._engine import as_device


class MadeAgain:
    """Is copied and pickled as the arguments it was made with, and its present parameters.

    The copy has not been reset. A subclass keeps its options in `_options`.
    """

    env: Any
    spec: Any = None
    _options: dict[str, Any]

    def __reduce__(self) -> Any:
        if not isinstance(self.env, VectorEnv):
            raise PoolError(
                f"{self!r} cannot be copied or pickled: its pool owns processes or threads."
                "  Make another with make_pool."
            )
        options = {**self._options, "device": device_name(self._options["device"])}
        if "spec" in options:
            options["spec"] = self.spec
        return _make, (type(self), self.env, options)


def _make(cls: type, env: VectorEnv, options: dict[str, Any]) -> Any:
    return cls(env, **{**options, "device": as_device(options["device"])})


def device_name(device: jax.Device | str | None) -> str | None:
    """What `as_device` takes for `device`."""
    if device is None or isinstance(device, str):
        return device
    return f"{device.platform}:{jax.devices(device.platform).index(device)}"
