/* A game: a console with a cartridge, a player, and what its memory says about the score. */
#ifndef JAXENVS_ATARI_GAME_H
#define JAXENVS_ATARI_GAME_H

#include "frame.h"
#include "pixels.h"
#include "rules.h"

/* The registers of the rules, in the order of envs/atari/rules.py. */
enum { AT_FLAG, AT_COUNT, AT_SCORE, AT_OVER, AT_LIVES, AT_OLD_FLAG, AT_OLD_COUNT, AT_OLD_SCORE,
       AT_OLD_LIVES, AT_REWARD = AT_OLD_FLAG, AT_MODE };

/* A console, and what it played next. */
typedef struct {
  at_console console;
  at_inputs in;
} at_past;

/* Everything that a game remembers. */
typedef struct {
  at_console console;
  int32_t registers[AT_RULE_REGISTERS];
  int32_t paddle;  /* the resistance of the player's, in ohms */
  int32_t action;  /* the last one */
  at_past past[2]; /* before each of the last two frames, which a short frame can show */
} at_game;

/* What is the same in all games of a title. */
typedef struct {
  at_cartridge cart;
  const int32_t* rules[7]; /* flag, count, score, over, lives, reward, select; NULL if none */
  int32_t paddle;          /* which one is the player's, or -1 */
  int32_t is_second;       /* whether the player has the second joystick */
  int32_t switches;        /* SWCHB, with the switches of difficulty */
  int32_t mode, wait, hold; /* SELECT is held for some frames until `select` is the mode */
  int32_t resets;          /* frames for which ALE then holds RESET */
  int32_t num_starts, starts[24][2]; /* then actions, and frames; -1 is RESET, and -2 SELECT */
} at_title;

enum { AT_OHMS = 408823, AT_OHMS_A_FRAME = 23000, AT_LEAST_OHMS = 27450,
       AT_MOST_OHMS = 790196 };

/* An action has one of ALE's 18 numbers in its lowest five bits. The others say by how much less
 * it turns a paddle.
 *
 * Which of fire, up, right, left, and down an action holds: bits 0 to 4. */
static const uint8_t at_holds[18] = {0, 1, 2, 4, 8, 16, 6, 10, 20, 24, 3, 5, 9, 17, 7, 11, 21, 25};

static at_inputs at_inputs_of(at_game* game, const at_title* title, int action, int switches) {
  int held = at_holds[(action & 31) % 18], weaker = action >> 5;
  at_inputs in = {0xFF, (uint8_t)switches, {0, 0}, {-1, -1, -1, -1}};
  if (title->paddle >= 0) {
    int32_t turned = (held >> 3 & 1) - (held >> 2 & 1);
    int32_t ohms = game->paddle + turned * (AT_OHMS_A_FRAME - weaker);
    if (ohms < AT_LEAST_OHMS) ohms = AT_LEAST_OHMS;
    if (ohms > AT_MOST_OHMS) ohms = AT_MOST_OHMS;
    game->paddle = ohms;
    in.paddles[0] = in.paddles[1] = AT_OHMS;
    in.paddles[2] = in.paddles[3] = title->paddle ? 0 : -1; /* the other port; high in pong only */
    in.paddles[title->paddle] = ohms;
    if (held & 1) in.joysticks &= (uint8_t)~(0x80 >> title->paddle);
    return in;
  }
  int moved = (held >> 1 & 1) << 4 | (held >> 4 & 1) << 5;
  moved |= (held >> 3 & 1) << 6 | (held >> 2 & 1) << 7;
  in.joysticks = (uint8_t)~(title->is_second ? moved >> 4 : moved);
  in.fire[title->is_second] = held & 1;
  return in;
}

static inline int32_t at_clamp(int32_t value, int32_t least, int32_t most) {
  return value < least ? least : value > most ? most : value;
}

/* Makes any bytes a console that can run. */
static void at_repair_console(at_console* m) {
  const int32_t long_ago = -(1 << 28);
  m->cycle = at_clamp(m->cycle, 0, 1 << 22);
  m->drawn = at_clamp(m->drawn, 0, 3 * m->cycle + AT_CLOCKS);
  m->timer_set = at_clamp(m->timer_set, 2 * long_ago, m->cycle);
  m->timer_reset = at_clamp(m->timer_reset, 2 * long_ago, m->cycle);
  m->dumped = at_clamp(m->dumped, long_ago, m->cycle);
  m->hmove = at_clamp(m->hmove, long_ago, m->cycle);
  if (m->sync_end != INT32_MAX) m->sync_end = at_clamp(m->sync_end, 0, 1 << 23);
  m->shift = m->shift < 10 ? m->shift : 10;
  m->carry &= 1, m->decimal &= 1, m->interrupt &= 1, m->overflow &= 1;
  m->playfield &= 0xFFFFF;
  for (int i = 0; i < AT_OBJECTS; i++) m->position[i] %= AT_WIDTH, m->motion[i] &= 15;
  for (int i = 0; i < 2; i++) m->size[i] &= 0x37, m->restarted[i] &= 1;
  m->control &= 0x37, m->pale &= 1, m->stars = m->stars < 5 ? m->stars : 0;
}

