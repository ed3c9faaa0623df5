/* Colors of the Atari 2600, and pictures as agents see them: gray, pooled over two frames, resized.
 *
 * A screen is uint8[height * 160] of palette indices, as the machine paints it. Results equal those
 * of ale_py 0.12 (colors) and of OpenCV's resize with INTER_AREA on x86-64, to the bit; the tests
 * compare them. Valid C and C++.
 */
#ifndef JAXENVS_ATARI_PIXELS_H
#define JAXENVS_ATARI_PIXELS_H

#include <stdlib.h>

#include "console.h"

#if defined(__GNUC__) && !defined(__clang__) && !defined(AT_PORTABLE)
#define PX_OPTIMIZE(...) __attribute__((optimize(__VA_ARGS__)))
#else
#define PX_OPTIMIZE(...)
#endif
/* OpenCV's floats are those of x86-64 without fused operations, which round in other ways. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#define PX_UNFUSED
#elif defined(__GNUC__)
#define PX_UNFUSED __attribute__((optimize("fp-contract=off")))
#else
#define PX_UNFUSED
#endif
#if defined(AT_AVX2) && defined(__GLIBC__) && !defined(__clang__)
#define PX_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define PX_CLONES
#endif
/* GCC vectorizes it at -O2 too. O3 would unroll its loops first, and then not see them. */
#define PX_FAST PX_CLONES PX_OPTIMIZE("O2", "tree-vectorize", "vect-cost-model=dynamic")

enum { PX_MAX_HEIGHT = 256, PX_LANES = 8 };

/* ---- Colors ---- */

/* What each palette index stands for. */
typedef struct {
  uint8_t red[256], green[256], blue[256], gray[256];
} px_colors;

/* 0xrrggbb of the even indices: 16 hues of 8 luminances. Observed, every one of them. */
static const uint32_t px_ntsc[128] = {
    0x000000, 0x4a4a4a, 0x6f6f6f, 0x8e8e8e, 0xaaaaaa, 0xc0c0c0, 0xd6d6d6, 0xececec,
    0x484800, 0x69690f, 0x86861d, 0xa2a22a, 0xbbbb35, 0xd2d240, 0xe8e84a, 0xfcfc54,
    0x7c2c00, 0x904811, 0xa26221, 0xb47a30, 0xc3903d, 0xd2a44a, 0xdfb755, 0xecc860,
    0x901c00, 0xa33915, 0xb55328, 0xc66c3a, 0xd5824a, 0xe39759, 0xf0aa67, 0xfcbc74,
    0x940000, 0xa71a1a, 0xb83232, 0xc84848, 0xd65c5c, 0xe46f6f, 0xf08080, 0xfc9090,
    0x840064, 0x97197a, 0xa8308f, 0xb846a2, 0xc659b3, 0xd46cc3, 0xe07cd2, 0xec8ce0,
    0x500084, 0x68199a, 0x7d30ad, 0x9246c0, 0xa459d0, 0xb56ce0, 0xc57cee, 0xd48cfc,
    0x140090, 0x331aa3, 0x4e32b5, 0x6848c6, 0x7f5cd5, 0x956fe3, 0xa980f0, 0xbc90fc,
    0x000094, 0x181aa7, 0x2d32b8, 0x4248c8, 0x545cd6, 0x656fe4, 0x7580f0, 0x8490fc,
    0x001c88, 0x183b9d, 0x2d57b0, 0x4272c2, 0x548ad2, 0x65a0e1, 0x75b5ef, 0x84c8fc,
    0x003064, 0x185080, 0x2d6d98, 0x4288b0, 0x54a0c5, 0x65b7d9, 0x75cceb, 0x84e0fc,
    0x004030, 0x18624e, 0x2d8169, 0x429e82, 0x54b899, 0x65d1ae, 0x75e7c2, 0x84fcd4,
    0x004400, 0x1a661a, 0x328432, 0x48a048, 0x5cba5c, 0x6fd26f, 0x80e880, 0x90fc90,
    0x143c00, 0x355f18, 0x527e2d, 0x6e9c42, 0x87b754, 0x9ed065, 0xb4e775, 0xc8fc84,
    0x303800, 0x505916, 0x6d762b, 0x88923e, 0xa0ab4f, 0xb7c25f, 0xccd86e, 0xe0ec7c,
    0x482c00, 0x694d14, 0x866a26, 0xa28638, 0xbb9f47, 0xd2b656, 0xe8cc63, 0xfce070,
};

