"""The compiled part of the bridge: found in the package, or built once for this user.

Wheels bring it. From source it is compiled when it is first needed, into the user's cache, under
a name that says what it was made of: a change of a source, of the compiler or of jaxlib makes
another one, and a library never serves sources that it was not made from. Without a compiler the
bridge works in Python alone, and says once what is lost.

`hatch_build.py` runs this file by its path, to make the libraries of a wheel: it imports nothing
but the standard library.
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
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger("jaxenvs")

SOURCES = Path(__file__).parent / "native"
DISABLE = "JAXENVS_NO_NATIVE"  # an environment variable: anything but "" and "0" forgoes both parts
_FLAGS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
_PATIENCE = 180  # seconds that a compiler may take


@dataclasses.dataclass(frozen=True)
class Part:
    """A library, and what its absence means."""

    name: str
    source: str  # beside the headers in native/
    variable: str  # of the environment, that names the compiler
    compilers: tuple[str, ...]
    lost: str


POOL = Part(
    name="pool",
    source="pool.c",
    variable="CC",
    compilers=("cc", "gcc", "clang"),
    lost="workers and the caller wake each other by Python, without spinning, which makes steps"
    " of a few microseconds slower",
)
XLA = Part(
    name="xla",
    source="xla.cc",
    variable="CXX",
    compilers=("c++", "g++", "clang++"),
    lost="compiled programs reach a pool by a callback of Python, in place of a call of C++",
)
PARTS = (POOL, XLA)


class NativePartMissing(Exception):
    """Why a compiled part cannot be had, in one sentence."""


def pool_library() -> ctypes.CDLL:
    """Waking and waiting, see native/pool.c.

    Raises:
        NativePartMissing: this system has no futexes, or there is no compiler.
    """
    return _had(POOL)


def xla_library() -> ctypes.CDLL:
    """The custom calls, see native/xla.cc.

    Raises:
        NativePartMissing: there is no pool library, or no compiler for C++.
    """
    pool_library()
    return _had(XLA)


def reason_missing(part: Callable[[], Any]) -> str | None:
    """Why `pool_library` or `xla_library` cannot be had; None if it can."""
    try:
        part()
    except NativePartMissing as error:
        return str(error)
    return None


def is_there(part: Part) -> bool:
    """Whether a part can be had; if not, what is lost is said, once in a process.

    Nothing is said where it was forgone by the environment variable.
    """
    library = {POOL: pool_library, XLA: xla_library}[part]
    reason = reason_missing(library)
    if reason is not None and not is_disabled():
        _say_lost(part, reason)
    return reason is None


def pool_path() -> str | None:
    """The file of the pool library of this process; None where it goes without."""
    return None if reason_missing(pool_library) else pool_library()._name


def use_pool(path: str | None) -> None:
    """Has this process, a worker, use its caller's pool library, or go without as that does."""
    _given[POOL] = path


_given: dict[Part, str | None] = {}


def forget() -> None:
    """Has what was found looked for again, as in a new process."""
    _outcome.cache_clear()
    _say_lost.cache_clear()


@functools.cache
def _say_lost(part: Part, reason: str) -> None:
    # A warning, so that it is seen by whoever has not configured logging.
    log.warning("the host bridge goes without its %s part (%s): %s", part.name, reason, part.lost)


# --- finding ----------------------------------------------------------------------------------


def _had(part: Part) -> ctypes.CDLL:
    outcome = _outcome(part)
    if isinstance(outcome, str):
        raise NativePartMissing(outcome)
    return outcome


@functools.cache
def _outcome(part: Part) -> ctypes.CDLL | str:
    """The library, or why there is none: a failure too is found out only once."""
    try:
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
    """The library of a part: packaged, in a cache, or compiled now.

    Raises:
        NativePartMissing: there is none, and none can be made.
    """
    if part in _given:
        path = _given[part]
        if path is None:
            raise NativePartMissing("the caller of this worker goes without it")
        return Path(path)
    found = look(part)
    if isinstance(found, Path):
        return found
    reasons = []
    for folder in _folders():
        try:
            return _built_in(part, found, folder)
        except _NotWritable as error:
            reasons.append(str(error))
    raise NativePartMissing("; ".join(reasons))


def look(part: Part) -> "Path | Recipe":
    """The library of a part if it is there, or else how it will be compiled when it is needed.

    Raises:
        NativePartMissing: there is none, and none can be made.
    """
    if is_disabled():
        raise NativePartMissing(f"{DISABLE} is set")
    if not sys.platform.startswith("linux"):
        raise NativePartMissing(f"futexes are Linux's, and this is {platform.system()}")
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
    """Whether the environment variable forgoes both parts."""
    return os.environ.get(DISABLE, "0") not in ("", "0")


