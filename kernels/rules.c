/* Update rules: w, the state, the gradient g, then numbers. The same operations in the same order as in plain.py. */
#include "kernels.h"

FAST static void sgd_loop(float *w, const float *g, Py_ssize_t n, float rate, float decay) {
    if (decay != 0)
        for (Py_ssize_t i = 0; i < n; i++) w[i] -= (w[i] * decay + g[i]) * rate;
    else
        for (Py_ssize_t i = 0; i < n; i++) w[i] -= g[i] * rate;
}

FAST static void momentum_loop(float *w, float *m, const float *g, Py_ssize_t n, float rate, float mu, float decay) {
    for (Py_ssize_t i = 0; i < n; i++) {
        float full = decay != 0 ? w[i] * decay + g[i] : g[i];
        m[i] = m[i] * mu - full * rate;
        w[i] += m[i];
    }
}

FAST static void adam_loop(float *w, float *m, float *v, const float *g, Py_ssize_t n, float rate, float beta1, float beta2,
                           float epsilon) {
    float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    for (Py_ssize_t i = 0; i < n; i++) {
        float first = m[i] * beta1 + g[i] * rest1;
        float second = v[i] * beta2 + (g[i] * g[i]) * rest2;
        m[i] = first;
        v[i] = second;
        w[i] -= first * rate / (sqrtf(second) + epsilon);
    }
}

static PyObject *sgd(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    float *data[2], value[2];
    Py_ssize_t n;
    if (same_length(&arrays, args, 2, 1, data, &n) < 0 || numbers(args + 2, 2, value) < 0) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    sgd_loop(data[0], data[1], n, value[0], value[1]);
    Py_END_ALLOW_THREADS
    DONE;
}

static PyObject *momentum(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(6);
    float *data[3], value[3];
    Py_ssize_t n;
    if (same_length(&arrays, args, 3, 2, data, &n) < 0 || numbers(args + 3, 3, value) < 0) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    momentum_loop(data[0], data[1], data[2], n, value[0], value[1], value[2]);
    Py_END_ALLOW_THREADS
    DONE;
}

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

PyMethodDef rules_functions[] = {FUNCTION(sgd), FUNCTION(momentum), FUNCTION(adam), {NULL, NULL, 0, NULL}};
