/* Activations of whole matrices, and the steps of recurrent layers. */
#include "activations.h"

FAST static void apply_loop(int kind, float *z, Py_ssize_t n) { apply(kind, z, n); }

FAST static void descend_loop(int kind, float *out, const float *g, const float *y, Py_ssize_t n) {
    switch (kind) {
    case SIGMOID:
        for (Py_ssize_t i = 0; i < n; i++) out[i] = g[i] * (y[i] * (1.0f - y[i]));
        break;
    case TANH:
        for (Py_ssize_t i = 0; i < n; i++) out[i] = g[i] * (1.0f - y[i] * y[i]);
        break;
    case RELU:
        for (Py_ssize_t i = 0; i < n; i++) out[i] = y[i] > 0 ? g[i] : 0;
    }
}

static int kind_of(PyObject *object) {
    long kind = PyLong_AsLong(object);
    if (!PyErr_Occurred() && kind >= 0 && kind < KINDS) return (int)kind;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such activation");
    return -1;
}

/* activate(kind, z) */
static PyObject *activate(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2);
    int kind = kind_of(args[0]);
    Py_ssize_t n;
    float *z = kind < 0 ? NULL : floats(&arrays, args[1], &n);
    if (!z) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    apply_loop(kind, z, n);
    Py_END_ALLOW_THREADS
    DONE;
}

/* differentiate(kind, out, g, y): out may be g */
static PyObject *differentiate(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    int kind = kind_of(args[0]);
    float *data[3];
    Py_ssize_t n;
    if (kind < 0 || same_length(&arrays, args + 1, 3, 1, data, &n) < 0) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    descend_loop(kind, data[0], data[1], data[2], n);
    Py_END_ALLOW_THREADS
    DONE;
}

typedef struct {
    int candidate, gate, state;
} Kinds;

static int kinds_of(PyObject *const *args, Kinds *kinds) {
    kinds->candidate = kind_of(args[0]);
    kinds->gate = kinds->candidate < 0 ? -1 : kind_of(args[1]);
    kinds->state = kinds->gate < 0 ? -1 : kind_of(args[2]);
    return kinds->state < 0 ? -1 : 0;
}

/* ----- LSTM: a row of gates is (a, i, f, o), each of `size` numbers ----- */

FAST static void lstm_forward_loop(float *gates, const float *peepholes, const float *before, float *c, float *h, Py_ssize_t n,
                                   Py_ssize_t size, Kinds kinds) {
    for (Py_ssize_t row = 0; row < n; row++, gates += 4 * size, before += size, c += size, h += size) {
        float *a = gates, *i = gates + size, *f = gates + 2 * size, *o = gates + 3 * size;
        for (Py_ssize_t j = 0; j < size; j++) {
            i[j] += before[j] * peepholes[j];
            f[j] += before[j] * peepholes[size + j];
        }
        apply(kinds.candidate, a, size);
        apply(kinds.gate, i, 2 * size);
        for (Py_ssize_t j = 0; j < size; j++) {
            c[j] = a[j] * i[j] + before[j] * f[j];
            o[j] += c[j] * peepholes[2 * size + j];
            h[j] = c[j];
        }
        apply(kinds.gate, o, size);
        apply(kinds.state, h, size);
        for (Py_ssize_t j = 0; j < size; j++) h[j] *= o[j];
    }
}

/* lstm_forward(c, gates, peepholes, before, h, size, candidate, gate, state) */
static PyObject *lstm_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(9);
    Py_ssize_t n, rest, size = PyLong_AsSsize_t(args[5]);
    Kinds kinds;
    float *c = floats(&arrays, args[0], &n);
    if (!c || size < 1 || n % size || kinds_of(args + 6, &kinds) < 0) return fail(&arrays, "the state does not fit");
    float *gates = floats(&arrays, args[1], &rest);
    if (!gates || rest != 4 * n) return fail(&arrays, "the gates do not fit");
    const float *peepholes = read_floats(&arrays, args[2], &rest);
    if (!peepholes || rest != 3 * size) return fail(&arrays, "the peepholes do not fit");
    const float *before = read_floats(&arrays, args[3], &rest);
    if (!before || rest != n) return fail(&arrays, "the state before does not fit");
    float *h = floats(&arrays, args[4], &rest);
    if (!h || rest != n) return fail(&arrays, "the output does not fit");
    Py_BEGIN_ALLOW_THREADS
    lstm_forward_loop(gates, peepholes, before, c, h, n / size, size, kinds);
    Py_END_ALLOW_THREADS
    DONE;
}

