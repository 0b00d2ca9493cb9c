/* All steps of a GRU in one pass, and a single step without its products. A row of gates is (u, r, c): update gate, reset gate and candidate, each of `size`
 * numbers. Step t has the rows begins[t] to begins[t + 1] of every packed array; no step has more rows than the
 * previous step. */
#include "activations.h"
#include "products.h"

typedef struct {
    float *gates, *reset;
    const float *x, *w, *h;
    const int64_t *rows, *begins;
    Py_ssize_t steps, size, most;
    int gate, candidate;
} Run;

/* Get a run from the arguments (gates, x, rows, w, reset, begins, size, gate, candidate). x has width * size
 * columns. */
static int run_of(Arrays *arrays, PyObject *const *args, Py_ssize_t width, Run *run) {
    Py_ssize_t length, all, n, weights, resets, bounds;
    run->gates = floats(arrays, args[0], &length);
    run->x = run->gates ? read_floats(arrays, args[1], &all) : NULL;
    run->rows = run->x ? read_integers(arrays, args[2], &n) : NULL;
    run->w = run->rows ? read_floats(arrays, args[3], &weights) : NULL;
    run->reset = run->w ? floats(arrays, args[4], &resets) : NULL;
    run->begins = run->reset ? read_integers(arrays, args[5], &bounds) : NULL;
    if (!run->begins) return -1;
    run->size = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred() || (run->gate = kind_of(args[7])) < 0 || (run->candidate = kind_of(args[8])) < 0) return -1;
    Py_ssize_t size = run->size;
    run->steps = bounds - 1;
    int good = size > 0 && length == 3 * size * n && resets == size * n && weights == 3 * size * size &&
               rising(run->begins, bounds, n) && all % (width * size) == 0 && in_range(run->rows, n, all / (width * size));
    for (Py_ssize_t t = 2; good && t < bounds; t++)
        good = run->begins[t] - run->begins[t - 1] <= run->begins[t - 1] - run->begins[t - 2];
    if (!good) PyErr_SetString(PyExc_ValueError, "the steps do not fit their arrays");
    run->most = good && run->steps ? run->begins[1] : 0;
    return good ? 0 : -1;
}

/* Return the rows of h of the previous step, or `zeros` for the first step. */
static const float *before_of(const Run *run, Py_ssize_t step, const float *zeros) {
    return step ? run->h + run->begins[step - 1] * run->size : zeros;
}

FAST static void start_gates(float *gates, const float *x, const int64_t *rows, const float *bias, Py_ssize_t n, Py_ssize_t width) {
    for (Py_ssize_t row = 0; row < n; row++, gates += width) {
        const float *from = x + rows[row] * width;
        if (bias)
            for (Py_ssize_t j = 0; j < width; j++) gates[j] = from[j] + bias[j];
        else
            memcpy(gates, from, width * sizeof *gates);
    }
}

/* replace the inputs of u and r by u and r, and write r h' to reset; h' is the previous h */
FAST static void reset_forward(float *gates, const float *before, float *reset, Py_ssize_t n, Py_ssize_t size, int gate) {
    for (Py_ssize_t row = 0; row < n; row++, gates += 3 * size, before += size, reset += size) {
        apply(gate, gates, 2 * size);
        for (Py_ssize_t j = 0; j < size; j++) reset[j] = gates[size + j] * before[j];
    }
}

/* replace the input of c by c, and write h = h' + u (c - h') */
FAST static void output_forward(float *gates, const float *before, float *h, Py_ssize_t n, Py_ssize_t size, int candidate) {
    for (Py_ssize_t row = 0; row < n; row++, gates += 3 * size, before += size, h += size) {
        const float *u = gates;
        float *c = gates + 2 * size;
        apply(candidate, c, size);
        for (Py_ssize_t j = 0; j < size; j++) h[j] = (c[j] - before[j]) * u[j] + before[j];
    }
}

