"""Environments that are not registered here, on the command line."""

import re
import shutil
import sys
import tomllib

import jax
import jax.numpy as jnp
import pytest

import jaxenvs
from jaxenvs.errors import UnknownEnvironmentError
from jaxenvs.registry import registry
from jaxenvs.training.config import Config, config_for
from jaxenvs.training.evaluation import play_episodes
from tests.cli._running import SMALL, run

CORRIDOR = """
import jax.numpy as jnp

import jaxenvs
from jaxenvs import spaces


class Corridor(jaxenvs.Environment[jnp.ndarray]):
    goal: float = 3.0  # cells

    @property
    def observation_space(self):
        return spaces.Box(-10, 10, (1,))

    @property
    def action_space(self):
        return spaces.Discrete(2)

    def reset(self, key):
        return jnp.float32(0), jaxenvs.TimeStep.first(jnp.zeros(1))

    def step(self, state, action, key):
        state = state + jnp.where(action == 1, 1.0, -1.0)
        over = abs(state) >= self.goal
        return state, jaxenvs.TimeStep.transition(
            state[None], reward=state, terminated=over, info={}
        )

    def render(self, state):
        return jnp.zeros((8, 8, 3), jnp.uint8)


def longer():
    return jaxenvs.wrappers.TimeLimit(Corridor(goal=5.0), time_limit=20)


class Needy(Corridor):
    size: int = jaxenvs.struct.static(kw_only=True)


def needs(size):
    return Corridor(goal=size)


def sentence():
    return "not an environment"
"""


PARTS = """
import dataclasses

import flax.linen as nn

from jaxenvs import struct
from jaxenvs.core import Wrapper
from jaxenvs.training import GAE, PPO, ActorCritic


@struct.pytree_dataclass
class KLPPO(PPO):
    beta: float = 2.0  # weight of the penalty
    learning_rate: float = 1e-3


@dataclasses.dataclass(frozen=True)
class Wide(ActorCritic):
    hidden_sizes: tuple[int, ...] = (8,)


@struct.pytree_dataclass
class Halved(GAE):
    factor: float = 0.5


class Tiny(nn.Module):
    features: int = 4

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.features)(x)


class Doubled(Wrapper):
    factor: float = 2.0

    def reset(self, key):
        state, timestep = self.env.reset(key)
        return state, timestep.replace(observation=self.factor * timestep.observation)

    def step(self, state, action, key):
        state, timestep = self.env.step(state, action, key)
        return state, timestep.replace(observation=self.factor * timestep.observation)
"""


