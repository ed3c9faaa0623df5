"""`jaxenvs bsuite`: records, scores and the radar of an agent."""

import re

import pytest

from jaxenvs.cli import bsuite
from tests.cli._running import run

# pandas, called by bsuite
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_random_agent_is_recorded_scored_and_drawn(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    play = ("bsuite", "random", "--episodes", "12", "--experiments")
    status, printed = run(capsys, *play, "bandit,discounting_chain")
    assert status == 0 and "bandit: 20 settings, 12 episodes each" in printed
    assert re.search(r"bandit +0\.\d\d", printed) and re.search(r"credit_assignment +", printed)
    folder = tmp_path / "runs" / "bsuite" / "random"
    assert len(list(folder.glob("bsuite_id_-_*.csv"))) == 40 and (folder / "radar.png").exists()

    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.csv")}
    status, printed = run(capsys, *play, "bandit")
    assert status == 0 and "bandit: already played" in printed and "discounting_chain" in printed
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("*.csv")}
    status, printed = run(capsys, "bsuite", "random", "--experiments", "bandit", "--episodes", "9")
    assert status == 2 and "agent.toml" in printed


def test_help_lists_the_agents_and_unused_folders_take_any(capsys, tmp_path):
    help = run(capsys, "bsuite", "--help")[1]
    assert f"{', '.join(bsuite.AGENTS[:-1])} or {bsuite.AGENTS[-1]}" in " ".join(help.split())
    bsuite._write_agent(tmp_path / "agent.toml", "one")  # and nothing was played
    bsuite._write_agent(tmp_path / "agent.toml", "other")
    assert (tmp_path / "agent.toml").read_text() == "other"


def test_mnist_is_left_out_without_its_images(capsys, monkeypatch):
    assert len(bsuite._experiments(None)) == 23
    monkeypatch.delenv("JAXENVS_MNIST_DIR")
    assert not [name for name in bsuite._experiments(None) if name.startswith("mnist")]
    assert "Without the experiments of mnist" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["a2c", "dqn", "ppo"])
def test_agents_that_learn_find_the_best_arm(capsys, tmp_path, algorithm):
    small = ["--set", "actor.hidden_sizes=16", "--output", f"{tmp_path / algorithm}"]
    status, printed = run(
        capsys, "bsuite", algorithm, "--experiments", "bandit", "--episodes", "1000", *small
    )
    score = re.search(r"bandit +(0\.\d\d|1\.00)", printed)
    assert status == 0 and score is not None and float(score[1]) > 0.3
