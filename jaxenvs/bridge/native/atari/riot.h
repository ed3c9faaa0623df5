/* The RIOT: memory, a timer, and two ports.
 *
 * Nothing is connected to the ports that a program could write to, so they always read as inputs.
 * The timer counts down once in 1, 8, 64, or 1,024 cycles, and once a cycle after it has passed 0,
 * until it is read (MOS Technology 6532 data sheet).
 */
#ifndef JAXENVS_ATARI_RIOT_H
#define JAXENVS_ATARI_RIOT_H

#include "console.h"

static inline int32_t at_since(const at_console* m) { return m->cycle - m->timer_set - 1; }

static uint8_t at_read_timer(at_console* m) {
  int32_t elapsed = at_since(m);
  int32_t left = m->timer - (elapsed >> m->shift) - 1;
  if (left >= 0) return (uint8_t)left;
  left = (m->timer << m->shift) - elapsed - 1;
  if (left <= -2 && !m->expired_read) {
    m->expired_read = 1;
    m->timer_reset = m->cycle;
  }
  if (m->expired_read) {
    int32_t offset = m->timer_reset - (m->timer_set + (m->timer << m->shift));
    left = m->timer - (elapsed >> m->shift) - offset;
  }
  return (uint8_t)left;
}

/* How often a loop that takes some cycles, and reads the timer now, finds it above a count, which
 * is 0 or -1. */
static int32_t at_reads_above(const at_console* m, int32_t count, int32_t cycles) {
  int32_t left = ((m->timer - 1 - count) << m->shift) - at_since(m);
  return m->timer && left > 0 ? (left + cycles - 1) / cycles : 0;
}

static uint8_t at_read_riot(at_run* run, uint16_t address) {
  at_console* m = run->m;
  switch (address & 7) {
    case 0: /* SWCHA */
      return run->in->joysticks;
    case 1:
      return m->direction_a;
    case 2: /* SWCHB */
      return run->in->switches;
    case 3:
      return 0;
    case 4:
    case 6: /* INTIM */
      return at_read_timer(m);
    default: /* INSTAT */
      return (m->timer << m->shift) - at_since(m) - 1 < 0 && !m->expired_read ? 0x80 : 0;
  }
}

static void at_write_riot(at_run* run, uint16_t address, uint8_t value) {
  static const uint8_t shifts[4] = {0, 3, 6, 10};
  at_console* m = run->m;
  if ((address & 0x14) == 0x14) { /* TIM1T to T1024T */
    m->timer = value;
    m->shift = shifts[address & 3];
    m->timer_set = m->cycle;
    m->expired_read = 0;
  } else if ((address & 7) == 1) {
    m->direction_a = value;
  }
}

#endif