/* The same of the ten games with a picture of 250 lines, made for European televisions. */
static const uint32_t px_pal[128] = {
    0x000000, 0x2b2b2b, 0x525252, 0x767676, 0x979797, 0xb6b6b6, 0xd2d2d2, 0xececec,
    0x000000, 0x2b2b2b, 0x525252, 0x767676, 0x979797, 0xb6b6b6, 0xd2d2d2, 0xececec,
    0x805800, 0x96711a, 0xab8732, 0xbe9c48, 0xcfaf5c, 0xdfc06f, 0xeed180, 0xfce090,
    0x445c00, 0x5e791a, 0x769332, 0x8cac48, 0xa0c25c, 0xb3d76f, 0xc4ea80, 0xd4fc90,
    0x703400, 0x89511a, 0xa06b32, 0xb68448, 0xc99a5c, 0xdcaf6f, 0xecc280, 0xfcd490,
    0x006414, 0x1a8035, 0x329852, 0x48b06e, 0x5cc587, 0x6fd99e, 0x80ebb4, 0x90fcc8,
    0x700014, 0x891a35, 0xa03252, 0xb6486e, 0xc95c87, 0xdc6f9e, 0xec80b4, 0xfc90c8,
    0x005c5c, 0x1a7676, 0x328e8e, 0x48a4a4, 0x5cb8b8, 0x6fcbcb, 0x80dcdc, 0x90ecec,
    0x70005c, 0x841a74, 0x963289, 0xa8489e, 0xb75cb0, 0xc66fc1, 0xd380d1, 0xe090e0,
    0x003c70, 0x195a89, 0x2f75a0, 0x448eb6, 0x57a5c9, 0x68badc, 0x79ceec, 0x88e0fc,
    0x580070, 0x6e1a89, 0x8332a0, 0x9648b6, 0xa75cc9, 0xb76fdc, 0xc680ec, 0xd490fc,
    0x002070, 0x193f89, 0x2f5aa0, 0x4474b6, 0x578bc9, 0x68a1dc, 0x79b5ec, 0x88c8fc,
    0x340080, 0x4a1a96, 0x5f32ab, 0x7248be, 0x835ccf, 0x936fdf, 0xa280ee, 0xb090fc,
    0x000088, 0x1a1a9d, 0x3232b0, 0x4848c2, 0x5c5cd2, 0x6f6fe1, 0x8080ef, 0x9090fc,
    0x000000, 0x2b2b2b, 0x525252, 0x767676, 0x979797, 0xb6b6b6, 0xd2d2d2, 0xececec,
    0x000000, 0x2b2b2b, 0x525252, 0x767676, 0x979797, 0xb6b6b6, 0xd2d2d2, 0xececec,
};

/* Fills in the colors of games with the given number of lines. */
static inline void px_colors_init(px_colors *colors, int height) {
  const uint32_t *table = height == 250 ? px_pal : px_ntsc;
  for (int i = 0; i < 256; i += 2) {
    uint8_t red = table[i / 2] >> 16, green = table[i / 2] >> 8, blue = table[i / 2];
    uint8_t gray = (uint8_t)((2989 * red + 5870 * green + 1140 * blue + 5000) / 10000);
    colors->red[i] = red, colors->green[i] = green, colors->blue[i] = blue, colors->gray[i] = gray;
    /* Odd: the line has no color, as European televisions show it after an odd number of lines. ALE
     * then gives as gray the blue of the next color, and so do we. */
    colors->red[i + 1] = colors->green[i + 1] = colors->blue[i + 1] = gray;
    colors->gray[i + 1] = i < 254 ? (uint8_t)table[i / 2 + 1] : 0;
  }
}

