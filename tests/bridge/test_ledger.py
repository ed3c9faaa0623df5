"""The account of what is pending, against a simple model, by every way to step a pool."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxenvs
from jaxenvs.bridge.native.libraries import reason_missing, xla_library
from jaxenvs.bridge.pool.ledger import Ledger
from jaxenvs.errors import JaxenvsError
from tests.bridge.envs import Counter

N, LENGTH = 3, 3
KEY = jax.random.key(0)
SOME = st.permutations(range(N)).flatmap(
    lambda ids: st.integers(1, N).map(lambda count: tuple(ids[:count]))
)
CALLS = st.lists(
    st.one_of(
        st.sampled_from([("reset",), ("step",), ("recv",)]),
        st.tuples(st.sampled_from(["send", "reset_some"]), SOME),
    ),
    max_size=14,
)
WAYS = [
    ("serial", "python"),
    ("thread", "python"),
    ("process", "python"),
    ("serial", "callback"),
    ("process", "callback"),
    pytest.param(
        *("process", "ffi"),
        marks=pytest.mark.skipif(reason_missing(xla_library) is not None, reason="no g++"),
    ),
]


class Model:
    """A simple model of a pool with `batch_size` B."""

    def __init__(self, batch_size, *, in_program):
        self.batch_size, self.in_program = batch_size, in_program
        self.steps = [0] * N  # of the episode
        self.ended = [False] * N  # whether the latest step ended one
        self.pending = []  # (environment, whether it steps or resets)
        self.together = False

    def check(self, call):
        """Returns the name of the error that the call should raise, or None."""
        name, *ids = call
        busy = {each for each, _ in self.pending}
        if name == "recv":
            least = self.batch_size if self.in_program and not self.together else 1
            return None if len(busy) >= least else "NothingPendingError"
        if name == "reset" and self.in_program:
            return None
        if name == "send" and not self.together:
            return "AlreadyPendingError" if busy & set(ids[0]) else None
        return "AlreadyPendingError" if busy else None

    def do(self, call):
        """Returns the environments whose rows the call returns, in any order; None for none."""
        name, *ids = call
        if name == "recv":
            count = N if self.together else min(self.batch_size, len(self.pending))
            return count, [each for each, _ in self.pending]
        ids = ids[0] if ids else tuple(range(N))
        if name == "reset":
            self.pending, self.together = [], False
        for each in ids:
            self._run(each, resets=name.startswith("reset"))
        if name == "send":
            self.pending += [(each, False) for each in ids]
            self.together = self.batch_size == N and ids == tuple(range(N))
            return None
        return len(ids), list(ids)

    def received(self, ids):
        self.pending = [each for each in self.pending if each[0] not in ids]
        self.together = self.together and bool(self.pending)

    def _run(self, each, *, resets):
        self.steps[each] = 0 if resets else self.steps[each] % LENGTH + 1
        self.ended[each] = self.steps[each] == LENGTH


class ByPython:
    """The pool's own methods."""

    def __init__(self, pool):
        self.pool = pool

    def run(self, call):
        name, *ids = call
        if name == "send":
            self.pool.send(np.zeros(len(ids[0]), int), ids[0])
            return None
        if name == "recv":
            return self._rows(*self.pool.recv())
        if name == "step":
            return self._rows(*self.pool.step(np.zeros(N, int)))
        observation, info = self.pool.reset(env_ids=ids[0] if ids else None)
        return info["env_id"], observation, info["elapsed_step"], np.zeros(len(observation), bool)

    def _rows(self, observation, reward, terminated, truncated, info):
        return info["env_id"], observation, info["elapsed_step"], terminated | truncated


