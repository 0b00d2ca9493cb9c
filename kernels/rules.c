/* Update rules: w, the state, the gradient g, then numbers. The same operations in the same order as in numpy. */
#include <float.h>

#include "kernels.h"

/* One step down; m is the velocity or NULL. */
#define DESCEND(step) \
    if (m) { \
        m[i] = m[i] * mu - (step); \
        w[i] += m[i]; \
    } else { \
        w[i] -= (step); \
    }

FAST static void momentum_loop(float *w, float *m, const float *g, Py_ssize_t n, float rate, float mu, float decay) {
    if (decay != 0)
        for (Py_ssize_t i = 0; i < n; i++) {
            DESCEND((w[i] * decay + g[i]) * rate)
        }
    else
        for (Py_ssize_t i = 0; i < n; i++) {
            DESCEND(g[i] * rate)
        }
}

FAST static void adam_loop(float *w, float *m, float *v, const float *g, Py_ssize_t n, float rate, float beta1, float beta2,
                           float epsilon) {
    float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    for (Py_ssize_t i = 0; i < n; i++) {
        m[i] = m[i] * beta1 + g[i] * rest1;
        v[i] = v[i] * beta2 + (g[i] * g[i]) * rest2;
        w[i] -= m[i] * rate / (sqrtf(v[i]) + epsilon);
    }
}

FAST static void adamax_loop(float *w, float *m, float *u, const float *g, Py_ssize_t n, float rate, float beta1, float beta2) {
    float rest1 = 1.0f - beta1;
    for (Py_ssize_t i = 0; i < n; i++) {
        float magnitude = fabsf(g[i]), kept = u[i] * beta2;
        m[i] = m[i] * beta1 + g[i] * rest1;
        u[i] = kept > magnitude ? kept : magnitude;
        w[i] -= m[i] / (u[i] > FLT_MIN ? u[i] : FLT_MIN) * rate;
    }
}

typedef struct {
    float rate, mu, decay, epsilon, rest; /* rest: 1 - rho */
} Settings;

/* The family of AdaGrad steps with a rate r for each element. */
#define DESCEND_BY(r) \
    float full = s.decay != 0 ? w[i] * s.decay + g[i] : g[i], mu = s.mu; \
    DESCEND((r) * s.rate * full)

FAST static void adagrad_loop(float *w, float *m, float *total, float *recent, const float *g, Py_ssize_t n, Settings s) {
    for (Py_ssize_t i = 0; i < n; i++) {
        recent[i] += g[i] * g[i];
        DESCEND_BY(1.0f / sqrtf(total[i] + recent[i] + s.epsilon))
    }
}

FAST static void decayed_adagrad_loop(float *w, float *m, float *q, const float *g, Py_ssize_t n, Settings s, float kappa,
                                      float weight) {
    for (Py_ssize_t i = 0; i < n; i++) {
        q[i] = q[i] * kappa + (g[i] * g[i]) * weight;
        DESCEND_BY(1.0f / sqrtf(q[i] + s.epsilon))
    }
}

FAST static void rmsprop_loop(float *w, float *m, float *q, float *f, const float *g, Py_ssize_t n, Settings s, float kappa,
                              float weight) {
    for (Py_ssize_t i = 0; i < n; i++) {
        q[i] = q[i] * kappa + (g[i] * g[i]) * weight;
        f[i] = f[i] * kappa + g[i] * s.rest;
        DESCEND_BY(1.0f / sqrtf(q[i] - f[i] * f[i] + s.epsilon))
    }
}

/* ----- What Python calls ----- */

/* Get `count` float arrays of equal length, the last of them read only, and after them the velocity or None. */
static int arrays_of(Arrays *arrays, PyObject *const *args, int count, float **data, float **velocity, Py_ssize_t *n) {
    *velocity = NULL;
    if (same_length(arrays, args, count, count - 1, data, n) < 0) return -1;
    if (args[count] == Py_None) return 0;
    Py_ssize_t length;
    *velocity = floats(arrays, args[count], &length);
    if (*velocity && length != *n) PyErr_SetString(PyExc_ValueError, "the velocity has another length");
    return PyErr_Occurred() ? -1 : 0;
}

/* Which rows of the arrays a rule works on: `count` rows, `width` wide, those named in `rows` or else all in order. */
typedef struct {
    Py_ssize_t count, width;
    const int64_t *rows;
} Stretch;

#define START(stretch, r) (((stretch).rows ? (stretch).rows[r] : (r)) * (stretch).width)

/* Get the stretch from the arguments `rows or None, width`; without rows it is `parts` equal parts of n elements. */
static int stretch_of(Arrays *arrays, PyObject *const *args, Py_ssize_t n, Py_ssize_t parts, Stretch *stretch) {
    *stretch = (Stretch){.count = parts, .width = n / parts, .rows = NULL};
    if (args[0] == Py_None) return 0;
    stretch->width = PyLong_AsSsize_t(args[1]);
    stretch->rows = read_integers(arrays, args[0], &stretch->count);
    if (!stretch->rows || PyErr_Occurred()) return -1;
    if (stretch->width > 0 && n % stretch->width == 0 && in_range(stretch->rows, stretch->count, n / stretch->width))
        return 0;
    PyErr_SetString(PyExc_ValueError, "the rows do not go with the arrays");
    return -1;
}

