import json
import os
import re
import subprocess
import sys

import jax
import pytest
from PIL import Image

import jaxenvs
from jaxenvs.cli import app, listing
from jaxenvs.registry import registry, unlisted
from tests.cli._running import run
from tests.ids import case


def test_list_shows_every_id_with_its_limit(capsys):
    status, printed = run(capsys, "list")
    assert status == 0 and all(id in printed for id in registry)
    assert re.search(r"CartPole-v1 .* 500 .* 475\.0 .* gymnasium", printed)


def test_list_filters_by_part_of_an_id_and_by_family(capsys):
    status, printed = run(capsys, "list", "mountain", "--family", "classic_control")
    assert status == 0 and "MountainCar-v0" in printed and "CartPole" not in printed


def test_list_counts_within_what_it_searched(capsys):
    assert f" of {len(registry)} environments" in run(capsys, "list", "car")[1]
    assert f"of {len(unlisted)} settings of bsuite" in run(capsys, "list", "deep_sea/")[1]


def test_list_json_has_an_object_for_each_id(capsys):
    status, printed = run(capsys, "list", "cartpole-v1", "--json")
    assert status == 0 and json.loads(printed) == [
        {
            "id": "CartPole-v1",
            "family": "classic_control",
            "time_limit": 500,
            "reward_threshold": 475.0,
            "source": registry["CartPole-v1"].source,
            "compared_with": "gymnasium",
        }
    ]
    assert [each["id"] for each in json.loads(run(capsys, "list", "--json")[1])] == [*registry]


def test_list_json_of_a_suite_has_ids_and_family(capsys, monkeypatch):
    monkeypatch.setattr(listing, "suite_ids", lambda suite: [f"{suite}/ant", f"{suite}/hopper"])
    status, printed = run(capsys, "list", "ant", "--suite", "brax", "--json")
    assert status == 0 and json.loads(printed) == [{"id": "brax/ant", "family": "brax"}]


def test_train_without_an_id_is_refused_before_jax_is_imported():
    code = "import sys, jaxenvs.cli as c; print(c.main(sys.argv[1:]), 'jax' in sys.modules)"
    for arguments in (["train"], ["train", "ppo"]):
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "2 False\n" and "train got no id" in done.stderr


