"""The compiled parts of the bridge, which are in the wheel or are built once per user.

In an installation from source, a part is compiled on first use and cached. The file name contains a
hash of the sources, the compiler and the jaxlib version, so a library is never used with other
ones. Without a compiler, there is no backend "process", and one warning is logged.

`hatch_build.py` runs this file by its path to build the libraries of a wheel, so this file imports
only the standard library.
"""

import contextlib
import ctypes
import dataclasses
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger("jaxenvs")

SOURCES = Path(__file__).parent
DISABLE = "JAXENVS_NO_NATIVE"  # environment variable; disables both parts unless "" or "0"
_FLAGS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
_COMPILER_TIMEOUT = 180  # seconds


@dataclasses.dataclass(frozen=True)
class Part:
    """A compiled library of the bridge."""

    name: str
    source: str  # file in native/
    variable: str  # environment variable for the compiler
    compilers: tuple[str, ...]
    lost: str  # the effect if the library is missing


POOL = Part("pool", "pool.c", "CC", ("cc", "gcc", "clang"), 'backend="process" is not available')
_SLOWER = "compiled programs call pools through a Python callback instead of C++"
XLA = Part("xla", "xla.cc", "CXX", ("c++", "g++", "clang++"), _SLOWER)
PARTS = (POOL, XLA)


class NativePartMissing(Exception):
    """A compiled part is missing; the message has the reason."""


def pool_library() -> ctypes.CDLL:
    """Returns the library for waking and waiting, see native/pool.c.

    Raises:
        NativePartMissing: this system has no futexes, or there is no compiler.
    """
    return _library(POOL)


def xla_library() -> ctypes.CDLL:
    """Returns the library of XLA custom calls, see native/xla.cc.

    Raises:
        NativePartMissing: there is no pool library, or no C++ compiler.
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
    """Returns the path of a part's library: packaged, cached, or compiled now.

    Raises:
        NativePartMissing: the part is not compiled and cannot be compiled.
    """
    found = look(part)
    return found if isinstance(found, Path) else _compiled(part, found)


def look(part: Part) -> "Path | Recipe":
    """Returns the path of a part's library, or the recipe for compiling it if there is none.

    Raises:
        NativePartMissing: the part is not compiled and cannot be compiled.
    """
    if is_disabled():
        raise NativePartMissing(f"{DISABLE} is set")
    if os.name != "posix":
        raise NativePartMissing(f"it requires Linux or macOS, and this is {platform.system()}")
    for name in packaged_names(part):
        if _is_sound(SOURCES / name):
            return SOURCES / name
    made = recipe(part)
    path = cache_folder() / "native" / made.file
    return path if _is_sound(path) else made


def _is_sound(path: Path) -> bool:
    """Returns whether a library exists and can be loaded.

    It cannot if a full disk has cut it off, or if it was built for a newer C library.
    """
    with contextlib.suppress(OSError):
        return path.exists() and bool(ctypes.CDLL(str(path)))
    return False


def packaged_names(part: Part) -> list[str]:
    """Returns the file names that a part may have in a wheel; the first is for this jaxlib.

    A newer runtime accepts handlers that were built with older headers. An older runtime rejects
    newer handlers, and then no JAX backend starts.

    Raises:
        NativePartMissing: jaxlib has no headers, or the sources cannot be read.
    """
    digest = source_digest(part)
    if part is POOL:
        return [f"libpool-{digest}.so"]
    major, minor = api_version()
    return [f"libxla-api{major}.{number}-{digest}.so" for number in range(minor, -1, -1)]


def source_digest(part: Part) -> str:
    """Returns 16 hexadecimal digits of a hash of the part's sources."""
    try:
        paths = SOURCES / part.source, *sorted(SOURCES.glob("*.h"))
        return _digest(*(path.name.encode() + b"\0" + path.read_bytes() for path in paths))
    except OSError as error:
        raise NativePartMissing(f"its source cannot be read: {error}") from error


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


# --- compiling ---


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The command that compiles a library, and the library's file name."""

    command: tuple[str, ...]  # without the output option
    file: str  # name in the cache


def recipe(part: Part) -> Recipe:
    """Returns the recipe for compiling a part on this machine.

    Raises:
        NativePartMissing: there is no compiler, or jaxlib has no headers.
    """
    command = [*_compiler(part), *_FLAGS]
    # Machines may share a home folder.
    inputs = [source_digest(part), platform.machine(), *platform.libc_ver()]
    if part is XLA:
        from importlib import metadata  # a slow import that workers do not need

        command += ["-std=c++17", f"-I{include_folder()}"]
        inputs.append(metadata.version("jaxlib"))
    command.append(str(SOURCES / part.source))
    digest = _digest(*(each.encode() for each in [*inputs, *command]))
    return Recipe(tuple(command), f"lib{part.name}-{digest}.so")


def _compiler(part: Part) -> list[str]:
    chosen = shlex.split(os.environ.get(part.variable, ""))  # may be a command: "ccache gcc"
    for name in chosen[:1] or part.compilers:
        if found := shutil.which(name):
            return [found, *chosen[1:]]
    if chosen:
        raise NativePartMissing(f"the compiler {part.variable}={chosen[0]} was not found")
    raise NativePartMissing(f"no compiler was found ({', '.join(part.compilers)})")


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


def compile_to(part: Part, path: Path) -> None:
    """Compiles a part to the file `path`, whose folder must exist.

    Raises:
        NativePartMissing: it cannot be compiled.
    """
    command = recipe(part).command
    try:
        run = subprocess.run(
            [*command, "-o", str(path)], capture_output=True, text=True, timeout=_COMPILER_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativePartMissing(f"{command[0]} cannot be run: {error}") from error
    if run.returncode:
        lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        why = next((line for line in lines if "error" in line), lines[-1])
        raise NativePartMissing(f"{command[0]} failed: {why.strip()[:300]}")


def _compiled(part: Part, made: Recipe) -> Path:
    """Compiles a part into the cache, unless another process has done so meanwhile.

    Raises:
        NativePartMissing: it cannot be compiled, or the cache cannot be written to.
    """
    import fcntl

    folder = cache_folder() / "native"
    path = folder / made.file
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(folder / f"{part.name}.lock", "w") as lock:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_sound(path):
                # A warning, because it is shown by default, and compiling takes a while.
                text = "compiling the %s part of the host bridge into %s, once"
                log.warning(text, part.name, folder)
                with tempfile.TemporaryDirectory(dir=folder) as temporary:
                    compile_to(part, Path(temporary, made.file))
                    os.replace(Path(temporary, made.file), path)
    except OSError as error:
        raise NativePartMissing(
            f"{folder} cannot be written to: {error.strerror}.  Set JAXENVS_CACHE to a writable"
            " folder"
        ) from error
    return path


def cache_folder() -> Path:
    """Returns the folder for this user's compiled libraries and tuning results."""
    if base := os.environ.get("JAXENVS_CACHE"):
        return Path(base)
    home = os.path.expanduser("~")
    if not os.path.isabs(home):  # a user without a home folder has no cache
        home = os.devnull
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(home, ".cache"), "jaxenvs")
