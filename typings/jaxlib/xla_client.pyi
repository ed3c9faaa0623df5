# jaxlib has no stubs, so type checkers would not accept `jax.Device` as a type.
from typing import Any

class Device:
    id: int
    platform: str
    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...
