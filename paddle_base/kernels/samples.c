/* Select the samples of a batch, and list their items' indexes. No function of this file releases the interpreter's
 * lock. Another thread could take the lock and keep it for longer than the whole function takes. */
#include "kernels.h"

/* pick_samples(pool, head, draws): for each k, exchange pool[head + k] with pool[head + k + draws[k] mod n], where n is
 * the number of elements of the pool from head + k on */
static PyObject *pick_samples(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3);
    Py_ssize_t all, taken, head = PyLong_AsSsize_t(args[1]);
    int64_t *pool = integers(&arrays, args[0], &all);
    const uint32_t *draws = pool ? read_naturals(&arrays, args[2], &taken) : NULL;
    if (!draws || PyErr_Occurred() || head < 0 || taken > all - head) return fail(&arrays, "the pool has fewer samples");
    for (Py_ssize_t i = head; i < head + taken; i++) {
        Py_ssize_t picked = i + draws[i - head] % (all - i);
        int64_t sample = pool[picked];
        pool[picked] = pool[i];
        pool[i] = sample;
    }
    DONE;
}

/* find_spans(starts, offsets, bounds, rows): write the starts of the items of the picked rows, and the offsets of these
 * rows in an array of all picked items */
static PyObject *find_spans(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t places, more, all, picked;
    int64_t *starts = integers(&arrays, args[0], &places);
    int64_t *offsets = starts ? integers(&arrays, args[1], &more) : NULL;
    const int64_t *bounds = offsets ? read_integers(&arrays, args[2], &all) : NULL;
    const int64_t *rows = bounds ? read_integers(&arrays, args[3], &picked) : NULL;
    if (!rows || places != picked || more != picked + 1) return fail(&arrays, "the spans do not fit the rows");
    if (!in_range(rows, picked, all - 1)) return fail(&arrays, "a row is not in the store");
    offsets[0] = 0;
    for (Py_ssize_t i = 0; i < picked; i++) {
        starts[i] = bounds[rows[i]];
        offsets[i + 1] = offsets[i] + bounds[rows[i] + 1] - starts[i];
    }
    DONE;
}

/* list_places(places, starts, offsets): write starts[i], starts[i] + 1, ... to places[offsets[i]:offsets[i + 1]] */
static PyObject *list_places(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3);
    Py_ssize_t size, rows, bounds;
    int64_t *places = integers(&arrays, args[0], &size);
    const int64_t *starts = places ? read_integers(&arrays, args[1], &rows) : NULL;
    const int64_t *offsets = starts ? read_integers(&arrays, args[2], &bounds) : NULL;
    if (!offsets || bounds != rows + 1 || !rising(offsets, bounds, size)) return fail(&arrays, "the offsets do not fit");
    for (Py_ssize_t row = 0; row < rows; row++)
        for (int64_t place = starts[row], to = offsets[row]; to < offsets[row + 1]; to++, place++) places[to] = place;
    DONE;
}

enum { AHEAD = 4, LINE = 64 / sizeof(int32_t) };

/* Prefetch the next rows. They are anywhere in the store, so the processor cannot predict their addresses. */
static void fetch_spans(const int32_t *ids, Py_ssize_t all, const int64_t *starts, const int64_t *offsets, Py_ssize_t row) {
    int64_t length = offsets[row + 1] - offsets[row];
    if (starts[row] < 0 || length > all - starts[row]) return;
    for (int64_t i = 0; i < length; i += LINE) __builtin_prefetch(ids + starts[row] + i);
}

/* Join the spans; return 0 if a span is not in the store. */
FAST static int join_rows(int64_t *restrict out, const int32_t *restrict ids, Py_ssize_t all, const int64_t *starts,
                          const int64_t *offsets, Py_ssize_t rows) {
    for (Py_ssize_t row = 0; row < rows; row++) {
        int64_t start = starts[row], length = offsets[row + 1] - offsets[row];
        if (start < 0 || length > all - start) return 0;
        if (row + AHEAD < rows) fetch_spans(ids, all, starts, offsets, row + AHEAD);
        for (int64_t i = 0; i < length; i++) out[i] = ids[start + i];
        out += length;
    }
    return 1;
}

/* join_spans(out, ids, starts, offsets): out[offsets[i]:offsets[i + 1]] = ids[starts[i]:...] */
static PyObject *join_spans(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t size, all, rows, bounds;
    int64_t *out = integers(&arrays, args[0], &size);
    const int32_t *ids = out ? read_small_integers(&arrays, args[1], &all) : NULL;
    const int64_t *starts = ids ? read_integers(&arrays, args[2], &rows) : NULL;
    const int64_t *offsets = starts ? read_integers(&arrays, args[3], &bounds) : NULL;
    if (!offsets || bounds != rows + 1 || !rising(offsets, bounds, size)) return fail(&arrays, "the offsets do not fit");
    if (!join_rows(out, ids, all, starts, offsets, rows)) return fail(&arrays, "a span is not in the store");
    DONE;
}

