/* Winograd's convolution F(4 x 4, 3 x 3): the four transforms between planes and points (kernels/winograd.py).
 *
 * A window of 6 x 6 pixels becomes its values at 6 x 6 points, and the products at these points become a tile of 4 x 4
 * results. The points of an axis are 0, +-sqrt(1/2), +-sqrt(2) and infinity, whose rounding errors are the smallest.
 */
#include "kernels.h"

enum { TILE = 4, WINDOW = 6, POINTS = WINDOW * WINDOW, LANES = 16 };

#define INLINE static inline __attribute__((always_inline))

static const float P = 0.70710678f, Q = 1.41421356f, P3 = 0.35355339f, Q3 = 2.82842712f; /* points and their cubes */

typedef float Lanes[LANES]; /* one number of each of 16 tiles */

/* n images of channels; tiles of which the first begins at -padding. */
typedef struct {
    Py_ssize_t n, channels, height, width, rows, columns, padding;
} Tiles;

/* ----- One axis of a window or tile; `step` is the distance of its elements */

INLINE void window_to_points(Lanes *x, int step) {
    for (int k = 0; k < LANES; k++) {
        float d0 = x[0][k], d1 = x[step][k], d2 = x[2 * step][k], d3 = x[3 * step][k], d4 = x[4 * step][k], d5 = x[5 * step][k];
        float even = d4 - 2 * d2, odd = P * d3 - Q * d1, more = d4 - 0.5f * d2, rest = Q * d3 - P * d1;
        x[0][k] = d0 - 2.5f * d2 + d4;
        x[step][k] = even + odd;
        x[2 * step][k] = even - odd;
        x[3 * step][k] = more + rest;
        x[4 * step][k] = more - rest;
        x[5 * step][k] = d1 - 2.5f * d3 + d5;
    }
}

INLINE void points_to_window(Lanes *x, int step) { /* the transpose of window_to_points */
    for (int k = 0; k < LANES; k++) {
        float t0 = x[0][k], t1 = x[step][k], t2 = x[2 * step][k], t3 = x[3 * step][k], t4 = x[4 * step][k], t5 = x[5 * step][k];
        x[step][k] = Q * (t2 - t1) + P * (t4 - t3) + t5;
        x[2 * step][k] = -2.5f * t0 - 2 * (t1 + t2) - 0.5f * (t3 + t4);
        x[3 * step][k] = P * (t1 - t2) + Q * (t3 - t4) - 2.5f * t5;
        x[4 * step][k] = t0 + (t1 + t2) + (t3 + t4);
    }
}

INLINE void points_to_tile(Lanes *x, int step) {
    for (int k = 0; k < LANES; k++) {
        float m0 = x[0][k], m1 = x[step][k], m2 = x[2 * step][k], m3 = x[3 * step][k], m4 = x[4 * step][k], m5 = x[5 * step][k];
        float sum = m1 + m2, difference = m1 - m2, more = m3 + m4, rest = m3 - m4;
        x[0][k] = m0 + sum + more;
        x[step][k] = P * difference + Q * rest;
        x[2 * step][k] = 0.5f * sum + 2 * more;
        x[3 * step][k] = P3 * difference + Q3 * rest + m5;
    }
}

INLINE void tile_to_points(Lanes *x, int step) { /* the transpose of points_to_tile */
    for (int k = 0; k < LANES; k++) {
        float y0 = x[0][k], y1 = x[step][k], y2 = x[2 * step][k], y3 = x[3 * step][k];
        float even = y0 + 0.5f * y2, odd = P * y1 + P3 * y3, more = y0 + 2 * y2, rest = Q * y1 + Q3 * y3;
        x[step][k] = even + odd;
        x[2 * step][k] = even - odd;
        x[3 * step][k] = more + rest;
        x[4 * step][k] = more - rest;
        x[5 * step][k] = y3;
    }
}

/* ----- 16 tiles: from planes, to planes */

/* The place of tile `number` in its plane, whose address is set. */
INLINE void locate(const Tiles *tiles, Py_ssize_t number, Py_ssize_t channel, Py_ssize_t *plane, Py_ssize_t *y, Py_ssize_t *x) {
    Py_ssize_t image = number / (tiles->rows * tiles->columns), row = number / tiles->columns % tiles->rows;
    *plane = (image * tiles->channels + channel) * tiles->height * tiles->width;
    *y = row * TILE - tiles->padding;
    *x = number % tiles->columns * TILE - tiles->padding;
}

INLINE int is_inside(const Tiles *tiles, Py_ssize_t y, Py_ssize_t x, int size) {
    return y >= 0 && x >= 0 && y + size <= tiles->height && x + size <= tiles->width;
}

