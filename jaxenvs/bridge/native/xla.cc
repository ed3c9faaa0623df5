// Custom calls through which a compiled program steps a pool, without Python and its lock.
//
// The token in a program's state contains the id of its pool, so an executable contains nothing of
// a pool: one compiled program can step different pools, and a closed pool is an error. The token
// also contains a call counter, so that a state that was stepped already can be refused.
// Python fills in a jx_hosted (_hosted.py has the same fields) and registers it.

#include "pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <signal.h>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

#define JX_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {

// An array with a row for each instance.
struct jx_column {
  uint8_t *data[2];  // in the two buffers
  int64_t elements;  // of a row
  int32_t type;      // NumPy's letter for the dtype
  int32_t size;      // bytes of an element
  const int64_t *low, *high;  // [elements], bounds of integer actions; null: nothing is checked
};

struct jx_hosted {
  jx_pool *pool;
  const char *name;
  const int32_t *owners;  // [num_envs], the worker of each instance
  int32_t num_envs;
  int32_t buffer;         // for answers of all environments
  int32_t buffer_of_some; // for answers of some environments
  int32_t restarts;       // whether on_failure="restart": failures are logged, not errors
  int64_t patience_ns;    // how long to wait before checking for hangs; -1: no timeout
  uint8_t *mailboxes;     // [num_workers][mailbox_room], length first
  int64_t mailbox_room;
  int32_t num_actions, num_observations, num_fields, has_final;
  jx_column *actions, *observations, *finals, *fields, *final_fields;
  jx_column reward, terminated, truncated, elapsed, restarted, seeds;
  int32_t counter;        // number of calls so far
  int32_t all_pending;    // whether a step or reset of all is pending
  uint8_t *busy;          // [num_envs], whether a step or reset of one environment is pending
  uint32_t closing;       // whether calls must stop waiting
  int64_t waited_until;   // when a call last stopped waiting
};
}