/* momentum(w, g, m or None, rate, mu, decay, rows or None, width) */
static PyObject *momentum(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(8);
    float *data[2], *m, value[3];
    Py_ssize_t n;
    Stretch all;
    if (arrays_of(&arrays, args, 2, data, &m, &n) < 0 || numbers(args + 3, 3, value) < 0 ||
        stretch_of(&arrays, args + 6, n, 1, &all) < 0)
        return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; r < all.count; r++) {
        Py_ssize_t at = START(all, r);
        if (m)
            momentum_loop(data[0] + at, m + at, data[1] + at, all.width, value[0], value[1], value[2]);
        else
            momentum_loop(data[0] + at, NULL, data[1] + at, all.width, value[0], 0, value[2]);
    }
    Py_END_ALLOW_THREADS
    DONE;
}

/* adam(w, m, v, g, rate, beta1, beta2, epsilon) */
static PyObject *adam(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(8);
    float *data[4], value[4];
    Py_ssize_t n;
    if (same_length(&arrays, args, 4, 3, data, &n) < 0 || numbers(args + 4, 4, value) < 0) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    adam_loop(data[0], data[1], data[2], data[3], n, value[0], value[1], value[2], value[3]);
    Py_END_ALLOW_THREADS
    DONE;
}

/* adamax(w, m, u, g, rate, beta1, beta2) */
static PyObject *adamax(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(7);
    float *data[4], value[3];
    Py_ssize_t n;
    if (same_length(&arrays, args, 4, 3, data, &n) < 0 || numbers(args + 4, 3, value) < 0) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    adamax_loop(data[0], data[1], data[2], data[3], n, value[0], value[1], value[2]);
    Py_END_ALLOW_THREADS
    DONE;
}

static int settings_of(PyObject *const *args, Settings *s) {
    float value[5];
    if (numbers(args, 5, value) < 0) return -1;
    *s = (Settings){.rate = value[0], .mu = value[1], .decay = value[2], .epsilon = value[3], .rest = value[4]};
    return 0;
}

/* adagrad(w, total, recent, g, m or None, rate, mu, decay, epsilon, unused, rows or None, width) */
static PyObject *adagrad(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(12);
    float *data[4], *m;
    Settings s;
    Py_ssize_t n;
    Stretch all;
    if (arrays_of(&arrays, args, 4, data, &m, &n) < 0 || settings_of(args + 5, &s) < 0 ||
        stretch_of(&arrays, args + 10, n, 1, &all) < 0)
        return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; r < all.count; r++) {
        Py_ssize_t at = START(all, r);
        adagrad_loop(data[0] + at, m ? m + at : NULL, data[1] + at, data[2] + at, data[3] + at, all.width, s);
    }
    Py_END_ALLOW_THREADS
    DONE;
}

/* Factors of rows, in the arguments `kappa, weight, rows or None, width`: one number for each of the rows named; if none
 * are named, for each of as many rows of equal length. */
static const float *factors_of(Arrays *arrays, PyObject *const *args, Py_ssize_t n, const float **weight, Stretch *all) {
    Py_ssize_t parts, more;
    const float *kappa = read_floats(arrays, args[0], &parts);
    *weight = kappa ? read_floats(arrays, args[1], &more) : NULL;
    if (!*weight) return NULL;
    if (more == parts && parts > 0 && (args[2] != Py_None || n % parts == 0)) {
        if (stretch_of(arrays, args + 2, n, parts, all) < 0) return NULL;
        if (all->count == parts) return kappa;
    }
    PyErr_SetString(PyExc_ValueError, "the factors do not go with the rows");
    return NULL;
}

/* decayed_adagrad(w, q, g, m or None, rate, mu, decay, epsilon, rest, kappa, weight, rows or None, width) */
static PyObject *decayed_adagrad(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(13);
    float *data[3], *m;
    const float *kappa, *weight;
    Settings s;
    Py_ssize_t n;
    Stretch all;
    if (arrays_of(&arrays, args, 3, data, &m, &n) < 0 || settings_of(args + 4, &s) < 0 ||
        !(kappa = factors_of(&arrays, args + 9, n, &weight, &all)))
        return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; r < all.count; r++) {
        Py_ssize_t at = START(all, r);
        decayed_adagrad_loop(data[0] + at, m ? m + at : NULL, data[1] + at, data[2] + at, all.width, s, kappa[r], weight[r]);
    }
    Py_END_ALLOW_THREADS
    DONE;
}

/* rmsprop(w, q, f, g, m or None, rate, mu, decay, epsilon, rest, kappa, weight, rows or None, width) */
static PyObject *rmsprop(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(14);
    float *data[4], *m;
    const float *kappa, *weight;
    Settings s;
    Py_ssize_t n;
    Stretch all;
    if (arrays_of(&arrays, args, 4, data, &m, &n) < 0 || settings_of(args + 5, &s) < 0 ||
        !(kappa = factors_of(&arrays, args + 10, n, &weight, &all)))
        return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; r < all.count; r++) {
        Py_ssize_t at = START(all, r);
        rmsprop_loop(data[0] + at, m ? m + at : NULL, data[1] + at, data[2] + at, data[3] + at, all.width, s, kappa[r],
                     weight[r]);
    }
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef rules_functions[] = {FUNCTION(momentum), FUNCTION(adam),    FUNCTION(adamax),      FUNCTION(adagrad),
                                 FUNCTION(decayed_adagrad), FUNCTION(rmsprop), {NULL, NULL, 0, NULL}};
