/* LSTM steps: a single step, or a sequence of steps. A row of gates is (a, i, f, o): candidate, input gate, forget gate
 * and output gate, each of `size` numbers. */
#include "activations.h"
#include "products.h"

typedef struct {
    int candidate, gate, state;
} Kinds;

static int kinds_of(PyObject *const *args, Kinds *kinds) {
    kinds->candidate = kind_of(args[0]);
    kinds->gate = kinds->candidate < 0 ? -1 : kind_of(args[1]);
    kinds->state = kinds->gate < 0 ? -1 : kind_of(args[2]);
    return kinds->state < 0 ? -1 : 0;
}

/* ----- One step ----- */

/* y: memory for state(c), which the backward pass needs. If y is the same memory as h, h overwrites y. */
FAST static void step_forward(float *gates, const float *peepholes, const float *before, float *c, float *h, float *y, Py_ssize_t n,
                              Py_ssize_t size, Kinds kinds) {
    for (Py_ssize_t row = 0; row < n; row++, gates += 4 * size, before += size, c += size, h += size, y += size) {
        float *a = gates, *i = gates + size, *f = gates + 2 * size, *o = gates + 3 * size;
        for (Py_ssize_t j = 0; j < size; j++) {
            i[j] += before[j] * peepholes[j];
            f[j] += before[j] * peepholes[size + j];
        }
        apply(kinds.candidate, a, size);
        apply(kinds.gate, i, 2 * size);
        for (Py_ssize_t j = 0; j < size; j++) {
            c[j] = a[j] * i[j] + before[j] * f[j];
            o[j] += c[j] * peepholes[2 * size + j];
            y[j] = c[j];
        }
        apply(kinds.gate, o, size);
        apply(kinds.state, y, size);
        for (Py_ssize_t j = 0; j < size; j++) h[j] = y[j] * o[j];
    }
}

/* kept: state(c) of the forward pass, or NULL if it was not kept; room: memory for four rows of `size` numbers */
FAST static void step_backward(float *gates, const float *peepholes, const float *before, const float *c, const float *kept, float *d_h,
                               float *d_c, float *d_peepholes, float *room, Py_ssize_t n, Py_ssize_t size, Kinds kinds) {
    float *d_a = room, *d_y = room + size, *d_f = room + 2 * size, *again = room + 3 * size;
    for (Py_ssize_t row = 0; row < n; row++, gates += 4 * size, before += size, c += size, d_h += size, d_c += size) {
        float *a = gates, *i = gates + size, *f = gates + 2 * size, *o = gates + 3 * size, *d_o = d_h;
        const float *y = kept ? kept + row * size : again;
        if (!kept) {
            for (Py_ssize_t j = 0; j < size; j++) again[j] = c[j];
            apply(kinds.state, again, size);
        }
        for (Py_ssize_t j = 0; j < size; j++) {
            d_y[j] = d_h[j] * o[j];
            d_o[j] = d_h[j] * y[j];
        }
        descend(kinds.state, d_y, y, size);
        descend(kinds.gate, d_o, o, size);
        float *d_i = d_y; /* reuses the memory of d_y */
        for (Py_ssize_t j = 0; j < size; j++) {
            float d = d_c[j] + d_y[j] + d_o[j] * peepholes[2 * size + j];
            d_a[j] = d * i[j];
            d_i[j] = d * a[j];
            d_f[j] = d * before[j];
            d_c[j] = d * f[j];
        }
        descend(kinds.candidate, d_a, a, size);
        descend(kinds.gate, d_i, i, size);
        descend(kinds.gate, d_f, f, size);
        for (Py_ssize_t j = 0; j < size; j++) {
            d_c[j] += d_i[j] * peepholes[j] + d_f[j] * peepholes[size + j];
            d_peepholes[j] += d_i[j] * before[j];
            d_peepholes[size + j] += d_f[j] * before[j];
            d_peepholes[2 * size + j] += d_o[j] * c[j];
            a[j] = d_a[j];
            i[j] = d_i[j];
            f[j] = d_f[j];
            o[j] = d_o[j];
        }
    }
}

/* lstm_forward(c, gates, peepholes, before, h, size, candidate, gate, state): replace the inputs of the gates by the
 * gates, and write the state c and the output h; `before` is the previous state, and the last three arguments are the
 * activations */
