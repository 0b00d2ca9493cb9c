/* Winograd's convolution F(4 x 4, 3 x 3): the four transforms between planes and points (paddle_base/kernels/winograd.py).
 *
 * One transform turns a window of 6 x 6 pixels into values at 6 x 6 points. Another transform turns the products at
 * these points into a tile of 4 x 4 results. The points of an axis are 0, +-sqrt(1/2), +-sqrt(2) and infinity: these
 * points give small rounding errors. */
#include "kernels.h"

enum { TILE = 4, WINDOW = 6, POINTS = WINDOW * WINDOW, LANES = 16 };

#define INLINE static inline __attribute__((always_inline))

static const float P = 0.70710678f, Q = 1.41421356f, P3 = 0.35355339f, Q3 = 2.82842712f; /* two points and their cubes */

typedef float Lanes[LANES]; /* one number of each of 16 tiles */

/* n images with channels, and their tiles; the first tile of an image begins at -padding. */
typedef struct {
    Py_ssize_t n, channels, height, width, rows, columns, padding;
} Tiles;

/* ----- One axis of a window or tile; `step` is the distance between successive elements of the axis in memory */

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

/* ----- 16 tiles at once, read from planes and written to planes */

/* The place of a tile: the offset of its plane, and its first row and column in the plane. */
typedef struct {
    Py_ssize_t plane, y, x;
} Place;

INLINE Place first_place(const Tiles *tiles, Py_ssize_t channel) {
    return (Place){channel * tiles->height * tiles->width, -tiles->padding, -tiles->padding};
}

/* Go to the next tile: to the right, then to the next row of tiles, then to the next image of the same channel. */
INLINE void advance(const Tiles *tiles, Place *place) {
    place->x += TILE;
    if (place->x < tiles->columns * TILE - tiles->padding) return;
    place->x = -tiles->padding;
    place->y += TILE;
    if (place->y < tiles->rows * TILE - tiles->padding) return;
    place->y = -tiles->padding;
    place->plane += tiles->channels * tiles->height * tiles->width;
}

INLINE int is_inside(const Tiles *tiles, Place at, int size) {
    return at.y >= 0 && at.x >= 0 && at.y + size <= tiles->height && at.x + size <= tiles->width;
}

/* Get the range [first, last) of the rows or columns of a tile that are in a plane of this length. */
INLINE void clip(Py_ssize_t begin, Py_ssize_t length, int size, int *first, int *last) {
    *first = begin < 0 ? (int)(-begin < size ? -begin : size) : 0;
    *last = begin + size <= length ? size : begin < length ? (int)(length - begin) : 0;
}

/* Copy `size` x `size` pixels of an image to a lane; elements of the lane that lie outside the plane are not written. */
INLINE void take(Lanes *to, int lane, const float *images, const Tiles *tiles, Place at, int size) {
    const float *from = images + at.plane + at.y * tiles->width + at.x;
    int top = 0, bottom = size, left = 0, right = size;
    if (is_inside(tiles, at, size)) {
        for (int r = 0; r < size; r++, from += tiles->width)
            for (int c = 0; c < size; c++) to[r * WINDOW + c][lane] = from[c];
        return;
    }
    clip(at.y, tiles->height, size, &top, &bottom);
    clip(at.x, tiles->width, size, &left, &right);
    for (int r = top; r < bottom; r++)
        for (int c = left; c < right; c++) to[r * WINDOW + c][lane] = from[r * tiles->width + c];
}

FUSING static void windows_loop(float *out, const float *images, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    for (Py_ssize_t c = 0; c < tiles->channels; c++) {
        Place place = first_place(tiles, c);
        for (Py_ssize_t first = 0; first < count; first += LANES) {
            Lanes points[POINTS] = {0};
            int filled = count - first < LANES ? (int)(count - first) : LANES;
            for (int lane = 0; lane < filled; lane++) {
                take(points, lane, images, tiles, place, WINDOW);
                advance(tiles, &place);
            }
            for (int i = 0; i < WINDOW; i++) window_to_points(points + i, WINDOW);
            for (int i = 0; i < WINDOW; i++) window_to_points(points + i * WINDOW, 1);
            for (int i = 0; i < POINTS; i++)
                memcpy(out + (i * tiles->channels + c) * count + first, points[i], filled * sizeof **points);
        }
    }
}

