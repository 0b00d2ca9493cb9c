/* Read, write, add and divide rows of large tables, without a pass over the whole table. Row numbers are uint32, as in
 * messages. */
#include "kernels.h"

/* number of rows that are prefetched, because the processor cannot predict their addresses; for each of several lists */
enum { AHEAD = 8, AHEAD_OF_EACH = 4 };

#if defined(__GNUC__)
#define ASK(address) __builtin_prefetch(address)
#else
#define ASK(address)
#endif

static int below(const uint32_t *ids, Py_ssize_t count, Py_ssize_t upper) {
    uint32_t most = 0;
    for (Py_ssize_t i = 0; i < count; i++) most = ids[i] > most ? ids[i] : most;
    return !count || (Py_ssize_t)most < upper;
}

static void ask_row(const float *row, Py_ssize_t width) {
    for (Py_ssize_t j = 0; j < width && j < 64; j += 16) ASK(row + j);
}

FAST static void take_loop(float *out, const float *table, const uint32_t *ids, Py_ssize_t count, Py_ssize_t width) {
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count) ask_row(table + ids[i + AHEAD] * width, width);
        const float *from = table + ids[i] * width;
        for (Py_ssize_t j = 0; j < width; j++) out[i * width + j] = from[j];
    }
}

FAST static void put_loop(float *table, const float *rows, const uint32_t *ids, Py_ssize_t count, Py_ssize_t width) {
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count) ask_row(table + ids[i + AHEAD] * width, width);
        float *to = table + ids[i] * width;
        for (Py_ssize_t j = 0; j < width; j++) to[j] = rows[i * width + j];
    }
}

/* take_rows(out, table, ids, width): out[i] = table[ids[i]]; `width` is the number of columns */
static PyObject *take_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, all, n, width = PyLong_AsSsize_t(args[3]);
    float *out = floats(&arrays, args[0], &size);
    const float *table = out ? read_floats(&arrays, args[1], &all) : NULL;
    const uint32_t *ids = table ? read_naturals(&arrays, args[2], &n) : NULL;
    if (!ids || width < 1 || all % width || size != n * width) return fail(&arrays, "the rows do not fit the table");
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = below(ids, n, all / width);
    if (good) take_loop(out, table, ids, n, width);
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the table");
    DONE;
}

/* put_rows(table, rows, ids, width): table[ids[i]] = rows[i]; `width` is the number of columns */
static PyObject *put_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, all, n, width = PyLong_AsSsize_t(args[3]);
    float *table = floats(&arrays, args[0], &all);
    const float *rows = table ? read_floats(&arrays, args[1], &size) : NULL;
    const uint32_t *ids = rows ? read_naturals(&arrays, args[2], &n) : NULL;
    if (!ids || width < 1 || all % width || size != n * width) return fail(&arrays, "the rows do not fit the table");
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = below(ids, n, all / width);
    if (good) put_loop(table, rows, ids, n, width);
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the table");
    DONE;
}

FAST static Py_ssize_t merge_loop(uint32_t *ids, float *rows, const uint32_t *a, const float *of_a, Py_ssize_t many_a,
                                  const uint32_t *b, const float *of_b, Py_ssize_t many_b, Py_ssize_t width) {
    Py_ssize_t i = 0, k = 0, n = 0;
    while (i < many_a || k < many_b) {
        int from_a = k >= many_b || (i < many_a && a[i] <= b[k]);
        int from_b = i >= many_a || (k < many_b && b[k] <= a[i]);
        const float *one = from_a ? of_a + i * width : of_b + k * width, *other = of_b + k * width;
        float *to = rows + n * width;
        ids[n++] = from_a ? a[i] : b[k];
        if (from_a && from_b)
            for (Py_ssize_t j = 0; j < width; j++) to[j] = one[j] + other[j];
        else
            for (Py_ssize_t j = 0; j < width; j++) to[j] = one[j];
        i += from_a;
        k += from_b;
    }
    return n;
}

