"""Whatever a ROM or a state contains, the machine keeps to its memory and C's rules.

Every build of it plays the same.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from jaxenvs.bridge.native import libraries

SOURCES = libraries.SOURCES / "atari"
PROGRAM = r"""
#include <stdio.h>
#include "game.h"

static uint32_t seed = 1;
static uint32_t draw(void) { return seed = seed * 1664525u + 1013904223u, seed >> 8; }
static void fill(void* bytes, size_t size) {
  for (size_t i = 0; i < size; i++) ((uint8_t*)bytes)[i] = (uint8_t)draw();
}

static uint32_t hash(const void* bytes, size_t size) {
  uint32_t found = 2166136261u;
  for (size_t i = 0; i < size; i++) found = (found ^ ((const uint8_t*)bytes)[i]) * 16777619u;
  return found;
}

int main(void) {
  static const int32_t sizes[] = {2048, 4096, 8192, 16384};
  static uint8_t rom[32768], picture[250 * 160], shown[84 * 84];
  static int32_t code[2 * AT_RULE_LENGTH];
  px_colors colors;
  px_colors_init(&colors, 210);
  px_resize* resize = px_resize_new(210, 84, 84);
  for (int round = 0; round < 400; round++) {
    at_title title;
    memset(&title, 0, sizeof title);
    fill(rom, sizeof rom);
    for (int i = 0; round & 1 && i < 32768; i += 3) rom[i] = (uint8_t)(0x84 + (draw() & 3));
    fill(code, sizeof code);
    for (int i = 0; i < AT_RULE_LENGTH; i++) code[2 * i] &= 31;
    title.cart.rom = rom, title.cart.kind = round % AT_KINDS;
    title.cart.size = sizes[title.cart.kind == AT_PLAIN ? draw() % 2 : 2 + draw() % 2];
    title.cart.first_line = 34, title.cart.height = round % 7 ? 210 : 250;
    title.cart.is_european = round & 2, title.cart.blanks_after_hmove = 1;
    title.cart.hot = title.cart.kind == AT_FE ? 0x1000 : 0x1FE0;
    if (title.cart.kind == AT_PLAIN) title.cart.hot = 0x2000;
    for (int i = 0; i < 6; i++) title.rules[i] = code;
    title.paddle = (int)(draw() % 3) - 1, title.switches = 0x3F, title.resets = 8;
    uint8_t boot[129];
    at_game game;
    int whole;
    fill(boot, sizeof boot);
    at_begin(&game, &title, boot, picture);
    for (int i = 0; i < 6; i++) {
      if (i % 2) fill(&game, sizeof game);
      at_repair(&game);
      memset(picture, 0, sizeof picture);
      at_recall(&game, &title, picture, picture);
      at_play(&game, &title, (int)draw(), picture, &whole);
      printf("%u %u\n", hash(&game, sizeof game), hash(picture, sizeof picture));
    }
    if (title.cart.height == 210) px_observe(resize, colors.gray, picture, picture, shown);
  }
  px_resize_free(resize);
  return 0;
}
"""


def run(folder, *flags):
    """Compiles the program and runs it."""
    source, program = folder / "fuzz.c", folder / "fuzz"
    source.write_text(PROGRAM, encoding="utf-8")
    command = ["cc", *flags, f"-I{SOURCES}", str(source), "-o", str(program)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode and any("sanitize" in flag for flag in flags):
        pytest.skip(made.stderr[-300:])  # the compiler may lack them
    assert not made.returncode, made.stderr[-3_000:]
    return subprocess.run([program], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs cc")
def test_random_roms_and_states_break_no_rule_of_c(tmp_path):
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    done = run(tmp_path, "-O1", "-g", *sanitizers)
    assert not done.returncode, done.stderr[-3_000:]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs cc")
def test_the_portable_build_plays_and_draws_the_same(tmp_path):
    fast, portable = (run(tmp_path, "-O1", *more).stdout for more in ([], ["-DAT_PORTABLE"]))
    assert fast == portable and len({*fast.splitlines()}) > 2_000


def test_headers_include_what_they_need(tmp_path):
    """Each is a C file of its own."""
    if not shutil.which("cc"):
        pytest.skip("needs cc")
    for header in sorted(Path(SOURCES).glob("*.h")):
        if header.name != "batch.h":  # which is C++, and needs XLA's headers
            flags = ["-std=gnu11", "-fsyntax-only", "-Wall", "-Wno-unused-function", "-Werror"]
            subprocess.run(["cc", *flags, "-x", "c", str(header)], check=True)
