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

/* What is neither memory nor plain ROM. It is rare, so that it stays out of the way of the rest. */
__attribute__((cold, noinline)) static uint8_t at_load_other(at_run* run, uint16_t address) {
  if (address & 0x1000) return at_read_cartridge(run, address);
  if (!(address & 0x80)) return at_read_tia(run, (uint8_t)address);
  return at_read_riot(run, address);
}

static void at_store_other(at_run* run, uint16_t address, uint8_t value) {
  if (!(address & 0x1080)) at_write_tia(run, (uint8_t)address, value);
  else if (address & 0x1000) at_write_cartridge(run, address, value);
  else at_write_riot(run, address, value);
}

static inline int at_is_ram(uint16_t address) { return (address & 0x1280) == 0x80; }

/* How many bytes an operation reads of the program before it does anything else. */
static int at_length(uint8_t code) {
  int column = code & 31;
  if (column == 0) return code == 0x20 || code >= 0x80 ? 2 : 1; /* JSR reads its third byte later */
  if (column == 2) return code >= 0x80 ? 2 : 1;
  if ((code & 13) == 8 || column == 0x12) return 1;
  return (code & 12) == 12 || (code & 29) == 25 ? 3 : 2;
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

/* What the program sees of the ROM: `size` bytes from the address `first` on, of which reading does
 * nothing else. */
typedef struct {
  const uint8_t *plain, *end;
  uint16_t first, size;
} at_window;

/* Looks for the window that an address may be in, and returns its place there. A function of its
 * own, so that the window stays in memory, and registers are for the processor's. */
__attribute__((noinline)) static uint16_t at_seek(at_run* run, at_window* window, uint16_t pc) {
  window->first = (uint16_t)((pc & 0xE000) + run->first_plain);
  window->size = at_num_plain(run, pc);
  window->plain = run->view + (run->first_plain & 0xFFF);
  window->end = window->plain + window->size;
  return (uint16_t)(pc - window->first);
}

/* Runs until the frame is over, but not more than some operations. */
static void at_execute(at_run* run, int operations) {
  at_console* m = run->m;
  uint16_t at = m->pc, pc;
  uint8_t a = m->a, x = m->x, y = m->y, s = m->s, bus = m->bus;
  uint8_t negative = m->negative, zero = m->zero, carry = m->carry, overflow = m->overflow;
  uint8_t decimal = m->decimal, interrupt = m->interrupt;
  int32_t cycle = m->cycle;
  uint8_t code, low, high, v, bytes[3] = {0}, taken, is_positive;
  at_window window = {bytes, bytes, at, 0};
  const uint8_t* next = bytes; /* where the program is in the window; at its end it looks anew */
  uint16_t place;
  int loops;

/* NEXT is the next byte of the program; LOAD and STORE access the bus when `cycle` has passed. */
#define PC ((uint16_t)(window.first + (next - window.plain)))
#define FORGET() (window.size = 0, window.end = window.plain)
#define LOAD_OTHER(value, address)       \
  do {                                   \
    m->cycle = cycle;                    \
    m->bus = bus;                        \
    value = at_load_other(run, address); \
    if ((address) & 0x1000) FORGET();    \
  } while (0)
#define LOAD_TO(value, address)                                                       \
  do {                                                                                \
    uint16_t from_ = (uint16_t)(address), offset_ = (uint16_t)(from_ - window.first); \
    if (offset_ < window.size) value = window.plain[offset_];                         \
    else if (at_is_ram(from_)) value = m->ram[from_ & 127];                           \
    else LOAD_OTHER(value, from_);                                                    \
    bus = value;                                                                      \
  } while (0)
#define LOAD_ZERO_PAGE(value, address)             \
  do {                                             \
    uint8_t byte_ = (uint8_t)(address);            \
    if (byte_ & 0x80) value = m->ram[byte_ & 127]; \
    else LOAD_OTHER(value, byte_);                 \
    bus = value;                                   \
  } while (0)
#define STORE(address, value)                     \
  do {                                            \
    uint16_t to_ = (uint16_t)(address);           \
    uint8_t new_ = (uint8_t)(value);              \
    bus = new_;                                   \
    if (at_is_ram(to_)) m->ram[to_ & 127] = new_; \
    else {                                        \
      m->cycle = cycle;                           \
      at_store_other(run, to_, new_);             \
      cycle = m->cycle;                           \
      if (to_ & 0x1000) FORGET();                 \
      if (run->over) operations = 0;              \
    }                                             \
  } while (0)
#define NEXT(value) (bus = value = *next++)
#define FLAGS(value) (negative = zero = (uint8_t)(value))
#define PUSH(value) do { STORE(0x100 | s, value); s--; } while (0)
/* Before a pull, the top of the stack comes onto the bus. */
#define PEEK() LOAD_TO(low, 0x100 | s)
#define PULL(value) do { s++; LOAD_TO(value, 0x100 | s); } while (0)
#define STATUS                                                                \
  ((negative & 0x80) | overflow << 6 | 0x30 | decimal << 3 | interrupt << 2 | \
   (zero == 0) << 1 | carry)
#define SET_STATUS(p)                                                                          \
  do {                                                                                         \
    negative = (p), overflow = (p) >> 6 & 1, decimal = (p) >> 3 & 1, interrupt = (p) >> 2 & 1; \
    zero = !((p) & 2), carry = (p) & 1;                                                        \
  } while (0)

/* Addresses. In the modes with an index, reads take a cycle more in another page. */
#define WORD() do { NEXT(low); NEXT(high); at = (uint16_t)(low | high << 8); } while (0)
#define ZP() do { NEXT(low); at = low; } while (0)
#define ZP_BY(index) do { NEXT(low); at = (uint8_t)(low + (index)); } while (0)
#define WORD_BY(index, reads)                \
  do {                                       \
    WORD();                                  \
    if (reads) cycle += low + (index) > 255; \
    at = (uint16_t)(at + (index));           \
  } while (0)
#define POINTER(place)                   \
  do {                                   \
    uint8_t pointer_ = (uint8_t)(place); \
    LOAD_ZERO_PAGE(low, pointer_);       \
    LOAD_ZERO_PAGE(high, pointer_ + 1);  \
    at = (uint16_t)(low | high << 8);    \
  } while (0)
#define BY_X_POINTER() do { NEXT(low); POINTER(low + x); } while (0)
#define POINTER_BY_Y(reads)            \
  do {                                 \
    NEXT(low);                         \
    POINTER(low);                      \
    if (reads) cycle += low + y > 255; \
    at = (uint16_t)(at + y);           \
  } while (0)

#define AFTER(cycles) cycle += (cycles)
/* Operations are labels. Each goes on to the next itself: processors foresee that better than jumps
 * from one place. */
#define OP(row, column) op_##row##column:
#define ROW(row)                                                                            \
  &&op_##row##0, &&op_##row##1, &&op_##row##2, &&op_##row##3, &&op_##row##4, &&op_##row##5, \
  &&op_##row##6, &&op_##row##7, &&op_##row##8, &&op_##row##9, &&op_##row##A, &&op_##row##B, \
  &&op_##row##C, &&op_##row##D, &&op_##row##E, &&op_##row##F
#define GO()                                \
  do {                                      \
    if (operations-- <= 0) goto out;        \
    if (next >= window.end) goto elsewhere; \
    NEXT(code);                             \
    goto *labels[code];                     \
  } while (0)
#define JUMP(address)                               \
  do {                                              \
    place = (uint16_t)((address) - window.first);   \
    if (place >= window.size) {                     \
      window.first = (address), window.size = 0;    \
      window.plain = window.end = bytes, place = 0; \
    }                                               \
    next = window.plain + place;                    \
    GO();                                           \
  } while (0)
#define READ(cycles, action) do { AFTER(cycles); LOAD_TO(v, at); action; GO(); } while (0)
#define READ_ZERO_PAGE(cycles, action) \
  do { AFTER(cycles); LOAD_ZERO_PAGE(v, at); action; GO(); } while (0)
#define WRITE(cycles, value) do { AFTER(cycles); v = (uint8_t)(value); goto write; } while (0)
#define CHANGE(cycles, action) \
  do { AFTER(cycles); LOAD_TO(v, at); action; goto write; } while (0)
#define SIMPLE(row, column, action) OP(row, column) AFTER(2); action; GO()
#define IMMEDIATE(row, column, action) OP(row, column) NEXT(v); AFTER(2); action; GO()
#define BRANCH(row, column, condition) \
  OP(row, column) NEXT(v); AFTER(2); if (condition) goto branch; GO()
/* The modes of operations with the accumulator. */
#define READS(even, odd, action)                  \
  OP(even, 1) BY_X_POINTER(); READ(6, action);    \
  OP(even, 5) ZP(); READ_ZERO_PAGE(3, action);    \
  OP(even, D) WORD(); READ(4, action);            \
  OP(odd, 1) POINTER_BY_Y(1); READ(5, action);    \
  OP(odd, 5) ZP_BY(x); READ_ZERO_PAGE(4, action); \
  OP(odd, 9) WORD_BY(y, 1); READ(4, action);      \
  OP(odd, D) WORD_BY(x, 1); READ(4, action);      \
  IMMEDIATE(even, 9, action)
#define SHIFTS(even, odd, action)         \
  OP(even, 6) ZP(); CHANGE(5, action);    \
  OP(even, E) WORD(); CHANGE(6, action);  \
  OP(odd, 6) ZP_BY(x); CHANGE(6, action); \
  OP(odd, E) WORD_BY(x, 0); CHANGE(7, action)
/* Undocumented: a shift or count, then an operation with the result. */
#define BOTH(even, odd, action)                  \
  OP(even, 3) BY_X_POINTER(); CHANGE(8, action); \
  OP(even, 7) ZP(); CHANGE(5, action);           \
  OP(even, F) WORD(); CHANGE(6, action);         \
  OP(odd, 3) POINTER_BY_Y(0); CHANGE(8, action); \
  OP(odd, 7) ZP_BY(x); CHANGE(6, action);        \
  OP(odd, B) WORD_BY(y, 0); CHANGE(7, action);   \
  OP(odd, F) WORD_BY(x, 0); CHANGE(7, action)

#define ASL(v) do { carry = (v) >> 7; (v) = FLAGS((v) << 1); } while (0)
#define LSR(v) do { carry = (v) & 1; (v) = FLAGS((v) >> 1); } while (0)
#define ROL(v)                   \
  do {                           \
    uint8_t in_ = carry;         \
    carry = (v) >> 7;            \
    (v) = FLAGS((v) << 1 | in_); \
  } while (0)
#define ROR(v)                        \
  do {                                \
    uint8_t in_ = carry;              \
    carry = (v) & 1;                  \
    (v) = FLAGS((v) >> 1 | in_ << 7); \
  } while (0)
#define COMPARE(a, b) do { carry = (a) >= (b); FLAGS((a) - (b)); } while (0)
#define ADD(b)                                                            \
  do {                                                                    \
    int sum_ = decimal ? at_add_decimal(a, (b), carry) : a + (b) + carry; \
    overflow = (~(a ^ (b)) & (a ^ sum_) & 0x80) != 0;                     \
    carry = sum_ > 255;                                                   \
    a = FLAGS(sum_);                                                      \
  } while (0)
#define SUBTRACT(b)                                            \
  do {                                                         \
    int borrow_ = !carry;                                      \
    int left_ = a - (b) - borrow_;                             \
    int differs_ = decimal ? ~(a ^ (b)) : a ^ (b);             \
    carry = left_ >= 0;                                        \
    if (decimal) left_ = at_subtract_decimal(a, (b), borrow_); \
    overflow = (differs_ & (a ^ left_) & 0x80) != 0;           \
    a = FLAGS(left_);                                          \
  } while (0)
#define BIT(v) (negative = (v), overflow = (v) >> 6 & 1, zero = (v) & a)

  static const void* const labels[256] = {ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5),
                                          ROW(6), ROW(7), ROW(8), ROW(9), ROW(A), ROW(B),
                                          ROW(C), ROW(D), ROW(E), ROW(F)};
  GO();

elsewhere:
  pc = PC;
  place = at_seek(run, &window, pc);
  next = window.plain + place;
  if (place >= window.size) {
    for (int i = 0; i == 0 || i < at_length(bytes[0]); i++) LOAD_TO(bytes[i], pc + i);
    window.first = pc, window.size = 0, window.plain = next = window.end = bytes;
  }
  NEXT(code);
  goto *labels[code];

  READS(0, 1, a = FLAGS(a | v));
  READS(2, 3, a = FLAGS(a & v));
  READS(4, 5, a = FLAGS(a ^ v));
  READS(6, 7, ADD(v));
  READS(A, B, a = FLAGS(v));
  READS(C, D, COMPARE(a, v));
  READS(E, F, SUBTRACT(v));
  IMMEDIATE(E, B, SUBTRACT(v));

  OP(8, 1) BY_X_POINTER(); WRITE(6, a);
  OP(8, 5) ZP(); WRITE(3, a);
  OP(8, D) WORD(); WRITE(4, a);
  OP(9, 1) POINTER_BY_Y(0); WRITE(6, a);
  OP(9, 5) ZP_BY(x); WRITE(4, a);
  OP(9, 9) WORD_BY(y, 0); WRITE(5, a);
  OP(9, D) WORD_BY(x, 0); WRITE(5, a);
  OP(8, 4) ZP(); WRITE(3, y);
  OP(8, C) WORD(); WRITE(4, y);
  OP(9, 4) ZP_BY(x); WRITE(4, y);
  OP(8, 6) ZP(); WRITE(3, x);
  OP(8, E) WORD(); WRITE(4, x);
  OP(9, 6) ZP_BY(y); WRITE(4, x);

  IMMEDIATE(A, 2, x = FLAGS(v));
  OP(A, 6) ZP(); READ_ZERO_PAGE(3, x = FLAGS(v));
  OP(A, E) WORD(); READ(4, x = FLAGS(v));
  OP(B, 6) ZP_BY(y); READ_ZERO_PAGE(4, x = FLAGS(v));
  OP(B, E) WORD_BY(y, 1); READ(4, x = FLAGS(v));
  IMMEDIATE(A, 0, y = FLAGS(v));
  OP(A, 4) ZP(); READ_ZERO_PAGE(3, y = FLAGS(v));
  OP(A, C) WORD(); READ(4, y = FLAGS(v));
  OP(B, 4) ZP_BY(x); READ_ZERO_PAGE(4, y = FLAGS(v));
  OP(B, C) WORD_BY(x, 1); READ(4, y = FLAGS(v));
  IMMEDIATE(E, 0, COMPARE(x, v));
  OP(E, 4) ZP(); READ_ZERO_PAGE(3, COMPARE(x, v));
  OP(E, C) WORD(); READ(4, COMPARE(x, v));
  IMMEDIATE(C, 0, COMPARE(y, v));
  OP(C, 4) ZP(); READ_ZERO_PAGE(3, COMPARE(y, v));
  OP(C, C) WORD(); READ(4, COMPARE(y, v));
  OP(2, 4) ZP(); READ_ZERO_PAGE(3, BIT(v));
  OP(2, C) WORD(); READ(4, BIT(v));

  SHIFTS(0, 1, ASL(v));
  SHIFTS(2, 3, ROL(v));
  SHIFTS(4, 5, LSR(v));
  SHIFTS(6, 7, ROR(v));
  SHIFTS(C, D, v = FLAGS(v - 1));
  SHIFTS(E, F, v = FLAGS(v + 1));
  SIMPLE(0, A, ASL(a));
  SIMPLE(2, A, ROL(a));
  SIMPLE(4, A, LSR(a));
  SIMPLE(6, A, ROR(a));

  BRANCH(1, 0, !(negative & 0x80));
  BRANCH(3, 0, negative & 0x80);
  BRANCH(5, 0, !overflow);
  BRANCH(7, 0, overflow);
  BRANCH(9, 0, !carry);
  BRANCH(B, 0, carry);
  BRANCH(D, 0, zero != 0);
  BRANCH(F, 0, zero == 0);

  SIMPLE(1, 8, carry = 0);
  SIMPLE(3, 8, carry = 1);
  SIMPLE(5, 8, interrupt = 0);
  SIMPLE(7, 8, interrupt = 1);
  SIMPLE(B, 8, overflow = 0);
  SIMPLE(D, 8, decimal = 0);
  SIMPLE(F, 8, decimal = 1);
  SIMPLE(A, A, x = FLAGS(a));
  SIMPLE(8, A, a = FLAGS(x));
  SIMPLE(A, 8, y = FLAGS(a));
  SIMPLE(9, 8, a = FLAGS(y));
  SIMPLE(B, A, x = FLAGS(s));
  SIMPLE(9, A, s = x);
  SIMPLE(E, 8, x = FLAGS(x + 1));
  SIMPLE(C, 8, y = FLAGS(y + 1));
  SIMPLE(C, A, x = FLAGS(x - 1));
  SIMPLE(8, 8, y = FLAGS(y - 1));
  SIMPLE(E, A, (void)0);

  OP(4, 8) AFTER(3); PUSH(a); GO();
  OP(0, 8) AFTER(3); PUSH(STATUS); GO();
  OP(6, 8) AFTER(4); PEEK(); PULL(v); a = FLAGS(v); GO();
  OP(2, 8) AFTER(4); PEEK(); PULL(v); SET_STATUS(v); GO();
  OP(4, C) WORD(); AFTER(3); JUMP(at);
  OP(6, C) /* the pointer does not leave its page */
    WORD();
    AFTER(5);
    LOAD_TO(v, at);
    LOAD_TO(high, (at & 0xFF00) | ((at + 1) & 0xFF));
    at = (uint16_t)(v | high << 8);
    JUMP(at);
  OP(2, 0)
    NEXT(low);
    AFTER(6);
    pc = PC;
    PUSH(pc >> 8);
    PUSH(pc & 255);
    LOAD_TO(high, pc);
    at = (uint16_t)(low | high << 8);
    JUMP(at);
  OP(6, 0)
    AFTER(6);
    PEEK();
    PULL(low);
    PULL(high);
    at = (uint16_t)((low | high << 8) + 1);
    JUMP(at);
  OP(4, 0)
    AFTER(6);
    PEEK();
    PULL(v);
    SET_STATUS(v);
    PULL(low);
    PULL(high);
    at = (uint16_t)(low | high << 8);
    JUMP(at);
  OP(0, 0)
    AFTER(7);
    pc = (uint16_t)(PC + 1);
    PUSH(pc >> 8);
    PUSH(pc & 255);
    PUSH(STATUS);
    interrupt = 1;
    LOAD_TO(low, 0xFFFE);
    LOAD_TO(high, 0xFFFF);
    at = (uint16_t)(low | high << 8);
    JUMP(at);

  /* Undocumented ones. */
  BOTH(0, 1, ASL(v); a = FLAGS(a | v));
  BOTH(2, 3, ROL(v); a = FLAGS(a & v));
  BOTH(4, 5, LSR(v); a = FLAGS(a ^ v));
  BOTH(6, 7, ROR(v); ADD(v));
  BOTH(C, D, v--; COMPARE(a, v));
  BOTH(E, F, v++; SUBTRACT(v));
  OP(A, 3) BY_X_POINTER(); READ(6, a = x = FLAGS(v));
  OP(A, 7) ZP(); READ_ZERO_PAGE(3, a = x = FLAGS(v));
  OP(A, F) WORD(); READ(4, a = x = FLAGS(v));
  OP(B, 3) POINTER_BY_Y(1); READ(5, a = x = FLAGS(v));
  OP(B, 7) ZP_BY(y); READ_ZERO_PAGE(4, a = x = FLAGS(v));
  OP(B, F) WORD_BY(y, 1); READ(4, a = x = FLAGS(v));
  OP(8, 3) BY_X_POINTER(); WRITE(6, a & x);
  OP(8, 7) ZP(); WRITE(3, a & x);
  OP(8, F) WORD(); WRITE(4, a & x);
  OP(9, 7) ZP_BY(y); WRITE(4, a & x);
  IMMEDIATE(0, B, a = FLAGS(a & v); carry = a >> 7);
  IMMEDIATE(2, B, a = FLAGS(a & v); carry = a >> 7);
  IMMEDIATE(4, B, a &= v; LSR(a));
  IMMEDIATE(6, B, a &= v; ROR(a); carry = a >> 6 & 1; overflow = (a >> 6 ^ a >> 5) & 1);
  IMMEDIATE(8, B, a = FLAGS((a | 0xEE) & x & v));
  IMMEDIATE(A, B, a = x = FLAGS((a | 0xEE) & v));
  IMMEDIATE(C, B, x &= a; COMPARE(x, v); x = negative);
  OP(B, B) WORD_BY(y, 1); READ(4, a = x = s = FLAGS(v & s));
  OP(9, F) WORD_BY(y, 0); WRITE(5, a & x & ((at >> 8) + 1));
  OP(9, 3) POINTER_BY_Y(0); WRITE(6, a & x & ((at >> 8) + 1));
  OP(9, E) WORD_BY(y, 0); WRITE(5, x & ((at >> 8) + 1));
  OP(9, C) WORD_BY(x, 0); WRITE(5, y & ((at >> 8) + 1));
  OP(9, B) WORD_BY(y, 0); s = a & x; WRITE(5, s & ((at >> 8) + 1));
  OP(1, A) OP(3, A) OP(5, A) OP(7, A) OP(D, A) SIMPLE(F, A, (void)0);
  OP(8, 0) OP(8, 2) OP(8, 9) OP(C, 2) IMMEDIATE(E, 2, (void)0);
  OP(0, 4) OP(4, 4) OP(6, 4) ZP(); READ_ZERO_PAGE(3, (void)0);
  OP(0, C) WORD(); READ(4, (void)0);
  OP(1, 4) OP(3, 4) OP(5, 4) OP(7, 4) OP(D, 4) OP(F, 4)
    ZP_BY(x);
    READ_ZERO_PAGE(4, (void)0);
  OP(1, C) OP(3, C) OP(5, C) OP(7, C) OP(D, C) OP(F, C)
    WORD_BY(x, 1);
    READ(4, (void)0);
  OP(0, 2) OP(1, 2) OP(2, 2) OP(3, 2) OP(4, 2) OP(5, 2) OP(6, 2) OP(7, 2)
  OP(9, 2) OP(B, 2) OP(D, 2) OP(F, 2) /* JAM: only power gets the processor out of it */
    m->jammed = 1;
    next--;
    goto out;

write:
  if (at == 0x02 && cycle < run->last) { /* WSYNC, of which there are many */
    bus = v;
    cycle += AT_LINE - 1;
    cycle -= cycle % AT_LINE;
    GO();
  }
  STORE(at, v);
  GO();

branch:
  pc = PC;
  at = (uint16_t)(pc + (int8_t)v);
  AFTER(1 + ((at ^ pc) > 255));
  if ((v == 0xFB || v == 0xFD) && (code == 0xD0 || code == 0x10)) goto loop;
  JUMP(at);

/* Skips loops in which nothing else happens: a read of the timer, or DEX or DEY, and BNE or BPL. */
loop:
  place = (uint16_t)(at - window.first);
  if (place >= window.size || (uint16_t)(pc - window.first) >= window.size) JUMP(at);
  next = window.plain + place;
  is_positive = code == 0x10, taken = 1 + ((at ^ pc) > 255), loops = 0;
  if (v == 0xFB && (next[0] & 0xFC) == 0xAC && next[1] == 0x84 && next[2] == 0x02) {
    m->cycle = cycle + 4;
    loops = at_reads_above(m, is_positive ? -1 : 0, 6 + taken);
    if (loops > (operations - 1) / 2) loops = (operations - 1) / 2;
    cycle += (6 + taken) * loops;
  } else if (v == 0xFD && (next[0] == 0xCA || next[0] == 0x88)) {
    v = next[0] == 0xCA ? x : y;
    loops = v - !is_positive;
    if (loops > operations / 2) loops = operations / 2;
    cycle += (4 + taken) * loops;
    v = FLAGS(v - loops);
    if (next[0] == 0xCA) x = v;
    else y = v;
  }
  operations -= 2 * loops;
  GO();

out:
  m->pc = PC, m->a = a, m->x = x, m->y = y, m->s = s, m->bus = bus, m->cycle = cycle;
  m->negative = negative, m->zero = zero, m->carry = carry, m->overflow = overflow;
  m->decimal = decimal, m->interrupt = interrupt;
}

#undef LOAD_OTHER
#undef LOAD_TO
#undef LOAD_ZERO_PAGE
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
#undef OP
#undef ROW
#undef GO
#undef JUMP
#undef PC
#undef FORGET
#undef READ
#undef READ_ZERO_PAGE
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
