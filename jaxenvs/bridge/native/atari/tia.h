/* The TIA: draws a playfield, two players, two missiles, and a ball, and notes which of them touch.
 *
 * It draws when something changes: a write first draws up to the clock at which it counts. The
 * objects on a line are sets of bits, so that collisions are a few operations a line, and a frame
 * that nobody looks at is not painted. (Television Interface Adaptor, Model 1A, Atari, 1977;
 * S. Wright, Stella Programmer's Guide, 1979; A. Towers, Notes on the TIA hardware, 2003. Delays,
 * and what happens when registers are written in the middle of things, were observed in ale_py.)
 */
#ifndef JAXENVS_ATARI_TIA_H
#define JAXENVS_ATARI_TIA_H

#include "console.h"

enum { AT_STARS_FIRST = 1, AT_STARS_WIDE, AT_STARS_HIDDEN }; /* of at_console.stars */
enum { AT_FIELD = AT_OBJECTS, AT_STALE_FIELD = 1 << AT_FIELD, AT_ALL_STALE = 63 };

/* --- Bits --- */

static inline int at_wrapped(int x) { return x < AT_WIDTH ? x : x - AT_WIDTH; }

/* Adds up to 32 pixels from x on, which may be below twice the width, to a line. */
static inline void at_put(uint64_t line[4], uint64_t pixels, int x) {
  x = at_wrapped(x);
  line[x >> 6] |= pixels << (x & 63);
  line[(x >> 6) + 1] |= pixels >> 1 >> (63 - (x & 63));
}

/* What leaves the line comes in again on the left. */
static inline void at_keep(at_bits* bits, const uint64_t line[4]) {
  bits->word[0] = line[0] | line[2] >> 32;
  bits->word[1] = line[1];
  bits->word[2] = line[2] & 0xFFFFFFFFu;
}

/* The pixels from x0 to x1 - 1. */
static inline at_bits at_range(int x0, int x1) {
  at_bits bits;
  for (int i = 0; i < 3; i++) {
    int low = x0 - 64 * i, high = x1 - 64 * i;
    uint64_t below_low = low <= 0 ? 0 : low >= 64 ? ~0ull : (1ull << low) - 1;
    uint64_t below_high = high <= 0 ? 0 : high >= 64 ? ~0ull : (1ull << high) - 1;
    bits.word[i] = below_high & ~below_low;
  }
  return bits;
}

/* --- Objects --- */

static const uint8_t at_copies[8] = {1, 2, 2, 3, 2, 1, 3, 1};
static const uint8_t at_distance[8][3] = {{0},         {0, 16},     {0, 32}, {0, 16, 32},
                                          {0, 64},     {0},         {0, 32, 64}, {0}};

static inline uint8_t at_reversed(uint8_t b) {
  return (uint8_t)(((b * 0x0802u & 0x22110u) | (b * 0x8020u & 0x88440u)) * 0x10101u >> 16);
}

/* Each bit twice. */
static inline uint32_t at_doubled(uint32_t b) {
  b = (b | b << 8) & 0x00FF00FFu;
  b = (b | b << 4) & 0x0F0F0F0Fu;
  b = (b | b << 2) & 0x33333333u;
  b = (b | b << 1) & 0x55555555u;
  return b | b << 1;
}

static inline int at_scale(uint8_t size) {
  return (size & 7) == 5 ? 2 : (size & 7) == 7 ? 4 : 1;
}

/* What of an object can be seen, or 0; of a player, its pixels. */
static inline int at_shown(const at_console* m, int object) {
  switch (object) {
    case AT_P0:
    case AT_P1: return m->delayed[object] ? m->old_graphics[object] : m->graphics[object];
    case AT_M0: return m->enabled[0];
    case AT_M1: return m->enabled[1];
    case AT_BALL: return m->delayed[2] ? m->old_ball : m->enabled[2];
    default: return m->playfield != 0;
  }
}

