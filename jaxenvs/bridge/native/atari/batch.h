// A custom call that plays a step of many games, on the threads of XLA's pool.
#ifndef JAXENVS_ATARI_BATCH_H
#define JAXENVS_ATARI_BATCH_H

#include "game.h"

#include "xla/ffi/api/ffi.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace atari {

namespace ffi = xla::ffi;

// What a step shows of its last two frames. The same numbers are in envs/atari/machine.py.
enum Show : int32_t { NOTHING, SCREEN, RGB, GRAY, RESIZED };

struct Title {
  at_title game;
  px_colors colors;
};

struct Resizes {  // by (height, rows, columns); never freed
  std::mutex mutex;
  std::unordered_map<int64_t, px_resize *> all;

  const px_resize *get(int height, int rows, int columns) {
    std::lock_guard<std::mutex> lock(mutex);
    auto &found = all[(int64_t)height << 40 | (int64_t)rows << 20 | columns];
    if (!found) found = px_resize_new(height, rows, columns);
    return found;
  }
};

std::mutex titles_mutex;

std::unordered_map<int64_t, Title> &titles() {
  static auto *all = new std::unordered_map<int64_t, Title>;
  return *all;
}

Resizes &resizes() {
  static auto *all = new Resizes;
  return *all;
}

const Title *find_title(int64_t id) {
  std::lock_guard<std::mutex> lock(titles_mutex);
  auto found = titles().find(id);
  return found == titles().end() ? nullptr : &found->second;
}

// Writes what a step shows of its last two frames.
void show(const Title &title, int32_t how, int rows, int columns, const uint8_t *screen,
          const uint8_t *before, uint8_t *pixels) {
  const int height = title.game.cart.height, count = height * AT_WIDTH;
  switch (how) {
    case SCREEN: std::memcpy(pixels, screen, count); break;
    case RGB: px_to_rgb(&title.colors, screen, count, pixels); break;
    case GRAY: px_pool(title.colors.gray, screen, before, height, pixels); break;
    case RESIZED: {
      const px_resize *resize = resizes().get(height, rows, columns);
      px_observe(resize, title.colors.gray, screen, before, pixels);
    }
    default: break;
  }
}

void add(int64_t id, const at_title &game) {
  std::lock_guard<std::mutex> lock(titles_mutex);
  Title &title = titles()[id];
  title.game = game;
  px_colors_init(&title.colors, game.cart.height);
}

// Starts a game, see at_begin, and returns its lives. Writes what it shows to `pixels`.
int32_t begin(int64_t id, const uint8_t *memory, uint8_t *result, int32_t how, int32_t rows,
              int32_t columns, uint8_t *pixels) {
  const Title *title = find_title(id);
  at_game game;
  uint8_t screen[AT_MAX_HEIGHT * AT_WIDTH] = {};
  at_begin(&game, &title->game, memory, screen);
  std::memcpy(result, &game, sizeof game);
  show(*title, how, rows, columns, screen, screen, pixels);
  return game.registers[AT_LIVES];
}

// Calls `work(i)` for all i below `count` on up to `threads` threads, of which this is one. It does
// not depend on the others: tasks that start late find nothing to do.
template <typename Work>
void for_each(ffi::ThreadPool &pool, int64_t count, int threads, const Work &work) {
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
  };
  const int64_t block = std::max<int64_t>(1, count / (8 * threads));
  auto shared = std::make_shared<Shared>();
  auto take = [count, block](Shared &shared, const Work &work) {
    for (int64_t start; (start = shared.next.fetch_add(block)) < count;) {
      int64_t end = std::min(count, start + block);
      for (int64_t i = start; i < end; i++) work(i);
      shared.done.fetch_add(end - start, std::memory_order_release);
    }
  };
  for (int i = 1; i < threads && i * block < count; i++)
    pool.Schedule([shared, take, &work, count] {
      // `work` is gone if all is done; then there is nothing left to take.
      if (shared->next.load() < count) take(*shared, work);
    });
  take(*shared, work);
  while (shared->done.load(std::memory_order_acquire) < count) std::this_thread::yield();
}

// Bytes of the picture that a step shows.
int64_t size_of(int32_t how, const at_cartridge &cart, int rows, int columns) {
  switch (how) {
    case SCREEN:
    case GRAY: return (int64_t)cart.height * AT_WIDTH;
    case RGB: return 3 * (int64_t)cart.height * AT_WIDTH;
    case RESIZED: return (int64_t)rows * columns;
    default: return 0;
  }
}

