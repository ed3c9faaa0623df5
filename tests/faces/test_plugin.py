"""What Gymnasium knows of jaxenvs, as an installed package and in this process."""

import functools
import os
import pickle
import subprocess
import sys
import sysconfig
import tomllib
import warnings
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import jaxenvs
from jaxenvs.catalog import gymnasium_plugin
from jaxenvs.errors import ParameterError, UnknownParameterError
from jaxenvs.faces.gym import GymEnv, GymVectorEnv
from jaxenvs.testing import Counter
from jaxenvs.wrappers import ScaleReward, TimeLimit

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def register():
    """`jaxenvs.register`, undone after the test, in both registries."""
    tables = [(table, dict(table)) for table in (jaxenvs.registry, gymnasium.registry)]
    yield jaxenvs.register
    for table, before in tables:
        table.clear()
        table.update(before)


class Installed:
    """A virtual environment with jaxenvs in it, and all else from the one that runs the tests."""

    def __init__(self, folder: Path, *, editable: bool = False) -> None:
        self._folder = folder
        run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
        self._python = folder / "env" / "bin" / "python"
        self.site_packages = Path(self.run("import sysconfig as s; print(s.get_path('purelib'))"))
        # A path alone: the .pth files there, such as those of jaxenvs itself, are not read.
        others = self.site_packages / "others.pth"
        others.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        kind = ["--editable"] if editable else []
        self.pip("install", "--no-deps", "--no-build-isolation", *kind, ROOT)

    def pip(self, *arguments) -> None:
        run(sys.executable, "-m", "pip", "--quiet", "--python", self._python, *arguments)

    def run(self, code: str, **variables: str) -> str:
        """What `code` prints in a process of its own, away from the source tree."""
        done = run(self._python, "-c", code, cwd=self._folder, **variables)
        assert not done.stderr, done.stderr
        return done.stdout.strip()


def run(*command, cwd=ROOT, **variables):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request, tmp_path_factory):
    pytest.importorskip("hatchling")
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp(request.param)
    return Installed(folder, editable=request.param == "editable")


def test_an_installed_package_is_known_to_gymnasium_without_being_imported(installed):
    out = installed.run(
        "import sys, gymnasium\n"
        "print('jaxenvs.core' in sys.modules, 'jax' in sys.modules)\n"
        "env = gymnasium.make('jaxenvs/CartPole-v1')\n"
        "print(env.reset(seed=0)[0].shape, type(env.unwrapped).__name__, env.spec.id)\n"
        "envs = gymnasium.make_vec('jaxenvs/CartPole-v1', num_envs=16)\n"
        "print(type(envs).__module__, type(envs).__name__, envs.reset(seed=0)[0].shape)\n"
        "print(gymnasium.spec('jaxenvs/Pendulum-v1').max_episode_steps)\n"
        "gymnasium.pprint_registry()\n"
    ).splitlines()
    assert out[:4] == [
        "False False",
        "(4,) GymEnv jaxenvs/CartPole-v1",
        "jaxenvs.faces.gym GymVectorEnv (16, 4)",
        "200",
    ]
    heading = out.index("===== jaxenvs =====")
    assert "jaxenvs/CartPole-v1" in " ".join(out[heading:]).split()


def test_python_starts_without_gymnasium_and_without_jaxenvs(installed):
    names = "{name.split('.')[0] for name in sys.modules} & {'gymnasium', 'jax', 'jaxenvs'}"
    assert installed.run(f"import sys; print({names})") == "set()"


def test_the_hook_goes_when_its_work_is_done_and_leaves_no_trace_in_gymnasium(installed):
    finders = "print(*(type(finder).__name__ for finder in sys.meta_path))"
    loader = "print(type(gymnasium.envs.__loader__), type(gymnasium.envs.__spec__.loader))"
    before, after, loaders = installed.run(
        f"import sys; {finders}; import gymnasium; {finders}; {loader}"
    ).splitlines()
    assert before.split() == ["GymnasiumHook", *after.split()]
    assert loaders.count("SourceFileLoader") == 2


def test_a_variable_keeps_python_s_start_as_it_was(installed):
    code = "import sys, gymnasium; print('jaxenvs' in sys.modules)"
    assert installed.run(code) == "True"
    assert installed.run(code, JAXENVS_GYMNASIUM_PLUGIN="0") == "False"


@pytest.mark.parametrize("order", ["jaxenvs, gymnasium", "gymnasium, jaxenvs"])
def test_importing_jaxenvs_is_enough_whatever_the_order(order):
    code = f"import {order}; print('jaxenvs/CartPole-v1' in gymnasium.registry)"
    done = run(sys.executable, "-c", code, JAXENVS_GYMNASIUM_PLUGIN="0", PYTHONPATH=str(ROOT))
    assert done.stdout.split() == ["True"]


