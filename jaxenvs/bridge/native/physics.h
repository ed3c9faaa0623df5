// A custom call that steps many simulations of a model with C MuJoCo. Included by xla.cc alone.
//
// The program carries all of a simulation: those parts of its row of mjSTATE_INTEGRATION that can
// differ between simulations, as pairs of uint32, since JAX has no float64 by default. A call loads
// the rows into an mjBatch, steps them on its threads, and returns the rows and what the task reads
// of mjData. Nothing that a result depends on stays here between two calls.
//
// MuJoCo is found at run time. Its structs differ between releases, so only its functions are used
// here, and offsets in mjData that Python has found. physics/c.py has the same structs.
#ifndef JAXENVS_PHYSICS_H
#define JAXENVS_PHYSICS_H

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

extern "C" {

typedef void (*jx_each)(const void *model, void *data, int simulation, void *argument);

// Functions of MuJoCo.
struct jx_mujoco {
  void *(*make_batch)(const void *model, int count, const void *config, char *error, int room);
  void (*delete_batch)(void *batch);
  double *(*state)(void *batch);
  const int *(*status)(const void *batch);
  int32_t *(*warning)(void *batch);  // pairs: the latest information, how often
  void *(*expand)(void *batch, const char *name, int *size, int *element_size);
  int (*set_const)(void *batch, const int *ids, int count);
  int (*apply)(void *batch, const int *ids, int count, jx_each each, void *argument, int saves);
  void (*step)(const void *model, void *data);
  void (*forward)(const void *model, void *data);
  void (*forces)(const void *model, void *data);  // mj_rnePostConstraint
  void (*begin)(const void *model, void *data);   // mj_step1
  void (**user_warning)(const char *text);
  void (*write_log)(const char *kind, const char *text);
};

struct jx_field {
  int64_t offset;    // in mjData
  int32_t size;      // elements
  int32_t type;      // 'd': a pointer to doubles; 'i': an int
  int32_t is_state;  // whether it is an input of MuJoCo's functions
};

// A model.
struct jx_physics {
  const jx_mujoco *mujoco;
  const void *model;
  const double *row;     // after mj_resetData
  const int64_t *parts;  // [num_parts, 2], place and size of what programs carry of the row
  const jx_field *fields;
  int32_t num_parts, row_size, num_warnings;
  int32_t qpos, qvel;  // places in the row
  uint32_t diverged;   // bits of the warnings after which a result is not one of physics
  int64_t heights;     // offset of hfield_data in mjModel
  int64_t model_size;  // bytes of mjModel without its arrays, if it has heights
};
}

namespace physics {

enum Mode { kStart = 1, kForces = 2, kBegin = 4, kRaise = 8 };
constexpr uint32_t kFailed = 1u << 31;  // flag: MuJoCo raised an error

// Models by a digest of their content, which is the same in every process.
std::mutex mutex;
std::map<int64_t, jx_physics> &models() {
  static auto *all = new std::map<int64_t, jx_physics>;
  return *all;
}

// --- batches ---

struct Expanded {
  uint8_t *rows;
  int size, element_size;
};

struct Batch {
  void *batch;
  int count, threads;
  std::string names;  // of the fields of the model that differ between simulations
  std::vector<Expanded> expanded;
};

// Batches that no call uses at present.
std::map<int64_t, std::vector<Batch>> &idle() {
  static auto *all = new std::map<int64_t, std::vector<Batch>>;
  return *all;
}
pid_t owner = 0;
constexpr size_t kMostIdle = 4;  // of a model

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(',', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
  }
  return parts;
}

