"""Copying and pickling of objects that own device memory, as `gymnasium.utils.EzPickle` does it."""

from typing import Any, Self

from jaxenvs.core import VectorEnv
from jaxenvs.errors import PoolError
from jaxenvs.faces._runner import device_name, parse_device


class EzPickleMixin:
    """Pickles an object as its constructor's arguments, with the current parameters.

    A copy has not been reset.
    """

    env: Any
    spec: Any = None
    _options: dict[str, Any]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        self = super().__new__(cls)
        self._options = options
        return self

    def __reduce__(self) -> Any:
        if not isinstance(self.env, VectorEnv):
            raise PoolError(
                f"{self!r} cannot be copied or pickled: its pool owns processes or threads."
                "  Make another one with make_pool."
            )
        options = {**self._options, "device": device_name(self._options.get("device"))}
        if self.spec is not None:
            options["spec"] = self.spec
        return _rebuild, (type(self), self.env, options)


def _rebuild(cls: type, env: VectorEnv, options: dict[str, Any]) -> Any:
    return cls(env, **{**options, "device": parse_device(options["device"])})