/* merge_rows(ids, rows, ids of a, rows of a, ids of b, rows of b, width): write the union of the ids of a and b in
 * ascending order to `ids`, and their rows to `rows`; rows with equal ids are added. Return the size of the union. */
static PyObject *merge_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(7);
    Py_ssize_t room, size, many[2], sizes[2], n, width = PyLong_AsSsize_t(args[6]);
    const uint32_t *ids[2];
    const float *rows[2];
    uint32_t *out_ids = naturals(&arrays, args[0], &room);
    float *out = out_ids ? floats(&arrays, args[1], &size) : NULL;
    if (!out) return fail(&arrays, "");
    for (int i = 0; i < 2; i++) {
        ids[i] = read_naturals(&arrays, args[2 + 2 * i], &many[i]);
        rows[i] = ids[i] ? read_floats(&arrays, args[3 + 2 * i], &sizes[i]) : NULL;
        if (!rows[i] || width < 1 || sizes[i] != many[i] * width) return fail(&arrays, "the rows do not fit their numbers");
    }
    if (room < many[0] + many[1] || size < room * width) return fail(&arrays, "there is no room for the rows");
    Py_BEGIN_ALLOW_THREADS
    n = merge_loop(out_ids, out, ids[0], rows[0], many[0], ids[1], rows[1], many[1], width);
    Py_END_ALLOW_THREADS
    release(&arrays);
    return PyLong_FromSsize_t(n);
}

enum { WIDEST = 1024, LISTS = (MOST - 1) / 2 };

/* The lists of `descend_loop`: their numbers and rows, the position in each list, and the next number of each list. */
typedef struct {
    int count;
    const uint32_t *ids[LISTS];
    const float *rows[LISTS];
    Py_ssize_t many[LISTS], at[LISTS];
    uint64_t next[LISTS]; /* NONE after the last number */
} Lists;

static const uint64_t NONE = (uint64_t)1 << 32; /* above every number */

/* move to the next number of list k, and ask for the row of the table that comes some rows later */
static void pass_on(Lists *lists, int k, const float *table, Py_ssize_t width, Py_ssize_t ahead) {
    Py_ssize_t at = ++lists->at[k], many = lists->many[k];
    lists->next[k] = at < many ? lists->ids[k][at] : NONE;
    if (at + ahead < many) ask_row(table + lists->ids[k][at + ahead] * width, width);
}

FAST static void descend_loop(float *table, Py_ssize_t width, float rate, Lists *lists) {
    /* more requests at a time, for all lists together, would take longer */
    Py_ssize_t ahead = lists->count > 1 ? AHEAD_OF_EACH : AHEAD;
    for (;;) {
        uint64_t row = lists->next[0];
        int first = 0;
        for (int k = 1; k < lists->count; k++) {
            int is_less = lists->next[k] < row;
            row = is_less ? lists->next[k] : row;
            first = is_less ? k : first;
        }
        if (row == NONE) return;
        float *to = table + row * width;
        const float *from = lists->rows[first] + lists->at[first] * width;
        float sum[WIDEST];
        int others = 0;
        for (int k = first + 1; k < lists->count; k++) others += lists->next[k] == row;
        pass_on(lists, first, table, width, ahead);
        if (others) {
            for (Py_ssize_t j = 0; j < width; j++) sum[j] = from[j];
            for (int k = first + 1; k < lists->count; k++) {
                if (lists->next[k] != row) continue;
                const float *more = lists->rows[k] + lists->at[k] * width;
                for (Py_ssize_t j = 0; j < width; j++) sum[j] += more[j];
                pass_on(lists, k, table, width, ahead);
            }
            from = sum;
        }
        for (Py_ssize_t j = 0; j < width; j++) to[j] -= from[j] * rate;
    }
}

/* descend_rows(table, width, rate, ids, rows, more ids, more rows, ...): subtract rate * s from each row of the table,
 * where s is the sum, over all lists, of the rows with the id of that row */
