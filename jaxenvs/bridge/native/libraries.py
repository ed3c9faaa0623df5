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
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
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


POOL = Part(
    name="pool",
    source="pool.c",
    variable="CC",
    compilers=("cc", "gcc", "clang"),
    lost='backend="process" is not available',
)
XLA = Part(
    name="xla",
    source="xla.cc",
    variable="CXX",
    compilers=("c++", "g++", "clang++"),
    lost="compiled programs call pools through a Python callback instead of C++",
)
PARTS = (POOL, XLA)


class NativePartMissing(Exception):
    """A compiled part is missing; the message has the reason."""


def pool_library() -> ctypes.CDLL:
    """Returns the library for waking and waiting, see native/pool.c.

    Raises:
        NativePartMissing: this system has no futexes, or there is no compiler.
    """
    return _require(POOL)


def xla_library() -> ctypes.CDLL:
    """Returns the library of XLA custom calls, see native/xla.cc.

    Raises:
        NativePartMissing: there is no pool library, or no C++ compiler.
    """
    pool_library()
    return _require(XLA)


def reason_missing(part: Callable[[], Any]) -> str | None:
    """Returns why `pool_library` or `xla_library` is missing, or None if it is available."""
    try:
        part()
    except NativePartMissing as error:
        return str(error)
    return None


def is_there(part: Part) -> bool:
    """Returns whether a part is available.

    Logs one warning per process if it is missing and not disabled by the environment variable.
    """
    library = {POOL: pool_library, XLA: xla_library}[part]
    reason = reason_missing(library)
    if reason is not None and not is_disabled():
        _warn_missing(part, reason)
    return reason is None


def pool_path() -> str | None:
    """Returns the path of this process's pool library, or None without one."""
    return None if reason_missing(pool_library) else pool_library()._name


def use_pool(path: str | None) -> None:
    """Makes this worker process use the caller's pool library; None means none."""
    _given[POOL] = path


_given: dict[Part, str | None] = {}


def forget() -> None:
    """Clears the caches, so libraries are searched for again."""
    _outcome.cache_clear()
    _warn_missing.cache_clear()


@functools.cache
def _warn_missing(part: Part, reason: str) -> None:
    # A warning, because it is shown even if logging is not configured.
    log.warning("the host bridge runs without its %s part (%s): %s", part.name, reason, part.lost)


# --- finding ----------------------------------------------------------------------------------


def _require(part: Part) -> ctypes.CDLL:
    outcome = _outcome(part)
    if isinstance(outcome, str):
        raise NativePartMissing(outcome)
    return outcome


@functools.cache
def _outcome(part: Part) -> ctypes.CDLL | str:
    """Returns the library, or the reason why it is missing. Caches failures too."""
    try:
        path = find(part)
        try:
            library = _load(part, path)
        except NativePartMissing:
            if part in _given or path.parent not in _folders():
                raise
            path.unlink(missing_ok=True)  # damaged, by a full disk for example
            library = _load(part, find(part))
    except NativePartMissing as error:
        return str(error)
    if part is POOL:
        _declare(library)
    return library


def _load(part: Part, path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NativePartMissing(f"{path} cannot be loaded: {error}") from error


def _declare(library: ctypes.CDLL) -> None:
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


def find(part: Part) -> Path:
    """Returns the path of a part's library: packaged, cached, or compiled now.

    Raises:
        NativePartMissing: the part is not compiled and cannot be compiled.
    """
    if part in _given:
        path = _given[part]
        if path is None:
            raise NativePartMissing("the caller of this worker does not use it")
        return Path(path)
    found = look(part)
    if isinstance(found, Path):
        return found
    reasons = []
    for folder in _folders():
        try:
            return _build_in_folder(part, found, folder)
        except _NotWritable as error:
            reasons.append(str(error))
    raise NativePartMissing("; ".join(reasons))


def look(part: Part) -> "Path | Recipe":
    """Returns the path of a part's library, or the recipe for compiling it if there is none.

    Raises:
        NativePartMissing: the part is not compiled and cannot be compiled.
    """
    if is_disabled():
        raise NativePartMissing(f"{DISABLE} is set")
    if os.name != "posix":
        raise NativePartMissing(f"it requires Linux or macOS, and this is {platform.system()}")
    packaged = _packaged(part)
    if packaged is not None:
        return packaged
    made = recipe(part)
    for folder in _folders():
        path = folder / made.file
        if path.exists() and _is_mine(folder):
            return path
    return made


def is_disabled() -> bool:
    """Returns whether the environment variable disables both parts."""
    return os.environ.get(DISABLE, "0") not in ("", "0")


def _packaged(part: Part) -> Path | None:
    """Returns the library from a wheel if it matches the sources and works with this jaxlib."""
    digest = source_digest(part)
    for path in SOURCES.glob(f"lib{part.name}-*.so"):
        found = re.fullmatch(rf"lib{part.name}(?:-api(\d+)\.(\d+))?-{digest}\.so", path.name)
        if found is None:
            continue
        if part is XLA:
            # A newer runtime accepts handlers that were built with older headers. An older runtime
            # rejects newer handlers, and then no JAX backend starts.
            major, minor = int(found[1]), int(found[2])
            ours = api_version()
            if ours is None or major != ours[0] or minor > ours[1]:
                continue
        with contextlib.suppress(NativePartMissing):  # for example, built for a newer C library
            _load(part, path)
            return path
    return None


def packaged_name(part: Part) -> str:
    """Returns the file name, in a wheel, of a library built from these sources."""
    version = api_version() if part is XLA else None
    api = f"-api{version[0]}.{version[1]}" if version else ""
    return f"lib{part.name}{api}-{source_digest(part)}.so"


def source_digest(part: Part) -> str:
    """Returns 16 hexadecimal digits of a hash of the part's sources."""
    return _source_hash(part).hexdigest()[:16]


def _source_hash(part: Part) -> Any:
    digest = hashlib.sha256()
    try:
        for path in (SOURCES / part.source, *sorted(SOURCES.glob("*.h"))):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    except OSError as error:
        raise NativePartMissing(f"its source cannot be read: {error}") from error
    return digest


# --- compiling --------------------------------------------------------------------------------


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
    from importlib import metadata  # a slow import that workers do not need

    digest = _source_hash(part)
    command = [*_compiler(part), *_FLAGS]
    inputs = [platform.machine(), *platform.libc_ver()]  # machines may share a home folder
    if part is XLA:
        folder = include_folder()
        if folder is None:
            raise NativePartMissing("jaxlib is not installed, or has no headers")
        command += ["-std=c++17", f"-I{folder}"]
        inputs += [metadata.version("jaxlib"), str(api_version())]
    command.append(str(SOURCES / part.source))
    digest.update("\0".join([*inputs, *command]).encode())
    return Recipe(tuple(command), f"lib{part.name}-{digest.hexdigest()[:16]}.so")


def include_folder() -> Path | None:
    """Returns the folder of XLA's headers in jaxlib, without importing jaxlib."""
    spec = importlib.util.find_spec("jaxlib")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(place) / "include").is_dir():
            return folder
    return None


