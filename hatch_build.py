"""Puts the compiled part of the host bridge into wheels, where a compiler is at hand.

A wheel with it bears the platform's tag; one without serves every platform, and compiles at first
use. Nothing is compiled for an editable install. In the environment, `JAXENVS_NO_NATIVE=1` asks
for a wheel without it, and `JAXENVS_REQUIRE_NATIVE=1` makes its absence an error.
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
    """Compiles jaxenvs/bridge/native/, see jaxenvs/bridge/_native.py."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        native = _native(self.root)
        folder = tempfile.mkdtemp(prefix="jaxenvs-native-")
        # Not in `finalize`, which is not called where the metadata alone are asked for.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for part in native.PARTS:
            try:
                if native.is_disabled():
                    raise native.NativePartMissing(f"{native.DISABLE} is set")
                if not sys.platform.startswith("linux"):
                    raise native.NativePartMissing("it is for Linux")
                made = Path(folder, native.packaged_name(part))
                native.compile_to(part, made)
            except native.NativePartMissing as error:
                if os.environ.get("JAXENVS_REQUIRE_NATIVE", "0") not in ("", "0"):
                    raise
                self.app.display_warning(f"the wheel goes without the {part.name} part: {error}")
                continue
            place = native.SOURCES.relative_to(self.root) / made.name
            build_data["force_include"][str(made)] = place.as_posix()
            build_data["pure_python"] = False
            # No symbol of Python's is in it: one library for all of its versions.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"


def _native(root: str) -> Any:
    """`jaxenvs.bridge._native`, without the packages above it, which need what is not here."""
    path = Path(root, "jaxenvs", "bridge", "_native.py")
    spec = importlib.util.spec_from_file_location("jaxenvs_native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
