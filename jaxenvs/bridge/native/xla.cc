// Custom calls through which a compiled program steps a pool, without Python and its lock.
//
// The token in a program's state contains the id of its pool, so an executable contains nothing of
// a pool: one compiled program can step different pools, and a closed pool is an error. The token
// also contains a call counter, so that a state that was stepped already can be refused.
//
// Only what happens at every step is here. Whatever else a call needs is done by Python
// (jit/hosted.py), with the same ledger: resets, failures, hangs, Ctrl-C, misuse.
// jit/structs.py has the same structs; Python fills in a jx_hosted and registers it.

#include "columns.h"
#include "atari/batch.h"
#include "interrupts.h"
#include "physics.h"
#include "pool.h"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#define JX_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {

// The state of a pool; pool/ledger.py documents it.
struct jx_ledger {
  uint8_t *busy;  // [num_envs]
  int32_t num_envs, num_pending, op, buffer, calls;
};

struct jx_hosted {
  jx_pool *pool;
  jx_ledger *ledger;
  const int32_t *owners;  // [num_envs], the worker of each instance
  int64_t wait_ns;        // how long to wait before Python waits instead
  jx_column *actions, *results;
  // Some programs want no final observations: the results from `first_final` on.
  int32_t num_actions, num_results, first_final, num_finals;
  const uint8_t *terminated[2], *truncated[2];
  uint8_t *restarted;
  int64_t *calls, *last;  // of the group of several devices; null with a single one
  uint32_t closing;       // whether calls must stop waiting
  int64_t waited_until;   // when a call last stopped waiting
};

// An operand or a result.
struct jx_array {
  void *data;
  int64_t elements;
  int32_t type, size;  // as in jx_column; the type is 0 if NumPy has none
};

// A call that Python performs.
struct jx_call {
  int32_t id, calls, operation, count, wants_final;
  int32_t has_begun;  // whether the environments were asked, so that only waiting is left
  int64_t since;      // Ctrl-C after this ends the call
  jx_array *operands, *results;
  int32_t num_operands, num_results;
  char *error;
  int64_t error_room;
};

enum { kFailed, kPerformed, kInterrupted };  // what it returns
typedef int32_t (*jx_perform)(jx_call *call);
}

