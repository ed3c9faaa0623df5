"""Configures JAX for tests: strict promotion, eight virtual CPU devices, and a compilation cache.

Environment variables are set before JAX is imported. Subprocesses inherit them.
"""

import collections
import gc
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NPROC", "1")  # threads of XLA; several workers of pytest share the cores
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
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
from jax._src import compiler  # noqa: E402  # no public option sets compiler options globally

from jaxenvs import prng  # noqa: E402

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
# files or of speed are marked `optimized`. Tests marked `bitwise` are optimized with --optimized.
# Subprocesses compile with the usual options.
QUICK_TO_COMPILE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    **({"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}),
}
_should_unroll = prng._should_unroll
_get_compile_options, _is_quick = compiler.get_compile_options, True


def _compile_options(*args, env_options_overrides=None, **kwargs):
    chosen = {**(QUICK_TO_COMPILE if _is_quick else {}), **(env_options_overrides or {})}
    return _get_compile_options(*args, env_options_overrides=chosen, **kwargs)


compiler.get_compile_options = _compile_options


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # modules and tests live to the end; no collection needs to visit them


def pytest_addoption(parser):
    parser.addoption("--optimized", action="store_true", help="optimize `bitwise` tests")
    parser.addoption("--every", type=int, default=1, help="of tests with many cases, run each N-th")


MANY_CASES = 8


@pytest.hookimpl(trylast=True)  # after the selection by markers
def pytest_collection_modifyitems(config, items):
    """Keeps every N-th case of the tests that have more than `MANY_CASES`, such as one per id."""
    cases = collections.defaultdict(list)
    for item in items:
        cases[item.path, getattr(item, "originalname", item.name)].append(item)
    dropped = set()
    for group in cases.values():
        if len(group) > MANY_CASES:
            dropped |= {*group} - {*group[:: config.getoption("--every")]}
    if dropped:
        config.hook.pytest_deselected(items=[*dropped])
        items[:] = [item for item in items if item not in dropped]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Selects the compiler options before the fixtures run, because they compile too."""
    global _is_quick
    is_bitwise = item.get_closest_marker("bitwise") is not None
    is_optimized = item.get_closest_marker("optimized") is not None
    is_quick = not (is_optimized or (is_bitwise and item.config.getoption("optimized")))
    if is_quick != _is_quick:
        _drop_programs()
    _is_quick = is_quick
    if jax.__version_info__ < (0, 11):  # JAX's own generator has the same bits and compiles sooner
        prng._should_unroll = (lambda: False) if is_quick else _should_unroll


# Packages of extras: a page that needs a missing one is skipped.
OPTIONAL = (
    *("stable_baselines3", "tianshou", "torch", "torchrl"),
    *("Box2D", "ale_py", "cv2", "dm_control", "dm-control", "envpool", "gym", "minigrid"),
    *("mujoco", "mujoco-mjx"),
    *("pettingzoo", "ray", "vizdoom"),
    *("stoa", "stoa-env", "envelope", "jax-envelope"),
    *("brax", "craftax", "gymnax", "jumanji", "navix", "pgx", "playground", "xminigrid"),
)


@pytest.fixture(scope="module", autouse=True)
def _dropped_programs():
    """Drops compiled programs after a test file.

    Each program holds dozens of memory mappings. Linux allows 65,530 per process. All tests
    together would exceed that, and XLA would crash with a segmentation fault.
    """
    yield
    _drop_programs()


def _drop_programs():
    programs = sys.modules.get("jaxenvs.faces._programs")
    if programs is not None:
        programs._cached_programs.cache_clear()
    jax.clear_caches()


@pytest.fixture
def run_snippets(tmp_path, monkeypatch):
    """Returns a function that runs a page: Python in one namespace, `$ jaxenvs` as a command.

    The page runs with JAX's default promotion rules and in an empty folder. The function returns
    the namespace.
    """

    def run(page: Path) -> dict:
        text = page.read_text(encoding="utf-8")
        namespace: dict = {"__name__": "snippets"}
        missing: list[str] = []
        for fence in re.finditer(
            r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE
        ):
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
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield run


def _run_command(arguments: list[str], where: str) -> None:
    program = [sys.executable, "-m", "jaxenvs"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{where}: jaxenvs {shlex.join(arguments)}\n{done.stderr}"