static void at_shape_player(at_run* run, int i) {
  at_console* m = run->m;
  uint64_t line[4] = {0};
  uint8_t pixels = (uint8_t)at_shown(m, i);
  int mode = m->size[i] & 7, scale = at_scale(m->size[i]), x = m->position[AT_P0 + i];
  uint32_t wide = m->reflected[i] ? pixels : at_reversed(pixels);
  if (scale > 1) wide = at_doubled(wide), x++;
  if (scale > 2) wide = at_doubled(wide);
  for (int copy = m->restarted[i]; pixels && copy < at_copies[mode]; copy++)
    at_put(line, wide, x + at_distance[mode][copy]);
  at_keep(&run->shape[AT_P0 + i], line);
}

static void at_shape_missile(at_run* run, int i) {
  at_console* m = run->m;
  uint64_t line[4] = {0};
  int is_on = at_shown(m, AT_M0 + i) && !m->locked[i] && (i || m->stars != AT_STARS_HIDDEN);
  int mode = m->size[i] & 7, width = 1 << (m->size[i] >> 4 & 3);
  if (!i && m->stars == AT_STARS_WIDE) width = 2;
  for (int copy = 0; is_on && copy < at_copies[mode]; copy++)
    at_put(line, (1u << width) - 1, m->position[AT_M0 + i] + at_distance[mode][copy]);
  at_keep(&run->shape[AT_M0 + i], line);
}

static void at_shape_ball(at_run* run) {
  at_console* m = run->m;
  uint64_t line[4] = {0};
  if (at_shown(m, AT_BALL))
    at_put(line, (1u << (1 << (m->control >> 4 & 3))) - 1, m->position[AT_BALL]);
  at_keep(&run->shape[AT_BALL], line);
}

static void at_shape_field(at_run* run) {
  static const uint16_t wide[16] = {0x0000, 0x000F, 0x00F0, 0x00FF, 0x0F00, 0x0F0F, 0x0FF0, 0x0FFF,
                                    0xF000, 0xF00F, 0xF0F0, 0xF0FF, 0xFF00, 0xFF0F, 0xFFF0, 0xFFFF};
  uint32_t left = run->m->playfield, right = left;
  if (run->m->mirror)
    right = at_reversed(left & 255) << 12 | at_reversed(left >> 8 & 255) << 4 |
            at_reversed(left >> 16 & 15) >> 4;
  uint64_t word[3] = {0};
  for (int i = 0; i < 5; i++) {
    word[i >> 2] |= (uint64_t)wide[left >> 4 * i & 15] << 16 * (i & 3);
    word[(i + 5) >> 2] |= (uint64_t)wide[right >> 4 * i & 15] << 16 * ((i + 5) & 3);
  }
  memcpy(run->shape[AT_FIELD].word, word, sizeof word);
}

/* --- Collisions: bit pairs, in the order of the registers CXM0P to CXPPMM --- */

enum { AT_M0_P1 = 1, AT_M0_P0 = 2, AT_M1_P0 = 4, AT_M1_P1 = 8, AT_P0_PF = 16, AT_P0_BL = 32,
       AT_P1_PF = 64, AT_P1_BL = 128, AT_M0_PF = 256, AT_M0_BL = 512, AT_M1_PF = 1024,
       AT_M1_BL = 2048, AT_BL_PF = 4096, AT_P0_P1 = 8192, AT_M0_M1 = 16384 };

static const uint16_t at_pairs[AT_OBJECTS + 1][AT_OBJECTS + 1] = {
    {0, AT_P0_P1, AT_M0_P0, AT_M1_P0, AT_P0_BL, AT_P0_PF},
    {AT_P0_P1, 0, AT_M0_P1, AT_M1_P1, AT_P1_BL, AT_P1_PF},
    {AT_M0_P0, AT_M0_P1, 0, AT_M0_M1, AT_M0_BL, AT_M0_PF},
    {AT_M1_P0, AT_M1_P1, AT_M0_M1, 0, AT_M1_BL, AT_M1_PF},
    {AT_P0_BL, AT_P1_BL, AT_M0_BL, AT_M1_BL, 0, AT_BL_PF},
    {AT_P0_PF, AT_P1_PF, AT_M0_PF, AT_M1_PF, AT_BL_PF, 0}};

