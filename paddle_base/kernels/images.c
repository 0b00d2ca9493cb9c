/* Images: elements of windows, maxima of windows, and channels normalised to mean 0 and variance 1. */
#include "kernels.h"

/* One axis of a plane and the windows along the axis: element e of window o is at o * stride - padding + e * dilation. */
typedef struct {
    Py_ssize_t length, windows, size, stride, padding, dilation;
} Axis;

enum { AXIS_NUMBERS = 6, LANES = 16 };

/* Get an axis from six arguments, one for each field. */
static int read_axis(PyObject *const *args, Axis *axis) {
    Py_ssize_t *fields[] = {&axis->length, &axis->windows, &axis->size, &axis->stride, &axis->padding, &axis->dilation};
    for (int i = 0; i < AXIS_NUMBERS; i++) {
        *fields[i] = PyLong_AsSsize_t(args[i]);
        if (*fields[i] < (i == 4 ? 0 : 1)) return -1;
    }
    return 0;
}

/* Get the range [first, last) of the windows whose element with this number is inside the plane. */
static void span(const Axis *axis, Py_ssize_t element, Py_ssize_t *first, Py_ssize_t *last) {
    Py_ssize_t shift = element * axis->dilation - axis->padding, end = axis->length - 1 - shift;
    *first = shift < 0 ? (-shift + axis->stride - 1) / axis->stride : 0;
    *last = end < 0 ? 0 : end / axis->stride + 1;
    if (*last > axis->windows) *last = axis->windows;
}

/* Get the range [begin, end) of the elements of the plane that are in an undilated window. */
static void extent(const Axis *axis, Py_ssize_t window, Py_ssize_t *begin, Py_ssize_t *end) {
    *begin = window * axis->stride - axis->padding;
    *end = *begin + axis->size;
    if (*begin < 0) *begin = 0;
    if (*end > axis->length) *end = axis->length;
}

FAST static void fold_loop(float *out, const float *columns, Py_ssize_t n, Py_ssize_t channels, const Axis *y, const Axis *x) {
    Py_ssize_t plane = y->length * x->length, grid = y->windows * x->windows;
    for (Py_ssize_t c = 0; c < channels; c++)
        for (Py_ssize_t i = 0; i < n; i++) {
            float *target = out + (i * channels + c) * plane;
            memset(target, 0, plane * sizeof *target);
            for (Py_ssize_t ky = 0; ky < y->size; ky++)
                for (Py_ssize_t kx = 0; kx < x->size; kx++) {
                    const float *source = columns + (((c * y->size + ky) * x->size + kx) * n + i) * grid;
                    Py_ssize_t top, bottom, left, right;
                    span(y, ky, &top, &bottom);
                    span(x, kx, &left, &right);
                    for (Py_ssize_t oy = top; oy < bottom; oy++) {
                        Py_ssize_t row = oy * y->stride - y->padding + ky * y->dilation;
                        float *to = target + row * x->length - x->padding + kx * x->dilation;
                        const float *from = source + oy * x->windows;
                        if (x->stride == 1)
                            for (Py_ssize_t ox = left; ox < right; ox++) to[ox] += from[ox];
                        else
                            for (Py_ssize_t ox = left; ox < right; ox++) to[ox * x->stride] += from[ox];
                    }
                }
        }
}

/* fold(out, columns, channels, y..., x...): set each pixel of `out` to the sum of its elements in `columns`. `y...` and
 * `x...` stand for the six arguments of read_axis for each axis. */
static PyObject *fold(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3 + 2 * AXIS_NUMBERS);
    Py_ssize_t size, all, channels = PyLong_AsSsize_t(args[2]);
    Axis y, x;
    float *out = floats(&arrays, args[0], &size);
    const float *columns = out ? read_floats(&arrays, args[1], &all) : NULL;
    if (!columns || channels < 1 || read_axis(args + 3, &y) < 0 || read_axis(args + 3 + AXIS_NUMBERS, &x) < 0)
        return fail(&arrays, "the numbers that describe the windows are out of range");
    Py_ssize_t image = channels * y.length * x.length, n = size / image;
    if (size != n * image || all != n * channels * y.size * x.size * y.windows * x.windows)
        return fail(&arrays, "the windows do not fit the planes");
    Py_BEGIN_ALLOW_THREADS
    fold_loop(out, columns, n, channels, &y, &x);
    Py_END_ALLOW_THREADS
    DONE;
}

