"""Counts the different levels among the first 10,000 seeds of each id.

    python -m benchmarks.levels               # the ids that are not counted yet
    python -m benchmarks.levels CartPole-v1

Levels are equal if episodes start in equal states with equal observations. The pages of the
environments show the numbers.
"""

import json
import sys
from collections.abc import Sequence

import jax

import jaxenvs
from benchmarks import _common
from jaxenvs.errors import JaxenvsError
from jaxenvs.levels import distinct_seeds

PATH = _common.RESULTS / "levels.json"
NUM_SEEDS = 10_000


def read() -> dict[str, int]:
    """Returns the numbers of levels by id."""
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.plain_parser("levels", __doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="default: all that are not counted")
    options = parser.parse_args(arguments)
    for id in options.ids or [id for id in jaxenvs.registry if id not in read()]:
        try:
            number = len(distinct_seeds(jaxenvs.make(id), range(NUM_SEEDS)))
        except JaxenvsError as error:  # bsuite's mnist needs files
            print(f"{id}: {error}", file=sys.stderr)
            continue
        counts = read() | {id: number}
        ordered = {each: counts[each] for each in jaxenvs.registry if each in counts}
        PATH.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        jax.clear_caches()  # programs of other ids


if __name__ == "__main__":
    main()
