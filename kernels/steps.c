/* Activations of whole matrices. */
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

int kind_of(PyObject *object) {
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

PyMethodDef steps_functions[] = {FUNCTION(activate), FUNCTION(differentiate), {NULL, NULL, 0, NULL}};