def test_list_and_info_know_the_settings_of_bsuite(capsys):
    assert "deep_sea/3" not in run(capsys, "list", "deep_sea")[1]
    assert "bsuite/deep_sea/20" in run(capsys, "list", "deep_sea/")[1]
    status, printed = run(capsys, "info", "bsuite/catch_noise/7")
    assert status == 0 and "AddRewardNoise(noise_scale=0.3)" in printed and "Box(0.0" in printed


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["list", "cratpole"], "CartPole-v1"),
        (["list", "--family", "classic"], "classic_control"),
        (["info", "CartPol-v1"], "CartPole-v1"),
        (["train", "ppo", "cartpole"], "CartPole-v1"),
        (["train", "pp", "CartPole-v1"], '"PPO"'),
        (["train", "ppo"], "no id"),
        (["train", "ppo", "CartPole-v1", "--set", "lerning_rate=1"], "learning_rate"),
        (["train", "ppo", "CartPole-v1", "--set", "lr=1e-3"], '"lr".  Close: "learning_rate"'),
        (["train", "ppo", "CartPole-v1", "--set", "epochs=two"], "epochs"),
        (["train", "ppo", "CartPole-v1", "--set", "epochs"], "name=value"),
        (["train", "ppo", "CartPole-v1", "--set", "actor.hidden_sizes=[8"], "not valid TOML"),
        (["train", "ppo", "CartPole-v1", "--num-envs", "3", "--unroll-length", "1"], "minibatches"),
        (["train", "sac", "CartPole-v1", "--set", "storage.type=GAE"], "Replay"),
        (["train", "ppo", "CartPole-v1", "--seeds", "0"], "--seeds 0"),
        (["train", "ppo", "gymnasium/CartPole-v1", "--seeds", "2"], "not written in JAX"),
        (["train", "--config", "nowhere.toml"], "nowhere.toml"),
        (["train", "--resume", "nowhere"], "config.toml"),
        (["train", "--resume", "nowhere", "--seed", "3"], "with its own"),
        (["eval", "nowhere"], "config.toml"),
        (["eval", "nowhere", "--episodes", "0"], "positive"),
        (["enjoy", "nowhere"], "config.toml"),
        (["plot", "nowhere", "-o", "a.png"], "config.toml"),
        (["sweep", "--search", "clip=1,2"], "no id"),
        (["sweep", "ppo", "CartPole-v1"], "empty space"),
        (["sweep", "ppo", "cartpole", "--search", "clip=1,2"], "CartPole-v1"),
        (["sweep", "ppo", "CartPole-v1", "--search", "clip"], "NAME=LOW..HIGH"),
        (["sweep", "ppo", "CartPole-v1", "--search", "clip=0.1..b"], "is malformed"),
        (["sweep", "ppo", "CartPole-v1", "--search", "clip=0.1..0.2:ln"], "is malformed"),
        (["sweep", "ppo", "CartPole-v1", "--search", "clp=0.1..0.2"], 'Close: "clip"'),
        (["sweep", "ppo", "CartPole-v1", "--search", "minibatches=3..5"], "minibatches"),
        (["sweep", "ppo", "CartPole-v1", "--space", "nowhere.toml"], "nowhere.toml"),
        (["bsuite", "pp"], 'Close: "ppo"'),
        (["bsuite", "ppo", "--experiments", "deep_see"], "deep_sea"),
        (["bsuite", "ppo", "--experiments", "bandit", "--unroll-length", "3"], "minibatches"),
        (["bsuite", "td3", "--experiments", "bandit"], "a2c, dqn, ppo, pqn, sac, vpg, random;"),
        (["bsuite", "random", "--set", "epochs=2"], "has none"),
        (["render", "Pendulum", "-o", "a.gif"], "Pendulum-v1"),
        (["render", "CartPole-v1", "-o", "nowhere/a.gif"], "nowhere"),
        (["enjoy", "nowhere", "-o", "elsewhere/a.gif"], "elsewhere"),
        (["render", "CartPole-v1", "-o", "a.webm", "--max-steps", "2"], ".mp4"),
        (["render", "CartPole-v1", "-o", "a.gif", "--max-steps", "0"], "at least 1"),
        (["render", "CartPole-v1", "-o", "a.gif", "--checkpoint", "nowhere"], "config.toml"),
        (["render", "CartPole-v1", "-o", "a.gif", "--seed", "-1"], "from 0 to 4294967295"),
        (["render", "CartPole-v1", "-o", "a.gif", "--seed", f"{2**32}"], "from 0 to 4294967295"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_told_in_a_line_and_exit_with_2(
    capsys, monkeypatch, tmp_path, arguments, word
):
    monkeypatch.chdir(tmp_path)
    status, printed = run(capsys, *arguments)
    assert status == 2 and word in printed and "Traceback" not in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        *("list", "info", "train", "eval", "enjoy", "compare", "plot", "bsuite", "render"),
        *("sweep", "tune-pool", "doctor"),
    ],
)
def test_the_help_of_each_command_shows_examples(capsys, command):
    status, printed = run(capsys, command, "--help")
    assert status == 0 and f"examples:\n  jaxenvs {command}" in printed


def test_without_a_command_all_are_listed(capsys):
    status, printed = run(capsys)
    assert status == 0 and "  doctor " in printed and "jaxenvs train ppo CartPole-v1" in printed


def test_info_shows_spaces_limits_and_parameters_with_units(capsys):
    status, printed = run(capsys, "info", "CartPole-v1")
    assert status == 0
    assert "500 steps" in printed and "Discrete(2)" in printed and "Barto" in printed
    assert re.search(r"gravity +9\.8 +m/s\^2", printed)
    assert re.search(r"sutton_barto_reward +False +.*recompiles", printed)


FIRST_IDS = {registry[id].family: id for id in sorted(registry, reverse=True)}.values()


@pytest.mark.parametrize("id", [case(id, is_quick=id in FIRST_IDS) for id in sorted(registry)])
def test_every_id_has_info(capsys, id):
    status, printed = run(capsys, "info", id)
    assert status == 0 and f'jaxenvs.make("{id}", ' in printed


