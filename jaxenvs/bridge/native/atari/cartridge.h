/* Cartridges: a ROM of up to 4 KiB, or banks that an access to some addresses switches.
 *
 * The processor sees 4 KiB. Each quarter is a bank of 1 KiB of the ROM; most cartridges switch all
 * four at once (K. Horton, Cart Information, 1997).
 */
#ifndef JAXENVS_ATARI_CARTRIDGE_H
#define JAXENVS_ATARI_CARTRIDGE_H

#include "console.h"

static void at_map_quarter(at_run* run, int i) {
  int bank = run->m->bank[i] % (run->cart->size >> 10);
  memcpy(run->quarters + 1024 * i, run->cart->rom + 1024 * bank, 1024);
}

static void at_map(at_run* run) {
  const at_cartridge* cart = run->cart;
  if (cart->kind != AT_E0 && cart->size >= 4096) {
    run->view = cart->rom + (run->m->bank[0] % (cart->size >> 10) & ~3) * 1024;
    return;
  }
  for (int i = 0; i < 4; i++) at_map_quarter(run, i);
  run->view = run->quarters;
}

static void at_map_all(at_run* run, int bank) {
  for (int i = 0; i < 4; i++) run->m->bank[i] = (uint8_t)(4 * bank + i);
  at_map(run);
}

static void at_insert(at_console* m, const at_cartridge* cart) {
  int first = cart->kind == AT_E0 || cart->size == 8192 ? 4 : 0; /* cartridges of 8 KiB end first */
  for (int i = 0; i < 4; i++) m->bank[i] = (uint8_t)(first + i);
}

/* Switches banks if the address is one that does. */
static void at_touch(at_run* run, uint16_t address) {
  int a = address & 0x1FFF, banks = run->cart->size >> 12;
  if (run->cart->kind == AT_E0) {
    if (a >= 0x1FE0 && a <= 0x1FF7) { /* the last quarter is always the last bank */
      run->m->bank[(a - 0x1FE0) >> 3] = (uint8_t)(a & 7);
      at_map_quarter(run, (a - 0x1FE0) >> 3);
    }
  } else if (run->cart->kind != AT_FE && a >= 0x1FFA - banks && a <= 0x1FF9) {
    at_map_all(run, a - (0x1FFA - banks));
  }
}

/* Bytes of the cartridge's own memory: where they are written, then where they are read. */
static inline int at_memory_size(const at_cartridge* cart) { return cart->kind == AT_SC ? 128 : 0; }

static inline void at_open(at_run* run) {
  run->first_plain = (uint16_t)(0x1000 + 2 * at_memory_size(run->cart));
  at_map(run);
}

/* How many bytes of the ROM, from `first_plain` on in the mirror that an address is in, can be read
 * without anything else happening. Two more follow, so that an operation lies inside. */
static uint16_t at_num_plain(const at_run* run, uint16_t address) {
  int hot = run->cart->hot;
  if (run->cart->kind == AT_FE) { /* a read chooses the bank, which may be there already */
    uint8_t first = address & 0x2000 ? 0 : 4;
    uint8_t bank[4] = {first, (uint8_t)(first + 1), (uint8_t)(first + 2), (uint8_t)(first + 3)};
    hot = memcmp(run->m->bank, bank, 4) ? 0 : 0x2000;
  }
  int num = hot - run->first_plain - 2;
  return (uint16_t)(num < 0 ? 0 : num);
}

static uint8_t at_read_cartridge(at_run* run, uint16_t address) {
  int a = address & 0xFFF, size = at_memory_size(run->cart);
  if (a >= size && a < 2 * size) return run->m->memory[a - size];
  if (run->cart->kind == AT_FE) at_map_all(run, !(address & 0x2000));
  if ((address & 0x1FFF) >= run->cart->hot) at_touch(run, address);
  return run->view[a];
}

static void at_write_cartridge(at_run* run, uint16_t address, uint8_t value) {
  int a = address & 0xFFF;
  if (a < at_memory_size(run->cart)) run->m->memory[a] = value;
  if ((address & 0x1FFF) >= run->cart->hot) at_touch(run, address);
}

#endif
