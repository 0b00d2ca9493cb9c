/* Windows over the rows of sequences: sums of rows of tables, their maxima, and the gradients. */
#include "kernels.h"

/* The window of row r has the `length` rows from row r + first on; rows outside the sequence are ignored. */
typedef struct {
    const int64_t *index, *starts;
    Py_ssize_t sequences, distinct, width, first, length;
} Windows;

/* Write the sum of the window of a row to `to`. */
static inline __attribute__((always_inline)) void sum_window(float *to, const float *tables, const Windows *w, int64_t row,
                                                             int64_t begin, int64_t end) {
    for (Py_ssize_t j = 0; j < w->width; j++) to[j] = 0;
    for (Py_ssize_t k = 0; k < w->length; k++) {
        int64_t place = row + w->first + k;
        if (place < begin || place >= end) continue;
        const float *from = tables + (w->index[place] * w->length + k) * w->width;
        for (Py_ssize_t j = 0; j < w->width; j++) to[j] += from[j];
    }
}

FAST static void sum_windows_loop(float *out, const float *tables, Windows w) {
    for (Py_ssize_t s = 0; s < w.sequences; s++)
        for (int64_t row = w.starts[s]; row < w.starts[s + 1]; row++)
            sum_window(out + row * w.width, tables, &w, row, w.starts[s], w.starts[s + 1]);
}

/* room: scratch memory for two rows. Row numbers count from the start of the sequence and have 32 bits, because
 * processors compare 32-bit numbers faster than 64-bit numbers. */
FAST static void max_windows_loop(float *out, int64_t *places, const float *tables, Windows w, float *room) {
    int32_t *spots = (int32_t *)(room + w.width);
    for (Py_ssize_t s = 0; s < w.sequences; s++, out += w.width, places += w.width) {
        int64_t begin = w.starts[s], end = w.starts[s + 1];
        if (begin < end) sum_window(out, tables, &w, begin, begin, end);
        for (Py_ssize_t j = 0; j < w.width; j++) {
            if (begin == end) out[j] = 0;
            spots[j] = 0;
        }
        for (int32_t row = 1; row < end - begin; row++) {
            sum_window(room, tables, &w, begin + row, begin, end);
            for (Py_ssize_t j = 0; j < w.width; j++) {
                int larger = room[j] > out[j];
                out[j] = larger ? room[j] : out[j];
                spots[j] = larger ? row : spots[j];
            }
        }
        for (Py_ssize_t j = 0; j < w.width; j++) places[j] = begin < end ? begin + spots[j] : -1;
    }
}

enum { SHORT = 16 }; /* number of frames up to which scanning all of them is faster than visiting each maximum */

/* Compute the gradient of max_windows: add the gradient of each maximum to the elements of its window. room: scratch
 * memory of two rows */
FAST static void add_maxima_loop(float *tables, const float *gradient, const int64_t *places, Windows w, float *room) {
    int32_t *spots = (int32_t *)(room + w.width);
    for (Py_ssize_t s = 0; s < w.sequences; s++, gradient += w.width, places += w.width) {
        int64_t begin = w.starts[s], end = w.starts[s + 1];
        for (Py_ssize_t j = 0; j < w.width; j++) spots[j] = (int32_t)(places[j] - begin);
        for (int32_t row = 0; row < end - begin && end - begin <= SHORT; row++) {
            for (Py_ssize_t j = 0; j < w.width; j++) room[j] = spots[j] == row ? gradient[j] : 0;
            for (Py_ssize_t k = 0; k < w.length; k++) {
                int64_t place = begin + row + w.first + k;
                if (place < begin || place >= end) continue;
                float *to = tables + (w.index[place] * w.length + k) * w.width;
                for (Py_ssize_t j = 0; j < w.width; j++) to[j] += room[j];
            }
        }
        for (Py_ssize_t j = 0; j < w.width && end - begin > SHORT; j++)
            for (Py_ssize_t k = 0; k < w.length; k++) {
                int64_t place = places[j] + w.first + k;
                if (place < begin || place >= end) continue;
                tables[(w.index[place] * w.length + k) * w.width + j] += gradient[j];
            }
    }
}

enum { BLOCK = 32 }; /* number of columns whose weights and gradients fit into the nearest cache */