namespace {

// The pools of a HostEnv over several devices. If a call fails, its device does not leave the
// program at once, because the others would wait for it in their next collective operation, without
// end. Until all devices fail, in the first call that none of them has begun, it returns rows
// flagged as truncated and restarted.
struct Group {
  std::mutex mutex;
  std::vector<int64_t> calls;  // of each pool
  int64_t last = INT64_MAX;    // the call in which all fail
  size_t failed = 0;           // pools that did
  ffi::Error error = ffi::Error::Success();
};

struct Entry {
  explicit Entry(jx_hosted *hosted) : hosted(hosted) {}
  jx_hosted *hosted;  // null once the pool is closed
  std::mutex mutex;
  std::shared_ptr<Group> group;  // null with a single device
  size_t place = 0;              // in the group
};

std::mutex table_mutex;
std::unordered_map<int32_t, std::shared_ptr<Entry>> &table() {
  static auto *entries = new std::unordered_map<int32_t, std::shared_ptr<Entry>>;
  return *entries;  // never destroyed: threads of XLA may outlive static objects
}

std::shared_ptr<Entry> find(int32_t id) {
  std::lock_guard<std::mutex> lock(table_mutex);
  auto found = table().find(id);
  return found == table().end() ? nullptr : found->second;
}

// --- types ---

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

// --- arguments and results ---

ffi::Error wrong(const std::string &what) { return ffi::Error::InvalidArgument(what); }

// Rows of an array of the program: all of them if `ids` is null, else those of `ids`.
struct Rows {
  const int32_t *ids;
  int64_t count;
  int64_t operator[](int64_t i) const { return ids ? ids[i] : i; }
};

bool copy_in(const ffi::AnyBuffer &from, const jx_column &to, int buffer, const Rows &rows) {
  if ((int64_t)from.element_count() != rows.count * to.elements) return false;
  int32_t type = letter(from.element_type());
  int64_t from_row = to.elements * (int64_t)ffi::ByteWidth(from.element_type());
  int64_t to_row = to.elements * to.size;
  auto *source = static_cast<const uint8_t *>(from.untyped_data());
  if (!rows.ids) return convert(type, source, to.type, to.data[buffer], rows.count * to.elements, to.size);
  for (int64_t i = 0; i < rows.count; i++)
    if (!convert(type, source + i * from_row, to.type, to.data[buffer] + rows[i] * to_row,
                 to.elements, to.size))
      return false;
  return true;
}

bool copy_out(const jx_column &from, int buffer, const Rows &rows, ffi::AnyBuffer to) {
  if ((int64_t)to.element_count() != rows.count * from.elements) return false;
  int32_t type = letter(to.element_type());
  int64_t to_row = from.elements * (int64_t)ffi::ByteWidth(to.element_type());
  int64_t from_row = from.elements * from.size;
  auto *target = static_cast<uint8_t *>(to.untyped_data());
  const uint8_t *source = from.data[buffer];
  if (!rows.ids) return convert(from.type, source, type, target, rows.count * from.elements, from.size);
  for (int64_t i = 0; i < rows.count; i++)
    if (!convert(from.type, source + rows[i] * from_row, type, target + i * to_row, from.elements,
                 from.size))
      return false;
  return true;
}

// --- failures ---

// Returns the workers that made no progress over three checks in a row, that is, for two
// patiences: the timeout. `before` holds the previous checks. A worker that is being replaced does
// not count.
std::vector<int32_t> hanging(jx_pool *pool, std::vector<std::array<uint32_t, 4>> *before) {
  std::vector<int32_t> found;
  before->resize(pool->num_workers, {0, 0, 0, 0});
  for (uint32_t w = 0; w < pool->num_workers; w++) {
    jx_line *line = &pool->lines[w];
    std::array<uint32_t, 4> now = {jx_load(&line->asked), jx_load(&line->done),
                                   jx_load(&line->current) + 1, 0};
    std::array<uint32_t, 4> &last = (*before)[w];
    bool same = now[0] == last[0] && now[1] == last[1] && now[2] == last[2];
    if (same && now[0] != now[1] && pool->pids[w] > 0) now[3] = last[3] + 1;
    if (now[3] == 2) {
      found.push_back((int32_t)w);
      now[3] = 0; // the next wait gets the full timeout again
    }
    last = now;
  }
  return found;
}

// Reads what workers reported. With `restarts`, an error is only what cannot be mended: the loss of
// a worker, and an environment that cannot be constructed again.
ffi::Error failure(jx_hosted *h) {
  std::string failed, mended;
  bool lost = jx_load(&h->pool->header->lost);
  jx_store(&h->pool->header->attention, 0);
  for (uint32_t w = 0; w < h->pool->num_workers; w++) {
    uint8_t *box = h->mailboxes + w * h->mailbox_room;
    uint32_t size = jx_load(reinterpret_cast<uint32_t *>(box));
    if (!size) continue;
    std::string posts(reinterpret_cast<char *>(box) + 4, size);
    jx_store(reinterpret_cast<uint32_t *>(box), 0);
    for (size_t begin = 0; begin <= posts.size();) {  // separated by zeros
      size_t end = std::min(posts.find('\0', begin), posts.size());
      std::string post = posts.substr(begin, end - begin);
      begin = end + 1;
      size_t first = post.find('\n'), second = post.find('\n', first + 1);
      if (second == std::string::npos) continue;
      std::string what = post.substr(first + 1, second - first - 1);
      std::string rest = post.substr(second + 1);
      if (what == "warning") {
        fprintf(stderr, "jaxenvs: %s\n", rest.c_str());
        continue;
      }
      bool is_mended = h->restarts && !lost && what != "reconstruction";
      (is_mended ? mended : failed) +=
          "environment " + post.substr(0, first) + " (\"" + h->name + "\", worker " +
          std::to_string(w) + ", process " + std::to_string(h->pool->pids[w]) + ") failed in " +
          what + ".  Its traceback:\n" + rest + "\n";
    }
  }
  if (!mended.empty()) fprintf(stderr, "jaxenvs: %s", mended.c_str());
  if (lost) failed += "The pool \"" + std::string(h->name) + "\" cannot continue.  Close it and make another.";
  if (failed.empty()) return ffi::Error::Success();
  return ffi::Error(ffi::ErrorCode::kInternal, "WorkerError: " + failed);
}

ffi::Error closed() {
  return wrong("ClosedError: a program stepped a pool that is closed.  Make another pool and reset"
               " it.");
}

// When Ctrl-C was last pressed. Python itself notices only when its main thread runs Python again,
// which it does not while it waits for a program.
std::atomic<int64_t> interrupted_at{0};
std::atomic<bool> spares_one{false};  // whether to leave the next Ctrl-C to a Python handler
struct sigaction before_ours;

void on_interrupt(int number, siginfo_t *info, void *context) {
  if (!spares_one.exchange(false)) interrupted_at = jx_now();
  if (before_ours.sa_flags & SA_SIGINFO) before_ours.sa_sigaction(number, info, context);
  else before_ours.sa_handler(number);
}

// Calls `wait` until it succeeds, an environment hangs, the pool is closed or Ctrl-C is pressed; in
// the last three cases it sets `unfinished`. With `restarts`, a worker that hangs is killed, the
// supervisor replaces it, and the wait continues.
template <typename Wait>
ffi::Error wait_for(jx_hosted *h, bool *unfinished, Wait wait) {
  constexpr int64_t kSlice = 100000000;  // ns between checks for Ctrl-C and close
  std::vector<std::array<uint32_t, 4>> progress;
  int64_t begin = jx_now();
  // Consecutive waits count as one, so that a Ctrl-C between two of them is not missed.
  int64_t entered = begin - h->waited_until < kSlice ? h->waited_until : begin;
  for (;;) {
    int64_t now = jx_now();
    int64_t left = h->patience_ns < 0 ? kSlice : begin + h->patience_ns - now;
    int status = wait(now + std::min(std::max<int64_t>(left, 0), kSlice));
    h->waited_until = jx_now();
    *unfinished = status == JX_TIMEOUT || status == JX_INTERRUPTED;
    if (interrupted_at > entered)
      return ffi::Error(ffi::ErrorCode::kCancelled,
                        "KeyboardInterrupt: the program that stepped \"" + std::string(h->name) +
                            "\" was interrupted.  Reset the environments or close the pool.");
    if (!*unfinished) return status & JX_ATTENTION ? failure(h) : ffi::Error::Success();
    if (jx_load(&h->closing)) return closed();
    if (h->patience_ns < 0 || h->waited_until < begin + h->patience_ns) continue;
    begin = h->waited_until;
    std::string names;
    for (int32_t w : hanging(h->pool, &progress)) {
      jx_store(&h->pool->lines[w].hung, jx_load(&h->pool->lines[w].asked));
      uint32_t current = jx_load(&h->pool->lines[w].current);
      names += (names.empty() ? "" : ", ") +
               (current ? "environment " + std::to_string(current - 1)
                        : "worker " + std::to_string(w));
      int32_t pid = h->pool->pids[w];
      if (h->restarts && pid > 0) kill(pid, SIGKILL);
    }
    if (names.empty() || h->restarts) continue;
    return ffi::Error(ffi::ErrorCode::kDeadlineExceeded,
                      "EnvTimeoutError: " + names + " (\"" + h->name +
                          "\") did not answer in time.  Close the pool, or make it with"
                          " on_failure=\"restart\".");
  }
}

// --- the calls ---

enum Operation { kReset = 0, kStep = 1, kSend = 2, kRecv = 3, kResetSome = 4 };

ffi::Error refuse_token(jx_hosted *h, int32_t counter) {
  return wrong("StaleStateError: this state of \"" + std::string(h->name) +
               "\" was stepped already: it is from call " + std::to_string(counter) +
               " of the pool, which is at call " + std::to_string(h->counter) +
               ".  Hosted environments cannot go back.  Step the state that the last call"
               " returned, or reset.");
}

// Invalidates the state, once the call can no longer be refused.
void count_call(jx_hosted *h) { h->counter = (h->counter + 1) & 0x7FFFFFFF; }

int64_t num_results(jx_hosted *h, int32_t wants_final) {
  return 7 + (h->has_final ? 2 : 1) * (int64_t)h->num_fields +
         (wants_final ? 2 : 1) * (int64_t)h->num_observations;
}

// Results: the token, observations, reward, terminated, truncated, elapsed, restarted, ids,
// fields, final observations if the program wants them, and final fields if the pool has them.
// Final values are those of the episode that ended in a row, and the latest values elsewhere.
ffi::Error answer(jx_hosted *h, int buffer, const Rows &rows, ffi::RemainingRets &rets,
                  int32_t wants_final) {
  int64_t at = 1;
  auto next = [&]() { return **rets.get<ffi::AnyBuffer>(at++); };
  bool fine = true;
  for (int i = 0; i < h->num_observations; i++)
    fine = fine && copy_out(h->observations[i], buffer, rows, next());
  for (auto *column : {&h->reward, &h->terminated, &h->truncated, &h->elapsed, &h->restarted})
    fine = fine && copy_out(*column, buffer, rows, next());
  auto ids = next();
  fine = fine && (int64_t)ids.element_count() == rows.count;
  if (fine)
    for (int64_t i = 0; i < rows.count; i++)
      static_cast<int32_t *>(ids.untyped_data())[i] = (int32_t)rows[i];
  for (int i = 0; i < h->num_fields; i++)
    fine = fine && copy_out(h->fields[i], buffer, rows, next());
  const uint8_t *over[] = {h->terminated.data[buffer], h->truncated.data[buffer]};
  auto put_final = [&](const jx_column &latest, const jx_column *from) {
    auto target = next();
    fine = fine && copy_out(latest, buffer, rows, target);
    if (!fine || !h->has_final) return;
    int64_t row = from->elements * (int64_t)ffi::ByteWidth(target.element_type());
    for (int64_t r = 0; r < rows.count; r++)
      if (over[0][rows[r]] || over[1][rows[r]])
        convert(from->type, from->data[buffer] + rows[r] * from->elements * from->size,
                letter(target.element_type()),
                static_cast<uint8_t *>(target.untyped_data()) + r * row, from->elements,
                from->size);
  };
  for (int i = 0; wants_final && i < h->num_observations; i++)
    put_final(h->observations[i], &h->finals[i]);
  for (int i = 0; h->has_final && i < h->num_fields; i++)
    put_final(h->fields[i], &h->final_fields[i]);
  for (int64_t i = 0; i < rows.count; i++) h->restarted.data[0][rows[i]] = 0;
  if (!fine) return wrong("results of the program do not fit the pool " + std::string(h->name));
  return ffi::Error::Success();
}

// Returns the first row with values out of bounds or NaN; -1 if there is none.
template <typename Value>
int64_t first_outside(const jx_column &column, const void *data, int64_t count) {
  auto *values = static_cast<const Value *>(data);
  for (int64_t i = 0; i < count; i++)
    for (int64_t e = 0; e < column.elements; e++) {
      Value value = values[i * column.elements + e];
      bool inside = std::is_floating_point<Value>::value
                        ? value == value
                        : (int64_t)value >= column.low[e] && (int64_t)value <= column.high[e];
      if (!inside) return i;
    }
  return -1;
}

ffi::Error check_values(jx_hosted *h, const jx_column &column, const ffi::AnyBuffer &from,
                        const Rows &rows) {
  if (!column.low || (int64_t)from.element_count() != rows.count * column.elements)
    return ffi::Error::Success();
  const void *data = from.untyped_data();
  int64_t row = -1;
  with_type(letter(from.element_type()), [&](auto value) {
    row = first_outside<decltype(value)>(column, data, rows.count);
  });
  if (row < 0) return ffi::Error::Success();
  return wrong("ActionError: the action of environment " + std::to_string(rows[row]) + " of \"" +
               h->name + "\" is outside the action space or NaN.  Pass validate=False to turn this"
               " check off.");
}

ffi::Error read_actions(jx_hosted *h, ffi::RemainingArgs &args, int64_t first, const Rows &rows) {
  for (int i = 0; i < h->num_actions; i++) {
    auto from = args.get<ffi::AnyBuffer>(first + i);
    if (!from.has_value()) return wrong("actions are missing");
    auto error = check_values(h, h->actions[i], *from, rows);
    if (error.failure()) return error;
    if (!copy_in(*from, h->actions[i], 0, rows))
      return wrong("actions of the program do not fit the pool " + std::string(h->name));
  }
  return ffi::Error::Success();
}

ffi::Error refuse_busy(jx_hosted *h, int32_t id) {
  return wrong("AlreadyPendingError: environment " + std::to_string(id) + " of \"" + h->name +
               "\" was sent an action, but its last result is still pending, or it was given twice."
               "  Call recv first.");
}

ffi::Error check_ids(jx_hosted *h, const Rows &rows) {
  for (int64_t i = 0; i < rows.count; i++) {
    int32_t id = (int32_t)rows[i];
    if (id < 0 || id >= h->num_envs)
      return wrong("EnvIdError: env_ids of \"" + std::string(h->name) + "\" got " +
                   std::to_string(id) + "; environments are numbered from 0 to " +
                   std::to_string(h->num_envs - 1) + ".");
    if (h->busy[id] || h->all_pending) return refuse_busy(h, id);
  }
  return ffi::Error::Success();
}

int64_t num_pending(jx_hosted *h) {
  int64_t pending = 0;
  for (int32_t i = 0; i < h->num_envs; i++) pending += h->busy[i];
  return pending;
}

// Requests `op` of some instances, answered in a buffer.
void ask(jx_hosted *h, int op, int buffer, const std::vector<int32_t> &ids) {
  std::vector<int32_t> owners;
  for (int32_t id : ids) owners.push_back(h->owners[id]);
  jx_ask_some(h->pool, op, (uint32_t)buffer, ids.data(), owners.data(), (uint32_t)ids.size());
}

ffi::Error ask_some(jx_hosted *h, int op, const Rows &rows) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < rows.count; i++) {
    int32_t id = (int32_t)rows[i];
    if (h->busy[id]) {  // the same one twice
      for (int32_t each : ids) h->busy[each] = 0;
      return refuse_busy(h, id);
    }
    h->busy[id] = 1;
    ids.push_back(id);
  }
  count_call(h);
  ask(h, op, h->buffer_of_some, ids);
  return ffi::Error::Success();
}

