/* Layers of an encoder like BERT in products of bytes, for processors with AVX-512 VNNI.

Activations are rounded to bytes with a scale for every BLOCK of every row, taken from the row
itself, weights with one for every BLOCK of every output. So the result of a row does not depend, to
the bit, on the other rows of a batch or on the number of threads. All else is fp32.

The weights of a product lie in panels of PANEL outputs, [N / PANEL][K / 4][PANEL][4], and are 128
too large: vpdpbusd multiplies four unsigned bytes with four signed ones and adds the products to a
sum of 32 bits, which therefore begins at -128 times the sum of the activations.

bertine.fast.kernel calls it; tools/build_hook.py compiles it. */

#define _GNU_SOURCE
#include <immintrin.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK 256 /* values with a common scale */
#define PANEL 64  /* outputs of a panel: four registers */
#define ROWS 6    /* rows of a tile: with a panel, 24 sums in registers */
#define CHUNK 96  /* rows that go through a layer together: their activations fit the L2 cache */
#define INLINE static inline __attribute__((always_inline))
#define UP(n, to) (((n) + (to)-1) / (to) * (to))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef struct {
    const uint8_t *weight;
    const float *scale;  /* [blocks][N], N filled up to a multiple of PANEL */
    const float *bias;   /* [N] */
    const float *factor; /* [K], of the inputs before they are rounded; NULL: 1 */
    int64_t outputs;
} Product;

typedef struct {
    Product qkv, out, up, down;
    const float *norm[2][2]; /* after the attention and after the feed-forward: weight, bias */
} Layer;

typedef struct {
    const Layer *const *layers;
    int64_t count, size, inner, heads, act; /* act: 0 GELU, 1 its tanh form, 2 ReLU */
    float eps;
} Encoder;

/* Rows of activations, rounded. */
typedef struct {
    int8_t *byte;   /* [rows][width] */
    float *scale;   /* [rows][blocks] */
    int32_t *start; /* [rows][blocks]: -128 times the sum of the bytes */
    int64_t width, blocks;
} Bytes;

/* The activations of a chunk of rows within a layer. */
typedef struct {
    float *qkv, *mixed, *added; /* [rows][3 H], [rows][H], [rows][H] */
    Bytes input, inner;
} Space;

/* ---- Functions of 16 numbers ---- */

INLINE __m512 exp16(__m512 x) { /* for x <= 0 */
    x = _mm512_max_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.442695041f)), _mm512_set1_ps(-126.0f));
    __m512 whole = _mm512_roundscale_ps(x, 8);
    __m512 part = _mm512_sub_ps(x, whole);
    __m512 y = _mm512_set1_ps(1.3333558e-3f);
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(9.6181291e-3f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(5.5504109e-2f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(2.4022651e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(6.9314718e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, whole);
}

INLINE __m512 activated(__m512 x, int act) {
    if (act == 2) return _mm512_max_ps(x, _mm512_setzero_ps());
    __m512 square = _mm512_mul_ps(x, x);
    if (act == 1) { /* x / (1 + exp(-2 u)), u = 0.79788 (x + 0.044715 x^3) */
        __m512 u = _mm512_fmadd_ps(
            square, _mm512_set1_ps(0.0713548163f), _mm512_set1_ps(1.5957691216f));
        u = _mm512_mul_ps(x, u);
        __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(u)));
        __mmask16 negative = _mm512_cmp_ps_mask(u, _mm512_setzero_ps(), _CMP_LT_OQ);
        __m512 top = _mm512_mask_mul_ps(x, negative, x, e);
        return _mm512_div_ps(top, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
    }
    /* The normal distribution's function is 1/2 + x P(x^2); the result is within 2e-4 of GELU. */
    static const float terms[] = {2.51621906e-08f,  -1.71228328e-06f, 5.00433162e-05f,
                                  -8.32472229e-04f, 8.85245763e-03f,  -6.47260398e-02f,
                                  3.97974193e-01f};
    __m512 t = _mm512_min_ps(square, _mm512_set1_ps(3.9f * 3.9f));
    __m512 clipped =
        _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-3.9f)), _mm512_set1_ps(3.9f));
    __m512 y = _mm512_set1_ps(terms[0]);
