/* The event loop of level 1 in plain C: what a careful engineer would write without this project.
 *
 * It reads the same rules and the same random numbers as the lean loop and is held against it, integer for
 * integer. Its event list is a binary heap of packed keys, the textbook choice. A seed's rollouts are drawn
 * once for all configurations, as the sweep does it. No option of any other level, no recorded rows, and no
 * way to stop and resume: that is the advantage it has.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LAG_BINS 65
#define NEVER INT64_MAX

typedef struct {
    int64_t horizon, warmup, slots, slot_bits, queue_cap, reserve, batch_tokens, max_lag, sync_every, sync_ticks;
    int64_t law_minimum, law_maximum;
    double decode_rate, rollout_overhead, train_overhead, train_rate, drift;
} Rules;

typedef struct {
    int64_t events, updates, syncs, trained_tokens, trained_rollouts, generated_tokens, generated_rollouts;
    int64_t discarded_tokens, discarded_rollouts, max_queue, max_lag, final_version;
    int64_t backpressure_ticks, idle_slot_ticks, trainer_wait_ticks;
    double queue_token_ticks, lag_sum, ess_sum, expected_ess_sum, ess_min, effective_tokens;
    int64_t lag_counts[LAG_BINS];
} Report;

typedef struct {
    int64_t tokens, version, number;
} Rollout;

/* --- random numbers: Philox4x64-10, a table of lengths, the normal quantile (AS 241) ------------------ */
static void philox(uint64_t k0, uint64_t counter, uint64_t *w0, uint64_t *w1) {
    uint64_t k1 = 0, c0 = counter, c1 = 0, c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        unsigned __int128 a = (unsigned __int128)0xD2E7470EE14C6C93ULL * c0;
        unsigned __int128 b = (unsigned __int128)0xCA5A826395121157ULL * c2;
        c0 = (uint64_t)(b >> 64) ^ c1 ^ k0;
        c1 = (uint64_t)b;
        c2 = (uint64_t)(a >> 64) ^ c3 ^ k1;
        c3 = (uint64_t)a;
        k0 += 0x9E3779B97F4A7C15ULL;
        k1 += 0xBB67AE8584CAA73BULL;
    }
    *w0 = c0;
    *w1 = c1;
}

static double polynomial(const double *c, double r) {
    double sum = c[0];
    for (int i = 1; i < 8; i++) sum = sum * r + c[i];
    return sum;
}

static double normal_quantile(double p) {
    static const double a[8] = {2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
        4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2,
        3.3871328727963666080};
    static const double b[8] = {5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
        2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0};
    static const double c[8] = {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
        1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590,
        1.42343711074968357734};
    static const double d[8] = {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
        1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0};
    static const double e[8] = {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
        2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990,
        6.65790464350110377720};
    static const double f[8] = {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
        7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1,
        1.0};
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q;
        return q * (polynomial(a, r) / polynomial(b, r));
    }
    double r = sqrt(-log(q < 0.0 ? p : 1.0 - p));
    double far = r <= 5.0 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
                          : polynomial(e, r - 5.0) / polynomial(f, r - 5.0);
    return q < 0.0 ? -far : far;
}

/* Draw rollouts first .. last - 1 of a seed: lengths by the guided table, and a standard normal each. */
void draw(uint64_t seed, int64_t first, int64_t last, int64_t minimum, const double *cdf, const int64_t *guide,
          int64_t guide_cells, int64_t *tokens, double *normals) {
    for (int64_t number = first; number < last; number++) {
        uint64_t w0, w1;
        philox(seed, (uint64_t)number + 1, &w0, &w1);
        double u = (double)(w0 >> 11) * 0x1p-53;
        int64_t cell = (int64_t)(u * (double)guide_cells);
        int64_t low = guide[cell], high = guide[cell + 1];
        while (low < high) {
            int64_t middle = (low + high) >> 1;
            if (cdf[middle] <= u) low = middle + 1;
            else high = middle;
        }
        tokens[number] = minimum + low;
        normals[number] = normal_quantile(((double)(w1 >> 12) + 0.5) * 0x1p-52);
    }
}

/* --- a binary heap of packed keys: time << bits | slot ------------------------------------------------ */
static void heap_push(int64_t *heap, int64_t *size, int64_t key) {
    int64_t place = (*size)++;
    while (place > 0) {
        int64_t parent = (place - 1) >> 1;
        if (heap[parent] <= key) break;
        heap[place] = heap[parent];
        place = parent;
    }
    heap[place] = key;
}