/* Writes uint8[count, 3] for `count` pixels. */
static inline void px_to_rgb(const px_colors *colors, const uint8_t *screen, int count,
                             uint8_t *rgb) {
  for (int i = 0; i < count; i++) {
    rgb[3 * i] = colors->red[screen[i]];
    rgb[3 * i + 1] = colors->green[screen[i]];
    rgb[3 * i + 2] = colors->blue[screen[i]];
  }
}

/* Writes the greater of table[first[i]] and table[second[i]] for the pixels of a line. */
static inline void px_pool_line(const uint8_t *table, const uint8_t *first, const uint8_t *second,
                                uint8_t *values) {
  for (int x = 0; x < AT_WIDTH; x++) {
    uint8_t one = table[first[x]], other = table[second[x]];
    values[x] = one > other ? one : other;
  }
}

#ifdef AT_AVX2
AT_AVX2 static inline __m256i px_load(const uint8_t *bytes) {
  return _mm256_loadu_si256((const __m256i *)bytes);
}

/* Looks up 32 even indices in 8 tables of 16 values each. parts[k] is the exclusive or of the k-th
 * table and the one before it, and a shuffle gives zeros for negative indices. So what is left when
 * all parts have been added up is the table that an index belongs to. */
AT_AVX2 static inline __m256i px_look_up(const __m256i *parts, __m256i indices) {
  indices = _mm256_and_si256(_mm256_srli_epi16(indices, 1), _mm256_set1_epi8(127));
  __m256i values = _mm256_shuffle_epi8(parts[0], indices);
  for (int k = 1; k < 8; k++) {
    indices = _mm256_sub_epi8(indices, _mm256_set1_epi8(16));
    values = _mm256_xor_si256(values, _mm256_shuffle_epi8(parts[k], indices));
  }
  return values;
}

AT_AVX2 static inline void px_pool_avx2(const uint8_t *table, const uint8_t *first,
                                        const uint8_t *second, int height, uint8_t *values) {
  uint8_t bytes[8][16];
  for (int i = 0; i < 128; i++)
    bytes[i / 16][i % 16] = table[2 * i] ^ (i < 16 ? 0 : table[2 * i - 32]);
  __m256i parts[8];
  for (int k = 0; k < 8; k++)
    parts[k] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)bytes[k]));
  for (int y = 0; y < height; y++, first += AT_WIDTH, second += AT_WIDTH, values += AT_WIDTH) {
    const uint8_t *above = y ? first - AT_WIDTH : first, *above2 = y ? second - AT_WIDTH : second;
    __m256i change = _mm256_setzero_si256(), odd = _mm256_setzero_si256();
    for (int x = 0; x < AT_WIDTH; x += 32) {
      __m256i a = px_load(first + x), b = px_load(second + x);
      odd = _mm256_or_si256(odd, _mm256_or_si256(a, b));
      change = _mm256_or_si256(change, _mm256_xor_si256(a, px_load(above + x)));
      change = _mm256_or_si256(change, _mm256_xor_si256(b, px_load(above2 + x)));
    }
    if (y && _mm256_testz_si256(change, change)) { /* most lines look like the one above */
      memcpy(values, values - AT_WIDTH, AT_WIDTH);
    } else if (!_mm256_testz_si256(odd, _mm256_set1_epi8(1))) {
      px_pool_line(table, first, second, values);
    } else {
      for (int x = 0; x < AT_WIDTH; x += 32) {
        __m256i a = px_load(first + x), b = px_load(second + x), differ = _mm256_xor_si256(a, b);
        __m256i value = px_look_up(parts, a);
        if (!_mm256_testz_si256(differ, differ))
          value = _mm256_max_epu8(value, px_look_up(parts, b));
        _mm256_storeu_si256((__m256i *)(values + x), value);
      }
    }
  }
}
#endif

