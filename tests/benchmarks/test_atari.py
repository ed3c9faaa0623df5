"""The measurement of Atari games, with tiny numbers."""

import json

import pytest

from benchmarks import atari


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