/* Copy `size` x `size` pixels of a plane to a lane; those outside the plane are 0. */
INLINE void take(Lanes *to, int lane, const float *plane, const Tiles *tiles, Py_ssize_t y, Py_ssize_t x, int size) {
    int inside = is_inside(tiles, y, x, size);
    for (int r = 0; r < size; r++)
        for (int c = 0; c < size; c++)
            to[r * WINDOW + c][lane] = inside || (y + r >= 0 && y + r < tiles->height && x + c >= 0 && x + c < tiles->width)
                                           ? plane[(y + r) * tiles->width + x + c] : 0;
}

FUSING static void windows_loop(float *out, const float *images, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    for (Py_ssize_t c = 0; c < tiles->channels; c++)
        for (Py_ssize_t first = 0; first < count; first += LANES) {
            Lanes points[POINTS] = {0};
            int filled = count - first < LANES ? (int)(count - first) : LANES;
            for (int lane = 0; lane < filled; lane++) {
                Py_ssize_t plane, y, x;
                locate(tiles, first + lane, c, &plane, &y, &x);
                take(points, lane, images + plane, tiles, y, x, WINDOW);
            }
            for (int i = 0; i < WINDOW; i++) window_to_points(points + i, WINDOW);
            for (int i = 0; i < WINDOW; i++) window_to_points(points + i * WINDOW, 1);
            for (int i = 0; i < POINTS; i++)
                memcpy(out + (i * tiles->channels + c) * count + first, points[i], filled * sizeof **points);
        }
}

FUSING static void windows_gradient_loop(float *images, const float *gradient, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    memset(images, 0, tiles->n * tiles->channels * tiles->height * tiles->width * sizeof *images);
    for (Py_ssize_t c = 0; c < tiles->channels; c++)
        for (Py_ssize_t first = 0; first < count; first += LANES) {
            Lanes points[POINTS];
            int filled = count - first < LANES ? (int)(count - first) : LANES;
            for (int i = 0; i < POINTS; i++) {
                if (filled < LANES) memset(points[i], 0, sizeof points[i]);
                memcpy(points[i], gradient + (i * tiles->channels + c) * count + first, filled * sizeof **points);
            }
            for (int i = 0; i < WINDOW; i++) points_to_window(points + i, WINDOW);
            for (int i = 0; i < WINDOW; i++) points_to_window(points + i * WINDOW, 1);
            for (int lane = 0; lane < filled; lane++) {
                Py_ssize_t plane, y, x;
                locate(tiles, first + lane, c, &plane, &y, &x);
                int inside = is_inside(tiles, y, x, WINDOW);
                for (int r = 0; r < WINDOW; r++)
                    for (int k = 0; k < WINDOW; k++)
                        if (inside || (y + r >= 0 && y + r < tiles->height && x + k >= 0 && x + k < tiles->width))
                            images[plane + (y + r) * tiles->width + x + k] += points[r * WINDOW + k][lane];
            }
        }
}

FUSING static void maps_loop(float *maps, const float *products, const float *bias, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    for (Py_ssize_t c = 0; c < tiles->channels; c++)
        for (Py_ssize_t first = 0; first < count; first += LANES) {
            Lanes points[POINTS];
            int filled = count - first < LANES ? (int)(count - first) : LANES;
            for (int i = 0; i < POINTS; i++) {
                if (filled < LANES) memset(points[i], 0, sizeof points[i]);
                memcpy(points[i], products + (i * tiles->channels + c) * count + first, filled * sizeof **points);
            }
            for (int i = 0; i < WINDOW; i++) points_to_tile(points + i, WINDOW);
            for (int i = 0; i < TILE; i++) points_to_tile(points + i * WINDOW, 1);
            for (int lane = 0; lane < filled; lane++) {
                Py_ssize_t plane, y, x;
                locate(tiles, first + lane, c, &plane, &y, &x);
                int inside = is_inside(tiles, y, x, TILE);
                for (int r = 0; r < TILE; r++)
                    for (int k = 0; k < TILE; k++)
                        if (inside || (y + r < tiles->height && x + k < tiles->width))
                            maps[plane + (y + r) * tiles->width + x + k] = points[r * WINDOW + k][lane] + (bias ? bias[c] : 0);
            }
        }
}

