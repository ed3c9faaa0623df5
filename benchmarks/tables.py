"""Writes the tables of figures in the README and the documentation from `results/`.

    python -m benchmarks.tables

A page marks the place of a table with `<!-- table: NAME -->` and `<!-- end of table -->`. All pages
show results of the same machine and versions, so they cannot disagree; only those of GPUs and some
trainings on Box2D's and MuJoCo's tasks are from other machines.
"""

import collections
import itertools
import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import jaxenvs
from benchmarks import first_step, gpu_kernels
from benchmarks._common import OURS, RESULTS
from benchmarks.atari_exact import COMPARED, parts_of

SETUP = "2core-amd-epyc-py312-jax0.12.0.1"
XEON = "2core-intel-xeon-py312-jax0.12.0.1"
GPU = "nvidia-h100-80gb-hbm3-py312-jax0.11.2"
ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/benchmarks.md",
    "docs/bridge/figures.md",
    "docs/suites/index.md",
    "docs/training/results.md",
    "docs/usage/atari.md",
    "docs/usage/gpu.md",
    "docs/usage/mujoco.md",
    "docs/usage/multi_agent.md",
)
GRIDWORLDS = ("navix", "XLand-MiniGrid", "EnvPool, 1 thread", "minigrid in a pool")
PUBLISHED = {  # scores in RL Baselines3 Zoo, or of CleanRL
    ("PPO", "MiniGrid-DoorKey-5x5-v0"): "0.96",
    ("PPO", "MiniGrid-FourRooms-v0"): "0.57",
    ("PPO", "MiniGrid-KeyCorridorS3R1-v0"): "0.95",
    ("PPO", "MiniGrid-Unlock-v0"): "0.96",
    ("PPO", "LunarLander-v3"): "242, 1,000,000 steps",
    ("DQN", "LunarLander-v3"): "154, 100,000 steps",
    ("PPO", "BipedalWalker-v3"): "288, 5,000,000 steps",
    ("PPO", "HalfCheetah-v5"): "5,819, 1,000,000 steps of version 3",
    ("PPO", "Hopper-v5"): "2,410, 1,000,000 steps of version 3",
    ("PPO", "Ant-v5"): "1,327, 1,000,000 steps of version 3",
    ("PPO", "ALE/Breakout-v5"): "415, CleanRL, 10,000,000 steps",
    ("PPO", "ALE/Pong-v5"): "20.4, CleanRL, 10,000,000 steps",
    ("PPO", "ALE/SpaceInvaders-v5"): "960, 10,000,000 steps",
    ("SAC", "HalfCheetah-v5"): "9,535, 1,000,000 steps of version 3",
    ("SAC", "Hopper-v5"): "2,326, 1,000,000 steps of version 3",
    ("SAC", "Ant-v5"): "4,616, 1,000,000 steps of version 3",
}

Report = dict[str, Any]


def main() -> None:
    """Writes the tables of every page."""
    for page, text in texts().items():
        page.write_text(text, encoding="utf-8")


