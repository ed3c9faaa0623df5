"""The soak notices what is lost, doubled, or made up, and finds none of it."""

import numpy as np
import pytest

from benchmarks import soak


def check_of(*rows):
    """Looks at one environment, which starts in life 7 and episode 1."""
    check = soak.Check(np.array([[7, 1, 0, 0]], np.int32), same_step=False)
    for seen, reward, terminated, truncated, restarted in rows:
        flags = (np.array([each]) for each in (reward, terminated, truncated, restarted))
        check.see(np.array([0]), np.array([3]), np.array([seen]), *flags)
    return check


STEP = [7, 1, 1, 3], 1.0, False, False, False


def test_check_accepts_correct_steps_and_restarts():
    restart = [8, 1, 0, 0], 0.0, False, True, True
    check = check_of(STEP, restart, ([8, 1, 1, 3], 1.0, False, False, False))
    assert not check.wrong and check.steps == 3 and check.restarts == 1


@pytest.mark.parametrize(
    "row",
    [
        STEP,  # a second time
        ([7, 1, 3, 3], 3.0, False, False, False),  # one is missing
        ([7, 1, 2, 4], 2.0, False, False, False),  # another action
        ([8, 1, 2, 3], 2.0, False, False, False),  # another environment
        ([8, 1, 0, 0], 0.0, False, False, True),  # restarted, and not cut
        ([7, 1, 2, 3], 2.0, True, False, False),  # an end before its time
    ],
)
def test_check_notices_wrong_results(row):
    assert len(check_of(STEP, row).wrong) == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", soak.WAYS)
def test_nothing_is_lost_while_workers_are_killed(way):
    with pytest.raises(SystemExit) as ended:
        soak.main(["--minutes", "0.2", "--ways", way])
    assert not ended.value.code