FUSING static void maps_gradient_loop(float *out, const float *maps, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    for (Py_ssize_t c = 0; c < tiles->channels; c++)
        for (Py_ssize_t first = 0; first < count; first += LANES) {
            Lanes points[POINTS] = {0};
            int filled = count - first < LANES ? (int)(count - first) : LANES;
            for (int lane = 0; lane < filled; lane++) {
                Py_ssize_t plane, y, x;
                locate(tiles, first + lane, c, &plane, &y, &x);
                take(points, lane, maps + plane, tiles, y, x, TILE);
            }
            for (int i = 0; i < TILE; i++) tile_to_points(points + i, WINDOW);
            for (int i = 0; i < WINDOW; i++) tile_to_points(points + i * WINDOW, 1);
            for (int i = 0; i < POINTS; i++)
                memcpy(out + (i * tiles->channels + c) * count + first, points[i], filled * sizeof **points);
        }
}

/* ----- The functions of the module */

enum { TILE_NUMBERS = 6 };

/* Get the tiles from six arguments, and check the numbers of pixels and of points. */
static int read_tiles(PyObject *const *args, Py_ssize_t pixels, Py_ssize_t points, Tiles *tiles) {
    Py_ssize_t *fields[] = {&tiles->channels, &tiles->height, &tiles->width, &tiles->rows, &tiles->columns, &tiles->padding};
    for (int i = 0; i < TILE_NUMBERS; i++) {
        *fields[i] = PyLong_AsSsize_t(args[i]);
        if (*fields[i] < (i == 5 ? 0 : 1) || *fields[i] > 1 << 20) return -1;
    }
    Py_ssize_t image = tiles->channels * tiles->height * tiles->width;
    tiles->n = pixels / image;
    return pixels == tiles->n * image && points == POINTS * tiles->channels * tiles->n * tiles->rows * tiles->columns ? 0 : -1;
}

/* tile_windows(out, images, channels, height, width, rows, columns, padding) */
static PyObject *tile_windows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2 + TILE_NUMBERS);
    Py_ssize_t points, pixels;
    Tiles tiles;
    float *out = floats(&arrays, args[0], &points);
    const float *images = out ? read_floats(&arrays, args[1], &pixels) : NULL;
    if (!images || read_tiles(args + 2, pixels, points, &tiles) < 0) return fail(&arrays, "the tiles do not fit the images");
    Py_BEGIN_ALLOW_THREADS
    windows_loop(out, images, &tiles);
    Py_END_ALLOW_THREADS
    DONE;
}

/* tile_windows_gradient(images, points, channels, height, width, rows, columns, padding) */
static PyObject *tile_windows_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2 + TILE_NUMBERS);
    Py_ssize_t points, pixels;
    Tiles tiles;
    float *images = floats(&arrays, args[0], &pixels);
    const float *gradient = images ? read_floats(&arrays, args[1], &points) : NULL;
    if (!gradient || read_tiles(args + 2, pixels, points, &tiles) < 0) return fail(&arrays, "the tiles do not fit the images");
    Py_BEGIN_ALLOW_THREADS
    windows_gradient_loop(images, gradient, &tiles);
    Py_END_ALLOW_THREADS
    DONE;
}

/* tile_maps(maps, points, bias or None, filters, height, width, rows, columns, padding) */
static PyObject *tile_maps(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(3 + TILE_NUMBERS);
    Py_ssize_t points, pixels, filters = 0;
    Tiles tiles;
    float *maps = floats(&arrays, args[0], &pixels);
    const float *products = maps ? read_floats(&arrays, args[1], &points) : NULL;
    const float *bias = products && args[2] != Py_None ? read_floats(&arrays, args[2], &filters) : NULL;
    if (!products || PyErr_Occurred() || read_tiles(args + 3, pixels, points, &tiles) < 0 || (bias && filters != tiles.channels))
        return fail(&arrays, "the tiles do not fit the maps");
    Py_BEGIN_ALLOW_THREADS
    maps_loop(maps, products, bias, &tiles);
    Py_END_ALLOW_THREADS
    DONE;
}

/* tile_maps_gradient(out, maps, filters, height, width, rows, columns, padding) */
static PyObject *tile_maps_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(2 + TILE_NUMBERS);
    Py_ssize_t points, pixels;
    Tiles tiles;
    float *out = floats(&arrays, args[0], &points);
    const float *maps = out ? read_floats(&arrays, args[1], &pixels) : NULL;
    if (!maps || read_tiles(args + 2, pixels, points, &tiles) < 0) return fail(&arrays, "the tiles do not fit the maps");
    Py_BEGIN_ALLOW_THREADS
    maps_gradient_loop(out, maps, &tiles);
    Py_END_ALLOW_THREADS
    DONE;
}

PyMethodDef winograd_functions[] = {FUNCTION(tile_windows), FUNCTION(tile_windows_gradient), FUNCTION(tile_maps),
                                    FUNCTION(tile_maps_gradient), {NULL, NULL, 0, NULL}};