/* Writes the greater of table[first[i]] and table[second[i]] for each pixel of `height` lines. */
static inline void px_pool(const uint8_t *table, const uint8_t *first, const uint8_t *second,
                           int height, uint8_t *values) {
#ifdef AT_AVX2
  if (__builtin_cpu_supports("avx2")) {
    px_pool_avx2(table, first, second, height, values);
    return;
  }
#endif
  for (int i = 0; i < height * AT_WIDTH; i += AT_WIDTH)
    px_pool_line(table, first + i, second + i, values + i);
}

/* ---- Resizing ---- */

/* The pixels that those of the result are made of, along one axis: `taps` from `first` on. */
typedef struct {
  int from, to, taps, sum;
  int *first;       /* [to] */
  float *weight;    /* [to, taps], of sum 1; only for shrinking */
  uint16_t *part;   /* [to, taps], the same as whole numbers, of the sum `sum` */
} px_axis;

typedef struct {
  px_axis y, x;
  int enlarges;     /* along at least one axis; OpenCV then interpolates along both */
  int whole;        /* both ratios are whole, as px_scale has them; OpenCV then adds up integers */
  int fast;         /* px_shrink_fast can be used; these are for it: */
  int shift, slack;
  uint16_t *quick;  /* [columns, taps], x.part * 2**(16 + shift) / (x.sum * y.sum), rounded down */
} px_resize;

/* In OpenCV's order of operations: a ratio of 210 comes out as no whole number, for instance. */
static inline double px_scale(const px_axis *axis) { return 1 / ((double)axis->to / axis->from); }

static inline int px_least(int a, int b) { return a < b ? a : b; }

PX_UNFUSED static inline void px_axis_shrink(px_axis *axis) {
  double scale = px_scale(axis);
  for (int i = 0; i < axis->to; i++) {
    double begin = i * scale, end = begin + scale;
    double size = scale < axis->from - begin ? scale : axis->from - begin;
    int stop = px_least((int)end, axis->from - 1);
    int start = px_least((int)begin + (begin > (int)begin), stop);
    int before = start - begin > 1e-3, after = end - stop > 1e-3;
    /* Weights of zero in front keep the taps inside. */
    int first = px_least(start - before, axis->from - axis->taps);
    axis->first[i] = first;
    float *weight = axis->weight + i * axis->taps;
    if (before) weight[start - 1 - first] = (float)((start - begin) / size);
    for (int at = start; at < stop; at++) weight[at - first] = (float)(1 / size);
    double rest = end - stop < 1 ? end - stop : 1;
    if (after) weight[stop - first] = (float)((rest < size ? rest : size) / size);
    /* Lengths of the overlaps. The unit: a source pixel is axis->to long. */
    for (int k = 0; k < axis->taps; k++) {
      int left = (first + k) * axis->to, right = px_least(left + axis->to, (i + 1) * axis->from);
      if (left < i * axis->from) left = i * axis->from;
      axis->part[i * axis->taps + k] = (uint16_t)(right > left ? right - left : 0);
    }
  }
  axis->sum = axis->from;
}

/* Divides the parts by `divisor`, and multiplies them. */
static inline void px_axis_scale(px_axis *axis, int factor, int divisor) {
  for (int i = 0; i < axis->to * axis->taps; i++)
    axis->part[i] = (uint16_t)(axis->part[i] / divisor * factor);
  axis->sum = axis->sum / divisor * factor;
}

static inline int px_divisor(int a, int b) { return b ? px_divisor(b, a % b) : a; }

PX_UNFUSED static inline int px_round(float value) { /* of 0 to 2**22, half to even */
  return (int)(value + 8388608.0f - 8388608.0f);
}

PX_UNFUSED static inline void px_axis_enlarge(px_axis *axis) {
  double inverse = (double)axis->to / axis->from, scale = px_scale(axis);
  for (int i = 0; i < axis->to; i++) {
    int first = (int)(i * scale);
    float rest = (float)((i + 1) - (first + 1) * inverse);
    rest = rest <= 0 ? 0 : rest - (float)(int)rest;
    if (first >= axis->from - 1) first = axis->from - 2, rest = 1;
    axis->first[i] = first;
    axis->part[2 * i] = (uint16_t)px_round((1 - rest) * 2048);
    axis->part[2 * i + 1] = (uint16_t)px_round(rest * 2048);
  }
}

