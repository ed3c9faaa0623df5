import json

from benchmarks import bsuite_sweep


def test_jaxenvs_and_bsuite_are_measured_and_compared(tmp_path, capsys):
    path = tmp_path / "results.json"
    small = ["--experiments", "bandit,catch", "--episodes", "3", "--seconds", "0"]
    bsuite_sweep.main([*small, "--output", str(path)])
    bandit, catch = json.loads(path.read_text())["measurements"]
    assert bandit["steps"] == 20 * 3 and catch["steps"] == 20 * 3 * 9
    assert all(
        each["theirs"] > 0 < each["ours_compiling"] < each["ours"] for each in (bandit, catch)
    )
    ratio = (bandit["theirs"] + catch["theirs"]) / (bandit["ours"] + catch["ours"])
    assert f"| {ratio:.1f} |" in capsys.readouterr().out.splitlines()[-1]
