/* Activations of whole matrices. */
#include "activations.h"

FAST static void tanh_loop(float *z, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) z[i] = nearest_tanh_of(z[i]);
}

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
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the number of the activation is unknown");
    return -1;
}

/* activate(kind, z): replace each z by y, the result of the activation */
static PyObject *activate(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2);
    int kind = kind_of(args[0]);
    Py_ssize_t n;
    float *z = kind < 0 ? NULL : floats(&arrays, args[1], &n);
    if (!z) return fail(&arrays, "");
    Py_BEGIN_ALLOW_THREADS
    if (kind == TANH)
        tanh_loop(z, n);
    else
        apply_loop(kind, z, n);
    Py_END_ALLOW_THREADS
    DONE;
}

/* differentiate(kind, out, g, y): write the gradient of z to out; g is the gradient of y, and out may be the array g */
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

enum { LANES = 16, ROWS = 8 };

static inline __attribute__((always_inline)) float largest_of(const float *row, Py_ssize_t width) {
    float largest[LANES], result = row[0];
    Py_ssize_t j = 0;
    if (width >= 4 * LANES) {
        for (int k = 0; k < LANES; k++) largest[k] = row[k];
        for (; j + LANES <= width; j += LANES)
            for (int k = 0; k < LANES; k++) largest[k] = row[j + k] > largest[k] ? row[j + k] : largest[k];
        for (int k = 0; k < LANES; k++) result = largest[k] > result ? largest[k] : result;
    }
    for (; j < width; j++) result = row[j] > result ? row[j] : result;
    return result;
}

/* Sum several rows at once, because each addition waits for the previous addition of its row. */
static inline __attribute__((always_inline)) void sum_rows_of(float *sums, const float *y, int rows, Py_ssize_t width) {
    for (int k = 0; k < rows; k++) sums[k] = 0;
    for (Py_ssize_t j = 0; j < width; j++)
        for (int k = 0; k < rows; k++) sums[k] += y[k * width + j];
}

/* subtract the maximum of each row, raise numbers below the floor to the floor, exponentiate, and divide by the sum of
 * the row */
FAST static void softmax_loop(float *y, Py_ssize_t rows, Py_ssize_t width, float floor) {
    for (Py_ssize_t r = 0; r < rows; r += ROWS) {
        int count = rows - r < ROWS ? (int)(rows - r) : ROWS;
        float sums[ROWS], *first = y + r * width;
        for (int k = 0; k < count; k++) {
            float *row = first + k * width, largest = largest_of(row, width);
            for (Py_ssize_t j = 0; j < width; j++) {
                float below = row[j] - largest;
                row[j] = below < floor ? floor : below;
            }
        }
        for (Py_ssize_t i = 0; i < count * width; i++) first[i] = nearest_exp_of(first[i]);
        if (count == ROWS)
            sum_rows_of(sums, first, ROWS, width);
        else
            sum_rows_of(sums, first, count, width);
        for (int k = 0; k < count; k++) {
            float share = 1.0f / sums[k];
            for (Py_ssize_t j = 0; j < width; j++) first[k * width + j] *= share;
        }
    }
}

FAST static void softmax_gradient_loop(float *out, const float *g, const float *y, Py_ssize_t rows, Py_ssize_t width) {
    for (Py_ssize_t r = 0; r < rows; r++, out += width, g += width, y += width) {
        float sum = 0;
        for (Py_ssize_t j = 0; j < width; j++) sum += g[j] * y[j];
        for (Py_ssize_t j = 0; j < width; j++) out[j] = (g[j] - sum) * y[j];
    }
}

/* the gradient of y is values[r] in column columns[r] of row r, and zero elsewhere */
FAST static void picked_softmax_gradient_loop(float *out, const float *y, const float *values, const int64_t *columns, Py_ssize_t rows,
                                              Py_ssize_t width) {
    for (Py_ssize_t r = 0; r < rows; r++, out += width, y += width) {
        float picked = y[columns[r]], sum = values[r] * picked, minus = 0.0f - sum;
        for (Py_ssize_t j = 0; j < width; j++) out[j] = minus * y[j];
        out[columns[r]] = (values[r] - sum) * picked;
    }
}

/* softmax(y, width, floor): y holds z before the call and its softmax after the call */
static PyObject *softmax(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3);
    Py_ssize_t n, width = PyLong_AsSsize_t(args[1]);
    float floor, *y = floats(&arrays, args[0], &n);
    if (!y || width < 1 || n % width || numbers(args + 2, 1, &floor) < 0) return fail(&arrays, "the rows do not fit");
    Py_BEGIN_ALLOW_THREADS
    softmax_loop(y, n / width, width, floor);
    Py_END_ALLOW_THREADS
    DONE;
}

/* softmax_gradient(out, g, y, width): write the gradient of z to out; y is the softmax of z, g is the gradient of y */
static PyObject *softmax_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t n, width = PyLong_AsSsize_t(args[3]);
    float *data[3];
    if (same_length(&arrays, args, 3, 1, data, &n) < 0 || width < 1 || n % width) return fail(&arrays, "the rows do not fit");
    Py_BEGIN_ALLOW_THREADS
    softmax_gradient_loop(data[0], data[1], data[2], n / width, width);
    Py_END_ALLOW_THREADS
    DONE;
}

