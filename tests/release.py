"""Builds the files of a release and uses them as a newcomer does. Needs only Python and an index.

    python tests/release.py                       build, then check with each Python that is found
    python tests/release.py build dist            build into the folder dist/, on Linux
    python tests/release.py check dist --python python3.12
    python tests/release.py version v0.1.0        exit with an error if the tag is not this version

The files are the source distribution, wheels with the native part of the host bridge for Linux and
macOS, and one without it for other platforms. They are built from the tracked files alone; a
cross-compiler from the index compiles the native part for all platforms and for old C libraries.

Each file is installed into a new environment, where the README's snippets run. In that of the
wheels, there is no compiler; the source distribution is installed with and without one.
"""

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("python3.11", "python3.12", "python3.13")
TOOLS = ("build", "twine", "ziglang")
# The tag of each wheel, and the target of the compiler. A jaxlib for Linux needs a C library of
# 2.27 or later.
TARGETS = {
    "manylinux_2_28_x86_64": "x86_64-linux-gnu.2.28",
    "manylinux_2_28_aarch64": "aarch64-linux-gnu.2.28",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
}
SDIST_LIMIT = 3e6  # bytes
NO_COMPILER = {"CC": "no-compiler", "CXX": "no-compiler"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    options = parser().parse_args(arguments)
    if options.command == "use":
        return use(options.native)
    if options.command == "version":
        return check_version(options.tag)
    if options.command == "build":
        build(options.folder.resolve())
    elif options.command == "check":
        check(options.folder.resolve(), options.python or _pythons())
    else:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder))
            check(Path(folder), _pythons())
    return 0


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("build").add_argument("folder", type=Path)
    checking = commands.add_parser("check")
    checking.add_argument("folder", type=Path)
    checking.add_argument("--python", action="append", help=f"default: those of {PYTHONS} found")
    commands.add_parser("version").add_argument("tag")
    using = commands.add_parser("use")  # in an installation
    using.add_argument("--native", action="store_true", help="the native part must be there")
    return parser


def version() -> str:
    """Returns the version of this tree."""
    text = (ROOT / "jaxenvs" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def check_version(tag: str) -> int:
    """Prints what does not fit to a tag; returns the exit status."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = []
    if tag != f"v{version()}":
        wrong.append(f"the tag is {tag}, but jaxenvs/__init__.py has version {version()}")
    if not re.search(rf"^## {re.escape(version())}\b", changes, re.MULTILINE):
        wrong.append(f"CHANGELOG.md has no section ## {version()}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


# --- building ---


def build(folder: Path) -> None:
    """Builds all files into `folder`, which gets nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty")
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary, "tree")
        copy_files(tree)
        python = _environment(Path(temporary, "tools"), sys.executable)
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        _pip(python, *TOOLS, *settings["build-system"]["requires"])
        command = (python, "-m", "build", "--no-isolation", "--outdir", str(folder))
        with _step("build the source distribution"):
            _run(*command, "--sdist", str(tree))
        (sdist,) = folder.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(temporary, filter="data")
        sources = Path(temporary, sdist.name.removesuffix(".tar.gz"))
        for tag, target in TARGETS.items():
            compiler = f"-target {target} -Wl,-s"
            with _step(f"build the wheel for {tag}"):
                _run(
                    *(*command, "--wheel", str(sources)),
                    CC=f"'{python}' -m ziglang cc {compiler}",
                    CXX=f"'{python}' -m ziglang c++ {compiler}",
                    JAXENVS_PLATFORM=tag,
                    JAXENVS_REQUIRE_NATIVE="1",
                )
        with _step("build the wheel for other platforms"):
            _run(*command, "--wheel", str(sources), JAXENVS_NO_NATIVE="1")
        with _step("inspect the files"):
            _inspect(folder)
            _run(python, "-m", "twine", "check", "--strict", *map(str, folder.iterdir()))


