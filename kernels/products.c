/* A product in blocks of the result that stay in registers. */
#include "products.h"

typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
enum { WIDE = 64, ROWS = 4, PARTS = 4 }; /* a block of the result: 4 rows of 4 vectors, which stay in registers */
enum { SPARE = 16 }; /* numbers before the first panel, so that it begins at a cache line and no vector spans two lines */

Py_ssize_t panels_room(Py_ssize_t depth, Py_ssize_t width) { return depth * width + SPARE; }

/* Panels of 64 columns, each panel row after row. */
Factor pack(float *room, const float *b, Py_ssize_t depth, Py_ssize_t width) {
    float *panels = (float *)(((uintptr_t)room + 63) & ~(uintptr_t)63), *to = panels;
    for (Py_ssize_t j = 0; j + WIDE <= width; j += WIDE)
        for (Py_ssize_t k = 0; k < depth; k++, to += WIDE) memcpy(to, b + k * width + j, WIDE * sizeof *to);
    return (Factor){.b = b, .panels = panels, .depth = depth, .width = width};
}

static inline __attribute__((always_inline)) void add_block(float *out, Py_ssize_t out_stride, const float *a, Py_ssize_t a_stride,
                                                            const float *panel, Py_ssize_t depth) {
    Lanes sums[ROWS][PARTS] = {0};
    for (Py_ssize_t k = 0; k < depth; k++, panel += WIDE) {
        Lanes columns[PARTS];
        for (int p = 0; p < PARTS; p++) columns[p] = *(const Lanes *)(panel + p * 16);
        for (int r = 0; r < ROWS; r++)
            for (int p = 0; p < PARTS; p++) sums[r][p] += a[r * a_stride + k] * columns[p];
    }
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PARTS; p++) *(Lanes *)(out + r * out_stride + p * 16) += sums[r][p];
}

/* Every sum begins with zero and goes through a row of a in order, fused: so do BLAS libraries, and where a maximum over time is
 * near a tie the last bit decides. */
FUSING void add_product(float *out, Py_ssize_t out_stride, const float *a, Py_ssize_t a_stride, const Factor *b, Py_ssize_t n) {
    Py_ssize_t depth = b->depth, width = b->width, blocks = width - width % WIDE, rows = n - n % ROWS;
    for (Py_ssize_t j = 0; j < blocks; j += WIDE) {
        const float *panel = b->panels + j * depth;
        for (Py_ssize_t r = 0; r < rows; r += ROWS)
            add_block(out + r * out_stride + j, out_stride, a + r * a_stride, a_stride, panel, depth);
        for (Py_ssize_t r = rows; r < n; r++) {
            Lanes sums[PARTS] = {0};
            for (Py_ssize_t k = 0; k < depth; k++)
                for (int p = 0; p < PARTS; p++) sums[p] += a[r * a_stride + k] * *(const Lanes *)(panel + k * WIDE + p * 16);
            for (int p = 0; p < PARTS; p++) *(Lanes *)(out + r * out_stride + j + p * 16) += sums[p];
        }
    }
    for (Py_ssize_t r = 0; r < n && blocks < width; r++) {
        float sums[WIDE] = {0};
        for (Py_ssize_t k = 0; k < depth; k++)
            for (Py_ssize_t j = blocks; j < width; j++) sums[j - blocks] += a[r * a_stride + k] * b->b[k * width + j];
        for (Py_ssize_t j = blocks; j < width; j++) out[r * out_stride + j] += sums[j - blocks];
    }
}
