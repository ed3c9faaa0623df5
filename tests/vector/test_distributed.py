"""Instances distributed over processes; each computes its share of the one-device trajectory."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxenvs
from tests.rounding import assert_agree
from tests.vector import _distributed_worker as worker

ROOT = Path(__file__).resolve().parent.parent.parent
PROCESSES, DEVICES = 2, 2  # DEVICES is per process

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs process groups")


def run_together(programs, folder, timeout=120):
    """Runs Python programs in parallel and returns their outputs.

    All programs have ended when this function returns or raises. If one fails, it kills the others,
    which would wait for it.
    """
    logs = [folder / f"{number}.log" for number in range(len(programs))]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
    }
    processes = []
    try:
        for program, log in zip(programs, logs, strict=True):
            with log.open("wb") as output:  # an unread pipe would fill up
                processes.append(
                    subprocess.Popen(
                        [sys.executable, *program],
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,  # to kill its children with it
                    )
                )
        deadline = time.monotonic() + timeout
        codes = [process.poll() for process in processes]
        while None in codes and not any(codes) and time.monotonic() < deadline:
            time.sleep(0.05)
            codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for process in processes:
        with pytest.raises(ProcessLookupError):  # the process group is empty
            os.killpg(process.pid, 0)
    if any(code != 0 for code in codes):
        ends = ["did not finish" if code is None else f"exit code {code}" for code in codes]
        raise AssertionError(
            "\n".join(
                f"process {number}: {end}\n{log.read_text(errors='replace')}"
                for number, (end, log) in enumerate(zip(ends, logs, strict=True))
            )
        )
    return [log.read_text() for log in logs]


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_several_processes_match_one_device(tmp_path):
    files = [tmp_path / f"{number}.npz" for number in range(PROCESSES)]
    program = [worker.__file__, free_address(), str(PROCESSES)]
    run_together([[*program, str(i), str(file)] for i, file in enumerate(files)], tmp_path)

    alone = jaxenvs.vectorize(jaxenvs.make("CartPole-v1"), worker.N)
    outcome = jax.jit(lambda key: worker.play(alone, key))(jax.random.key(worker.SEED))
    expected = {path: np.asarray(leaf) for path, leaf in worker.by_path(outcome).items()}
    _, timesteps, _ = outcome
    done = np.reshape(timesteps.done, (worker.T, PROCESSES * DEVICES, -1))
    assert done.any(axis=(0, 2)).all(), "every device has instances to reset"

    seen = {path: np.zeros(leaf.shape, int) for path, leaf in expected.items()}
    for file in files:
        with np.load(file) as pieces:
            for name, piece in pieces.items():
                path, *starts = name.split(" ")
                place = tuple(
                    slice(int(start), int(start) + size)
                    for start, size in zip(starts, piece.shape, strict=True)
                )
                part = expected[path][place]
                assert_agree({path: piece}, {path: part})
                seen[path][place] += 1
    for path, count in seen.items():
        assert (count == 1).all(), f"{path}: all instances, each on one device only"


@pytest.mark.slow
def test_documented_program_runs_on_several_hosts(tmp_path):
    page = (ROOT / "docs" / "concepts" / "sharding.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "play.py").write_text(code, encoding="utf-8")
    program = [str(tmp_path / "play.py"), free_address(), str(PROCESSES)]
    printed = run_together([[*program, str(i)] for i in range(PROCESSES)], tmp_path)
    rows = [len(re.findall(r"\[[-+.e\d ]+\]", text)) for text in printed]  # not those of "[Gloo]"
    assert rows == [4 * DEVICES] * PROCESSES, printed  # four instances per device
