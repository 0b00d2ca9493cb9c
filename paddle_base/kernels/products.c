/* A product in blocks of the result that stay in registers. */
#include "products.h"

enum { SPARE = 16 }; /* extra floats, so that the first panel can begin at a cache line and no vector spans two lines */

/* The code for one kind of processor; a panel has `wide` columns of b. */
struct Kind {
    Py_ssize_t wide;
    void (*add_panels)(float *out, Py_ssize_t out_stride, const float *a, Py_ssize_t a_stride, const Factor *b, Py_ssize_t n);
};

/* A block has as many sums as the registers can hold beside the vectors of b. A larger block would take five times as
 * long, because its sums would be written to memory and read back at every step. */
#ifdef GENERATIONS
#define KIND(name) name##_v4
#define TARGET __attribute__((target("arch=x86-64-v4"), optimize("fp-contract=fast")))
#define BYTES 64 /* 32 registers */
#define ROWS 4
#define PARTS 4
#include "products_block.h"
#define KIND(name) name##_v3
#define TARGET __attribute__((target("arch=x86-64-v3"), optimize("fp-contract=fast")))
#define BYTES 32 /* 16 registers */
#define ROWS 6
#define PARTS 2
#include "products_block.h"
#endif

#define KIND(name) name##_any
#define TARGET
#define BYTES 16 /* at least 16 registers */
#define ROWS 6
#define PARTS 2
#include "products_block.h"

static const Kind *this_kind(void) {
    static const Kind any = {WIDE_any, add_panels_any};
#ifdef GENERATIONS
    static const Kind v4 = {WIDE_v4, add_panels_v4}, v3 = {WIDE_v3, add_panels_v3};
    if (__builtin_cpu_supports("x86-64-v4")) return &v4;
    if (__builtin_cpu_supports("x86-64-v3")) return &v3;
#endif
    return &any;
}

Py_ssize_t panels_room(Py_ssize_t depth, Py_ssize_t width) { return depth * width + SPARE; }

/* Copy b into panels of columns; each panel is stored row after row. */
Factor pack(float *room, const float *b, Py_ssize_t depth, Py_ssize_t width) {
    const Kind *kind = this_kind();
    Py_ssize_t wide = kind->wide;
    float *panels = (float *)(((uintptr_t)room + 63) & ~(uintptr_t)63), *to = panels;
    for (Py_ssize_t j = 0; j + wide <= width; j += wide)
        for (Py_ssize_t k = 0; k < depth; k++, to += wide) memcpy(to, b + k * width + j, wide * sizeof *to);
    return (Factor){.b = b, .panels = panels, .depth = depth, .width = width, .kind = kind};
}

/* out += a b for the last columns of b, which fill no panel. */
FUSING static void add_rest(float *out, Py_ssize_t out_stride, const float *a, Py_ssize_t a_stride, const Factor *b, Py_ssize_t n) {
    Py_ssize_t width = b->width, first = width - width % b->kind->wide;
    for (Py_ssize_t r = 0; r < n && first < width; r++) {
        float sums[64] = {0}; /* the widest panel */
        for (Py_ssize_t k = 0; k < b->depth; k++)
            for (Py_ssize_t j = first; j < width; j++) sums[j - first] += a[r * a_stride + k] * b->b[k * width + j];
        for (Py_ssize_t j = first; j < width; j++) out[r * out_stride + j] += sums[j - first];
    }
}

/* Every sum begins with zero and adds the products along a row of `a` in order, with fused multiply-add, as BLAS
 * libraries do. The results must be equal to those of BLAS in the last bit. The last bit may decide which of two nearly
 * equal numbers is the maximum over time. */
void add_product(float *out, Py_ssize_t out_stride, const float *a, Py_ssize_t a_stride, const Factor *b, Py_ssize_t n) {
    b->kind->add_panels(out, out_stride, a, a_stride, b, n);
    add_rest(out, out_stride, a, a_stride, b, n);
}

/* Copy b, the transpose of a matrix of shape (width, depth), into panels. The transpose of a block of the matrix is
 * copied at once, because a cache line of the matrix has numbers of several rows of b. */
static void pack_transposed(float *panels, const float *matrix, Py_ssize_t depth, Py_ssize_t width, Py_ssize_t wide) {
    enum { LINE = 16 };
    for (Py_ssize_t j = 0; j < width; j += wide, panels += depth * wide)
        for (Py_ssize_t first = 0; first < depth; first += LINE)
            for (Py_ssize_t column = 0; column < wide; column++)
                for (Py_ssize_t k = first; k < depth && k < first + LINE; k++) panels[k * wide + column] = matrix[(j + column) * depth + k];
}

/* Get a factor without last columns from the arguments (room, depth, width). */
static int factor_of(Arrays *arrays, PyObject *const *args, int writable, Factor *b) {
    Py_ssize_t length;
    const float *room = writable ? floats(arrays, args[0], &length) : read_floats(arrays, args[0], &length);
    b->depth = room ? PyLong_AsSsize_t(args[1]) : -1;
    b->width = room ? PyLong_AsSsize_t(args[2]) : -1;
    if (PyErr_Occurred()) return -1;
    b->kind = this_kind();
    if (b->depth < 1 || b->width < 1 || b->width % b->kind->wide || b->depth > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(float) / b->width ||
        length != panels_room(b->depth, b->width)) {
        PyErr_SetString(PyExc_ValueError, "the panels do not fit the matrix");
        return -1;
    }
    b->b = NULL; /* there are no last columns */
    b->panels = (const float *)(((uintptr_t)room + 63) & ~(uintptr_t)63);
    return 0;
}

/* pack_matrix(room, depth, width, matrix, transposed): copy a matrix of shape (depth, width), or the transpose of a
 * matrix of shape (width, depth), into panels in `room` */
static PyObject *pack_matrix(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(5);
    Factor b;
    Py_ssize_t length;
    int is_transposed = PyObject_IsTrue(args[4]);
    if (is_transposed < 0 || factor_of(&arrays, args, 1, &b) < 0) return fail(&arrays, "");
    const float *matrix = read_floats(&arrays, args[3], &length);
    if (!matrix || length != b.depth * b.width) return fail(&arrays, "the matrix does not fit");
    Py_BEGIN_ALLOW_THREADS
    if (is_transposed)
        pack_transposed((float *)b.panels, matrix, b.depth, b.width, b.kind->wide);
    else
        pack((float *)b.panels, matrix, b.depth, b.width);
    Py_END_ALLOW_THREADS
    DONE;
}

/* multiply_packed(out, a, room, depth, width): out = a b, where `pack_matrix` has packed b */
static PyObject *multiply_packed(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(5);
    Factor b;
    Py_ssize_t length, all;
    float *out = floats(&arrays, args[0], &length);
    const float *a = out ? read_floats(&arrays, args[1], &all) : NULL;
    if (!a || factor_of(&arrays, args + 2, 0, &b) < 0) return fail(&arrays, "");
    Py_ssize_t rows = all / b.depth;
    if (all != rows * b.depth || length != rows * b.width) return fail(&arrays, "the rows do not fit the matrix");
    Py_BEGIN_ALLOW_THREADS
    memset(out, 0, length * sizeof *out);
    add_product(out, b.width, a, b.depth, &b, rows);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef products_functions[] = {FUNCTION(pack_matrix), FUNCTION(multiply_packed), {NULL, NULL, 0, NULL}};