static inline uint32_t at_pairs_of(int object) {
  uint32_t pairs = 0;
  for (int i = 0; i <= AT_FIELD; i++) pairs |= at_pairs[object][i];
  return pairs;
}

/* The pairs of objects that are both shown. */
static inline uint32_t at_pairs_shown(const at_console* m) {
  uint32_t pairs = 0x7FFF;
  for (int i = 0; i <= AT_FIELD; i++) pairs &= at_shown(m, i) ? ~0u : ~at_pairs_of(i);
  return pairs;
}

/* The pairs of which one is an object, and which have pixels in common in a range. */
static inline uint32_t at_meet(const at_run* run, int object, at_bits own) {
  uint32_t found = 0;
  for (int i = 0; i <= AT_FIELD; i++) {
    const uint64_t* word = run->shape[i].word;
    if ((own.word[0] & word[0]) | (own.word[1] & word[1]) | (own.word[2] & word[2]))
      found |= at_pairs[object][i];
  }
  return found;
}

/* Finds what a new shape meets on the whole line. */
static inline void at_meet_all(at_run* run, int object) {
  run->meeting = (run->meeting & ~at_pairs_of(object)) | at_meet(run, object, run->shape[object]);
}

static void at_shape(at_run* run) {
  int stale = run->stale;
  if (stale & 1 << AT_P0) at_shape_player(run, 0), at_meet_all(run, AT_P0);
  if (stale & 1 << AT_P1) at_shape_player(run, 1), at_meet_all(run, AT_P1);
  if (stale & 1 << AT_M0) at_shape_missile(run, 0), at_meet_all(run, AT_M0);
  if (stale & 1 << AT_M1) at_shape_missile(run, 1), at_meet_all(run, AT_M1);
  if (stale & 1 << AT_BALL) at_shape_ball(run), at_meet_all(run, AT_BALL);
  if (stale & AT_STALE_FIELD) at_shape_field(run), at_meet_all(run, AT_FIELD);
  run->stale = 0;
}

static void at_collide(at_run* run, int x0, int x1) {
  at_bits range = at_range(x0, x1);
  for (int i = 0; i < AT_FIELD; i++) {
    at_bits own = run->shape[i];
    for (int k = 0; k < 3; k++) own.word[k] &= range.word[k];
    run->m->collisions |= at_meet(run, i, own);
  }
}

/* --- Pixels --- */

/* Eight bits as eight bytes, 0 or 255. */
#define AT_BIT(b, i) ((b) >> (i) & 1 ? 255ull << 8 * (i) : 0)
#define AT_BYTE(b) (AT_BIT(b, 0) | AT_BIT(b, 1) | AT_BIT(b, 2) | AT_BIT(b, 3) | AT_BIT(b, 4) | \
                    AT_BIT(b, 5) | AT_BIT(b, 6) | AT_BIT(b, 7))
#define AT_4(b) AT_BYTE(b), AT_BYTE((b) + 1), AT_BYTE((b) + 2), AT_BYTE((b) + 3)
#define AT_16(b) AT_4(b), AT_4((b) + 4), AT_4((b) + 8), AT_4((b) + 12)
#define AT_64(b) AT_16(b), AT_16((b) + 16), AT_16((b) + 32), AT_16((b) + 48)
static const uint64_t at_spread[256] = {AT_64(0), AT_64(64), AT_64(128), AT_64(192)};

static inline uint8_t at_eight(const at_bits* bits, int group) {
  return (uint8_t)(bits->word[group >> 3] >> 8 * (group & 7));
}

