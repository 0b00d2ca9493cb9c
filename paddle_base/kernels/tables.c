/* Read, write, add and divide rows of large tables, without a pass over the whole table. Row numbers are uint32, as in
 * messages. */
#include "kernels.h"

/* number of rows that are prefetched, because the processor cannot predict their addresses; of several lists together */
enum { AHEAD = 8, AHEAD_OF_ALL = 12 };

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

/* ----- Several lists of rows ----- */

/* Lists of rows with rising numbers, which are read together. A tournament finds the next row: leaf k has the next number of
 * list k, and each node has the least of its children. The lowest bits of a key are the number of its list, so that rows of
 * equal numbers come in the order of the lists. */
typedef struct {
    const uint32_t *id, *end; /* the next number of the list, and the end of its numbers */
    const float *row;         /* the row of the next number */
} List;

typedef struct {
    Py_ssize_t count, leaves; /* the leaves are a power of two */
    List *list;
    const float **found; /* the rows with the next number, one of each list that has it */
    uint64_t *keys;      /* keys[1] is the root, keys[leaves + k] is the leaf of list k */
} Lists;

enum { COLUMNS = 256 }; /* columns that are summed at a time */

static const uint64_t END = UINT64_MAX; /* the key after the last number of a list */

static uint64_t key_of(const List *list, Py_ssize_t k) { return list->id < list->end ? (uint64_t)*list->id << 32 | (uint64_t)k : END; }

static void set_node(Lists *lists, Py_ssize_t node) {
    uint64_t one = lists->keys[2 * node], other = lists->keys[2 * node + 1];
    lists->keys[node] = one < other ? one : other;
}

static void begin_lists(Lists *lists) {
    for (Py_ssize_t node = 0; node < 2 * lists->leaves; node++) lists->keys[node] = END;
    for (Py_ssize_t k = 0; k < lists->count; k++) lists->keys[lists->leaves + k] = key_of(&lists->list[k], k);
    for (Py_ssize_t node = lists->leaves - 1; node > 0; node--) set_node(lists, node);
}

/* Return how many rows of each list are prefetched; more requests at a time would take longer. */
static Py_ssize_t ahead_of(const Lists *lists) {
    return lists->count < 2 ? AHEAD : lists->count > AHEAD_OF_ALL ? 1 : AHEAD_OF_ALL / lists->count;
}

/* Move all lists behind the next number. Set `id` to the number, and `found` to its rows; return how many there are, or 0 at
 * the end. `table`: NULL, or the table with these rows, whose later rows are prefetched, `ahead` rows of each list. */
static inline Py_ssize_t next_rows(Lists *lists, Py_ssize_t width, uint32_t *id, const float *table, Py_ssize_t ahead) {
    Py_ssize_t found = 0;
    uint64_t key = lists->keys[1], row = key >> 32;
    *id = (uint32_t)row;
    /* the count bounds `found` if a list has a number twice */
    for (; key != END && key >> 32 == row && found < lists->count; key = lists->keys[1]) {
        Py_ssize_t k = (Py_ssize_t)(uint32_t)key;
        List *list = &lists->list[k];
        lists->found[found++] = list->row;
        if (list->end - list->id > ahead) {
            ask_row(list->row + ahead * width, width);
            if (table) ask_row(table + list->id[ahead] * width, width);
        }
        list->id++;
        list->row += width;
        lists->keys[lists->leaves + k] = key_of(list, k);
        for (Py_ssize_t node = (lists->leaves + k) / 2; node > 0; node /= 2) set_node(lists, node);
    }
    return found;
}

/* Add the columns [start, stop) of several rows, in their order. */
static inline void sum_columns(float *restrict sum, const float *const *rows, Py_ssize_t count, Py_ssize_t start, Py_ssize_t stop) {
    for (Py_ssize_t j = start; j < stop; j++) sum[j - start] = rows[0][j];
    for (Py_ssize_t i = 1; i < count; i++)
        for (Py_ssize_t j = start; j < stop; j++) sum[j - start] += rows[i][j];
}

FAST static Py_ssize_t merge_loop(uint32_t *ids, float *rows, Lists *lists, Py_ssize_t width) {
    Py_ssize_t n = 0, found, ahead = ahead_of(lists);
    uint32_t row;
    for (; (found = next_rows(lists, width, &row, NULL, ahead)); n++) {
        ids[n] = row;
        sum_columns(rows + n * width, lists->found, found, 0, width);
    }
    return n;
}

FAST static void descend_loop(float *table, Py_ssize_t width, float rate, Lists *lists) {
    Py_ssize_t ahead = ahead_of(lists), found;
    uint32_t row;
    while ((found = next_rows(lists, width, &row, table, ahead))) {
        float *to = table + row * width, sum[COLUMNS];
        for (Py_ssize_t start = 0; start < width; start += COLUMNS) {
            Py_ssize_t stop = start + COLUMNS < width ? start + COLUMNS : width;
            const float *from = lists->found[0] + start;
            if (found > 1) {
                sum_columns(sum, lists->found, found, start, stop);
                from = sum;
            }
            for (Py_ssize_t j = start; j < stop; j++) to[j] -= from[j - start] * rate;
        }
    }
}

