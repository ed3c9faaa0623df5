"""How fast Python steps: the NumPy interface, and pools of other environments."""

import re
from collections.abc import Mapping

from benchmarks._common import OURS, markdown
from benchmarks.tables._cells import digits, median, numbers, table, times
from benchmarks.tables._reports import GPU, Report, figure, ids_of, load, measured, rival, version


@table
def numpy_interface() -> list[str]:
    """Returns microseconds per call of `step` with CartPole-v1, and ratios to jaxenvs."""
    report = load("gym_api")
    envpool = f"EnvPool {version(report, 'envpool')}, the better of 1 and 2 threads"
    return _calls(report, {"envpool": envpool, "vectorized": _vectorized_class(report)})


@table
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

    def peer(kind: str, size: int) -> str:
        best = rival(report, kind, id="CartPole-v1", num_envs=size)
        return f"{micros(size, best['contestant'])} ({times([best['ratio']])})"

    ours = ["`jaxenvs.make_gym`", *(micros(size, OURS) for size in sizes)]
    theirs = ([name, *(peer(kind, size) for size in sizes)] for kind, name in peers.items())
    return markdown(("instances", *numbers(sizes)), [ours, *theirs])


@table
def numpy_toy_text() -> list[str]:
    """Returns microseconds per call of `step` in toy text, and ratios to jaxenvs."""
    report, sizes = load("gym_api_toy_text"), (1, 64, 1024, 16384)

    def cell(id: str, size: int) -> str:
        case = {"id": id, "num_envs": size}
        ours = median(measured(report, contestant=OURS, **case)["steps_per_second"])
        return f"{digits(size / ours * 1e6)} ({times([rival(report, 'envpool', **case)['ratio']])})"

    rows = ([id, *(cell(id, size) for size in sizes)] for id in ids_of(report))
    return markdown(("instances", *numbers(sizes)), rows)


@table
def pools() -> list[str]:
    """Returns thousand steps per second of Gymnasium's CartPole-v1 in pools, and ratios."""
    report, sizes = load("host_bridge"), (16, 64, 256)
    gymnasium, puffer = version(report, "gymnasium"), version(report, "pufferlib-core")
    rows = [['`backend="process"`, 2 workers']]
    for size in sizes:
        ours = measured(report, part="cartpole", num_envs=size, contestant="process")
        rows[0].append(f"{size * 1e3 / median(ours['micros']):.0f}")
    for name, start in (
        (f"Gymnasium {gymnasium}, `SyncVectorEnv`", "process / Gymnasium Sync"),
        (f"Gymnasium {gymnasium}, `AsyncVectorEnv`", "process / Gymnasium Async"),
        (f"PufferLib {puffer}, the fastest of its backends", "process / Puffer"),
        ('`SyncVectorEnv`, `backend="serial"` in place of `"process"`', "serial / Gymnasium Sync"),
    ):
        cases = [f"CartPole-v1, N = {size}" for size in sizes]
        rows.append([name, *(times(figure(report, case, start)) for case in cases)])
    return markdown(("instances", *numbers(sizes)), rows)


@table
def bridge() -> list[str]:
    """Returns the other measurements of pools."""
    report = load("host_bridge")

    def one(part: str, case: str, start: str) -> float:
        return median(figure(report, case, start, part=part))

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
    slow = "log-normal {} µs, N = 16, one 100 times slower"
    shares = [
        one("partial", slow.format(micros), "process, share") for micros in (10_000, 1_000, 100)
    ]
    copies = [
        one("growth", f"recv of 16 observations of {size:,} B", "recv / memcpy, time")
        for size in (2**18, 2**20)
    ]
    hidden = one("overlap", "1 ms each, N = 16, 1 worker", "share of the shorter")
    busy = "steps that compute for 1 µs to 10 ms, N = 4 to 1,024"
    rows = {
        f'`"auto"`, times as fast as `SyncVectorEnv`: {busy}': auto(r"busy \d+ µs, N = (4|\d{2,})"),
        "the same, steps that sleep": auto(r"sleeping \d+ µs, N = (4|\d{2,})"),
        "the same, N = 1, or next to a process that keeps a core busy": auto(
            r".*, N = 1|.*, a core burning"
        ),
        'Atari Pong, 84×84×4, N = 16: `"process"`, times as fast as `AsyncVectorEnv`': one(
            "atari", "Pong, N = 16", "process / Gymnasium Async"
        ),
        'ale_py\'s `AtariVectorEnv` through `"native"`, times as fast as alone': one(
            "atari", "Pong, AtariVectorEnv, N = 16", "native / AtariVectorEnv alone"
        ),
        'EnvPool through `"native"`, times as fast as alone': one(
            "atari", "Pong, EnvPool, N = 16", "native / EnvPool alone"
        ),
        **{
            f'200 environments that wait 1 ms: `"{name}"`, times as fast as `"serial"`': one(
                "waiting", "200 that wait 1 ms", f"{name} / serial"
            )
            for name in ("asyncio", "thread")
        },
        "inside `jit`: an empty custom call": f"{nothing:.2f} µs",
        "inside `jit`: a step of 64 environments that do nothing, in a scan": f"{idle:.0f} µs",
        "64 CartPoles in a scan, times as fast as the same pool from Python": one(
            "in_jit", cartpole, "FFI / Python"
        ),
        "the same with an MLP policy, times as fast as a Python loop around the jitted policy": one(
            "in_jit", with_policy, "FFI / Python"
        ),
        "the same through a callback instead of the custom call": one(
            "in_jit", with_policy, "callback / Python"
        ),
        "device work hidden behind stepping, 1 ms each, 1 worker": f"{hidden:.0%}",
        "`send` and `recv` of half of 16, one of them 100 times slower, share of the ideal:"
        " steps of 10 ms, 1 ms, 100 µs": ", ".join(f"{share:.0%}" for share in shares),
        "`recv`, times as long as memcpy: observations of 256 KB, 1 MB": ", ".join(
            map(digits, copies)
        ),
    }
    cells = {name: x if isinstance(x, str) else digits(x) for name, x in rows.items()}
    return ["| | |", *markdown(("", ""), cells.items())[1:]]


@table
def gpu_pools() -> list[str]:
    """Returns microseconds per step of pools that programs on a GPU step by callbacks."""
    report = load("host_bridge", GPU)

    def micros(case: str, contestant: str) -> str:
        entry = measured(report, case=f"{case}, N = 64, 1,000 steps", contestant=contestant)
        return digits(median(entry["micros"]) / 1000)

    cases = (
        ("no-op", "environments that do nothing", "Python"),
        ("CartPole-v1", "Gymnasium's CartPole-v1, random actions", "Python"),
        ("CartPole-v1 and MLP policy", "the same, an MLP policy", "Python, jitted policy"),
    )
    rows = ([name, micros(case, "callback"), micros(case, loop)] for case, name, loop in cases)
    return markdown(("64 instances, µs per step", "program, by a callback", "Python loop"), rows)