// Plays frames of each game until an action is negative, or the game is over, or a life is lost if
// it has but one.
//
// Operands: uint8[N, S] games, int32[N, F] actions, and uint8[N, K P], the last K pictures.
// Results: uint8[N, S]; int32[N, 4], reward, lives, whether the game is over, and the frames that
// were played; uint8[N, K P].
ffi::Error call(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t id,
                int32_t how, int32_t pooled, int32_t rows, int32_t columns, int32_t one_life,
                int32_t threads) {
  const Title *title = find_title(id);
  if (!title) return ffi::Error::InvalidArgument("this program plays a game that was not loaded");
  auto games = *args.get<ffi::AnyBuffer>(0), actions = *args.get<ffi::AnyBuffer>(1);
  auto seen = *args.get<ffi::AnyBuffer>(2);
  auto next = *rets.get<ffi::AnyBuffer>(0), numbers = *rets.get<ffi::AnyBuffer>(1);
  auto shown = *rets.get<ffi::AnyBuffer>(2);
  const int64_t size = next->dimensions().back(), frames = actions.dimensions().back();
  const int64_t count = (int64_t)next->element_count() / size;
  const int64_t whole = shown->dimensions().back();
  const at_cartridge &cart = title->game.cart;
  const int64_t picture = size_of(how, cart, rows, columns);
  if (size != (int64_t)sizeof(at_game) || (picture && whole % picture))
    return ffi::Error::InvalidArgument("the state of another version of the machine");
  // An operand that all instances share has one row.
  auto row = [](const ffi::AnyBuffer &buffer, int64_t i) {
    int64_t width = buffer.dimensions().back(), have = (int64_t)buffer.element_count() / width;
    return (have == 1 ? 0 : i) * width;
  };

  auto play = [&](int64_t i) {
    uint8_t screens[2][AT_MAX_HEIGHT * AT_WIDTH];
    at_game game;
    auto own = (const uint8_t *)games.untyped_data() + row(games, i);
    auto result = (uint8_t *)next->untyped_data() + i * size;
    auto found = (int32_t *)numbers->untyped_data() + i * 4;
    auto pixels = (uint8_t *)shown->untyped_data() + i * whole;
    std::memcpy(&game, own, size);
    at_repair(&game);
    auto moves = (const int32_t *)actions.untyped_data() + row(actions, i);
    int64_t last = 0;
    while (last < frames && moves[last] >= 0) last++;
    uint32_t reward = 0;  // which may overflow
    uint8_t *current = nullptr, *before = nullptr;  // the last two that were drawn
    int32_t turn = 0, lives = game.registers[AT_LIVES];
    bool draws_all = false;
    for (int64_t frame = 0; frame < last; frame++) {
      bool draws = how != NOTHING && (draws_all || frame >= last - 1 - pooled);
      uint8_t *screen = draws ? screens[turn] : nullptr;
      int is_whole = 1;
      reward += (uint32_t)at_play(&game, &title->game, moves[frame], screen, &is_whole);
      turn ^= at_is_over(&game.console);
      if (draws) before = current ? current : screen, current = screen;
      bool ends = game.registers[AT_OVER] || (one_life && game.registers[AT_LIVES] < lives);
      bool is_short = draws && !is_whole && !draws_all;
      if (!is_short && (!ends || frame + 1 == last)) continue;
      // Once more, to draw what are the last frames now, or all of them and the two before: pixels
      // that a frame does not reach are those of two frames ago.
      if (ends) last = frame + 1;
      std::memcpy(&game, own, size);
      at_repair(&game);
      if (is_short) {
        draws_all = true, std::memset(screens, 0, sizeof screens);
        at_recall(&game, &title->game, screens[0], screens[1]);
      }
      reward = 0, turn = 0, frame = -1, current = nullptr;
    }
    std::memcpy(result, &game, size);
    found[0] = (int32_t)reward, found[1] = game.registers[AT_LIVES];
    found[2] = game.registers[AT_OVER] != 0, found[3] = (int32_t)last;
    if (!picture) return;
    if (!current) current = before = (uint8_t *)std::memset(screens[0], 0, sizeof screens[0]);
    auto past = (const uint8_t *)seen.untyped_data() + row(seen, i);
    std::memmove(pixels, past + picture, whole - picture);
    show(*title, how, rows, columns, current, before, pixels + whole - picture);
  };
  for_each(pool, count, std::max<int64_t>(1, std::min<int64_t>(threads, count)), play);
  return ffi::Error::Success();
}

}  // namespace atari

#endif