def _packaged(part: Part) -> Path | None:
    """What a wheel brought, if it was made from these very sources and serves this jaxlib."""
    digest = source_digest(part)
    for path in SOURCES.glob(f"lib{part.name}-*.so"):
        found = re.fullmatch(rf"lib{part.name}(?:-api(\d+)\.(\d+))?-{digest}\.so", path.name)
        if found is None:
            continue
        if part is XLA:
            # Handlers made with older headers are taken by a newer runtime. The other way round
            # jaxlib refuses them, and starts no backend at all any more.
            major, minor = int(found[1]), int(found[2])
            ours = api_version()
            if ours is None or major != ours[0] or minor > ours[1]:
                continue
        with contextlib.suppress(NativePartMissing):  # made for a newer C library, say
            _load(part, path)
            return path
    return None


def packaged_name(part: Part) -> str:
    """The file name of a library that was made from these sources, in a wheel."""
    version = api_version() if part is XLA else None
    api = f"-api{version[0]}.{version[1]}" if version else ""
    return f"lib{part.name}{api}-{source_digest(part)}.so"


def source_digest(part: Part) -> str:
    """16 hexadecimal digits that change with the part's sources."""
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
    """How a library is made."""

    command: tuple[str, ...]  # without the output
    file: str  # the name in a cache


def recipe(part: Part) -> Recipe:
    """How a part is compiled here.

    Raises:
        NativePartMissing: there is no compiler, or jaxlib has no headers.
    """
    from importlib import metadata  # which workers need not wait for

    digest = _source_hash(part)
    command = [*_compiler(part), *_FLAGS]
    made_of = [platform.machine(), *platform.libc_ver()]  # a home may be shared by machines
    if part is XLA:
        folder = include_folder()
        if folder is None:
            raise NativePartMissing("jaxlib is not installed, or has no headers")
        command += ["-std=c++17", f"-I{folder}"]
        made_of += [metadata.version("jaxlib"), str(api_version())]
    command.append(str(SOURCES / part.source))
    digest.update("\0".join([*made_of, *command]).encode())
    return Recipe(tuple(command), f"lib{part.name}-{digest.hexdigest()[:16]}.so")


def include_folder() -> Path | None:
    """Where jaxlib has XLA's headers; found without importing it."""
    spec = importlib.util.find_spec("jaxlib")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(place) / "include").is_dir():
            return folder
    return None


def api_version() -> tuple[int, int] | None:
    """The version of XLA's interface for custom calls that jaxlib has."""
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
    """Compiles a part to the file `path`, whose folder is there.

    Raises:
        NativePartMissing: it cannot be compiled.
    """
    _run(recipe(part).command, path)


def _compiler(part: Part) -> list[str]:
    chosen = shlex.split(os.environ.get(part.variable, ""))  # "ccache gcc" is two words
    for name in chosen[:1] or part.compilers:
        if found := shutil.which(name):
            return [found, *chosen[1:]]
    if chosen:
        raise NativePartMissing(f"there is no compiler {chosen[0]}, which {part.variable} names")
    raise NativePartMissing(f"there is no compiler ({', '.join(part.compilers)})")


class _NotWritable(Exception):
    """A folder cannot be used, for this reason."""


def _built_in(part: Part, made: Recipe, folder: Path) -> Path:
    path = folder / made.file
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_mine(folder):
                raise _NotWritable(f"{folder} belongs to somebody else")
            stack.enter_context(_locked(folder / f"{part.name}.lock"))
            # Its own name until it is whole, should the lock not hold on this file system.
            fd, temporary = tempfile.mkstemp(suffix=".so", dir=folder)
        except OSError as error:
            raise _NotWritable(f"{folder} cannot be written to: {error.strerror}") from error
        os.close(fd)
        stack.callback(lambda: os.path.exists(temporary) and os.unlink(temporary))
        if not path.exists():  # else another process was first
            # A warning, so that whoever waits for the compiler sees it.
            log.warning("compiling the %s part of the host bridge into %s, once", part.name, folder)
            _run(made.command, Path(temporary))
            os.chmod(temporary, 0o755)
            os.replace(temporary, path)
    return path


def _run(command: Sequence[str], path: Path) -> None:
    try:
        run = subprocess.run(
            [*command, "-o", str(path)], capture_output=True, text=True, timeout=_PATIENCE
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
    """Where compiled libraries may lie: the cache, or where none can be had, a temporary one."""
    name = f"jaxenvs-{os.getuid()}"
    return [cache_folder() / "native", Path(tempfile.gettempdir()) / name / "native"]


def _is_mine(folder: Path) -> bool:
    """Whether nobody else can put a library there. Names in a temporary folder can be guessed."""
    for path in (folder, folder.parent):
        with contextlib.suppress(OSError):
            link, found = os.lstat(path), os.stat(path)
            if not {link.st_uid, found.st_uid} <= {0, os.getuid()}:
                return False
            if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                return False
    return True


def cache_folder() -> Path:
    """Where this user's built libraries and tuned choices are kept."""
    for variable, more in (("JAXENVS_CACHE", ()), ("XDG_CACHE_HOME", ("jaxenvs",))):
        if base := os.environ.get(variable):
            return Path(base, *more)
    home = os.path.expanduser("~")  # stays "~" where there is no home
    if os.path.isabs(home):
        return Path(home, ".cache", "jaxenvs")
    return Path(tempfile.gettempdir(), f"jaxenvs-{os.getuid()}")
