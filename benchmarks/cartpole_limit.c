/* CartPole-v1 under a random policy, as fast as a core can run it: an upper limit for rollouts.
 *
 * The dynamics are Gymnasium's (Euler, float32, 500 steps). Each variable is one array, updated in
 * place by a loop without branches, which the compiler can vectorize. The same pass restarts
 * finished episodes. It takes shortcuts that an environment cannot take: the generator is one
 * 32-bit word per lane, the policy is one bit of it, and the sine is accurate only for the angles
 * of an unfinished episode.
 */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_STEPS = 500, MAX_THREADS = 64 };

static const float GRAVITY = 9.8f, TOTAL_MASS = 1.1f, POLE_MASS = 0.1f, HALF_LENGTH = 0.5f;
static const float POLE_MASS_LENGTH = 0.05f, FORCE = 10.0f, TAU = 0.02f;
static const float X_LIMIT = 2.4f, THETA_LIMIT = 0.20943951f; /* 12 degrees */

typedef struct {
    float *x, *x_dot, *theta, *theta_dot;
    int32_t *elapsed;
    uint32_t *bits;
} Lanes;

/* Taylor polynomials: the error is below 1e-8 for |a| <= 0.5, and an episode ends at 0.21. */
static inline float sine(float a) {
    float s = a * a;
    return a + a * s * (-1.0f / 6 + s * (1.0f / 120 - s * (1.0f / 5040)));
}

static inline float cosine(float a) {
    float s = a * a;
    return 1.0f - s * (0.5f - s * (1.0f / 24 - s * (1.0f / 720)));
}

static inline void dynamics(float *x, float *x_dot, float *theta, float *theta_dot, float force) {
    float sin_theta = sine(*theta), cos_theta = cosine(*theta);
    float push = (force + POLE_MASS_LENGTH * *theta_dot * *theta_dot * sin_theta) / TOTAL_MASS;
    float theta_acc = (GRAVITY * sin_theta - cos_theta * push) /
                      (HALF_LENGTH * (4.0f / 3.0f - POLE_MASS * cos_theta * cos_theta / TOTAL_MASS));
    float x_acc = push - POLE_MASS_LENGTH * theta_acc * cos_theta / TOTAL_MASS;
    *x += TAU * *x_dot;
    *x_dot += TAU * x_acc;
    *theta += TAU * *theta_dot;
    *theta_dot += TAU * theta_acc;
}

static inline uint32_t xorshift(uint32_t bits) { /* G. Marsaglia, Xorshift RNGs, 2003 */
    bits ^= bits << 13;
    bits ^= bits >> 17;
    return bits ^ (bits << 5);
}

/* Uniform in [-0.05, 0.05). A different odd multiplier gives a different number. */
static inline float start(uint32_t bits, uint32_t multiplier) {
    return (float)(int32_t)(bits * multiplier) * (0.05f / 2147483648.0f);
}

/* Steps lanes begin to end - 1 once. Returns the number of finished episodes. `restrict` must be on
 * parameters: GCC ignores it on local pointers and does not vectorize, which is ten times slower. */
static __attribute__((noinline)) int32_t step_lanes(
    float *restrict x, float *restrict x_dot, float *restrict theta, float *restrict theta_dot,
    int32_t *restrict elapsed, uint32_t *restrict bits, size_t begin, size_t end) {
    int32_t num_done = 0;
    for (size_t i = begin; i < end; i++) {
        uint32_t word = xorshift(bits[i]);
        float a = x[i], b = x_dot[i], c = theta[i], d = theta_dot[i];
        dynamics(&a, &b, &c, &d, word >> 31 ? FORCE : -FORCE);
        int32_t steps = elapsed[i] + 1;
        int32_t done = (a < -X_LIMIT) | (a > X_LIMIT) | (c < -THETA_LIMIT) | (c > THETA_LIMIT) |
                       (steps >= MAX_STEPS);
        x[i] = done ? start(word, 0x9E3779B1u) : a;
        x_dot[i] = done ? start(word, 0x85EBCA6Bu) : b;
        theta[i] = done ? start(word, 0xC2B2AE35u) : c;
        theta_dot[i] = done ? start(word, 0x27D4EB2Fu) : d;
        elapsed[i] = done ? 0 : steps;
        bits[i] = word;
        num_done += done;
    }
    return num_done;
}

typedef struct {
    Lanes lanes;
    size_t begin, end;
    int64_t num_steps, num_done;
} Part;

static void *run_part(void *argument) {
    Part *part = argument;
    Lanes lanes = part->lanes;
    for (int64_t step = 0; step < part->num_steps; step++) {
        part->num_done += step_lanes(lanes.x, lanes.x_dot, lanes.theta, lanes.theta_dot,
                                     lanes.elapsed, lanes.bits, part->begin, part->end);
    }
    return NULL;
}

/* Steps lanes 0 to n - 1 `num_steps` times; each thread takes a contiguous share of the lanes.
 * Returns the number of finished episodes, or -1 if a thread could not be started. */
int64_t cartpole_rollout(float *x, float *x_dot, float *theta, float *theta_dot, int32_t *elapsed,
                         uint32_t *bits, int64_t n, int64_t num_steps, int32_t num_threads) {
    if (num_threads < 1 || num_threads > MAX_THREADS) return -1;
    Part parts[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    for (int32_t t = 0; t < num_threads; t++) {
        parts[t] = (Part){{x, x_dot, theta, theta_dot, elapsed, bits},
                          (size_t)(n * t / num_threads), (size_t)(n * (t + 1) / num_threads),
                          num_steps, 0};
    }
    int32_t started = 1;
    for (; started < num_threads; started++) {
        if (pthread_create(&threads[started], NULL, run_part, &parts[started])) break;
    }
    run_part(&parts[0]);
    int64_t num_done = parts[0].num_done;
    for (int32_t t = 1; t < started; t++) {
        pthread_join(threads[t], NULL);
        num_done += parts[t].num_done;
    }
    return started == num_threads ? num_done : -1;
}

/* Steps the dynamics alone, in place, for a test. */
void cartpole_step(float *state, int32_t action) {
    dynamics(&state[0], &state[1], &state[2], &state[3], action ? FORCE : -FORCE);
}
