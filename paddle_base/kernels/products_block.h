/* The product for one kind of processor. products.c includes this file once for each kind, with these macros:
 *   KIND(name)   the name with the ending of the kind
 *   TARGET       the attributes of the kind's functions
 *   BYTES        the size of the kind's vectors
 *   ROWS, PARTS  a block of the result: ROWS rows of PARTS vectors, which stay in registers with PARTS vectors of b */
typedef float KIND(Lanes) __attribute__((vector_size(BYTES), aligned(4), may_alias));
enum { KIND(LANES) = BYTES / 4, KIND(WIDE) = PARTS * BYTES / 4 };

/* Every caller passes a constant as `rows`, so that the compiler keeps all sums in registers. */
TARGET static inline __attribute__((always_inline)) void KIND(add_block)(float *out, Py_ssize_t out_stride, const float *a,
                                                                        Py_ssize_t a_stride, const float *panel, Py_ssize_t depth,
                                                                        const int rows) {
    KIND(Lanes) sums[ROWS][PARTS] = {0};
    for (Py_ssize_t k = 0; k < depth; k++, panel += KIND(WIDE)) {
        KIND(Lanes) columns[PARTS];
        for (int p = 0; p < PARTS; p++) columns[p] = *(const KIND(Lanes) *)(panel + p * KIND(LANES));
        for (int r = 0; r < rows; r++)
            for (int p = 0; p < PARTS; p++) sums[r][p] += a[r * a_stride + k] * columns[p];
    }
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < PARTS; p++) *(KIND(Lanes) *)(out + r * out_stride + p * KIND(LANES)) += sums[r][p];
}

TARGET static void KIND(add_panels)(float *out, Py_ssize_t out_stride, const float *a, Py_ssize_t a_stride, const Factor *b,
                                    Py_ssize_t n) {
    Py_ssize_t whole = n - n % ROWS;
    for (Py_ssize_t j = 0; j + KIND(WIDE) <= b->width; j += KIND(WIDE)) {
        const float *panel = b->panels + j * b->depth;
        for (Py_ssize_t r = 0; r < whole; r += ROWS)
            KIND(add_block)(out + r * out_stride + j, out_stride, a + r * a_stride, a_stride, panel, b->depth, ROWS);
        float *rest = out + whole * out_stride + j;
        switch (n - whole) {
#define REST(rows) \
    case rows: \
        KIND(add_block)(rest, out_stride, a + whole * a_stride, a_stride, panel, b->depth, rows < ROWS ? rows : ROWS); \
        break;
            REST(1) REST(2) REST(3) REST(4) REST(5)
#undef REST
        }
    }
}
#undef KIND
#undef TARGET
#undef BYTES
#undef ROWS
#undef PARTS