def api_version() -> tuple[int, int] | None:
    """Returns the version of XLA's custom call interface in jaxlib."""
    folder = include_folder()
    if folder is None:
        return None
    try:
        text = (folder / "xla" / "ffi" / "api" / "c_api.h").read_text(encoding="utf-8")
    except OSError:
        return None
    numbers = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text, re.MULTILINE))
    return (int(numbers["MAJOR"]), int(numbers["MINOR"])) if len(numbers) == 2 else None


def compile_to(part: Part, path: Path) -> None:
    """Compiles a part to the file `path`, whose folder must exist.

    Raises:
        NativePartMissing: it cannot be compiled.
    """
    _run(recipe(part).command, path)


def _compiler(part: Part) -> list[str]:
    chosen = shlex.split(os.environ.get(part.variable, ""))  # may be a command: "ccache gcc"
    for name in chosen[:1] or part.compilers:
        if found := shutil.which(name):
            return [found, *chosen[1:]]
    if chosen:
        raise NativePartMissing(f"the compiler {part.variable}={chosen[0]} was not found")
    raise NativePartMissing(f"no compiler was found ({', '.join(part.compilers)})")


class _NotWritable(Exception):
    """A folder cannot be used; the message has the reason."""


def _build_in_folder(part: Part, made: Recipe, folder: Path) -> Path:
    path = folder / made.file
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_mine(folder):
                raise _NotWritable(f"{folder} belongs to another user")
            stack.enter_context(_locked(folder / f"{part.name}.lock"))
            # A unique temporary name, because file systems may not support the lock.
            fd, temporary = tempfile.mkstemp(suffix=".so", dir=folder)
        except OSError as error:
            raise _NotWritable(f"{folder} cannot be written to: {error.strerror}") from error
        os.close(fd)
        stack.callback(lambda: os.path.exists(temporary) and os.unlink(temporary))
        if not path.exists():  # another process may have built it
            # A warning, because it is shown by default, and compiling takes a while.
            log.warning("compiling the %s part of the host bridge into %s, once", part.name, folder)
            _run(made.command, Path(temporary))
            os.chmod(temporary, 0o755)
            os.replace(temporary, path)
    return path


def _run(command: Sequence[str], path: Path) -> None:
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


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with open(path, "w") as file:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _folders() -> list[Path]:
    """Returns the folders for compiled libraries: the cache, and a temporary one as a fallback."""
    name = f"jaxenvs-{os.getuid()}"
    return [cache_folder() / "native", Path(tempfile.gettempdir()) / name / "native"]


def _is_mine(folder: Path) -> bool:
    """Returns whether no other user can write to `folder`.

    Temporary folders have predictable names, so another user may have created it.
    """
    for path in (folder, folder.parent):
        with contextlib.suppress(OSError):
            link, found = os.lstat(path), os.stat(path)
            if not {link.st_uid, found.st_uid} <= {0, os.getuid()}:
                return False
            if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                return False
    return True


def cache_folder() -> Path:
    """Returns the folder for this user's compiled libraries and tuning results."""
    for variable, more in (("JAXENVS_CACHE", ()), ("XDG_CACHE_HOME", ("jaxenvs",))):
        if base := os.environ.get(variable):
            return Path(base, *more)
    home = os.path.expanduser("~")  # stays "~" if there is no home folder
    if os.path.isabs(home):
        return Path(home, ".cache", "jaxenvs")
    return Path(tempfile.gettempdir(), f"jaxenvs-{os.getuid()}")
