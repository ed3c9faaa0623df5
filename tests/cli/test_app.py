import json
import re
import subprocess
import sys

import pytest
from PIL import Image

import jaxenvs
from jaxenvs.cli import main
from jaxenvs.registry import registry


def run(capsys, *arguments):
    """Exit status and what was printed, standard output before errors."""
    try:
        status = main(arguments)
    except SystemExit as stop:
        status = stop.code
    printed = capsys.readouterr()
    return status, printed.out + printed.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The output folder of a tiny training on CartPole-v1."""
    folder = tmp_path_factory.mktemp("runs") / "cartpole"
    arguments = ["train", "ppo", "CartPole-v1", "--total-steps", "512", "--num-envs", "4"]
    arguments += ["--unroll-length", "32", "--set", "epochs=2"]
    assert main([*arguments, "--output", str(folder)]) == 0
    return folder


def test_list_shows_every_id_with_its_limit(capsys):
    status, printed = run(capsys, "list")
    assert status == 0 and all(id in printed for id in registry)
    assert re.search(r"CartPole-v1 .* 500 .* 475\.0 .* gymnasium", printed)


def test_list_filters_by_part_of_an_id_and_by_family(capsys):
    status, printed = run(capsys, "list", "mountain", "--family", "classic_control")
    assert status == 0 and "MountainCar-v0" in printed and "CartPole" not in printed


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["list", "cratpole"], "CartPole-v1"),
        (["list", "--family", "classic"], "classic_control"),
        (["info", "CartPol-v1"], "CartPole-v1"),
        (["train", "ppo", "cartpole"], "CartPole-v1"),
        (["train", "ppo", "CartPole-v1", "--set", "lerning_rate=1"], "learning_rate"),
        (["train", "ppo", "CartPole-v1", "--set", "epochs=two"], "epochs"),
        (["train", "ppo", "CartPole-v1", "--set", "epochs"], "name=value"),
        (["train", "ppo", "CartPole-v1", "--num-envs", "3", "--unroll-length", "1"], "minibatches"),
        (["render", "Pendulum", "-o", "a.gif"], "Pendulum-v1"),
        (["render", "CartPole-v1", "-o", "a.webm", "--max-steps", "2"], ".mp4"),
        (["render", "CartPole-v1", "-o", "a.gif", "--max-steps", "0"], "at least 1"),
        (["render", "CartPole-v1", "-o", "a.gif", "--checkpoint", "nowhere"], "config.json"),
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


@pytest.mark.parametrize("command", ["list", "info", "train", "render", "doctor"])
def test_the_help_of_each_command_shows_examples(capsys, command):
    status, printed = run(capsys, command, "--help")
    assert status == 0 and f"examples:\n  jaxenvs {command}" in printed


def test_info_shows_spaces_limits_and_each_parameter_with_its_unit(capsys):
    status, printed = run(capsys, "info", "CartPole-v1")
    assert status == 0
    assert "500 steps" in printed and "Discrete(2)" in printed and "Barto" in printed
    assert re.search(r"gravity +9\.8 +m/s\^2", printed)
    assert re.search(r"sutton_barto_reward +False +.*compiles anew", printed)


@pytest.mark.parametrize("id", sorted(registry))
def test_every_id_has_info(capsys, id):
    status, printed = run(capsys, "info", id)
    assert status == 0 and f'jaxenvs.make("{id}", ' in printed


def test_train_leaves_metrics_a_curve_and_a_checkpoint(trained):
    metrics = json.loads((trained / "metrics.json").read_text())
    assert metrics["steps"] == [128, 256, 384, 512]
    assert len(metrics["episode_return"]) == 4 and metrics["episode_return"][-1] > 5
    config = json.loads((trained / "config.json").read_text())
    assert config["id"] == "CartPole-v1" and config["ppo"]["epochs"] == 2
    with Image.open(trained / "learning_curve.png") as curve:
        assert curve.width > curve.height > 100


def test_an_environment_of_the_host_is_shown_and_learned(capsys, tmp_path):
    status, printed = run(capsys, "info", "gymnasium/CartPole-v1")
    assert status == 0 and "Discrete(2)" in printed and "500 steps" in printed
    arguments = ["train", "ppo", "gymnasium/CartPole-v1", "--total-steps", "512"]
    arguments += ["--num-envs", "4", "--unroll-length", "32"]
    status, printed = run(capsys, *arguments, "--output", f"{tmp_path}/run")
    assert status == 0 and "Solved from: 475" in printed
    assert json.loads((tmp_path / "run" / "config.json").read_text())["ppo"]["epochs"] == 10
    assert (tmp_path / "run" / "checkpoint").is_dir()


def test_without_matplotlib_a_training_is_kept_and_the_extra_named(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["train", "ppo", "CartPole-v1", "--total-steps", "128", "--num-envs", "4"]
    arguments += ["--unroll-length", "32", "--set", "epochs=2"]
    status, printed = run(capsys, *arguments, "--output", f"{tmp_path}")
    assert status == 0 and "jaxenvs[render]" in printed
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"metrics.json", "config.json", "checkpoint"}


def test_a_trained_policy_is_rendered(capsys, trained):
    status, printed = run(
        capsys, "render", "CartPole-v1", "-o", f"{trained}/a.gif", "--checkpoint", f"{trained}"
    )
    assert status == 0
    with Image.open(trained / "a.gif") as gif:
        assert f"{gif.n_frames} frames" in printed and gif.size == (600, 400)


def test_a_checkpoint_of_another_id_is_refused(capsys, trained):
    status, printed = run(
        capsys, "render", "Acrobot-v1", "-o", f"{trained}/b.gif", "--checkpoint", f"{trained}"
    )
    assert status == 2 and "learned CartPole-v1" in printed


def test_a_random_episode_is_rendered(capsys, tmp_path):
    path = tmp_path / "random.png"
    status, _ = run(capsys, "render", "MountainCar-v0", "-o", f"{path}", "--max-steps", "7")
    assert status == 0
    with Image.open(path) as strip:  # eight states of seven steps, side by side
        assert strip.width == 8 * strip.height * 3 / 2


def test_without_rich_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    status, printed = run(capsys, "list")
    assert status == 2 and "jaxenvs[cli]" in printed


def test_the_module_is_the_command_line():
    command = [sys.executable, "-m", "jaxenvs", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"jaxenvs {jaxenvs.__version__}"