namespace {

struct Entry {
  Entry(jx_hosted *hosted, jx_perform perform) : hosted(hosted), perform(perform) {}
  jx_hosted *hosted;  // null once the pool is closed
  jx_perform perform;
  std::mutex mutex;  // held during a call
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

ffi::Error wrong(const std::string &what) { return ffi::Error::InvalidArgument(what); }

// --- the calls ---

enum Operation { kReset = 0, kStep = 1, kSend = 2, kRecv = 3, kResetSome = 4 };

int64_t num_results(jx_hosted *h, int32_t wants_final) {
  return 1 + h->num_results - (wants_final ? 0 : h->num_finals);
}

// Writes the results of a call, in the order of `results` in jit/structs.py.
bool answer(jx_hosted *h, int buffer, const Rows &rows, ffi::RemainingRets &rets,
            int32_t wants_final) {
  std::vector<int32_t> ended;
  for (int64_t i = 0; i < rows.count; i++)
    if (h->terminated[buffer][rows[i]] || h->truncated[buffer][rows[i]]) ended.push_back((int32_t)i);
  int64_t at = 1;
  for (int32_t i = 0; i < h->num_results; i++) {
    if (!wants_final && i >= h->first_final && i < h->first_final + h->num_finals) continue;
    const jx_column &from = h->results[i];
    auto to = **rets.get<ffi::AnyBuffer>(at++);
    if (!copy_rows(to, from, from.data[buffer], rows, false)) return false;
    if (!from.final[buffer]) continue;
    int64_t row = from.elements * (int64_t)ffi::ByteWidth(to.element_type());
    for (int32_t r : ended)
      convert(from.type, from.final[buffer] + rows[r] * from.elements * from.size,
              letter(to.element_type()), static_cast<uint8_t *>(to.untyped_data()) + r * row,
              from.elements, from.size);
  }
  for (int64_t i = 0; i < rows.count; i++) h->restarted[rows[i]] = 0;
  return true;
}

// Copies actions to where workers read them; false if Python has to refuse them.
bool read_actions(jx_hosted *h, ffi::RemainingArgs &args, int64_t first, const Rows &rows) {
  if ((int64_t)args.size() != first + h->num_actions) return false;
  for (int i = 0; i < h->num_actions; i++) {
    auto from = *args.get<ffi::AnyBuffer>(first + i);
    const jx_column &to = h->actions[i];
    if ((int64_t)from.element_count() != rows.count * to.elements) return false;
    bool inside = true;
    if (to.low && !with_type(letter(from.element_type()), [&](auto value) {
          inside = all_inside<decltype(value)>(to, from.untyped_data(), rows.count);
        }))
      return false;
    if (!inside || !copy_rows(from, to, to.data[0], rows, true)) return false;
  }
  return true;
}

// Marks the environments of `rows` as busy; false if one is unknown or busy, or is there twice.
bool mark(jx_ledger *ledger, const Rows &rows) {
  if (ledger->op) return false;
  for (int64_t i = 0; i < rows.count; i++) {
    int64_t id = rows[i];
    if (id >= 0 && id < ledger->num_envs && !ledger->busy[id]) {
      ledger->busy[id] = 1;
      continue;
    }
    while (i--) ledger->busy[rows[i]] = 0;
    return false;
  }
  ledger->num_pending += (int32_t)rows.count;
  return true;
}

void unmark(jx_ledger *ledger, const Rows &rows) {
  for (int64_t i = 0; i < rows.count; i++) ledger->busy[rows[i]] = 0;
  ledger->num_pending -= (int32_t)rows.count;
}

void count_call(jx_ledger *ledger) { ledger->calls = (ledger->calls + 1) & 0x7FFFFFFF; }

void step_all(jx_hosted *h, int waits) {
  jx_ledger *ledger = h->ledger;
  ledger->buffer ^= 1;
  ledger->op = JX_STEP_ALL;
  ledger->num_pending = ledger->num_envs;
  count_call(ledger);
  jx_ask_all(h->pool, JX_REQUEST(JX_STEP_ALL, ledger->buffer, 0), waits);
}

enum Outcome { kNotBegun, kBegun, kDone, kMisfit };

// Begins a step; kDone if there is nothing to wait for.
Outcome begin(jx_hosted *h, ffi::RemainingArgs &args, int32_t operation, int32_t count) {
  jx_ledger *ledger = h->ledger;
  if (operation == kStep) {
    if (ledger->num_pending || !read_actions(h, args, 1, Rows{nullptr, ledger->num_envs}))
      return kNotBegun;
    step_all(h, 1);
    return kBegun;
  }
  if (operation == kRecv) {
    if (!ledger->op && ledger->num_pending < count) return kNotBegun;
    count_call(ledger);
    return kBegun;
  }
  if (operation != kSend) return kNotBegun;
  auto ids = *args.get<ffi::AnyBuffer>(1);
  Rows rows = {static_cast<const int32_t *>(ids.untyped_data()), (int64_t)ids.element_count()};
  bool everybody = count == ledger->num_envs && rows.count == ledger->num_envs;
  for (int64_t i = 0; everybody && i < rows.count; i++) everybody = rows[i] == i;
  if (!mark(ledger, rows)) return kNotBegun;
  bool is_read = read_actions(h, args, 2, rows);
  if (everybody || !is_read) unmark(ledger, rows);
  if (!is_read) return kNotBegun;
  if (everybody) {
    step_all(h, 0);
    return kDone;
  }
  std::vector<int32_t> owners(rows.count);
  for (int64_t i = 0; i < rows.count; i++) owners[i] = h->owners[rows[i]];
  count_call(ledger);
  jx_ask_some(h->pool, JX_STEP, (uint32_t)ledger->buffer ^ 1, rows.ids, owners.data(),
              (uint32_t)rows.count);
  return kDone;
}

// Waits for what was begun and writes the results; kBegun if Python has to continue the wait.
Outcome finish(jx_hosted *h, ffi::RemainingRets &rets, int32_t count, int32_t wants_final,
               int64_t since) {
  jx_ledger *ledger = h->ledger;
  int64_t deadline = jx_now() + h->wait_ns;
  int status = ledger->op ? jx_wait_all(h->pool, (uint32_t)ledger->buffer, deadline)
                          : jx_wait_some(h->pool, (uint32_t)count, deadline);
  h->waited_until = jx_now();
  if (status & (JX_TIMEOUT | JX_INTERRUPTED | JX_ATTENTION) || jaxenvs_interrupted_at > since)
    return kBegun;
  bool fits;
  if (ledger->op) {
    ledger->op = ledger->num_pending = 0;
    fits = answer(h, ledger->buffer, Rows{nullptr, ledger->num_envs}, rets, wants_final);
  } else {
    std::vector<int32_t> ids(count);
    jx_take(h->pool, (uint32_t)count, ids.data());
    Rows rows = {ids.data(), count};
    unmark(ledger, rows);
    fits = answer(h, ledger->buffer ^ 1, rows, rets, wants_final);
  }
  return fits ? kDone : kMisfit;
}

jx_array array_of(const ffi::AnyBuffer &from) {
  return {from.untyped_data(), (int64_t)from.element_count(), letter(from.element_type()),
          (int32_t)ffi::ByteWidth(from.element_type())};
}

// Lets Python perform the call, or what is left of it.
ffi::Error perform(jx_perform function, jx_call call, ffi::RemainingArgs &args,
                   ffi::RemainingRets &rets) {
  std::vector<jx_array> operands, results;  // without the tokens
  for (size_t i = 1; i < args.size(); i++) operands.push_back(array_of(*args.get<ffi::AnyBuffer>(i)));
  for (size_t i = 1; i < rets.size(); i++) results.push_back(array_of(**rets.get<ffi::AnyBuffer>(i)));
  std::vector<char> error(1 << 16);
  call.operands = operands.data(), call.num_operands = (int32_t)operands.size();
  call.results = results.data(), call.num_results = (int32_t)results.size();
  call.error = error.data(), call.error_room = (int64_t)error.size();
  int32_t found = function(&call);
  if (found == kPerformed) return ffi::Error::Success();
  if (found == kInterrupted) raise(SIGINT);  // once more, for Python code outside of the program
  return ffi::Error(ffi::ErrorCode::kInternal, error.data());
}

ffi::Error call(ffi::RemainingArgs args, ffi::RemainingRets rets, int32_t operation,
                int32_t count, int32_t wants_final) {
  constexpr int64_t kTogether = 2000000000;  // ns, as in bridge/jit/interrupts.py
  auto token_in = args.get<ffi::AnyBuffer>(0);
  auto token_out = rets.get<ffi::AnyBuffer>(0);
  if (!token_in.has_value() || !token_out.has_value()) return wrong("a call without a token");
  const int32_t *token = static_cast<const int32_t *>(token_in->untyped_data());
  int32_t id = token[0], calls = token[1];
  auto entry = find(id);
  std::unique_lock<std::mutex> lock;
  if (entry) lock = std::unique_lock<std::mutex>(entry->mutex);
  if (!entry || !entry->hosted || jx_load(&entry->hosted->closing))
    return wrong("ClosedError: a program stepped a pool that is closed.  Make another pool and"
                 " reset it.");
  jx_hosted *h = entry->hosted;
  int64_t now = jx_now();
  // Consecutive waits count as one, so that a Ctrl-C between two of them is not missed.
  bool is_next = operation != kReset && now - h->waited_until < kTogether;
  int64_t since = is_next ? h->waited_until : now;
  bool fails = h->calls && __atomic_add_fetch(h->calls, 1, __ATOMIC_SEQ_CST) >=
                               __atomic_load_n(h->last, __ATOMIC_SEQ_CST);
  Outcome outcome = kNotBegun;
  if (!fails && calls == h->ledger->calls &&
      (operation == kSend || (int64_t)rets.size() == num_results(h, wants_final)))
    outcome = begin(h, args, operation, count);
  if (outcome == kBegun) outcome = finish(h, rets, count, wants_final, since);
  if (outcome == kMisfit) return wrong("results of the program do not fit its pool");
  if (outcome != kDone) {
    jx_call rest = {id, calls, operation, count, wants_final, outcome == kBegun, since};
    auto error = perform(entry->perform, rest, args, rets);
    h->waited_until = jx_now();
    if (error.failure()) return error;
  }
  int32_t *out = static_cast<int32_t *>((*token_out)->untyped_data());
  out[0] = id;
  out[1] = h->ledger->calls;
  return ffi::Error::Success();
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxenvs_atari_handler, atari::call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("id")
                                  .Attr<int32_t>("how")
                                  .Attr<int32_t>("pooled")
                                  .Attr<int32_t>("rows")
                                  .Attr<int32_t>("columns")
                                  .Attr<int32_t>("one_life")
                                  .Attr<int32_t>("threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxenvs_physics_handler, physics::call,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("id")
                                  .Attr<int32_t>("steps")
                                  .Attr<int32_t>("mode")
                                  .Attr<int32_t>("threads")
                                  .Attr<ffi::Span<const int64_t>>("places")
                                  .Attr<ffi::Span<const int32_t>>("fields")
                                  .Attr<std::string_view>("expanded")
                                  .Attr<bool>("has_heights")
                                  .Attr<std::string_view>("constants"));
#pragma GCC visibility pop

JX_EXPORT void jaxenvs_atari_register(int64_t id, const at_title *title) {
  atari::add(id, *title);
}

JX_EXPORT int32_t jaxenvs_atari_size() { return sizeof(at_game); }

JX_EXPORT int32_t jaxenvs_atari_begin(int64_t id, const uint8_t *memory, uint8_t *game, int32_t how,
                                      int32_t rows, int32_t columns, uint8_t *pixels) {
  return atari::begin(id, memory, game, how, rows, columns, pixels);
}

JX_EXPORT void jaxenvs_physics_register(int64_t id, const jx_physics *model) {
  physics::add(id, *model);
}

JX_EXPORT void jaxenvs_register(int32_t id, jx_hosted *hosted, jx_perform perform) {
  std::lock_guard<std::mutex> lock(table_mutex);
  table()[id] = std::make_shared<Entry>(hosted, perform);
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
