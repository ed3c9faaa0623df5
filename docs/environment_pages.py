"""Writes the list of environments, a page for each, their pictures, and one of many of them.

    python docs/environment_pages.py

The content comes from the registry, the classes' docstrings, and `render`. Existing pictures are
kept; delete one to draw it again.
"""

import inspect
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

import jaxenvs
from benchmarks import _certificates
from jaxenvs.cli.info import describe_parameters

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("JAXENVS_MNIST_DIR", str(ROOT / "tests" / "mnist"))  # drawn digits
PAGES = ROOT / "docs" / "environments"
PICTURES = ROOT / "docs" / "assets" / "environments"
OVERVIEW = ROOT / "docs" / "assets" / "overview.gif"
SOURCE = "https://github.com/jaxenvs/jaxenvs/blob/main"

WIDTH, HEIGHT = 150, 100  # maximum size of a picture, in pixels
FRAMES, FPS, COLORS = 48, 20, 32
TITLES = {
    "atari": "Atari",
    "babyai": "BabyAI",
    "box2d": "Box2D",
    "bsuite": "bsuite",
    "dm_control": "DeepMind Control Suite",
    "minatar": "MinAtar",
    "minigrid": "MiniGrid",
    "misc": "From gymnax",
    "mujoco": "MuJoCo",
    "robotics": "Gymnasium-Robotics",
}
# The page that describes what all environments of a family share.
_LEVELS = "Observations, actions, and rewards: see [what levels share]", "usage/minigrid.md"
_PHYSICS = "Engines, precision, and other physics: see [MuJoCo tasks]", "usage/mujoco.md"
_ROBOTICS = "Goals, oddities, and engines: see [Mazes and Fetch]", "usage/robotics.md"
_ATARI = "Options, preprocessing, and exactness: see [Atari games]", "usage/atari.md"
_BOX2D = "Precision and speed: see [Box2D tasks]", "usage/box2d.md"
GUIDES = {
    "atari": _ATARI,
    "babyai": _LEVELS,
    "box2d": _BOX2D,
    "dm_control": _PHYSICS,
    "minigrid": _LEVELS,
    "mujoco": _PHYSICS,
    "robotics": _ROBOTICS,
}
# Of these families, only some ids have a picture.
PICTURED = {
    "atari": ("Breakout", "MontezumaRevenge", "MsPacman", "Pong", "Seaquest", "SpaceInvaders"),
}
# The environments in the picture of the README, in rows.
TILES = (
    ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "LunarLander-v3", "BipedalWalker-v3"),
    ("Ant-v5", "HalfCheetah-v5", "Humanoid-v5", "dm_control/quadruped-run", "dm_control/fish-swim"),
    ("MinAtar/Breakout-v1", "MinAtar/Seaquest-v1", "Pong-misc", "FrozenLake-v1", "Taxi-v4"),
    ("MiniGrid-DoorKey-16x16-v0", "MiniGrid-FourRooms-v0", "BabyAI-BossLevel-v0", "MetaMaze-misc")
    + ("bsuite/deep_sea-v0",),
)

Environments = dict[type, list[jaxenvs.EnvSpec]]  # the ids of each class


def main() -> None:
    """Writes all pages and the pictures that are missing."""
    written = texts()
    for page in PAGES.rglob("*.md"):
        if page not in written:
            page.unlink()
    for page, text in written.items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    known = {path: spec for spec in specs() if (path := picture(spec))}
    for path in PICTURES.glob("*.gif"):
        if path not in known:
            path.unlink()
    for path, spec in known.items():
        if not path.exists():
            draw(jaxenvs.make(spec.id), path)
    if not OVERVIEW.exists():
        draw_overview(OVERVIEW)


def specs() -> list[jaxenvs.EnvSpec]:
    """Returns the registry's entries for environments of jaxenvs, sorted by family and id."""
    own = (
        spec
        for spec in jaxenvs.registry.values()
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("jaxenvs.envs.")
    )
    return sorted(own, key=lambda spec: (spec.family, numbers_as_numbers(spec.id)))


def texts() -> dict[Path, str]:
    """Returns the text of each page."""
    families: dict[str, Environments] = {}
    for spec in specs():
        cls = type(jaxenvs.make(spec.id).unwrapped)
        families.setdefault(spec.family, {}).setdefault(cls, []).append(spec)
    written = {PAGES / "index.md": index_page(families)}
    for environments in families.values():
        for cls, entries in environments.items():
            written[page_of(cls, entries[0])] = environment_page(cls, entries)
    return written


