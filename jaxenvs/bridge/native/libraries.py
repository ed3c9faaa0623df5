"""The compiled parts of the bridge, which were compiled when jaxenvs was built or installed.

The file name of a library contains a hash of the sources, so a library is never used with other
ones. Without the libraries, there is no backend "process", and one warning is logged.

`hatch_build.py` compiles them and runs this file by its path, so this file imports only the
standard library.
"""

import ctypes
import dataclasses
import hashlib
import importlib.util
import logging
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger("jaxenvs")

SOURCES = Path(__file__).parent
DISABLE = "JAXENVS_NO_NATIVE"  # environment variable; disables both parts unless "" or "0"


@dataclasses.dataclass(frozen=True)
class Part:
    """A compiled library of the bridge."""

    name: str
    source: str  # file in native/
    lost: str  # the effect if the library is missing


POOL = Part("pool", "pool.c", 'backend="process" is not available')
_SLOWER = "compiled programs call pools through a Python callback instead of C++"
XLA = Part("xla", "xla.cc", _SLOWER)
PARTS = (POOL, XLA)


class NativePartMissing(Exception):
    """A compiled part is missing; the message has the reason."""


def pool_library() -> ctypes.CDLL:
    """Returns the library for waking and waiting, see native/pool.c.

    Raises:
        NativePartMissing: it was not compiled, or cannot be loaded.
    """
    return _library(POOL)


def xla_library() -> ctypes.CDLL:
    """Returns the library of XLA custom calls, see native/xla.cc.

    Raises:
        NativePartMissing: it was not compiled, or cannot be loaded, or there is no pool library.
    """
    pool_library()
    return _library(XLA)


def reason_missing(library: Callable[[], Any]) -> str | None:
    """Returns why `pool_library` or `xla_library` is missing, or None if it is available."""
    try:
        library()
    except NativePartMissing as error:
        return str(error)
    return None


def is_there(part: Part) -> bool:
    """Returns whether a part is available."""
    return reason_missing(pool_library if part is POOL else xla_library) is None


def is_disabled() -> bool:
    """Returns whether the environment variable disables both parts."""
    return os.environ.get(DISABLE, "0") not in ("", "0")


_found: dict[Part, ctypes.CDLL | str] = {}  # or why it is missing


def forget() -> None:
    """Forgets what was found, so libraries are searched for again."""
    _found.clear()


def pool_path() -> str | None:
    """Returns the path of this process's pool library, or None without one."""
    return None if reason_missing(pool_library) else pool_library()._name


def use_pool(path: str | None) -> None:
    """Makes this worker process use the caller's pool library; None means none."""
    _found[POOL] = _load(POOL, Path(path)) if path else "the caller of this worker does not use it"


def _library(part: Part) -> ctypes.CDLL:
    """Returns a part; logs one warning per process if it is missing and was not disabled."""
    if part not in _found:
        try:
            _found[part] = _load(part, find(part))
        except NativePartMissing as error:
            _found[part] = str(error)
            if not is_disabled():
                # A warning, because it is shown even if logging is not configured.
                text = "the host bridge runs without its %s part (%s): %s"
                log.warning(text, part.name, error, part.lost)
    found = _found[part]
    if isinstance(found, str):
        raise NativePartMissing(found)
    return found


def _load(part: Part, path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativePartMissing(f"{path} cannot be loaded: {error}") from error
    if part is XLA:
        return library
    pool, u32, i64, i32s = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64, ctypes.c_void_p
    for name, result, arguments in (
        ("ask", None, (pool, u32, u32)),
        ("ask_all", None, (pool, u32)),
        ("ask_some", None, (pool, u32, u32, i32s, i32s, u32)),
        ("step_all", ctypes.c_int, (pool, u32, i64)),
        ("wait_all", ctypes.c_int, (pool, u32, i64)),
        ("take", ctypes.c_int, (pool, u32, i32s, i64)),
        ("next", u32, (pool, u32, u32)),
        ("finish", None, (pool, u32, u32)),
        ("finish_and_next", u32, (pool, u32, u32)),
        ("end_with", ctypes.c_int, (ctypes.c_int,)),
    ):
        function = getattr(library, f"jaxenvs_{name}")
        function.restype, function.argtypes = result, arguments
    return library


# --- finding ---


def find(part: Part) -> Path:
    """Returns the path of a part's library.

    Raises:
        NativePartMissing: no library fits these sources and this jaxlib.
    """
    if is_disabled():
        raise NativePartMissing(f"{DISABLE} is set")
    if os.name != "posix":
        raise NativePartMissing(f"it requires Linux or macOS, and this is {platform.system()}")
    for name in file_names(part):
        if (path := SOURCES / name).exists():
            return path
    if any(SOURCES.glob(f"lib{part.name}-*.so")):
        raise NativePartMissing(
            "it was compiled from other sources or for a newer jaxlib; install jaxenvs again"
        )
    raise NativePartMissing(
        "it was not compiled when jaxenvs was installed; install a C and a C++ compiler, then"
        " jaxenvs again"
    )


def file_names(part: Part) -> list[str]:
    """Returns the file names that a part's library may have; the first is for this jaxlib.

    A newer runtime accepts handlers that were built with older headers. An older runtime rejects
    newer handlers, and then no JAX backend starts.

    Raises:
        NativePartMissing: jaxlib has no headers, or the sources cannot be read.
    """
    if part is POOL:
        return [f"libpool-{_source_digest()}.so"]
    major, minor = api_version()
    return [f"libxla-{major}.{each}-{_source_digest()}.so" for each in range(minor, -1, -1)]


def _source_digest() -> str:
    """Returns 16 hexadecimal digits of a hash of the sources."""
    digest = hashlib.sha256()
    try:
        for path in sorted([*SOURCES.rglob("*.h"), *(SOURCES / part.source for part in PARTS)]):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    except OSError as error:
        raise NativePartMissing(f"its source cannot be read: {error}") from error
    return digest.hexdigest()[:16]


def include_folder() -> Path:
    """Returns the folder of XLA's headers in jaxlib, without importing jaxlib."""
    spec = importlib.util.find_spec("jaxlib")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(place) / "include").is_dir():
            return folder
    raise NativePartMissing("jaxlib is not installed, or has no headers")


def api_version() -> tuple[int, int]:
    """Returns the version of XLA's custom call interface in jaxlib."""
    try:
        text = (include_folder() / "xla" / "ffi" / "api" / "c_api.h").read_text(encoding="utf-8")
        numbers = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text, re.MULTILINE))
        return int(numbers["MAJOR"]), int(numbers["MINOR"])
    except (OSError, KeyError) as error:
        raise NativePartMissing("jaxlib's headers do not have the version of XLA") from error
