/* A conditional random field over the labels of sequences, in double precision. The scores are rows of `classes`
 * numbers. Row 0 scores the first label, row 1 scores the last label, and row 2 + k scores each label that follows label
 * k. Sequence s has the frames starts[s] to starts[s + 1]. */
#include "kernels.h"

typedef struct {
    const float *x;
    const int64_t *starts, *labels;
    const double *scores;
    double *alpha, *emit; /* for each frame and class: the scaled sum over all earlier labels, and the exponential of x */
    Py_ssize_t sequences, classes;
} Chain;

/* The exponentials of the scores; the largest score of each kind is subtracted first. */
typedef struct {
    double start_shift, end_shift, move_shift;
    double *start, *end, *move;
} Powers;

/* Get the chain from the arguments (x, labels, starts, scores, alpha, emit). */
static int chain_of(Arrays *arrays, PyObject *const *args, Chain *chain) {
    Py_ssize_t n, frames, bounds, of_scores, of_alpha, of_emit, classes = 0;
    chain->x = read_floats(arrays, args[0], &n);
    chain->labels = chain->x ? read_integers(arrays, args[1], &frames) : NULL;
    chain->starts = chain->labels ? read_integers(arrays, args[2], &bounds) : NULL;
    chain->scores = chain->starts ? read_doubles(arrays, args[3], &of_scores) : NULL;
    chain->alpha = chain->scores ? doubles(arrays, args[4], &of_alpha) : NULL;
    chain->emit = chain->alpha ? doubles(arrays, args[5], &of_emit) : NULL;
    if (!chain->emit) return -1;
    while (classes * (classes + 2) < of_scores) classes++;
    chain->classes = classes;
    chain->sequences = bounds - 1;
    if (classes < 1 || classes * (classes + 2) != of_scores || n != frames * classes || of_alpha != n || of_emit != n ||
        !rising(chain->starts, bounds, frames) || !in_range(chain->labels, frames, classes)) {
        PyErr_SetString(PyExc_ValueError, "the sequences do not fit their arrays");
        return -1;
    }
    return 0;
}

static double exponentiate(double *out, const double *scores, Py_ssize_t n) {
    double largest = scores[0];
    for (Py_ssize_t i = 1; i < n; i++) largest = scores[i] > largest ? scores[i] : largest;
    for (Py_ssize_t i = 0; i < n; i++) out[i] = exp(scores[i] - largest);
    return largest;
}

/* Return the exponentials of the scores, in `room`, which has memory for classes * (classes + 2) numbers. */
static Powers powers_of(const Chain *chain, double *room) {
    Py_ssize_t classes = chain->classes;
    Powers powers = {.start = room, .end = room + classes, .move = room + 2 * classes};
    powers.start_shift = exponentiate(powers.start, chain->scores, classes);
    powers.end_shift = exponentiate(powers.end, chain->scores + classes, classes);
    powers.move_shift = exponentiate(powers.move, chain->scores + 2 * classes, classes * classes);
    return powers;
}