// Returns why there is no batch, or "".
std::string take(int64_t id, const jx_physics &model, int count, int threads,
                 std::string_view names, Batch *found) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (owner != getpid()) idle().clear(), owner = getpid();  // threads do not survive a fork
    auto &batches = idle()[id];
    for (auto it = batches.begin(); it != batches.end(); ++it)
      if (it->count >= count && it->threads == threads && it->names == names) {
        *found = *it;
        batches.erase(it);
        return "";
      }
  }
  struct {
    int threads;
    uint8_t persistent;
  } config = {threads, 0};
  char error[500] = "";
  *found = {model.mujoco->make_batch(model.model, count, &config, error, sizeof error), count,
            threads, std::string(names), {}};
  if (!found->batch) return std::string("MuJoCo makes no batch: ") + error;
  for (auto &name : split(names)) {
    Expanded field = {};
    field.rows = static_cast<uint8_t *>(
        model.mujoco->expand(found->batch, name.c_str(), &field.size, &field.element_size));
    if (!field.rows) return "MuJoCo cannot give simulations different " + name;
    found->expanded.push_back(field);
  }
  return "";
}

void give_back(int64_t id, const jx_physics &model, const Batch &batch) {
  Batch unwanted = {};
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto &batches = idle()[id];
    batches.insert(batches.begin(), batch);
    if (batches.size() > kMostIdle) unwanted = batches.back(), batches.pop_back();
  }
  if (unwanted.batch) model.mujoco->delete_batch(unwanted.batch);
}

// --- operands and results ---

// Rows of numbers, one for each simulation. Dimensions of size 1 are shared.
struct Operand {
  const uint8_t *data;
  int64_t width, bytes;  // elements of a row, bytes of an element
  ffi::DataType type;
  std::vector<int64_t> strides, sizes;  // of the dimensions of the batch

  Operand(const ffi::AnyBuffer &from, ffi::Span<const int64_t> batch)
      : data(static_cast<const uint8_t *>(from.untyped_data())),
        width(from.dimensions().back()),
        bytes((int64_t)ffi::ByteWidth(from.element_type())),
        type(from.element_type()),
        sizes(batch.begin(), batch.end()) {
    auto own = from.dimensions();
    strides.resize(sizes.size());
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0; stride *= own[i]) strides[i] = own[i] == 1 ? 0 : stride;
  }

  const uint8_t *row(int64_t i) const {
    int64_t at = 0;
    for (size_t k = sizes.size(); k-- > 0; i /= sizes[k]) at += i % sizes[k] * strides[k];
    return data + at * width * bytes;
  }

  // Copies a row to doubles, or, of fields of the model, to numbers of another size.
  void copy(int64_t i, void *to, int element_size = 8) const {
    auto from = row(i);
    if (bytes == element_size || type == ffi::DataType::U32)  // doubles as pairs
      memcpy(to, from, width * bytes);
    else if (element_size == 8)
      std::copy_n(reinterpret_cast<const float *>(from), width, static_cast<double *>(to));
    else
      std::copy_n(reinterpret_cast<const double *>(from), width, static_cast<float *>(to));
  }
};

template <typename T>
void write_changed(const Operand &values, int64_t i, double *to) {
  auto from = reinterpret_cast<const T *>(values.row(i));
  for (int64_t k = 0; k < values.width; k++)
    if ((T)to[k] != from[k]) to[k] = from[k];
}

struct Result {
  uint8_t *data;
  int64_t width;
  bool is_double;
  const jx_field *field;
};

// --- the call ---

thread_local bool is_stepping = false;
void (*their_warning)(const char *) = nullptr;
const jx_mujoco *warned_by = nullptr;

// MuJoCo prints warnings and writes them to a file where the program runs. Here they become flags.
void on_warning(const char *text) {
  if (is_stepping) return;
  if (their_warning) return their_warning(text);
  warned_by->write_log("WARNING", text);
  printf("WARNING: %s\n\n", text);
}

void add(int64_t id, const jx_physics &model) {
  std::lock_guard<std::mutex> lock(mutex);
  models()[id] = model;
  if (warned_by) return;
  warned_by = model.mujoco;
  their_warning = *warned_by->user_warning;
  *warned_by->user_warning = on_warning;
}

struct Request {
  const jx_physics *model;
  int steps, mode;
  std::vector<Result> results;
  const Operand *heights;  // of the terrain of each simulation, or none
};

