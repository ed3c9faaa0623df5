"""Shows that environments do the same as at an earlier commit, and renews their certificates.

    python -m benchmarks.same HEAD~3
    python -m benchmarks.same HEAD~3 MiniGrid-DoorKey-8x8-v0 BabyAI-BossLevel-v0

A change that makes code faster or shorter makes certificates stale. This plays environments with
the sources of the commit and with those of today, with the same keys, and compares every state,
observation, reward, flag, and info to the bit. If they are equal, and if the certificate was made
with the sources of the commit, it gets the digest of today's sources, and a record under "same_as".
"""

import argparse
import contextlib
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np

import jaxenvs
from benchmarks import _certificates, _common, _sources, certify
from benchmarks.oracles import oracle_for

NUM_ENVS, NUM_STEPS, SEEDS = 64, 128, 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `--help`. Returns 1 if anything differs."""
    parser = _common.plain_parser("same", __doc__)
    parser.add_argument("commit", help="the commit to compare with, such as HEAD~1")
    parser.add_argument("ids", nargs="*", help="environment ids; by default, those that are stale")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)  # see `play_at`
    options = parser.parse_args(arguments)
    if options.play:
        assert Path(jaxenvs.__file__).is_relative_to(Path.cwd()), jaxenvs.__file__
        for id in options.ids:
            print(id, play(id), flush=True)
        return 0
    commit = git("rev-parse", options.commit).decode().strip()
    ids = options.ids or [id for id in certify.certified_ids() if certify.is_stale(id)]
    failed = []
    with sources_of(commit) as folder:
        for id, before in play_at(folder, ids):
            found = problem(id, folder, before)
            print(f"{id}: {found or 'the same'}", flush=True)
            if found:
                failed.append(id)
            else:
                _renew(id, commit)
    return 1 if failed else 0


def play(id: str) -> str:
    """Returns a digest of episodes with random actions, with all variants of a certificate."""
    found = hashlib.sha256()
    for variant in oracle_for(jaxenvs.make(id)).variants_of("c"):
        with certify.precision(variant):
            env = jaxenvs.make_vec(id, NUM_ENVS, **variant)

            @jax.jit
            def episodes(key: jax.Array, env: jaxenvs.VectorEnv = env) -> object:
                def step(state: object, key: jax.Array) -> tuple[object, object]:
                    action_key, step_key = jax.random.split(key)
                    state, timestep = env.step(state, env.action_space.sample(action_key), step_key)
                    return state, (state, timestep)

                start = env.reset(key)
                return start, jax.lax.scan(step, start[0], jax.random.split(key, NUM_STEPS))[1]

            for seed in range(SEEDS):
                for leaf in jax.tree.leaves(episodes(jax.random.key(seed))):
                    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                        leaf = jax.random.key_data(leaf)
                    found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()


@contextlib.contextmanager
def sources_of(commit: str) -> Iterator[Path]:
    """Returns a context with a folder that has the package as of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "jaxenvs"))) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def play_at(folder: Path, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields ids and the digests of their episodes with the sources in `folder`."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.same", "--play", "HEAD", *ids]
    environment = {**os.environ, "PYTHONPATH": str(_sources.ROOT)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            id, digest = line.split()
            yield id, digest
    if process.returncode:
        raise SystemExit(f"playing with the sources in {folder} ended with {process.returncode}.")


def problem(id: str, folder: Path, before: str) -> str | None:
    """Returns why a certificate cannot be renewed, if so, given the sources in `folder`."""
    certificate = _certificates.read(id)
    module = str(jaxenvs.registry[id].entry_point).partition(":")[0]

    def read(path: str) -> str | None:
        file = folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    if certificate is None or certificate["sources"] != _sources.digest(module, read):
        return "the certificate was not made with the sources of that commit"
    return None if play(id) == before else "DIFFERENT"


def _renew(id: str, commit: str) -> None:
    certificate = _certificates.read(id)
    assert certificate is not None  # `problem` found none
    certificate["same_as"] = {
        "commit": commit[:8],
        "sources": certificate["sources"],
        "steps": NUM_ENVS * NUM_STEPS * SEEDS,
    }
    certificate["sources"] = certify.sources_digest(id)
    _certificates.write(id, certificate)


def git(*arguments: str) -> bytes:
    """Returns what git prints about this repository."""
    return subprocess.run(
        ["git", *arguments], cwd=_sources.ROOT, check=True, capture_output=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