static inline int at_has_objects(const at_console* m) {
  return at_shown(m, AT_P0) || at_shown(m, AT_P1) || at_shown(m, AT_M0) || at_shown(m, AT_M1) ||
         at_shown(m, AT_BALL);
}

static void at_paint(at_run* run, uint8_t* row, int x0, int x1) {
  const at_console* m = run->m;
  const uint64_t each = 0x0101010101010101ull;
  uint64_t first = (m->color[0] | m->pale) * each, second = (m->color[1] | m->pale) * each;
  uint64_t ball = (m->color[2] | m->pale) * each, back = (m->color[3] | m->pale) * each;
  /* The left half of the field has the first player's color and priority, the right half the
   * second's, unless the field is in front of objects that are switched on. */
  int over = m->control & 4, scores = m->control & 2 && !(over && at_has_objects(m));
  for (int group = x0 >> 3; 8 * group < x1; group++) {
    uint64_t own = ~0ull, color = back;
    if (8 * group < x0) own &= ~0ull << 8 * (x0 - 8 * group);
    if (8 * group + 8 > x1) own &= ~0ull >> 8 * (8 * group + 8 - x1);
    const at_bits* shape = run->shape;
    uint64_t a = at_spread[at_eight(&shape[AT_P0], group) | at_eight(&shape[AT_M0], group)];
    uint64_t b = at_spread[at_eight(&shape[AT_P1], group) | at_eight(&shape[AT_M1], group)];
    uint64_t c = at_spread[at_eight(&run->shape[AT_FIELD], group)];
    uint64_t d = at_spread[at_eight(&shape[AT_BALL], group)];
    uint64_t field = scores ? (group < 10 ? first : second) : ball;
    if (!over) {
      color ^= (color ^ ball) & d;
      color ^= (color ^ field) & c;
      if (scores && group < 10) a |= c;
      else if (scores) b |= c;
    }
    color ^= (color ^ second) & b;
    color ^= (color ^ first) & a;
    if (over) {
      color ^= (color ^ ball) & d;
      color ^= (color ^ field) & c;
    }
    uint64_t old;
    memcpy(&old, row + 8 * group, 8);
    old ^= (old ^ color) & own;
    memcpy(row + 8 * group, &old, 8);
  }
}

#ifdef AT_AVX2
/* 32 of the bits as bytes, 0 or 255. */
AT_AVX2 static inline __m256i at_bytes(uint32_t bits) {
  const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201ull);
  const __m256i eights = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                           0x0101010101010101, 0);
  __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), eights);
  return _mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit);
}

static inline uint32_t at_word(const at_bits* bits, int i) {
  return (uint32_t)(bits->word[i >> 1] >> 32 * (i & 1));
}

/* The same as at_paint. */
AT_AVX2 static void at_paint_avx2(const at_run* run, uint8_t* row, int x0, int x1) {
  const at_console* m = run->m;
  const at_bits *shape = run->shape, range = at_range(x0, x1);
  __m256i color[4];
  for (int i = 0; i < 4; i++) color[i] = _mm256_set1_epi8((char)(m->color[i] | m->pale));
  int over = m->control & 4, scores = m->control & 2 && !(over && at_has_objects(m));
  for (int i = x0 / 32; 32 * i < x1; i++) {
    __m256i* place = (__m256i*)(row + 32 * i);
    uint32_t left = i < 2 ? ~0u : i == 2 ? 0xFFFF : 0, c = at_word(&shape[AT_FIELD], i);
    uint32_t a = at_word(&shape[AT_P0], i) | at_word(&shape[AT_M0], i);
    uint32_t b = at_word(&shape[AT_P1], i) | at_word(&shape[AT_M1], i);
    __m256i ball = at_bytes(at_word(&shape[AT_BALL], i)), field = color[2], all = color[3];
    if (scores) field = _mm256_blendv_epi8(color[1], color[0], at_bytes(left));
    if (!over) {
      all = _mm256_blendv_epi8(all, color[2], ball);
      all = _mm256_blendv_epi8(all, field, at_bytes(c));
      if (scores) a |= c & left, b |= c & ~left;
    }
    all = _mm256_blendv_epi8(all, color[1], at_bytes(b));
    all = _mm256_blendv_epi8(all, color[0], at_bytes(a));
    if (over) {
      all = _mm256_blendv_epi8(all, color[2], ball);
      all = _mm256_blendv_epi8(all, field, at_bytes(c));
    }
    all = _mm256_blendv_epi8(_mm256_loadu_si256(place), all, at_bytes(at_word(&range, i)));
    _mm256_storeu_si256(place, all);
  }
}
#endif