static double dot(const double *a, const double *b, Py_ssize_t n) {
    double sum = 0;
    for (Py_ssize_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Write alpha of a frame from alpha of the previous frame (NULL for the first frame); return the logarithm of its
 * scale. */
static double step(const Chain *chain, const Powers *powers, int64_t frame, const double *before) {
    Py_ssize_t classes = chain->classes;
    const float *x = chain->x + frame * classes;
    double *alpha = chain->alpha + frame * classes, *emit = chain->emit + frame * classes, total = 0;
    float largest = x[0];
    for (Py_ssize_t j = 1; j < classes; j++) largest = x[j] > largest ? x[j] : largest;
    for (Py_ssize_t j = 0; j < classes; j++) alpha[j] = before ? 0 : powers->start[j];
    for (Py_ssize_t i = 0; i < classes && before; i++)
        for (Py_ssize_t j = 0; j < classes; j++) alpha[j] += before[i] * powers->move[i * classes + j];
    for (Py_ssize_t j = 0; j < classes; j++) {
        emit[j] = exp((double)x[j] - (double)largest);
        alpha[j] *= emit[j];
        total += alpha[j];
    }
    for (Py_ssize_t j = 0; j < classes; j++) alpha[j] /= total;
    return (double)largest + (before ? powers->move_shift : powers->start_shift) + log(total);
}

/* Return -ln of the probability of the labels of a sequence. */
static double cost_of(const Chain *chain, const Powers *powers, int64_t begin, int64_t end) {
    Py_ssize_t classes = chain->classes;
    const int64_t *labels = chain->labels;
    const double *of_start = chain->scores, *of_end = of_start + classes, *of_move = of_end + classes, *before = NULL;
    double total = 0, score = of_start[labels[begin]] + of_end[labels[end - 1]];
    for (int64_t t = begin; t < end; t++) {
        total += step(chain, powers, t, before);
        before = chain->alpha + t * classes;
        score += (double)chain->x[t * classes + labels[t]];
        if (t > begin) score += of_move[labels[t - 1] * classes + labels[t]];
    }
    return total + log(dot(before, powers->end, classes)) + powers->end_shift - score;
}

/* Write the gradient of x, and add the gradient of the scores. beta and seen are memory for `classes` numbers each. */
static void descend_sequence(const Chain *chain, const Powers *powers, int64_t begin, int64_t end, double weight, float *d_x,
                             double *d_scores, double *beta, double *seen) {
    Py_ssize_t classes = chain->classes;
    const int64_t *labels = chain->labels;
    double *d_start = d_scores, *d_end = d_start + classes, *d_move = d_end + classes;
    for (Py_ssize_t j = 0; j < classes; j++) beta[j] = powers->end[j];
    for (int64_t t = end - 1; t >= begin; t--) {
        const double *alpha = chain->alpha + t * classes, *before = alpha - classes, *emit = chain->emit + t * classes;
        double total = dot(alpha, beta, classes), of_beta = 0, norm = 0;
        for (Py_ssize_t j = 0; j < classes; j++) {
            double p = alpha[j] * beta[j] / total, d = (p - (j == labels[t])) * weight;
            d_x[t * classes + j] = (float)d;
            if (t == begin) d_start[j] += d;
            if (t == end - 1) d_end[j] += d;
            of_beta += beta[j];
        }
        if (t == begin) break;
        for (Py_ssize_t j = 0; j < classes; j++) seen[j] = emit[j] * beta[j] / of_beta;
        for (Py_ssize_t i = 0; i < classes; i++) {
            beta[i] = dot(powers->move + i * classes, seen, classes);
            norm += before[i] * beta[i];
        }
        for (Py_ssize_t i = 0; i < classes; i++)
            for (Py_ssize_t j = 0; j < classes; j++)
                d_move[i * classes + j] += weight * before[i] * powers->move[i * classes + j] * seen[j] / norm;
        d_move[labels[t - 1] * classes + labels[t]] -= weight;
    }
}

/* chain_costs(x, labels, starts, scores, alpha, emit, costs): write alpha, emit and the costs of the sequences; an
 * empty sequence costs 0 */
static PyObject *chain_costs(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(7);
    Chain chain;
    Py_ssize_t length;
    if (chain_of(&arrays, args, &chain) < 0) return fail(&arrays, "");
    double *costs = doubles(&arrays, args[6], &length);
    if (!costs || length != chain.sequences) return fail(&arrays, "the costs do not fit");
    double *room = PyMem_Malloc(chain.classes * (chain.classes + 2) * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    Py_BEGIN_ALLOW_THREADS
    Powers powers = powers_of(&chain, room);
    for (Py_ssize_t s = 0; s < chain.sequences; s++) {
        int64_t begin = chain.starts[s], end = chain.starts[s + 1];
        costs[s] = begin < end ? cost_of(&chain, &powers, begin, end) : 0;
    }
    Py_END_ALLOW_THREADS
    PyMem_Free(room);
    DONE;
}

/* chain_gradients(x, labels, starts, scores, alpha, emit, weights, d_x, d_scores): write the gradients of the sum of
 * weights[s] * costs[s] to d_x and d_scores; alpha and emit come from chain_costs */
static PyObject *chain_gradients(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    NEED(9);
    Chain chain;
    Py_ssize_t of_weights, of_x, of_scores;
    if (chain_of(&arrays, args, &chain) < 0) return fail(&arrays, "");
    Py_ssize_t classes = chain.classes, all = classes * (classes + 2);
    const double *weights = read_doubles(&arrays, args[6], &of_weights);
    float *d_x = weights ? floats(&arrays, args[7], &of_x) : NULL;
    double *d_scores = d_x ? doubles(&arrays, args[8], &of_scores) : NULL;
    if (!d_scores || of_weights != chain.sequences || of_x != chain.starts[chain.sequences] * classes || of_scores != all)
        return fail(&arrays, "the gradients do not fit");
    double *room = PyMem_Malloc((all + 2 * classes) * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        return fail(&arrays, "");
    }
    Py_BEGIN_ALLOW_THREADS
    Powers powers = powers_of(&chain, room);
    memset(d_scores, 0, all * sizeof *d_scores);
    for (Py_ssize_t s = 0; s < chain.sequences; s++)
        if (chain.starts[s] < chain.starts[s + 1])
            descend_sequence(&chain, &powers, chain.starts[s], chain.starts[s + 1], weights[s], d_x, d_scores, room + all,
                             room + all + classes);
    Py_END_ALLOW_THREADS
    PyMem_Free(room);
    DONE;
}

PyMethodDef chain_functions[] = {FUNCTION(chain_costs), FUNCTION(chain_gradients), {NULL, NULL, 0, NULL}};
