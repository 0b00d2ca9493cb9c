/* Update rules. Their arguments are in the order of `pserver.optim.method`: the values w, the gradient g, the state,
 * and numbers such as the rate. The last array of the state is the velocity m, NULL if there is none. The operations
 * and their order are those of numpy, so the results are equal bit for bit. */
#include <float.h>

#include "kernels.h"

/* One step of gradient descent; m is the velocity or NULL. */
#define DESCEND(step) \
    if (m) { \
        m[i] = m[i] * mu - (step); \
        w[i] += m[i]; \
    } else { \
        w[i] -= (step); \
    }

FAST static void momentum_loop(float *w, const float *g, float *m, Py_ssize_t n, float rate, float mu, float decay) {
    if (decay != 0)
        for (Py_ssize_t i = 0; i < n; i++) {
            DESCEND((w[i] * decay + g[i]) * rate)
        }
    else
        for (Py_ssize_t i = 0; i < n; i++) {
            DESCEND(g[i] * rate)
        }
}

FAST static void adam_loop(float *w, const float *g, float *m, float *v, Py_ssize_t n, float rate, float beta1, float beta2,
                           float epsilon) {
    float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    for (Py_ssize_t i = 0; i < n; i++) {
        m[i] = m[i] * beta1 + g[i] * rest1;
        v[i] = v[i] * beta2 + (g[i] * g[i]) * rest2;
        w[i] -= m[i] * rate / (sqrtf(v[i]) + epsilon);
    }
}

FAST static void adamax_loop(float *w, const float *g, float *m, float *u, Py_ssize_t n, float rate, float beta1, float beta2) {
    float rest1 = 1.0f - beta1;
    for (Py_ssize_t i = 0; i < n; i++) {
        float magnitude = fabsf(g[i]), kept = u[i] * beta2;
        m[i] = m[i] * beta1 + g[i] * rest1;
        u[i] = kept > magnitude ? kept : magnitude;
        w[i] -= m[i] / (u[i] > FLT_MIN ? u[i] : FLT_MIN) * rate;
    }
}

/* All rules of the AdaGrad family end with this part: a step with a rate r for each element. */
typedef struct {
    float rate, mu, decay, epsilon;
} Family;

#define DESCEND_BY(r) \
    float full = s.decay != 0 ? w[i] * s.decay + g[i] : g[i], mu = s.mu; \
    DESCEND((r) * s.rate * full)

FAST static void adagrad_loop(float *w, const float *g, float *total, float *recent, float *m, Py_ssize_t n, Family s) {
    for (Py_ssize_t i = 0; i < n; i++) {
        recent[i] += g[i] * g[i];
        DESCEND_BY(1.0f / sqrtf(total[i] + recent[i] + s.epsilon))
    }
}

FAST static void decayed_adagrad_loop(float *w, const float *g, float *q, float *m, Py_ssize_t n, Family s, float kappa,
                                      float weight) {
    for (Py_ssize_t i = 0; i < n; i++) {
        q[i] = q[i] * kappa + (g[i] * g[i]) * weight;
        DESCEND_BY(1.0f / sqrtf(q[i] + s.epsilon))
    }
}

FAST static void rmsprop_loop(float *w, const float *g, float *q, float *f, float *m, Py_ssize_t n, Family s, float rest,
                              float kappa, float weight) {
    for (Py_ssize_t i = 0; i < n; i++) {
        q[i] = q[i] * kappa + (g[i] * g[i]) * weight;
        f[i] = f[i] * kappa + g[i] * rest;
        DESCEND_BY(1.0f / sqrtf(q[i] - f[i] * f[i] + s.epsilon))
    }
}

/* ----- The functions for Python: step_name(w, g, *state, *numbers, rows or None, width) ----- */

enum { NO_VELOCITY, VELOCITY }; /* whether the last array is a velocity, which may be None */

/* Get `count` arrays of equal length: w, g (only read) and the state. A velocity that is None becomes NULL. */
static int arrays_of(Arrays *arrays, PyObject *const *args, int count, int velocity, float **data, Py_ssize_t *n) {
    for (int i = 0; i < count; i++) {
        Py_ssize_t length;
        data[i] = NULL;
        if (velocity && i == count - 1 && args[i] == Py_None) return 0;
        data[i] = i == 1 ? (float *)read_floats(arrays, args[i], &length) : floats(arrays, args[i], &length);
        if (!data[i]) return -1;
        if (i == 0) *n = length;
        if (length != *n) {
            PyErr_SetString(PyExc_ValueError, "the arrays have different lengths");
            return -1;
        }
    }
    return 0;
}

/* The rows of the arrays that a rule changes: `count` rows of `width` elements. `rows` has the indexes of these rows;
 * it is NULL for all rows. */
typedef struct {
    Py_ssize_t count, width;
    const int64_t *rows;
} Span;

/* Get the span from the arguments `rows or None, width`; without rows the span has `parts` equal parts of n elements. */
static int span_of(Arrays *arrays, PyObject *const *args, Py_ssize_t n, Py_ssize_t parts, Span *span) {
    *span = (Span){.count = parts, .width = n / parts, .rows = NULL};
    if (args[0] == Py_None) return 0;
    span->width = PyLong_AsSsize_t(args[1]);
    span->rows = read_integers(arrays, args[0], &span->count);
    if (!span->rows || PyErr_Occurred()) return -1;
    if (span->width > 0 && n % span->width == 0 && in_range(span->rows, span->count, n / span->width))
        return 0;
    PyErr_SetString(PyExc_ValueError, "a row number is not in the arrays");
    return -1;
}

