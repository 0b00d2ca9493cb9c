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

FAST static void widen_float16_loop(uint32_t *restrict out, const uint16_t *restrict values, Py_ssize_t n) {
    enum { REBASED = 112 << 23, LEAST = 113 << 23 }; /* the difference of the exponents; 2^-14, the least normal float16 */
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t sign = (uint32_t)(values[i] & 0x8000) << 16, bits = (uint32_t)(values[i] & 0x7FFF) << 13;
        uint32_t normal = bits + REBASED;
        uint32_t denormal = bits_of(float_of(bits + LEAST) - float_of(LEAST));
        uint32_t special = bits + 2 * REBASED; /* infinity or NaN */
        out[i] = sign | (bits < 1u << 23 ? denormal : bits < 31u << 23 ? normal : special);
    }
}

FAST static void round_to_float16_loop(uint16_t *restrict out, const uint32_t *restrict values, Py_ssize_t n) {
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

PyMethodDef halves_functions[] = {FUNCTION(widen_float16), FUNCTION(round_to_float16), FUNCTION(widen_bfloat16),
                                  FUNCTION(round_to_bfloat16), {NULL, NULL, 0, NULL}};
