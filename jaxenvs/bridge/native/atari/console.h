/* An Atari 2600 as a function of its state.
 *
 * The console has a 6507 processor, a 6532 (RIOT: 128 bytes of memory, a timer, two ports), a TIA
 * (which draws), and a cartridge. Everything that it remembers is in at_console, a flat struct that
 * can be copied; what stands in a cartridge's ROM is in at_cartridge.
 *
 * Time is counted in cycles of the processor since the first line of the frame began. A line has 76
 * cycles, and 228 clocks of the TIA: 68 of the horizontal blank, then 160 pixels.
 */
#ifndef JAXENVS_ATARI_CONSOLE_H
#define JAXENVS_ATARI_CONSOLE_H

#include <stdint.h>
#include <string.h>

/* AT_PORTABLE: only what every compiler and processor has; slower, with the same results. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(AT_PORTABLE)
#include <immintrin.h>
#define AT_AVX2 __attribute__((target("avx2")))
#endif

enum { AT_LINE = 76, AT_CLOCKS = 228, AT_BLANK = 68, AT_WIDTH = 160, AT_MAX_HEIGHT = 250 };

/* The objects that the TIA moves, in the order of their registers. */
enum { AT_P0, AT_P1, AT_M0, AT_M1, AT_BALL, AT_OBJECTS };

/* A line of 160 pixels as bits: pixel x is bit x % 64 of word x / 64. */
typedef struct {
  uint64_t word[3];
} at_bits;

typedef struct {
  uint8_t ram[128], memory[128]; /* the latter is the cartridge's; first, for rules and Python */
  /* The processor. */
  uint16_t pc;
  uint8_t a, x, y, s;
  uint8_t negative, zero, carry, decimal, interrupt, overflow; /* negative: bit 7; zero: if 0 */
  uint8_t jammed, bus; /* bus: the last byte on it, of which the TIA drives few bits */
  int32_t cycle;
  /* The RIOT. */
  uint8_t direction_a; /* what was written to SWACNT */
  uint8_t timer, shift, expired_read; /* shift: log2 of cycles per count */
  int32_t timer_set, timer_reset;     /* when it was set; when it was read after it had expired */
  /* The cartridge. */
  uint8_t bank[4]; /* of each quarter of the 4 KiB that the processor sees, in units of 1 KiB */
  /* The TIA. */
  uint8_t color[4]; /* of player 0, player 1, playfield, background */
  uint8_t size[2], control, reflected[2], delayed[3]; /* NUSIZx, CTRLPF, REFPx, VDELx */
  uint8_t graphics[2], old_graphics[2];
  uint8_t enabled[3], old_ball, locked[2]; /* ENAM0, ENAM1, ENABL; RESMPx */
  uint8_t motion[AT_OBJECTS];
  uint8_t position[AT_OBJECTS];
  uint8_t restarted[2];   /* whether a player's first copy has to wait for the next line */
  uint8_t mirror;         /* whether the right half of the playfield is reflected */
  uint8_t comb;           /* whether HMOVE blanks the first 8 pixels of the line */
  uint8_t vertical_blank;
  uint8_t stars; /* if not 0, HMOVE goes on moving the first missile: a line of the four, from 1 */
  uint8_t pale;  /* 1 if the picture has no color: the last frame had an odd number of lines */
  uint32_t playfield;     /* PF0, PF1, PF2 from left to right: bits 0 to 19 */
  uint32_t collisions;
  int32_t drawn;          /* clocks of the frame that have been drawn */
  int32_t sync_end;       /* the first cycle at which the end of VSYNC ends the frame */
  int32_t dumped;         /* when the capacitors of the paddles began to charge */
  int32_t hmove;          /* when HMOVE was last written */
} at_console;

/* Cartridges: without banks; with banks of 4 KiB, and with memory of their own (SC); banks by the
 * place of subroutines (FE); banks of 1 KiB (E0). */
enum { AT_PLAIN, AT_BANKS, AT_SC, AT_FE, AT_E0, AT_KINDS };

typedef struct {
  const uint8_t* rom;
  int32_t size, kind;
  int32_t first_line, height; /* of the picture */
  int32_t is_european;        /* made for televisions with 312 lines, which need an even number */
  int32_t blanks_after_hmove; /* whether HMOVE leaves its comb */
  uint16_t hot;               /* the lowest address at which an access may change banks */
} at_cartridge;

typedef struct {
  uint8_t joysticks;   /* SWCHA: bits 7-4 right, left, down, up of player 0, 0 if pressed */
  uint8_t switches;    /* SWCHB */
  uint8_t fire[2];     /* whether the buttons are pressed */
  int32_t paddles[4];  /* resistances in ohms, or 0 without paddles */
} at_inputs;

/* The console while it runs. */
typedef struct {
  at_console* m;
  const at_cartridge* cart;
  const at_inputs* in;
  uint8_t* picture;            /* [height, 160], or NULL */
  const uint8_t* view;         /* the 4 KiB that the processor sees of the ROM */
  uint16_t first_plain;        /* where reading the ROM begins to do nothing else */
  uint8_t quarters[4096];      /* what `view` points at if its quarters are from different places */
  at_bits shape[AT_OBJECTS + 1]; /* the pixels of the objects and the playfield on this line */
  uint32_t meeting;            /* collisions if all of this line were drawn */
  int32_t line, row;           /* the line that is being drawn: its first clock, and its row */
  int32_t asked;               /* a clock up to which a frame without picture has to be drawn */
  int32_t last;                /* the cycle from which on a write ends the frame */
  uint8_t stale;               /* bits of objects whose shape has to be made again, bit 5: field */
  uint8_t over;                /* whether the frame is */
} at_run;

#endif