FAST static void largest_loop(float *out, const float *planes, float *rows, Py_ssize_t n, const Axis *y, const Axis *x) {
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t oy = 0; oy < y->windows; oy++, out += x->windows) {
            Py_ssize_t top, bottom, left, right;
            extent(y, oy, &top, &bottom);
            const float *from = planes + (i * y->length + top) * x->length;
            memcpy(rows, from, x->length * sizeof *rows);
            for (Py_ssize_t row = top + 1; row < bottom; row++) {
                from += x->length;
                for (Py_ssize_t p = 0; p < x->length; p++) rows[p] = from[p] > rows[p] ? from[p] : rows[p];
            }
            for (Py_ssize_t ox = 0; ox < x->windows; ox++) {
                extent(x, ox, &left, &right);
                float most = rows[left];
                for (Py_ssize_t p = left + 1; p < right; p++) most = rows[p] > most ? rows[p] : most;
                out[ox] = most;
            }
        }
}

/* This loop handles the most common windows: they are two by two, and lie side by side. The last window of a row or
 * column may be clipped. */
FAST static void two_by_two_gradient_loop(float *out, const float *planes, const float *values, const float *gradient,
                                          Py_ssize_t n, Py_ssize_t height, Py_ssize_t width) {
    for (Py_ssize_t i = 0; i < n * height; i++) {
        Py_ssize_t plane = i / height, row = i % height, windows = (width + 1) / 2;
        const float *from = planes + i * width, *value = values + (plane * ((height + 1) / 2) + row / 2) * windows;
        const float *flow = gradient + (value - values);
        float *to = out + i * width;
        for (Py_ssize_t o = 0; o < width / 2; o++) {
            to[2 * o] = from[2 * o] == value[o] ? flow[o] : 0;
            to[2 * o + 1] = from[2 * o + 1] == value[o] ? flow[o] : 0;
        }
        if (width % 2) to[width - 1] = from[width - 1] == value[windows - 1] ? flow[windows - 1] : 0;
    }
}

/* Return whether windows of two elements, side by side, cover the axis. */
static int in_twos(const Axis *axis) {
    return axis->size == 2 && axis->stride == 2 && axis->padding == 0 && axis->windows == (axis->length + 1) / 2;
}

FAST static void largest_gradient_loop(float *out, const float *planes, const float *values, const float *gradient,
                                       Py_ssize_t n, const Axis *y, const Axis *x) {
    memset(out, 0, n * y->length * x->length * sizeof *out);
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t oy = 0; oy < y->windows; oy++, values += x->windows, gradient += x->windows) {
            Py_ssize_t top, bottom, left, right;
            extent(y, oy, &top, &bottom);
            for (Py_ssize_t row = top; row < bottom; row++)
                for (Py_ssize_t kx = 0; kx < x->size; kx++) {
                    Py_ssize_t place = (i * y->length + row) * x->length + kx - x->padding;
                    span(x, kx, &left, &right);
                    for (Py_ssize_t ox = left; ox < right; ox++)
                        out[place + ox * x->stride] += planes[place + ox * x->stride] == values[ox] ? gradient[ox] : 0;
                }
        }
}

/* Return whether the windows are undilated and each has an element inside the plane. All windows then begin before the
 * end of the plane. */
static int has_places(const Axis *axis) {
    Py_ssize_t begin, end, first, last;
    extent(axis, 0, &begin, &first);
    extent(axis, axis->windows - 1, &last, &end);
    return first > begin && end > last && axis->dilation == 1;
}

/* largest(out, planes, room, y..., x...): write the largest value of each window. `room` is scratch memory for one row
 * of a plane; `y...` and `x...` stand for the six arguments of read_axis for each axis. */
static PyObject *largest(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3 + 2 * AXIS_NUMBERS);
    Py_ssize_t size, all, width;
    Axis y, x;
    float *out = floats(&arrays, args[0], &size);
    const float *planes = out ? read_floats(&arrays, args[1], &all) : NULL;
    float *rows = planes ? floats(&arrays, args[2], &width) : NULL;
    if (!rows || read_axis(args + 3, &y) < 0 || read_axis(args + 3 + AXIS_NUMBERS, &x) < 0 || !has_places(&y) || !has_places(&x))
        return fail(&arrays, "the numbers that describe the windows are out of range");
    Py_ssize_t plane = y.length * x.length, n = all / plane;
    if (all != n * plane || size != n * y.windows * x.windows || width != x.length)
        return fail(&arrays, "the windows do not fit the planes");
    Py_BEGIN_ALLOW_THREADS
    largest_loop(out, planes, rows, n, &y, &x);
    Py_END_ALLOW_THREADS
    DONE;
}