/* Draws the pixels x0 to x1 - 1 of a line, if there is a picture. */
static void at_draw(at_run* run, uint8_t* pixels, int x0, int x1) {
  at_console* m = run->m;
  if (m->vertical_blank & 2) {
    if (pixels) memset(pixels + x0, 0, (size_t)(x1 - x0));
    return;
  }
  if (run->stale) {
    /* The stars' shape is as old as it was drawn, so that they are drawn whenever they could be. */
    if (!pixels && !m->stars && !(at_pairs_shown(m) & ~m->collisions)) return;
    at_shape(run);
  }
  if (run->meeting & ~m->collisions) at_collide(run, x0, x1);
  if (!pixels) return;
#ifdef AT_AVX2
  if (__builtin_cpu_supports("avx2")) at_paint_avx2(run, pixels, x0, x1);
  else
#endif
    at_paint(run, pixels, x0, x1);
  if (m->comb && x0 < 8 && run->cart->blanks_after_hmove)
    memset(pixels + x0, 0, (size_t)((x1 < 8 ? x1 : 8) - x0));
}

static inline void at_mirror(at_run* run) {
  if (run->m->mirror != (run->m->control & 1)) {
    run->m->mirror = run->m->control & 1;
    run->stale |= AT_STALE_FIELD;
  }
}

/* Ends what a restart does to a player's copies on its line. */
static void at_show_all(at_run* run) {
  at_console* m = run->m;
  for (int i = 0; i < 2; i++)
    if (m->restarted[i]) {
      m->restarted[i] = 0;
      run->stale |= 1 << (AT_P0 + i);
    }
}

/* What HMOVE, RESPx, and CTRLPF have postponed to this line. */
static void at_begin_line(at_run* run) {
  at_console* m = run->m;
  if (m->stars) { /* 17 pulses a line, but not all of them move the missile on this line */
    static const uint8_t moves[4] = {33, 0, 17, 18};
    int x = m->position[AT_M0] + AT_WIDTH - moves[m->stars - 1];
    m->position[AT_M0] = (uint8_t)(x % AT_WIDTH);
    m->stars = (uint8_t)(m->stars % 4 + 1);
    run->stale |= 1 << AT_M0;
  }
  at_mirror(run);
  at_show_all(run);
}

/* Draws up to a clock of the frame. */
static void at_draw_to(at_run* run, int32_t clock) {
  at_console* m = run->m;
  int is_same = 0; /* whether the next line looks like the one above */
  while (m->drawn < clock) {
    int32_t line_end = run->line + AT_CLOCKS, end = clock < line_end ? clock : line_end;
    int x0 = m->drawn - run->line - AT_BLANK, x1 = end - run->line - AT_BLANK;
    int seen = run->row >= 0 && run->row < run->cart->height;
    if (x0 < 0) x0 = 0;
    if (seen && run->row && m->drawn == run->line) at_begin_line(run);
    is_same &= !run->stale;
    if (seen && x0 < x1) {
      uint8_t* pixels = run->picture ? run->picture + run->row * AT_WIDTH : 0;
      if (!is_same) at_draw(run, pixels, x0, x1);
      else if (pixels) memcpy(pixels, pixels - AT_WIDTH, (size_t)x1);
    }
    m->drawn = end;
    if (end < line_end) return;
    is_same = seen && x0 == 0 && !m->comb;
    if (seen) m->comb = m->hmove == end / 3 - 1; /* late, it has its comb on the next line */
    run->line = line_end;
    run->row++;
  }
}