/* room: three rows of `size` numbers */
FAST static void lstm_backward_loop(float *gates, const float *peepholes, const float *before, const float *c, float *d_h,
                                    float *d_c, float *d_peepholes, float *room, Py_ssize_t n, Py_ssize_t size, Kinds kinds) {
    float *y = room, *d_y = room + size, *d_f = room + 2 * size;
    for (Py_ssize_t row = 0; row < n; row++, gates += 4 * size, before += size, c += size, d_h += size, d_c += size) {
        float *a = gates, *i = gates + size, *f = gates + 2 * size, *o = gates + 3 * size, *d_o = d_h;
        for (Py_ssize_t j = 0; j < size; j++) y[j] = c[j];
        apply(kinds.state, y, size);
        for (Py_ssize_t j = 0; j < size; j++) {
            d_y[j] = d_h[j] * o[j];
            d_o[j] = d_h[j] * y[j];
        }
        descend(kinds.state, d_y, y, size);
        descend(kinds.gate, d_o, o, size);
        float *d_a = y, *d_i = d_y; /* these rooms are free from here on */
        for (Py_ssize_t j = 0; j < size; j++) {
            float d = d_c[j] + d_y[j] + d_o[j] * peepholes[2 * size + j];
            d_a[j] = d * i[j];
            d_i[j] = d * a[j];
            d_f[j] = d * before[j];
            d_c[j] = d * f[j];
        }
        descend(kinds.candidate, d_a, a, size);
        descend(kinds.gate, d_i, i, size);
        descend(kinds.gate, d_f, f, size);
        for (Py_ssize_t j = 0; j < size; j++) {
            d_c[j] += d_i[j] * peepholes[j] + d_f[j] * peepholes[size + j];
            d_peepholes[j] += d_i[j] * before[j];
            d_peepholes[size + j] += d_f[j] * before[j];
            d_peepholes[2 * size + j] += d_o[j] * c[j];
            a[j] = d_a[j];
            i[j] = d_i[j];
            f[j] = d_f[j];
            o[j] = d_o[j];
        }
    }
}

/* lstm_backward(d_c, gates, peepholes, before, c, d_h, d_peepholes, size, candidate, gate, state) */
static PyObject *lstm_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(11);
    Py_ssize_t n, rest, size = PyLong_AsSsize_t(args[7]);
    Kinds kinds;
    float *d_c = floats(&arrays, args[0], &n);
    if (!d_c || size < 1 || n % size || kinds_of(args + 8, &kinds) < 0) return fail(&arrays, "the state does not fit");
    float *gates = floats(&arrays, args[1], &rest);
    if (!gates || rest != 4 * n) return fail(&arrays, "the gates do not fit");
    const float *peepholes = read_floats(&arrays, args[2], &rest);
    if (!peepholes || rest != 3 * size) return fail(&arrays, "the peepholes do not fit");
    const float *before = read_floats(&arrays, args[3], &rest);
    if (!before || rest != n) return fail(&arrays, "the state before does not fit");
    const float *c = read_floats(&arrays, args[4], &rest);
    if (!c || rest != n) return fail(&arrays, "the state does not fit");
    float *d_h = floats(&arrays, args[5], &rest);
    if (!d_h || rest != n) return fail(&arrays, "the output's gradient does not fit");
    float *d_peepholes = floats(&arrays, args[6], &rest);
    if (!d_peepholes || rest != 3 * size) return fail(&arrays, "the peepholes' gradient does not fit");
    float *room = PyMem_Malloc(3 * size * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    Py_BEGIN_ALLOW_THREADS
    lstm_backward_loop(gates, peepholes, before, c, d_h, d_c, d_peepholes, room, n / size, size, kinds);
    Py_END_ALLOW_THREADS
    PyMem_Free(room);
    DONE;
}

PyMethodDef steps_functions[] = {FUNCTION(activate), FUNCTION(differentiate), FUNCTION(lstm_forward), FUNCTION(lstm_backward),
                                 {NULL, NULL, 0, NULL}};
