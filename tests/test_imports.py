"""What an import may and may not do, and which module may know which."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MODULES = (
    *("jaxenvs", "jaxenvs.envs.classic_control", "jaxenvs.testing", "jaxenvs.wrappers"),
    *("jaxenvs.training", "jaxenvs.rendering", "jaxenvs.cli"),
)


def test_importing_starts_no_backend():
    report = python(
        "import importlib, jax\n"
        "from jax._src import xla_bridge\n"
        f"for module in {MODULES}:\n"
        "    importlib.import_module(module)\n"
        "    print(module, xla_bridge.backends_are_initialized())\n"
        "jax.numpy.zeros(1)\n"
        "print('an array', xla_bridge.backends_are_initialized())"
    ).splitlines()
    assert [line for line in report if line.endswith("True")] == ["an array True"]


def test_pool_workers_do_not_import_jax():
    code = "import sys, jaxenvs.bridge.workers.worker\nprint('jax' in sys.modules)"
    assert python(code) == "False\n"


def test_importing_jaxenvs_imports_no_environment_and_no_extra():
    loaded = set(python("import sys, jaxenvs\nprint(*sys.modules)").split())
    assert "jaxenvs.catalog.classic_control" in loaded and "jax" not in loaded
    assert not [name for name in loaded if name.startswith("jaxenvs.envs.")]
    extras = {"dm_env", "flax", "imageio", "matplotlib", "optax", "orbax", "PIL", "rich"}
    assert not loaded & (extras | {"jaxenvs.training", "jaxenvs.testing", "jaxenvs.cli"})


def test_subpackages_with_extras_are_imported_on_access():
    report = python(
        "import sys, jaxenvs\n"
        "before = {'jaxenvs.testing', 'jaxenvs.training'} & set(sys.modules)\n"
        "print(before, {'testing', 'training'} <= set(dir(jaxenvs)))\n"
        "print(jaxenvs.testing.check_env.__name__, jaxenvs.training.make_train.__name__)\n"
        "print(hasattr(jaxenvs, 'trainning'))"
    ).splitlines()
    assert report == ["set() True", "check_env make_train", "False"]


def test_making_an_environment_imports_its_family_alone():
    report = python(
        "import sys, jaxenvs\n"
        "from jax._src import xla_bridge\n"
        "jaxenvs.make('CartPole-v1')\n"
        "print(xla_bridge.backends_are_initialized())\n"
        "jaxenvs.make_vec('CartPole-v1', 2)\n"
        "print(*sys.modules)"
    )
    has_backend, *loaded = report.split()
    families = {name.split(".")[2] for name in loaded if name.startswith("jaxenvs.envs.")}
    assert has_backend == "False" and families == {"classic_control"}
    assert not [name for name in loaded if name.startswith(("dm_env", "jaxenvs.bridge"))]


def test_the_physics_of_box2d_are_imported_without_mujoco():
    code = "import sys, jaxenvs\njaxenvs.make('LunarLander-v3')\nprint(*sys.modules)"
    loaded = python(code).split()
    assert "jaxenvs.envs.box2d" in loaded and "mujoco" not in loaded


def test_public_imports_are_sorted_and_aliased_to_themselves():
    lines = (ROOT / "jaxenvs" / "__init__.py").read_text(encoding="utf-8").splitlines()
    imports = [line for line in lines if line.startswith("from jaxenvs")]
    assert imports == sorted(imports)
    for line in imports:
        name, _, alias = line.split(" import ")[1].partition(" as ")
        assert name == alias, f"{line!r} does not say that it is a public name"


def test_packages_offer_functions_not_modules_of_the_same_name():
    from jaxenvs.training.storages import gae, vtrace
    from jaxenvs.vector import vectorize

    assert all(map(callable, (vectorize, gae, vtrace)))


@pytest.mark.parametrize("link", ["envs", "wrappers"])
def test_root_links_lead_into_the_package_and_tools_skip_them(link):
    assert (ROOT / link).is_symlink() and (ROOT / link / "__init__.py").exists()
    assert not Path((ROOT / link).readlink()).is_absolute()
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert f"./{link}" in tools["ruff"]["extend-exclude"]
    assert f"/{link}" not in tools["hatch"]["build"]["targets"]["sdist"]["include"]
    assert tools["pytest"]["ini_options"]["testpaths"] == ["tests"]
