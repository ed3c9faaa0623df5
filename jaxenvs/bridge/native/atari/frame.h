/* A frame: from the end of a vertical sync to the end of the next. */
#ifndef JAXENVS_ATARI_FRAME_H
#define JAXENVS_ATARI_FRAME_H

#include "processor.h"

enum { AT_INSTRUCTIONS = 25000 }; /* after which a frame is over in any case */

static void at_power_on(at_console* m, const at_cartridge* cart, const uint8_t ram[128]) {
  memset(m, 0, sizeof *m);
  memcpy(m->ram, ram, 128);
  at_insert(m, cart);
  m->s = 0xFF;
  m->zero = 1;
  m->timer = 25;
  m->shift = 6;
  m->sync_end = INT32_MAX;
  at_inputs in = {0xFF, 0xFF, {0, 0}, {0, 0, 0, 0}};
  at_run run;
  run.m = m, run.cart = cart, run.in = &in;
  at_open(&run);
  m->pc = (uint16_t)(run.view[0xFFC] | run.view[0xFFD] << 8);
}

/* Whether a call has ended its frame; otherwise, the next one goes on with it. */
static inline int at_is_over(const at_console* m) { return m->cycle < AT_LINE; }

/* Plays a frame. Draws it if `picture` is not NULL, [height, 160]. Lines that the frame does not
 * reach stay as they are. Returns whether it reached all. */
static int at_frame(at_console* m, const at_cartridge* cart, const at_inputs* in,
                     uint8_t* picture) {
  at_run run;
  run.m = m, run.cart = cart, run.in = in, run.picture = picture;
  run.stale = AT_ALL_STALE, run.meeting = 0, run.over = 0, run.asked = 0;
  run.row = m->drawn / AT_CLOCKS - cart->first_line;
  run.line = m->drawn / AT_CLOCKS * AT_CLOCKS;
  run.last = (cart->is_european ? 343 : 291) * AT_LINE;
  memset(run.shape, 0, sizeof run.shape);
  at_open(&run);
  int first = run.row;
  if (!m->jammed) at_execute(&run, AT_INSTRUCTIONS);
  at_draw_to(&run, run.over ? m->cycle * 3 : run.asked);
  int whole = first <= 0 && m->drawn >= (cart->first_line + cart->height) * AT_CLOCKS;
  if (!run.over) return whole;
  int32_t gone = m->cycle / AT_LINE * AT_LINE;
  m->pale = cart->is_european && m->cycle / AT_LINE & 1;
  m->cycle -= gone;
  m->drawn -= 3 * gone;
  m->timer_set -= gone;
  m->timer_reset -= gone;
  if (m->timer_set < -(1 << 28)) { /* it counts modulo 256, so it can have begun later */
    m->timer_set += 1 << 27;
    m->timer_reset += 1 << 27;
  }
  m->dumped -= gone;
  m->hmove -= gone;
  if (m->sync_end != INT32_MAX) m->sync_end -= gone;
  return whole;
}

#endif