def index_page(families: dict[str, Environments]) -> str:
    """Returns the list of all ids, with a section per family and a row per id."""
    lines = [
        "# Environments",
        "",
        "`jaxenvs.make`, `make_vec`, `make_gym`, and `make_dm` accept these ids."
        " Each picture shows a random policy.",
        "",
        "- **Time limit** is the number of steps after which an episode is truncated.",
        "- **Solved at** is the mean return at which the task counts as solved.",
        "- **Compared with** is the reference that the tests compare with.",
        "",
        "To run environments of other libraries, see [The host bridge](../bridge/index.md).",
    ]
    for family, environments in families.items():
        lines += ["", f"## {title(family)}", ""]
        lines += ["| | id | task | time limit | solved at | compared with |"]
        lines += ["|---|---|---|---|---|---|"]
        for cls, entries in environments.items():
            link = relative(page_of(cls, entries[0]), PAGES)
            summary = read_docstring(cls)[0]
            others = [f"`{spec.id}`" for spec in entries if not picture(spec)]
            lines += [
                f"| {image(spec, PAGES)} | [{spec.id}]({link}) | {summary}"
                f" | {or_dash(spec.time_limit)} | {or_dash(spec.reward_threshold)}"
                f" | {spec.compared_with or '—'} |"
                for spec in entries
                if picture(spec)
            ]
            if others:
                lines += ["", f"[{len(others)} more]({link}): {', '.join(others)}."]
    return "\n".join(lines) + "\n"


def environment_page(cls: type, entries: list[jaxenvs.EnvSpec]) -> str:
    """Returns the page of an environment, with all its ids."""
    page = page_of(cls, entries[0])
    envs = [jaxenvs.make(spec.id) for spec in entries]
    summary, facts, prose = read_docstring(cls)
    module = cls.__module__.replace(".", "/")
    lines = [
        f"# {cls.__name__}",
        "",
        summary,
        "",
        "```python",
        "import jaxenvs",
        "",
        f'env = jaxenvs.make("{[spec.id for spec in entries if picture(spec)][-1]}")',
        "```",
        "",
        "| | id | parameters | time limit | solved at | compared with |",
        "|---|---|---|---|---|---|",
    ]
    for spec in entries:
        chosen = ", ".join(f"`{name}={shown(value)}`" for name, value in spec.kwargs.items())
        lines.append(
            f"| {image(spec, page.parent)} | `{spec.id}` | {chosen or 'the defaults'}"
            f" | {or_dash(spec.time_limit)} | {or_dash(spec.reward_threshold)}"
            f" | {spec.compared_with or '—'} |"
        )
    lines.append("")
    for kind in ("observation", "action"):
        spaces: dict[str, list[str]] = {}
        for spec, env in zip(entries, envs, strict=True):
            spaces.setdefault(repr(getattr(env, f"{kind}_space")), []).append(spec.id)
        for space, ids in spaces.items():
            of = f" of {', '.join(ids)}" if len(spaces) > 1 else ""
            lines.append(f"- {kind.capitalize()} space{of}: `{space}`")
    lines += [f"- Class: [`{cls.__module__}.{cls.__qualname__}`]({SOURCE}/{module}.py)"]
    lines += ["", "## The task"]
    if guide := GUIDES.get(entries[0].family):
        sentence, path = guide
        lines += ["", f"{sentence}({relative(ROOT / 'docs' / path, page.parent)})."]
    for name, first, rest in facts:
        if name not in ("Source", "Time limit"):  # the limits of the ids are in the table
            lines += ["", f"**{name}**: {first}"]
            if rest:
                lines += ["", *(f"- {line}" for line in rest)]
    for paragraph in prose:
        lines += ["", paragraph]
    sources = [fact for fact in facts if fact[0] == "Source"]
    lines += [line for name, first, _ in sources for line in ("", f"**{name}**: {first}")]
    lines += [
        "",
        "## Parameters",
        "",
        "A static parameter decides shapes or control flow; changing it compiles a new program.",
        "",
        "| name | default | meaning | |",
        "|---|---|---|---|",
    ]
    for name, value, comment, static in describe_parameters(envs[0].unwrapped):
        comment = comment.replace("|", "\\|").replace("[", "\\[")
        value = "auto" if name == "engine" else value  # which the machine decides
        lines.append(f"| `{name}` | `{shown(value)}` | {comment} | {'static' if static else ''} |")
    lines += certificates(entries)
    return "\n".join(lines) + "\n"