thread_local std::vector<uint8_t> own_model;  // with the terrain of one simulation

// Returns the model with the heights of a simulation's terrain, which mjb_expand does not take.
// All other arrays are those of `model`, so that terrains cost no memory and no time.
const void *with_heights(const void *model, const Request &request, int simulation) {
  auto bytes = static_cast<const uint8_t *>(model);
  own_model.assign(bytes, bytes + request.model->model_size);
  auto heights = request.heights->row(simulation);
  memcpy(own_model.data() + request.model->heights, &heights, sizeof heights);
  return own_model.data();
}

// Leaves no object with a destructor: MuJoCo's errors jump out of this function.
void each(const void *model, void *data, int simulation, void *argument) {
  auto request = static_cast<Request *>(argument);
  auto mujoco = request->model->mujoco;
  bool is_start = request->mode & kStart;
  is_stepping = true;
  if (request->heights) model = with_heights(model, *request, simulation);
  if (is_start) {
    // `data` has served other simulations, and `forward` does not compute all that there is.
    for (auto &result : request->results)
      if (!result.field->is_state && result.field->type == 'd')
        memset(*reinterpret_cast<void **>((uint8_t *)data + result.field->offset), 0,
               result.width * 8);
    mujoco->forward(model, data);
  } else {
    for (int i = 0; i < request->steps; i++) mujoco->step(model, data);
    if (request->mode & kForces) mujoco->forces(model, data);
    if (request->mode & kBegin) mujoco->begin(model, data);
  }
  for (auto &result : request->results) {
    auto from = static_cast<uint8_t *>(data) + result.field->offset;
    auto to = result.data + simulation * result.width * (result.is_double ? 8 : 4);
    if (result.field->type == 'i') {
      memcpy(to, from, 4);
      continue;
    }
    auto numbers = *reinterpret_cast<double **>(from);
    if (result.is_double)
      memcpy(to, numbers, result.width * 8);
    else
      for (int64_t k = 0; k < result.width; k++) reinterpret_cast<float *>(to)[k] = (float)numbers[k];
  }
  is_stepping = false;
}