/* --- Registers --- */

/* Starts a player anew at the beam. Its first copy has to wait for the next line, and further ones
 * come on this. If a copy is being drawn, the old place counts for 11 more clocks. If one would
 * have begun within four pixels, the first copy does not wait. */
static void at_restart_player(at_run* run, int i, int32_t clock) {
  at_console* m = run->m;
  int x = clock - AT_BLANK, position = x < 0 ? 3 : (x + 5) % AT_WIDTH;
  int mode = m->size[i] & 7, width = 8 * at_scale(m->size[i]), waits = 1, draws = 0;
  for (int copy = 0; copy < at_copies[mode]; copy++) {
    int old = m->position[AT_P0 + i] + at_distance[mode][copy];
    int begun = (position - 4 - old + 3 * AT_WIDTH) % AT_WIDTH;
    if (begun < width) draws = 1;
    if (begun >= AT_WIDTH - 4) waits = 0;
  }
  at_draw_to(run, m->cycle * 3 + 11 * draws);
  m->restarted[i] = (uint8_t)waits;
  m->position[AT_P0 + i] = (uint8_t)position;
  run->stale |= 1 << (AT_P0 + i);
}

/* Starts a missile or the ball anew at the beam. The old place of a missile counts for eight more
 * clocks. After some pairs of HMOVE and the reset, an object that has still to be moved comes to
 * other places. */
static void at_restart(at_run* run, int object, int32_t clock) {
  static const uint8_t pairs[][4] = {/* object, cycles of the line: HMOVE, reset; position */
                                     {AT_M0, 3, 23, 8},  {AT_M1, 3, 6, 3},    {AT_BALL, 3, 6, 3},
                                     {AT_BALL, 3, 9, 5}, {AT_BALL, 3, 10, 6}, {AT_BALL, 5, 23, 10}};
  at_console* m = run->m;
  int x = clock - AT_BLANK, position = x < 0 ? 2 : (x + 4) % AT_WIDTH;
  int moved = m->hmove - m->cycle / AT_LINE * AT_LINE;
  for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (object == pairs[i][0] && moved == pairs[i][1] && clock == 3 * pairs[i][2])
      position = pairs[i][3];
  at_draw_to(run, m->cycle * 3 + (object == AT_BALL ? 0 : 8));
  m->position[object] = (uint8_t)position;
  run->stale |= 1 << object;
}

/* How many pulses, of which the first comes at a clock and the others every four, come before
 * another. */
static inline int at_pulses(int first, int before) {
  return before > first ? (before - first + 3) >> 2 : 0;
}

/* Moves the objects. An object gets pulses until a counter has reached its motion register. A pulse
 * moves it left in the horizontal blank, of this line and the next, and does nothing elsewhere. If
 * HMOVE comes early, it also makes the blank 8 pixels longer, in which objects stand still. */
static void at_move(at_run* run, int32_t clock) {
  at_console* m = run->m;
  at_draw_to(run, m->cycle * 3);
  int combs = clock <= 60, late = clock >= 225, first = ((clock + 5) & ~3) + 4;
  int here = at_pulses(first, late ? 0 : combs ? 76 : AT_BLANK);
  int later = at_pulses(first, AT_CLOCKS);
  m->comb |= combs || late;
  m->stars = 0;
  m->hmove = m->cycle;
  for (int i = 0; i < AT_OBJECTS; i++) {
    int all = m->motion[i] ^ 8;
    int moved = (here < all ? here : all) + all - (later < all ? later : all);
    if (combs || late) moved -= 8;
    if (moved) {
      m->position[i] = (uint8_t)((m->position[i] - moved + AT_WIDTH) % AT_WIDTH);
      run->stale |= 1 << i;
    }
  }
  at_show_all(run);
}