def certificates(entries: list[jaxenvs.EnvSpec]) -> list[str]:
    """Returns the section about the comparisons with the reference, if there are any."""
    found = [content for spec in entries if (content := _certificates.read(spec.id))]
    if not found:
        return []
    reference, engine = found[0]["reference"], found[0].get("engine")
    longest = min(content.get("longest", 1_000) for content in found)
    lines = [
        "",
        "## Certificate",
        "",
        f"Compared with {reference} by `python -m benchmarks.certify`: single steps from the same"
        " states with the same actions and random outcomes, also with other parameters and from"
        " states that play does not reach; the distributions of start states and random outcomes;"
        " and whole episodes"
        + (f", some of which were cut off after {longest} steps." if longest < 1_000 else ".")
        + (
            " Steps run in C MuJoCo. All that it carries from one to the next is equal to the bit,"
            " in single and double precision, so errors are those of numbers that JAX computes, and"
            " of rounding to single precision."
            if engine == "c"
            else ""
        )
        + f" [All figures]({source(_certificates.path_of(entries[0].id))}).",
        "",
        "| id | steps | episodes | mismatches | largest error | lines of the reference run"
        " | smallest p-value |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{content['id']}` | {content['steps']:,} | {content['episodes']:,}"
        f" | {content['mismatches']} | {largest_error(content)}"
        f" | {content['reference_lines_run']} of {content['reference_lines']}"
        f" | {content['smallest_p_value']:.2g} |"
        for content in found
    ]
    lines += ["", "Mean returns and their standard errors:", ""]
    lines += ["| id | parameters | policy | jaxenvs | reference |", "|---|---|---|---|---|"]
    for content in found:
        for part in content["parts"]:
            chosen = ", ".join(f"`{name}={value}`" for name, value in part["parameters"].items())
            for policy, result in part["episodes"].items():
                returns = result["return"]
                ours, theirs = map(plus_minus, (returns["ours"], returns["reference"]))
                shared = f"| `{content['id']}` | {chosen or 'the defaults'} | {policy}"
                lines.append(f"{shared} | {ours} | {theirs} |")
    return lines + transfers(entries)


def largest_error(content: dict[str, Any]) -> str:
    """Returns the largest error, that of double precision by itself if there is an engine."""
    if "engine" not in content:
        return f"{content['largest_error']:.0e}"
    single, *double = (part["largest_error"] for part in content["parts"])
    return f"{max(double):.0e}, in single precision {single:.0e}"


def transfers(entries: list[jaxenvs.EnvSpec]) -> list[str]:
    """Returns the part about policies that play in both environments, if there are any."""
    lines = []
    for spec in entries:
        content = _certificates.read(spec.id, "transfer")
        if content is None:
            continue
        lines += [
            "",
            f"Policies for `{content['id']}`, trained by {content['algorithm']} for"
            f" {content['training_steps']:,} steps in one of both, played {content['episodes']:,}"
            " episodes in each (`python -m benchmarks.transfer`). The p-value is that of the"
            f" hypothesis that the mean returns differ by {content['margin']:.0%} or more"
            f" ([all figures]({source(_certificates.path_of(spec.id, 'transfer'))})):",
            "",
            "| policy | jaxenvs | reference | p-value |",
            "|---|---|---|---|",
        ]
        for policy, result in content["policies"].items():
            ours, theirs = map(plus_minus, (result["ours"], result["reference"]))
            lines.append(f"| {policy} | {ours} | {theirs} | {result['p_value']:.2g} |")
    return lines


def plus_minus(mean_and_error: tuple[float, float]) -> str:
    mean, error = mean_and_error
    return f"{mean:.4g} ± {error:.2g}"


def read_docstring(cls: type) -> tuple[str, list[tuple[str, str, list[str]]], list[str]]:
    """Splits a class's docstring into its first line, its `Name: ...` entries, and its paragraphs.

    The indented lines of an entry are joined to its first line, unless they are the parts of an
    observation, which start with a number, or with a name and two spaces, or a sentence.
    """
    summary, _, body = (inspect.getdoc(cls) or "").partition("\n\n")
    facts: list[tuple[str, str, list[str]]] = []
    prose: list[str] = []
    for block in body.split("\n\n"):
        if not re.match(r"(Mission|Observation|Action|Reward|Start|Source)\b.*:", block):
            prose.append(_escape(" ".join(block.split())))
            continue
        for entry in re.split(r"\n(?=\S)", block):
            head, *tail = entry.splitlines()
            if facts and not re.match(r"[A-Z][\w ]*: ", head):  # continues the previous entry
                name, first, rest = facts.pop()
                facts.append((name, f"{first} {_escape(' '.join(entry.split()))}", rest))
                continue
            name, _, first = head.partition(": ")
            parts: list[str] = []
            for line in tail:
                part = re.sub(r"^(\d+(?:-\d+|\+)?(?= )|\w+(?=  ))\s+", r"`\1` ", line.strip())
                if part[0] == "`" or part[0].isupper() or not parts:
                    parts.append(part)
                else:
                    parts[-1] += f" {part}"
            if any(part.startswith("`") for part in parts):
                facts.append((name, _escape(first), [_escape(part) for part in parts]))
            else:
                facts.append((name, _escape(" ".join([first, *parts])), []))
    return " ".join(summary.split()), facts, prose