ffi::Error take_some(jx_hosted *h, int64_t count, ffi::RemainingRets &rets, int32_t wants_final) {
  if (num_pending(h) < count)
    return wrong("NothingPendingError: recv waits for " + std::to_string(count) +
                 " environments of \"" + h->name + "\", but only " +
                 std::to_string(num_pending(h)) + " have a pending result.  Call send first.");
  count_call(h);
  std::vector<int32_t> ids(count);
  bool unfinished = false;
  auto error = wait_for(h, &unfinished, [&](int64_t deadline) {
    return jx_take(h->pool, (uint32_t)count, ids.data(), deadline);
  });
  if (!unfinished)
    for (int32_t id : ids) h->busy[id] = 0;
  if (error.failure()) return error;
  return answer(h, h->buffer_of_some, Rows{ids.data(), count}, rets, wants_final);
}

// Waits for everything that is pending. If it did not finish, it stays pending for the next call.
ffi::Error wait_all(jx_hosted *h) {
  bool unfinished = false;
  auto error = wait_for(h, &unfinished, [&](int64_t deadline) {
    return jx_wait_all(h->pool, h->buffer, deadline);
  });
  h->all_pending = unfinished;
  if (!unfinished) memset(h->busy, 0, h->num_envs);
  return error;
}

// Arguments: the token int32[1, 2]; then, by operation:
//   reset       seeds
//   step        actions
//   send        ids, actions
//   recv        nothing
//   reset some  a mask, seeds; answers only where the mask is true
ffi::Error perform(jx_hosted *h, int32_t counter, ffi::RemainingArgs &args,
                   ffi::RemainingRets &rets, int32_t operation, int32_t count,
                   int32_t wants_final) {
  if (operation != kReset && counter != h->counter) return refuse_token(h, counter);
  if (operation != kSend && (int64_t)rets.size() != num_results(h, wants_final))
    return wrong("the state belongs to \"" + std::string(h->name) +
                 "\", but the program was compiled for a pool of another kind");
  Rows all = {nullptr, h->num_envs};
  ffi::Error error = ffi::Error::Success();
  switch (operation) {
    case kReset:
    case kStep:
      if (h->all_pending || num_pending(h)) {
        if (operation == kStep)
          return wrong("AlreadyPendingError: \"" + std::string(h->name) +
                       "\" was stepped while results are still pending.  Call recv first.");
        // The reset drops those results.
        error = wait_all(h);
        if (error.failure()) return error;
      }
      if (operation == kReset) {
        if (!copy_in(*args.get<ffi::AnyBuffer>(1), h->seeds, 0, all))
          return wrong("seeds do not fit the pool " + std::string(h->name));
      } else {
        error = read_actions(h, args, 1, all);
        if (error.failure()) return error;
      }
      count_call(h);
      h->buffer ^= 1;  // the other buffer holds the last observation of episodes that are cut
      jx_ask_all(h->pool, JX_REQUEST(operation == kReset ? JX_RESET_ALL : JX_STEP_ALL, h->buffer, 0),
                 1);
      error = wait_all(h);
      if (error.failure()) return error;
      error = answer(h, h->buffer, all, rets, wants_final);
      break;
    case kSend: {
      auto ids = *args.get<ffi::AnyBuffer>(1);
      Rows rows = {static_cast<const int32_t *>(ids.untyped_data()), (int64_t)ids.element_count()};
      bool everybody = count == h->num_envs && rows.count == h->num_envs;
      for (int64_t i = 0; everybody && i < rows.count; i++) everybody = rows[i] == i;
      error = check_ids(h, rows);
      if (error.failure()) return error;
      error = read_actions(h, args, 2, rows);
      if (error.failure()) return error;
      if (everybody) {
        count_call(h);
        h->buffer ^= 1;
        jx_ask_all(h->pool, JX_REQUEST(JX_STEP_ALL, h->buffer, 0), 0);
        h->all_pending = 1;
      } else {
        error = ask_some(h, JX_STEP, rows);
      }
      break;
    }
    case kRecv:
      if (h->all_pending) {
        count_call(h);
        error = wait_all(h);
        if (error.failure()) return error;
        error = answer(h, h->buffer, all, rets, wants_final);
      } else {
        error = take_some(h, count, rets, wants_final);
      }
      break;
    default: {
      auto mask = *args.get<ffi::AnyBuffer>(1);
      auto *chosen = static_cast<const bool *>(mask.untyped_data());
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < h->num_envs && i < (int64_t)mask.element_count(); i++)
        if (chosen[i]) ids.push_back(i);
      Rows rows = {ids.data(), (int64_t)ids.size()};
      error = check_ids(h, rows);
      if (error.failure()) return error;
      if (!copy_in(*args.get<ffi::AnyBuffer>(2), h->seeds, 0, all))
        return wrong("seeds do not fit the pool " + std::string(h->name));
      count_call(h);
      ask(h, JX_RESET, h->buffer, ids);
      error = wait_all(h);
      if (error.failure()) return error;
      // Rows that were not reset get their previous values; the program keeps its own.
      error = answer(h, h->buffer, all, rets, wants_final);
    }
  }
  return error;
}

