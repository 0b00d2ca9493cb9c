/* The digest of an array, which tells whether two ranks have the same bits. */
#include "kernels.h"

enum { LANES = 4096 };
static const uint64_t FACTOR = 0x9E3779B97F4A7C15u; /* odd, so that no two lanes become one */

FAST static void fold_loop(uint64_t *restrict lanes, const uint64_t *restrict words, Py_ssize_t rows) {
    for (Py_ssize_t row = 0; row < rows; row++, words += LANES)
        for (int l = 0; l < LANES; l++) {
            uint64_t mixed = (lanes[l] ^ words[l]) * FACTOR;
            lanes[l] = mixed ^ mixed >> 32;
        }
}

/* fold_words(lanes, words): mix rows of LANES words of 64 bits into the lanes */
static PyObject *fold_words(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2);
    Py_ssize_t width, n;
    int64_t *lanes = integers(&arrays, args[0], &width);
    const int64_t *words = lanes ? read_integers(&arrays, args[1], &n) : NULL;
    if (!words || width != LANES || n % LANES) return fail(&arrays, "the words are no rows of the lanes");
    Py_BEGIN_ALLOW_THREADS
    fold_loop((uint64_t *)lanes, (const uint64_t *)words, n / LANES);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef digests_functions[] = {FUNCTION(fold_words), {NULL, NULL, 0, NULL}};