/* slide_spans(store, starts, offsets, words): move the items of the spans to the start of the store, one span after the
 * other. An item has `words` elements of the store. Span i has the items from starts[i] on, of which no earlier span
 * has one, and gets the place offsets[i], which is not after starts[i]. */
static PyObject *slide_spans(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4);
    Py_ssize_t all, rows, bounds, words = PyLong_AsSsize_t(args[3]);
    uint32_t *store = words > 0 ? naturals(&arrays, args[0], &all) : NULL;
    const int64_t *starts = store ? read_integers(&arrays, args[1], &rows) : NULL;
    const int64_t *offsets = starts ? read_integers(&arrays, args[2], &bounds) : NULL;
    if (!offsets || bounds != rows + 1 || !rising(offsets, bounds, offsets[rows]))
        return fail(&arrays, "the offsets do not fit");
    for (Py_ssize_t row = 0; row < rows; row++) {
        int64_t length = offsets[row + 1] - offsets[row];
        if (starts[row] < offsets[row] || length > all / words - starts[row])
            return fail(&arrays, "a span is not in the store");
        memmove(store + offsets[row] * words, store + starts[row] * words, length * words * sizeof *store);
    }
    DONE;
}

/* Write the number of sequences with more than t frames to live[t], for t from 0 to `longest`. */
static void count_live(int64_t *live, const int64_t *starts, Py_ssize_t sequences, int64_t longest) {
    memset(live, 0, (longest + 1) * sizeof *live);
    for (Py_ssize_t s = 0; s < sequences; s++) live[starts[s + 1] - starts[s]]++;
    int64_t longer = 0; /* the number of sequences with more than t frames */
    for (int64_t t = longest; t >= 0; t--) {
        int64_t equal = live[t];
        live[t] = longer;
        longer += equal;
    }
}

/* pack_order(order, begins, rows, places, previous, starts, reversed) -> number of steps; see samples.py. `begins` and
 * `previous` have more elements than are written. */
static PyObject *pack_order(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(7);
    Py_ssize_t sequences, of_begins, frames, of_places, of_previous, bounds;
    int64_t *order = integers(&arrays, args[0], &sequences), *begins = order ? integers(&arrays, args[1], &of_begins) : NULL;
    int64_t *rows = begins ? integers(&arrays, args[2], &frames) : NULL, *places = rows ? integers(&arrays, args[3], &of_places) : NULL;
    int64_t *previous = places ? integers(&arrays, args[4], &of_previous) : NULL;
    const int64_t *starts = previous ? read_integers(&arrays, args[5], &bounds) : NULL;
    int is_reversed = starts ? PyObject_IsTrue(args[6]) : -1;
    if (is_reversed < 0 || bounds != sequences + 1 || !rising(starts, bounds, frames) || of_begins != frames + 1 || of_places != frames ||
        of_previous != frames)
        return fail(&arrays, "the sequences do not fit their arrays");
    int64_t steps = 0;
    for (Py_ssize_t s = 0; s < sequences; s++) steps = starts[s + 1] - starts[s] > steps ? starts[s + 1] - starts[s] : steps;
    int64_t *live = PyMem_Malloc(2 * (steps + 1) * sizeof *live), *next = live + steps + 1;
    if (!live) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    count_live(live, starts, sequences, steps);
    memcpy(next, live, (steps + 1) * sizeof *next); /* sequences of t frames follow all longer ones */
    for (Py_ssize_t s = 0; s < sequences; s++) order[next[starts[s + 1] - starts[s]]++] = s;
    begins[0] = 0;
    for (int64_t t = 0; t < steps; t++) {
        int64_t at = begins[t];
        begins[t + 1] = at + live[t];
        for (int64_t k = 0; k < live[t]; k++) {
            int64_t row = is_reversed ? starts[order[k] + 1] - 1 - t : starts[order[k]] + t;
            rows[at + k] = row;
            places[row] = at + k;
            if (t) previous[at - live[0] + k] = begins[t - 1] + k;
        }
    }
    PyMem_Free(live);
    release(&arrays);
    return PyLong_FromLongLong(steps);
}

PyMethodDef samples_functions[] = {FUNCTION(pick_samples), FUNCTION(find_spans), FUNCTION(list_places),
                                   FUNCTION(join_spans), FUNCTION(slide_spans), FUNCTION(pack_order),
                                   {NULL, NULL, 0, NULL}};
