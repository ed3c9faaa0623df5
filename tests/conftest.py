"""Configures JAX for tests: strict promotion, eight virtual CPU devices, and a compilation cache.

Environment variables are set before JAX starts its backend. Subprocesses inherit them.
"""

import collections
import faulthandler
import gc
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from jaxenvs._machine import cache_folder  # imports no JAX

ROOT = Path(__file__).resolve().parent.parent
CACHE = cache_folder() / "tests"  # of compiled programs, shared by all clones
CACHE_LIMIT = 4 * 2**30  # bytes

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NPROC", "1")  # threads of XLA; several workers of pytest share the cores
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAXENVS_MNIST_DIR", str(ROOT / "tests" / "mnist"))  # 40 drawn digits
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    flags = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8"]
    os.environ["XLA_FLAGS"] = " ".join(flags).strip()

# A shell starts background jobs with SIGINT ignored, and subprocesses would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

from jaxenvs._cpu import threefry  # noqa: E402
from jaxenvs.registry import registry  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tracing makes millions of long-lived objects. Collecting garbage less often saves a tenth of the
# time.
gc.set_threshold(50_000, 20, 50)

# Each new shape compiles a program, so an example has no predictable deadline.
hypothesis.settings.register_profile("local", deadline=None, max_examples=20)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=20, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


# Most of a test's time is compilation, so tests compile without optimizations and, with jax 0.10,
# without the slow fusion emitters. Results differ only in the rounding of floats. Tests of golden
# files, of speed, and those that run for longer than they compile are marked `optimized`; they run
# with --optimized, as do those marked `bitwise`.
QUICK_TO_COMPILE = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
    *(["--xla_cpu_use_fusion_emitters=false"] if jax.__version_info__ < (0, 11) else []),
]


def pytest_addoption(parser):
    parser.addoption(
        "--optimized", action="store_true", help="run only the tests that need optimized programs"
    )
    parser.addoption("--every", type=int, default=1, help="of tests with many cases, run each N-th")


@pytest.hookimpl(trylast=True)  # after pytest's own fault handler
def pytest_configure(config):
    if not config.getoption("optimized"):
        os.environ["XLA_FLAGS"] = " ".join([os.environ["XLA_FLAGS"], *QUICK_TO_COMPILE])
        if jax.__version_info__ < (0, 11):  # JAX's own generator: the same bits, compiled sooner
            threefry.should_unroll = lambda: False
    if not hasattr(config, "workerinput"):
        _shrink_cache(Path(os.environ["JAX_COMPILATION_CACHE_DIR"]))
    else:
        faulthandler.enable(_crash_log(config.workerinput["workerid"], os.getppid()).open("w"))


def _crash_log(worker, pid):
    """Returns the file for the traceback of a worker that crashes."""
    return Path(tempfile.gettempdir()) / f"jaxenvs-tests-{pid}-{worker}.log"


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report):
    """Adds how a worker ended to the failure, since its own output stands far above."""
    gateway = report.node.gateway
    log = _crash_log(gateway.id, os.getpid())
    report.longrepr += f"\nIts exit status is {gateway._io.popen.wait(10)}.\n{log.read_text()}"
    log.unlink()


def pytest_unconfigure(config):
    if hasattr(config, "workerinput"):
        faulthandler.disable()
        _crash_log(config.workerinput["workerid"], os.getppid()).unlink(missing_ok=True)


def _shrink_cache(folder, limit=CACHE_LIMIT):
    """Removes the programs that were read last the longest ago, down to three quarters of `limit`.

    JAX can limit its cache, too, but then reads the sizes of all files whenever it adds one.
    """
    files = [(file.stat(), file) for file in folder.glob("*-cache")]
    size = sum(stat.st_size for stat, _ in files)
    if size <= limit:
        return
    for stat, file in sorted(files, key=lambda pair: pair[0].st_atime):
        file.unlink(missing_ok=True)
        size -= stat.st_size
        if size <= 0.75 * limit:
            return


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # modules and tests live to the end; no collection needs to visit them