FUSING static void windows_gradient_loop(float *images, const float *gradient, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    memset(images, 0, tiles->n * tiles->channels * tiles->height * tiles->width * sizeof *images);
    for (Py_ssize_t c = 0; c < tiles->channels; c++) {
        Place place = first_place(tiles, c);
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
                int top, bottom, left, right;
                clip(place.y, tiles->height, WINDOW, &top, &bottom);
                clip(place.x, tiles->width, WINDOW, &left, &right);
                float *to = images + place.plane + place.y * tiles->width + place.x;
                for (int r = top; r < bottom; r++)
                    for (int k = left; k < right; k++) to[r * tiles->width + k] += points[r * WINDOW + k][lane];
                advance(tiles, &place);
            }
        }
    }
}

FUSING static void maps_loop(float *maps, const float *products, const float *bias, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    for (Py_ssize_t c = 0; c < tiles->channels; c++) {
        Place place = first_place(tiles, c);
        float shift = bias ? bias[c] : 0;
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
                int top, bottom, left, right;
                clip(place.y, tiles->height, TILE, &top, &bottom);
                clip(place.x, tiles->width, TILE, &left, &right);
                float *to = maps + place.plane + place.y * tiles->width + place.x;
                for (int r = top; r < bottom; r++)
                    for (int k = left; k < right; k++) to[r * tiles->width + k] = points[r * WINDOW + k][lane] + shift;
                advance(tiles, &place);
            }
        }
    }
}

FUSING static void maps_gradient_loop(float *out, const float *maps, const Tiles *tiles) {
    Py_ssize_t count = tiles->n * tiles->rows * tiles->columns;
    for (Py_ssize_t c = 0; c < tiles->channels; c++) {
        Place place = first_place(tiles, c);
        for (Py_ssize_t first = 0; first < count; first += LANES) {
            Lanes points[POINTS] = {0};
            int filled = count - first < LANES ? (int)(count - first) : LANES;
            for (int lane = 0; lane < filled; lane++) {
                take(points, lane, maps, tiles, place, TILE);
                advance(tiles, &place);
            }
            for (int i = 0; i < TILE; i++) tile_to_points(points + i, WINDOW);
            for (int i = 0; i < WINDOW; i++) tile_to_points(points + i * WINDOW, 1);
            for (int i = 0; i < POINTS; i++)
                memcpy(out + (i * tiles->channels + c) * count + first, points[i], filled * sizeof **points);
        }
    }
}

/* ----- The functions of the module */

enum { TILE_NUMBERS = 6 };

/* Get the tiles from six arguments, and check the numbers of pixels and of points. */
static int read_tiles(PyObject *const *args, Py_ssize_t pixels, Py_ssize_t points, Tiles *tiles) {
    Py_ssize_t *fields[] = {&tiles->channels, &tiles->height, &tiles->width, &tiles->rows, &tiles->columns, &tiles->padding};
    for (int i = 0; i < TILE_NUMBERS; i++) {
        *fields[i] = PyLong_AsSsize_t(args[i]);
        if (*fields[i] < (i == 5 ? 0 : 1) || *fields[i] > 1 << 16) return -1;
    }
    Py_ssize_t image = tiles->channels * tiles->height * tiles->width;
    tiles->n = pixels / image;
    return pixels == tiles->n * image && points == POINTS * tiles->channels * tiles->n * tiles->rows * tiles->columns ? 0 : -1;
}

/* tile_windows(out, images, channels, height, width, rows, columns, padding): transform the windows of images to
 * points; an image has `rows` times `columns` tiles */
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

/* tile_windows_gradient(images, points, channels, height, width, rows, columns, padding): apply the transpose of
 * tile_windows to the points, and write the images */
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

/* tile_maps(maps, points, bias or None, filters, height, width, rows, columns, padding): transform the points to tiles
 * of results, add the bias, and write the maps */
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

/* tile_maps_gradient(out, maps, filters, height, width, rows, columns, padding): apply the transpose of tile_maps to
 * the maps, and write the points to `out` */
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