// Returns the latest rows, flagged, in place of those that a failed call did not bring.
ffi::Error answer_flagged(jx_hosted *h, ffi::RemainingRets &rets, int32_t wants_final) {
  auto error = answer(h, h->buffer, Rows{nullptr, h->num_envs}, rets, wants_final);
  if (error.failure()) return error;
  int64_t at = 1 + h->num_observations;
  for (int value : {0, 0, 1, -1, 1}) {  // reward, terminated, truncated, elapsed, restarted
    auto column = **rets.get<ffi::AnyBuffer>(at++);
    if (value >= 0) memset(column.untyped_data(), value, column.size_bytes());
  }
  return error;
}

// Performs a call of one of several devices, see Group.
template <typename Perform>
ffi::Error perform_in_group(Entry &entry, ffi::RemainingRets &rets, int32_t wants_final,
                            Perform perform) {
  Group &group = *entry.group;
  {
    std::lock_guard<std::mutex> lock(group.mutex);
    if (++group.calls[entry.place] >= group.last) {
      auto error = group.error;
      if (++group.failed == group.calls.size()) group.last = INT64_MAX, group.failed = 0;
      return error;
    }
  }
  auto error = perform();
  if (error.success()) return error;
  {
    std::lock_guard<std::mutex> lock(group.mutex);
    if (group.last == INT64_MAX) {
      group.last = 1 + *std::max_element(group.calls.begin(), group.calls.end());
      group.error = error;
    }
  }
  return answer_flagged(entry.hosted, rets, wants_final);
}