static inline void px_resize_free(px_resize *resize) {
  if (!resize) return;
  px_axis *axes[2] = {&resize->y, &resize->x};
  for (int i = 0; i < 2; i++) free(axes[i]->first), free(axes[i]->weight), free(axes[i]->part);
  free(resize->quick), free(resize);
}

/* Fills in what px_shrink_fast needs; see there. */
static inline void px_prepare_fast(px_resize *resize) {
  px_axis *y = &resize->y, *x = &resize->x;
  px_axis_scale(x, 1, px_divisor(x->from, x->to));
  int divisor = px_divisor(y->from, y->to);
  px_axis_scale(y, 255 / px_least(y->from / divisor, 255), divisor);
  int sum = y->sum * x->sum, most = 0;
  for (int i = 0; i < x->to * x->taps; i++) most = x->part[i] > most ? x->part[i] : most;
  while (resize->shift < 8 && (int64_t)most << (resize->shift + 1) < sum) resize->shift++;
  resize->slack = (int)(sum * (y->taps + x->taps + 4) / 65536.0) + 1;
  resize->fast = sum <= 32767 && y->sum <= 255 && 2 * x->taps + 1 <= 1 << resize->shift &&
                 2 * resize->slack < sum;
  for (int i = 0; i < x->to * x->taps && resize->fast; i++)
    resize->quick[i] = (uint16_t)(((int64_t)x->part[i] << (16 + resize->shift)) / sum);
}

/* Prepares resizing of [height, 160] to [rows, columns]. Null: no memory, or out of bounds. */
static inline px_resize *px_resize_new(int height, int rows, int columns) {
  if (height < 3 || height > PX_MAX_HEIGHT) return NULL;
  if (rows < 1 || columns < 1 || rows > 32767 || columns > 32767) return NULL;
  px_resize *resize = (px_resize *)calloc(1, sizeof(px_resize));
  if (!resize) return NULL;
  resize->enlarges = rows > height || columns > AT_WIDTH;
  resize->whole = 1;
  px_axis *axes[2] = {&resize->y, &resize->x};
  for (int i = 0; i < 2; i++) {
    px_axis *axis = axes[i];
    axis->from = i ? AT_WIDTH : height, axis->to = i ? columns : rows;
    axis->taps = px_least((axis->from + axis->to - 1) / axis->to + 1, axis->from);
    if (axis->taps < 3) axis->taps = 3; /* three are taken at once */
    if (resize->enlarges) axis->taps = 2;
    resize->whole &= px_scale(axis) == (int)px_scale(axis);
    size_t count = (size_t)axis->to * axis->taps;
    axis->first = (int *)calloc(axis->to, sizeof(int));
    axis->weight = (float *)calloc(count, sizeof(float));
    axis->part = (uint16_t *)calloc(count, sizeof(uint16_t));
    if (i) resize->quick = (uint16_t *)calloc(count, sizeof(uint16_t));
    if (!axis->first || !axis->weight || !axis->part || (i && !resize->quick)) {
      px_resize_free(resize);
      return NULL;
    }
    if (resize->enlarges) px_axis_enlarge(axis);
    else px_axis_shrink(axis);
  }
  if (!resize->enlarges) px_prepare_fast(resize);
  return resize;
}

