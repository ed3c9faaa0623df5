"""Build hook that compiles the native part of the host bridge, if there are compilers.

A wheel with the native part has the platform's tag; one without it works on every platform. An
editable install compiles into the source tree. These environment variables matter:

- `CC` and `CXX`: the compilers, by default `cc` and `c++`. Each may be a command of several words.
- `JAXENVS_NO_NATIVE=1`: compile nothing.
- `JAXENVS_REQUIRE_NATIVE=1`: a failure to compile is an error.
- `JAXENVS_PLATFORM`: the platform in the tag of the wheel, if the compilers make code for another.
"""

import atexit
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILERS = {"pool": ("CC", "cc"), "xla": ("CXX", "c++")}
_FLAGS = ("-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
_TIMEOUT = 600  # seconds


class NativePart(BuildHookInterface):
    """Compiles jaxenvs/bridge/native/; see its libraries.py."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        native = import_native(self.root)
        if version == "editable":
            folder = native.SOURCES
        else:
            folder = Path(tempfile.mkdtemp(prefix="jaxenvs-native-"))
            # `finalize` could not do this: it is not called when only the metadata is built.
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for part in native.PARTS:
            try:
                library = compile_part(native, part, folder)
            except native.NativePartMissing as error:
                if os.environ.get("JAXENVS_REQUIRE_NATIVE", "0") not in ("", "0"):
                    raise
                self.app.display_warning(f"installing without the {part.name} part: {error}")
                continue
            if version == "editable":
                continue
            target = native.SOURCES.relative_to(self.root) / library.name
            build_data["force_include"][str(library)] = target.as_posix()
            build_data["pure_python"] = False
            # It uses no symbols of Python, so one library works with every Python version.
            platform = os.environ.get("JAXENVS_PLATFORM") or sysconfig.get_platform()
            build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"


def compile_part(native: Any, part: Any, folder: Path, *flags: str) -> Path:
    """Compiles a part of the module `native` into a folder, in place of older libraries.

    Returns the path of the library.

    Raises:
        NativePartMissing: it cannot be compiled.
    """
    if native.is_disabled():
        raise native.NativePartMissing(f"{native.DISABLE} is set")
    if os.name != "posix":
        raise native.NativePartMissing("it requires Linux or macOS")
    name = native.file_names(part)[0]
    variable, default = _COMPILERS[part.name]
    command = shlex.split(os.environ.get(variable, "")) or [default]
    if part is native.XLA:
        flags = (*flags, "-std=c++17", f"-I{native.include_folder()}")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made = Path(temporary, name)
        command += [*_FLAGS, *flags, str(native.SOURCES / part.source), "-o", str(made)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise native.NativePartMissing(f"{variable}={command[0]}: {error}") from error
        if run.returncode:
            lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
            why = next((line for line in lines if "error" in line), lines[-1])
            raise native.NativePartMissing(f"{command[0]} failed: {why.strip()[:300]}")
        for old in folder.glob(f"lib{part.name}-*.so"):
            old.unlink()
        os.replace(made, folder / name)
    return folder / name


def import_native(root: str | Path) -> Any:
    """Imports native/libraries.py alone, since a build lacks the dependencies of its parents."""
    path = Path(root, "jaxenvs", "bridge", "native", "libraries.py")
    spec = importlib.util.spec_from_file_location("jaxenvs_native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