class ByProgram:
    """Compiled programs."""

    def __init__(self, pool, path):
        self.env = env = jaxenvs.HostEnv(pool, path=path)
        self._reset, self._recv = jax.jit(env.reset), jax.jit(env.recv)
        self._step = jax.jit(lambda state: env.step(state, jnp.zeros(N, jnp.int32), KEY))
        self._send = jax.jit(lambda state, ids: env.send(state, 0 * ids, ids))
        self._reset_where = jax.jit(env.reset_where)
        self.state, self.timestep = self._reset(KEY)

    def run(self, call):
        name, *ids = call
        if name == "send":
            sent = self._send(self.state, np.array(ids[0], np.int32))
            self.state = jax.block_until_ready(sent)
            return None
        every, chosen = self.timestep, slice(None)
        if name == "reset":
            found = self._reset(KEY)
        elif name == "reset_some":
            mask, chosen = np.isin(np.arange(N), ids[0]), np.array(ids[0])
            found = self._reset_where(mask, self.state, every, KEY)
        else:
            found = (self._recv if name == "recv" else self._step)(self.state)
        self.state, timestep = jax.block_until_ready(found)
        if len(timestep.reward) == N and name != "recv":
            self.timestep = timestep
        elapsed = timestep.final_info["elapsed_step"]
        rows = timestep.info["env_id"], timestep.observation, elapsed, timestep.done
        return tuple(np.asarray(each)[chosen] for each in rows)


@functools.cache
def way(backend, path, batch_size):
    envs = [functools.partial(Counter, number=i, length=LENGTH) for i in range(N)]
    options = {} if backend == "serial" else {"num_workers": 2}
    pool = jaxenvs.make_pool(
        envs, batch_size=batch_size, backend=backend, autoreset_mode="same_step", **options
    )
    return pool, ByPython(pool) if path == "python" else ByProgram(pool, path)


@pytest.mark.parametrize("batch_size", [2, N])
@pytest.mark.parametrize(("backend", "path"), WAYS)
def test_every_way_to_step_a_pool_does_what_a_simple_model_does(backend, path, batch_size):
    pool, steps = way(backend, path, batch_size)

    @settings(max_examples=25, deadline=None)
    @given(CALLS)
    def run(calls):
        while pool.num_pending and path == "python":
            steps.run(("recv",))
        model = Model(batch_size, in_program=path != "python")
        for call in [("reset",), *calls]:
            error = model.check(call)
            if error is not None:
                with pytest.raises((JaxenvsError, jax.errors.JaxRuntimeError)) as raised:
                    steps.run(call)
                assert error in f"{raised.type.__name__}: {raised.value}"
                continue
            expected, rows = model.do(call), steps.run(call)
            if expected is not None:
                count, may_come = expected
                ids, observation, elapsed, done = rows
                assert len(set(ids.tolist())) == len(ids) == count
                assert set(ids.tolist()) <= set(may_come)
                for i, each in enumerate(ids.tolist()):
                    assert observation[i, 0] == each
                    assert observation[i, 2] == model.steps[each] % LENGTH
                    assert elapsed[i] == model.steps[each]
                    assert done[i] == model.ended[each]
                model.received(ids.tolist())
            assert pool.num_pending == len(model.pending)

    try:
        run()
    finally:
        pool.close()
        way.cache_clear()


@settings(deadline=None)
@given(st.lists(st.one_of(st.just("all"), SOME, st.just("cut")), max_size=20), st.data())
def test_ledger_tracks_busy_environments_and_cuts(events, data):
    ledger = Ledger(N)
    ledger.reset(np.arange(N))
    busy, buffer = set(), 0
    for event in events:
        if event == "cut":
            ledger.cut()
            busy = set()
            assert not ledger.ready.any() and not ledger.all_ready and ledger.was_cut
            ledger.reset(np.arange(N))
        elif event == "all" and not busy:
            ledger.begin_all(2)
            buffer ^= 1
            assert (ledger.num_pending, ledger.buffer, ledger.op) == (N, buffer, 2)
            assert not ledger.elsewhere.any()
            ledger.end_all()
        elif event != "all" and not busy & set(event):
            ids = np.array(event)
            ledger.begin_some(ids)
            assert ledger.elsewhere[ids].all() and ledger.any_elsewhere
            busy |= set(event)
            done = data.draw(st.sets(st.sampled_from(sorted(busy))))
            ledger.end_some(np.array(sorted(done), int))
            busy -= done
        assert (set(np.flatnonzero(ledger.busy)), ledger.num_pending) == (busy, len(busy))
        assert not ledger.op