def pytest_ignore_collect(collection_path, config):
    """Skips files without a test that needs optimized programs, which take time to import."""
    if config.getoption("optimized") and collection_path.match("test_*.py"):
        return True if not re.search(r"optimized|bitwise", collection_path.read_text()) else None
    return None


MANY_CASES = 13


@pytest.hookimpl(trylast=True)  # after the selection by markers
def pytest_collection_modifyitems(config, items):
    """Selects the tests of this kind of program, and each N-th case of tests with many cases."""
    is_optimized = config.getoption("optimized")
    cases = collections.defaultdict(list)
    dropped = set()
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if (marks & {"optimized", "bitwise"}) if is_optimized else ("optimized" not in marks):
            cases[item.path, getattr(item, "originalname", item.name)].append(item)
        else:
            dropped.add(item)
    for group in cases.values():
        if len(group) > MANY_CASES:
            dropped |= {*group} - {*group[:: config.getoption("--every")]}
    if dropped:
        config.hook.pytest_deselected(items=[*dropped])
        items[:] = [item for item in items if item not in dropped]


# Packages of extras: a page that needs a missing one is skipped.
OPTIONAL = (
    *("stable_baselines3", "tianshou", "torch", "torchrl"),
    *("Box2D", "ale-py", "ale_py", "cv2", "dm_control", "dm-control", "envpool", "gym", "minigrid"),
    *("gymnasium_robotics", "gymnasium-robotics", "mujoco", "mujoco-mjx"),
    *("jax2onnx", "mctx", "minari", "pettingzoo", "ray", "vizdoom"),
    *("stoa", "stoa-env", "envelope", "jax-envelope"),
    *("brax", "craftax", "gymnax", "jumanji", "navix", "pgx", "playground", "xminigrid"),
)


@pytest.fixture(scope="module", autouse=True)
def _dropped_programs():
    """Drops compiled programs after a test file if there are many.

    Each program holds dozens of memory mappings. Linux allows 65,530 per process. All tests
    together would exceed that, and XLA would crash with a segmentation fault.
    """
    yield
    mappings = Path("/proc/self/maps")  # on Linux only
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 12_000:
        programs = sys.modules.get("jaxenvs.faces._programs")
        if programs is not None:
            programs._cached_programs.cache_clear()
        jax.clear_caches()
        gc.unfreeze()
    # Later collections need not visit what stays, such as traced programs.
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_registry():
    """Forgets ids that a test registers; every worker of later tests would get their classes."""
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)


# A fence's indentation, language, and content.
SNIPPET = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def run_snippets(tmp_path, monkeypatch, own_registry):
    """Returns a function that runs a page: Python in one namespace, `$ jaxenvs` as a command.

    The page runs with JAX's default promotion rules and in an empty folder. The function returns
    the namespace.
    """

    def run(page: Path) -> dict:
        text = page.read_text(encoding="utf-8")
        namespace: dict = {"__name__": "snippets"}
        missing: list[str] = []
        for fence in SNIPPET.finditer(text):
            line = text.count("\n", 0, fence.start()) + 1
            code = textwrap.dedent(fence[3])
            if fence[2] == "python":
                # Leading blank lines make tracebacks show the line in the page.
                try:
                    exec(compile("\n" * line + code, str(page), "exec"), namespace)
                except ImportError as error:
                    package = (error.name or "").split(".")[0]
                    if package not in OPTIONAL:
                        raise
                    missing.append(f"{page.name}:{line} needs {package}")
                except NameError:  # a name that a skipped snippet would have defined
                    if not missing:
                        raise
            elif fence[2] == "console":
                for command in re.findall(r"^\$ jaxenvs (.*)$", code, re.MULTILINE):
                    _run_command(shlex.split(command, comments=True), f"{page.name}:{line}")
        if missing:
            pytest.skip("; ".join(missing))
        return namespace

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path))  # otherwise Stable-Baselines3 writes to /tmp
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield run


def _run_command(arguments: list[str], where: str) -> None:
    program = [sys.executable, "-m", "jaxenvs"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{where}: jaxenvs {shlex.join(arguments)}\n{done.stderr}"