static PyObject *descend_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Lists lists = {.count = (int)(count - 3) / 2};
    NEED(3 + 2 * lists.count);
    Py_ssize_t all, size;
    float rate;
    float *table = lists.count >= 1 && lists.count <= LISTS ? floats(&arrays, args[0], &all) : NULL;
    Py_ssize_t width = table ? PyLong_AsSsize_t(args[1]) : 0;
    if (!table || width < 1 || width > WIDEST || all % width || numbers(args + 2, 1, &rate) < 0)
        return fail(&arrays, "the table does not have rows of this width, or the number of lists is out of range");
    for (int k = 0; k < lists.count; k++) {
        lists.ids[k] = read_naturals(&arrays, args[3 + 2 * k], &lists.many[k]);
        lists.rows[k] = lists.ids[k] ? read_floats(&arrays, args[4 + 2 * k], &size) : NULL;
        if (!lists.rows[k] || size != lists.many[k] * width) return fail(&arrays, "the rows do not fit their numbers");
        lists.next[k] = lists.many[k] ? lists.ids[k][0] : NONE;
    }
    int good = 1;
    Py_BEGIN_ALLOW_THREADS
    for (int k = 0; k < lists.count; k++) good &= below(lists.ids[k], lists.many[k], all / width);
    if (good) descend_loop(table, width, rate, &lists);
    Py_END_ALLOW_THREADS
    if (!good) return fail(&arrays, "a row number is not in the table");
    DONE;
}

/* is_rising(ids, upper): return whether each id is larger than the previous id, and all ids are below `upper` */
static PyObject *is_rising(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2);
    Py_ssize_t n, upper = PyLong_AsSsize_t(args[1]);
    const uint32_t *ids = read_naturals(&arrays, args[0], &n);
    if (!ids || PyErr_Occurred()) return fail(&arrays, "");
    int good = !n || (Py_ssize_t)ids[n - 1] < upper;
    for (Py_ssize_t i = 1; i < n; i++) good &= ids[i] > ids[i - 1];
    release(&arrays);
    return PyBool_FromLong(good);
}

/* deal_rows(order, local, starts, ids, places): divide rows among owners; paddle_base/kernels/tables.py describes the arrays */
static PyObject *deal_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(5);
    Py_ssize_t n, more, bounds, many, parts;
    uint32_t *order = naturals(&arrays, args[0], &n);
    uint32_t *local = order ? naturals(&arrays, args[1], &more) : NULL;
    int64_t *starts = local ? integers(&arrays, args[2], &bounds) : NULL;
    const uint32_t *ids = starts ? read_naturals(&arrays, args[3], &many) : NULL;
    const int64_t *places = ids ? read_integers(&arrays, args[4], &parts) : NULL;
    if (!places || n != many || more != n || parts < 1 || bounds != parts + 1 || !in_range(places, parts, parts))
        return fail(&arrays, "the lengths of the arrays do not fit each other");
    uint32_t by = (uint32_t)parts;
    Py_BEGIN_ALLOW_THREADS
    memset(starts, 0, bounds * sizeof *starts);
    for (Py_ssize_t i = 0; i < n; i++) starts[places[ids[i] % by]]++;
    for (int64_t p = 0, sum = 0; p < parts; p++) {
        int64_t here = starts[p];
        starts[p] = sum;
        sum += here;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t at = starts[places[ids[i] % by]]++;
        order[at] = (uint32_t)i;
        local[at] = ids[i] / by;
    }
    memmove(starts + 1, starts, parts * sizeof *starts); /* each start is now the start of the next owner */
    starts[0] = 0;
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef tables_functions[] = {FUNCTION(take_rows), FUNCTION(put_rows),  FUNCTION(merge_rows),
                                  FUNCTION(is_rising), FUNCTION(deal_rows), FUNCTION(descend_rows), {NULL, NULL, 0, NULL}};
