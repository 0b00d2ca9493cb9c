/* The checks of the arguments of the compiled functions. */
#include "kernels.h"

void release(Arrays *arrays) {
    while (arrays->count > 0) PyBuffer_Release(&arrays->views[--arrays->count]);
}

/* Return the data of an object's buffer and its number of elements; NULL with an exception set if the buffer does not
 * fit. `is_held` is set to whether the view must be released. */
static void *view_array(Py_buffer *view, int *is_held, PyObject *object, char kind, int writable, Py_ssize_t *length) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    *is_held = PyObject_GetBuffer(object, view, flags) == 0;
    if (!*is_held) return NULL;
    const char *format = view->format ? view->format : "B";
    const char *formats = kind == 'f' ? "f" : kind == 'd' ? "d" : kind == 'I' ? "IL" : kind == 'H' ? "H" : "ilqn";
    Py_ssize_t itemsize = kind == 'l' || kind == 'd' ? 8 : kind == 'H' ? 2 : 4;
    if (!strchr(formats, format[0]) || format[1] || view->itemsize != itemsize) {
        const char *name = kind == 'f'   ? "float32"
                           : kind == 'd' ? "float64"
                           : kind == 'I' ? "uint32"
                           : kind == 'H' ? "uint16"
                           : kind == 'i' ? "int32"
                                         : "int64";
        PyErr_Format(PyExc_TypeError, "an array of %s is needed, not of format '%s'", name, format);
        return NULL;
    }
    *length = view->len / view->itemsize;
    static int64_t nothing; /* an empty array may have no address */
    return view->buf ? view->buf : &nothing;
}

static void *array_of(Arrays *arrays, PyObject *object, char kind, int writable, Py_ssize_t *length) {
    int is_held;
    void *data = view_array(&arrays->views[arrays->count], &is_held, object, kind, writable, length);
    arrays->count += is_held;
    return data;
}

float *floats(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'f', 1, length);
}

const float *read_floats(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'f', 0, length);
}

double *doubles(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'd', 1, length);
}

const double *read_doubles(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'd', 0, length);
}

int64_t *integers(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'l', 1, length);
}

const int64_t *read_integers(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'l', 0, length);
}

const int32_t *read_small_integers(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'i', 0, length);
}

uint32_t *naturals(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'I', 1, length);
}

const uint32_t *read_naturals(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'I', 0, length);
}

uint16_t *halves(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'H', 1, length);
}

const uint16_t *read_halves(Arrays *arrays, PyObject *object, Py_ssize_t *length) {
    return array_of(arrays, object, 'H', 0, length);
}

int same_length(Arrays *arrays, PyObject *const *args, int count, int writable, float **data, Py_ssize_t *length) {
    for (int i = 0; i < count; i++) {
        Py_ssize_t n;
        data[i] = array_of(arrays, args[i], 'f', i < writable, &n);
        if (!data[i]) return -1;
        if (i == 0) *length = n;
        if (n != *length) {
            PyErr_SetString(PyExc_ValueError, "the arrays have different lengths");
            return -1;
        }
    }
    return 0;
}

int numbers(PyObject *const *args, int count, float *values) {
    for (int i = 0; i < count; i++) {
        double value = PyFloat_AsDouble(args[i]);
        if (value == -1.0 && PyErr_Occurred()) return -1;
        values[i] = (float)value;
    }
    return 0;
}

/* the loop has no early exit, because then the compiler can vectorise it */
FAST static int in_range_loop(const int64_t *ids, Py_ssize_t count, int64_t upper) {
    int good = 1;
    for (Py_ssize_t i = 0; i < count; i++) good &= ids[i] >= 0 && ids[i] < upper;
    return good;
}

int in_range(const int64_t *ids, Py_ssize_t count, int64_t upper) { return in_range_loop(ids, count, upper); }

int rising(const int64_t *starts, Py_ssize_t count, int64_t last) {
    if (count < 1 || starts[0] != 0 || starts[count - 1] != last) return 0;
    for (Py_ssize_t i = 1; i < count; i++)
        if (starts[i] < starts[i - 1]) return 0;
    return 1;
}

PyObject *fail(Arrays *arrays, const char *message) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, message);
    release(arrays);
    return NULL;
}

/* ----- Any number of objects ----- */

void release_held(Held *held) {
    while (held->count > 0) PyBuffer_Release(&held->views[--held->count]);
}

/* Return the next free view, or NULL with an exception set. */
static Py_buffer *next_view(Held *held) {
    if (held->count < held->room) return &held->views[held->count];
    PyErr_SetString(PyExc_ValueError, "a sequence has grown");
    return NULL;
}

Py_buffer *hold_bytes(Held *held, PyObject *object, int is_writable) {
    Py_buffer *view = next_view(held);
    if (!view || PyObject_GetBuffer(object, view, is_writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return NULL;
    held->count++;
    return view;
}

static void *hold_array(Held *held, PyObject *object, char kind, int is_writable, Py_ssize_t *length) {
    Py_buffer *view = next_view(held);
    if (!view) return NULL;
    int is_held;
    void *data = view_array(view, &is_held, object, kind, is_writable, length);
    held->count += is_held;
    return data;
}

const uint32_t *hold_naturals(Held *held, PyObject *object, Py_ssize_t *length) {
    return hold_array(held, object, 'I', 0, length);
}

int64_t *hold_integers(Held *held, PyObject *object, int is_writable, Py_ssize_t *length) {
    return hold_array(held, object, 'l', is_writable, length);
}

float *hold_floats(Held *held, PyObject *object, int is_writable, Py_ssize_t *length) {
    return hold_array(held, object, 'f', is_writable, length);
}