static int at_center(const at_console* m, int i) {
  int scale = at_scale(m->size[i]);
  return (m->position[AT_P0 + i] + (scale == 1 ? 4 : scale == 2 ? 8 : 16)) % AT_WIDTH;
}

static void at_write_tia(at_run* run, uint8_t address, uint8_t value) {
  at_console* m = run->m;
  int32_t now = m->cycle * 3;
  if (m->cycle >= run->last) run->over = 1; /* too long */
#define AT_CLOCK (m->cycle % AT_LINE * 3) /* of the line */
#define AT_SET(place, new_value, delay, stales)   \
  do {                                            \
    uint8_t next_ = (uint8_t)(new_value);         \
    if ((place) != next_) {                       \
      at_draw_to(run, now + (delay));             \
      (place) = next_;                            \
      run->stale |= (stales);                     \
    }                                             \
  } while (0)
  switch (address & 0x3F) {
    case 0x00: /* VSYNC */
      if (value & 2) {
        m->sync_end = m->cycle + AT_LINE;
      } else if (m->cycle >= m->sync_end) {
        run->over = 1;
        m->sync_end = INT32_MAX;
      }
      break;
    case 0x01: /* VBLANK */
      if (m->vertical_blank & 0x80 && !(value & 0x80)) m->dumped = m->cycle;
      AT_SET(m->vertical_blank, value, 1, 0);
      break;
    case 0x02: /* WSYNC */
      m->cycle += (AT_LINE - m->cycle % AT_LINE) % AT_LINE;
      break;
    case 0x04:
    case 0x05: { /* NUSIZx */
      int i = address & 1;
      AT_SET(m->size[i], value & 0x37, 8, 5 << i);
      AT_SET(m->restarted[i], 0, 8, 1 << i);
      break;
    }
    case 0x06:
    case 0x07:
    case 0x08:
    case 0x09: /* COLUxx */
      if (m->color[(address & 0x3F) - 6] != (value & 0xFE)) { /* see at_draw */
        if (run->picture || m->stars) at_draw_to(run, now);
        else run->asked = now;
        m->color[(address & 0x3F) - 6] = value & 0xFE;
      }
      break;
    case 0x0A: /* CTRLPF */
      AT_SET(m->control, value & 0x37, 0, 1 << AT_BALL);
      if (AT_CLOCK < AT_BLANK + 79 && m->mirror != (value & 1)) {
        at_draw_to(run, now);
        at_mirror(run);
      }
      break;
    case 0x0B:
    case 0x0C: { /* REFPx */
      int i = !(address & 1);
      AT_SET(m->reflected[i], value >> 3 & 1, 1, 1 << i);
      break;
    }
    case 0x0D: /* PF0 to PF2 */
    case 0x0E:
    case 0x0F: {
      int part = (address & 0x3F) - 0x0D;
      uint32_t field = part == 0   ? (m->playfield & ~0xFu) | value >> 4
                       : part == 1 ? (m->playfield & ~0xFF0u) | (uint32_t)at_reversed(value) << 4
                                   : (m->playfield & ~0xFF000u) | (uint32_t)value << 12;
      if (field != m->playfield) { /* which counts from the next four pixels on */
        at_draw_to(run, now + ((AT_CLOCK + 5) & ~3) - AT_CLOCK);
        m->playfield = field;
        run->stale |= AT_STALE_FIELD;
      }
      break;
    }
    case 0x10:
    case 0x11: /* RESPx */
      at_restart_player(run, address & 1, AT_CLOCK);
      break;
    case 0x12:
    case 0x13:
    case 0x14: /* RESMx, RESBL */
      at_restart(run, AT_M0 + (address & 0x3F) - 0x12, AT_CLOCK);
      break;
    case 0x1B:
    case 0x1C: { /* GRPx, which also keeps the other player's graphics, and the ball's */
      int i = !(address & 1);
      AT_SET(m->graphics[i], value, 1, 1 << i);
      AT_SET(m->old_graphics[!i], m->graphics[!i], 1, 1 << !i);
      if (i) AT_SET(m->old_ball, m->enabled[2], 1, 1 << AT_BALL);
      break;
    }
    case 0x1D:
    case 0x1E: { /* ENAMx */
      int i = !(address & 1);
      AT_SET(m->enabled[i], value >> 1 & 1, 0, 1 << (AT_M0 + i));
      break;
    }
    case 0x1F: /* ENABL */
      AT_SET(m->enabled[2], value >> 1 & 1, 0, 1 << AT_BALL);
      break;
    case 0x20:
    case 0x21:
    case 0x22:
    case 0x23:
    case 0x24: /* HMxx */
      if ((address & 0x3F) == 0x22 && m->cycle == m->hmove + 21 && m->motion[AT_M0] == 7 &&
          value >> 4 == 6)
        m->stars = AT_STARS_FIRST; /* the counter has just passed what it now waits for */
      m->motion[(address & 0x3F) - 0x20] = value >> 4;
      break;
    case 0x25:
    case 0x26: { /* VDELPx */
      int i = !(address & 1);
      AT_SET(m->delayed[i], value & 1, 0, 1 << i);
      break;
    }
    case 0x27: /* VDELBL */
      AT_SET(m->delayed[2], value & 1, 0, 1 << AT_BALL);
      break;
    case 0x28:
    case 0x29: { /* RESMPx */
      int i = address & 1;
      if (m->locked[i] && !(value & 2)) m->position[AT_M0 + i] = (uint8_t)at_center(m, i);
      AT_SET(m->locked[i], value >> 1 & 1, 0, 4 << i);
      break;
    }
    case 0x2A: /* HMOVE */
      at_move(run, AT_CLOCK);
      break;
    case 0x2B: /* HMCLR */
      memset(m->motion, 0, sizeof m->motion);
      break;
    case 0x2C: /* CXCLR */
      at_draw_to(run, now);
      m->collisions = 0;
      break;
    default: break;
  }
#undef AT_SET
#undef AT_CLOCK
}