@pytest.fixture
def here(monkeypatch, tmp_path, own_registry):
    """A current directory with modules of somebody's own, which nobody sees afterwards."""
    modules = set(sys.modules)
    (tmp_path / "corridors.py").write_text(CORRIDOR)
    (tmp_path / "entering.py").write_text(
        'import jaxenvs\njaxenvs.register("Corridor-v0", "corridors:Corridor", time_limit=9)\n'
    )
    (tmp_path / "needy.py").write_text("import nowhere_to_be_found\n")
    (tmp_path / "parts.py").write_text(PARTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - modules:
        if name in ("corridors", "entering", "needy", "parts"):
            del sys.modules[name]


def forget():
    """As another process would find it."""
    for name in ("corridors", "entering", "parts"):
        sys.modules.pop(name, None)
    registry.pop("Corridor-v0", None)


def test_own_class_is_trained_and_its_run_known_to_every_command(capsys, here):
    status, printed = run(
        capsys, "train", "ppo", "corridors:Corridor", *SMALL, "--evaluate-every", 512
    )
    assert status == 0 and "runs/ppo/Corridor/: " in printed
    folder = here / "runs" / "ppo" / "Corridor"
    assert Config.read(folder / "config.toml").id == "corridors:Corridor"
    for arguments in (
        ["train", "--resume", folder, "--total-steps", 640],
        ["eval", folder, "--episodes", 2],
        ["enjoy", folder, "--max-steps", 5],
        ["compare", folder],
        ["plot", folder, "-o", "a.png"],
        ["render", "corridors:Corridor", "--checkpoint", folder, "-o", "a.gif", "--max-steps", 5],
        ["info", "corridors:Corridor"],
    ):
        forget()
        status, printed = run(capsys, *arguments)
        assert status == 0, printed
    assert "goal" in printed and "3.0" in printed and "cells" in printed


def test_own_parts_are_named_like_an_own_environment(capsys, here):
    own = ["actor.type=parts:Wide", "actor.extractor=parts:Tiny", "storage.type=parts.py:Halved"]
    settings = [text for each in own for text in ("--set", each)]
    arguments = ["train", "parts.py:KLPPO", "CartPole-v1", *SMALL, "--set", "beta=3", *settings]
    status, printed = run(capsys, *arguments, "--dry-run")
    written = tomllib.loads(printed)
    assert status == 0 and written["settings"]["beta"] == 3 and "# weight of the penalty" in printed
    assert written["algorithm"] == "parts.py:KLPPO" and written["storage"]["factor"] == 0.5
    tuned, default = config_for("ppo", "CartPole-v1"), config_for("parts:KLPPO", "CartPole-v1")
    assert tuned.settings["learning_rate"] == 7e-4 and "learning_rate" not in default.settings
    assert default.settings["epochs"] == tuned.settings["epochs"]  # of the algorithm it extends
    wrappers = 'wrappers = [{ type = "parts:Doubled", factor = 3 }]\n'
    (here / "mine.toml").write_text(wrappers + printed)
    forget()
    status, printed = run(capsys, "train", "--config", "mine.toml")
    assert status == 0 and "runs/klppo/CartPole-v1/: " in printed
    forget()
    folder = here / "runs" / "klppo" / "CartPole-v1"
    status, printed = run(capsys, "eval", folder, "--episodes", 2)
    assert status == 0, printed
    config = Config.read(folder / "config.toml")
    algorithm, env = config.make_algorithm(), config.make_env(1, training=False)
    assert (type(algorithm).__name__, algorithm.beta) == ("KLPPO", 3.0)
    assert (env.env.factor, type(config.make_storage()).__name__) == (3.0, "Halved")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("actor.type=parts:Halved", "expected a subclass of Actor"),
        ("storage.type=parts:Halve", 'no class or function of that name.*Close: "Halved"'),
        ("storage.type=part:Halved", 'no module "part"'),
    ],
)
def test_own_part_that_cannot_be_used_is_refused(capsys, here, setting, words):
    status, printed = run(capsys, "train", "ppo", "CartPole-v1", "--dry-run", "--set", setting)
    assert status == 2 and re.search(words, printed), printed


def test_id_registered_by_an_imported_module_is_known_to_its_run(capsys, here):
    arguments = ["train", "ppo", "Corridor-v0", "--import", "entering", *SMALL]
    status, printed = run(capsys, *arguments, "--dry-run")
    assert status == 0 and tomllib.loads(printed)["imports"] == ["entering"]
    (here / "mine.toml").write_text(printed)
    forget()
    config = Config.read("mine.toml")
    assert config.imports == ("entering",) and not config.is_hosted
    assert config.make_env(2).num_envs == 2
    forget()
    status, printed = run(capsys, "train", "--config", "mine.toml", "--dry-run")
    assert status == 0 and tomllib.loads(printed)["imports"] == ["entering"]
    status, printed = run(capsys, "list", "Corridor", "--import", "entering")
    assert status == 0 and "Corridor-v0" in printed
    status, printed = run(capsys, "info", "Corridor-v0", "--import", here / "entering.py")
    assert status == 0 and "9 steps" in printed


def test_id_may_name_a_file_and_a_function(here):
    shutil.copy("corridors.py", "elsewhere.py")
    (here / "below").mkdir()
    shutil.move("elsewhere.py", "below/elsewhere.py")
    env = jaxenvs.make("below/elsewhere.py:longer")
    assert env.time_limit == 20 and env.parameters["goal"] == 5
    assert jaxenvs.make_vec("below/elsewhere.py:Corridor", 3, goal=4.0).num_envs == 3
    sys.modules.pop("elsewhere")


