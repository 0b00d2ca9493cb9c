/* The function rand_r of the C library, for several draws at once. Each draw sets x = x * A + C three times. */
#include "kernels.h"

enum { LANES = 16, STEPS = 3 };
static const uint32_t A = 1103515245u, C = 12345u;

typedef struct {
    uint32_t factor, summand; /* after some steps, x becomes x * factor + summand */
} Jump;

static Jump jump_of(int steps) {
    Jump jump = {1, 0};
    while (steps--) jump = (Jump){jump.factor * A, jump.summand * A + C};
    return jump;
}

static inline __attribute__((always_inline)) uint32_t draw_of(uint32_t x) {
    uint32_t x1 = x * A + C, x2 = x1 * A + C, x3 = x2 * A + C;
    return (x1 >> 16 & 2047u) << 20 | (x2 >> 16 & 1023u) << 10 | (x3 >> 16 & 1023u);
}

/* Lane l makes the draws l, l + LANES, ...; `lanes` holds the state before each lane's next draw. */
FAST static void draw_loop(uint32_t *out, Py_ssize_t blocks, uint32_t *lanes, Jump jump) {
    for (Py_ssize_t i = 0; i < blocks; i++, out += LANES)
        for (int l = 0; l < LANES; l++) {
            out[l] = draw_of(lanes[l]);
            lanes[l] = lanes[l] * jump.factor + jump.summand;
        }
}

/* draws(out, state): fill the uint32 array, and return the state after the draws */
static PyObject *draws(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2);
    Py_ssize_t n;
    uint32_t state = (uint32_t)PyLong_AsUnsignedLongMask(args[1]);
    uint32_t *out = PyErr_Occurred() ? NULL : naturals(&arrays, args[0], &n);
    if (!out) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    uint32_t lanes[LANES];
    Jump one = jump_of(STEPS), all = jump_of(STEPS * LANES);
    lanes[0] = state;
    for (int l = 1; l < LANES; l++) lanes[l] = lanes[l - 1] * one.factor + one.summand;
    draw_loop(out, n / LANES, lanes, all);
    state = lanes[0];
    for (Py_ssize_t i = n - n % LANES; i < n; i++) {
        out[i] = draw_of(state);
        state = state * one.factor + one.summand;
    }
    Py_END_ALLOW_THREADS
    release(&arrays);
    return PyLong_FromUnsignedLong(state);
}

FAST static void keep_loop(float *mask, const uint32_t *draws, Py_ssize_t n, float rate) {
    for (Py_ssize_t i = 0; i < n; i++) mask[i] = (float)(int32_t)draws[i] * 0x1p-31f > rate ? 1.0f : 0.0f;
}

/* keep(mask, draws, rate): write 1 to the mask for each draw that, scaled to a number from 0 to 1, exceeds the rate,
 * and 0 for any other draw */
static PyObject *keep(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3);
    Py_ssize_t n, more;
    float rate, *mask = floats(&arrays, args[0], &n);
    const uint32_t *drawn = mask ? naturals(&arrays, args[1], &more) : NULL;
    if (!drawn || more != n || numbers(args + 2, 1, &rate) < 0) return fail(&arrays, "the mask does not fit the draws");
    Py_BEGIN_ALLOW_THREADS
    keep_loop(mask, drawn, n, rate);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef draws_functions[] = {FUNCTION(draws), FUNCTION(keep), {NULL, NULL, 0, NULL}};