def copy_files(folder: Path, *which: str) -> None:
    """Copies files of the repository that `git ls-files` lists. Links stay links."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", *which], capture_output=True, check=True
    ).stdout
    for name in map(os.fsdecode, filter(None, listed.split(b"\0"))):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.is_file():  # not deleted, and no other repository
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _inspect(folder: Path) -> None:
    """Checks which files there are, and what is in them."""
    prefix = f"jaxenvs-{version()}"
    tags = [*TARGETS, "any"]
    expected = {f"{prefix}.tar.gz", *(f"{prefix}-py3-none-{tag}.whl" for tag in tags)}
    found = {path.name for path in folder.iterdir()}
    assert found == expected, f"expected {sorted(expected)}, found {sorted(found)}"
    assert (folder / f"{prefix}.tar.gz").stat().st_size < SDIST_LIMIT
    contents = {}
    for tag in tags:
        with zipfile.ZipFile(folder / f"{prefix}-py3-none-{tag}.whl") as archive:
            names = [name for name in archive.namelist() if ".dist-info/" not in name]
        contents[tag] = {name for name in names if not name.endswith(".so")}
        libraries = sorted(Path(name).name.partition("-")[0] for name in {*names} - contents[tag])
        assert libraries == ([] if tag == "any" else ["libpool", "libxla"]), (tag, libraries)
    assert all(each == contents["any"] for each in contents.values())


# --- checking ---


def check(folder: Path, pythons: Sequence[str]) -> None:
    """Installs the files in `folder` and uses them, with each Python."""
    for python in pythons:
        with tempfile.TemporaryDirectory() as temporary:
            _check_with(_environment(Path(temporary, "user"), python), python, folder)


def _check_with(python: str, name: str, folder: Path) -> None:
    """Checks all files in the virtual environment of `python`."""
    has_wheel = sys.platform.startswith(("linux", "darwin"))
    prefix = str(folder / f"jaxenvs-{version()}")
    index = ("--find-links", str(folder))  # pip chooses the file
    again = ("--force-reinstall", "--no-deps", "--no-cache-dir")  # dependencies stay
    for what, native, install, environment in (
        ("the wheel for all platforms", False, (f"{prefix}-py3-none-any.whl",), NO_COMPILER),
        ("the sources, no compiler", False, (*again, f"{prefix}.tar.gz"), NO_COMPILER),
        ("the sources", has_wheel, (*again, f"{prefix}.tar.gz"), {}),
        ("the wheel", has_wheel, (*again, *index, f"jaxenvs=={version()}"), NO_COMPILER),
        ("the extras", has_wheel, (*index, f"jaxenvs[all]=={version()}"), NO_COMPILER),
    ):
        with _step(f"{name}: install and use {what}"):
            _pip(python, *install, **environment)
            flags = ["--native"] if native else []
            command = (python, str(Path(__file__).resolve()), "use", *flags)
            _run(*command, cwd=str(Path(python).parent), **environment)


def use(native: bool) -> int:
    """Runs the README's snippets and commands with the jaxenvs that is installed."""
    import jaxenvs
    from jaxenvs.bridge.native import libraries

    assert Path(sysconfig.get_path("purelib")) in Path(jaxenvs.__file__).parents, jaxenvs.__file__
    assert jaxenvs.__version__ == version()
    for part in libraries.PARTS:
        assert libraries.is_there(part) is native, f"{part.name}: {libraries.is_there(part)}"
    if not native:
        try:
            jaxenvs.make_pool("gymnasium/CartPole-v1", 2, backend="process")
        except jaxenvs.errors.PoolError as error:
            print(error)
        else:
            raise AssertionError("a pool of processes works without the native part")
    has_extras = importlib.util.find_spec("optax") is not None
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if "jaxenvs.training" in block and not has_extras:
            continue
        if not native:
            block = block.replace('backend="process"', 'backend="serial"')
        exec(compile(block, "README.md", "exec"), namespace)
    scripts = Path(sysconfig.get_path("scripts"))
    for command in re.findall(r"^\$ jaxenvs (.+)$", text, re.MULTILINE) if has_extras else ():
        subprocess.run([scripts / "jaxenvs", *command.split()], check=True, capture_output=True)
    subprocess.run([scripts / "jaxenvs", "doctor"], check=True)
    needs_native = subprocess.run([scripts / "jaxenvs", "doctor", "native"], capture_output=True)
    assert needs_native.returncode == (0 if native else 2), needs_native.stderr
    return 0


def _pythons() -> list[str]:
    """Returns the supported interpreters that this machine has."""

    def works(name: str) -> bool:
        with contextlib.suppress(OSError):
            return subprocess.run([name, "--version"], capture_output=True).returncode == 0
        return False

    found = [name for name in PYTHONS if works(name)]
    if missing := ", ".join(sorted({*PYTHONS} - {*found})):
        print(f"not found, so not checked: {missing}")
    return found


# --- running ---


def _environment(folder: Path, python: str) -> str:
    """Makes a virtual environment and returns its interpreter."""
    _run(python, "-m", "venv", str(folder))
    return str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")


def _pip(python: str, *arguments: str, **environment: str) -> None:
    install = ("install", "--quiet", "--disable-pip-version-check", *arguments)
    _run(python, "-m", "pip", *install, **environment)


def _run(*command: str, cwd: str | None = None, **environment: str) -> None:
    """Runs a command without this process's settings for Python; its output appears if it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout, flush=True)
        raise SystemExit(f"failed: {' '.join(command)}")


@contextlib.contextmanager
def _step(what: str) -> Iterator[None]:
    start = time.perf_counter()
    print(f"{what} ... ", end="", flush=True)
    yield
    print(f"{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