def test_an_episode_that_nothing_ends_is_given_up(here):
    class Stays:
        def __call__(self, observation, key):
            return jnp.arange(observation.shape[0], dtype=jnp.int32) % 2

        def initial_carry(self, num_envs):
            return None

    env = jaxenvs.make_vec("corridors.py:Corridor", 2, goal=20_000.0)
    evaluation = play_episodes(env, Stays(), 2, jax.random.key(0))
    assert evaluation.finished.all() and (evaluation.episode_length == 10_000).all()
    limited = jaxenvs.make_vec("corridors.py:Corridor", 2, goal=20_000.0, time_limit=12)
    assert (play_episodes(limited, Stays(), 2, jax.random.key(0)).episode_length == 12).all()


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("coridors:Corridor", ['there is no module "coridors"']),
        ("corridors:Coridor", ['"Coridor" in corridors', 'Close: "Corridor"']),
        ("corridors.py:Coridor", ['Close: "Corridor"']),
        ("nowhere.py:Corridor", ["nowhere.py", "does not exist"]),
        ("needy:Corridor", ['imports "nowhere_to_be_found"']),
        ("corridors:needs", ["corridors:needs was called with nothing", "'size'"]),
        ("corridors:Needy", ["corridors:Needy has no default for size", "define a default"]),
        ("corridors:sentence", ["corridors:sentence made a str", "jaxenvs.Environment"]),
    ],
)
def test_own_id_that_cannot_be_made_is_reported_in_one_line(capsys, here, id, words):
    for arguments in (["info", id], ["train", "ppo", id]):
        status, printed = run(capsys, *arguments)
        assert status == 2 and all(word in printed for word in words) and printed.count("\n") == 1
    assert not (here / "runs").exists()


def test_imported_module_that_is_missing_is_reported(capsys, here):
    status, printed = run(capsys, "info", "Corridor-v0", "--import", "entring")
    assert status == 2 and "--import entring refers to the module entring" in printed
    (here / "a.toml").write_text('id = "Corridor-v0"\nalgorithm = "PPO"\nimports = ["entring"]\n')
    status, printed = run(capsys, "train", "--config", "a.toml")
    assert status == 2 and 'there is no module "entring"' in printed


@pytest.mark.parametrize(
    ("entry_point", "word"),
    [
        ("jaxenvs.envs.classic_control.cartpol:CartPole", "classic_control.cartpol"),
        ("jaxenvs.envs.classic_control.cartpole:CartPol", 'Close: "CartPole"'),
    ],
)
def test_a_registered_id_says_what_its_entry_point_lacks(here, entry_point, word):
    jaxenvs.register("Broken-v0", entry_point)
    with pytest.raises(UnknownEnvironmentError) as error:
        jaxenvs.make("Broken-v0")
    assert word in str(error.value) and f'"Broken-v0", registered as "{entry_point}"' in str(
        error.value
    )


def test_id_that_a_module_registers_with_gymnasium_is_hosted(here):
    import gymnasium

    (here / "hostedcorridors.py").write_text(
        "import gymnasium\n"
        "class Plain(gymnasium.Env): pass\n"
        'gymnasium.register("Plain", "hostedcorridors:Plain")\n'
        'gymnasium.register("Versioned-v0", "hostedcorridors:Plain")\n'
    )
    sys.path.insert(0, f"{here}")
    try:
        assert jaxenvs.factory.is_hosted("hostedcorridors:Plain")
        assert jaxenvs.factory.is_hosted("hostedcorridors:Versioned-v0")
        assert jaxenvs.factory.is_hosted("ale_py:ALE/Pong-v5")
    finally:
        for id in ("Plain", "Versioned-v0"):
            gymnasium.registry.pop(id, None)
        sys.modules.pop("hostedcorridors")
