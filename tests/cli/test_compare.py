import json

import numpy as np
import pytest
from PIL import Image

from jaxenvs import statistics
from jaxenvs.training.config import config_for
from jaxenvs.training.logs import open_logs
from tests.cli._running import run

POLE, BOT = "CartPole-v1", "Acrobot-v1"
SCORES = {  # the last episode_return of each seed
    ("ppo", POLE): [450.0, 420.0, 500.0, 480.0],
    ("dqn", POLE): [300.0, 430.0, 410.0, 200.0],
    ("ppo", BOT): [-90.0, -80.0, -120.0, -100.0],
    ("dqn", BOT): [-95.0, -180.0, -130.0, -110.0],
}
SCALES = ["--scale", f"{BOT}=-500,-80", "--scale", f"{POLE}=20,500"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder ALGORITHM/ID/seed_N for each run, without checkpoints."""
    root = tmp_path_factory.mktemp("runs")
    for (algorithm, id), scores in SCORES.items():
        for seed, score in enumerate(scores):
            write_run(root / algorithm / id / f"seed_{seed}", algorithm, id, seed, score)
    return root


def write_run(folder, algorithm, id, seed, *scores, **settings):
    config = config_for(algorithm, id).replace(seed=seed).with_settings(settings)
    config.complete().write(folder / "config.toml")
    with open_logs(folder) as log:
        for i, score in enumerate((0.0, *scores, np.nan)):
            log.write(1000 * (i + 1), {"episode_return": score})


def compared(capsys, *arguments):
    status, printed = run(capsys, "compare", *arguments, "--json")
    assert status == 0, printed
    return {(row["id"], row["group"]): row for row in json.loads(printed)}


def test_compare_json_has_the_statistics_of_each_group(capsys, runs):
    rows = compared(capsys, runs / "ppo" / POLE, runs / "dqn" / POLE)
    assert [*rows] == [(POLE, "PPO"), (POLE, "DQN")]
    first, second = rows.values()
    x, y = (np.array(SCORES[name, POLE]) for name in ("ppo", "dqn"))
    assert second["steps"] == [3000, 3000] and second["runs"] == 4
    assert (second["iqm"], second["mean"]) == (355.0, 335.0)
    assert (second["min"], second["max"]) == (200.0, 430.0)
    low, high = second["iqm_interval"]
    assert 200 <= low < 300 and 410 < high <= 430
    assert first["improvement"] is None and second["improvement"] == 1 / 16
    assert second["improvement"] == statistics.probability_of_improvement(y, x)
    low, high = second["improvement_interval"]
    assert low == 0 and 0.1 < high < 0.5


def test_compare_joins_ids_that_have_scales(capsys, runs):
    rows = compared(capsys, runs / "ppo", runs / "dqn", *SCALES)
    assert [*rows] == [(id, name) for id in (BOT, POLE, None) for name in ("PPO", "DQN")]
    joined = rows[None, "DQN"]
    x, y = (np.array([SCORES[name, BOT], SCORES[name, POLE]]).T for name in ("ppo", "dqn"))
    normalized = (y - [-500, 20]) / [420, 480]
    np.testing.assert_allclose(joined["iqm"], statistics.iqm(normalized), rtol=1e-5)
    np.testing.assert_allclose(joined["min"], normalized.min(), rtol=1e-5)
    improvement = statistics.probability_of_improvement(y, x)
    np.testing.assert_allclose(joined["improvement"], improvement, rtol=1e-5)
    assert joined["runs"] == 4 and joined["steps"] is None
    without = compared(capsys, runs / "ppo", runs / "dqn")
    assert without == {key: row for key, row in rows.items() if key[0] is not None}


def test_compare_shows_a_table_and_draws_groups(capsys, runs, tmp_path):
    for seed in range(2):
        folder = tmp_path / "runs" / f"seed_{seed}"
        write_run(folder, "ppo", POLE, seed, 480.0 + seed, 490.0 + seed, clip=0.123)
    write_run(tmp_path / "runs" / "alone", "a2c", POLE, 0, 9.0)
    path = tmp_path / "compared.png"
    status, printed = run(capsys, "compare", runs / "ppo" / POLE, tmp_path / "runs", "-o", path)
    assert status == 0 and "P(> PPO clip=0.2)" in printed
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    assert rows["PPO"][1:6] == ["clip=0.123", "2", "4,000", "490.5", "490.0"]  # the second to last
    assert rows["A2C"][1:] == ["1", "3,000", "9.0", "-", "9.0", "9.0", "9.0", "0.00", "-"]
    assert "With 1 run, intervals are too narrow or missing" in printed
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    colors = {tuple(color) for color in np.unique(pixels, axis=0).tolist()}
    assert {(31, 119, 180), (255, 127, 14), (44, 160, 44)} <= colors  # of three groups


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", POLE], "write it as ID=LOW,HIGH"),
        (["--scale", f"{POLE}=1,1"], "two different scores"),
        (["--scale", "CartPole=0,500"], f'Close: "{POLE}"'),
        (SCALES[2:], "for each of several ids"),
        (["--metric", "episode_retrun"], 'Close: "episode_return"'),
        (["-o", "a.txt"], ".png, .svg or .pdf"),
        (["-o", "nowhere/a.png"], "no folder"),
    ],
)
def test_wrong_arguments_of_compare_are_explained(capsys, runs, arguments, message):
    status, printed = run(capsys, "compare", runs, *arguments)
    assert status == 2 and message in printed and "Traceback" not in printed


def test_runs_that_cannot_be_compared_are_named(capsys, runs, tmp_path):
    write_run(tmp_path / "empty", "ppo", POLE, 0, np.nan)
    (tmp_path / "empty" / "metrics.csv").write_text("step,episode_return\n1,\n")
    status, printed = run(capsys, "compare", tmp_path / "empty")
    assert status == 2 and "has no value of episode_return yet" in printed
    fewer = [runs / "ppo" / BOT, runs / "ppo" / POLE / "seed_1"]
    status, printed = run(capsys, "compare", *fewer, *SCALES)
    assert status == 2 and f"PPO has different numbers of runs: 4 of {BOT}, 1 of {POLE}" in printed
    others = [runs / "ppo" / BOT, runs / "dqn" / POLE]
    status, printed = run(capsys, "compare", *others, *SCALES)
    assert status == 2 and "no group has runs of every id" in printed