ffi::Error call(ffi::RemainingArgs args, ffi::RemainingRets rets, int32_t operation,
                int32_t count, int32_t wants_final) {
  auto token_in = args.get<ffi::AnyBuffer>(0);
  auto token_out = rets.get<ffi::AnyBuffer>(0);
  if (!token_in.has_value() || !token_out.has_value()) return wrong("a call without a token");
  const int32_t *token = static_cast<const int32_t *>(token_in->untyped_data());
  int32_t id = token[0], counter = token[1];
  auto entry = find(id);
  std::unique_lock<std::mutex> lock;
  if (entry) lock = std::unique_lock<std::mutex>(entry->mutex);
  if (!entry || !entry->hosted || jx_load(&entry->hosted->closing)) return closed();
  jx_hosted *h = entry->hosted;
  auto run = [&]() { return perform(h, counter, args, rets, operation, count, wants_final); };
  auto error = entry->group ? perform_in_group(*entry, rets, wants_final, run) : run();
  if (error.failure()) return error;
  int32_t *out = static_cast<int32_t *>((*token_out)->untyped_data());
  out[0] = id;
  out[1] = h->counter;
  return error;
}

}  // namespace

#pragma GCC visibility push(default)
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxenvs_pool_call_handler, call,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int32_t>("operation")
                                  .Attr<int32_t>("count")
                                  .Attr<int32_t>("wants_final"));
