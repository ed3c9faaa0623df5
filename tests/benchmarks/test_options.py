import pytest

from benchmarks import gym_api, host_bridge, rollout, schemes, storages


@pytest.mark.parametrize(
    ("main", "option", "unknown"),
    [
        (gym_api.main, "--peers", "envpol"),
        (host_bridge.main, "--only", "cartpol"),
        (rollout.main, "--peers", "gymnix"),
        (schemes.main, "--only", "central/async/decentralized"),
        (storages.main, "--peers", "flashback"),
    ],
)
def test_unknown_choices_are_refused(main, option, unknown, capsys):
    with pytest.raises(SystemExit):
        main([option, unknown])
    assert f"unknown: {unknown}; choose from" in capsys.readouterr().err
