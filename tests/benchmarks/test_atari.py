"""The measurement of Atari games, with tiny numbers."""

import json

import pytest

from benchmarks import atari, atari_exact


@pytest.mark.interop
def test_report_of_atari_has_every_contestant(tmp_path, capsys):
    pytest.importorskip("ale_py")
    path = tmp_path / "results.json"
    small = ["--repeats", "1", "--min-seconds", "0", "--num-envs", "2", "--threads", "1"]
    chosen = ["--games", "space_invaders", "--quiet", "--output", str(path)]
    contestants = ["jit", "ram", "make_gym", "EnvPool", "AtariVectorEnv", "branch"]
    atari.main([*small, *chosen, "--contestants", ",".join(contestants)])
    report = json.loads(path.read_text())
    assert [entry["contestant"] for entry in report["measurements"]] == contestants
    assert "| space_invaders | 2 | 1 | EnvPool |" in atari.table(report)
    other = ["--num-envs", "3", "--contestants", "jit", "--keep", str(path)]
    atari.main([*small, *chosen, *other])
    *kept, entry = json.loads(path.read_text())["measurements"]
    assert kept == report["measurements"] and entry["num_envs"] == 3


@pytest.mark.interop
def test_comparison_of_games_finds_what_differs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ale_py")
    path, play = tmp_path / "results.json", atari_exact._play_ours
    small = ["--frames", "100", "--planned", "30", "--others", "30", "--episodes", "2"]
    monkeypatch.setattr(atari_exact, "CUT", 400)
    assert atari_exact.main(["breakout", *small, "--quiet", "--output", str(path)]) == 0
    (breakout,) = json.loads(path.read_text())["measurements"]
    assert breakout["random"]["frames"] >= 100 and breakout["planned"]["frames"] >= 30
    assert breakout["start"] == [] and len(breakout["modes"]) == atari_exact.COMBINATIONS

    def wrong(*arguments):
        state, found = play(*arguments)
        return state, {**found, "lives": found["lives"] + 1}

    monkeypatch.setattr(atari_exact, "_play_ours", wrong)
    small[-1] = "0"
    keep = ["--keep", str(path), "--output", str(path)]
    assert atari_exact.main(["seaquest", *small, *keep]) == 1
    first, seaquest = json.loads(path.read_text())["measurements"]
    assert first == breakout
    assert seaquest["random"]["mismatches"]["lives"] == seaquest["random"]["frames"]
    assert "seaquest" in capsys.readouterr().out