#pragma GCC unroll 16
    for (unsigned i = 1; i < sizeof terms / sizeof *terms; i++)
        y = _mm512_fmadd_ps(y, t, _mm512_set1_ps(terms[i]));
    return _mm512_mul_ps(x, _mm512_fmadd_ps(y, clipped, _mm512_set1_ps(0.5f)));
}

/* ---- Rows to bytes, and norms ---- */

/* Round `count` values, at most BLOCK and a multiple of 16, to bytes. */
INLINE void round_block(const float *x, const float *factor, int64_t count, int8_t *to,
                        float *scale, int32_t *start) {
    __m512 most = _mm512_setzero_ps(), values[BLOCK / 16];
    for (int64_t i = 0; i < count; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        values[i / 16] = v = factor ? _mm512_mul_ps(v, _mm512_loadu_ps(factor + i)) : v;
        most = _mm512_max_ps(most, _mm512_abs_ps(v));
    }
    float largest = _mm512_reduce_max_ps(most);
    __m512 steps = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < count; i += 16) {
        __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(values[i / 16], steps));
        sum = _mm512_add_epi32(sum, n);
        _mm_storeu_si128((__m128i *)(to + i), _mm512_cvtepi32_epi8(n));
    }
    *scale = largest / 127.0f;
    *start = -128 * _mm512_reduce_add_epi32(sum);
}

static void round_row(const float *x, const float *factor, const Bytes *to, int64_t row) {
    for (int64_t b = 0; b < to->blocks; b++) {
        int64_t at = b * BLOCK, block = row * to->blocks + b;
        round_block(x + at, factor ? factor + at : NULL, MIN(BLOCK, to->width - at),
                    to->byte + row * to->width + at, to->scale + block, to->start + block);
    }
}

/* Replace x by the layer norm of x + added. */
static void norm_row(float *x, const float *added, int64_t size, const float *const norm[2],
                     float eps) {
    __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < size; i += 16) {
        __m512 v = _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(added + i));
        sum = _mm512_add_ps(sum, v);
        _mm512_storeu_ps(x + i, v);
    }
    __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / size);
    for (int64_t i = 0; i < size; i += 16) {
        __m512 v = _mm512_sub_ps(_mm512_loadu_ps(x + i), mean);
        squares = _mm512_fmadd_ps(v, v, squares);
    }
    __m512 factor = _mm512_set1_ps(1.0f / sqrtf(_mm512_reduce_add_ps(squares) / size + eps));
    for (int64_t i = 0; i < size; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), mean), factor);
        v = _mm512_fmadd_ps(v, _mm512_loadu_ps(norm[0] + i), _mm512_loadu_ps(norm[1] + i));
        _mm512_storeu_ps(x + i, v);
    }
}

/* ---- Products ---- */

/* Sums are variables, since GCC keeps no array in registers. */
#define EACH_ROW(of) of(0) of(1) of(2) of(3) of(4) of(5)
#define SUMS(r) __m512i s##r##0, s##r##1, s##r##2, s##r##3;
#define BEGIN(r) \
    if (r < rows) s##r##0 = s##r##1 = s##r##2 = s##r##3 = \
        _mm512_set1_epi32(x->start[(row + r) * x->blocks + b]);
