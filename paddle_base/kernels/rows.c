/* Rows of matrices: tables, sparse inputs, and the column of a row that a label selects. */
#include "kernels.h"

FAST static void add_rows_loop(float *target, const int64_t *ids, const float *rows, Py_ssize_t count, Py_ssize_t width) {
    for (Py_ssize_t i = 0; i < count; i++) {
        float *to = target + ids[i] * width;
        const float *from = rows + i * width;
        for (Py_ssize_t j = 0; j < width; j++) to[j] += from[j];
    }
}

/* add_rows(target, ids, rows, width): add rows[i] to target[ids[i]]; `width` is the number of columns */
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

/* Add one item of a narrow row; every caller passes a constant as `width`. */
static inline __attribute__((always_inline)) void add_item(float *sum, const float *table, const int64_t *ids, int64_t k, int width,
                                                           const float *values) {
    for (int j = 0; j < width; j++) sum[j] += values ? table[ids[k] * width + j] * values[k] : table[ids[k] * width + j];
}

/* Sum two rows at once: while an addition for one row completes, the processor executes an addition for the other row. */
static inline __attribute__((always_inline)) void sum_narrow(float *out, const float *table, const int64_t *ids, const int64_t *starts,
                                                             Py_ssize_t rows, int width, const float *values) {
    for (Py_ssize_t r = 0; r < rows; r += 2) {
        float sum[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        int64_t k = starts[r], end = starts[r + 1], other = end, last = r + 1 < rows ? starts[r + 2] : end;
        for (; k < end && other < last; k++, other++) {
            add_item(sum[0], table, ids, k, width, values);
            add_item(sum[1], table, ids, other, width, values);
        }
        for (; k < end; k++) add_item(sum[0], table, ids, k, width, values);
        for (; other < last; other++) add_item(sum[1], table, ids, other, width, values);
        for (int j = 0; j < width; j++) out[r * width + j] = sum[0][j];
        for (int j = 0; j < width && r + 1 < rows; j++) out[(r + 1) * width + j] = sum[1][j];
    }
}

static inline __attribute__((always_inline)) void add_narrow(float *target, const float *rows, const int64_t *ids,
                                                             const int64_t *starts, Py_ssize_t count, int width, const float *values) {
    for (Py_ssize_t r = 0; r < count; r++)
        for (int64_t k = starts[r]; k < starts[r + 1]; k++)
            for (int j = 0; j < width; j++) target[ids[k] * width + j] += values ? rows[r * width + j] * values[k] : rows[r * width + j];
}

FAST static void sum_rows_loop(float *out, const float *table, const int64_t *ids, const int64_t *starts, Py_ssize_t rows,
                               Py_ssize_t width, const float *values) {
    if (width == 1) sum_narrow(out, table, ids, starts, rows, 1, values);
    if (width == 2) sum_narrow(out, table, ids, starts, rows, 2, values);
    if (width == 3) sum_narrow(out, table, ids, starts, rows, 3, values);
    if (width == 4) sum_narrow(out, table, ids, starts, rows, 4, values);
    for (Py_ssize_t r = 0; r < rows && width > 4; r++) {
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

/* sum_rows(out, table, ids, starts, width, values or None): out[i] is the sum of values[k] * table[ids[k]] over all k
 * in [starts[i], starts[i + 1]) */
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
    if (width == 1) add_narrow(target, rows, ids, starts, count, 1, values);
    if (width == 2) add_narrow(target, rows, ids, starts, count, 2, values);
    if (width == 3) add_narrow(target, rows, ids, starts, count, 3, values);
    if (width == 4) add_narrow(target, rows, ids, starts, count, 4, values);
    for (Py_ssize_t r = 0; r < count && width > 4; r++) {
        const float *from = rows + r * width;
        for (int64_t k = starts[r]; k < starts[r + 1]; k++) {
            float *to = target + ids[k] * width;
            float value = values ? values[k] : 1.0f;
            for (Py_ssize_t j = 0; j < width; j++) to[j] += from[j] * value;
        }
    }
}

/* add_outer(target, rows, ids, starts, width, values or None): add values[k] * rows[i] to target[ids[k]] for every k in
 * [starts[i], starts[i + 1]) */
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

FAST static void add_taken_loop(float *out, const float *table, const int64_t *ids, Py_ssize_t count, Py_ssize_t width) {
    for (Py_ssize_t i = 0; i < count; i++) {
        float *to = out + i * width;
        const float *from = table + ids[i] * width;
        for (Py_ssize_t j = 0; j < width; j++) to[j] += from[j];
    }
}

/* add_taken(out, table, ids, width): add table[ids[i]] to out[i]; `width` is the number of columns */
static PyObject *add_taken(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, all, n, width = PyLong_AsSsize_t(args[3]);
    float *out = floats(&arrays, args[0], &size);
    const float *table = out ? read_floats(&arrays, args[1], &all) : NULL;
    const int64_t *ids = table ? read_integers(&arrays, args[2], &n) : NULL;
    if (!ids || width < 1 || all % width || size != n * width) return fail(&arrays, "the rows do not fit the matrix");
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = in_range(ids, n, all / width);
    if (good) add_taken_loop(out, table, ids, n, width);
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the matrix");
    DONE;
}

FAST static void sum_stretches_loop(float *out, const float *rows, const int64_t *starts, Py_ssize_t count, Py_ssize_t width) {
    for (Py_ssize_t s = 0; s < count; s++, out += width) {
        for (Py_ssize_t j = 0; j < width; j++) out[j] = 0;
        for (int64_t row = starts[s]; row < starts[s + 1]; row++)
            for (Py_ssize_t j = 0; j < width; j++) out[j] += rows[row * width + j];
    }
}

/* sum_stretches(out, rows, starts, width): out[i] is the sum of the rows [starts[i], starts[i + 1]) */
static PyObject *sum_stretches(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, all, bounds, width = PyLong_AsSsize_t(args[3]);
    float *out = floats(&arrays, args[0], &size);
    const float *rows = out ? read_floats(&arrays, args[1], &all) : NULL;
    const int64_t *starts = rows ? read_integers(&arrays, args[2], &bounds) : NULL;
    if (!starts || width < 1 || all % width || size != (bounds - 1) * width || !rising(starts, bounds, all / width))
        return fail(&arrays, "the rows do not fit the stretches");
    Py_BEGIN_ALLOW_THREADS
    sum_stretches_loop(out, rows, starts, bounds - 1, width);
    Py_END_ALLOW_THREADS
    DONE;
}

FAST static void max_stretches_loop(float *out, int64_t *places, const float *rows, const int64_t *starts, Py_ssize_t count,
                                    Py_ssize_t width) {
    for (Py_ssize_t s = 0; s < count; s++, out += width, places += width) {
        int64_t row = starts[s];
        for (Py_ssize_t j = 0; j < width; j++) {
            out[j] = row < starts[s + 1] ? rows[row * width + j] : 0;
            places[j] = row < starts[s + 1] ? row : -1;
        }
        for (row++; row < starts[s + 1]; row++) {
            const float *from = rows + row * width;
            for (Py_ssize_t j = 0; j < width; j++) {
                int larger = from[j] > out[j];
                out[j] = larger ? from[j] : out[j];
                places[j] = larger ? row : places[j];
            }
        }
    }
}

/* max_stretches(out, places, rows, starts, width): write to out[i] the maximum of each column over the rows [starts[i],
 * starts[i + 1]), and to places[i] the first row with this maximum */
static PyObject *max_stretches(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(5);
    Py_ssize_t size, more, all, bounds, width = PyLong_AsSsize_t(args[4]);
    float *out = floats(&arrays, args[0], &size);
    int64_t *places = out ? integers(&arrays, args[1], &more) : NULL;
    const float *rows = places ? read_floats(&arrays, args[2], &all) : NULL;
    const int64_t *starts = rows ? read_integers(&arrays, args[3], &bounds) : NULL;
    if (!starts || width < 1 || all % width || size != (bounds - 1) * width || more != size || !rising(starts, bounds, all / width))
        return fail(&arrays, "the rows do not fit the stretches");
    Py_BEGIN_ALLOW_THREADS
    max_stretches_loop(out, places, rows, starts, bounds - 1, width);
    Py_END_ALLOW_THREADS
    DONE;
}

/* spread_maxima(out, gradient, places, width): out[places[i, j], j] = gradient[i, j], and zero elsewhere */
static PyObject *spread_maxima(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, n, more, width = PyLong_AsSsize_t(args[3]);
    float *out = floats(&arrays, args[0], &size);
    const float *gradient = out ? read_floats(&arrays, args[1], &n) : NULL;
    const int64_t *places = gradient ? read_integers(&arrays, args[2], &more) : NULL;
    if (!places || width < 1 || size % width || n % width || more != n) return fail(&arrays, "the gradient does not fit");
    int good = 1;
    Py_BEGIN_ALLOW_THREADS
    memset(out, 0, size * sizeof *out);
    for (Py_ssize_t i = 0; i < n && good; i++) {
        good = places[i] < size / width;
        if (good && places[i] >= 0) out[places[i] * width + i % width] = gradient[i];
    }
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the matrix");
    DONE;
}

FAST static void take_sum_loop(float *out, const float *table, const int64_t *ids, Py_ssize_t count, Py_ssize_t width,
                               const float *bias, const float *more, Py_ssize_t some) {
    for (Py_ssize_t i = 0; i < count; i++, out += width) {
        const float *from = table + ids[i] * width;
        if (bias)
            for (Py_ssize_t j = 0; j < width; j++) out[j] = from[j] + bias[j];
        else
            for (Py_ssize_t j = 0; j < width; j++) out[j] = from[j];
        if (i < some)
            for (Py_ssize_t j = 0; j < width; j++) out[j] += more[i * width + j];
    }
}

/* take_sum(out, table, ids, width, bias or None, more or None): out[i] = table[ids[i]] + bias + more[i] */
static PyObject *take_sum(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(6);
    Py_ssize_t size, all, n, rest, some = 0, width = PyLong_AsSsize_t(args[3]);
    const float *bias = NULL, *more = NULL;
    float *out = floats(&arrays, args[0], &size);
    const float *table = out ? read_floats(&arrays, args[1], &all) : NULL;
    const int64_t *ids = table ? read_integers(&arrays, args[2], &n) : NULL;
    if (!ids || width < 1 || all % width || size != n * width) return fail(&arrays, "the rows do not fit the matrix");
    if (args[4] != Py_None && (!(bias = read_floats(&arrays, args[4], &rest)) || rest != width))
        return fail(&arrays, "the bias does not fit");
    if (args[5] != Py_None && (!(more = read_floats(&arrays, args[5], &some)) || some % width || some > size))
        return fail(&arrays, "the rows to be added do not fit");
    if (!in_range(ids, n, all / width)) return fail(&arrays, "a row number is not in the matrix");
    Py_BEGIN_ALLOW_THREADS
    take_sum_loop(out, table, ids, n, width, bias, more, some / width);
    Py_END_ALLOW_THREADS
    DONE;
}

/* pick_columns(out, rows, columns, width): out[i] = rows[i, columns[i]] */
static PyObject *pick_columns(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, all, n, width = PyLong_AsSsize_t(args[3]);
    float *out = floats(&arrays, args[0], &size);
    const float *rows = out ? read_floats(&arrays, args[1], &all) : NULL;
    const int64_t *columns = rows ? read_integers(&arrays, args[2], &n) : NULL;
    if (!columns || size != n || all != n * width) return fail(&arrays, "the columns do not fit the rows");
    if (!in_range(columns, n, width)) return fail(&arrays, "a column is not in the matrix");
    for (Py_ssize_t i = 0; i < n; i++) out[i] = rows[i * width + columns[i]];
    DONE;
}

/* put_columns(out, values, columns, width): out[i, columns[i]] = values[i], and zero elsewhere */
static PyObject *put_columns(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, given, n, width = PyLong_AsSsize_t(args[3]);
    float *out = floats(&arrays, args[0], &size);
    const float *values = out ? read_floats(&arrays, args[1], &given) : NULL;
    const int64_t *columns = values ? read_integers(&arrays, args[2], &n) : NULL;
    if (!columns || given != n || size != n * width) return fail(&arrays, "the columns do not fit the rows");
    if (!in_range(columns, n, width)) return fail(&arrays, "a column is not in the matrix");
    memset(out, 0, size * sizeof *out);
    for (Py_ssize_t i = 0; i < n; i++) out[i * width + columns[i]] = values[i];
    DONE;
}

/* A block of columns is searched only if its maximum is larger than the maxima of all earlier blocks. The maximum of a
 * block is computed from several partial maxima (lanes), which the compiler turns into vectors. */
enum { BLOCK = 256, LANES = 32 };

/* Return the column of the row's first largest number, or of its first NaN. */
FAST static Py_ssize_t largest_of(const float *row, Py_ssize_t width) {
    Py_ssize_t at = 0, start = 0;
    float largest = row[0];
    for (; start + BLOCK <= width && !isnan(largest); start += BLOCK) {
        float maxima[LANES], block;
        int has_nan = 0;
        memcpy(maxima, row + start, sizeof maxima);
        for (Py_ssize_t j = start; j < start + BLOCK; j += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                float x = row[j + lane];
                has_nan |= x != x;
                maxima[lane] = x > maxima[lane] ? x : maxima[lane];
            }
        block = maxima[0];
        for (int lane = 0; lane < LANES; lane++) block = maxima[lane] > block ? maxima[lane] : block;
        if (has_nan)
            for (at = start; !isnan(row[at]);) at++;
        else if (block > largest)
            for (at = start; row[at] != block;) at++;
        largest = row[at];
    }
    for (; start < width && !isnan(largest); start++)
        if (!(row[start] <= largest)) largest = row[at = start];
    return at;
}

/* find_largest(columns, rows, width): write the column of each row's first largest number, or of its first NaN */
static PyObject *find_largest(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3);
    Py_ssize_t n, all, width = PyLong_AsSsize_t(args[2]);
    int64_t *columns = integers(&arrays, args[0], &n);
    const float *rows = columns ? read_floats(&arrays, args[1], &all) : NULL;
    if (!rows || width < 1 || all != n * width) return fail(&arrays, "the columns do not fit the rows");
    for (Py_ssize_t i = 0; i < n; i++, rows += width) columns[i] = largest_of(rows, width);
    DONE;
}

/* all_inside(ids, upper): return whether all ids are in [0, upper) */
static PyObject *all_inside(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2);
    Py_ssize_t n;
    int64_t upper = PyLong_AsLongLong(args[1]);
    const int64_t *ids = read_integers(&arrays, args[0], &n);
    if (!ids || PyErr_Occurred()) return fail(&arrays, "");
    int good = in_range(ids, n, upper);
    release(&arrays);
    return PyBool_FromLong(good);
}

PyMethodDef rows_functions[] = {FUNCTION(add_rows),      FUNCTION(sum_rows),      FUNCTION(add_outer),
                                FUNCTION(add_taken),     FUNCTION(take_sum),      FUNCTION(sum_stretches),
                                FUNCTION(max_stretches), FUNCTION(spread_maxima), FUNCTION(pick_columns),
                                FUNCTION(put_columns),   FUNCTION(find_largest),  FUNCTION(all_inside),
                                {NULL, NULL, 0, NULL}};
