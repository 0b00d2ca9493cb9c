/* Rows of matrices: tables, sparse inputs. */
#include "kernels.h"

FAST static void add_rows_loop(float *target, const int64_t *ids, const float *rows, Py_ssize_t count, Py_ssize_t width) {
    for (Py_ssize_t i = 0; i < count; i++) {
        float *to = target + ids[i] * width;
        const float *from = rows + i * width;
        for (Py_ssize_t j = 0; j < width; j++) to[j] += from[j];
    }
}

/* add_rows(target, ids, rows, width) */
static PyObject *add_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, n, more, width = PyLong_AsSsize_t(args[3]);
    float *target = floats(&arrays, args[0], &size);
    const int64_t *ids = target ? read_integers(&arrays, args[1], &n) : NULL;
    const float *rows = ids ? read_floats(&arrays, args[2], &more) : NULL;
    if (!rows || width < 1 || more != n * width || size % width) return fail(&arrays, "the rows do not fit the matrix");
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = in_range(ids, n, size / width);
    if (good) add_rows_loop(target, ids, rows, n, width);
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the matrix");
    DONE;
}

FAST static void sum_rows_loop(float *out, const float *table, const int64_t *ids, const int64_t *starts, Py_ssize_t rows,
                               Py_ssize_t width, const float *values) {
    for (Py_ssize_t r = 0; r < rows; r++) {
        float *to = out + r * width;
        for (Py_ssize_t j = 0; j < width; j++) to[j] = 0;
        for (int64_t k = starts[r]; k < starts[r + 1]; k++) {
            const float *from = table + ids[k] * width;
            if (values) {
                float value = values[k];
                for (Py_ssize_t j = 0; j < width; j++) to[j] += from[j] * value;
            } else {
                for (Py_ssize_t j = 0; j < width; j++) to[j] += from[j];
            }
        }
    }
}

/* sum_rows(out, table, ids, starts, width, values or None) */
static PyObject *sum_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(6);
    Py_ssize_t size, all, n, bounds, more, width = PyLong_AsSsize_t(args[4]);
    float *out = floats(&arrays, args[0], &size);
    const float *table = out ? read_floats(&arrays, args[1], &all) : NULL;
    const int64_t *ids = table ? read_integers(&arrays, args[2], &n) : NULL;
    const int64_t *starts = ids ? read_integers(&arrays, args[3], &bounds) : NULL;
    const float *values = starts && args[5] != Py_None ? read_floats(&arrays, args[5], &more) : NULL;
    if (!starts || PyErr_Occurred() || (values && more != n) || width < 1 || all % width || size != (bounds - 1) * width)
        return fail(&arrays, "the rows do not fit the matrix");
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = rising(starts, bounds, n) && in_range(ids, n, all / width);
    if (good) sum_rows_loop(out, table, ids, starts, bounds - 1, width, values);
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the matrix");
    DONE;
}

FAST static void add_outer_loop(float *target, const float *rows, const int64_t *ids, const int64_t *starts, Py_ssize_t count,
                                Py_ssize_t width, const float *values) {
    for (Py_ssize_t r = 0; r < count; r++) {
        const float *from = rows + r * width;
        for (int64_t k = starts[r]; k < starts[r + 1]; k++) {
            float *to = target + ids[k] * width;
            float value = values ? values[k] : 1.0f;
            for (Py_ssize_t j = 0; j < width; j++) to[j] += from[j] * value;
        }
    }
}

/* add_outer(target, rows, ids, starts, width, values or None) */
static PyObject *add_outer(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(6);
    Py_ssize_t all, size, n, bounds, more, width = PyLong_AsSsize_t(args[4]);
    float *target = floats(&arrays, args[0], &all);
    const float *rows = target ? read_floats(&arrays, args[1], &size) : NULL;
    const int64_t *ids = rows ? read_integers(&arrays, args[2], &n) : NULL;
    const int64_t *starts = ids ? read_integers(&arrays, args[3], &bounds) : NULL;
    const float *values = starts && args[5] != Py_None ? read_floats(&arrays, args[5], &more) : NULL;
    if (!starts || PyErr_Occurred() || (values && more != n) || width < 1 || all % width || size != (bounds - 1) * width)
        return fail(&arrays, "the rows do not fit the matrix");
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = rising(starts, bounds, n) && in_range(ids, n, all / width);
    if (good) add_outer_loop(target, rows, ids, starts, bounds - 1, width, values);
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the matrix");
    DONE;
}

PyMethodDef rows_functions[] = {FUNCTION(add_rows), FUNCTION(sum_rows), FUNCTION(add_outer), {NULL, NULL, 0, NULL}};
