"""How fast programs step: rollouts, their forms, other libraries, and what compiling takes."""

from collections.abc import Iterable, Sequence
from typing import Any

import jaxenvs
from benchmarks import first_step
from benchmarks import gpu_kernels as kernels
from benchmarks._common import OURS, markdown
from benchmarks.tables._cells import digits, median, numbers, ratios, table, times
from benchmarks.tables._reports import GPU, Report, ids_of, load, measured

GRIDWORLDS = ("navix", "XLand-MiniGrid", "EnvPool, 1 thread", "minigrid in a pool")


@table
def rollout() -> list[str]:
    """Returns the speed of jitted rollouts of classic control."""
    ids = "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"
    return rollouts(load("rollout"), ids, ("gymnax",))


@table
def families() -> list[str]:
    """Returns the speed of jitted rollouts of the other environments."""
    report = load("families")
    return rollouts(report, ids_of(report), ("gymnax", "pgx", "EnvPool, 1 thread"))


@table
def minigrid() -> list[str]:
    """Returns the speed of jitted rollouts of MiniGrid and BabyAI."""
    report = load("minigrid")
    return rollouts(report, [id for id in ids_of(report) if "," not in id], GRIDWORLDS)


@table
def minigrid_limits() -> list[str]:
    """Returns the speed of 1,024 instances with other time limits."""
    report, limits = load("minigrid"), (10, 100, 1000)
    ids = [id.removesuffix(", 10 steps") for id in ids_of(report) if id.endswith(", 10 steps")]

    def row(id: str) -> list[str]:
        names = [f"{id}, {limit} steps" for limit in limits]
        return [id, *(speed(report, name, 1024, GRIDWORLDS) for name in names)]

    return markdown(("time limit", *numbers(limits)), map(row, ids))


@table
def gpu() -> list[str]:
    """Returns the speed of jitted rollouts on a GPU."""
    ids = "CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v1"
    return rollouts(load("rollout", GPU), ids, ("gymnax",), (1024, 16384, 262144))


@table
def gpu_resets() -> list[str]:
    """Returns the speed of one id on a GPU with each method of automatic resets."""
    report, sizes, id = load("rollout", GPU), (1024, 16384), "MiniGrid-DoorKey-8x8-v0"
    rows = []
    for contestant, name in (
        (OURS, "all instances are reset at every step"),
        *((f"{OURS}[reset_chunk={size}]", f"`reset_chunk={size}`") for size in (64, 1024)),
    ):
        cases = [measured(report, id=id, num_envs=n, contestant=contestant) for n in sizes]
        rows.append([name, *(digits(median(c["steps_per_second"]) / 1e6) for c in cases)])
    return markdown((f"{id}, instances", *numbers(sizes)), rows)


def rollouts(
    report: Report,
    ids: Iterable[str],
    peers: Sequence[str],
    sizes: Sequence[int] = (64, 1024, 16384),
) -> list[str]:
    """Returns million steps per second, and the ratios to the peers that have an id."""
    rows = ([id, *(speed(report, id, size, peers) for size in sizes)] for id in ids)
    return markdown(("instances", *numbers(sizes)), rows)


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


@table
def rollout_forms() -> list[str]:
    """Returns the speed of each way to write a rollout, and the ratio to gymnax of the same."""
    report = load("forms")
    cases = list(dict.fromkeys((m["id"], m["num_envs"]) for m in report["measurements"]))
    names = dict.fromkeys(m["contestant"] for m in report["measurements"])

    def cell(name: str, id: str, num_envs: int) -> str:
        speed, ratio = form(report, name, id=id, num_envs=num_envs)
        return digits(speed) + (f" (gymnax {times(ratio)})" if ratio else "")

    return markdown(
        ("form", *(f"{id}, N = {number:,}" for id, number in cases)),
        (
            [name, *(cell(name, *case) for case in cases)]
            for name in names
            if not name.startswith("gymnax")
        ),
    )


def form(report: Report, name: str, **case: Any) -> tuple[float, list[float] | None]:
    """Returns million steps per second of a form of a rollout, and the ratios to gymnax's."""
    ours, gymnax = (
        measured(report, contestant=prefix + name, missing_ok=True, **case)
        for prefix in ("", "gymnax: ")
    )
    ratio = gymnax and ratios(ours["steps_per_second"], gymnax["steps_per_second"])
    return median(ours["steps_per_second"]) / 1e6, ratio


@table
def gpu_kernels() -> list[str]:
    """Returns the kernels that each step of a rollout launches on a GPU."""
    return kernels.table(load("gpu_kernels")).splitlines()


@table
def suites() -> list[str]:
    """Environments of other JAX libraries: the cost of the adapter, the gain with resets."""
    columns = (
        "id",
        "time of a step without resets, this / library",
        "million steps/s with resets",
        "speed with resets, this / library",
        "steps per episode",
    )
    rows = (
        [
            f"`{entry['id']}`",
            f"{median(entry['cost']):.2f}",
            digits(median(entry["steps_per_second"]) / 1e6),
            times(entry["gain"]),
            f"{entry['episode_length']:,.0f}",
        ]
        for entry in load("suites")["measurements"]
    )
    return markdown(columns, rows)


@table
def first_steps() -> list[str]:
    """Returns processor seconds of the first `reset` and `step` of 64 instances, by family."""
    families: dict[str, list[tuple[float, str]]] = {}
    for entry in load("first_step")["measurements"]:
        family = jaxenvs.registry[entry["id"]].family
        families.setdefault(family, []).append((first_step.total(entry), entry["id"]))
    rows = []
    for family, found in sorted(families.items(), key=lambda item: max(item[1])):
        most, id = max(found)
        middle = median([seconds for seconds, _ in found])
        rows.append([family, str(len(found)), digits(middle), digits(most), id])
    return markdown(("family", "classes", "median", "most", "id of the most"), rows)
