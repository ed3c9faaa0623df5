# MuJoCo is in extras only, and its compiled part has no types.
from typing import Any

def __getattr__(name: str) -> Any: ...