/* Compute the gradient of max_windows for few maxima without the gradient of the tables: add to d_weight and d_x. The
 * shape of weight and d_weight is (width, length * depth), transposed; the shape of x and d_x is (distinct, depth). */
FAST static void descend_maxima_loop(float *d_weight, float *d_x, const float *weight, const float *x, const float *gradient,
                                     const int64_t *places, Windows w, Py_ssize_t depth) {
    for (Py_ssize_t first = 0; first < w.width; first += BLOCK) {
        Py_ssize_t last = first + BLOCK < w.width ? first + BLOCK : w.width;
        for (Py_ssize_t s = 0; s < w.sequences; s++)
            for (Py_ssize_t j = first; j < last; j++) {
                int64_t row = places[s * w.width + j];
                float g = gradient[s * w.width + j];
                if (row < 0 || g == 0) continue;
                for (Py_ssize_t k = 0; k < w.length; k++) {
                    int64_t place = row + w.first + k;
                    if (place < w.starts[s] || place >= w.starts[s + 1]) continue;
                    Py_ssize_t at = (j * w.length + k) * depth, of = w.index[place] * depth;
                    for (Py_ssize_t i = 0; i < depth; i++) {
                        d_weight[at + i] += g * x[of + i];
                        d_x[of + i] += g * weight[at + i];
                    }
                }
            }
    }
}

FAST static void add_windows_loop(float *tables, const float *rows, Windows w) {
    for (Py_ssize_t s = 0; s < w.sequences; s++)
        for (int64_t row = w.starts[s]; row < w.starts[s + 1]; row++) {
            const float *from = rows + row * w.width;
            for (Py_ssize_t k = 0; k < w.length; k++) {
                int64_t place = row + w.first + k;
                if (place < w.starts[s] || place >= w.starts[s + 1]) continue;
                float *to = tables + (w.index[place] * w.length + k) * w.width;
                for (Py_ssize_t j = 0; j < w.width; j++) to[j] += from[j];
            }
        }
}

/* Get the windows from the arguments (index, starts, width, first, length, distinct). */
static int windows_of(Arrays *arrays, PyObject *const *args, Windows *w) {
    Py_ssize_t n, bounds;
    Py_ssize_t *sizes[] = {&w->width, &w->first, &w->length, &w->distinct};
    w->index = read_integers(arrays, args[0], &n);
    w->starts = w->index ? read_integers(arrays, args[1], &bounds) : NULL;
    if (!w->starts) return -1;
    for (int i = 0; i < 4; i++) *sizes[i] = PyLong_AsSsize_t(args[2 + i]);
    w->sequences = bounds - 1;
    if (PyErr_Occurred()) return -1;
    if (w->width > 0 && w->length > 0 && w->distinct >= 0 && rising(w->starts, bounds, n) && in_range(w->index, n, w->distinct))
        return 0;
    PyErr_SetString(PyExc_ValueError, "the windows do not fit: a row number is not in the tables, or sequences do not fill the rows");
    return -1;
}

enum { WINDOWS = 6 }; /* number of arguments that windows_of reads */

/* sum_windows(out, tables, windows...): write the sum of each window; `windows...` stands for the arguments of
 * windows_of */
static PyObject *sum_windows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2 + WINDOWS);
    Py_ssize_t size, all;
    Windows w;
    float *out = floats(&arrays, args[0], &size);
    const float *tables = out ? read_floats(&arrays, args[1], &all) : NULL;
    if (!tables || windows_of(&arrays, args + 2, &w) < 0) return fail(&arrays, "");
    if (all != w.length * w.distinct * w.width || size != w.starts[w.sequences] * w.width)
        return fail(&arrays, "the rows do not fit the tables");
    Py_BEGIN_ALLOW_THREADS
    sum_windows_loop(out, tables, w);
    Py_END_ALLOW_THREADS
    DONE;
}

/* add_windows(tables, rows, windows...): add each row to the elements of its window in the tables; `windows...` stands
 * for the arguments of windows_of */
