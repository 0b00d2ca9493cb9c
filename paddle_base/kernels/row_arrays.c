/* Arrays of rows on the wire: the rows of one of several owners are packed into an array, and unpacked from one.
 * row_arrays.py describes the form of the array and the fields of a table. */
#include "kernels.h"

enum { ORDER, LOCAL, STARTS, ROWS, WIDTH, IDS, FIELDS };

typedef float Unaligned __attribute__((aligned(1))); /* an array in a message is at any address */

/* The rows of a table that belong to the owner. */
typedef struct {
    Py_ssize_t count, width;
    const uint32_t *order, *local, *ids; /* ids: NULL if the rows are numbered by `order` itself */
    float *rows;
    Py_ssize_t many_ids, many_rows;
} Part;

/* Take a table from its tuple; return 0, or -1 with an exception set. */
static int take_part(Held *held, PyObject *fields, Py_ssize_t owner, int is_writable, Part *part) {
    if (!PyTuple_Check(fields) || PyTuple_GET_SIZE(fields) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a table is not a tuple of its fields");
        return -1;
    }
    PyObject *const *field = &PyTuple_GET_ITEM(fields, 0);
    Py_ssize_t many, more, bounds, size;
    const int64_t *starts;
    if (!(part->order = hold_naturals(held, field[ORDER], &many))) return -1;
    if (!(part->local = hold_naturals(held, field[LOCAL], &more))) return -1;
    if (!(starts = hold_integers(held, field[STARTS], 0, &bounds))) return -1;
    if (!(part->rows = hold_floats(held, field[ROWS], is_writable, &size))) return -1;
    part->ids = NULL;
    if (field[IDS] != Py_None && !(part->ids = hold_naturals(held, field[IDS], &part->many_ids))) return -1;
    part->width = PyLong_AsSsize_t(field[WIDTH]);
    if (part->width == -1 && PyErr_Occurred()) return -1;
    if (part->width < 1 || size % part->width || many != more || owner < 0 || owner >= bounds - 1 || starts[owner] < 0 ||
        starts[owner] > starts[owner + 1] || starts[owner + 1] > many) {
        PyErr_SetString(PyExc_ValueError, "the fields of a table do not fit each other");
        return -1;
    }
    part->many_rows = size / part->width;
    part->count = (Py_ssize_t)(starts[owner + 1] - starts[owner]);
    part->order += starts[owner];
    part->local += starts[owner];
    return 0;
}

/* Return whether every row is in its table. */
static int are_inside(const Part *part) {
    Py_ssize_t most = part->ids ? part->many_ids : part->many_rows;
    int good = 1;
    for (Py_ssize_t i = 0; i < part->count; i++) good &= (Py_ssize_t)part->order[i] < most;
    if (good && part->ids)
        for (Py_ssize_t i = 0; i < part->count; i++) good &= (Py_ssize_t)part->ids[part->order[i]] < part->many_rows;
    return good;
}

/* Return a row by its place among the rows of the owner. */
static inline float *row_of(const Part *part, Py_ssize_t i) {
    uint32_t place = part->order[i];
    return part->rows + (Py_ssize_t)(part->ids ? part->ids[place] : place) * part->width;
}

static void ask_row(const Part *part, Py_ssize_t i) {
#if defined(__GNUC__)
    enum { AHEAD = 8 };
    if (i + AHEAD < part->count) __builtin_prefetch(row_of(part, i + AHEAD));
#endif
}

FAST static void pack_loop(Unaligned *restrict to, const Part *part) {
    for (Py_ssize_t i = 0; i < part->count; i++, to += part->width) {
        ask_row(part, i);
        const float *from = row_of(part, i);
        for (Py_ssize_t j = 0; j < part->width; j++) to[j] = from[j];
    }
}

FAST static void unpack_loop(const Unaligned *restrict from, const Part *part) {
    for (Py_ssize_t i = 0; i < part->count; i++, from += part->width) {
        ask_row(part, i);
        float *to = row_of(part, i);
        for (Py_ssize_t j = 0; j < part->width; j++) to[j] = from[j];
    }
}

/* Write the numbers of the rows of some tables; return the end of what is written. */
static char *write_numbers(char *to, const Part *parts, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++, to += 4) {
        uint32_t number = (uint32_t)parts[k].count;
        memcpy(to, &number, 4);
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        memcpy(to, parts[k].local, 4 * (size_t)parts[k].count);
        to += 4 * parts[k].count;
    }
    return to;
}

/* Return the bytes of the numbers of the rows of some tables, or of the rows; -1 if they are more than `most`. */
static Py_ssize_t measure(const Part *parts, Py_ssize_t count, int is_of_rows, Py_ssize_t most) {
    Py_ssize_t left = most / 4 - (is_of_rows ? 0 : count);
    for (Py_ssize_t k = 0; k < count && left >= 0; k++) {
        Py_ssize_t width = is_of_rows ? parts[k].width : 1;
        left = parts[k].count <= left / width ? left - parts[k].count * width : -1;
    }
    return left < 0 ? -1 : most / 4 * 4 - 4 * left;
}

