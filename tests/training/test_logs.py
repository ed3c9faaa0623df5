import csv
import json
import math
import struct
import sys
import types

import numpy as np
import pytest

from jaxenvs.errors import MissingExtraError, TrainingError
from jaxenvs.training.logs import open_logs, read_metrics

NAN = float("nan")


def lines(path):
    return path.read_text().splitlines()


def objects(path):
    return [json.loads(line) for line in lines(path)]


def test_a_row_reads_back_from_csv_and_from_json_lines(tmp_path):
    with open_logs(tmp_path / "new" / "run") as log:
        log.write(128, {"episode_return": np.float32(0.1), "updates": 3, "lost": NAN})
        log.write(256, {"episode_return": NAN, "updates": np.int32(4), "lost": np.float32("inf")})
    folder = tmp_path / "new" / "run"
    assert lines(folder / "metrics.csv") == [
        "step,episode_return,updates,lost",
        "128,0.1,3,",
        "256,,4,inf",
    ]
    assert objects(folder / "metrics.jsonl") == [
        {"step": 128, "episode_return": 0.1, "updates": 3, "lost": None},
        {"step": 256, "episode_return": None, "updates": 4, "lost": math.inf},
    ]
    read = read_metrics(folder)
    np.testing.assert_array_equal(read["step"], [128, 256])
    np.testing.assert_array_equal(read["episode_return"], [0.1, NAN])
    np.testing.assert_array_equal(read["lost"], [NAN, math.inf])


def test_rows_are_on_disk_as_soon_as_they_are_written(tmp_path):
    log = open_logs(tmp_path)
    for step in (1, 2):
        log.write(step, {"x": step})
        assert len(lines(tmp_path / "metrics.csv")) == step + 1
        assert len(lines(tmp_path / "metrics.jsonl")) == step
    log.close()


def test_metric_that_appears_later_adds_a_csv_column(tmp_path):
    with open_logs(tmp_path, ["csv"]) as log:
        log.write(1, {"a": 1})
        log.write(2, {"b, quoted": 2, "a": 3})
        log.write(3, {"b, quoted": 4})
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["step", "a", "b, quoted"],
        ["1", "1", ""],
        ["2", "3", "2"],
        ["3", "", "4"],
    ]


def test_a_resumed_log_goes_on_where_the_training_does(tmp_path):
    with open_logs(tmp_path) as log:
        for step in (10, 20, 30):
            log.write(step, {"x": step})
    for name in ("metrics.csv", "metrics.jsonl"):
        with (tmp_path / name).open("a") as file:
            file.write('{"step": 4' if name.endswith("jsonl") else "4")  # cut by a crash
    with open_logs(tmp_path, resume_step=20) as log:
        log.write(25, {"x": 0, "y": 1})
    assert lines(tmp_path / "metrics.csv") == ["step,x,y", "10,10,", "20,20,", "25,0,1"]
    assert [row["step"] for row in objects(tmp_path / "metrics.jsonl")] == [10, 20, 25]
    with open_logs(tmp_path) as log:  # anew
        log.write(1, {"z": 1})
    assert lines(tmp_path / "metrics.csv") == ["step,z", "1,1"]
    assert not list(tmp_path.glob(".*"))


def test_unknown_log_kind_is_refused_with_the_closest(tmp_path):
    with pytest.raises(TrainingError, match=r'"tensorbord".*Close: "tensorboard"'):
        open_logs(tmp_path / "none", ["csv", "tensorbord"])
    assert not (tmp_path / "none").exists()
    with pytest.raises(TrainingError, match="contains no"):
        read_metrics(tmp_path)


@pytest.mark.parametrize(("kind", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_log_kind_without_its_package_names_the_extra(tmp_path, monkeypatch, kind, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"jaxenvs\[{kind}\]"):
        open_logs(tmp_path, ["csv", kind])


def events(folder):
    """(step, {name: value}) of each event that holds numbers, and the steps of new starts."""
    from tensorboardX.proto.event_pb2 import Event

    rows, starts = [], []
    for path in sorted(folder.glob("events.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])  # then a checksum, the event, a checksum
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            values = {value.tag: value.simple_value for value in event.summary.value}
            rows += [(event.step, values)] if values else []
            starts += [event.step] if event.HasField("session_log") else []
    return rows, starts


def test_tensorboard_gets_the_values_and_the_resume_step(tmp_path):
    pytest.importorskip("tensorboardX")
    with open_logs(tmp_path, ["tensorboard"]) as log:
        log.write(10, {"x": np.float32(0.5), "y": NAN})
        log.write(20, {"x": 1})
    assert events(tmp_path) == ([(10, {"x": 0.5}), (20, {"x": 1.0})], [])
    with open_logs(tmp_path, ["tensorboard"], resume_step=10) as log:
        log.write(20, {"x": 2})
    rows, starts = events(tmp_path)
    assert rows[-1] == (20, {"x": 2.0}) and starts == [11]
    with open_logs(tmp_path, ["tensorboard"]) as log:
        log.write(5, {"x": 3})
    assert events(tmp_path) == ([(5, {"x": 3.0})], [])


def test_weights_and_biases_goes_on_in_the_same_run(tmp_path, monkeypatch):
    calls = []

    def init(**options):
        calls.append(options)
        return types.SimpleNamespace(
            id=options["id"] or "made-up",
            log=lambda values, step: calls.append((step, values)),
            finish=lambda: calls.append("finish"),
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    with open_logs(tmp_path, ["wandb"]) as log:
        log.write(10, {"x": np.float32(0.5), "y": NAN})
    first = {"dir": f"{tmp_path}", "name": tmp_path.name, "id": None, "resume": None}
    assert calls == [first, (10, {"x": 0.5}), "finish"]
    open_logs(tmp_path, ["wandb"], resume_step=10).close()
    assert calls[3] == {**first, "id": "made-up", "resume": "allow"}
