"""Tells Gymnasium of jaxenvs as soon as that is imported. Pure standard library.

Gymnasium 1.0 and later load no entry points: nothing tells them of the ids of an installed package
until that package is imported. So `jaxenvs_gymnasium.pth`, which lies beside the packages once they
are installed, runs `start` whenever Python starts. All that this does is to put one object in
`sys.meta_path`; jaxenvs is imported, and its ids are entered, when Gymnasium is imported.

An import hook is the least that serves: to import Gymnasium from the .pth file would cost every
program half a second. This is a package of its own because `import jaxenvs.anything` would run all
of `jaxenvs/__init__.py` at Python's start. Nothing here may raise, since it runs on behalf of
programs that have never heard of jaxenvs.
"""

import os
import sys

SWITCH = "JAXENVS_GYMNASIUM_PLUGIN"  # "0" in the environment keeps Python's start as it is
WATCHED = "gymnasium.envs"  # enters Gymnasium's own ids when it is imported


class GymnasiumHook:
    """A finder of `sys.meta_path` that asks those behind it, and goes when its work is done."""

    def find_spec(self, name, path=None, target=None):
        if name != WATCHED or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader:
    """Loads as `loader` does, registers, and leaves no trace in the module."""

    def __init__(self, loader, hook):
        self._loader = loader
        self._hook = hook

    def __getattr__(self, name):  # such as get_source, for whoever looks and does not import
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._hook in sys.meta_path:
            sys.meta_path.remove(self._hook)
        _register()


def install():
    """Waits for Gymnasium, unless another copy of this file does."""
    if not any(type(finder).__name__ == GymnasiumHook.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, GymnasiumHook())


def start():
    """What `jaxenvs_gymnasium.pth` runs: `install`, unless the environment says no."""
    if os.environ.get(SWITCH, "1").lower() not in ("0", "false", "no", "off"):
        install()


def _register():
    try:
        from jaxenvs.catalog.gymnasium_plugin import enter_all

        enter_all()
    except Exception as error:  # whatever is wrong with jaxenvs, Gymnasium has to work
        import contextlib
        import warnings

        with contextlib.suppress(Warning):  # an error under `python -W error`
            warnings.warn(f"Gymnasium goes without jaxenvs: {error!r}", stacklevel=2)
