# Hides jumanji.py in jaxenvs/faces and jaxenvs/suites, which type checkers take for the library.
from typing import Any

def __getattr__(name: str) -> Any: ...