def test_a_random_episode_is_rendered(capsys, tmp_path):
    path = tmp_path / "random.png"
    status, _ = run(capsys, "render", "MountainCar-v0", "-o", f"{path}", "--max-steps", "7")
    assert status == 0
    with Image.open(path) as strip:  # eight states of seven steps, side by side
        assert strip.width == 8 * strip.height * 3 / 2


def test_ctrl_c_ends_a_command_without_a_traceback(capsys, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "run", interrupted)
    assert run(capsys, "list") == (130, "")


def test_without_rich_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    status, printed = run(capsys, "list")
    assert status == 2 and "jaxenvs[cli]" in printed
    assert run(capsys, "list", "--json")[0] == 0


def test_device_is_chosen_before_jax_starts(tmp_path):
    environment = os.environ | {"JAX_PLATFORMS": "no_such_platform"}
    command = [sys.executable, "-m", "jaxenvs", "render", "MountainCar-v0", "--max-steps", "2"]
    command += ["-o", f"{tmp_path / 'a.png'}"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert failed.returncode and "no_such_platform" in failed.stderr
    command += ["--device", "cpu"]
    subprocess.run(command, capture_output=True, check=True, env=environment)


@pytest.mark.parametrize(
    "arguments",
    [["train", "ppo", "CartPole-v1"], ["eval", "a"], ["enjoy", "a"], ["bsuite", "random"]],
    ids=lambda arguments: arguments[0],
)
def test_missing_device_is_an_error(capsys, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    status, printed = run(capsys, *arguments, "--device", "gpu")
    assert status == 2 and "got --device gpu, but JAX runs on a CPU." in printed
    assert "JAX_PLATFORMS" not in os.environ  # the option overrides it


def test_device_with_a_jax_that_does_not_start_is_an_error(capsys, monkeypatch):
    def fails():
        raise RuntimeError("Unable to initialize backend 'tpu'")

    monkeypatch.setattr(jax, "default_backend", fails)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    status, printed = run(capsys, "train", "ppo", "CartPole-v1", "--device", "tpu")
    assert status == 2 and "got --device tpu, but Unable to initialize backend 'tpu'" in printed


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("jaxenvs info CartPole-", {"CartPole-v0", "CartPole-v1"}),
        ("jaxenvs info bsuite/deep_sea/2", {"bsuite/deep_sea/2", "bsuite/deep_sea/20"}),
        ("jaxenvs train p", {"ppo", "pqn"}),
        ("jaxenvs eval runs/a --device ", {"cpu", "gpu", "tpu"}),
        ("jaxenvs list --family classic", {"classic_control"}),
        ("jaxenvs list --suite b", {"brax"}),
        ("jaxenvs eval ru", {"runs/"}),
    ],
)
def test_shell_gets_completions_without_jax(tmp_path, line, completions):
    (tmp_path / "runs").mkdir()
    answer = tmp_path / "answer"
    protocol = {  # what the shell function of argcomplete sets
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": f"{answer}",
        "COMP_LINE": line,
        "COMP_POINT": f"{len(line)}",
    }
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "jaxenvs"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | protocol,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {each.rstrip() for each in answer.read_text().split("\n")} == completions
    imported = {*re.findall(r"\| +(\w+)", done.stderr)}
    assert "argcomplete" in imported and "jax" not in imported


def test_the_module_is_the_command_line():
    command = [sys.executable, "-m", "jaxenvs", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"jaxenvs {jaxenvs.__version__}"


@pytest.mark.parametrize(
    ("text", "number"), [("100_000", 100_000), ("1e5", 100_000), ("2.5e3", 2500), ("-1", -1)]
)
def test_integer_option_accepts_underscores_and_exponents(text, number):
    options = app._parser().parse_args(["train", "ppo", "CartPole-v1", f"--total-steps={text}"])
    assert options.total_steps == number and isinstance(options.total_steps, int)


@pytest.mark.parametrize("text", ["1.5", "many", "inf", "nan", ""])
def test_integer_option_refuses_other_values(capsys, text):
    with pytest.raises(SystemExit):
        app.main(["train", "ppo", "CartPole-v1", f"--total-steps={text}"])
    assert f"{text!r} is not an integer" in capsys.readouterr().err
