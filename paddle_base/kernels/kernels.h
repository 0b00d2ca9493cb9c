/* The parts that all hot loops use: the checks of their arguments, and the choice of machine code.
 *
 * A function takes contiguous arrays by the buffer protocol. `Arrays` holds the arrays until `release`. Getters such as
 * `floats` check the type and the contiguity of an array; `same_length` also checks the length. If a getter returns
 * NULL or -1, an exception is set.
 */
#ifndef KERNELS_H
#define KERNELS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* the compiler makes a version of the function for each generation of processors; the loader chooses one version */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define GENERATIONS
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define FUSING FAST __attribute__((optimize("fp-contract=fast")))
#else
#define FAST
#define FUSING
#endif

enum { MOST = 16 };

typedef struct {
    Py_buffer views[MOST];
    int count;
} Arrays;

void release(Arrays *arrays);

/* Return the array's data, and set `length` to the number of its elements. */
float *floats(Arrays *arrays, PyObject *object, Py_ssize_t *length);
const float *read_floats(Arrays *arrays, PyObject *object, Py_ssize_t *length);
double *doubles(Arrays *arrays, PyObject *object, Py_ssize_t *length);
const double *read_doubles(Arrays *arrays, PyObject *object, Py_ssize_t *length);
int64_t *integers(Arrays *arrays, PyObject *object, Py_ssize_t *length);
const int64_t *read_integers(Arrays *arrays, PyObject *object, Py_ssize_t *length);
const int32_t *read_small_integers(Arrays *arrays, PyObject *object, Py_ssize_t *length);
uint32_t *naturals(Arrays *arrays, PyObject *object, Py_ssize_t *length);
const uint32_t *read_naturals(Arrays *arrays, PyObject *object, Py_ssize_t *length);
uint16_t *halves(Arrays *arrays, PyObject *object, Py_ssize_t *length);
const uint16_t *read_halves(Arrays *arrays, PyObject *object, Py_ssize_t *length);

/* The buffers of a number of objects that only the arguments tell. `views` has room for `room` buffers, and belongs to
 * the caller, who calls `release_held` before freeing it. */
typedef struct {
    Py_buffer *views;
    Py_ssize_t count, room;
} Held;

void release_held(Held *held);

/* Hold the bytes of an object; return NULL with an exception set if it has none. */
Py_buffer *hold_bytes(Held *held, PyObject *object, int is_writable);

/* Hold an array; see the getters of `Arrays`. */
const uint32_t *hold_naturals(Held *held, PyObject *object, Py_ssize_t *length);
int64_t *hold_integers(Held *held, PyObject *object, int is_writable, Py_ssize_t *length);
float *hold_floats(Held *held, PyObject *object, int is_writable, Py_ssize_t *length);

/* Get `count` float arrays of equal length from the arguments; the first `writable` arrays are written to. */
int same_length(Arrays *arrays, PyObject *const *args, int count, int writable, float **data, Py_ssize_t *length);

/* Convert `count` arguments to float32 numbers. */
int numbers(PyObject *const *args, int count, float *values);

/* Return whether all ids are in [0, upper). */
int in_range(const int64_t *ids, Py_ssize_t count, int64_t upper);

/* Return whether the numbers begin with 0, never decrease, and end with `last`. */
int rising(const int64_t *starts, Py_ssize_t count, int64_t last);

/* Release the arrays and return NULL; set an exception with this message if none is set. */
PyObject *fail(Arrays *arrays, const char *message);

#define NEED(number) \
    if (count != (number)) { \
        PyErr_Format(PyExc_TypeError, "%d arguments are wanted, not %zd", (int)(number), count); \
        return NULL; \
    } \
    Arrays arrays = {.count = 0}

#define DONE \
    release(&arrays); \
    Py_RETURN_NONE

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

extern PyMethodDef attention_functions[], chain_functions[], digests_functions[], draws_functions[], exchange_functions[], gru_functions[],
    halves_functions[], images_functions[], lstm_functions[], products_functions[], row_arrays_functions[], rows_functions[], rules_functions[], samples_functions[],
    server_rounds_functions[], steps_functions[], tables_functions[], windows_functions[], winograd_functions[];

#endif