def test_a_copy_of_the_folder_jaxenvs_alone_is_enough(tmp_path):
    (tmp_path / "jaxenvs").symlink_to(ROOT / "jaxenvs")
    code = (
        "import sys; sys.modules['_jaxenvs_gymnasium'] = None\n"
        "import jaxenvs, gymnasium; print('jaxenvs/CartPole-v1' in gymnasium.registry)"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.stdout.split() == ["True"]


@pytest.mark.parametrize("filters", ["error", "default"])
def test_a_broken_jaxenvs_leaves_gymnasium_whole(installed, filters):
    out = installed.run(
        "import sys; sys.stderr = sys.stdout; sys.modules['jaxenvs.catalog'] = None\n"
        f"import warnings; warnings.simplefilter({filters!r})\n"
        "import gymnasium; print(gymnasium.spec('CartPole-v1').id)"
    )
    assert out.endswith("CartPole-v1")
    assert ("Gymnasium goes without jaxenvs: ModuleNotFound" in out) == (filters == "default")


def test_the_hook_steps_aside_where_gymnasium_is_not_installed(installed):
    out = installed.run(
        "import sys\n"
        "sys.path = [path for path in sys.path if 'packages' not in path]\n"
        "try:\n"
        "    import gymnasium\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name)"
    )
    assert out == "gymnasium"


def test_who_looks_without_importing_sees_the_source(installed):
    # To find a module imports its parent, and with it this module: so that is forgotten again.
    out = installed.run(
        "import importlib.util, sys, _jaxenvs_gymnasium, gymnasium\n"
        "_jaxenvs_gymnasium.install()\n"
        "del sys.modules['gymnasium.envs']\n"
        "spec = importlib.util.find_spec('gymnasium.envs')\n"
        "print(spec.origin.endswith('.py'), 'CartPole' in spec.loader.get_source(spec.name))"
    )
    assert out == "True True"


def test_nothing_is_left_of_what_is_uninstalled(tmp_path):
    pytest.importorskip("hatchling")
    pytest.importorskip("pip")
    installed = Installed(tmp_path)
    assert (installed.site_packages / "jaxenvs_gymnasium.pth").exists()
    installed.pip("uninstall", "--yes", "jaxenvs")
    assert [path.name for path in installed.site_packages.iterdir()] == ["others.pth"]
    installed.run("import gymnasium")  # and says nothing


def test_the_entry_point_that_is_declared_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, name = project["entry-points"]["gymnasium.envs"]["jaxenvs"].split(":")
    assert getattr(sys.modules[module], name) is gymnasium_plugin.enter_all


def test_every_id_is_in_gymnasium_s_registry_with_its_limit_and_threshold():
    for id, spec in jaxenvs.registry.items():
        entry = gymnasium.spec(f"jaxenvs/{id.replace('/', '-')}")
        assert entry.max_episode_steps == spec.time_limit
        assert entry.reward_threshold == spec.reward_threshold
    assert gymnasium.spec("jaxenvs/CartPole-v1").reward_threshold == 475.0


def test_the_limit_is_applied_once_by_whom_it_was_asked_of():
    env = gymnasium.make("jaxenvs/Pendulum-v1", max_episode_steps=3)
    assert isinstance(env, gymnasium.wrappers.TimeLimit) and isinstance(env.unwrapped, GymEnv)
    assert not isinstance(env.unwrapped.env.env, TimeLimit)
    assert lengths_of_episodes(env, 2) == [3, 3]

    env = gymnasium.make("jaxenvs/CartPole-v1", max_episode_steps=-1)
    assert not isinstance(env, gymnasium.wrappers.TimeLimit)
    assert not isinstance(env.unwrapped.env.env, TimeLimit)

    envs = gymnasium.make_vec("jaxenvs/Pendulum-v1", num_envs=2, max_episode_steps=3)
    assert isinstance(envs, GymVectorEnv) and int(envs.env.env.time_limit) == 3
    envs = gymnasium.make_vec("jaxenvs/Pendulum-v1", num_envs=2, max_episode_steps=-1)
    assert not isinstance(envs.env.env, TimeLimit)
    assert int(gymnasium.make_vec("jaxenvs/Pendulum-v1").env.env.time_limit) == 200


def lengths_of_episodes(env, episodes):
    lengths = []
    for episode in range(episodes):
        env.reset(seed=episode)
        truncated, length = False, 0
        while not truncated:
            truncated, length = env.step(env.action_space.sample())[3], length + 1
        lengths.append(length)
    return lengths


@pytest.mark.parametrize("num_envs", [None, 3])
def test_both_give_what_make_gym_gives(num_envs):
    env = jaxenvs.make_gym("CartPole-v1", num_envs)
    id = "jaxenvs/CartPole-v1"
    made = gymnasium.make(id) if num_envs is None else gymnasium.make_vec(id, num_envs)
    assert (made.observation_space, made.action_space) == (env.observation_space, env.action_space)
    np.testing.assert_array_equal(made.reset(seed=5)[0], env.reset(seed=5)[0])
    env.action_space.seed(0)
    for _ in range(8):  # no pole falls so soon
        action = env.action_space.sample()
        np.testing.assert_equal(made.step(action), env.step(action))


def test_options_of_make_gym_and_parameters_are_passed_on():
    env = gymnasium.make("jaxenvs/Pendulum-v1", g=3.7, render_mode="rgb_array")
    assert env.get_wrapper_attr("g") == 3.7
    env.reset()
    assert env.render().dtype == np.uint8
    envs = gymnasium.make_vec(
        "jaxenvs/Pendulum-v1",
        num_envs=2,
        g=3.7,
        autoreset_mode="same_step",
        native_wrappers=[functools.partial(ScaleReward, scale=0.5)],
    )
    assert envs.get_attr("g") == (3.7, 3.7)
    assert envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    assert isinstance(envs.env.env, ScaleReward)


def test_sixteen_single_ones_work_too_for_whoever_wants_them():
    envs = gymnasium.make_vec("jaxenvs/CartPole-v1", num_envs=3, vectorization_mode="sync")
    assert isinstance(envs, gymnasium.vector.SyncVectorEnv)
    assert envs.reset(seed=0)[0].shape == (3, 4)


@pytest.mark.parametrize("id", ["jaxenvs/CartPol-v1", "jaxenvs/CartPole-v7", "jaxenv/CartPole-v1"])
def test_an_unknown_id_is_refused_with_gymnasium_s_hint(id):
    for make in (gymnasium.make, gymnasium.make_vec, gymnasium.spec):
        with pytest.raises(gymnasium.error.UnregisteredEnv, match=r"CartPole|\[v0, v1\]|jaxenvs"):
            make(id)


def test_wrong_options_are_refused_by_name():
    for make in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(UnknownParameterError, match='"gravity"'):
            make("jaxenvs/CartPole-v1", gravitty=3.7)
        with pytest.raises(ParameterError, match="rgb_array"):
            make("jaxenvs/CartPole-v1", render_mode="rgb")


def test_the_module_can_be_named_in_the_id():
    assert isinstance(gymnasium.make("jaxenvs:jaxenvs/CartPole-v1").unwrapped, GymEnv)


def test_ids_that_are_registered_later_appear(register):
    assert "jaxenvs/Count-v0" not in gymnasium.registry
    register("Count-v0", Counter, time_limit=4, reward_threshold=2.0)
    assert isinstance(gymnasium.make("jaxenvs/Count-v0").unwrapped.env.env, Counter)
    assert gymnasium.spec("jaxenvs/Count-v0").reward_threshold == 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register("Count-v0", Counter, time_limit=9, overwrite=True)
    assert gymnasium.spec("jaxenvs/Count-v0").max_episode_steps == 9


def test_an_id_with_slashes_has_hyphens_there_and_one_that_cannot_be_read_is_left_out(register):
    register("tests/sub/Count-v0", Counter)
    assert gymnasium.make_vec("jaxenvs/tests-sub-Count-v0", 2).reset(seed=0)[0].shape == (2, 2)
    register("Count to five!", Counter)
    assert isinstance(jaxenvs.make("Count to five!"), Counter)
    assert not [id for id in gymnasium.registry if "five" in id]


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"g": 3.7, "time_limit": 7, "seed": 3},
        {"render_mode": "rgb_array", "autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
        {"device": jax.devices("cpu")[1], "validate": False, "time_limit": None},
    ],
    ids=str,
)
def test_a_spec_makes_the_same_again(num_envs, options):
    env = jaxenvs.make_gym("Pendulum-v1", num_envs, **options)
    observations, _ = env.reset(seed=1)
    copies = (env.spec, pickle.loads(pickle.dumps(env.spec)), EnvSpec.from_json(env.spec.to_json()))
    for spec in copies:
        again = gymnasium.make(spec) if num_envs is None else gymnasium.make_vec(spec)
        assert type(again.unwrapped) is type(env)
        assert again.spec.id == "jaxenvs/Pendulum-v1"
        assert again.spec.max_episode_steps == options.get("time_limit", 200)
        assert repr(again.unwrapped.env.env.unwrapped) == repr(env.env.env.unwrapped)
        assert again.unwrapped.env.autoreset_mode == env.env.autoreset_mode
        assert env.spec.kwargs.items() <= again.spec.kwargs.items()
        np.testing.assert_array_equal(again.reset(seed=1)[0], observations)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_a_spec_keeps_native_wrappers(num_envs):
    wrappers = [functools.partial(ScaleReward, scale=0.5)]
    env = jaxenvs.make_gym("CartPole-v1", num_envs, wrappers=wrappers)
    again = gymnasium.make(env.spec) if num_envs is None else gymnasium.make_vec(env.spec)
    again.reset(seed=0)
    assert np.all(again.step(again.action_space.sample())[1] == 0.5)