// Operands: rows, whether a simulation is wanted, qpos, qvel, what is written into the rows at
// `places`, the fields of the model `expanded`, and the heights of terrain if `has_heights`.
// Results: rows, flags, the fields of the data `fields`, and the fields of the model `constants`,
// which follow from others.
ffi::Error call(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t id, int32_t steps,
                int32_t mode, int32_t threads, ffi::Span<const int64_t> places,
                ffi::Span<const int32_t> fields, std::string_view expanded, bool has_heights,
                std::string_view constants) {
  jx_physics model;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = models().find(id);
    if (found == models().end())
      return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                        "a program steps a model of MuJoCo that this process has not made.  Make"
                        " the environment before you load the program.");
    model = found->second;
  }
  auto mujoco = model.mujoco;
  auto next = **rets.get<ffi::AnyBuffer>(0);
  auto dimensions = next.dimensions();
  auto batch_dimensions = dimensions.first(dimensions.size() - 1);
  std::vector<Operand> operands;
  for (size_t i = 0; i < args.size(); i++)
    operands.emplace_back(*args.get<ffi::AnyBuffer>(i), batch_dimensions);
  int64_t count = next.element_count() / dimensions.back();
  if (!count) return ffi::Error::Success();
  Batch batch;
  auto names = std::string(expanded) + (constants.empty() ? "" : "," + std::string(constants));
  auto why = take(id, model, (int)count, (int)std::min<int64_t>(threads, count), names, &batch);
  if (!why.empty()) return ffi::Error::Internal(why);

  double *rows = mujoco->state(batch.batch);
  auto load = [&](int64_t i) {
    double *row = rows + i * model.row_size;
    memcpy(row, model.row, model.row_size * 8);
    auto from = reinterpret_cast<const double *>(operands[0].row(i));
    for (int p = 0; p < model.num_parts; p++) {
      memcpy(row + model.parts[2 * p], from, model.parts[2 * p + 1] * 8);
      from += model.parts[2 * p + 1];
    }
    // A program may have changed the positions and velocities that stand beside the row.
    for (int k = 0; k < 2; k++) {
      auto to = row + (k ? model.qvel : model.qpos);
      if (operands[2 + k].bytes == 8)
        write_changed<double>(operands[2 + k], i, to);
      else
        write_changed<float>(operands[2 + k], i, to);
    }
    for (size_t k = 0; k < places.size(); k++) operands[4 + k].copy(i, row + places[k]);
  };
  std::vector<int> ids;
  for (int64_t i = 0; i < count; i++)
    if (*operands[1].row(i)) ids.push_back((int)i);
  for (int64_t i = 0; i < count; i++) load(i);
  size_t num_given = args.size() - 4 - places.size() - has_heights;
  for (int i : ids)
    for (size_t k = 0; k < num_given; k++) {
      auto &to = batch.expanded[k];
      operands[4 + places.size() + k].copy(i, to.rows + (int64_t)i * to.size * to.element_size,
                                           to.element_size);
    }

  Request request = {&model, steps, mode, {}, has_heights ? &operands.back() : nullptr};
  for (size_t k = 0; k < fields.size(); k++) {
    auto to = **rets.get<ffi::AnyBuffer>(2 + k);
    bool is_double = to.element_type() == ffi::DataType::F64;
    request.results.push_back({static_cast<uint8_t *>(to.untyped_data()), to.dimensions().back(),
                               is_double, &model.fields[fields[k]]});
    if ((int64_t)ids.size() < count) memset(to.untyped_data(), 0, to.size_bytes());
  }
  auto flags = static_cast<uint32_t *>((**rets.get<ffi::AnyBuffer>(1)).untyped_data());
  std::fill_n(flags, count, 0);
  memset(mujoco->warning(batch.batch), 0, (size_t)batch.count * model.num_warnings * 8);
  if (!ids.empty()) {
    if (!constants.empty()) mujoco->set_const(batch.batch, ids.data(), (int)ids.size());
    mujoco->apply(batch.batch, ids.data(), (int)ids.size(), each, &request, 1);
    std::vector<int> diverged;
    for (int i : ids) {
      auto warning = mujoco->warning(batch.batch) + (int64_t)i * model.num_warnings * 2;
      for (int k = 0; k < model.num_warnings; k++) flags[i] |= (uint32_t)(warning[2 * k + 1] != 0) << k;
      flags[i] &= model.diverged;
      if (mujoco->status(batch.batch)[i]) flags[i] |= kFailed;
      if (flags[i] && !(mode & kStart)) diverged.push_back(i), load(i);
    }
    if (mode & kRaise && !diverged.empty())
      return give_back(id, model, batch),
             ffi::Error::Internal("the simulation of instance " + std::to_string(diverged[0]) +
                                  " diverged.");
    // MuJoCo has put them back to their first positions. They stay where they were.
    request.mode = kStart;
    if (!diverged.empty())
      mujoco->apply(batch.batch, diverged.data(), (int)diverged.size(), each, &request, 0);
    is_stepping = false;  // an error may have jumped over it
  }
  auto to = static_cast<double *>(next.untyped_data());
  for (int64_t i = 0; i < count; i++)
    for (int p = 0; p < model.num_parts; p++, to += model.parts[2 * p - 1])
      memcpy(to, rows + i * model.row_size + model.parts[2 * p], model.parts[2 * p + 1] * 8);
  for (size_t k = num_given; k < batch.expanded.size(); k++) {
    auto result = **rets.get<ffi::AnyBuffer>(2 + fields.size() + k - num_given);
    memcpy(result.untyped_data(), batch.expanded[k].rows, result.size_bytes());
  }
  give_back(id, model, batch);
  return ffi::Error::Success();
}

}  // namespace physics

#endif  // JAXENVS_PHYSICS_H
