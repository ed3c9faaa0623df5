"""The documentation as readers see it: links, pictures, small screens, and what a search finds."""

import functools
import html.parser
import http.server
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

pytest.importorskip("mkdocs")

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parent.parent
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
needs_browser = pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")
WIDTHS = 390, 1280  # pixels, of a phone and of a small laptop
# One page or two of each kind.
PAGES = (
    *("", "usage/install/", "troubleshooting/", "benchmarks/", "bridge/figures/", "api/training/"),
    *("notebooks/04_throughput/", "environments/", "environments/dm_control/"),
    *("environments/classic_control/CartPole/", "environments/minigrid/DoorKey/"),
)
# What newcomers search for, and the page that answers it.
ANSWERS = {
    "install": "usage/install/",
    "conda": "usage/install/",
    "colab": "usage/install/",
    "docker": "tutorials/docker/",
    "faq": "faq/",
    "pretrained": "training/pretrained/",
    "citation": "cite/",
    "tutorial": "usage/quickstart/",
    "gallery": "environments/",
    "curriculum": "tutorials/curriculum/",
    "seed": "tutorials/seeding/",
    "save model": "tutorials/save_and_load/",
    "load policy": "tutorials/save_and_load/",
    "export policy": "tutorials/export/",
    "MiniGrid-DoorKey-8x8-v0": "environments/minigrid/DoorKey/",
}
# A page that looks at others in a frame, and sends what it found.
LOOK = """<!doctype html><body><script>
const frame = document.createElement("iframe");
document.body.append(frame);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const open = (address) => new Promise((resolve) => {
  frame.onload = resolve;
  frame.src = address;
});

async function look(page, widths) {
  await open("/" + page);
  const root = frame.contentDocument.documentElement, images = [...frame.contentDocument.images];
  const found = {wide: []};
  for (const width of widths) {
    frame.style.width = `${width}px`;
    await sleep(50);
    if (root.scrollWidth > width) found.wide.push([width, root.scrollWidth]);
  }
  images.forEach((image) => (image.loading = "eager"));
  const all = Promise.all(images.map((image) => image.decode().catch(() => {})));
  await Promise.race([all, sleep(10000)]);
  const own = images.filter((image) => image.src.startsWith(location.origin));
  found.broken = own.filter((image) => !image.naturalWidth).map((image) => image.src);
  return found;
}

async function search(words) {
  await open("/?q=" + encodeURIComponent(words));
  const page = frame.contentDocument;
  for (let i = 0; i < 100 && !/^(No|\\d+) match/.test(meta(page)); i++) await sleep(100);
  const links = page.querySelectorAll("a.md-search-result__link");
  return [...links].map((link) => new URL(link.href).pathname.slice(1));
}

const meta = (page) => page.querySelector(".md-search-result__meta")?.textContent.trim();

async function main() {
  const {pages, widths, searches} = await (await fetch("/job")).json(), found = {};
  for (const page of pages) found[page] = await look(page, widths);
  for (const words of searches) found[words] = await search(words);
  return found;
}

main().catch(String).then((found) =>
  fetch("/found", {method: "POST", body: JSON.stringify(found)}));
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and takes what the browser found."""

    def do_GET(self):
        body = {"/look": LOOK, "/job": json.dumps(self.server.job)}.get(self.path)
        if body is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        return self.wfile.write(body.encode())

    def do_POST(self):
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.is_done.set()

    def log_message(self, *_):
        pass


@pytest.fixture
def browse(site, tmp_path):
    """Returns a function that gives a job to a browser and returns what it found."""
    server = http.server.ThreadingHTTPServer(
        ("localhost", 0), functools.partial(Handler, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(pages=(), searches=()):
        server.job = {"pages": pages, "widths": WIDTHS, "searches": list(searches)}
        server.is_done = threading.Event()
        flags = "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"
        address = f"http://localhost:{server.server_port}/look"
        browser = subprocess.Popen(
            [BROWSER, *flags, f"--user-data-dir={tmp_path}", address], stderr=subprocess.DEVNULL
        )
        try:
            assert server.is_done.wait(240), "the browser did not answer"
        finally:
            browser.terminate()
            browser.wait()
        return server.found

    yield run
    server.shutdown()
    server.server_close()


@needs_browser
def test_pages_fit_the_screen_and_show_their_pictures(browse):
    found = browse(pages=PAGES)
    assert found == {page: {"wide": [], "broken": []} for page in PAGES}


@needs_browser
def test_a_search_finds_the_page_that_answers(browse):
    found = browse(searches=ANSWERS)
    missed = {
        words: found[words][:4] for words in ANSWERS if ANSWERS[words] not in found[words][:4]
    }
    assert not missed


class Addresses(html.parser.HTMLParser):
    """The links of a page, and the names that links can lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = set(), {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names |= {given.get("id"), given.get("name")}
        self.links |= {given[name] for name in ("href", "src") if given.get(name)}


def test_links_and_anchors_of_the_site_lead_somewhere(site):
    files = {f"/{path.relative_to(site).as_posix()}": path for path in site.rglob("*.*")}
    pages = {
        name.removesuffix("index.html"): Addresses(path.read_text(encoding="utf-8"))
        for name, path in files.items()
        if path.suffix == ".html" and path.name != "404.html"  # whose links begin at the root
    }
    assert len(pages) > 100
    dead = set()
    for page, found in pages.items():
        for link in found.links:
            target = urlsplit(urljoin(page, link))
            if target.scheme or target.netloc:
                continue
            path = unquote(target.path)
            known = (
                path in files
                if path not in pages
                else unquote(target.fragment) in pages[path].names
            )
            if not known:
                dead.add((page, link))
    assert not dead