/* The parts of two tuples of tables, with the views of their arrays and of one array more. */
typedef struct {
    Held held;
    Part *parts;
} Taken;

/* Take the tables of some tuples; return 0, or -1 with an exception set. In both cases `free_taken` must follow. */
static int take_parts(Taken *taken, PyObject *const *tuples, int count, Py_ssize_t owner, int is_writable) {
    Py_ssize_t all = 0, n = 0;
    *taken = (Taken){.parts = NULL};
    for (int i = 0; i < count; i++) {
        if (!PyTuple_Check(tuples[i])) {
            PyErr_SetString(PyExc_TypeError, "tuples of tables are wanted");
            return -1;
        }
        all += PyTuple_GET_SIZE(tuples[i]);
    }
    taken->held.room = all * FIELDS + 1;
    taken->held.views = PyMem_Calloc((size_t)taken->held.room, sizeof *taken->held.views);
    taken->parts = PyMem_Calloc((size_t)all + 1, sizeof *taken->parts);
    if (!taken->held.views || !taken->parts) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < count; i++)
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuples[i]); k++)
            if (take_part(&taken->held, PyTuple_GET_ITEM(tuples[i], k), owner, is_writable, &taken->parts[n++]) < 0) return -1;
    return 0;
}

static PyObject *free_taken(Taken *taken, const char *fault) {
    release_held(&taken->held);
    PyMem_Free(taken->held.views);
    PyMem_Free(taken->parts);
    if (!fault && !PyErr_Occurred()) Py_RETURN_NONE;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, fault);
    return NULL;
}

/* pack_rows(array, owner, tables, wanted): write the numbers and the rows of an owner in `tables`, then the numbers of its
 * rows in `wanted`, to the array */
static PyObject *pack_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "an array, an owner and two tuples of tables are wanted");
        return NULL;
    }
    Py_ssize_t owner = PyLong_AsSsize_t(args[1]);
    if (owner == -1 && PyErr_Occurred()) return NULL;
    Taken taken;
    if (take_parts(&taken, args + 2, 2, owner, 0) < 0) return free_taken(&taken, "");
    Py_buffer *view = hold_bytes(&taken.held, args[0], 1);
    if (!view) return free_taken(&taken, "");
    Py_ssize_t tables = PyTuple_GET_SIZE(args[2]), wanted = PyTuple_GET_SIZE(args[3]), room = view->len;
    const Part *parts = taken.parts;
    Py_ssize_t named = tables ? measure(parts, tables, 0, room) : 0, rows = measure(parts, tables, 1, room);
    Py_ssize_t asked = wanted ? measure(parts + tables, wanted, 0, room) : 0;
    if (named < 0 || rows < 0 || asked < 0 || named + rows + asked != room) return free_taken(&taken, "the array does not fit the rows");
    int good = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < tables; k++) good &= are_inside(&parts[k]);
    if (good) {
        char *to = write_numbers(view->buf, parts, tables);
        for (Py_ssize_t k = 0; k < tables; k++) {
            pack_loop((Unaligned *)to, &parts[k]);
            to += 4 * parts[k].count * parts[k].width;
        }
        write_numbers(to, parts + tables, wanted);
    }
    Py_END_ALLOW_THREADS
    return free_taken(&taken, good ? NULL : "a row number is not in the table");
}

/* unpack_rows(array, owner, tables): write the rows of an owner, which are in the array, to the tables */
static PyObject *unpack_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "an array, an owner and a tuple of tables are wanted");
        return NULL;
    }
    Py_ssize_t owner = PyLong_AsSsize_t(args[1]);
    if (owner == -1 && PyErr_Occurred()) return NULL;
    Taken taken;
    if (take_parts(&taken, args + 2, 1, owner, 1) < 0) return free_taken(&taken, "");
    Py_buffer *view = hold_bytes(&taken.held, args[0], 0);
    if (!view) return free_taken(&taken, "");
    Py_ssize_t tables = PyTuple_GET_SIZE(args[2]);
    const Part *parts = taken.parts;
    if (measure(parts, tables, 1, view->len) != view->len) return free_taken(&taken, "the array does not fit the rows");
    int good = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < tables; k++) good &= are_inside(&parts[k]);
    const char *from = view->buf;
    for (Py_ssize_t k = 0; k < tables && good; k++) {
        unpack_loop((const Unaligned *)from, &parts[k]);
        from += 4 * parts[k].count * parts[k].width;
    }
    Py_END_ALLOW_THREADS
    return free_taken(&taken, good ? NULL : "a row number is not in the table");
}

PyMethodDef row_arrays_functions[] = {FUNCTION(pack_rows), FUNCTION(unpack_rows), {NULL, NULL, 0, NULL}};
