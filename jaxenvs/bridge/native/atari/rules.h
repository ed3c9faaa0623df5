// The stack machine that reads rewards, lives, and ends of episodes from the RAM of an Atari 2600.
//
// Programs are made by envs/atari/rules.py, which describes the language and numbers operations as
// here. A program is AT_RULE_LENGTH pairs of int32: an operation, and its argument. Whatever is in
// it, the machine reads nothing outside the program, the 256 bytes of memory, and the registers,
// and it stops.
#ifndef JAXENVS_ATARI_RULES_H
#define JAXENVS_ATARI_RULES_H

#include <stdint.h>

enum { AT_RULE_LENGTH = 128, AT_RULE_DEPTH = 16, AT_RULE_REGISTERS = 16 };

enum {
  AT_END, AT_CONSTANT, AT_RAM, AT_BCD, AT_HIGH, AT_LOW, AT_REGISTER,
  AT_ADD, AT_SUBTRACT, AT_MULTIPLY, AT_DIVIDE, AT_MODULO, AT_AND, AT_OR, AT_XOR, AT_LEFT, AT_RIGHT,
  AT_EQUAL, AT_UNEQUAL, AT_LESS, AT_LESS_EQUAL, AT_GREATER, AT_GREATER_EQUAL, AT_BOTH, AT_EITHER,
  AT_NEGATIVE, AT_INVERT, AT_NOT, AT_SELECT
};

// Rounds to minus infinity. Zero if the divisor is.
static int64_t at_divide(int64_t left, int64_t right) {
  if (right == 0) return 0;
  int64_t quotient = left / right;
  return quotient - (left % right != 0 && (left < 0) != (right < 0));
}

static int64_t at_combine(int32_t operation, int64_t left, int64_t right) {
  switch (operation) {
    case AT_ADD: return left + right;
    case AT_SUBTRACT: return left - right;
    case AT_MULTIPLY: return left * right;
    case AT_DIVIDE: return at_divide(left, right);
    case AT_MODULO: return right == 0 ? 0 : left - right * at_divide(left, right);
    case AT_AND: return left & right;
    case AT_OR: return left | right;
    case AT_XOR: return left ^ right;
    case AT_LEFT: return left * ((int64_t)1 << (right & 31));
    case AT_RIGHT: return at_divide(left, (int64_t)1 << (right & 31));
    case AT_EQUAL: return left == right;
    case AT_UNEQUAL: return left != right;
    case AT_LESS: return left < right;
    case AT_LESS_EQUAL: return left <= right;
    case AT_GREATER: return left > right;
    case AT_GREATER_EQUAL: return left >= right;
    case AT_BOTH: return left && right;
    default: return left || right;
  }
}

// Runs a program of int32[AT_RULE_LENGTH][2] on the registers and 256 bytes: the RAM, then the
// cartridge's memory.
static int32_t at_evaluate(const int32_t *code, const uint8_t *ram, const int32_t *registers) {
  int32_t stack[AT_RULE_DEPTH] = {0};
  uint32_t top = 0;  // the next free place; masked wherever it is used
#define AT_PLACE(below) stack[(top - (below)) & (AT_RULE_DEPTH - 1)]
  for (int at = 0; at < AT_RULE_LENGTH && code[2 * at] != AT_END; at++) {
    int32_t operation = code[2 * at], argument = code[2 * at + 1];
    uint8_t byte = ram[argument & 255];
    int64_t value;
    uint32_t taken = 1;
    switch (operation) {
      case AT_CONSTANT: value = argument, taken = 0; break;
      case AT_RAM: value = byte, taken = 0; break;
      case AT_BCD: value = 10 * (byte >> 4) + (byte & 15), taken = 0; break;
      case AT_HIGH: value = byte >> 4, taken = 0; break;
      case AT_LOW: value = byte & 15, taken = 0; break;
      case AT_REGISTER: value = registers[argument & (AT_RULE_REGISTERS - 1)], taken = 0; break;
      case AT_NEGATIVE: value = -(int64_t)AT_PLACE(1); break;
      case AT_INVERT: value = ~AT_PLACE(1); break;
      case AT_NOT: value = !AT_PLACE(1); break;
      case AT_SELECT: value = AT_PLACE(3) ? AT_PLACE(2) : AT_PLACE(1), taken = 3; break;
      default: value = at_combine(operation, AT_PLACE(2), AT_PLACE(1)), taken = 2;
    }
    top -= taken;
    AT_PLACE(0) = (int32_t)(uint32_t)value;
    top++;
  }
  return AT_PLACE(1);
#undef AT_PLACE
}

#endif  // JAXENVS_ATARI_RULES_H