def texts() -> dict[Path, str]:
    """Returns what each page should contain."""
    return {ROOT / page: fill((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


def fill(text: str) -> str:
    """Returns `text` with all marked tables replaced.

    Raises:
        KeyError: A marker has the name of a table that does not exist.
    """
    return re.sub(
        r"(?s)(<!-- table: (\w+) -->).*?(<!-- end of table -->)",
        lambda found: "\n".join([found[1], *TABLES[found[2]](), found[3]]),
        text,
    )


def summary() -> list[str]:
    """Returns one row for each kind of work, with ratios to other libraries."""
    forms, calls, hosted, trained = map(load, ("forms", "gym_api", "host_bridge", "training"))

    def row(work: str, ours: str, peers: Iterable[str]) -> str:
        return f"| {work} | {ours} | {', '.join(peers)} |"

    cartpole = {"id": "CartPole-v1", "num_envs": 1024}
    speed, gymnax = _form(forms, "a user's loop", **cartpole)
    call = measured(calls, contestant=OURS, **cartpole)["steps_per_second"]
    envpool, gym = (rival(calls, kind, **cartpole)["ratio"] for kind in ("envpool", "vectorized"))
    rows = [
        row(
            "your own `scan` over `step` of CartPole-v1, 1,024 instances",
            f"{digits(speed)} million steps/s",
            [f"gymnax {times(gymnax or ())}"],
        ),
        row(
            "`make_gym(...).step` of CartPole-v1, 1,024 instances",
            f"{digits(1024 / median(call) * 1e6)} µs",
            [f"EnvPool {times([envpool])}", f"Gymnasium's NumPy class {times([gym])}"],
        ),
    ]
    case = "CartPole-v1, N = 64"
    micros = measured(hosted, part="cartpole", case=case, contestant="process")["micros"]
    rows.append(
        row(
            "`make_pool` of Gymnasium's CartPole-v1, 64 instances",
            f"{64_000 / median(micros):.0f} thousand steps/s",
            [
                f"SyncVectorEnv {times(figure(hosted, case, 'process / Gymnasium Sync'))}",
                f"AsyncVectorEnv {times(figure(hosted, case, 'process / Gymnasium Async'))}",
            ],
        )
    )
    for case, work in (
        ("ppo-64x64", "PPO on CartPole-v1, 524,288 steps, 64 × 64"),
        ("dqn-cartpole", "DQN on CartPole-v1, 100,000 steps"),
    ):
        ours = measured(trained, case=case, contestant=OURS)["seconds"]
        peers = [
            f"{name} {times(ratios(theirs['seconds'], ours))}"
            for peer, name in (("purejaxrl", "PureJaxRL"), ("rejax", "rejax"))
            if (theirs := measured(trained, case=case, contestant=peer, missing_ok=True))
        ]
        rows.append(row(work, f"{digits(median(ours))} s", peers))
    return ["| work | jaxenvs | times as fast as |", "|---|---|---|", *rows]


def rollout() -> list[str]:
    """Returns the speed of jitted rollouts of classic control."""
    ids = "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"
    return rollouts(load("rollout"), ids, ("gymnax",))


def families() -> list[str]:
    """Returns the speed of jitted rollouts of the other environments."""
    report = load("families")
    return rollouts(report, ids_of(report), ("gymnax", "pgx", "EnvPool, 1 thread"))


def gpu() -> list[str]:
    """Returns the speed of jitted rollouts on a GPU."""
    ids = "CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v1"
    return rollouts(load("rollout", GPU), ids, ("gymnax",), (1024, 16384, 262144))


def gpu_resets() -> list[str]:
    """Returns the speed of one id on a GPU with each method of automatic resets."""
    report, sizes, id = load("rollout", GPU), (1024, 16384), "MiniGrid-DoorKey-8x8-v0"
    lines = header(f"{id}, instances", sizes)
    for contestant, name in (
        (OURS, "all instances are reset at every step"),
        *((f"{OURS}[reset_chunk={size}]", f"`reset_chunk={size}`") for size in (64, 1024)),
    ):
        cases = [measured(report, id=id, num_envs=n, contestant=contestant) for n in sizes]
        lines.append(line(name, [digits(median(c["steps_per_second"]) / 1e6) for c in cases]))
    return lines


def kernels_on_gpu() -> list[str]:
    """Returns the kernels that each step of a rollout launches on a GPU."""
    return gpu_kernels.table(load("gpu_kernels")).splitlines()


def gpu_pools() -> list[str]:
    """Returns microseconds per step of pools that programs on a GPU step by callbacks."""
    report = load("host_bridge", GPU)

    def micros(case: str, contestant: str) -> str:
        entry = measured(report, case=f"{case}, N = 64, 1,000 steps", contestant=contestant)
        return digits(median(entry["micros"]) / 1000)

    lines = titles("64 instances, µs per step", ("program, by a callback", "Python loop"))
    for case, name, loop in (
        ("no-op", "environments that do nothing", "Python"),
        ("CartPole-v1", "Gymnasium's CartPole-v1, random actions", "Python"),
        ("CartPole-v1 and MLP policy", "the same, an MLP policy", "Python, jitted policy"),
    ):
        lines.append(line(name, [micros(case, "callback"), micros(case, loop)]))
    return lines


def rollouts(
    report: Report,
    ids: Iterable[str],
    peers: Sequence[str],
    sizes: Sequence[int] = (64, 1024, 16384),
) -> list[str]:
    """Returns million steps per second, and the ratios to the peers that have an id."""
    lines = header("instances", sizes)
    for id in ids:
        lines.append(line(id, [speed(report, id, size, peers) for size in sizes]))
    return lines


def speed(report: Report, id: str, num_envs: int, peers: Sequence[str]) -> str:
    """Returns million steps per second, and the ratios to the peers that have the id."""
    case = {"id": id, "num_envs": num_envs}
    ours = measured(report, contestant=OURS, **case)["steps_per_second"]
    ratios = [
        f"{peer.partition(',')[0]} {times(entry['ours_over_this'])}"
        for peer in peers
        if (entry := measured(report, contestant=peer, missing_ok=True, **case))
    ]
    beside = f" ({', '.join(ratios)})" if ratios else ""
    return digits(median(ours) / 1e6) + beside


def rollout_forms() -> list[str]:
    """Returns the speed of each way to write a rollout, and the ratio to gymnax of the same."""
    report = load("forms")
    cases = list(dict.fromkeys((m["id"], m["num_envs"]) for m in report["measurements"]))
    names = dict.fromkeys(m["contestant"] for m in report["measurements"])
    lines = titles("form", [f"{id}, N = {number:,}" for id, number in cases])
    for name in names:
        if not name.startswith("gymnax"):
            row = []
            for id, number in cases:
                speed, ratio = _form(report, name, id=id, num_envs=number)
                row.append(digits(speed) + (f" (gymnax {times(ratio)})" if ratio else ""))
            lines.append(line(name, row))
    return lines


def _form(report: Report, name: str, **case: Any) -> tuple[float, list[float] | None]:
    """Returns million steps per second of a form of a rollout, and the ratios to gymnax's."""
    ours, gymnax = (
        measured(report, contestant=prefix + name, missing_ok=True, **case)
        for prefix in ("", "gymnax: ")
    )
    ratio = gymnax and ratios(ours["steps_per_second"], gymnax["steps_per_second"])
    return median(ours["steps_per_second"]) / 1e6, ratio


def minigrid() -> list[str]:
    """Returns the speed of jitted rollouts of MiniGrid and BabyAI."""
    report = load("minigrid")
    return rollouts(report, [id for id in ids_of(report) if "," not in id], GRIDWORLDS)


def minigrid_limits() -> list[str]:
    """Returns the speed of 1,024 instances with other time limits."""
    report, limits = load("minigrid"), (10, 100, 1000)
    lines, first = header("time limit", limits), f", {limits[0]} steps"
    for id in [id.removesuffix(first) for id in ids_of(report) if id.endswith(first)]:
        names = [f"{id}, {limit} steps" for limit in limits]
        lines.append(line(id, [speed(report, name, 1024, GRIDWORLDS) for name in names]))
    return lines


def suites() -> list[str]:
    """Environments of other JAX libraries: the cost of the adapter, the gain with resets."""
    rows = [
        line(
            f"`{entry['id']}`",
            [
                f"{median(entry['cost']):.2f}",
                digits(median(entry["steps_per_second"]) / 1e6),
                times(entry["gain"]),
                f"{entry['episode_length']:,.0f}",
            ],
        )
        for entry in load("suites")["measurements"]
    ]
    columns = (
        "time of a step without resets, this / library",
        "million steps/s with resets",
        "speed with resets, this / library",
        "steps per episode",
    )
    return [*titles("id", columns), *rows]


def physics() -> list[str]:
    """Returns the speed of MuJoCo tasks inside of `jit`, with ratios to EnvPool."""
    report, sizes = load("physics"), (64, 256, 1024)
    cases = [(size, threads) for size in sizes for threads in (1, 2)]
    columns = [f"{size:,}, {threads} thread{'s' * (threads > 1)}" for size, threads in cases]
    lines = titles("instances", columns)
    for id in ids_of(report):
        lines.append(line(id, [_beside(report, id, *case, "jit", "EnvPool") for case in cases]))
    return lines


def physics_python() -> list[str]:
    """Returns the speed of MuJoCo tasks stepped from Python on two threads, with ratios."""
    report = load("physics")
    columns = ("`make_gym`, 16", "`make_gym`, 64", "pool of Gymnasium's, 64")
    lines = titles("instances", columns)
    for id in ids_of(report):
        cells = [_beside(report, id, size, 2, "make_gym", "EnvPool") for size in (16, 64)]
        lines.append(line(id, [*cells, _beside(report, id, 64, 2, "pool", "EnvPool")]))
    return lines


def physics_single() -> list[str]:
    """Returns the speed of one instance of MuJoCo tasks, with ratios to Gymnasium."""
    report = load("physics")
    lines = titles("one instance", ("inside of `jit`", "`make_gym`"))
    for id in ids_of(report):
        names = ("jit", "make_gym")
        lines.append(line(id, [_beside(report, id, 1, 1, name, "Gymnasium") for name in names]))
    return lines


def atari() -> list[str]:
    """Returns the speed of games of Atari with 256 instances, with ratios."""
    report = load("atari")
    cells = (("jit", 1), ("jit", 2), ("make_gym", 2), ("ram", 2))
    columns = ("pictures, 1 thread", "2 threads", "`make_gym`, 2 threads", "memory, 2 threads")
    lines = titles("thousand steps/s", columns)
    for game in dict.fromkeys(entry["game"] for entry in report["measurements"]):
        row = []
        for ours, threads in cells:
            case = {"game": game, "num_envs": 256, "threads": threads}
            own = measured(report, contestant=ours, **case)["steps_per_second"]
            beside = [
                times(ratios(own, measured(report, contestant=peer, **case)["steps_per_second"]))
                for peer in ("EnvPool", "AtariVectorEnv")
            ]
            row.append(f"{digits(median(own) / 1e3)} ({', '.join(beside)})")
        lines.append(line(game, row))
    return lines


def atari_sizes() -> list[str]:
    """Returns how many times as fast as others games of Atari are, in the median and the worst."""
    speeds: dict[Any, dict[str, list[float]]] = collections.defaultdict(dict)
    for entry in load("atari")["measurements"]:
        case = entry["num_envs"], entry["threads"], entry["contestant"]
        speeds[case][entry["game"]] = entry["steps_per_second"]
    peers = list(itertools.product(("EnvPool", "AtariVectorEnv"), (1, 2)))
    names = [f"{name}, {threads} thread{'s' * (threads > 1)}" for name, threads in peers]
    lines = titles("N", names)
    for num_envs in (16, 64, 256):
        cells = []
        for name, threads in peers:
            ours, theirs = (speeds[num_envs, threads, which] for which in ("jit", name))
            found = [median(ratios(ours[game], theirs[game])) for game in ours]
            cells.append(f"{median(found):.2f}× ({min(found):.2f}×)")
        lines.append(line(f"{num_envs:,}", cells))
    return lines


def atari_exact() -> list[str]:
    """Returns how many frames of games were compared with ale_py's, and what differs."""
    lines = titles("", ("frames of random play", "with look-ahead", "in other modes", "differ"))
    equal, sums = 0, np.zeros(3, int)
    for game in load("atari_exact")["measurements"]:
        modes = sum(part["frames"] for part in game["modes"])
        frames = np.array([game["random"]["frames"], game["planned"]["frames"], modes])
        counts = {
            name: sum(part["mismatches"][name] for part in parts_of(game)) for name in COMPARED
        }
        what = ", ".join(f"{name} in {count}" for name, count in counts.items() if count)
        if what:
            lines.append(line(game["game"], [*(f"{n:,}" for n in frames), what]))
        else:
            equal, sums = equal + 1, sums + frames
    name = f"{equal} others" if len(lines) > 2 else f"all {equal}"
    return [*lines, line(name, [*(f"{n:,}" for n in sums), "nothing"])]


def _beside(report: Report, id: str, num_envs: int, threads: int, ours: str, peer: str) -> str:
    """Returns thousand steps per second, and the ratio to a peer."""
    case = {"id": id, "num_envs": num_envs, "threads": threads}
    own, theirs = (
        measured(report, contestant=name, **case)["steps_per_second"] for name in (ours, peer)
    )
    return f"{digits(median(own) / 1e3)} ({times(ratios(own, theirs))} {peer})"


def agents() -> list[str]:
    """Returns what the greedy policies of several agents score."""
    rows = [
        line(
            entry["task"],
            [
                f"{entry['steps'] / 1e6:g} million",
                name,
                f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})",
            ],
        )
        for entry in load("agents")["measurements"]
        for name, values in entry["scores"].items()
    ]
    columns = ("steps of one agent", "score", "median (range) of the seeds")
    return [*titles("task", columns), *rows]


def numpy_interface() -> list[str]:
    """Returns microseconds per call of `step` with CartPole-v1, and ratios to jaxenvs."""
    report = load("gym_api")
    envpool = f"EnvPool {version(report, 'envpool')}, the better of 1 and 2 threads"
    return _calls(report, {"envpool": envpool, "vectorized": _vectorized_class(report)})


def numpy_busy() -> list[str]:
    """Returns the same while other processes keep all cores but one busy."""
    report = load("gym_api_busy")
    return _calls(report, {"vectorized": _vectorized_class(report)})


def _vectorized_class(report: Report) -> str:
    return f"Gymnasium {version(report, 'gymnasium')}, its own vectorized class"


def _calls(report: Report, peers: Mapping[str, str]) -> list[str]:
    """Returns microseconds per call of `step` with CartPole-v1: ours, and kinds of peers."""
    sizes = 1, 16, 64, 1024, 4096, 16384

    def micros(size: int, contestant: str) -> str:
        entry = measured(report, id="CartPole-v1", num_envs=size, contestant=contestant)
        return digits(size / median(entry["steps_per_second"]) * 1e6)

    lines = header("instances", sizes)
    lines.append(line("`jaxenvs.make_gym`", [micros(size, OURS) for size in sizes]))
    for kind, name in peers.items():
        rivals = [rival(report, kind, id="CartPole-v1", num_envs=size) for size in sizes]
        cells = [
            f"{micros(size, peer['contestant'])} ({times([peer['ratio']])})"
            for size, peer in zip(sizes, rivals, strict=True)
        ]
        lines.append(line(name, cells))
    return lines


def first_steps() -> list[str]:
    """Returns processor seconds of the first `reset` and `step` of 64 instances, by family."""
    families: dict[str, list[tuple[float, str]]] = {}
    for entry in load("first_step")["measurements"]:
        family = jaxenvs.registry[entry["id"]].family
        families.setdefault(family, []).append((first_step.total(entry), entry["id"]))
    lines = titles("family", ("classes", "median", "most", "id of the most"))
    for family, found in sorted(families.items(), key=lambda item: max(item[1])):
        most, id = max(found)
        middle = median([seconds for seconds, _ in found])
        lines.append(line(family, (str(len(found)), digits(middle), digits(most), id)))
    return lines


def numpy_toy_text() -> list[str]:
    """Returns microseconds per call of `step` in toy text, and ratios to jaxenvs."""
    report, sizes = load("gym_api_toy_text"), (1, 64, 1024, 16384)
    lines = header("instances", sizes)
    for id in ids_of(report):
        cells = []
        for size in sizes:
            case = {"id": id, "num_envs": size}
            ours = median(measured(report, contestant=OURS, **case)["steps_per_second"])
            peer = rival(report, "envpool", **case)["ratio"]
            cells.append(f"{digits(size / ours * 1e6)} ({times([peer])})")
        lines.append(line(id, cells))
    return lines


def pools() -> list[str]:
    """Returns thousand steps per second of Gymnasium's CartPole-v1 in pools, and ratios."""
    report, sizes = load("host_bridge"), (16, 64, 256)
    gymnasium, puffer = version(report, "gymnasium"), version(report, "pufferlib-core")
    speeds = []
    for size in sizes:
        case = {"part": "cartpole", "num_envs": size, "contestant": "process"}
        speeds.append(f"{size * 1e3 / median(measured(report, **case)['micros']):.0f}")
    lines = [*header("instances", sizes), line('`backend="process"`, 2 workers', speeds)]
    for name, figures in (
        (f"Gymnasium {gymnasium}, `SyncVectorEnv`", "process / Gymnasium Sync"),
        (f"Gymnasium {gymnasium}, `AsyncVectorEnv`", "process / Gymnasium Async"),
        (f"PufferLib {puffer}, the fastest of its backends", "process / Puffer"),
        ('`SyncVectorEnv`, `backend="serial"` in place of `"process"`', "serial / Gymnasium Sync"),
    ):
        cases = [f"CartPole-v1, N = {size}" for size in sizes]
        lines.append(line(name, [times(figure(report, case, figures)) for case in cases]))
    return lines


def bridge() -> list[str]:
    """Returns the other measurements of pools."""
    report = load("host_bridge")

    def one(part: str, case: str, name: str) -> float:
        return median(
            _only(report["figures"], {"part": part, "case": case, "name": name})["values"]
        )

    def auto(pattern: str) -> str:
        found = [
            median(entry["values"])
            for entry in report["figures"]
            if entry["part"] == "auto" and re.fullmatch(pattern, entry["case"])
        ]
        return f"{min(found):.2f} to {digits(max(found))}"

    cartpole = "CartPole-v1, N = 64, 1,000 steps"
    with_policy = "CartPole-v1 and MLP policy, N = 64, 1,000 steps"
    nothing = one("in_jit", "10,000 calls of nothing", "µs a call")
    idle = one("in_jit", "no-op, N = 64, 1,000 steps", "FFI, µs a step")
    shares = [
        one(
            "partial",
            f"log-normal {micros} µs, N = 16, one 100 times slower",
            "process, share of the ideal",
        )
        for micros in (10_000, 1_000, 100)
    ]
    copies = [
        one("growth", f"recv of 16 observations of {size:,} B", "recv / memcpy, time")
        for size in (2**18, 2**20)
    ]
    hidden = one("overlap", "1 ms each, N = 16, 1 worker", "share of the shorter that is hidden")
    rows = (
        (
            '`"auto"`, times as fast as `SyncVectorEnv`: steps that compute for 1 µs to 10 ms,'
            " N = 4 to 1,024",
            auto(r"busy \d+ µs, N = (4|\d{2,})"),
        ),
        ("the same, steps that sleep", auto(r"sleeping \d+ µs, N = (4|\d{2,})")),
        (
            "the same, N = 1, or next to a process that keeps a core busy",
            auto(r".*, N = 1|.*, a core burning"),
        ),
        (
            'Atari Pong, 84×84×4, N = 16: `"process"`, times as fast as `AsyncVectorEnv`',
            digits(one("atari", "Pong, N = 16", "process / Gymnasium Async")),
        ),
        (
            'ale_py\'s `AtariVectorEnv` through `"native"`, times as fast as alone',
            digits(one("atari", "Pong, AtariVectorEnv, N = 16", "native / AtariVectorEnv alone")),
        ),
        (
            'EnvPool through `"native"`, times as fast as alone',
            digits(one("atari", "Pong, EnvPool, N = 16", "native / EnvPool alone")),
        ),
        *(
            (
                f'200 environments that wait 1 ms: `"{name}"`, times as fast as `"serial"`',
                digits(one("waiting", "200 that wait 1 ms", f"{name} / serial")),
            )
            for name in ("asyncio", "thread")
        ),
        ("inside `jit`: an empty custom call", f"{nothing:.2f} µs"),
        ("inside `jit`: a step of 64 environments that do nothing, in a scan", f"{idle:.0f} µs"),
        (
            "64 CartPoles in a scan, times as fast as the same pool from Python",
            digits(one("in_jit", cartpole, "FFI / Python")),
        ),
        (
            "the same with an MLP policy, times as fast as a Python loop around the jitted policy",
            digits(one("in_jit", with_policy, "FFI / Python")),
        ),
        (
            "the same through a callback instead of the custom call",
            digits(one("in_jit", with_policy, "callback / Python")),
        ),
        ("device work hidden behind stepping, 1 ms each, 1 worker", f"{hidden:.0%}"),
        (
            "`send` and `recv` of half of 16, one of them 100 times slower, share of the ideal:"
            " steps of 10 ms, 1 ms, 100 µs",
            ", ".join(f"{share:.0%}" for share in shares),
        ),
        (
            "`recv`, times as long as memcpy: observations of 256 KB, 1 MB",
            ", ".join(map(digits, copies)),
        ),
    )
    return ["| | |", "|---|---|", *(line(name, [value]) for name, value in rows)]


def trainings() -> list[str]:
    """Returns seconds of whole training runs, and ratios to jaxenvs."""
    report = load("training")
    lines = [
        f"| | `jaxenvs.training` | PureJaxRL | rejax {version(report, 'rejax')} |",
        "|---|---|---|---|",
    ]
    for case, name in (
        ("ppo-4x128", "PPO, CartPole-v1, 524,288 steps, 4 instances × 128 steps"),
        ("ppo-64x64", "64 × 64"),
        ("ppo-512x32", "512 × 32"),
        ("ppo-64x64-8seeds", "64 × 64, 8 seeds vmapped"),
        ("ppo-64x64-32seeds", "32 seeds"),
        ("dqn-cartpole", "DQN, CartPole-v1, 100,000 steps"),
        ("sac-pendulum", "SAC, Pendulum-v1, 6,000 steps"),
    ):
        ours = measured(report, case=case, contestant=OURS)["seconds"]
        cells = [digits(median(ours))]
        for peer in ("purejaxrl", "rejax"):
            theirs = measured(report, case=case, contestant=peer, missing_ok=True)
            seconds = theirs and theirs["seconds"]
            cells.append(
                f"{digits(median(seconds))} ({times(ratios(seconds, ours))})" if seconds else ""
            )
        lines.append(line(name, cells))
    return lines


def returns(*families: str) -> list[str]:
    """Returns what is reached on the ids of some families, beside published scores."""
    entries = [
        entry for setup in (SETUP, XEON) for entry in load("learning", setup)["measurements"]
    ]
    lines = titles("", ("steps", "seeds", "median", "worst, best", "published"))
    for entry in entries:
        spec = jaxenvs.registry.get(entry["id"])
        if spec is not None and spec.family in families:
            scores = entry["scores"]
            cells = (
                f"{entry['steps']:,}",
                str(len(scores)),
                digits(median(scores)),
                f"{digits(min(scores))}, {digits(max(scores))}",
                PUBLISHED.get((entry["task"].split()[0], entry["id"]), ""),
            )
            lines.append(line(entry["task"], cells))
    return lines


def minatar() -> list[str]:
    """Returns what the algorithms reach on MinAtar's games, beside published scores."""
    report, algorithms = load("learning"), ("PQN", "DQN", "PPO")
    published = "DQN of MinAtar's authors, 5,000,000 steps", "PPO of pgx, 20,000,000 steps"
    lines = titles("", (*algorithms, *published))
    for game, dqn, ppo in (
        ("Asterix", "17", "22 to 25"),
        ("Breakout", "10", "50"),
        ("Freeway", "50", "63"),
        ("Seaquest", "20", "54"),
        ("SpaceInvaders", "43", "145 to 153"),
    ):
        cells = []
        for algorithm in algorithms:
            task = f"{algorithm} CNN MinAtar/{game}-v0"
            if entry := measured(report, task=task, missing_ok=True):
                middle, worst = (digits(choose(entry["scores"])) for choose in (median, min))
                cells.append(f"{middle} ({worst}), {entry['steps']:,} steps")
            else:
                cells.append("—")
        lines.append(line(game, [*cells, dqn, ppo]))
    return lines


TABLES: dict[str, Callable[[], list[str]]] = {
    "agents": agents,
    "atari": atari,
    "atari_exact": atari_exact,
    "atari_sizes": atari_sizes,
    "atari_returns": partial(returns, "atari"),
    "summary": summary,
    "rollout": rollout,
    "rollout_forms": rollout_forms,
    "families": families,
    "numpy_busy": numpy_busy,
    "numpy_interface": numpy_interface,
    "numpy_toy_text": numpy_toy_text,
    "pools": pools,
    "bridge": bridge,
    "trainings": trainings,
    "minatar": minatar,
    "first_steps": first_steps,
    "gpu": gpu,
    "gpu_kernels": kernels_on_gpu,
    "gpu_pools": gpu_pools,
    "gpu_resets": gpu_resets,
    "minigrid": minigrid,
    "minigrid_limits": minigrid_limits,
    "minigrid_returns": partial(returns, "minigrid"),
    "physics_returns": partial(returns, "box2d", "mujoco"),
    "physics": physics,
    "physics_python": physics_python,
    "physics_single": physics_single,
    "suites": suites,
}


@cache
def load(benchmark: str, setup: str = SETUP) -> Report:
    """Returns the report of a benchmark that the pages show."""
    return json.loads((RESULTS / f"{benchmark}-{setup}.json").read_text(encoding="utf-8"))


def ids_of(report: Report) -> list[str]:
    """Returns the ids that were measured, in order."""
    return list(dict.fromkeys(entry["id"] for entry in report["measurements"]))


def measured(report: Report, *, missing_ok: bool = False, **wanted: Any) -> Any:
    """Returns the one measurement with these values."""
    return _only(report["measurements"], wanted, missing_ok)


def rival(report: Report, kind: str, **wanted: Any) -> Any:
    """Returns the ratio to the fastest contestant of a kind."""
    return _only(report["ratios"], {"kind": kind, **wanted})


def figure(report: Report, case: str, start: str) -> Sequence[float]:
    """Returns the samples of the figure in `case` whose name starts with `start`."""
    found = [
        entry["values"]
        for entry in report["figures"]
        if entry["case"] == case and entry["name"].startswith(start)
    ]
    (samples,) = found
    return samples


def _only(entries: Iterable[Any], wanted: dict[str, Any], missing_ok: bool = False) -> Any:
    found = [entry for entry in entries if wanted.items() <= entry.items()]
    if missing_ok and not found:
        return None
    (entry,) = found
    return entry


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    """Returns the ratio within each repetition."""
    return [their / own for their, own in zip(theirs, ours, strict=True)]


def version(report: Report, package: str) -> str:
    return report["machine"]["versions"][package]


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def digits(value: float) -> str:
    """Returns three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(samples: Sequence[float]) -> str:
    """Returns the median of ratios, such as 4.75×."""
    middle = median(samples)
    return f"{middle:.1f}×" if middle >= 10 else f"{middle:.2f}×"


def header(corner: str, sizes: Sequence[int]) -> list[str]:
    return titles(corner, [f"{size:,}" for size in sizes])


def titles(corner: str, columns: Sequence[str]) -> list[str]:
    return [line(corner, columns), "|---" * (len(columns) + 1) + "|"]


def line(name: str, cells: Iterable[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
