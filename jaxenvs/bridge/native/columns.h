// Arrays of programs, and the columns of a pool that they are copied to and from. Included by xla.cc
// alone.
#ifndef JAXENVS_COLUMNS_H
#define JAXENVS_COLUMNS_H

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

extern "C" {
// An array with a row for each instance.
struct jx_column {
  uint8_t *data[2];   // in the two buffers
  uint8_t *final[2];  // instead of `data` where an episode has ended; null: there is nothing else
  int64_t elements;   // of a row
  int32_t type;       // NumPy's letter for the dtype
  int32_t size;       // bytes of an element
  const int64_t *low, *high;  // [elements], bounds of integer actions; null: nothing is checked
};
}

namespace {

int32_t letter(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::PRED: return '?';
    case ffi::DataType::S8: return 'b';
    case ffi::DataType::U8: return 'B';
    case ffi::DataType::S16: return 'h';
    case ffi::DataType::U16: return 'H';
    case ffi::DataType::S32: return 'i';
    case ffi::DataType::U32: return 'I';
    case ffi::DataType::S64: return 'l';
    case ffi::DataType::U64: return 'L';
    case ffi::DataType::F16: return 'e';
    case ffi::DataType::F32: return 'f';
    case ffi::DataType::F64: return 'd';
    default: return 0;
  }
}

// Calls `f` with a value of the type that `letter` stands for; false if there is none.
template <typename F>
bool with_type(int32_t letter, F f) {
  switch (letter) {
    case '?': f(bool{}); return true;
    case 'b': f(int8_t{}); return true;
    case 'B': f(uint8_t{}); return true;
    case 'h': f(int16_t{}); return true;
    case 'H': f(uint16_t{}); return true;
    case 'i': f(int32_t{}); return true;
    case 'I': f(uint32_t{}); return true;
    case 'l': f(int64_t{}); return true;
    case 'L': f(uint64_t{}); return true;
    case 'f': f(float{}); return true;
    case 'd': f(double{}); return true;
    default: return false;
  }
}

bool convert(int32_t from_type, const void *from, int32_t to_type, void *to, int64_t count,
             int64_t size) {
  if (from_type == to_type) {
    memcpy(to, from, count * size);
    return true;
  }
  bool known = false;
  with_type(from_type, [&](auto from_value) {
    known = with_type(to_type, [&](auto to_value) {
      auto *source = static_cast<const decltype(from_value) *>(from);
      auto *target = static_cast<decltype(to_value) *>(to);
      for (int64_t i = 0; i < count; i++) target[i] = static_cast<decltype(to_value)>(source[i]);
    });
  });
  return known;
}

// Rows of an array of the program: all of them if `ids` is null, else those of `ids`.
struct Rows {
  const int32_t *ids;
  int64_t count;
  int64_t operator[](int64_t i) const { return ids ? ids[i] : i; }
};

// Copies rows of an array of the program to those of a column, or back.
bool copy_rows(const ffi::AnyBuffer &array, const jx_column &column, uint8_t *data,
               const Rows &rows, bool is_in) {
  if ((int64_t)array.element_count() != rows.count * column.elements) return false;
  int32_t type = letter(array.element_type());
  int64_t row = column.elements * (int64_t)ffi::ByteWidth(array.element_type());
  auto copy = [&](uint8_t *there, uint8_t *here, int64_t count) {
    return is_in ? convert(type, there, column.type, here, count, column.size)
                 : convert(column.type, here, type, there, count, column.size);
  };
  auto *begin = static_cast<uint8_t *>(array.untyped_data());
  if (!rows.ids) return copy(begin, data, rows.count * column.elements);
  for (int64_t i = 0; i < rows.count; i++)
    if (!copy(begin + i * row, data + rows[i] * column.elements * column.size, column.elements))
      return false;
  return true;
}

// Returns whether no value of `count` rows is out of bounds or NaN.
template <typename Value>
bool all_inside(const jx_column &column, const void *data, int64_t count) {
  auto *values = static_cast<const Value *>(data);
  for (int64_t i = 0; i < count; i++)
    for (int64_t e = 0; e < column.elements; e++) {
      Value value = values[i * column.elements + e];
      bool inside = std::is_floating_point<Value>::value
                        ? value == value
                        : (int64_t)value >= column.low[e] && (int64_t)value <= column.high[e];
      if (!inside) return false;
    }
  return true;
}

}  // namespace

#endif