#pragma GCC visibility pop

JX_EXPORT void jaxenvs_register(int32_t id, jx_hosted *hosted) {
  std::lock_guard<std::mutex> lock(table_mutex);
  table()[id] = std::make_shared<Entry>(hosted);
}

// Makes pools one group, see Group.
JX_EXPORT void jaxenvs_join(const int32_t *ids, int32_t count) {
  auto group = std::make_shared<Group>();
  group->calls.resize(count);
  for (int32_t i = 0; i < count; i++) {
    auto entry = find(ids[i]);
    if (!entry) continue;
    std::lock_guard<std::mutex> lock(entry->mutex);
    entry->group = group;
    entry->place = i;
  }
}

// Waits for the current call; later calls fail with ClosedError.
JX_EXPORT void jaxenvs_unregister(int32_t id) {
  auto entry = find(id);
  if (!entry) return;
  {
    std::lock_guard<std::mutex> lock(entry->mutex);
    entry->hosted = nullptr;
  }
  std::lock_guard<std::mutex> lock(table_mutex);
  table().erase(id);
}

// No program steps the pool between these two calls.
JX_EXPORT void jaxenvs_hold(int32_t id) {
  if (auto entry = find(id)) entry->mutex.lock();
}

JX_EXPORT void jaxenvs_release(int32_t id) {
  if (auto entry = find(id)) entry->mutex.unlock();
}

// Makes calls notice Ctrl-C; with `spares`, only the second one. It may be called again after
// Python has installed its handler over this one, but it only chains to the handler of the first
// time, so that handlers never call each other in a loop.
JX_EXPORT void jaxenvs_watch_interrupts(int32_t spares) {
  static std::atomic<bool> has_watched{false};
  struct sigaction now, ours = {};
  if (sigaction(SIGINT, nullptr, &now)) return;
  if (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
  spares_one = spares != 0;
  bool takes_info = now.sa_flags & SA_SIGINFO;
  if (takes_info && now.sa_sigaction == on_interrupt) return;
  if (!has_watched.exchange(true)) {
    before_ours = now;
  } else {
    if (takes_info != bool(before_ours.sa_flags & SA_SIGINFO)) return;
    if (takes_info ? now.sa_sigaction != before_ours.sa_sigaction
                   : now.sa_handler != before_ours.sa_handler)
      return;
  }
  ours.sa_sigaction = on_interrupt;
  ours.sa_flags = now.sa_flags | SA_SIGINFO;
  ours.sa_mask = now.sa_mask;
  sigaction(SIGINT, &ours, nullptr);
}