/* Get the factors kappa and weight from the arguments `kappa, weight, rows or None, width`. Each factor has one number
 * for each row of `rows`. Without `rows`, the arrays are cut into as many equal rows as each factor has numbers. */
static const float *factors_of(Arrays *arrays, PyObject *const *args, Py_ssize_t n, const float **weight, Span *all) {
    Py_ssize_t parts, more;
    const float *kappa = read_floats(arrays, args[0], &parts);
    *weight = kappa ? read_floats(arrays, args[1], &more) : NULL;
    if (!*weight) return NULL;
    if (more == parts && parts > 0 && (args[2] != Py_None || n % parts == 0)) {
        if (span_of(arrays, args + 2, n, parts, all) < 0) return NULL;
        if (all->count == parts) return kappa;
    }
    PyErr_SetString(PyExc_ValueError, "kappa and weight do not have one number for each row");
    return NULL;
}

/* Define the function name(COUNT arrays, NUMBERS numbers, rows or None, width). It runs `loop` for each row, with the
 * arrays a, the numbers c, the first element `at` of the row and the length n of the row. */
#define RULE(name, COUNT, HAS_VELOCITY, NUMBERS, loop) \
    static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count) { \
        NEED(COUNT + NUMBERS + 2); \
        float *a[COUNT], c[NUMBERS]; \
        Py_ssize_t total = 0; \
        Span all; \
        if (arrays_of(&arrays, args, COUNT, HAS_VELOCITY, a, &total) < 0 || numbers(args + COUNT, NUMBERS, c) < 0 || \
            span_of(&arrays, args + COUNT + NUMBERS, total, 1, &all) < 0) \
            return fail(&arrays, ""); \
        EACH_ROW(loop) \
    }

/* Define a function like RULE does, with the factors kappa and weight after the numbers. */
#define RULE_WITH_FACTORS(name, COUNT, HAS_VELOCITY, NUMBERS, loop) \
    static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count) { \
        NEED(COUNT + NUMBERS + 4); \
        float *a[COUNT], c[NUMBERS]; \
        const float *kappa, *weight; \
        Py_ssize_t total = 0; \
        Span all; \
        if (arrays_of(&arrays, args, COUNT, HAS_VELOCITY, a, &total) < 0 || numbers(args + COUNT, NUMBERS, c) < 0 || \
            !(kappa = factors_of(&arrays, args + COUNT + NUMBERS, total, &weight, &all))) \
            return fail(&arrays, ""); \
        EACH_ROW(loop) \
    }

#define EACH_ROW(loop) \
    Py_BEGIN_ALLOW_THREADS \
    for (Py_ssize_t r = 0; r < all.count; r++) { \
        Py_ssize_t at = (all.rows ? all.rows[r] : r) * all.width, n = all.width; \
        loop; \
    } \
    Py_END_ALLOW_THREADS \
    DONE;

#define FROM(array) ((array) ? (array) + at : NULL) /* the row of a velocity, which may be NULL */
#define FAMILY ((Family){.rate = c[0], .mu = c[1], .decay = c[2], .epsilon = c[3]})

/* arrays w, g, m; numbers rate, mu, decay */
RULE(step_momentum, 3, VELOCITY, 3, momentum_loop(a[0] + at, a[1] + at, FROM(a[2]), n, c[0], c[1], c[2]))

/* arrays w, g, m, v; numbers rate, beta1, beta2, epsilon */
RULE(step_adam, 4, NO_VELOCITY, 4, adam_loop(a[0] + at, a[1] + at, a[2] + at, a[3] + at, n, c[0], c[1], c[2], c[3]))

/* arrays w, g, m, u; numbers rate, beta1, beta2 */
RULE(step_adamax, 4, NO_VELOCITY, 3, adamax_loop(a[0] + at, a[1] + at, a[2] + at, a[3] + at, n, c[0], c[1], c[2]))

/* arrays w, g, S, s, m; numbers rate, mu, decay, epsilon */
RULE(step_adagrad, 5, VELOCITY, 4, adagrad_loop(a[0] + at, a[1] + at, a[2] + at, a[3] + at, FROM(a[4]), n, FAMILY))

/* arrays w, g, q, m; numbers rate, mu, decay, epsilon; factors kappa, weight */
RULE_WITH_FACTORS(step_decayed_adagrad, 4, VELOCITY, 4,
                  decayed_adagrad_loop(a[0] + at, a[1] + at, a[2] + at, FROM(a[3]), n, FAMILY, kappa[r], weight[r]))

/* arrays w, g, q, f, m; numbers rate, mu, decay, epsilon, rest; factors kappa, weight */
RULE_WITH_FACTORS(step_rmsprop, 5, VELOCITY, 5,
                  rmsprop_loop(a[0] + at, a[1] + at, a[2] + at, a[3] + at, FROM(a[4]), n, FAMILY, c[4], kappa[r], weight[r]))

PyMethodDef rules_functions[] = {FUNCTION(step_momentum), FUNCTION(step_adam),
                                 FUNCTION(step_adamax), FUNCTION(step_adagrad),
                                 FUNCTION(step_decayed_adagrad), FUNCTION(step_rmsprop), {NULL, NULL, 0, NULL}};
