"""Certificates of environments, in a JSON file per family: id -> certificate, sorted by id.

Those of MJX and of policies that transfer are few, so each kind has one file.
"""

import json
import os
from pathlib import Path
from typing import Any

import jaxenvs

FOLDER = Path(__file__).parent / "certificates"
# Families without certificates, and why.
WITHOUT = {
    "atari": "ROMs belong to users, so `python -m benchmarks.atari_exact` compares the games with"
    " ale_py in a run of its own"
}
Certificate = dict[str, Any]


def path_of(id: str, kind: str = "c", folder: Path = FOLDER) -> Path:
    """Returns the file that has the certificate of an id, or would have it.

    Args:
        id: the id.
        kind: "c" or "mjx", the engine of tasks with MuJoCo, or "transfer".
        folder: the folder of the files.
    """
    return folder / f"{jaxenvs.registry[id].family if kind == 'c' else kind}.json"


def read(id: str, kind: str = "c", folder: Path = FOLDER) -> Certificate | None:
    """Returns the certificate of an id, or None if there is none."""
    return _load(path_of(id, kind, folder)).get(id)


def write(id: str, certificate: Certificate, kind: str = "c", folder: Path = FOLDER) -> Path:
    """Writes the certificate of an id beside the others in its file, which it returns."""
    path = path_of(id, kind, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = _load(path) | {id: certificate}
    temporary = path.with_suffix(f".{os.getpid()}")
    text = json.dumps({id: found[id] for id in sorted(found)}, indent=2)
    temporary.write_text(f"{text}\n", encoding="utf-8")
    temporary.replace(path)  # whole or not at all
    return path


def _load(path: Path) -> dict[str, Certificate]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
