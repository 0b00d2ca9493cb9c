/* The module paddle_base.kernels._compiled: the hot loops over float32 arrays.
 *
 * A function of plain.py with the same name has the same result. Most functions let other threads run while they work,
 * and change their arguments in place. Products and sums are rounded one by one, as in numpy (-ffp-contract=off).
 * Element-wise results therefore equal those of plain.py bit for bit. */
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__GLIBC__)
#include <malloc.h>
#endif

/* Make the processor treat denormal numbers as zero in the calling thread. */
static PyObject *flush_denormals(PyObject *self, PyObject *unused) {
#if defined(__x86_64__)
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };
    _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
#endif
    Py_RETURN_NONE;
}

/* Let the allocator keep freed memory for the next allocation. */
static PyObject *keep_memory(PyObject *self, PyObject *unused) {
#if defined(__GLIBC__)
    enum { LARGEST = 128 << 20, KEPT = 1 << 30 }; /* bytes; larger arrays, and free memory beyond KEPT, go back to the system */
    mallopt(M_MMAP_THRESHOLD, LARGEST);
    mallopt(M_TRIM_THRESHOLD, KEPT);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"flush_denormals", flush_denormals, METH_NOARGS, NULL},
                                  {"keep_memory", keep_memory, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef description = {PyModuleDef_HEAD_INIT, .m_name = "paddle_base.kernels._compiled", .m_methods = functions};

PyMODINIT_FUNC PyInit__compiled(void) {
    PyObject *module = PyModule_Create(&description);
    PyMethodDef *families[] = {attention_functions, chain_functions, digests_functions, draws_functions, exchange_functions, gru_functions,
                               halves_functions, images_functions, lstm_functions, products_functions, row_arrays_functions, rows_functions, rules_functions,
                               samples_functions, server_rounds_functions, steps_functions, tables_functions, windows_functions, winograd_functions};
    for (size_t i = 0; module && i < sizeof families / sizeof *families; i++)
        if (PyModule_AddFunctions(module, families[i]) < 0) Py_CLEAR(module);
    return module;
}