/* largest_gradient(out, planes, values, gradient, y..., x...): write the gradient of the planes. `values` has the
 * largest value of each window; `y...` and `x...` stand for the six arguments of read_axis for each axis. */
static PyObject *largest_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(4 + 2 * AXIS_NUMBERS);
    Py_ssize_t size, all, n_values, n_gradient;
    Axis y, x;
    float *out = floats(&arrays, args[0], &all);
    const float *planes = out ? read_floats(&arrays, args[1], &size) : NULL;
    const float *values = planes ? read_floats(&arrays, args[2], &n_values) : NULL;
    const float *gradient = values ? read_floats(&arrays, args[3], &n_gradient) : NULL;
    if (!gradient || read_axis(args + 4, &y) < 0 || read_axis(args + 4 + AXIS_NUMBERS, &x) < 0 || !has_places(&y) || !has_places(&x))
        return fail(&arrays, "the numbers that describe the windows are out of range");
    Py_ssize_t plane = y.length * x.length, n = all / plane;
    if (all != size || all != n * plane || n_values != n * y.windows * x.windows || n_gradient != n_values)
        return fail(&arrays, "the windows do not fit the planes");
    Py_BEGIN_ALLOW_THREADS
    if (in_twos(&y) && in_twos(&x))
        two_by_two_gradient_loop(out, planes, values, gradient, n, y.length, x.length);
    else
        largest_gradient_loop(out, planes, values, gradient, n, &y, &x);
    Py_END_ALLOW_THREADS
    DONE;
}

/* Add the terms of a row in several partial sums (lanes), which the compiler can keep in one register; the result is
 * precise enough for long rows. */
#define IN_LANES(total, length, term) \
    do { \
        float lanes[LANES] = {0}; \
        Py_ssize_t p = 0; \
        for (; p + LANES <= (length); p += LANES) \
            for (int k = 0; k < LANES; k++) { \
                Py_ssize_t at = p + k; \
                lanes[k] += (term); \
            } \
        for (Py_ssize_t at = p; at < (length); at++) lanes[at - p] += (term); \
        for (int k = 0; k < LANES; k++) (total) += lanes[k]; \
    } while (0)

FAST static void normalise_loop(float *out, float *mean, float *variance, float *inverse, const float *x, const float *scale,
                                const float *shift, Py_ssize_t n, Py_ssize_t channels, Py_ssize_t pixels, float epsilon) {
    for (Py_ssize_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (Py_ssize_t i = 0; i < n; i++) {
            const float *from = x + (i * channels + c) * pixels;
            IN_LANES(sum, pixels, from[at]);
        }
        float middle = (float)(sum / (double)(n * pixels));
        for (Py_ssize_t i = 0; i < n; i++) {
            const float *from = x + (i * channels + c) * pixels;
            IN_LANES(squares, pixels, (from[at] - middle) * (from[at] - middle));
        }
        mean[c] = middle;
        variance[c] = (float)(squares / (double)(n * pixels));
        inverse[c] = 1.0f / sqrtf(variance[c] + epsilon);
        float factor = scale[c] * inverse[c], offset = shift ? shift[c] : 0;
        for (Py_ssize_t i = 0; i < n; i++) {
            const float *from = x + (i * channels + c) * pixels;
            float *to = out + (i * channels + c) * pixels;
            for (Py_ssize_t p = 0; p < pixels; p++) to[p] = (from[p] - middle) * factor + offset;
        }
    }
}

/* normalise(out, mean, variance, inverse, x, scale, shift or None, pixels, epsilon): write the normalised channels of x
 * to `out`, and the statistics of each channel to mean, variance and inverse, which is 1 / sqrt(variance + epsilon) */
