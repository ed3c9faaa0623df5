/* The 6507 processor, an NMOS 6502 (MCS6500 Family Programming Manual, MOS Technology, 1976; the
 * undocumented operations: "NMOS 6510 Unintended Opcodes", groepaz, 2021).
 *
 * An operation takes all of its cycles, then reads or writes: what stands on the bus before the
 * last cycle has no effect here.
 */
#ifndef JAXENVS_ATARI_PROCESSOR_H
#define JAXENVS_ATARI_PROCESSOR_H

#include "cartridge.h"
#include "riot.h"
#include "tia.h"

/* --- The bus --- */

static uint8_t at_load_other(at_run* run, uint16_t address) {
  if (address & 0x1000) return at_read_cartridge(run, address);
  if (!(address & 0x80)) return at_read_tia(run, (uint8_t)address);
  return at_read_riot(run, address);
}

static void at_store_other(at_run* run, uint16_t address, uint8_t value) {
  if (address & 0x1000) at_write_cartridge(run, address, value);
  else if (!(address & 0x80)) at_write_tia(run, (uint8_t)address, value);
  else at_write_riot(run, address, value);
}

static inline int at_is_ram(uint16_t address) { return (address & 0x1280) == 0x80; }

/* Whether a read of an address of the ROM is nothing but that. */
static inline int at_is_plain(const at_run* run, uint16_t address) {
  return (uint16_t)((address & 0x1FFF) - run->first_plain) < run->num_plain;
}

/* Whether `LDA INTIM`, whose address is at `pc`, and a `BNE` back to it follow each other: a loop
 * that waits for the timer, in which nothing else happens. */
static inline int at_waits(const at_run* run, uint16_t pc) {
  static const uint8_t loop[] = {0x84, 0x02, 0xD0, 0xFB};
  int is_on_a_page = (pc & 0xFF) > 0 && (pc & 0xFF) < 0xFC;
  return is_on_a_page && at_is_plain(run, pc) && at_is_plain(run, pc + 3) &&
         !memcmp(run->view + (pc & 0xFFF), loop, sizeof loop);
}

/* --- Arithmetic --- */

/* What two decimal digits mean, which may be up to 15, and the digits of a number. */
static inline int at_decimal(int digits) { return (digits >> 4 & 15) * 10 + (digits & 15); }
static inline int at_digits(int number) { return number % 100 / 10 << 4 | number % 10; }

/* A sum in decimal mode, with the carry in bit 8. What comes of digits above 9 was observed. */
static int at_add_decimal(int a, int b, int carry) {
  int sum = at_decimal(a) + at_decimal(b) + carry;
  return at_digits(sum & 255) | (sum > 99) << 8;
}

static int at_subtract_decimal(int a, int b, int borrow) {
  int left = at_decimal(a) - at_decimal(b) - borrow;
  if (left < 0) left += 100;
  return left < 0 ? at_decimal(left & 255) : at_digits(left);
}

/* --- Operations --- */