static PyObject *lstm_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(9);
    Py_ssize_t n, rest, size = PyLong_AsSsize_t(args[5]);
    Kinds kinds;
    float *c = floats(&arrays, args[0], &n);
    if (!c || size < 1 || n % size || kinds_of(args + 6, &kinds) < 0) return fail(&arrays, "the state does not fit");
    float *gates = floats(&arrays, args[1], &rest);
    if (!gates || rest != 4 * n) return fail(&arrays, "the gates do not fit");
    const float *peepholes = read_floats(&arrays, args[2], &rest);
    if (!peepholes || rest != 3 * size) return fail(&arrays, "the peepholes do not fit");
    const float *before = read_floats(&arrays, args[3], &rest);
    if (!before || rest != n) return fail(&arrays, "the state before does not fit");
    float *h = floats(&arrays, args[4], &rest);
    if (!h || rest != n) return fail(&arrays, "the output does not fit");
    Py_BEGIN_ALLOW_THREADS
    step_forward(gates, peepholes, before, c, h, h, n / size, size, kinds);
    Py_END_ALLOW_THREADS
    DONE;
}

/* lstm_backward(d_c, gates, peepholes, before, c, d_h, d_peepholes, size, candidate, gate, state): replace the gates by
 * the gradients of their inputs, and d_c by the gradient of the previous state `before`; add the gradient of the
 * peepholes to d_peepholes, and overwrite d_h */
static PyObject *lstm_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(11);
    Py_ssize_t n, rest, size = PyLong_AsSsize_t(args[7]);
    Kinds kinds;
    float *d_c = floats(&arrays, args[0], &n);
    if (!d_c || size < 1 || n % size || kinds_of(args + 8, &kinds) < 0) return fail(&arrays, "the state does not fit");
    float *gates = floats(&arrays, args[1], &rest);
    if (!gates || rest != 4 * n) return fail(&arrays, "the gates do not fit");
    const float *peepholes = read_floats(&arrays, args[2], &rest);
    if (!peepholes || rest != 3 * size) return fail(&arrays, "the peepholes do not fit");
    const float *before = read_floats(&arrays, args[3], &rest);
    if (!before || rest != n) return fail(&arrays, "the state before does not fit");
    const float *c = read_floats(&arrays, args[4], &rest);
    if (!c || rest != n) return fail(&arrays, "the state does not fit");
    float *d_h = floats(&arrays, args[5], &rest);
    if (!d_h || rest != n) return fail(&arrays, "the output's gradient does not fit");
    float *d_peepholes = floats(&arrays, args[6], &rest);
    if (!d_peepholes || rest != 3 * size) return fail(&arrays, "the peepholes' gradient does not fit");
    float *room = PyMem_Malloc(4 * size * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    Py_BEGIN_ALLOW_THREADS
    step_backward(gates, peepholes, before, c, NULL, d_h, d_c, d_peepholes, room, n / size, size, kinds);
    Py_END_ALLOW_THREADS
    PyMem_Free(room);
    DONE;
}

/* ----- Many steps. Step t has the rows begins[t] to begins[t + 1] of every packed array, and no step has more rows
 * than the previous step. ----- */

typedef struct {
    float *gates;
    const float *x, *w, *peepholes;
    const int64_t *rows, *begins;
    Py_ssize_t steps, size;
    Kinds kinds;
} Run;

/* Get a run from the arguments (gates, x, rows, w, peepholes, begins, size, candidate, gate, state). x has width * size
 * columns. */
static int run_of(Arrays *arrays, PyObject *const *args, Py_ssize_t width, Run *run) {
    Py_ssize_t length, all, n, weights, three, bounds;
    run->gates = floats(arrays, args[0], &length);
    run->x = run->gates ? read_floats(arrays, args[1], &all) : NULL;
    run->rows = run->x ? read_integers(arrays, args[2], &n) : NULL;
    run->w = run->rows ? read_floats(arrays, args[3], &weights) : NULL;
    run->peepholes = run->w ? read_floats(arrays, args[4], &three) : NULL;
    run->begins = run->peepholes ? read_integers(arrays, args[5], &bounds) : NULL;
    if (!run->begins) return -1;
    run->size = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred() || kinds_of(args + 7, &run->kinds) < 0) return -1;
    Py_ssize_t size = run->size;
    run->steps = bounds - 1;
    int good = size > 0 && length == 4 * size * n && weights == 4 * size * size && three == 3 * size && rising(run->begins, bounds, n) &&
               all % (width * size) == 0 &&
               in_range(run->rows, n, all / (width * size));
    for (Py_ssize_t t = 2; good && t < bounds; t++)
        good = run->begins[t] - run->begins[t - 1] <= run->begins[t - 1] - run->begins[t - 2];
    if (!good) PyErr_SetString(PyExc_ValueError, "the steps do not fit their arrays");
    return good ? 0 : -1;
}

static const float *before_of(const float *state, const Run *run, Py_ssize_t step, const float *zeros) {
    return step ? state + run->begins[step - 1] * run->size : zeros;
}

