import io
import math

import pytest
from rich.console import Console

from jaxenvs.training.progress import ProgressBar


def report(monkeypatch, updates, terminal=False):
    """What is printed for (updates, return) pairs of a training run of 40 updates of 64 steps."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    progress = ProgressBar(steps_per_update=64)
    for number, episode_return in updates:
        progress(number, 40, {"episode_return": episode_return})
    progress.stop()
    return text.getvalue()


def test_a_log_has_ten_lines(monkeypatch):
    lines = report(monkeypatch, [(n, float(n)) for n in range(1, 41)]).splitlines()
    assert len(lines) == 10
    assert "256 steps" in lines[0] and "2,560 steps" in lines[-1] and "40.0" in lines[-1]


def test_progress_without_episodes_keeps_the_last_return(monkeypatch):
    printed = report(monkeypatch, [(1, 7.5), (4, math.nan)])
    assert "7.5" in printed and "nan" not in printed


def test_late_reports_are_not_taken_for_progress(monkeypatch):
    assert len(report(monkeypatch, [(8, 1.0), (4, 2.0), (8, 3.0)]).splitlines()) == 1


@pytest.mark.parametrize("last", [40])
def test_a_terminal_gets_a_bar(monkeypatch, last):
    printed = report(monkeypatch, [(last, 499.0)], terminal=True)
    assert "2,560 steps" in printed and "return 499.0" in printed and "━" in printed