static PyObject *add_windows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2 + WINDOWS);
    Py_ssize_t size, all;
    Windows w;
    float *tables = floats(&arrays, args[0], &all);
    const float *rows = tables ? read_floats(&arrays, args[1], &size) : NULL;
    if (!rows || windows_of(&arrays, args + 2, &w) < 0) return fail(&arrays, "");
    if (all != w.length * w.distinct * w.width || size != w.starts[w.sequences] * w.width)
        return fail(&arrays, "the rows do not fit the tables");
    Py_BEGIN_ALLOW_THREADS
    add_windows_loop(tables, rows, w);
    Py_END_ALLOW_THREADS
    DONE;
}

/* max_windows(out, places, tables, windows...): write the maximum of each column of the windows' sums in each sequence,
 * and the first row with this maximum; `windows...` stands for the arguments of windows_of */
static PyObject *max_windows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3 + WINDOWS);
    Py_ssize_t size, more, all;
    Windows w;
    float *out = floats(&arrays, args[0], &size);
    int64_t *places = out ? integers(&arrays, args[1], &more) : NULL;
    const float *tables = places ? read_floats(&arrays, args[2], &all) : NULL;
    if (!tables || windows_of(&arrays, args + 3, &w) < 0) return fail(&arrays, "");
    if (all != w.length * w.distinct * w.width || size != w.sequences * w.width || more != size)
        return fail(&arrays, "the maxima do not fit the tables");
    float *room = PyMem_Malloc(2 * w.width * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    Py_BEGIN_ALLOW_THREADS
    max_windows_loop(out, places, tables, w, room);
    Py_END_ALLOW_THREADS
    PyMem_Free(room);
    DONE;
}

/* add_maxima(tables, gradient, places, windows...): add the gradient of each maximum to the elements of its window in
 * the tables; `windows...` stands for the arguments of windows_of */
static PyObject *add_maxima(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3 + WINDOWS);
    Py_ssize_t size, more, all;
    Windows w;
    float *tables = floats(&arrays, args[0], &all);
    const float *gradient = tables ? read_floats(&arrays, args[1], &size) : NULL;
    const int64_t *places = gradient ? read_integers(&arrays, args[2], &more) : NULL;
    if (!places || windows_of(&arrays, args + 3, &w) < 0) return fail(&arrays, "");
    if (all != w.length * w.distinct * w.width || size != w.sequences * w.width || more != size)
        return fail(&arrays, "the maxima do not fit the tables");
    float *room = PyMem_Malloc(2 * w.width * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    Py_BEGIN_ALLOW_THREADS
    add_maxima_loop(tables, gradient, places, w, room);
    Py_END_ALLOW_THREADS
    PyMem_Free(room);
    DONE;
}

/* descend_maxima(d_weight, d_x, weight, x, gradient, places, windows...): add the gradients of the weight and of x;
 * `windows...` stands for the arguments of windows_of */
static PyObject *descend_maxima(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(6 + WINDOWS);
    Py_ssize_t weights, weights_too, rows, rows_too, size, more;
    Windows w;
    float *d_weight = floats(&arrays, args[0], &weights);
    float *d_x = d_weight ? floats(&arrays, args[1], &rows) : NULL;
    const float *weight = d_x ? read_floats(&arrays, args[2], &weights_too) : NULL;
    const float *x = weight ? read_floats(&arrays, args[3], &rows_too) : NULL;
    const float *gradient = x ? read_floats(&arrays, args[4], &size) : NULL;
    const int64_t *places = gradient ? read_integers(&arrays, args[5], &more) : NULL;
    if (!places || windows_of(&arrays, args + 6, &w) < 0) return fail(&arrays, "");
    Py_ssize_t depth = w.distinct ? rows / w.distinct : 0;
    if (rows != rows_too || rows != depth * w.distinct || weights != weights_too || (depth && weights != w.width * w.length * depth) ||
        size != w.sequences * w.width || more != size)
        return fail(&arrays, "the maxima do not fit the weight");
    Py_BEGIN_ALLOW_THREADS
    descend_maxima_loop(d_weight, d_x, weight, x, gradient, places, w, depth);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef windows_functions[] = {FUNCTION(sum_windows), FUNCTION(add_windows), FUNCTION(max_windows), FUNCTION(add_maxima),
                                   FUNCTION(descend_maxima), {NULL, NULL, 0, NULL}};