static PyObject *normalise(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(9);
    Py_ssize_t size, all, numbers_of[5], pixels = PyLong_AsSsize_t(args[7]);
    float epsilon, *of_channels[3];
    float *out = floats(&arrays, args[0], &size);
    const float *x = out ? read_floats(&arrays, args[4], &all) : NULL;
    for (int i = 0; x && i < 3; i++)
        if (!(of_channels[i] = floats(&arrays, args[1 + i], &numbers_of[i]))) x = NULL;
    const float *scale = x ? read_floats(&arrays, args[5], &numbers_of[3]) : NULL;
    const float *shift = scale && args[6] != Py_None ? read_floats(&arrays, args[6], &numbers_of[4]) : NULL;
    if (!scale || PyErr_Occurred() || pixels < 1 || numbers(args + 8, 1, &epsilon) < 0)
        return fail(&arrays, "the channels do not fit the images");
    Py_ssize_t channels = numbers_of[0];
    for (int i = 1; i < (shift ? 5 : 4); i++)
        if (numbers_of[i] != channels) return fail(&arrays, "the channels do not fit the images");
    if (size != all || channels < 1 || all % (channels * pixels)) return fail(&arrays, "the channels do not fit the images");
    Py_BEGIN_ALLOW_THREADS
    normalise_loop(out, of_channels[0], of_channels[1], of_channels[2], x, scale, shift, all / (channels * pixels), channels,
                   pixels, epsilon);
    Py_END_ALLOW_THREADS
    DONE;
}

FAST static void normalise_gradient_loop(float *out, float *totals, float *products, const float *g, const float *x,
                                         const float *mean, const float *inverse, const float *scale, Py_ssize_t n,
                                         Py_ssize_t channels, Py_ssize_t pixels) {
    for (Py_ssize_t c = 0; c < channels; c++) {
        double sum = 0, product = 0;
        float middle = mean[c];
        for (Py_ssize_t i = 0; i < n; i++) {
            const float *from = x + (i * channels + c) * pixels, *flow = g + (i * channels + c) * pixels;
            IN_LANES(sum, pixels, flow[at]);
            IN_LANES(product, pixels, flow[at] * (from[at] - middle));
        }
        double share = 1.0 / (double)(n * pixels);
        totals[c] = (float)sum;
        products[c] = (float)(product * inverse[c]);
        float factor = scale[c] * inverse[c];
        float slope = (float)(-factor * inverse[c] * products[c] * share), offset = (float)(-factor * sum * share);
        for (Py_ssize_t i = 0; i < n; i++) {
            const float *from = x + (i * channels + c) * pixels, *flow = g + (i * channels + c) * pixels;
            float *to = out + (i * channels + c) * pixels;
            for (Py_ssize_t p = 0; p < pixels; p++) to[p] = flow[p] * factor + (from[p] - middle) * slope + offset;
        }
    }
}

/* normalise_gradient(out, totals, products, g, x, mean, inverse, scale, pixels): write the gradients of x, of the
 * shifts and of the scales to out, totals and products; g is the gradient of the result of `normalise` */
static PyObject *normalise_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(9);
    Py_ssize_t sizes[3], numbers_of[5], pixels = PyLong_AsSsize_t(args[8]);
    const float *images[2] = {NULL, NULL}, *of_channels[3];
    float *sums[2];
    float *out = floats(&arrays, args[0], &sizes[0]);
    int good = out != NULL;
    for (int i = 0; good && i < 2; i++) good = (sums[i] = floats(&arrays, args[1 + i], &numbers_of[i])) != NULL;
    for (int i = 0; good && i < 2; i++) good = (images[i] = read_floats(&arrays, args[3 + i], &sizes[1 + i])) != NULL;
    for (int i = 0; good && i < 3; i++) good = (of_channels[i] = read_floats(&arrays, args[5 + i], &numbers_of[2 + i])) != NULL;
    good = good && pixels >= 1 && sizes[0] == sizes[1] && sizes[1] == sizes[2] && numbers_of[0] >= 1;
    for (int i = 1; good && i < 5; i++) good = numbers_of[i] == numbers_of[0];
    if (!good || sizes[0] % (numbers_of[0] * pixels)) return fail(&arrays, "the channels do not fit the images");
    Py_ssize_t channels = numbers_of[0];
    Py_BEGIN_ALLOW_THREADS
    normalise_gradient_loop(out, sums[0], sums[1], images[0], images[1], of_channels[0], of_channels[1], of_channels[2],
                            sizes[0] / (channels * pixels), channels, pixels);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef images_functions[] = {
    FUNCTION(fold),
    FUNCTION(largest),
    FUNCTION(largest_gradient),
    FUNCTION(normalise),
    FUNCTION(normalise_gradient),
    {NULL, NULL, 0, NULL},
};