/* replace u and c by the gradients of their inputs, and d_h by the part of the gradient of h that reaches h' directly */
FAST static void output_backward(float *gates, const float *before, float *d_h, Py_ssize_t n, Py_ssize_t size, int gate, int candidate,
                                 float *room) {
    float *d_u = room, *d_c = room + size;
    for (Py_ssize_t row = 0; row < n; row++, gates += 3 * size, before += size, d_h += size) {
        float *u = gates, *c = gates + 2 * size;
        for (Py_ssize_t j = 0; j < size; j++) {
            d_u[j] = (c[j] - before[j]) * d_h[j];
            d_c[j] = d_h[j] * u[j];
            d_h[j] -= d_c[j];
        }
        descend(gate, d_u, u, size);
        descend(candidate, d_c, c, size);
        memcpy(u, d_u, size * sizeof *u);
        memcpy(c, d_c, size * sizeof *c);
    }
}

/* replace r by the gradient of the input of r, and add to d_h the part of the gradient of h' that comes through r h' */
FAST static void reset_backward(float *gates, const float *before, const float *d_reset, float *d_h, Py_ssize_t n, Py_ssize_t size,
                                int gate, float *d_r) {
    for (Py_ssize_t row = 0; row < n; row++, gates += 3 * size, before += size, d_reset += size, d_h += size) {
        float *r = gates + size;
        for (Py_ssize_t j = 0; j < size; j++) {
            d_r[j] = d_reset[j] * before[j];
            d_h[j] += d_reset[j] * r[j];
        }
        descend(gate, d_r, r, size);
        memcpy(r, d_r, size * sizeof *r);
    }
}

/* write the rows of the gradient of h to d_h; the first `following` rows of d_h contain the gradient from the next step,
 * so the function adds to these rows */
FAST static void start_gradient(float *d_h, const float *gradient, const int64_t *rows, Py_ssize_t n, Py_ssize_t following,
                                Py_ssize_t size) {
    for (Py_ssize_t row = 0; row < n; row++, d_h += size) {
        const float *from = gradient + rows[row] * size;
        if (row < following)
            for (Py_ssize_t j = 0; j < size; j++) d_h[j] += from[j];
        else
            memcpy(d_h, from, size * sizeof *d_h);
    }
}

/* gru_run_forward(run..., bias or None, h): run all steps, and write gates, reset and h; `run...` stands for the
 * arguments of run_of */
static PyObject *gru_run_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(11);
    Run run;
    Py_ssize_t rest = 0, length;
    const float *bias = NULL;
    if (run_of(&arrays, args, 3, &run) < 0) return fail(&arrays, "");
    Py_ssize_t size = run.size, n = run.begins[run.steps], wide = 3 * size;
    if (args[9] != Py_None && (!(bias = read_floats(&arrays, args[9], &rest)) || rest != wide)) return fail(&arrays, "the bias does not fit");
    float *h = floats(&arrays, args[10], &length);
    if (!h || length != n * size) return fail(&arrays, "the output does not fit");
    Py_ssize_t of_gates = panels_room(size, 2 * size);
    float *zeros = PyMem_Calloc(run.most * size + of_gates + panels_room(size, size), sizeof *zeros);
    if (!zeros) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    run.h = h;
    Py_BEGIN_ALLOW_THREADS
    Factor gates_w = pack(zeros + run.most * size, run.w, size, 2 * size);
    Factor candidate_w = pack(zeros + run.most * size + of_gates, run.w + 2 * size * size, size, size);
    for (Py_ssize_t t = 0; t < run.steps; t++) {
        int64_t at = run.begins[t], live = run.begins[t + 1] - at;
        float *gates = run.gates + at * wide, *reset = run.reset + at * size;
        const float *before = before_of(&run, t, zeros);
        start_gates(gates, run.x, run.rows + at, bias, live, wide);
        if (t) add_product(gates, wide, before, size, &gates_w, live);
        reset_forward(gates, before, reset, live, size, run.gate);
        if (t) add_product(gates + 2 * size, wide, reset, size, &candidate_w, live);
        output_forward(gates, before, h + at * size, live, size, run.candidate);
    }
    Py_END_ALLOW_THREADS
    PyMem_Free(zeros);
    DONE;
}