/* picked_softmax_gradient(out, y, values, columns, width): write the gradient of z to out; y is the softmax of z, and
 * the gradient of y is values[r] in column columns[r] of row r, and zero elsewhere */
static PyObject *picked_softmax_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(5);
    Py_ssize_t n, rows, more, width = PyLong_AsSsize_t(args[4]);
    float *data[2];
    if (same_length(&arrays, args, 2, 1, data, &n) < 0) return fail(&arrays, "");
    const float *values = read_floats(&arrays, args[2], &rows);
    const int64_t *columns = values ? read_integers(&arrays, args[3], &more) : NULL;
    if (!columns || width < 1 || n != rows * width || more != rows) return fail(&arrays, "the rows do not fit");
    if (!in_range(columns, rows, width)) return fail(&arrays, "a column is not in its row");
    Py_BEGIN_ALLOW_THREADS
    picked_softmax_gradient_loop(data[0], data[1], values, columns, rows, width);
    Py_END_ALLOW_THREADS
    DONE;
}

/* Sum numbers as numpy does: in blocks of at most 128 numbers with eight sums each. */
static float sum_of(const float *x, Py_ssize_t n) {
    enum { SUMS = 8, BLOCK = 128 };
    if (n > BLOCK) {
        Py_ssize_t half = n / 2 - n / 2 % SUMS;
        return sum_of(x, half) + sum_of(x + half, n - half);
    }
    float total = 0;
    Py_ssize_t i = 0;
    if (n >= SUMS) {
        float sums[SUMS];
        for (int k = 0; k < SUMS; k++) sums[k] = x[k];
        for (i = SUMS; i + SUMS <= n; i += SUMS)
            for (int k = 0; k < SUMS; k++) sums[k] += x[i + k];
        total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (; i < n; i++) total += x[i];
    return total;
}

/* Sum the numbers of a sequence, of which there is at least one, as numpy's reduceat does. */
static float sum_sequence(const float *x, Py_ssize_t n) { return x[0] + sum_of(x + 1, n - 1); }

FAST static void sequence_softmax_loop(float *y, const int64_t *starts, Py_ssize_t sequences, float floor) {
    for (Py_ssize_t s = 0; s < sequences; s++) {
        Py_ssize_t n = starts[s + 1] - starts[s];
        float *row = y + starts[s];
        if (!n) continue;
        float largest = largest_of(row, n);
        for (Py_ssize_t j = 0; j < n; j++) {
            float below = row[j] - largest;
            row[j] = nearest_exp_of(below < floor ? floor : below);
        }
        float share = 1.0f / sum_sequence(row, n);
        for (Py_ssize_t j = 0; j < n; j++) row[j] *= share;
    }
}

FAST static void sequence_softmax_gradient_loop(float *out, const float *g, const float *y, const int64_t *starts, Py_ssize_t sequences) {
    for (Py_ssize_t s = 0; s < sequences; s++) {
        int64_t begin = starts[s], end = starts[s + 1];
        if (begin == end) continue;
        for (int64_t j = begin; j < end; j++) out[j] = g[j] * y[j];
        float sum = sum_sequence(out + begin, end - begin);
        for (int64_t j = begin; j < end; j++) out[j] = (g[j] - sum) * y[j];
    }
}

/* sequence_softmax(y, starts, floor): y holds z before the call, one number a frame, and after the call the softmax
 * over the frames of each sequence */
static PyObject *sequence_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3);
    Py_ssize_t n, bounds;
    float floor, *y = floats(&arrays, args[0], &n);
    const int64_t *starts = y ? read_integers(&arrays, args[1], &bounds) : NULL;
    if (!starts || !rising(starts, bounds, n) || numbers(args + 2, 1, &floor) < 0) return fail(&arrays, "the sequences do not fit");
    Py_BEGIN_ALLOW_THREADS
    sequence_softmax_loop(y, starts, bounds - 1, floor);
    Py_END_ALLOW_THREADS
    DONE;
}

/* sequence_softmax_gradient(out, g, y, starts): write the gradient of z to out; g is the gradient of y */
static PyObject *sequence_softmax_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t n, bounds;
    float *data[3];
    if (same_length(&arrays, args, 3, 1, data, &n) < 0) return fail(&arrays, "");
    const int64_t *starts = read_integers(&arrays, args[3], &bounds);
    if (!starts || !rising(starts, bounds, n)) return fail(&arrays, "the sequences do not fit");
    Py_BEGIN_ALLOW_THREADS
    sequence_softmax_gradient_loop(data[0], data[1], data[2], starts, bounds - 1);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef steps_functions[] = {FUNCTION(activate), FUNCTION(differentiate), FUNCTION(softmax), FUNCTION(softmax_gradient),
                                 FUNCTION(picked_softmax_gradient), FUNCTION(sequence_softmax),
                                 FUNCTION(sequence_softmax_gradient), {NULL, NULL, 0, NULL}};