def sample_action(env: jaxenvs.Environment, key: Any) -> Any:
    """Draws a random action. MuJoCo's actions without limits, written as 1e10, are normal."""
    space = env.action_space
    if isinstance(space, jaxenvs.spaces.Box) and (space.high >= 1e10).all():
        return jax.random.normal(key, space.shape)
    return space.sample(key)


def draw(env: jaxenvs.Environment, path: Path) -> None:
    """Writes a small gif of one instance under a random policy."""
    from PIL import Image

    def step(carry: Any, key: Any) -> Any:
        state, first = carry
        action_key, step_key = jax.random.split(key)
        after, timestep = env.step(state, sample_action(env, action_key), step_key)
        after = jax.tree.map(
            lambda new, old: jax.numpy.where(timestep.done, new, old), first, after
        )
        return (after, first), env.render(state)

    @jax.jit
    def play(key: Any) -> Any:
        state, _ = env.reset(key)
        return jax.lax.scan(step, (state, state), jax.random.split(key, FRAMES))[1]

    frames = np.asarray(play(jax.random.key(1)))
    height, width = frames.shape[1:3]
    scale = min(WIDTH / width, HEIGHT / height)
    size = (max(1, round(scale * width)), max(1, round(scale * height)))
    small = [Image.fromarray(frame).resize(size, Image.Resampling.BOX) for frame in frames]
    # One palette for all frames, computed from a few of them.
    sheet = Image.fromarray(np.concatenate([np.asarray(frame) for frame in small[::8]]))
    palette = sheet.quantize(COLORS)
    indexed = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    indexed[0].save(
        path, save_all=True, append_images=indexed[1:], duration=1000 // FPS, loop=0, optimize=True
    )


def draw_overview(path: Path) -> None:
    """Writes a picture of many environments from the pictures of single ones."""
    from PIL import Image, ImageSequence

    frames = [
        Image.new("RGB", (WIDTH * len(TILES[0]), HEIGHT * len(TILES)), "white")
        for _ in range(0, FRAMES, 2)
    ]
    for row, ids in enumerate(TILES):
        for column, id in enumerate(ids):
            with Image.open(picture(jaxenvs.registry[id])) as tile:
                tiles = [frame.convert("RGB") for frame in ImageSequence.Iterator(tile)]
            x, y = column * WIDTH + (WIDTH - tile.width) // 2, row * HEIGHT
            for t, frame in enumerate(frames):
                frame.paste(tiles[2 * t % len(tiles)], (x, y + (HEIGHT - tile.height) // 2))
    palette = frames[0].quantize(2 * COLORS)
    indexed = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    indexed[0].save(
        path, save_all=True, append_images=indexed[1:], duration=2000 // FPS, loop=0, optimize=True
    )


def page_of(cls: type, spec: jaxenvs.EnvSpec) -> Path:
    return PAGES / spec.family / f"{cls.__name__}.md"


def picture(spec: jaxenvs.EnvSpec) -> Path | None:
    """Returns the path of an id's picture, which tasks with other goals or rewards share."""
    names = PICTURED.get(spec.family)
    if names and not any(f"/{name}-v" in spec.id for name in names):
        return None
    name = re.sub(r"(_Diverse_GR?)?(Dense)?(?=-v\d+$)", "", spec.id.replace("/", "-"))
    name = re.sub(r"(?<=dog-)\w+$", "fetch", name)  # a picture of the dog takes minutes
    return PICTURES / f"{name}.gif"


def image(spec: jaxenvs.EnvSpec, folder: Path) -> str:
    path = picture(spec)
    return f"![{spec.id}]({relative(path, folder)})" if path else ""


def source(path: Path) -> str:
    return f"{SOURCE}/{relative(path, ROOT)}"


def relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def title(family: str) -> str:
    return TITLES.get(family) or family.replace("_", " ").capitalize()


def anchor(family: str) -> str:
    return title(family).lower().replace(" ", "-")


def numbers_as_numbers(id: str) -> list[str | int]:
    """Returns a key that sorts Grid-8x8 before Grid-16x16."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", id)]


def shown(value: Any) -> str:
    """Returns a value as code; for a function or a class, its name."""
    return (getattr(value, "__name__", None) or repr(value)).replace("|", "\\|")


def or_dash(value: Any) -> str:
    return "—" if value is None else str(value)


def _escape(text: str) -> str:
    """Escapes characters that Markdown would interpret, as in float32[2] or 3*x."""
    parts: Iterable[str] = re.split(r"(`[^`]*`)", text)  # code spans stay as they are
    return "".join(
        part if part.startswith("`") else re.sub(r"([\[\]*_|])", r"\\\1", part) for part in parts
    )


if __name__ == "__main__":
    main()