/* gru_run_backward(run..., h): run the steps from the last to the first. `run...` stands for the arguments of run_of; x
 * is the gradient of h, and w contains (W_u | W_r) transposed, and then W_c transposed. The gradients of the inputs of
 * the gates replace the gates. */
static PyObject *gru_run_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(10);
    Run run;
    Py_ssize_t length;
    if (run_of(&arrays, args, 1, &run) < 0) return fail(&arrays, "");
    Py_ssize_t size = run.size, wide = 3 * size, most = run.most;
    run.h = read_floats(&arrays, args[9], &length);
    if (!run.h || length != run.begins[run.steps] * size) return fail(&arrays, "the output does not fit");
    Py_ssize_t of_gates = panels_room(2 * size, size);
    float *zeros = PyMem_Calloc((3 * most + 2) * size + of_gates + panels_room(size, size), sizeof *zeros);
    if (!zeros) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    float *d_h = zeros + most * size, *d_reset = d_h + most * size, *room = d_reset + most * size, *panels = room + 2 * size;
    Py_BEGIN_ALLOW_THREADS
    Factor gates_w = pack(panels, run.w, 2 * size, size);
    Factor candidate_w = pack(panels + of_gates, run.w + 2 * size * size, size, size);
    for (Py_ssize_t t = run.steps - 1; t >= 0; t--) {
        int64_t at = run.begins[t], next = run.begins[t + 1], live = next - at;
        int64_t following = t + 1 < run.steps ? run.begins[t + 2] - next : 0;
        float *gates = run.gates + at * wide;
        const float *before = before_of(&run, t, zeros);
        start_gradient(d_h, run.x, run.rows + at, live, following, size);
        add_product(d_h, size, run.gates + next * wide, wide, &gates_w, following);
        output_backward(gates, before, d_h, live, size, run.gate, run.candidate, room);
        memset(d_reset, 0, live * size * sizeof *d_reset);
        if (t) add_product(d_reset, size, gates + 2 * size, wide, &candidate_w, live);
        reset_backward(gates, before, d_reset, d_h, live, size, run.gate, room);
    }
    Py_END_ALLOW_THREADS
    PyMem_Free(zeros);
    DONE;
}

/* ----- A single step, whose products are computed between these functions. (u, r) and c have arrays of their own. A
 * row of `sums` is (u, r, c) too: the input of the gates without the products with h'. ----- */

typedef struct {
    float *out[2];
    const float *in[3];
    Py_ssize_t n, size;
    int kind;
} Step;

/* in: sums, h'. Replace the products in (u, r) by the gates, and write r h' to reset. */
FAST static void step_gates(const Step *step) {
    Py_ssize_t size = step->size;
    float *gates = step->out[0], *reset = step->out[1];
    const float *sums = step->in[0], *before = step->in[1];
    for (Py_ssize_t row = 0; row < step->n; row++, gates += 2 * size, reset += size, sums += 3 * size, before += size) {
        for (Py_ssize_t j = 0; j < 2 * size; j++) gates[j] += sums[j];
        apply(step->kind, gates, 2 * size);
        for (Py_ssize_t j = 0; j < size; j++) reset[j] = gates[size + j] * before[j];
    }
}

/* in: sums, (u, r), h'. Replace the product in c by the candidate, and write h = h' + u (c - h'). */
FAST static void step_output(const Step *step) {
    Py_ssize_t size = step->size;
    float *c = step->out[0], *h = step->out[1];
    const float *sums = step->in[0], *u = step->in[1], *before = step->in[2];
    for (Py_ssize_t row = 0; row < step->n; row++, c += size, h += size, sums += 3 * size, u += 2 * size, before += size) {
        for (Py_ssize_t j = 0; j < size; j++) c[j] += sums[2 * size + j];
        if (step->kind == TANH)
            for (Py_ssize_t j = 0; j < size; j++) c[j] = nearest_tanh_of(c[j]); /* as the function `activate` */
        else
            apply(step->kind, c, size);
        for (Py_ssize_t j = 0; j < size; j++) h[j] = (c[j] - before[j]) * u[j] + before[j];
    }
}