/* One pixel, in the arithmetic of OpenCV: float32, along the lines first. */
PX_UNFUSED static inline uint8_t px_shrink_pixel(const px_resize *resize, const uint8_t *frame,
                                                 int row, int column) {
  const px_axis *y = &resize->y, *x = &resize->x;
  if (resize->whole) {
    int height = y->from / y->to, width = x->from / x->to, sum = 0;
    frame += row * height * AT_WIDTH + column * width;
    for (int i = 0; i < height; i++)
      for (int j = 0; j < width; j++) sum += frame[i * AT_WIDTH + j];
    if (height == 2 && width == 2) return (uint8_t)((sum + 2) >> 2);
    return (uint8_t)px_round((float)sum * (1.0f / (float)(height * width)));
  }
  frame += y->first[row] * AT_WIDTH + x->first[column];
  const float *down = y->weight + row * y->taps, *across = x->weight + column * x->taps;
  float sum = 0;
  for (int i = 0; i < y->taps; i++, frame += AT_WIDTH) {
    float line = frame[0] * across[0] + frame[1] * across[1] + frame[2] * across[2];
    for (int j = 3; j < x->taps; j++) line += frame[j] * across[j];
    sum += line * down[i];
  }
  return (uint8_t)px_round(sum);
}

static inline uint16_t px_high(uint16_t value, uint16_t weight) {
  return (uint16_t)((uint32_t)value * weight >> 16);
}

/* Shrinks in whole numbers of 16 bits, and computes again what could be rounded either way.
 *
 * With n the sum of the products of pixels and parts, and s = x.sum * y.sum, the exact value is
 * n / s. OpenCV's float32 strays from it by less than (x.taps + y.taps + 4) * 2**-24 * 256, and
 * that is less than slack / s. So OpenCV's pixel is floor((n + s / 2 + slack) / s), unless the rest
 * of this division is at most 2 * slack: then n / s is so near to a half that OpenCV's order of
 * operations decides.
 *
 * The division: the sum of the upper halves of the products with `quick` lacks less than 2 for each
 * tap, and the offset less than 1, of the quotient * 2**shift; together at most 2**shift. So the
 * quotient is right or one too small, and the rest, which 16 bits hold though not n, says which. */
PX_FAST static void px_shrink_fast(const px_resize *resize, const uint8_t *frame,
                                   uint8_t *result) {
  const px_axis *y = &resize->y, *x = &resize->x;
  uint16_t lines[PX_LANES][AT_WIDTH], across[AT_WIDTH][PX_LANES];
  uint16_t high[AT_WIDTH * PX_LANES], low[AT_WIDTH * PX_LANES];
  uint8_t pixels[AT_WIDTH * PX_LANES], doubts[AT_WIDTH * PX_LANES];
  int columns = x->to, shift = resize->shift;
  uint16_t sum = (uint16_t)(y->sum * x->sum), near = (uint16_t)(2 * resize->slack);
  uint16_t offset = (uint16_t)(sum / 2 + resize->slack);
  uint16_t quick_offset = (uint16_t)(((uint32_t)offset << shift) / sum);
  for (int begin = 0; begin < y->to; begin += PX_LANES) {
    int lanes = px_least(y->to - begin, PX_LANES);
    for (int lane = 0; lane < PX_LANES; lane++) {
      int row = begin + (lane < lanes ? lane : 0);
      const uint8_t *source = frame + y->first[row] * AT_WIDTH;
      const uint16_t *part = y->part + row * y->taps;
      uint16_t *line = lines[lane], part0 = part[0], part1 = part[1], part2 = part[2];
      for (int i = 0; i < AT_WIDTH; i++)
        line[i] = (uint16_t)(source[i] * part0 + source[i + AT_WIDTH] * part1 +
                             source[i + 2 * AT_WIDTH] * part2);
      for (int k = 3; k < y->taps; k++)
        for (int i = 0; i < AT_WIDTH; i++)
          line[i] = (uint16_t)(line[i] + source[i + k * AT_WIDTH] * part[k]);
    }
    /* Turned, so that what is the same for all lines is done for all of them at once. */
    for (int i = 0; i < AT_WIDTH; i++) {
      across[i][0] = lines[0][i], across[i][1] = lines[1][i];
      across[i][2] = lines[2][i], across[i][3] = lines[3][i];
      across[i][4] = lines[4][i], across[i][5] = lines[5][i];
      across[i][6] = lines[6][i], across[i][7] = lines[7][i];
    }
    for (int column = 0; column < columns; column++) {
      const uint16_t *value = across[x->first[column]];
      const uint16_t *part = x->part + column * x->taps, *quick = resize->quick + column * x->taps;
      uint16_t *h = high + column * PX_LANES, *l = low + column * PX_LANES;
      for (int lane = 0; lane < PX_LANES; lane++) {
        const uint16_t *v = value + lane;
        h[lane] = (uint16_t)(px_high(v[0], quick[0]) + px_high(v[PX_LANES], quick[1]) +
                             px_high(v[2 * PX_LANES], quick[2]));
        l[lane] = (uint16_t)(v[0] * part[0] + v[PX_LANES] * part[1] + v[2 * PX_LANES] * part[2]);
      }
      for (int k = 3; k < x->taps; k++)
        for (int lane = 0; lane < PX_LANES; lane++) {
          h[lane] = (uint16_t)(h[lane] + px_high(value[k * PX_LANES + lane], quick[k]));
          l[lane] = (uint16_t)(l[lane] + value[k * PX_LANES + lane] * part[k]);
        }
    }
    for (int i = 0; i < columns * PX_LANES; i++) {
      uint16_t quotient = (uint16_t)((uint16_t)(high[i] + quick_offset) >> shift);
      uint16_t rest = (uint16_t)(low[i] + offset - quotient * sum);
      uint16_t less = (uint16_t)(rest - sum); /* wraps around if `rest` is the true one */
      uint16_t least = less < rest ? less : rest;
      pixels[i] = (uint8_t)(quotient + (less < rest));
      doubts[i] = least <= near;
    }
    uint8_t *rows = result + begin * columns;
    for (int lane = 0; lane < lanes; lane++)
      for (int column = 0; column < columns; column++)
        rows[lane * columns + column] = pixels[column * PX_LANES + lane];
    uint8_t any = 0;
    for (int i = 0; i < columns * PX_LANES; i++) any |= doubts[i];
    for (int column = 0; any && column < columns; column++) {
      uint64_t word;
      memcpy(&word, doubts + column * PX_LANES, sizeof(word));
      for (int lane = 0; word && lane < lanes; lane++)
        if (doubts[column * PX_LANES + lane])
          rows[lane * columns + column] = px_shrink_pixel(resize, frame, begin + lane, column);
    }
  }
}

