"""Build hook that compiles the native part of the host bridge, if a compiler is available.

A wheel with the native part has the platform's tag. A wheel without it works on every platform and
compiles on first use. Editable installs compile nothing. Two environment variables control this:
`JAXENVS_NO_NATIVE=1` builds a wheel without the native part, and `JAXENVS_REQUIRE_NATIVE=1` makes
a failure to compile an error.
"""

import atexit
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativePart(BuildHookInterface):
    """Build hook for jaxenvs/bridge/native/; see jaxenvs/bridge/native/libraries.py."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        native = _native(self.root)
        folder = tempfile.mkdtemp(prefix="jaxenvs-native-")
        # `finalize` could not do this: it is not called when only the metadata is built.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for part in native.PARTS:
            try:
                if native.is_disabled():
                    raise native.NativePartMissing(f"{native.DISABLE} is set")
                if not sys.platform.startswith("linux"):
                    raise native.NativePartMissing("it only runs on Linux")
                library = Path(folder, native.packaged_names(part)[0])
                native.compile_to(part, library)
            except native.NativePartMissing as error:
                if os.environ.get("JAXENVS_REQUIRE_NATIVE", "0") not in ("", "0"):
                    raise
                self.app.display_warning(f"building a wheel without the {part.name} part: {error}")
                continue
            target = native.SOURCES.relative_to(self.root) / library.name
            build_data["force_include"][str(library)] = target.as_posix()
            build_data["pure_python"] = False
            # It uses no symbols of Python, so one library works with every Python version.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"


def _native(root: str) -> Any:
    """Imports native/libraries.py alone, since a build lacks the dependencies of its parents."""
    path = Path(root, "jaxenvs", "bridge", "native", "libraries.py")
    spec = importlib.util.spec_from_file_location("jaxenvs_native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
