/* Attention: the steps for which numpy would copy a state, a weight or a gradient for each frame of a sequence. Sequence
 * s has the frames starts[s] to starts[s + 1]. */
#include "activations.h"

/* Get the starts of the sequences and the width from the arguments `starts, size`, and check that the arrays fit. */
static const int64_t *starts_of(Arrays *arrays, PyObject *const *args, Py_ssize_t elements, Py_ssize_t rows, Py_ssize_t *size,
                                Py_ssize_t *count) {
    Py_ssize_t bounds;
    const int64_t *starts = read_integers(arrays, args[0], &bounds);
    *size = starts ? PyLong_AsSsize_t(args[1]) : 0;
    *count = bounds - 1;
    if (!starts || PyErr_Occurred()) return NULL;
    if (*size > 0 && rows == *count * *size && elements % *size == 0 && rising(starts, bounds, elements / *size)) return starts;
    PyErr_SetString(PyExc_ValueError, "the sequences do not fit their arrays");
    return NULL;
}

FAST static void tanh_sums_loop(float *y, const float *x, const float *rows, const int64_t *starts, Py_ssize_t count, Py_ssize_t size) {
    for (Py_ssize_t s = 0; s < count; s++, rows += size)
        for (int64_t i = starts[s]; i < starts[s + 1]; i++)
            for (Py_ssize_t j = 0; j < size; j++) y[i * size + j] = nearest_tanh_of(rows[j] + x[i * size + j]);
}

/* tanh_sums(y, x, rows, starts, size): y = tanh(x + the row of the sequence) */
static PyObject *tanh_sums(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(5);
    Py_ssize_t n, length, sequences, size;
    float *data[2];
    if (same_length(&arrays, args, 2, 1, data, &n) < 0) return fail(&arrays, "");
    const float *rows = read_floats(&arrays, args[2], &length);
    const int64_t *starts = rows ? starts_of(&arrays, args + 3, n, length, &size, &sequences) : NULL;
    if (!starts) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    tanh_sums_loop(data[0], data[1], rows, starts, sequences, size);
    Py_END_ALLOW_THREADS
    DONE;
}

FAST static void tanh_sums_gradient_loop(float *d_x, float *d_rows, float *d_v, const float *d, const float *y, const float *v,
                                         const int64_t *starts, Py_ssize_t count, Py_ssize_t size) {
    memset(d_v, 0, size * sizeof *d_v);
    memset(d_rows, 0, count * size * sizeof *d_rows);
    for (Py_ssize_t s = 0; s < count; s++, d_rows += size)
        for (int64_t i = starts[s]; i < starts[s + 1]; i++) {
            float of_frame = d[i], *out = d_x + i * size;
            const float *of = y + i * size;
            for (Py_ssize_t j = 0; j < size; j++) {
                float part = of_frame * v[j] * (1.0f - of[j] * of[j]);
                out[j] = part;
                d_rows[j] += part;
                d_v[j] += of_frame * of[j];
            }
        }
}

/* tanh_sums_gradient(d_x, y, d_rows, d_v, d, v, starts, size): write the gradients of x, rows and v to d_x, d_rows and
 * d_v; d is the gradient of the product of y and v */
static PyObject *tanh_sums_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(8);
    Py_ssize_t n, length, of_d_v, frames, of_v, sequences, size;
    float *data[2];
    if (same_length(&arrays, args, 2, 1, data, &n) < 0) return fail(&arrays, "");
    float *d_rows = floats(&arrays, args[2], &length), *d_v = d_rows ? floats(&arrays, args[3], &of_d_v) : NULL;
    const float *d = d_v ? read_floats(&arrays, args[4], &frames) : NULL, *v = d ? read_floats(&arrays, args[5], &of_v) : NULL;
    const int64_t *starts = v ? starts_of(&arrays, args + 6, n, length, &size, &sequences) : NULL;
    if (!starts || of_d_v != size || of_v != size || frames * size != n) return fail(&arrays, "the arrays do not fit each other");
    Py_BEGIN_ALLOW_THREADS
    tanh_sums_gradient_loop(data[0], d_rows, d_v, d, data[1], v, starts, sequences, size);
    Py_END_ALLOW_THREADS
    DONE;
}

enum { LANES = 16 };

FAST static void weighted_sums_gradient_loop(float *d_x, float *d_w, const float *x, const float *w, const float *g, const int64_t *starts,
                                             Py_ssize_t count, Py_ssize_t size) {
    for (Py_ssize_t s = 0; s < count; s++, g += size)
        for (int64_t i = starts[s]; i < starts[s + 1]; i++) {
            float sums[LANES] = {0}, weight = w[i], total = 0;
            const float *from = x + i * size;
            for (Py_ssize_t j = 0; j < size; j++) d_x[i * size + j] = g[j] * weight;
            Py_ssize_t j = 0;
            for (; j + LANES <= size; j += LANES)
                for (int k = 0; k < LANES; k++) sums[k] += g[j + k] * from[j + k];
            for (int k = 0; j + k < size; k++) sums[k] += g[j + k] * from[j + k];
            for (int k = 0; k < LANES; k++) total += sums[k];
            d_w[i] = total;
        }
}

/* weighted_sums_gradient(d_x, x, d_w, w, g, starts, size): write the gradients of x and w to d_x and d_w; row s of g is
 * the gradient of the sum of w[i] * x[i] over sequence s */
static PyObject *weighted_sums_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(7);
    Py_ssize_t n, frames, length, sequences, size;
    float *data[2], *weights[2];
    if (same_length(&arrays, args, 2, 1, data, &n) < 0 || same_length(&arrays, args + 2, 2, 1, weights, &frames) < 0)
        return fail(&arrays, "");
    const float *g = read_floats(&arrays, args[4], &length);
    const int64_t *starts = g ? starts_of(&arrays, args + 5, n, length, &size, &sequences) : NULL;
    if (!starts || frames * size != n) return fail(&arrays, "the weights do not fit");
    Py_BEGIN_ALLOW_THREADS
    weighted_sums_gradient_loop(data[0], weights[0], data[1], weights[1], g, starts, sequences, size);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef attention_functions[] = {FUNCTION(tanh_sums), FUNCTION(tanh_sums_gradient), FUNCTION(weighted_sums_gradient),
                                     {NULL, NULL, 0, NULL}};