static void heap_pop(int64_t *heap, int64_t *size) {
    int64_t key = heap[--(*size)], place = 0;
    for (;;) {
        int64_t child = 2 * place + 1;
        if (child >= *size) break;
        if (child + 1 < *size && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= key) break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = key;
}

static int64_t ticks_of(double seconds) {
    double scaled = seconds * 1e6 + 0.5;
    return scaled >= 4503599627370496.0 ? (int64_t)1 << 52 : (int64_t)floor(scaled);
}

/* --- one run ------------------------------------------------------------------------------------------ */
typedef struct {
    int64_t *heap, *idle_stack, *training_lags, ring_mask;
    Rollout *slots, *ring;
    double *log_weights;
} Room;

static int one_run(const Rules *rules, const int64_t *tokens_of, const double *normals, int64_t drawn,
                   Room *room, Report *report) {
    const Rules p = *rules;
    const int64_t mask = room->ring_mask, slot_mask = ((int64_t)1 << p.slot_bits) - 1;
    int64_t heap_size = 0, head = 0, tail = 0, idle = p.slots, in_flight = 0, next = 0, now = 0;
    int64_t version = 0, published = 0, queue = 0, publication_time = NEVER, publication_version = 0, waiting = -1;
    int64_t training_time = NEVER, t_tokens = 0, t_rollouts = 0, t_lag_sum = 0, t_lag_max = 0;
    double t_ess = 0, t_expected = 0;
    Report r;
    memset(&r, 0, sizeof r);
    r.ess_min = INFINITY;
    r.max_queue = -1;
    memset(room->training_lags, 0, LAG_BINS * sizeof(int64_t));
    for (int64_t i = 0; i < p.slots; i++) room->idle_stack[i] = p.slots - 1 - i;
    int started = 0;
    for (;;) {
        if (started) {
            int64_t slot_time = heap_size ? room->heap[0] >> p.slot_bits : NEVER;
            int64_t time = publication_time < training_time ? publication_time : training_time;
            if (slot_time < time) time = slot_time;
            if (time > p.horizon) break;
            r.events++;
            int measured = time > p.warmup;
            if (measured) {
                int64_t span = time - (now > p.warmup ? now : p.warmup);
                if (r.max_queue < 0) r.max_queue = queue;
                r.queue_token_ticks += (double)queue * (double)span;
                r.idle_slot_ticks += idle * span;
                if (idle > 0) r.backpressure_ticks += span;
                if (training_time == NEVER) r.trainer_wait_ticks += span;
            }
            now = time;
            if (publication_time == time) {
                published = publication_version;
                if (measured) r.syncs++;
                publication_time = NEVER;
                if (waiting >= 0) {
                    publication_version = waiting;
                    waiting = -1;
                    publication_time = time + p.sync_ticks;
                }
            } else if (training_time == time) {
                version++;
                training_time = NEVER;
                if (measured) {
                    r.updates++;
                    r.trained_tokens += t_tokens;
                    r.trained_rollouts += t_rollouts;
                    if (t_lag_max > r.max_lag) r.max_lag = t_lag_max;
                    r.lag_sum += (double)t_lag_sum / (double)t_rollouts;
                    r.ess_sum += t_ess;
                    if (t_ess < r.ess_min) r.ess_min = t_ess;
                    r.expected_ess_sum += t_expected;
                    r.effective_tokens += (double)t_tokens * t_expected;
                }
                for (int64_t lag = 0; lag <= (t_lag_max < LAG_BINS - 1 ? t_lag_max : LAG_BINS - 1); lag++) {
                    if (measured) r.lag_counts[lag] += room->training_lags[lag];
                    room->training_lags[lag] = 0;
                }
                if (version % p.sync_every == 0) {
                    if (p.sync_ticks == 0) {
                        published = version;
                        if (measured) r.syncs++;
                    } else if (publication_time == NEVER) {
                        publication_version = version;
                        publication_time = time + p.sync_ticks;
                    } else {
                        waiting = version;
                    }
                }
                int64_t kept = head;
                for (int64_t i = head; i < tail; i++) {
                    Rollout *rollout = &room->ring[i & mask];
                    if (rollout->version < version - p.max_lag) {
                        queue -= rollout->tokens;
                        if (measured) {
                            r.discarded_tokens += rollout->tokens;
                            r.discarded_rollouts++;
                        }
                    } else {
                        room->ring[kept++ & mask] = *rollout;
                    }
                }
                tail = kept;
            } else {
                int64_t slot = room->heap[0] & slot_mask;
                heap_pop(room->heap, &heap_size);
                Rollout rollout = room->slots[slot];
                room->idle_stack[idle++] = slot;
                in_flight--;
                if (measured) {
                    r.generated_tokens += rollout.tokens;
                    r.generated_rollouts++;
                }
                if (version - rollout.version > p.max_lag) {
                    if (measured) {
                        r.discarded_tokens += rollout.tokens;
                        r.discarded_rollouts++;
                    }
                } else {
                    if (tail - head > mask) return 1;
                    room->ring[tail++ & mask] = rollout;
                    queue += rollout.tokens;
                    if (measured && queue > r.max_queue) r.max_queue = queue;
                }
            }
        }
        started = 1;
        if (training_time == NEVER && queue >= p.batch_tokens) {
            int64_t count = 0;
            double inflation = 0.0, largest = -INFINITY;
            t_tokens = t_lag_sum = t_lag_max = 0;
            while (t_tokens < p.batch_tokens) {
                Rollout *rollout = &room->ring[head++ & mask];
                int64_t lag = version - rollout->version;
                t_tokens += rollout->tokens;
                t_lag_sum += lag;
                room->training_lags[lag < LAG_BINS - 1 ? lag : LAG_BINS - 1]++;
                if (lag > t_lag_max) t_lag_max = lag;
                double s = p.drift * sqrt((double)lag), log_weight = 0.0;
                if (lag > 0) log_weight = s * normals[rollout->number] - s * s / 2;
                inflation += exp(s * s);
                if (log_weight > largest) largest = log_weight;
                room->log_weights[count++] = log_weight;
            }
            queue -= t_tokens;
            t_rollouts = count;
            t_ess = 1.0;
            if (t_lag_max > 0) {
                double sum = 0.0, squares = 0.0;
                for (int64_t i = 0; i < count; i++) {
                    double weight = exp(room->log_weights[i] - largest);
                    sum += weight;
                    squares += weight * weight;
                }
                t_ess = sum * sum / ((double)count * squares);
            }
            t_expected = 1.0 / (inflation / (double)count);
            training_time = now + ticks_of(p.train_overhead + (double)t_tokens / p.train_rate);
        }
        while (idle > 0) {
            if (p.reserve ? queue + p.law_maximum * (in_flight + 1) > p.queue_cap : queue >= p.queue_cap) break;
            if (next >= drawn) return 2;
            int64_t number = next++, tokens = tokens_of[number], slot = room->idle_stack[--idle];
            room->slots[slot] = (Rollout){tokens, published, number};
            in_flight++;
            int64_t span = ticks_of(p.rollout_overhead + (double)tokens / p.decode_rate);
            int64_t end = now + (span > 1 ? span : 1);
            if (end <= p.horizon) heap_push(room->heap, &heap_size, (end << p.slot_bits) | slot);
        }
    }
    int64_t tail_ticks = p.horizon - (now > p.warmup ? now : p.warmup);
    if (r.max_queue < 0) r.max_queue = queue;
    r.queue_token_ticks += (double)queue * (double)tail_ticks;
    r.idle_slot_ticks += idle * tail_ticks;
    if (idle > 0) r.backpressure_ticks += tail_ticks;
    if (training_time == NEVER) r.trainer_wait_ticks += tail_ticks;
    r.final_version = version;
    *report = r;
    return 0;
}

/* All configurations of one seed after another; 0, or what was too small: 1 the ring, 2 the draws. */
int run_cells(const Rules *rules, int64_t count, const int64_t *tokens_of, const double *normals, int64_t drawn,
              int64_t ring_size, Report *reports) {
    int64_t slots = 0;
    for (int64_t i = 0; i < count; i++)
        if (rules[i].slots > slots) slots = rules[i].slots;
    Room room;
    room.heap = malloc((size_t)slots * sizeof(int64_t));
    room.idle_stack = malloc((size_t)slots * sizeof(int64_t));
    room.training_lags = malloc(LAG_BINS * sizeof(int64_t));
    room.slots = malloc((size_t)slots * sizeof(Rollout));
    room.ring = malloc((size_t)ring_size * sizeof(Rollout));
    room.log_weights = malloc((size_t)ring_size * sizeof(double));
    room.ring_mask = ring_size - 1;
    int status = 0;
    for (int64_t i = 0; i < count && status == 0; i++)
        status = one_run(&rules[i], tokens_of, normals, drawn, &room, &reports[i]);
    free(room.heap);
    free(room.idle_stack);
    free(room.training_lags);
    free(room.slots);
    free(room.ring);
    free(room.log_weights);
    return status;
}
