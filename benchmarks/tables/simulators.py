"""How fast the tasks of MuJoCo and the games of Atari are."""

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks._common import markdown
from benchmarks.atari_exact import COMPARED, parts_of
from benchmarks.tables._cells import digits, median, numbers, ratios, table, threads, times
from benchmarks.tables._reports import Report, ids_of, load, measured


@table
def physics() -> list[str]:
    """Returns the speed of MuJoCo tasks inside of `jit`, with ratios to EnvPool."""
    cases = list(itertools.product((64, 256, 1024), (1, 2)))
    columns = [f"{size:,}, {threads(count)}" for size, count in cases]
    return _tasks("instances", columns, [(*case, "jit", "EnvPool") for case in cases])


@table
def physics_python() -> list[str]:
    """Returns the speed of MuJoCo tasks stepped from Python on two threads, with ratios."""
    columns = ("`make_gym`, 16", "`make_gym`, 64", "pool of Gymnasium's, 64")
    cases = (16, "make_gym"), (64, "make_gym"), (64, "pool")
    return _tasks("instances", columns, [(size, 2, name, "EnvPool") for size, name in cases])


@table
def physics_single() -> list[str]:
    """Returns the speed of one instance of MuJoCo tasks, with ratios to Gymnasium."""
    cases = [(1, 1, name, "Gymnasium") for name in ("jit", "make_gym")]
    return _tasks("one instance", ["inside of `jit`", "`make_gym`"], cases)


def _tasks(
    corner: str, columns: Sequence[str], cases: Sequence[tuple[int, int, str, str]]
) -> list[str]:
    """Returns a table with a row for each task.

    A case is a number of instances and threads, ours, and a peer.
    """
    report = load("physics")
    rows = ([id, *(_beside(report, id, *case) for case in cases)] for id in ids_of(report))
    return markdown((corner, *columns), rows)


def _beside(report: Report, id: str, num_envs: int, threads: int, ours: str, peer: str) -> str:
    """Returns thousand steps per second, and the ratio to a peer."""
    case = {"id": id, "num_envs": num_envs, "threads": threads}
    own, theirs = (
        measured(report, contestant=name, **case)["steps_per_second"] for name in (ours, peer)
    )
    return f"{digits(median(own) / 1e3)} ({times(ratios(own, theirs))} {peer})"


@table
def atari() -> list[str]:
    """Returns the speed of games of Atari with 256 instances, with ratios."""
    report = load("atari")
    columns = ("pictures, 1 thread", "2 threads", "`make_gym`, 2 threads", "memory, 2 threads")

    def cell(game: str, ours: str, count: int) -> str:
        own, *others = (
            measured(report, game=game, num_envs=256, threads=count, contestant=name)
            for name in (ours, "EnvPool", "AtariVectorEnv")
        )
        speed = own["steps_per_second"]
        beside = [times(ratios(speed, other["steps_per_second"])) for other in others]
        return f"{digits(median(speed) / 1e3)} ({', '.join(beside)})"

    cases = ("jit", 1), ("jit", 2), ("make_gym", 2), ("ram", 2)
    games = dict.fromkeys(entry["game"] for entry in report["measurements"])
    rows = ([game, *(cell(game, *case) for case in cases)] for game in games)
    return markdown(("thousand steps/s", *columns), rows)


@table
def atari_sizes() -> list[str]:
    """Returns how many times as fast as others games of Atari are, in the median and the worst."""
    speeds: dict[Any, dict[str, list[float]]] = collections.defaultdict(dict)
    for entry in load("atari")["measurements"]:
        case = entry["num_envs"], entry["threads"], entry["contestant"]
        speeds[case][entry["game"]] = entry["steps_per_second"]

    def cell(num_envs: int, name: str, count: int) -> str:
        ours, theirs = (speeds[num_envs, count, which] for which in ("jit", name))
        found = [median(ratios(ours[game], theirs[game])) for game in ours]
        return f"{median(found):.2f}× ({min(found):.2f}×)"

    peers = list(itertools.product(("EnvPool", "AtariVectorEnv"), (1, 2)))
    return markdown(
        ("N", *(f"{name}, {threads(count)}" for name, count in peers)),
        ([str(size), *(cell(size, *peer) for peer in peers)] for size in (16, 64, 256)),
    )


@table
def atari_exact() -> list[str]:
    """Returns how many frames of games were compared with ale_py's, and what differs."""
    rows, equal, sums = [], 0, np.zeros(3, int)
    for game in load("atari_exact")["measurements"]:
        modes = sum(part["frames"] for part in game["modes"])
        frames = np.array([game["random"]["frames"], game["planned"]["frames"], modes])
        counts = {
            name: sum(part["mismatches"][name] for part in parts_of(game)) for name in COMPARED
        }
        what = ", ".join(f"{name} in {count}" for name, count in counts.items() if count)
        if what:
            rows.append([game["game"], *numbers(frames), what])
        else:
            equal, sums = equal + 1, sums + frames
    rows.append([f"{equal} others" if rows else f"all {equal}", *numbers(sums), "nothing"])
    columns = ("", "frames of random play", "with look-ahead", "in other modes", "differ")
    return markdown(columns, rows)
