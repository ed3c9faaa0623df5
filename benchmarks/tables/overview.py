"""Jaxenvs beside other libraries, in a few rows."""

from benchmarks._common import OURS, markdown
from benchmarks.tables._cells import digits, median, ratios, table, times
from benchmarks.tables._reports import figure, load, measured, rival
from benchmarks.tables.rollouts import form


@table
def summary() -> list[str]:
    """Returns one row for each kind of work, with ratios to other libraries."""
    forms, calls, hosted, trained = map(load, ("forms", "gym_api", "host_bridge", "training"))

    cartpole = {"id": "CartPole-v1", "num_envs": 1024}
    speed, gymnax = form(forms, "a user's loop", **cartpole)
    call = measured(calls, contestant=OURS, **cartpole)["steps_per_second"]
    envpool, gym = (rival(calls, kind, **cartpole)["ratio"] for kind in ("envpool", "vectorized"))
    case = "CartPole-v1, N = 64"
    micros = measured(hosted, part="cartpole", case=case, contestant="process")["micros"]
    sync, others = (
        figure(hosted, case, f"process / Gymnasium {name}") for name in ("Sync", "Async")
    )
    rows = [
        (
            "your own `scan` over `step` of CartPole-v1, 1,024 instances",
            f"{digits(speed)} million steps/s",
            f"gymnax {times(gymnax or ())}",
        ),
        (
            "`make_gym(...).step` of CartPole-v1, 1,024 instances",
            f"{digits(1024 / median(call) * 1e6)} µs",
            f"EnvPool {times([envpool])}, Gymnasium's NumPy class {times([gym])}",
        ),
        (
            "`make_pool` of Gymnasium's CartPole-v1, 64 instances",
            f"{64_000 / median(micros):.0f} thousand steps/s",
            f"SyncVectorEnv {times(sync)}, AsyncVectorEnv {times(others)}",
        ),
    ]
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
        rows.append((work, f"{digits(median(ours))} s", ", ".join(peers)))
    return markdown(("work", "jaxenvs", "times as fast as"), rows)
