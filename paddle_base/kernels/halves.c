/* Conversions between float32 and its halves: float16 and bfloat16, both as uint16. Every rounding is to the nearest,
 * and of a tie to the even one. The loops have no branch and no denormal float32, so that they are vectors. */
#include "kernels.h"

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FAST static void widen_float16_steps(uint32_t *restrict out, const uint16_t *restrict values, Py_ssize_t n) {
    enum { REBASED = 112 << 23, LEAST = 113 << 23 }; /* the difference of the exponents; 2^-14, the least normal float16 */
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t sign = (uint32_t)(values[i] & 0x8000) << 16, bits = (uint32_t)(values[i] & 0x7FFF) << 13;
        uint32_t normal = bits + REBASED;
        uint32_t denormal = bits_of(float_of(bits + LEAST) - float_of(LEAST));
        uint32_t special = bits + 2 * REBASED; /* infinity or NaN */
        out[i] = sign | (bits < 1u << 23 ? denormal : bits < 31u << 23 ? normal : special);
    }
}

FAST static void round_to_float16_steps(uint16_t *restrict out, const uint32_t *restrict values, Py_ssize_t n) {
    enum { REBASED = 112 << 23, LEAST = 113 << 23, HALF = 126 << 23 }; /* of 0.5 the last bit is that of a denormal float16 */
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t bits = values[i] & 0x7FFFFFFF, sign = values[i] >> 16 & 0x8000;
        uint32_t normal = (bits + 0xFFF + (bits >> 13 & 1) - REBASED) >> 13;
        uint32_t denormal = bits_of(float_of(bits < LEAST ? bits : 0) + float_of(HALF)) - HALF;
        uint32_t payload = bits >> 13 & 0x3FF;
        uint32_t nan = 0x7C00 | (payload ? payload : 1); /* as numpy */
        uint32_t large = bits > 0x7F800000 ? nan : 0x7C00;
        out[i] = (uint16_t)(sign | (bits < LEAST ? denormal : bits < 143u << 23 ? normal : large));
    }
}

#ifdef GENERATIONS
#include <immintrin.h>

/* These convert the first numbers by the processor's own instructions, and return their count. A NaN keeps its bits, as
 * in numpy. */
__attribute__((target("avx2,f16c"))) static Py_ssize_t widen_by_f16c(uint32_t *out, const uint16_t *values, Py_ssize_t n) {
    Py_ssize_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i eight = _mm_loadu_si128((const __m128i *)(values + i));
        __m128i is_nan = _mm_cmpgt_epi16(_mm_and_si128(eight, _mm_set1_epi16(0x7FFF)), _mm_set1_epi16(0x7C00));
        if (_mm_movemask_epi8(is_nan))
            widen_float16_steps(out + i, values + i, 8);
        else
            _mm256_storeu_ps((float *)(out + i), _mm256_cvtph_ps(eight));
    }
    return i;
}

__attribute__((target("avx2,f16c"))) static Py_ssize_t round_by_f16c(uint16_t *out, const uint32_t *values, Py_ssize_t n) {
    Py_ssize_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 eight = _mm256_loadu_ps((const float *)(values + i));
        if (_mm256_movemask_ps(_mm256_cmp_ps(eight, eight, _CMP_UNORD_Q)))
            round_to_float16_steps(out + i, values + i, 8);
        else
            _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(eight, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

static int has_f16c(void) {
    return __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx2");
}

static void widen_float16_loop(uint32_t *restrict out, const uint16_t *restrict values, Py_ssize_t n) {
    Py_ssize_t done = has_f16c() ? widen_by_f16c(out, values, n) : 0;
    widen_float16_steps(out + done, values + done, n - done);
}

static void round_to_float16_loop(uint16_t *restrict out, const uint32_t *restrict values, Py_ssize_t n) {
    Py_ssize_t done = has_f16c() ? round_by_f16c(out, values, n) : 0;
    round_to_float16_steps(out + done, values + done, n - done);
}
#else
#define widen_float16_loop widen_float16_steps
#define round_to_float16_loop round_to_float16_steps
#endif

FAST static void widen_bfloat16_loop(uint32_t *restrict out, const uint16_t *restrict values, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) out[i] = (uint32_t)values[i] << 16;
}

FAST static void round_to_bfloat16_loop(uint16_t *restrict out, const uint32_t *restrict values, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t bits = values[i], upper = bits >> 16;
        uint32_t rounded = (bits + 0x7FFF + (upper & 1)) >> 16;
        /* rounding could carry a NaN to an infinity, or over the sign */
        out[i] = (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? (upper & 0x8000) | 0x7FC0 : rounded);
    }
}

