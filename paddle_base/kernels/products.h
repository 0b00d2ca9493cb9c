/* Products of few rows, for which BLAS libraries are slow. The right factor is packed once and used at every step. */
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "kernels.h"

typedef struct Kind Kind;

/* The matrix b of shape (depth, width), copied into panels of columns whose width depends on the kind of processor. The
 * last columns of b, which fill no panel, are read from b. */
typedef struct {
    const float *b, *panels;
    Py_ssize_t depth, width;
    const Kind *kind;
} Factor;

/* The number of floats that `pack` needs for the panels. */
Py_ssize_t panels_room(Py_ssize_t depth, Py_ssize_t width);

Factor pack(float *room, const float *b, Py_ssize_t depth, Py_ssize_t width);

/* out += a b for n rows; a row of `out` or `a` begins one stride after the previous row. */
void add_product(float *out, Py_ssize_t out_stride, const float *a, Py_ssize_t a_stride, const Factor *b, Py_ssize_t n);

#endif
