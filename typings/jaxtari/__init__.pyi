# Hides jaxenvs/suites/jaxtari.py, which type checkers would take for the library.
from typing import Any

def __getattr__(name: str) -> Any: ...