/* in: (u, r), h', c. Write the gradients of u and of the input of c to d_sums, and replace d_h, the gradient of h, by
 * its part that reaches h' directly. */
FAST static void step_output_gradient(const Step *step) {
    Py_ssize_t size = step->size;
    float *d_sums = step->out[0], *d_h = step->out[1];
    const float *u = step->in[0], *before = step->in[1], *c = step->in[2];
    for (Py_ssize_t row = 0; row < step->n; row++, d_sums += 3 * size, d_h += size, u += 2 * size, before += size, c += size) {
        float *d_c = d_sums + 2 * size;
        for (Py_ssize_t j = 0; j < size; j++) {
            d_sums[j] = (c[j] - before[j]) * d_h[j];
            d_c[j] = d_h[j] * u[j];
            d_h[j] -= d_c[j];
        }
        descend(step->kind, d_c, c, size);
    }
}

/* in: (u, r), h', the gradient of r h'. Write the gradients of the inputs of u and r to d_sums, which holds the gradient
 * of u, and add to d_h the part of the gradient of h' that comes through r h'. */
FAST static void step_gates_gradient(const Step *step) {
    Py_ssize_t size = step->size;
    float *d_sums = step->out[0], *d_h = step->out[1];
    const float *gates = step->in[0], *before = step->in[1], *d_reset = step->in[2];
    for (Py_ssize_t row = 0; row < step->n; row++, d_sums += 3 * size, d_h += size, gates += 2 * size, before += size, d_reset += size) {
        for (Py_ssize_t j = 0; j < size; j++) {
            d_sums[size + j] = d_reset[j] * before[j];
            d_h[j] += d_reset[j] * gates[size + j];
        }
        descend(step->kind, d_sums, gates, 2 * size);
    }
}

/* Run a part of a step on the arguments (kind, size, two arrays to write to, the other arrays). The rows of array i
 * have wide[i] * size numbers. */
static PyObject *run_part(PyObject *const *args, Py_ssize_t count, const int *wide, void (*part)(const Step *)) {
    Arrays arrays = {.count = 0};
    Step step = {.kind = kind_of(args[0]), .size = PyLong_AsSsize_t(args[1])};
    if (PyErr_Occurred() || step.size < 1) return fail(&arrays, "the size of the step does not fit");
    for (Py_ssize_t i = 0; i < count - 2; i++) {
        Py_ssize_t length, width = wide[i] * step.size;
        const float *data = i < 2 ? floats(&arrays, args[2 + i], &length) : read_floats(&arrays, args[2 + i], &length);
        if (i == 0 && data) step.n = length / width;
        if (!data || length != step.n * width) return fail(&arrays, "the rows of the step do not fit");
        if (i < 2)
            step.out[i] = (float *)data;
        else
            step.in[i - 2] = data;
    }
    Py_BEGIN_ALLOW_THREADS
    part(&step);
    Py_END_ALLOW_THREADS
    DONE;
}

#define PART(name, number, part, ...) \
    static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count) { \
        static const int wide[] = {__VA_ARGS__}; \
        if (count == 2 + (number)) return run_part(args, count, wide, part); \
        return PyErr_Format(PyExc_TypeError, "%d arguments are wanted, not %zd", 2 + (number), count); \
    }

PART(gru_step_gates, 4, step_gates, 2, 1, 3, 1)
PART(gru_step_output, 5, step_output, 1, 1, 3, 2, 1)
PART(gru_step_output_gradient, 5, step_output_gradient, 3, 1, 2, 1, 1)
PART(gru_step_gates_gradient, 5, step_gates_gradient, 3, 1, 2, 1, 1)

PyMethodDef gru_functions[] = {FUNCTION(gru_run_forward), FUNCTION(gru_run_backward), FUNCTION(gru_step_gates), FUNCTION(gru_step_output),
                               FUNCTION(gru_step_output_gradient), FUNCTION(gru_step_gates_gradient), {NULL, NULL, 0, NULL}};