/* Makes any bytes a game that can be played. */
static void at_repair(at_game* game) {
  at_repair_console(&game->console);
  game->paddle = at_clamp(game->paddle, AT_LEAST_OHMS, AT_MOST_OHMS);
}

static int32_t at_rule(at_game* game, const at_title* title, int stage, int32_t otherwise) {
  const int32_t* rule = title->rules[stage];
  return rule ? at_evaluate(rule, (const uint8_t*)game, game->registers) : otherwise;
}

/* Plays a frame of the console, see at_frame. */
static int at_next(at_game* game, const at_title* title, const at_inputs* in, uint8_t* picture) {
  at_past now = {game->console, *in};
  int whole = at_frame(&game->console, &title->cart, in, picture);
  if (at_is_over(&game->console)) game->past[0] = game->past[1], game->past[1] = now;
  return whole;
}

/* Draws the last two frames that are over. */
static void at_recall(const at_game* game, const at_title* title, uint8_t* older, uint8_t* newer) {
  for (int i = 0; i < 2; i++) {
    at_past past = game->past[i];
    at_repair_console(&past.console);
    at_frame(&past.console, &title->cart, &past.in, i ? newer : older);
  }
}

/* Plays a frame and returns its reward. Draws it if there is a picture, see at_frame. */
static int32_t at_play(at_game* game, const at_title* title, int action, uint8_t* picture,
                       int* whole) {
  int32_t* r = game->registers;
  at_inputs in = at_inputs_of(game, title, action, title->switches);
  game->action = action;
  *whole = at_next(game, title, &in, picture);
  r[AT_OLD_FLAG] = r[AT_FLAG], r[AT_OLD_COUNT] = r[AT_COUNT];
  r[AT_OLD_SCORE] = r[AT_SCORE], r[AT_OLD_LIVES] = r[AT_LIVES];
  for (int stage = AT_FLAG; stage <= AT_LIVES; stage++) r[stage] = at_rule(game, title, stage, 0);
  int32_t gain = (int32_t)((uint32_t)r[AT_SCORE] - (uint32_t)r[AT_OLD_SCORE]);
  return at_rule(game, title, AT_REWARD, gain);
}

enum { AT_RESET = 1, AT_PICK = 2 }; /* switches of the console; PICK is SELECT */

static void at_hold(at_game* game, const at_title* title, int pressed, int frames,
                    uint8_t* picture) {
  at_inputs in = at_inputs_of(game, title, 0, title->switches & ~pressed);
  for (int i = 0; i < frames; i++) at_next(game, title, &in, picture);
}

/* Starts a game as ALE does: a second in which it finds out the television's standard; power again,
 * which keeps the memory; a second, the switch RESET, SELECT until the game has the mode, RESET,
 * then actions that some games need to begin. `boot` has the memory at power-on, and the timer. */
static void at_begin(at_game* game, const at_title* title, const uint8_t boot[129],
                     uint8_t* picture) {
  int whole;
  memset(game, 0, sizeof *game);
  game->paddle = AT_OHMS;
  at_title unknown = *title;
  unknown.cart.is_european = 0;
  at_power_on(&game->console, &title->cart, boot);
  at_hold(game, &unknown, 0, 60, picture);
  uint8_t ram[128];
  memcpy(ram, game->console.ram, sizeof ram);
  at_power_on(&game->console, &title->cart, ram);
  game->console.timer = boot[128];
  at_hold(game, title, 0, 60, picture);
  at_hold(game, title, AT_RESET, 4, picture);
  at_hold(game, title, 0, title->wait, picture);
  for (int i = 0; i < 256 && at_rule(game, title, AT_MODE, title->mode) != title->mode; i++) {
    at_hold(game, title, AT_PICK, title->hold, picture);
    at_hold(game, title, 0, 1, picture);
  }
  at_hold(game, title, AT_RESET, title->resets, picture);
  for (int i = 0; i < title->num_starts; i++) {
    int action = title->starts[i][0], frames = title->starts[i][1];
    if (action < 0) at_hold(game, title, -action, frames, picture);
    for (int frame = 0; frame < frames && action >= 0; frame++)
      at_play(game, title, action, picture, &whole);
  }
  memset(game->registers, 0, sizeof game->registers);
  for (int stage = AT_SCORE; stage <= AT_LIVES; stage++)
    game->registers[stage] = at_rule(game, title, stage, 0);
}

#endif