FAST static void start_gates(float *gates, const float *x, const int64_t *rows, const float *bias, Py_ssize_t n, Py_ssize_t width) {
    for (Py_ssize_t row = 0; row < n; row++, gates += width)
        for (Py_ssize_t j = 0; j < width; j++) gates[j] = x[rows[row] * width + j] + bias[j];
}

FAST static void take_rows(float *out, const float *table, const int64_t *rows, Py_ssize_t n, Py_ssize_t width) {
    for (Py_ssize_t row = 0; row < n; row++) memcpy(out + row * width, table + rows[row] * width, width * sizeof *out);
}

/* lstm_run_forward(run..., bias, c, y, h): run all steps, and write gates, c, y and h; `run...` stands for the
 * arguments of run_of */
static PyObject *lstm_run_forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(14);
    Run run;
    Py_ssize_t rest, lengths[3];
    float *states[3];
    if (run_of(&arrays, args, 4, &run) < 0) return fail(&arrays, "");
    Py_ssize_t size = run.size, n = run.begins[run.steps], most = run.steps ? run.begins[1] : 0;
    const float *bias = read_floats(&arrays, args[10], &rest);
    if (!bias || rest != 4 * size) return fail(&arrays, "the bias does not fit");
    for (int i = 0; i < 3; i++)
        if (!(states[i] = floats(&arrays, args[11 + i], &lengths[i])) || lengths[i] != n * size)
            return fail(&arrays, "the state does not fit");
    float *c = states[0], *y = states[1], *h = states[2];
    float *zeros = PyMem_Calloc(most * size + panels_room(size, 4 * size), sizeof *zeros);
    if (!zeros) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    Py_BEGIN_ALLOW_THREADS
    Factor w = pack(zeros + most * size, run.w, size, 4 * size);
    for (Py_ssize_t t = 0; t < run.steps; t++) {
        int64_t at = run.begins[t], live = run.begins[t + 1] - at;
        float *gates = run.gates + at * 4 * size;
        start_gates(gates, run.x, run.rows + at, bias, live, 4 * size);
        if (t) add_product(gates, 4 * size, before_of(h, &run, t, zeros), size, &w, live);
        step_forward(gates, run.peepholes, before_of(c, &run, t, zeros), c + at * size, h + at * size, y + at * size, live, size,
                     run.kinds);
    }
    Py_END_ALLOW_THREADS
    PyMem_Free(zeros);
    DONE;
}

/* lstm_run_backward(run..., c, y, d_c, d_peepholes): run the steps from the last to the first. `run...` stands for the
 * arguments of run_of; x is the gradient of h, and w is transposed. */
static PyObject *lstm_run_backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(14);
    Run run;
    Py_ssize_t c_length, y_length, d_c_length, three;
    if (run_of(&arrays, args, 1, &run) < 0) return fail(&arrays, "");
    Py_ssize_t size = run.size, n = run.begins[run.steps], most = run.steps ? run.begins[1] : 0;
    const float *c = read_floats(&arrays, args[10], &c_length), *y = c ? read_floats(&arrays, args[11], &y_length) : NULL;
    float *d_c = y ? floats(&arrays, args[12], &d_c_length) : NULL, *d_peepholes = d_c ? floats(&arrays, args[13], &three) : NULL;
    if (!d_peepholes || c_length != n * size || y_length != n * size || d_c_length != most * size || three != 3 * size)
        return fail(&arrays, "the state does not fit");
    float *zeros = PyMem_Calloc((2 * most + 4) * size + panels_room(4 * size, size), sizeof *zeros);
    if (!zeros) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    float *d_h = zeros + most * size, *room = d_h + most * size;
    Py_BEGIN_ALLOW_THREADS
    Factor w = pack(room + 4 * size, run.w, 4 * size, size);
    for (Py_ssize_t t = run.steps - 1; t >= 0; t--) {
        int64_t at = run.begins[t], next = run.begins[t + 1], live = next - at;
        take_rows(d_h, run.x, run.rows + at, live, size);
        if (t + 1 < run.steps)
            add_product(d_h, size, run.gates + next * 4 * size, 4 * size, &w, run.begins[t + 2] - next);
        step_backward(run.gates + at * 4 * size, run.peepholes, before_of(c, &run, t, zeros), c + at * size, y + at * size, d_h, d_c,
                      d_peepholes, room, live, size, run.kinds);
    }
    Py_END_ALLOW_THREADS
    PyMem_Free(zeros);
    DONE;
}

PyMethodDef lstm_functions[] = {FUNCTION(lstm_forward), FUNCTION(lstm_backward), FUNCTION(lstm_run_forward),
                                FUNCTION(lstm_run_backward), {NULL, NULL, 0, NULL}};