/* Interpolates between four pixels, as OpenCV does: it drops bits on the way. */
static inline void px_enlarge(const px_resize *resize, const uint8_t *frame, uint8_t *result) {
  const px_axis *y = &resize->y, *x = &resize->x;
  for (int row = 0; row < y->to; row++)
    for (int column = 0; column < x->to; column++) {
      const uint16_t *across = x->part + 2 * column;
      int sum = 2;
      for (int i = 0; i < 2; i++) {
        const uint8_t *pixel = frame + (y->first[row] + i) * AT_WIDTH + x->first[column];
        int line = pixel[0] * across[0] + pixel[1] * across[1];
        sum += (y->part[2 * row + i] * (line >> 4)) >> 16;
      }
      *result++ = (uint8_t)(sum >> 2);
    }
}

/* Resizes a frame uint8[height, 160] to uint8[rows, columns]. */
static inline void px_resize_frame(const px_resize *resize, const uint8_t *frame,
                                   uint8_t *result) {
  if (resize->enlarges) {
    px_enlarge(resize, frame, result);
  } else if (resize->fast) {
    px_shrink_fast(resize, frame, result);
  } else {
    for (int row = 0; row < resize->y.to; row++)
      for (int column = 0; column < resize->x.to; column++)
        *result++ = px_shrink_pixel(resize, frame, row, column);
  }
}

/* What an agent sees of two screens: their values in `table`, a member of px_colors, the greater of
 * the two for each pixel, resized. For one screen, pass it twice. */
static inline void px_observe(const px_resize *resize, const uint8_t *table, const uint8_t *first,
                              const uint8_t *second, uint8_t *result) {
  uint8_t values[PX_MAX_HEIGHT * AT_WIDTH];
  px_pool(table, first, second, resize->y.from, values);
  px_resize_frame(resize, values, result);
}

#endif