static int has_all_below(const Lists *lists, Py_ssize_t upper) {
    int good = 1;
    for (Py_ssize_t k = 0; k < lists->count; k++) good &= below(lists->list[k].id, lists->list[k].end - lists->list[k].id, upper);
    return good;
}

/* Take the lists, a tuple of tuples (ids, rows); return the number of all their rows, or -1 with an exception set. `held` has
 * room for two arrays of each list. */
static Py_ssize_t take_lists(Held *held, Lists *lists, PyObject *given, Py_ssize_t width) {
    Py_ssize_t all = 0, many, size;
    for (Py_ssize_t k = 0; k < lists->count; k++) {
        PyObject *one = PyTuple_GET_ITEM(given, k);
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 2) {
            PyErr_SetString(PyExc_TypeError, "a list of rows is a tuple of their numbers and the rows");
            return -1;
        }
        const uint32_t *ids = hold_naturals(held, PyTuple_GET_ITEM(one, 0), &many);
        const float *rows = ids ? hold_floats(held, PyTuple_GET_ITEM(one, 1), 0, &size) : NULL;
        if (!rows) return -1;
        if (size / width != many || size % width) {
            PyErr_SetString(PyExc_ValueError, "the rows do not fit their numbers");
            return -1;
        }
        lists->list[k] = (List){ids, ids + many, rows};
        all += many;
    }
    return all;
}

/* Allocate the arrays of `count` lists, and views for their arrays; return the memory, or NULL with an exception set. */
static void *allocate_lists(Lists *lists, Held *held, Py_ssize_t count) {
    *lists = (Lists){.count = count, .leaves = 2}; /* at least one node is above the leaves */
    while (lists->leaves < count) lists->leaves *= 2;
    size_t places = (size_t)(count ? count : 1);
    size_t each = 2 * sizeof *held->views + sizeof *lists->list + sizeof *lists->found;
    size_t keys = 2 * (size_t)lists->leaves * sizeof *lists->keys;
    char *memory = PyMem_Calloc(places * each + keys, 1);
    if (!memory) return PyErr_NoMemory();
    *held = (Held){.views = (Py_buffer *)memory, .room = 2 * count};
    lists->keys = (uint64_t *)(held->views + 2 * places);
    lists->list = (List *)(lists->keys + 2 * lists->leaves);
    lists->found = (const float **)(lists->list + places);
    return memory;
}

/* merge_rows(ids, rows, width, lists): write the union of the ids of all lists in ascending order to `ids`, and the sums of
 * their rows to `rows`. `lists`: a tuple of tuples (ids, rows). Return the size of the union. */
static PyObject *merge_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t room, size, all = -1, n = 0, width = PyLong_AsSsize_t(args[2]);
    uint32_t *ids = naturals(&arrays, args[0], &room);
    float *rows = ids ? floats(&arrays, args[1], &size) : NULL;
    if (!rows || width < 1 || !PyTuple_Check(args[3])) return fail(&arrays, "there is no room for the rows, or no lists");
    Lists lists;
    Held held;
    void *memory = allocate_lists(&lists, &held, PyTuple_GET_SIZE(args[3]));
    if (memory) all = take_lists(&held, &lists, args[3], width);
    int good = all >= 0 && room >= all && size / width >= all;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        begin_lists(&lists);
        n = all ? merge_loop(ids, rows, &lists, width) : 0;
        Py_END_ALLOW_THREADS
    }
    if (memory) release_held(&held);
    PyMem_Free(memory);
    if (!good) return fail(&arrays, "there is no room for the rows");
    release(&arrays);
    return PyLong_FromSsize_t(n);
}

/* descend_rows(table, width, rate, lists): subtract rate * s from each row of the table, where s is the sum, over all lists,
 * of the rows with the id of that row. `lists`: a tuple of tuples (ids, rows). */
static PyObject *descend_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size;
    float rate, *table = floats(&arrays, args[0], &size);
    Py_ssize_t width = table ? PyLong_AsSsize_t(args[1]) : 0;
    if (!table || width < 1 || size % width || numbers(args + 2, 1, &rate) < 0 || !PyTuple_Check(args[3]))
        return fail(&arrays, "the table does not have rows of this width, or there are no lists");
    Lists lists;
    Held held;
    void *memory = allocate_lists(&lists, &held, PyTuple_GET_SIZE(args[3]));
    int good = memory && take_lists(&held, &lists, args[3], width) >= 0;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        good = has_all_below(&lists, size / width);
        begin_lists(&lists);
        if (good) descend_loop(table, width, rate, &lists);
        Py_END_ALLOW_THREADS
    }
    if (memory) release_held(&held);
    PyMem_Free(memory);
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