/* name(out, values): convert all values; both have the same length */
#define CONVERSION(name, out_type, outs, value_type, read_values) \
    static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count) { \
        NEED(2); \
        Py_ssize_t n, more; \
        out_type *out = outs(&arrays, args[0], &n); \
        const value_type *values = out ? read_values(&arrays, args[1], &more) : NULL; \
        if (!values || more != n) return fail(&arrays, "the arrays have different lengths"); \
        Py_BEGIN_ALLOW_THREADS \
        name##_loop(out, values, n); \
        Py_END_ALLOW_THREADS \
        DONE; \
    }

CONVERSION(widen_float16, uint32_t, naturals, uint16_t, read_halves)
CONVERSION(round_to_float16, uint16_t, halves, uint32_t, read_naturals)
CONVERSION(widen_bfloat16, uint32_t, naturals, uint16_t, read_halves)
CONVERSION(round_to_bfloat16, uint16_t, halves, uint32_t, read_naturals)

enum { BLOCK = 1024 }; /* numbers whose sum stays in the nearest cache */

FAST static void add_block(float *restrict sum, const float *restrict values, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) sum[i] += values[i];
}

FAST static void divide_block(float *restrict sum, float divisor, Py_ssize_t n) {
    int exponent;
    if (frexpf(divisor, &exponent) == 0.5f) { /* a power of two: the product has the same bits, and costs less */
        float factor = 1.0f / divisor;
        for (Py_ssize_t i = 0; i < n; i++) sum[i] *= factor;
    } else {
        for (Py_ssize_t i = 0; i < n; i++) sum[i] /= divisor;
    }
}

typedef void (*Widen)(uint32_t *restrict, const uint16_t *restrict, Py_ssize_t);
typedef void (*Round)(uint16_t *restrict, const uint32_t *restrict, Py_ssize_t);

static void add_halves(uint16_t *out, const uint16_t **sources, int sizes, float divisor, Py_ssize_t n, Widen widen, Round round) {
    float sum[BLOCK], values[BLOCK];
    for (Py_ssize_t begin = 0; begin < n; begin += BLOCK) {
        Py_ssize_t length = n - begin < BLOCK ? n - begin : BLOCK;
        widen((uint32_t *)sum, sources[0] + begin, length);
        for (int number = 1; number < sizes; number++) {
            widen((uint32_t *)values, sources[number] + begin, length);
            add_block(sum, values, length);
        }
        if (divisor != 1.0f) divide_block(sum, divisor, length);
        round(out + begin, (const uint32_t *)sum, length);
    }
}

/* name(out, divisor, source, ...): the sum of the sources in their order, in float32, divided and rounded once; `out`
 * may be a source */
#define ADDITION(name, widen, round) \
    static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count) { \
        if (count < 3 || count > MOST + 1) { \
            PyErr_Format(PyExc_TypeError, "3 to %d arguments are wanted, not %zd", MOST + 1, count); \
            return NULL; \
        } \
        Arrays arrays = {.count = 0}; \
        Py_ssize_t n, more; \
        float divisor; \
        const uint16_t *sources[MOST]; \
        if (numbers(args + 1, 1, &divisor) < 0) return NULL; \
        uint16_t *out = halves(&arrays, args[0], &n); \
        if (!out) return fail(&arrays, "the result is no array of halves"); \
        for (int number = 0; number < count - 2; number++) { \
            sources[number] = read_halves(&arrays, args[number + 2], &more); \
            if (!sources[number] || more != n) return fail(&arrays, "the arrays have different lengths"); \
        } \
        Py_BEGIN_ALLOW_THREADS \
        add_halves(out, sources, (int)count - 2, divisor, n, widen, round); \
        Py_END_ALLOW_THREADS \
        DONE; \
    }

ADDITION(add_float16, widen_float16_loop, round_to_float16_loop)
ADDITION(add_bfloat16, widen_bfloat16_loop, round_to_bfloat16_loop)

PyMethodDef halves_functions[] = {FUNCTION(add_float16), FUNCTION(add_bfloat16), FUNCTION(widen_float16), FUNCTION(round_to_float16), FUNCTION(widen_bfloat16),
                                  FUNCTION(round_to_bfloat16), {NULL, NULL, 0, NULL}};