/* Bits 7 and 6 are the TIA's; the others are what was on the bus. */
static uint8_t at_read_tia(at_run* run, uint8_t address) {
  at_console* m = run->m;
  uint8_t noise = m->bus & 0x3F, value = 0;
  int port = address & 0x0F;
  if (port < 8) {
    static const uint16_t high[8] = {AT_M0_P1, AT_M1_P0, AT_P0_PF, AT_P1_PF,
                                     AT_M0_PF, AT_M1_PF, AT_BL_PF, AT_P0_P1};
    static const uint16_t low[8] = {AT_M0_P0, AT_M1_P1, AT_P0_BL, AT_P1_BL,
                                    AT_M0_BL, AT_M1_BL, 0,        AT_M0_M1};
    at_draw_to(run, m->cycle * 3);
    if (m->collisions & high[port]) value |= 0x80;
    if (m->collisions & low[port]) value |= 0x40;
  } else if (port < 12) { /* INPT0 to INPT3: whether the capacitor of a paddle is charged */
    int32_t ohms = run->in->paddles[port - 8];
    int32_t needed = (int32_t)(1.6 * ohms * 1e-8 * 1.19e6); /* cycles, with 10 nF */
    int charged = !(m->vertical_blank & 0x80) && m->cycle > m->dumped + needed;
    if (ohms == 0 || (ohms > 0 && charged)) value = 0x80;
  } else if (port < 14) { /* INPT4 and INPT5: 0 while the button is pressed */
    int i = port - 12;
    value = run->in->fire[i] ? 0 : 0x80;
  }
  return value | noise;
}

#endif
