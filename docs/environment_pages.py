"""A page for each registered id, made from its docstring, the registry and `render`."""

import inspect
import os
import re
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache/jax"))

import jax
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import jaxenvs
from jaxenvs.cli.info import describe_parameters
from jaxenvs.rendering.video import write_video

FOLDER = "environments"
STEPS = 60


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages to the navigation."""
    assert config.nav is not None
    section = next(entry for entry in config.nav if "Environments" in entry)
    section["Environments"] = [
        f"{FOLDER}/index.md",
        *({id: f"{FOLDER}/{id}.md"} for id in sorted(jaxenvs.registry)),
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Makes the pages and their animations."""
    families: dict[str, list[jaxenvs.EnvSpec]] = {}
    for spec in sorted(jaxenvs.registry.values(), key=lambda spec: spec.id):
        families.setdefault(spec.family, []).append(spec)
        env = jaxenvs.make(spec.id)
        for name, content in (
            (f"{spec.id}.md", environment_page(spec, env)),
            (f"{spec.id}.gif", animation(env)),
        ):
            files.append(File.generated(config, f"{FOLDER}/{name}", content=content))
    index = File.generated(config, f"{FOLDER}/index.md", content=index_page(families))
    files.append(index)
    return files


def index_page(families: dict[str, list[jaxenvs.EnvSpec]]) -> str:
    """The table of all ids, family by family."""
    lines = ["# Environments", "", "What `jaxenvs.make` and `jaxenvs.make_vec` know by name."]
    for family, specs in families.items():
        lines += ["", f"## {family.replace('_', ' ').capitalize()}", ""]
        lines += ["| id | time limit | solved from | proven against |", "|---|---|---|---|"]
        lines += [
            f"| [{spec.id}]({spec.id}.md) | {_or_dash(spec.time_limit)}"
            f" | {_or_dash(spec.reward_threshold)} | {spec.proven_against or '—'} |"
            for spec in specs
        ]
    return "\n".join(lines) + "\n"


def environment_page(spec: jaxenvs.EnvSpec, env: jaxenvs.Environment) -> str:
    """What there is to know of one id."""
    cls = type(env.unwrapped)
    summary, facts, prose = read_docstring(cls)
    lines = [
        f"# {spec.id}",
        "",
        summary,
        "",
        f"![{spec.id} under a random policy]({spec.id.split('/')[-1]}.gif){{ width=300 }}",
        "",
        "```python",
        f'env = jaxenvs.make("{spec.id}")',
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| observation space | `{env.observation_space!r}` |",
        f"| action space | `{env.action_space!r}` |",
        f"| time limit | {_or_dash(spec.time_limit)} |",
        f"| counts as solved from | {_or_dash(spec.reward_threshold)} |",
        f"| proven against | {spec.proven_against or '—'} |",
        f"| class | `{cls.__module__}.{cls.__qualname__}` |",
        "",
        "## The task",
    ]
    source = [fact for fact in facts if fact[0] == "Source"]
    for name, first, rest in facts:
        if name not in ("Source", "Time limit"):  # the limit of this id stands in the table
            lines += ["", f"**{name}**: {first}"]
            if rest:
                lines += ["", *(f"- {line}" for line in rest)]
    for paragraph in prose:
        lines += ["", paragraph]
    lines += [line for name, first, _ in source for line in ("", f"**{name}**: {first}")]
    lines += [
        "",
        "## Parameters",
        "",
        "A static parameter decides shapes or control flow: changing it compiles anew.",
        "",
        "| name | default | meaning | |",
        "|---|---|---|---|",
    ]
    for name, value, comment, static in describe_parameters(env.unwrapped):
        default = (getattr(value, "__name__", None) or repr(value)).replace("|", "\\|")
        comment = comment.replace("|", "\\|").replace("[", "\\[")
        lines.append(f"| `{name}` | `{default}` | {comment} | {'static' if static else ''} |")
    return "\n".join(lines) + "\n"


def read_docstring(cls: type) -> tuple[str, list[tuple[str, str, list[str]]], list[str]]:
    """Cuts a class's docstring into its first line, its `Name: ...` entries and its paragraphs.

    An entry's indented lines are joined to its first, unless they are numbered: then each is one
    component of an observation, kept apart.
    """
    summary, _, body = (inspect.getdoc(cls) or "").partition("\n\n")
    facts: list[tuple[str, str, list[str]]] = []
    prose: list[str] = []
    for block in body.split("\n\n"):
        if not re.match(r"(Observation|Action|Reward|Source)\b.*:", block):
            prose.append(_escape(" ".join(block.split())))
            continue
        for entry in re.split(r"\n(?=\S)", block):
            head, *tail = entry.splitlines()
            if facts and not re.match(r"[A-Z][\w ]*: ", head):  # the entry before goes on
                name, first, rest = facts.pop()
                facts.append((name, f"{first} {_escape(' '.join(entry.split()))}", rest))
                continue
            name, _, first = head.partition(": ")
            numbered = [re.sub(r"^(\d+(?:-\d+)?)\s+", r"`\1` ", line.strip()) for line in tail]
            if any(line.startswith("`") for line in numbered):
                facts.append((name, _escape(first), [_escape(line) for line in numbered]))
            else:
                joined = " ".join([first, *(line.strip() for line in tail)])
                facts.append((name, _escape(joined), []))
    return " ".join(summary.split()), facts, prose


def animation(env: jaxenvs.Environment) -> bytes:
    """A gif of one instance under a random policy."""

    def step(carry, key):
        state, fresh = carry
        action_key, step_key = jax.random.split(key)
        after, timestep = env.step(state, env.action_space.sample(action_key), step_key)
        over = timestep.done
        after = jax.tree.map(lambda new, old: jax.numpy.where(over, new, old), fresh, after)
        return (after, fresh), env.render(state)

    @jax.jit
    def play(key):
        state, _ = env.reset(key)
        return jax.lax.scan(step, (state, state), jax.random.split(key, STEPS))[1]

    frames = play(jax.random.key(1))
    fps = 30
    with tempfile.TemporaryDirectory() as folder:
        return write_video(Path(folder) / "animation.gif", frames, fps=fps).read_bytes()


def _or_dash(value: Any) -> str:
    return "—" if value is None else str(value)


def _escape(text: str) -> str:
    """Keeps shapes such as float32[2] and products such as 3*x from being read as Markdown."""
    parts = re.split(r"(`[^`]*`)", text)  # code spans stay as they are
    return "".join(
        part if part.startswith("`") else re.sub(r"([\[\]*_|])", r"\\\1", part) for part in parts
    )
