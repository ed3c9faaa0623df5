# jaxlib has no stubs of its own, so that `jax.Device` would not count as a type.
from typing import Any

class Device:
    id: int
    platform: str
    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...