/* Runs until the frame is over, but not more than some operations. */
static void at_execute(at_run* run, int operations) {
  at_console* m = run->m;
  uint16_t pc = m->pc, at;
  uint8_t a = m->a, x = m->x, y = m->y, s = m->s, bus = m->bus;
  uint8_t negative = m->negative, zero = m->zero, carry = m->carry, overflow = m->overflow;
  uint8_t decimal = m->decimal, interrupt = m->interrupt;
  int32_t cycle = m->cycle;

/* NEXT is the next byte of the program; LOAD and STORE access the bus when `cycle` has passed. */
#define LOAD_TO(value, address)                                        \
  do {                                                                 \
    uint16_t from_ = (uint16_t)(address);                              \
    if (at_is_ram(from_)) value = m->ram[from_ & 127];                 \
    else if (at_is_plain(run, from_)) value = run->view[from_ & 0xFFF]; \
    else {                                                             \
      m->cycle = cycle;                                                \
      m->bus = bus;                                                    \
      value = at_load_other(run, from_);                               \
    }                                                                  \
    bus = value;                                                       \
  } while (0)
#define STORE(address, value)                                          \
  do {                                                                 \
    uint16_t to_ = (uint16_t)(address);                                \
    uint8_t new_ = (uint8_t)(value);                                   \
    bus = new_;                                                        \
    if (at_is_ram(to_)) m->ram[to_ & 127] = new_;                      \
    else {                                                             \
      m->cycle = cycle;                                                \
      at_store_other(run, to_, new_);                                  \
      cycle = m->cycle;                                                \
      if (run->over) operations = 0;                                   \
    }                                                                  \
  } while (0)
#define NEXT(value)                                                    \
  do {                                                                 \
    if (at_is_plain(run, pc)) bus = value = run->view[pc & 0xFFF];     \
    else LOAD_TO(value, pc);                                           \
    pc++;                                                              \
  } while (0)
#define FLAGS(value) (negative = zero = (uint8_t)(value))
#define PUSH(value) do { STORE(0x100 | s, value); s--; } while (0)
/* Before a pull, the top of the stack comes onto the bus. */
#define PEEK() LOAD_TO(low, 0x100 | s)
#define PULL(value) do { s++; LOAD_TO(value, 0x100 | s); } while (0)
#define STATUS                                                                             \
  ((negative & 0x80) | overflow << 6 | 0x30 | decimal << 3 | interrupt << 2 |               \
   (zero == 0) << 1 | carry)
#define SET_STATUS(p)                                                                      \
  do {                                                                                     \
    negative = (p), overflow = (p) >> 6 & 1, decimal = (p) >> 3 & 1, interrupt = (p) >> 2 & 1; \
    zero = !((p) & 2), carry = (p) & 1;                                                    \
  } while (0)

/* Addresses. In the modes with an index, reads take a cycle more in another page. */
#define WORD() do { NEXT(low); NEXT(high); at = (uint16_t)(low | high << 8); } while (0)
#define ZP() do { NEXT(low); at = low; } while (0)
#define ZP_BY(index) do { NEXT(low); at = (uint8_t)(low + (index)); } while (0)
#define WORD_BY(index, reads)                     \
  do {                                            \
    WORD();                                       \
    if (reads) cycle += low + (index) > 255;      \
    at = (uint16_t)(at + (index));                \
  } while (0)
#define POINTER(place)                            \
  do {                                            \
    uint8_t pointer_ = (uint8_t)(place);          \
    LOAD_TO(low, pointer_);                       \
    LOAD_TO(high, (uint8_t)(pointer_ + 1));       \
    at = (uint16_t)(low | high << 8);             \
  } while (0)
#define BY_X_POINTER() do { NEXT(low); POINTER(low + x); } while (0)
#define POINTER_BY_Y(reads)                       \
  do {                                            \
    NEXT(low);                                    \
    POINTER(low);                                 \
    if (reads) cycle += low + y > 255;            \
    at = (uint16_t)(at + y);                      \
  } while (0)

#define AFTER(cycles) cycle += (cycles)
#define READ(cycles, action) { AFTER(cycles); LOAD_TO(v, at); action; } break
#define WRITE(cycles, value) { AFTER(cycles); STORE(at, value); } break
#define CHANGE(cycles, action) { AFTER(cycles); LOAD_TO(v, at); action; STORE(at, v); } break
#define SIMPLE(code, action) case code: AFTER(2); action; break
#define IMMEDIATE(code, action) case code: NEXT(v); AFTER(2); action; break
#define BRANCH(code, condition)                   \
  case code:                                      \
    NEXT(v);                                      \
    AFTER(2);                                     \
    if (condition) {                              \
      uint16_t to_ = (uint16_t)(pc + (int8_t)v);  \
      AFTER(1 + ((to_ ^ pc) >> 8 != 0));          \
      pc = to_;                                   \
    }                                             \
    break
/* The modes of operations with the accumulator. */
#define READS(code, action)                                        \
  case (code) | 0x00: BY_X_POINTER(); READ(6, action);             \
  case (code) | 0x04: ZP(); READ(3, action);                       \
  case (code) | 0x0C: WORD(); READ(4, action);                     \
  case (code) | 0x10: POINTER_BY_Y(1); READ(5, action);            \
  case (code) | 0x14: ZP_BY(x); READ(4, action);                   \
  case (code) | 0x18: WORD_BY(y, 1); READ(4, action);              \
  case (code) | 0x1C: WORD_BY(x, 1); READ(4, action);              \
  IMMEDIATE((code) | 0x08, action)
#define SHIFTS(code, action)                                       \
  case (code) | 0x06: ZP(); CHANGE(5, action);                     \
  case (code) | 0x0E: WORD(); CHANGE(6, action);                   \
  case (code) | 0x16: ZP_BY(x); CHANGE(6, action);                 \
  case (code) | 0x1E: WORD_BY(x, 0); CHANGE(7, action)
/* Undocumented: a shift or count, then an operation with the result. */
#define BOTH(code, action)                                         \
  case (code) | 0x03: BY_X_POINTER(); CHANGE(8, action);           \
  case (code) | 0x07: ZP(); CHANGE(5, action);                     \
  case (code) | 0x0F: WORD(); CHANGE(6, action);                   \
  case (code) | 0x13: POINTER_BY_Y(0); CHANGE(8, action);          \
  case (code) | 0x17: ZP_BY(x); CHANGE(6, action);                 \
  case (code) | 0x1B: WORD_BY(y, 0); CHANGE(7, action);            \
  case (code) | 0x1F: WORD_BY(x, 0); CHANGE(7, action)

#define ASL(v) do { carry = (v) >> 7; (v) = FLAGS((v) << 1); } while (0)
#define LSR(v) do { carry = (v) & 1; (v) = FLAGS((v) >> 1); } while (0)
#define ROL(v)                                                             \
  do {                                                                     \
    uint8_t in_ = carry;                                                   \
    carry = (v) >> 7;                                                      \
    (v) = FLAGS((v) << 1 | in_);                                           \
  } while (0)
#define ROR(v)                                                             \
  do {                                                                     \
    uint8_t in_ = carry;                                                   \
    carry = (v) & 1;                                                       \
    (v) = FLAGS((v) >> 1 | in_ << 7);                                      \
  } while (0)
#define COMPARE(a, b) do { carry = (a) >= (b); FLAGS((a) - (b)); } while (0)
#define ADD(b)                                                             \
  do {                                                                     \
    int sum_ = decimal ? at_add_decimal(a, (b), carry) : a + (b) + carry;  \
    overflow = (~(a ^ (b)) & (a ^ sum_) & 0x80) != 0;                      \
    carry = sum_ > 255;                                                    \
    a = FLAGS(sum_);                                                       \
  } while (0)
#define SUBTRACT(b)                                                        \
  do {                                                                     \
    int borrow_ = !carry;                                                  \
    int left_ = a - (b) - borrow_;                                         \
    int differs_ = decimal ? ~(a ^ (b)) : a ^ (b);                         \
    carry = left_ >= 0;                                                    \
    if (decimal) left_ = at_subtract_decimal(a, (b), borrow_);             \
    overflow = (differs_ & (a ^ left_) & 0x80) != 0;                       \
    a = FLAGS(left_);                                                      \
  } while (0)
#define BIT(v) (negative = (v), overflow = (v) >> 6 & 1, zero = (v) & a)

  while (operations-- > 0) {
    uint8_t code, low, high, v;
    NEXT(code);
    if (code == 0xAD && at_waits(run, pc)) {
      m->cycle = cycle + 4;
      int32_t loops = at_reads_to_zero(m, 7);
      if (loops > operations / 2) loops = operations / 2;
      cycle += 7 * loops;
      operations -= 2 * loops;
    }
    switch (code) {
      READS(0x01, a = FLAGS(a | v));
      READS(0x21, a = FLAGS(a & v));
      READS(0x41, a = FLAGS(a ^ v));
      READS(0x61, ADD(v));
      READS(0xA1, a = FLAGS(v));
      READS(0xC1, COMPARE(a, v));
      READS(0xE1, SUBTRACT(v));
      IMMEDIATE(0xEB, SUBTRACT(v));

      case 0x81: BY_X_POINTER(); WRITE(6, a);
      case 0x85: ZP(); WRITE(3, a);
      case 0x8D: WORD(); WRITE(4, a);
      case 0x91: POINTER_BY_Y(0); WRITE(6, a);
      case 0x95: ZP_BY(x); WRITE(4, a);
      case 0x99: WORD_BY(y, 0); WRITE(5, a);
      case 0x9D: WORD_BY(x, 0); WRITE(5, a);
      case 0x84: ZP(); WRITE(3, y);
      case 0x8C: WORD(); WRITE(4, y);
      case 0x94: ZP_BY(x); WRITE(4, y);
      case 0x86: ZP(); WRITE(3, x);
      case 0x8E: WORD(); WRITE(4, x);
      case 0x96: ZP_BY(y); WRITE(4, x);

      IMMEDIATE(0xA2, x = FLAGS(v));
      case 0xA6: ZP(); READ(3, x = FLAGS(v));
      case 0xAE: WORD(); READ(4, x = FLAGS(v));
      case 0xB6: ZP_BY(y); READ(4, x = FLAGS(v));
      case 0xBE: WORD_BY(y, 1); READ(4, x = FLAGS(v));
      IMMEDIATE(0xA0, y = FLAGS(v));
      case 0xA4: ZP(); READ(3, y = FLAGS(v));
      case 0xAC: WORD(); READ(4, y = FLAGS(v));
      case 0xB4: ZP_BY(x); READ(4, y = FLAGS(v));
      case 0xBC: WORD_BY(x, 1); READ(4, y = FLAGS(v));
      IMMEDIATE(0xE0, COMPARE(x, v));
      case 0xE4: ZP(); READ(3, COMPARE(x, v));
      case 0xEC: WORD(); READ(4, COMPARE(x, v));
      IMMEDIATE(0xC0, COMPARE(y, v));
      case 0xC4: ZP(); READ(3, COMPARE(y, v));
      case 0xCC: WORD(); READ(4, COMPARE(y, v));
      case 0x24: ZP(); READ(3, BIT(v));
      case 0x2C: WORD(); READ(4, BIT(v));

      SHIFTS(0x00, ASL(v));
      SHIFTS(0x20, ROL(v));
      SHIFTS(0x40, LSR(v));
      SHIFTS(0x60, ROR(v));
      SHIFTS(0xC0, v = FLAGS(v - 1));
      SHIFTS(0xE0, v = FLAGS(v + 1));
      SIMPLE(0x0A, ASL(a));
      SIMPLE(0x2A, ROL(a));
      SIMPLE(0x4A, LSR(a));
      SIMPLE(0x6A, ROR(a));

      BRANCH(0x10, !(negative & 0x80));
      BRANCH(0x30, negative & 0x80);
      BRANCH(0x50, !overflow);
      BRANCH(0x70, overflow);
      BRANCH(0x90, !carry);
      BRANCH(0xB0, carry);
      BRANCH(0xD0, zero != 0);
      BRANCH(0xF0, zero == 0);

      SIMPLE(0x18, carry = 0);
      SIMPLE(0x38, carry = 1);
      SIMPLE(0x58, interrupt = 0);
      SIMPLE(0x78, interrupt = 1);
      SIMPLE(0xB8, overflow = 0);
      SIMPLE(0xD8, decimal = 0);
      SIMPLE(0xF8, decimal = 1);
      SIMPLE(0xAA, x = FLAGS(a));
      SIMPLE(0x8A, a = FLAGS(x));
      SIMPLE(0xA8, y = FLAGS(a));
      SIMPLE(0x98, a = FLAGS(y));
      SIMPLE(0xBA, x = FLAGS(s));
      SIMPLE(0x9A, s = x);
      SIMPLE(0xE8, x = FLAGS(x + 1));
      SIMPLE(0xC8, y = FLAGS(y + 1));
      SIMPLE(0xCA, x = FLAGS(x - 1));
      SIMPLE(0x88, y = FLAGS(y - 1));
      SIMPLE(0xEA, (void)0);

      case 0x48: AFTER(3); PUSH(a); break;
      case 0x08: AFTER(3); PUSH(STATUS); break;
      case 0x68: AFTER(4); PEEK(); PULL(v); a = FLAGS(v); break;
      case 0x28: AFTER(4); PEEK(); PULL(v); SET_STATUS(v); break;
      case 0x4C: WORD(); AFTER(3); pc = at; break;
      case 0x6C: /* the pointer does not leave its page */
        WORD();
        AFTER(5);
        LOAD_TO(v, at);
        LOAD_TO(high, (at & 0xFF00) | ((at + 1) & 0xFF));
        pc = (uint16_t)(v | high << 8);
        break;
      case 0x20:
        NEXT(low);
        AFTER(6);
        PUSH(pc >> 8);
        PUSH(pc & 255);
        NEXT(high);
        pc = (uint16_t)(low | high << 8);
        break;
      case 0x60:
        AFTER(6);
        PEEK();
        PULL(low);
        PULL(high);
        pc = (uint16_t)((low | high << 8) + 1);
        break;
      case 0x40:
        AFTER(6);
        PEEK();
        PULL(v);
        SET_STATUS(v);
        PULL(low);
        PULL(high);
        pc = (uint16_t)(low | high << 8);
        break;
      case 0x00:
        AFTER(7);
        pc++;
        PUSH(pc >> 8);
        PUSH(pc & 255);
        PUSH(STATUS);
        interrupt = 1;
        LOAD_TO(low, 0xFFFE);
        LOAD_TO(high, 0xFFFF);
        pc = (uint16_t)(low | high << 8);
        break;

      /* Undocumented ones. */
      BOTH(0x00, ASL(v); a = FLAGS(a | v));
      BOTH(0x20, ROL(v); a = FLAGS(a & v));
      BOTH(0x40, LSR(v); a = FLAGS(a ^ v));
      BOTH(0x60, ROR(v); ADD(v));
      BOTH(0xC0, v--; COMPARE(a, v));
      BOTH(0xE0, v++; SUBTRACT(v));
      case 0xA3: BY_X_POINTER(); READ(6, a = x = FLAGS(v));
      case 0xA7: ZP(); READ(3, a = x = FLAGS(v));
      case 0xAF: WORD(); READ(4, a = x = FLAGS(v));
      case 0xB3: POINTER_BY_Y(1); READ(5, a = x = FLAGS(v));
      case 0xB7: ZP_BY(y); READ(4, a = x = FLAGS(v));
      case 0xBF: WORD_BY(y, 1); READ(4, a = x = FLAGS(v));
      case 0x83: BY_X_POINTER(); WRITE(6, a & x);
      case 0x87: ZP(); WRITE(3, a & x);
      case 0x8F: WORD(); WRITE(4, a & x);
      case 0x97: ZP_BY(y); WRITE(4, a & x);
      IMMEDIATE(0x0B, a = FLAGS(a & v); carry = a >> 7);
      IMMEDIATE(0x2B, a = FLAGS(a & v); carry = a >> 7);
      IMMEDIATE(0x4B, a &= v; LSR(a));
      IMMEDIATE(0x6B, a &= v; ROR(a); carry = a >> 6 & 1; overflow = (a >> 6 ^ a >> 5) & 1);
      IMMEDIATE(0x8B, a = FLAGS((a | 0xEE) & x & v));
      IMMEDIATE(0xAB, a = x = FLAGS((a | 0xEE) & v));
      IMMEDIATE(0xCB, x &= a; COMPARE(x, v); x = negative);
      case 0xBB: WORD_BY(y, 1); READ(4, a = x = s = FLAGS(v & s));
      case 0x9F: WORD_BY(y, 0); WRITE(5, a & x & ((at >> 8) + 1));
      case 0x93: POINTER_BY_Y(0); WRITE(6, a & x & ((at >> 8) + 1));
      case 0x9E: WORD_BY(y, 0); WRITE(5, x & ((at >> 8) + 1));
      case 0x9C: WORD_BY(x, 0); WRITE(5, y & ((at >> 8) + 1));
      case 0x9B: WORD_BY(y, 0); s = a & x; WRITE(5, s & ((at >> 8) + 1));
      case 0x1A: case 0x3A: case 0x5A: case 0x7A: case 0xDA: SIMPLE(0xFA, (void)0);
      case 0x80: case 0x82: case 0x89: case 0xC2: IMMEDIATE(0xE2, (void)0);
      case 0x04: case 0x44: case 0x64: ZP(); READ(3, (void)0);
      case 0x0C: WORD(); READ(4, (void)0);
      case 0x14: case 0x34: case 0x54: case 0x74: case 0xD4: case 0xF4: ZP_BY(x); READ(4, (void)0);
      case 0x1C: case 0x3C: case 0x5C: case 0x7C: case 0xDC: case 0xFC:
        WORD_BY(x, 1);
        READ(4, (void)0);
      default: /* JAM: only power gets the processor out of it */
        m->jammed = 1;
        pc--;
        operations = 0;
    }
  }
  m->pc = pc, m->a = a, m->x = x, m->y = y, m->s = s, m->bus = bus, m->cycle = cycle;
  m->negative = negative, m->zero = zero, m->carry = carry, m->overflow = overflow;
  m->decimal = decimal, m->interrupt = interrupt;
}

#undef LOAD_TO
#undef STORE
#undef NEXT
#undef FLAGS
#undef PUSH
#undef PEEK
#undef PULL
#undef STATUS
#undef SET_STATUS
#undef WORD
#undef ZP
#undef ZP_BY
#undef WORD_BY
#undef POINTER
#undef BY_X_POINTER
#undef POINTER_BY_Y
#undef AFTER
#undef READ
#undef WRITE
#undef CHANGE
#undef SIMPLE
#undef IMMEDIATE
#undef BRANCH
#undef READS
#undef SHIFTS
#undef BOTH
#undef ASL
#undef LSR
#undef ROL
#undef ROR
#undef COMPARE
#undef ADD
#undef SUBTRACT
#undef BIT

#endif
