"""The compiled part of the bridge: found in the package, or built once for this user.

Wheels bring it. From source it is compiled when it is first needed, into the user's cache, under
a name that says what it was made of. Without a compiler the bridge works in Python alone.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxenvs.bridge._log import log

_SOURCES = Path(__file__).parent / "native"
DISABLE = "JAXENVS_NO_NATIVE"  # an environment variable: anything but "" and "0" forgoes both parts


class NativePartMissing(Exception):
    """Why a compiled part cannot be had, in one sentence."""


@functools.cache
def pool_library() -> ctypes.CDLL:
    """Waking and waiting, see native/pool.c.

    Raises:
        NativePartMissing: this system has no futexes, or there is no compiler.
    """
    if not sys.platform.startswith("linux"):
        raise NativePartMissing(f"futexes are Linux's, and this is {platform.system()}")
    library = ctypes.CDLL(str(_find("pool", ("pool.c",), _c_command)))
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
        ("end_with", ctypes.c_int, (ctypes.c_int,)),
    ):
        function = getattr(library, f"jaxenvs_{name}")
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def xla_library() -> ctypes.CDLL:
    """The custom calls, see native/xla.cc.

    Raises:
        NativePartMissing: there is no pool library, or no compiler for C++.
    """
    pool_library()
    return ctypes.CDLL(str(_find("xla", ("xla.cc",), _cxx_command)))


def reason_missing(part: Callable[[], Any]) -> str | None:
    """Why `pool_library` or `xla_library` cannot be had; None if it can."""
    try:
        part()
    except NativePartMissing as error:
        return str(error)
    return None


def _find(name: str, files: tuple[str, ...], command: Callable[[], list[str]]) -> Path:
    if os.environ.get(DISABLE, "0") not in ("", "0"):
        raise NativePartMissing(f"{DISABLE} is set")
    packaged = _SOURCES / f"lib{name}.so"
    if packaged.exists():
        return packaged
    words = command()
    digest = hashlib.sha256(" ".join([platform.machine(), *words]).encode())
    for file in (*files, "pool.h"):
        digest.update((_SOURCES / file).read_bytes())
    folder = cache_folder() / "native"
    path = folder / f"lib{name}-{digest.hexdigest()[:16]}.so"
    if not path.exists():
        log.info("compiling the %s part of the host bridge into %s", name, folder)
        build(words, [_SOURCES / file for file in files], path)
    return path


def build(command: Sequence[str], sources: Sequence[Path], path: Path) -> None:
    """Compiles `sources` to a shared library at `path`, which appears whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two processes may both compile; each moves its own into place.
        fd, temporary = tempfile.mkstemp(suffix=".so", dir=path.parent)
        os.close(fd)
    except OSError as error:
        raise NativePartMissing(f"{path.parent} cannot be written to: {error}") from error
    try:
        run = subprocess.run(
            [*command, *map(str, sources), "-o", temporary], capture_output=True, text=True
        )
        if run.returncode:
            raise NativePartMissing(f"`{' '.join(command)}` failed: {run.stderr.strip()[-500:]}")
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def cache_folder() -> Path:
    """Where this user's built libraries and tuned choices are kept."""
    base = os.environ.get("JAXENVS_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "jaxenvs"
    )
    return Path(base)


_FLAGS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")


def _c_command() -> list[str]:
    return [_compiler("CC", "cc", "gcc", "clang"), *_FLAGS]


def _cxx_command() -> list[str]:
    import jax

    return [
        _compiler("CXX", "c++", "g++", "clang++"),
        *(*_FLAGS, "-std=c++17", f"-I{jax.ffi.include_dir()}"),
    ]


def _compiler(variable: str, *names: str) -> str:
    chosen = os.environ.get(variable)
    for name in (chosen,) if chosen else names:
        if found := shutil.which(name):
            return found
    raise NativePartMissing(f"there is no compiler ({chosen or ', '.join(names)})")