/* As assembly, since GCC 12 copies every sum of its own function to the stack. */
#define DOT(sum, w, a) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(a))
#define STEP(r) \
    if (r < rows) { \
        memcpy(&four, bytes + r * x->width + k, 4); \
        __m512i a = _mm512_set1_epi32(four); \
        DOT(s##r##0, w0, a); \
        DOT(s##r##1, w1, a); \
        DOT(s##r##2, w2, a); \
        DOT(s##r##3, w3, a); \
    }
#define ADD(r, j) \
    part = _mm512_mul_ps(_mm512_cvtepi32_ps(s##r##j), step); \
    part = _mm512_fmadd_ps(part, scale##j, _mm512_loadu_ps(from + r * from_stride + 16 * j)); \
    _mm512_storeu_ps(into + r * into_stride + 16 * j, part);
#define FINISH(r) \
    if (r < rows) { \
        __m512 step = _mm512_set1_ps(x->scale[(row + r) * x->blocks + b]); \
        ADD(r, 0) ADD(r, 1) ADD(r, 2) ADD(r, 3) \
    }

/* Write the outputs of one panel for a few rows. */
INLINE void tile(const Bytes *x, int64_t row, const int rows, const Product *p, int64_t panel,
                 float *to, int64_t stride) {
    float total[ROWS * PANEL] __attribute__((aligned(64)));
    const uint8_t *w = p->weight + panel * x->width * PANEL;
    const float *scale = p->scale + panel * PANEL;
    const int8_t *bytes = x->byte + row * x->width;
    for (int64_t b = 0; b < x->blocks; b++) {
        int64_t end = MIN((b + 1) * BLOCK, x->width);
        EACH_ROW(SUMS)
        EACH_ROW(BEGIN)
        for (int64_t k = b * BLOCK; k < end; k += 4, w += 4 * PANEL) {
            __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64);
            __m512i w2 = _mm512_loadu_si512(w + 128), w3 = _mm512_loadu_si512(w + 192);
            int32_t four;
            EACH_ROW(STEP)
        }
        __m512 scale0 = _mm512_loadu_ps(scale), scale1 = _mm512_loadu_ps(scale + 16);
        __m512 scale2 = _mm512_loadu_ps(scale + 32), scale3 = _mm512_loadu_ps(scale + 48), part;
        const float *from = b ? total : p->bias + panel * PANEL;
        float *into = b + 1 < x->blocks ? total : to;
        int64_t from_stride = b ? PANEL : 0, into_stride = b + 1 < x->blocks ? PANEL : stride;
        EACH_ROW(FINISH)
        scale += UP(p->outputs, PANEL);
    }
}

/* Write the outputs of one panel, activated unless `act` is -1, for `rows` rows from `first` on. */
static void product(const Bytes *x, int64_t first, int64_t rows, const Product *p, int64_t panel,
                    float *to, int64_t stride, int act) {
    float part[ROWS * PANEL] __attribute__((aligned(64)));
    int64_t vectors = MIN(4, (p->outputs - panel * PANEL) / 16), tiles = (rows + ROWS - 1) / ROWS;
    int direct = vectors == 4 && act < 0;
    for (int64_t t = 0; t < tiles; t++) {
        int64_t row = rows * t / tiles, count = rows * (t + 1) / tiles - row;
        float *there = direct ? to + row * stride : part;
        int64_t apart = direct ? stride : PANEL;
#define CASE(n) \
    case n: tile(x, first + row, n, p, panel, there, apart); break;
        switch (count) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
        for (int64_t r = 0; r < count && !direct; r++)
            for (int64_t j = 0; j < vectors; j++) {
                __m512 y = _mm512_load_ps(part + r * PANEL + 16 * j);
                y = act < 0 ? y : activated(y, act);
                _mm512_storeu_ps(to + (row + r) * stride + 16 * j, y);
            }
    }
}

/* ---- Attention ---- */

#define QUERIES 4 /* rows of a tile */

/* Write the product of left [rows][count] and right [count][16 * vectors]; with `factor` [rows],
   each row times its factor. */
INLINE void product_of(const float *left, int64_t left_stride, const int rows, const float *right,
                       int64_t right_stride, const int vectors, int64_t count, const float *factor,
                       float *to, int64_t stride) {
    __m512 sum[QUERIES][4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) sum[r][j] = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            __m512 v = _mm512_loadu_ps(right + i * right_stride + 16 * j);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m512 number = _mm512_set1_ps(left[r * left_stride + i]);
                sum[r][j] = _mm512_fmadd_ps(v, number, sum[r][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            _mm512_storeu_ps(
                to + r * stride + 16 * j,
                factor ? _mm512_mul_ps(sum[r][j], _mm512_set1_ps(factor[r])) : sum[r][j]);
}

/* Exponentiate rows of scores in place; factor [rows] becomes 1 / their sums. All rows take a step
   together, as one row alone would wait for its own results. */
INLINE void exponentials(float *scores, const int rows, int64_t tokens, int64_t places,
                         float *factor) {
    __m512 most[QUERIES], sum[QUERIES];
    __mmask16 last = 0xffff >> (places - tokens);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float *end = scores + r * places + places - 16;
        most[r] = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), last, end);
        _mm512_storeu_ps(end, most[r]);
        sum[r] = _mm512_setzero_ps();
    }
    for (int64_t t = 0; t < places - 16; t += 16)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            most[r] = _mm512_max_ps(most[r], _mm512_loadu_ps(scores + r * places + t));
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) most[r] = _mm512_set1_ps(_mm512_reduce_max_ps(most[r]));
    for (int64_t t = 0; t < places; t += 16)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m512 score = _mm512_loadu_ps(scores + r * places + t);
            __m512 e = exp16(_mm512_sub_ps(score, most[r]));
            e = _mm512_maskz_mov_ps(t < places - 16 ? 0xffff : last, e);
            sum[r] = _mm512_add_ps(sum[r], e);
            _mm512_storeu_ps(scores + r * places + t, e);
        }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) factor[r] = 1.0f / _mm512_reduce_add_ps(sum[r]);
}

/* Attention of one head: the first `queries` tokens of a text attend to all its tokens. Returns 0
   without memory. */
static int attend(const float *qkv, int64_t size, int64_t depth, int64_t head, int64_t tokens,
                   int64_t queries, float *mixed) {
    int64_t places = UP(tokens, 16), stride = 3 * size;
    float *keys = aligned_alloc(64, (depth + QUERIES) * places * sizeof(float));
    if (!keys) return 0;
    float *scores = keys + depth * places;
    const float *q = qkv + head * depth, *k = q + size, *v = k + size;
    for (int64_t t = 0; t < places; t += 4) { /* keys become [depth][places] */
        const float *row[4];
        for (int i = 0; i < 4; i++) row[i] = k + MIN(t + i, tokens - 1) * stride;
        for (int64_t d = 0; d < depth; d += 4) {
            __m128 a = _mm_loadu_ps(row[0] + d), b = _mm_loadu_ps(row[1] + d);
            __m128 c = _mm_loadu_ps(row[2] + d), e = _mm_loadu_ps(row[3] + d);
            _MM_TRANSPOSE4_PS(a, b, c, e);
            float *to = keys + d * places + t;
            _mm_store_ps(to, a), _mm_store_ps(to + places, b);
            _mm_store_ps(to + 2 * places, c), _mm_store_ps(to + 3 * places, e);
        }
    }
    int64_t step = queries < QUERIES ? 1 : QUERIES;
    for (int64_t first = 0; first < queries; first += step) {
        /* The last ones again where fewer are left: the same numbers. */
        int64_t r = MIN(first, queries - step);
        float factor[QUERIES];
#define WIDTHS(call, n) \
    if (vectors == 4) call(n, 4); else if (vectors == 3) call(n, 3); \
    else if (vectors == 2) call(n, 2); else call(n, 1);
#define SCORES(n, j) \
    product_of(q + r * stride, stride, n, keys + t, places, j, depth, NULL, scores + t, places)
        for (int64_t t = 0; t < places; t += 64) {
            int64_t vectors = MIN(4, (places - t) / 16);
            if (step == 1) { WIDTHS(SCORES, 1) } else { WIDTHS(SCORES, QUERIES) }
        }
        if (step == 1) exponentials(scores, 1, tokens, places, factor);
        else exponentials(scores, QUERIES, tokens, places, factor);
#define MIX(n, j) product_of(scores, places, n, v + d, stride, j, tokens, factor, to + d, size)
        float *to = mixed + r * size + head * depth;
        for (int64_t d = 0; d < depth; d += 64) {
            int64_t vectors = MIN(4, (depth - d) / 16);
            if (step == 1) { WIDTHS(MIX, 1) } else { WIDTHS(MIX, QUERIES) }
        }
    }
    free(keys);
    return 1;
}

/* ---- Threads: each takes the next task of a phase, so a slow one delays only its own ---- */

typedef void (*Task)(void *what, int64_t number);

#define HELPERS 63
#define PAUSES 2000 /* of a thread that waits, before it gives its core away */
static struct {
    pthread_mutex_t use;
    _Atomic uint64_t ticket; /* phase << 40 | tasks << 20 | next task */
    _Atomic uint32_t done;
    _Atomic uint32_t wanted; /* the helpers with a smaller number work, the others sleep */
    _Atomic uint32_t sleeping;
    Task task;
    void *what;
    pthread_t threads[HELPERS];
    int started, core; /* how many threads there are, and the core that they leave to the caller */
} pool = {.use = PTHREAD_MUTEX_INITIALIZER};

/* Do the next task, if there is one. */
static int work_once(void) {
    uint64_t now = atomic_load(&pool.ticket);
    if ((now & 0xfffff) >= (now >> 20 & 0xfffff)) return 0;
    now = atomic_fetch_add(&pool.ticket, 1);
    if ((now & 0xfffff) >= (now >> 20 & 0xfffff)) return 0;
    /* The phase cannot end before this task is done. */
    pool.task(pool.what, now & 0xfffff);
    atomic_fetch_add(&pool.done, 1);
    return 1;
}

static void *helper(void *number) {
    uint32_t mine = (uint32_t)(uintptr_t)number;
    for (int idle = 0;;) {
        uint32_t wanted = atomic_load(&pool.wanted);
        if (wanted > mine && work_once()) { idle = 0; continue; }
        _mm_pause();
        if (++idle < PAUSES) continue;
        idle = 0;
        if (wanted > mine) { sched_yield(); continue; }
        atomic_fetch_add(&pool.sleeping, 1);
        syscall(SYS_futex, &pool.wanted, FUTEX_WAIT_PRIVATE, wanted, NULL, NULL, 0);
        atomic_fetch_sub(&pool.sleeping, 1);
    }
    return NULL;
}

/* A forked process has no helpers yet. */
static void in_child(void) {
    pool.started = pool.core = 0;
    pool.ticket = pool.wanted = pool.sleeping = 0;
    pthread_mutex_init(&pool.use, NULL);
}

/* Begin to work with several threads; return 0 if another caller does. */
static int begin(int64_t threads) {
    if (threads < 2 || pthread_mutex_trylock(&pool.use)) return 0;
    static int registered;
    if (!registered) registered = 1, pthread_atfork(NULL, NULL, in_child);
    int before = pool.started, core = sched_getcpu();
    for (; pool.started < MIN(threads - 1, HELPERS); pool.started++)
        if (pthread_create(pool.threads + pool.started, NULL, helper,
                           (void *)(uintptr_t)pool.started))
            break;
    /* Linux may wake a thread on the core of the one that wakes it, though another is idle, and
       moves it at the next tick of the clock, up to four milliseconds later. */
    cpu_set_t cores;
    if ((core != pool.core || before < pool.started) &&
        !sched_getaffinity(0, sizeof cores, &cores) && CPU_COUNT(&cores) > 1) {
        CPU_CLR(core, &cores);
        for (int i = 0; i < pool.started; i++)
            pthread_setaffinity_np(pool.threads[i], sizeof cores, &cores);
        pool.core = core;
    }
    atomic_store(&pool.wanted, (uint32_t)(threads - 1));
    if (atomic_load(&pool.sleeping))
        syscall(SYS_futex, &pool.wanted, FUTEX_WAKE_PRIVATE, HELPERS, NULL, NULL, 0);
    return 1;
}

static void end(void) {
    atomic_store(&pool.wanted, 0);
    pthread_mutex_unlock(&pool.use);
}

/* Do all tasks of a phase, with the helpers if `together`. */
static void each(Task task, void *what, int64_t tasks, int together) {
    if (!together) {
        for (int64_t i = 0; i < tasks; i++) task(what, i);
        return;
    }
    pool.task = task, pool.what = what;
    atomic_store(&pool.done, 0);
    uint64_t phase = (atomic_load(&pool.ticket) >> 40) + 1;
    atomic_store(&pool.ticket, phase << 40 | (uint64_t)tasks << 20);
    while (work_once());
    for (int spins = 0; atomic_load(&pool.done) < tasks; spins++)
        if (spins < PAUSES) _mm_pause(); else sched_yield();
}

/* ---- A layer ---- */

typedef struct {
    const Encoder *encoder;
    const Layer *layer;
    const Space *space;
    float *x;
    const int64_t *starts; /* of the chunk's texts, and their end, counted from its first row */
    int64_t texts, rows, firsts_only;
    _Atomic int *failed;
} Chunk;

static void qkv_task(void *what, int64_t panel) {
    Chunk *c = what;
    product(&c->space->input, 0, c->rows, &c->layer->qkv, panel, c->space->qkv + panel * PANEL,
            3 * c->encoder->size, -1);
}

static void attend_task(void *what, int64_t head) {
    Chunk *c = what;
    int64_t size = c->encoder->size, depth = size / c->encoder->heads;
    for (int64_t i = 0; i < c->texts; i++) {
        int64_t start = c->starts[i], tokens = c->starts[i + 1] - start;
        int64_t to = c->firsts_only ? i : start;
        if (!attend(c->space->qkv + start * 3 * size, size, depth, head, tokens,
                    c->firsts_only ? 1 : tokens, c->space->mixed + to * size))
            *c->failed = 1;
    }
}

static void out_task(void *what, int64_t panel) {
    Chunk *c = what;
    product(&c->space->input, 0, c->rows, &c->layer->out, panel, c->space->added + panel * PANEL,
            c->encoder->size, -1);
}

static void up_task(void *what, int64_t block) {
    Chunk *c = what;
    const Bytes *inner = &c->space->inner;
    int64_t count = MIN(BLOCK, inner->width - block * BLOCK);
    float tile[CHUNK * BLOCK] __attribute__((aligned(64)));
    for (int64_t first = 0; first < c->rows; first += CHUNK) {
        int64_t rows = MIN(CHUNK, c->rows - first);
        for (int64_t j = 0; j * PANEL < count; j++)
            product(&c->space->input, first, rows, &c->layer->up, block * (BLOCK / PANEL) + j,
                    tile + j * PANEL, BLOCK, (int)c->encoder->act);
        for (int64_t r = 0; r < rows; r++) {
            int64_t row = first + r;
            round_block(tile + r * BLOCK, NULL, count,
                        inner->byte + row * inner->width + block * BLOCK,
                        inner->scale + row * inner->blocks + block,
                        inner->start + row * inner->blocks + block);
        }
    }
}

static void down_task(void *what, int64_t panel) {
    Chunk *c = what;
    product(&c->space->inner, 0, c->rows, &c->layer->down, panel, c->space->added + panel * PANEL,
            c->encoder->size, -1);
}

/* Take the rows of a chunk through its layer; with firsts_only, its first rows become the states of
   first tokens. */
static void layer_of(Chunk *c, int together) {
    int64_t size = c->encoder->size, panels = UP(size, PANEL) / PANEL;
    const Space *s = c->space;
    for (int64_t r = 0; r < c->rows; r++)
        round_row(c->x + r * size, c->layer->qkv.factor, &s->input, r);
    each(qkv_task, c, UP(3 * size, PANEL) / PANEL, together);
    each(attend_task, c, c->encoder->heads, together);
    if (c->firsts_only) {
        for (int64_t i = 0; i < c->texts; i++)
            memmove(c->x + i * size, c->x + c->starts[i] * size, size * sizeof(float));
        c->rows = c->texts;
    }
    for (int64_t r = 0; r < c->rows; r++) round_row(s->mixed + r * size, NULL, &s->input, r);
    each(out_task, c, panels, together);
    for (int64_t r = 0; r < c->rows; r++) {
        norm_row(c->x + r * size, s->added + r * size, size, c->layer->norm[0], c->encoder->eps);
        round_row(c->x + r * size, c->layer->up.factor, &s->input, r);
    }
    each(up_task, c, s->inner.blocks, together);
    each(down_task, c, panels, together);
    for (int64_t r = 0; r < c->rows; r++)
        norm_row(c->x + r * size, s->added + r * size, size, c->layer->norm[1], c->encoder->eps);
}

static Bytes bytes_of(char **from, int64_t rows, int64_t width) {
    Bytes b = {.width = width, .blocks = UP(width, BLOCK) / BLOCK};
    b.byte = (int8_t *)*from, *from += UP(rows * width, 64);
    b.scale = (float *)*from, *from += UP(rows * b.blocks * 4, 64);
    b.start = (int32_t *)*from, *from += UP(rows * b.blocks * 4, 64);
    return b;
}

static Space space_of(const Encoder *e, int64_t rows, void **memory) {
    int64_t need = rows * e->size * 20 + rows * (e->size + e->inner) * 2 + 4096;
    char *at = *memory = aligned_alloc(64, UP(need, 4096));
    Space s = {0};
    if (!at) return s;
    s.qkv = (float *)at, at += UP(rows * e->size * 12, 64);
    s.mixed = (float *)at, at += UP(rows * e->size * 4, 64);
    s.added = (float *)at, at += UP(rows * e->size * 4, 64);
    s.input = bytes_of(&at, rows, e->size);
    s.inner = bytes_of(&at, rows, e->inner);
    return s;
}

/* Texts that one task takes through all layers, or all threads together. */
typedef struct {
    const Encoder *encoder;
    float *x, *first;
    const int64_t *starts;
    int64_t *parts; /* the first text of each task, and their end */
    int64_t first_layer, last_layer;
    int together;
    _Atomic int failed;
} Texts;

static void texts_task(void *what, int64_t number) {
    Texts *t = what;
    const Encoder *e = t->encoder;
    int64_t begin = t->parts[number], stop = t->parts[number + 1];
    int64_t most = MIN(CHUNK, t->starts[stop] - t->starts[begin]);
    for (int64_t i = begin; i < stop; i++) most = MAX(most, t->starts[i + 1] - t->starts[i]);
    void *memory;
    Space space = space_of(e, most, &memory);
    if (!memory) {
        t->failed = 1;
        return;
    }
    int64_t starts[most + 1];
    for (int64_t number = t->first_layer; number < t->last_layer; number++)
        for (int64_t i = begin, to; i < stop; i = to) {
            int64_t row = t->starts[i];
            for (to = i; to < stop && (to == i || t->starts[to + 1] - row <= most); to++)
                starts[to - i] = t->starts[to] - row;
            starts[to - i] = t->starts[to] - row;
            Chunk chunk = {e, e->layers[number], &space, t->x + row * e->size, starts, to - i,
                           starts[to - i], t->first && number == e->count - 1, &t->failed};
            layer_of(&chunk, t->together);
            if (chunk.firsts_only)
                memcpy(t->first + i * e->size, chunk.x, chunk.texts * e->size * sizeof(float));
        }
    free(memory);
}

/* The checksum of this file when it was compiled: an older library must not be called. */
uint32_t source(void) { return SOURCE; }

/* Take the rows x [starts[texts]][H] of texts through layers `from` to `to`, in place; with `first`
   [texts][H], only the states of first tokens come out of the last layer, there. Returns 0, or 1
   without memory. */
int encode(const Encoder *e, float *x, const int64_t *starts, int64_t texts, int64_t from,
           int64_t to, float *first, int64_t threads) {
    /* Threads that share a text meet after each product, which must be worth it: a million products
       of numbers take some two microseconds. */
    if (texts < threads) threads = MIN(threads, 1 + (starts[texts] * e->size * e->size >> 20));
    int together = begin(threads);
    int64_t tasks = 1;
    if (together && texts >= threads) {
        tasks = UP(MIN(starts[texts] / (2 * CHUNK), 4 * threads), threads);
        tasks = MIN(texts, MAX(tasks, threads));
    }
    int64_t parts[tasks + 1];
    for (int64_t i = 0, text = 0; i <= tasks; i++) { /* about the same number of rows for each */
        while (text < texts && (starts[text] + starts[text + 1]) * tasks <= 2 * starts[texts] * i)
            text++;
        parts[i] = i < tasks ? text : texts;
    }
    Texts what = {e, x, first, starts, parts, from, to, together && tasks == 1, 0};
    if (tasks == 1) texts_task(&what, 0);
    else each(texts_task, &what, tasks, 1);
    if (together) end();
    return what.failed;
}
