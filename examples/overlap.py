"""Learns while hosted environments step, in one jitted program.

`step` waits for the environments. `send` only sends the actions, and code between `send` and `recv`
runs while the environments step. Here a model learns from the previous batch.

python examples/overlap.py --num-envs 4 --milliseconds 1.0
"""

import argparse
import statistics
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxenvs
from jaxenvs.bridge.jit import after

SIZE = 64  # of an observation


class Simulator(gymnasium.Env):
    """An environment whose step takes a given time, either computing or waiting."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float, computes: bool) -> None:
        self.seconds, self.computes = seconds, computes

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=SIZE).astype(np.float32)
        return self.position, {}

    def step(self, action):
        end = time.perf_counter() + self.seconds
        self.position = self.position + np.float32(0.01 if action else -0.01)
        if not self.computes:
            time.sleep(self.seconds)
        while time.perf_counter() < end:
            pass
        return self.position, 0.0, False, False, {}


def act(weights, observation):
    return (jnp.sum(observation @ weights, axis=1) > 0).astype(jnp.int32)


def learn(weights, observation, updates):
    """Stands for learning from a batch: a number of updates, each with two matrix products."""

    def update(_, weights):
        return weights + 0.01 * (jnp.tanh(observation.T @ (observation @ weights)) - weights)

    return lax.fori_loop(0, updates, update, weights)


def step_then_learn(env, carry, updates):
    weights, state, observation = carry
    state, timestep = env.step(state, act(weights, observation), jax.random.key(0))
    weights = learn(weights, timestep.observation, updates)
    return weights, state, timestep.observation


def learn_while_stepping(env, carry, updates):
    weights, state, observation = carry
    state = env.send(state, act(weights, observation))
    weights = learn(weights, after(observation, state), updates)  # starts after `send`
    state, timestep = env.recv(after(state, weights))  # receives after learning
    return weights, state, timestep.observation


def learn_alone(env, carry, updates):
    weights, state, observation = carry
    return learn(weights, observation, updates), state, observation


def main(
    num_envs: int = 4, milliseconds: float = 1.0, num_steps: int = 50, waits: bool = False
) -> dict[str, float]:
    """Returns milliseconds per step of each variant, and the share that is "hidden".

    The share is relative to the shorter of stepping and learning.
    """

    def simulator():
        return Simulator(milliseconds / 1000, computes=not waits)

    # One worker, which leaves another core to JAX.
    pool = jaxenvs.make_pool(simulator, num_envs, backend="process", num_workers=1)
    env = jaxenvs.HostEnv(pool, final_observation=False)

    def program(body):
        def run(carry, updates):
            return lax.scan(lambda c, _: (body(env, c, updates), None), carry, None, num_steps)[0]

        return jax.jit(run)

    programs = {f: program(f) for f in (step_then_learn, learn_while_stepping, learn_alone)}

    def measured(body, updates):
        nonlocal carry
        begin = time.perf_counter()
        carry = jax.block_until_ready(programs[body](carry, updates))
        return (time.perf_counter() - begin) * 1000 / num_steps

    state, timestep = env.reset(jax.random.key(0))
    carry = jnp.eye(SIZE), state, timestep.observation
    for body in programs:
        measured(body, 1)  # compiles it

    # Choose the number of updates so that learning takes as long as stepping.
    stepping, updates = measured(step_then_learn, 0), 100
    for _ in range(3):
        updates = max(1, round(updates * stepping / measured(learn_alone, updates)))

    seconds = {body: [] for body in programs} | {"stepping": []}
    for _ in range(5):  # in turn, because a machine's speed varies
        for body in programs:
            seconds[body].append(measured(body, updates))
        seconds["stepping"].append(measured(step_then_learn, 0))
    env.close()

    both, overlapped, learning, stepping = map(statistics.median, seconds.values())
    hidden = (both - overlapped) / min(learning, stepping)
    print(f"{env}, medians of 5 runs of {num_steps} steps")
    print(f"stepping alone        {stepping:6.2f} ms per step")
    print(f"learning alone        {learning:6.2f} ms, {updates} updates")
    print(f"step, then learn      {both:6.2f} ms")
    print(f"send, learn, recv     {overlapped:6.2f} ms: {hidden:.0%} hidden")
    return {
        "stepping": stepping,
        "learning": learning,
        "step_then_learn": both,
        "learn_while_stepping": overlapped,
        "hidden": hidden,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument(
        "--milliseconds", type=float, default=1.0, help="duration of one step of one environment"
    )
    parser.add_argument("--num-steps", type=int, default=50)
    parser.add_argument("--waits", action="store_true", help="sleep instead of computing")
    main(**vars(parser.parse_args()))
