/* One exchange with several peers: send messages to all of them, and receive answers whose heads are known in advance.
 *
 * The function decides nothing. At the first event that it does not expect, it returns how far each line has come, and
 * its caller continues. exchange.py describes the arguments. */
#include "kernels.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum {
    VECTORS = 256,         /* maximum number of memory areas in one system call; the system allows 1024 */
    READS = 4,             /* maximum reads from one line before other lines are served */
    MOST_LINES = 1 << 16,  /* maximum number of lines; no process has more open files */
    MOST_SECONDS = 1 << 20 /* maximum wait */
};

typedef enum { ONGOING = -1, COMPLETE, TIMEOUT, INTERRUPTED, UNSETTLED } Status;

/* the places of the numbers in `progress` */
enum { REST_SENT, PIECE_SENT, SCRATCH_END, PIECE, PIECE_RECEIVED, PROGRESS };

/* the fields of a line */
enum {
    FILE_NUMBER,
    REST,
    SENDING,
    HEADS_OUT,
    OUTBOX,
    AREAS_OUT,
    STARTS_OUT,
    AWAITED,
    HEADS_IN,
    INBOX,
    AREAS_IN,
    STARTS_IN,
    SCRATCH,
    PROGRESS_FIELD,
    FIELDS
};

typedef struct {
    int64_t flat, local, length; /* in bytes */
} Area;

typedef struct {
    int64_t area, byte; /* a position in the areas of a piece */
} Cursor;

/* The pieces of one direction: piece p has the areas [starts[p], starts[p + 1]). */
typedef struct {
    Py_ssize_t count;
    const Area *areas;
    const int64_t *starts;
} Pieces;

typedef struct {
    int file, is_blocked;
    Pieces pieces_out, pieces_in;
    int64_t *progress;
    /* out */
    struct iovec *rest; /* buffers that are sent before the pieces */
    Py_ssize_t rests;
    uint8_t *sending;
    const char *heads_out;
    Py_ssize_t head_out, head_sent, piece_out, left_out; /* `left_out`: number of pieces that are not sent */
    char *outbox;
    Cursor out;
    /* in */
    uint8_t *awaited;
    const char *heads_in;
    Py_ssize_t head_in, piece_in, next_in, left_in;
    const char *inbox;
    char *scratch;
    Py_ssize_t room, end; /* the size and the used bytes of the scratch buffer */
    Cursor in;
} Line;

typedef struct {
    const char *source;
    char *target;
    Line *lines;
    Py_ssize_t count;
    struct pollfd *polled;
    int64_t deadline; /* nanoseconds of the monotonic clock */
} Exchange;

static size_t least(size_t one, size_t other) { return one < other ? one : other; }

static int64_t read_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* ----- Areas ----- */

/* Move a cursor over bytes of a piece, and subtract them; return whether the piece ends there. */
static int advance(const Pieces *pieces, Py_ssize_t piece, Cursor *cursor, size_t *bytes) {
    for (; cursor->area < pieces->starts[piece + 1]; cursor->area++, cursor->byte = 0) {
        size_t left = (size_t)(pieces->areas[cursor->area].length - cursor->byte);
        if (*bytes < left) {
            cursor->byte += (int64_t)*bytes;
            *bytes = 0;
            return 0;
        }
        *bytes -= left;
    }
    return 1;
}

/* List at most `most` areas of a piece from the cursor on; set `is_all` to whether the piece ends with them. */
static int list_areas(const Pieces *pieces, Py_ssize_t piece, Cursor cursor, char *base, struct iovec *vectors, int most, int *is_all) {
    int count = 0;
    for (; cursor.area < pieces->starts[piece + 1] && count < most; cursor.area++, cursor.byte = 0) {
        const Area *one = &pieces->areas[cursor.area];
        vectors[count++] = (struct iovec){base + one->flat + cursor.byte, (size_t)(one->length - cursor.byte)};
    }
    *is_all = cursor.area == pieces->starts[piece + 1];
    return count;
}

static void copy_out(const Line *line, Py_ssize_t piece, const char *source) {
    const Pieces *out = &line->pieces_out;
    for (int64_t i = out->starts[piece]; i < out->starts[piece + 1]; i++)
        memcpy(line->outbox + out->areas[i].local, source + out->areas[i].flat, (size_t)out->areas[i].length);
}

static void copy_in(const Line *line, Py_ssize_t piece, char *target) {
    const Pieces *in = &line->pieces_in;
    for (int64_t i = in->starts[piece]; i < in->starts[piece + 1]; i++)
        memcpy(target + in->areas[i].flat, line->inbox + in->areas[i].local, (size_t)in->areas[i].length);
}

/* ----- Out ----- */

static int has_output(const Line *line) { return line->rests || line->left_out; }

static void begin_piece(const Exchange *exchange, Line *line) {
    while (line->piece_out < line->pieces_out.count && !line->sending[line->piece_out]) line->piece_out++;
    if (line->piece_out == line->pieces_out.count) return;
    line->out = (Cursor){line->pieces_out.starts[line->piece_out], 0};
    line->head_sent = 0;
    if (line->outbox && exchange->source) copy_out(line, line->piece_out, exchange->source);
}

static void count_rest(Line *line, size_t bytes) {
    line->progress[REST_SENT] += (int64_t)bytes;
    while (line->rests && bytes >= line->rest->iov_len) {
        bytes -= line->rest->iov_len;
        line->rest++;
        line->rests--;
    }
    if (!line->rests) return;
    line->rest->iov_base = (char *)line->rest->iov_base + bytes;
    line->rest->iov_len -= bytes;
}

/* Count sent bytes of a piece; return whether the piece is sent. */
static int count_piece(const Exchange *exchange, Line *line, size_t bytes) {
    line->progress[PIECE_SENT] += (int64_t)bytes;
    size_t of_head = least(bytes, (size_t)(line->head_out - line->head_sent));
    line->head_sent += (Py_ssize_t)of_head;
    bytes -= of_head;
    if (line->head_sent < line->head_out) return 0;
    if (exchange->source && !line->outbox && !advance(&line->pieces_out, line->piece_out, &line->out, &bytes)) return 0;
    line->progress[PIECE_SENT] = 0;
    line->sending[line->piece_out] = 0;
    line->left_out--;
    begin_piece(exchange, line);
    return 1;
}

/* Send what is left from before, or one piece. */
static Status send_some(const Exchange *exchange, Line *line) {
    for (int is_sent = 0; !is_sent;) {
        struct iovec own[VECTORS], *vectors = own;
        int count = 0, is_all;
        if (line->rests) {
            vectors = line->rest;
            count = (int)least((size_t)line->rests, VECTORS);
        } else {
            if (line->head_sent < line->head_out)
                own[count++] = (struct iovec){(char *)line->heads_out + line->piece_out * line->head_out + line->head_sent,
                                              (size_t)(line->head_out - line->head_sent)};
            if (exchange->source && !line->outbox)
                count += list_areas(&line->pieces_out, line->piece_out, line->out, (char *)exchange->source, own + count, VECTORS - count,
                                    &is_all);
        }
        struct msghdr message = {.msg_iov = vectors, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(line->file, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            line->is_blocked = 1;
            return ONGOING;
        }
        if (sent < 0) return errno == EINTR ? INTERRUPTED : UNSETTLED;
        if (line->rests) {
            count_rest(line, (size_t)sent);
            is_sent = !line->rests;
        } else {
            is_sent = count_piece(exchange, line, (size_t)sent);
        }
    }
    return ONGOING;
}

/* ----- In ----- */

/* Return whether two heads are equal, in a time that does not depend on their bytes, because a head may be signed. */
static int are_equal(const char *one, const char *other, Py_ssize_t length) {
    unsigned char difference = 0;
    for (Py_ssize_t i = 0; i < length; i++) difference |= (unsigned char)(one[i] ^ other[i]);
    return !difference;
}

/* Return the awaited piece that has this head, or -1; most pieces arrive in order. */
static Py_ssize_t find_piece(Line *line, const char *head) {
    Py_ssize_t pieces = line->pieces_in.count;
    for (Py_ssize_t i = 0; i < pieces; i++) {
        Py_ssize_t piece = line->next_in + i < pieces ? line->next_in + i : line->next_in + i - pieces;
        if (!line->awaited[piece] || !are_equal(head, line->heads_in + piece * line->head_in, line->head_in)) continue;
        line->next_in = piece + 1 < pieces ? piece + 1 : 0;
        return piece;
    }
    return -1;
}

static void finish_piece(Line *line) {
    line->awaited[line->piece_in] = 0;
    line->left_in--;
    line->piece_in = -1;
    line->progress[PIECE_RECEIVED] = 0;
}

/* Divide the bytes of the scratch buffer into answers; return UNSETTLED at a head that is not awaited. */
static Status parse(const Exchange *exchange, Line *line) {
    Py_ssize_t begin = 0;
    Status status = ONGOING;
    while (line->left_in && line->piece_in < 0 && line->end - begin >= line->head_in) {
        line->piece_in = find_piece(line, line->scratch + begin);
        if (line->piece_in < 0) {
            status = UNSETTLED;
            break;
        }
        begin += line->head_in;
        line->in = (Cursor){line->pieces_in.starts[line->piece_in], 0};
        if (!exchange->target || line->inbox) {
            if (exchange->target) copy_in(line, line->piece_in, exchange->target);
            finish_piece(line);
            continue;
        }
        int is_whole;
        do {
            struct iovec one;
            if (!list_areas(&line->pieces_in, line->piece_in, line->in, exchange->target, &one, 1, &is_whole)) break;
            size_t some = least(one.iov_len, (size_t)(line->end - begin)), moved = some;
            memcpy(one.iov_base, line->scratch + begin, some);
            begin += (Py_ssize_t)some;
            line->progress[PIECE_RECEIVED] += (int64_t)some;
            is_whole = advance(&line->pieces_in, line->piece_in, &line->in, &moved);
        } while (!is_whole && begin < line->end);
        if (is_whole) finish_piece(line);
    }
    line->end -= begin;
    if (begin && line->end) memmove(line->scratch, line->scratch + begin, (size_t)line->end);
    return status;
}

/* Read once; set `may_have_more` to whether more bytes may be available. */
static Status read_once(const Exchange *exchange, Line *line, int *may_have_more) {
    struct iovec vectors[VECTORS];
    int count = 0, is_all = 1;
    if (line->piece_in >= 0) count = list_areas(&line->pieces_in, line->piece_in, line->in, exchange->target, vectors, VECTORS - 1, &is_all);
    if (is_all) vectors[count++] = (struct iovec){line->scratch + line->end, (size_t)(line->room - line->end)};
    size_t wanted = 0;
    for (int i = 0; i < count; i++) wanted += vectors[i].iov_len;
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = (size_t)count};
    ssize_t size = recvmsg(line->file, &message, MSG_DONTWAIT);
    *may_have_more = 0;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ONGOING;
    if (size < 0) return errno == EINTR ? INTERRUPTED : UNSETTLED;
    if (size == 0) return UNSETTLED; /* the peer has closed the connection */
    *may_have_more = (size_t)size == wanted;
    size_t left = (size_t)size;
    if (line->piece_in >= 0) {
        int is_whole = advance(&line->pieces_in, line->piece_in, &line->in, &left);
        line->progress[PIECE_RECEIVED] += size - (ssize_t)left;
        if (!is_whole) return ONGOING;
        finish_piece(line);
    }
    line->end += (Py_ssize_t)left;
    return parse(exchange, line);
}

static Status receive(const Exchange *exchange, Line *line) {
    int may_have_more = 1;
    Status status = ONGOING;
    for (int i = 0; i < READS && may_have_more && line->left_in && status == ONGOING; i++) status = read_once(exchange, line, &may_have_more);
    return status;
}

/* ----- All lines ----- */

/* Send on all lines that accept bytes; set `is_ready` to whether a line accepts more. */
static Status send_all(const Exchange *exchange, int *is_ready) {
    *is_ready = 0;
    for (Py_ssize_t i = 0; i < exchange->count; i++) {
        Line *line = &exchange->lines[i];
        if (!has_output(line) || line->is_blocked) continue;
        Status status = send_some(exchange, line);
        if (status != ONGOING) return status;
        *is_ready |= has_output(line) && !line->is_blocked;
    }
    return ONGOING;
}

static int is_done(const Exchange *exchange) {
    for (Py_ssize_t i = 0; i < exchange->count; i++)
        if (exchange->lines[i].left_in || has_output(&exchange->lines[i])) return 0;
    return 1;
}

/* Wait for the lines until the deadline, and receive; do not wait if `is_ready`. */
static Status wait_and_receive(const Exchange *exchange, int is_ready) {
    nfds_t count = 0;
    for (Py_ssize_t i = 0; i < exchange->count; i++) {
        const Line *line = &exchange->lines[i];
        short events = (line->left_in ? POLLIN : 0) | (has_output(line) && !is_ready ? POLLOUT : 0);
        /* poll ignores negative numbers */
        exchange->polled[count++] = (struct pollfd){.fd = events ? line->file : -1, .events = events};
    }
    int64_t left = is_ready ? 0 : exchange->deadline - read_clock();
    int found = poll(exchange->polled, count, left > 0 ? (int)((left + 999999) / 1000000) : 0);
    if (found < 0) return errno == EINTR ? INTERRUPTED : UNSETTLED;
    for (Py_ssize_t i = 0; found && i < exchange->count; i++) {
        Line *line = &exchange->lines[i];
        short events = exchange->polled[i].revents;
        if (events & ~POLLIN) line->is_blocked = 0;
        if (!line->left_in || !(events & ~POLLOUT)) continue;
        Status status = receive(exchange, line);
        if (status != ONGOING) return status;
    }
    return is_ready || left > 0 || is_done(exchange) ? ONGOING : TIMEOUT;
}

/* Return whether more has arrived than was awaited. */
static int has_input(const Exchange *exchange) {
    for (Py_ssize_t i = 0; i < exchange->count; i++)
        if (exchange->lines[i].end) return 1;
    return 0;
}

static Status run(const Exchange *exchange) {
    Status status = ONGOING;
    for (Py_ssize_t i = 0; i < exchange->count && status == ONGOING; i++) {
        Line *line = &exchange->lines[i];
        begin_piece(exchange, line);
        status = parse(exchange, line);
    }
    while (status == ONGOING) {
        int is_ready;
        status = send_all(exchange, &is_ready);
        if (status == ONGOING && is_done(exchange)) status = COMPLETE;
        if (status == ONGOING) status = wait_and_receive(exchange, is_ready);
    }
    for (Py_ssize_t i = 0; i < exchange->count; i++) {
        exchange->lines[i].progress[SCRATCH_END] = exchange->lines[i].end;
        exchange->lines[i].progress[PIECE] = exchange->lines[i].piece_in;
    }
    return status == COMPLETE && has_input(exchange) ? UNSETTLED : status;
}

/* ----- Arguments ----- */

/* Hold an array of heads of equal length, one for each piece; return 0, or -1 with an exception set. */
static int hold_heads(Held *held, PyObject *object, Py_ssize_t pieces, const char **heads, Py_ssize_t *length) {
    Py_buffer *view = hold_bytes(held, object, 0);
    if (!view) return -1;
    *heads = view->buf;
    *length = pieces ? view->len / pieces : 0;
    if (*length * pieces == view->len && (*length > 0 || !pieces)) return 0;
    PyErr_SetString(PyExc_ValueError, "the heads do not have equal lengths");
    return -1;
}

/* Hold one flag for each piece, and count the flags that are set; return NULL with an exception set if this fails. */
static uint8_t *hold_flags(Held *held, PyObject *object, Py_ssize_t *pieces, Py_ssize_t *set) {
    Py_buffer *view = hold_bytes(held, object, 1);
    if (!view) return NULL;
    uint8_t *flags = view->buf;
    *pieces = view->len;
    *set = 0;
    for (Py_ssize_t i = 0; i < view->len; i++) *set += flags[i] != 0;
    return flags;
}

/* Hold memory that is shared with a peer; None is no memory. */
static int hold_shared(Held *held, PyObject *object, int is_writable, char **memory, Py_ssize_t *size) {
    *memory = NULL;
    *size = PY_SSIZE_T_MAX;
    if (object == Py_None) return 0;
    Py_buffer *view = hold_bytes(held, object, is_writable);
    if (!view) return -1;
    *memory = view->buf;
    *size = view->len;
    return 0;
}

/* Check that the areas are within `flat` bytes of the array and within `local` bytes of the shared memory. */
static int are_inside(const Area *areas, Py_ssize_t count, int64_t flat, int64_t local) {
    for (Py_ssize_t i = 0; i < count; i++) {
        const Area *one = &areas[i];
        if (one->flat < 0 || one->local < 0 || one->length < 0) return 0;
        if (one->length > flat || one->flat > flat - one->length) return 0;
        if (one->length > local || one->local > local - one->length) return 0;
    }
    return 1;
}

/* Hold the areas of the pieces of one direction; return 0, or -1 with an exception set. `flat`, `local`: see `are_inside`. */
static int hold_pieces(Held *held, PyObject *areas, PyObject *starts, Pieces *pieces, int64_t flat, int64_t local) {
    Py_ssize_t numbers, bounds;
    if (!(pieces->areas = (const Area *)hold_integers(held, areas, 0, &numbers))) return -1;
    if (!(pieces->starts = hold_integers(held, starts, 0, &bounds))) return -1;
    if (numbers % 3 == 0 && bounds == pieces->count + 1 && rising(pieces->starts, bounds, numbers / 3) &&
        are_inside(pieces->areas, numbers / 3, flat, local))
        return 0;
    PyErr_SetString(PyExc_ValueError, "the areas of a line do not fit its pieces or the arrays");
    return -1;
}

static int hold_rest(Held *held, PyObject *rest, Line *line, struct iovec *vectors) {
    if (!PyTuple_Check(rest)) {
        PyErr_SetString(PyExc_TypeError, "the rest is not a tuple");
        return -1;
    }
    line->rest = vectors;
    line->rests = PyTuple_GET_SIZE(rest);
    for (Py_ssize_t i = 0; i < line->rests; i++) {
        Py_buffer *view = hold_bytes(held, PyTuple_GET_ITEM(rest, i), 0);
        if (!view) return -1;
        vectors[i] = (struct iovec){view->buf, (size_t)view->len};
    }
    return 0;
}

/* Take a line from its tuple; `source` and `target` are the lengths of the arrays in bytes. Return 0, or -1 with an
 * exception set. */
static int take_line(Held *held, PyObject *fields, Line *line, struct iovec *rest, int64_t source, int64_t target) {
    PyObject *const *field = &PyTuple_GET_ITEM(fields, 0);
    Pieces *out = &line->pieces_out, *in = &line->pieces_in;
    Py_ssize_t progress, outbox_size, inbox_size;
    char *inbox;
    long file = PyLong_AsLong(field[FILE_NUMBER]);
    if (file == -1 && PyErr_Occurred()) return -1;
    if (hold_rest(held, field[REST], line, rest) < 0) return -1;
    if (!(line->sending = hold_flags(held, field[SENDING], &out->count, &line->left_out))) return -1;
    if (hold_heads(held, field[HEADS_OUT], out->count, &line->heads_out, &line->head_out) < 0) return -1;
    if (hold_shared(held, field[OUTBOX], 1, &line->outbox, &outbox_size) < 0) return -1;
    if (hold_pieces(held, field[AREAS_OUT], field[STARTS_OUT], out, source, outbox_size) < 0) return -1;
    if (!(line->awaited = hold_flags(held, field[AWAITED], &in->count, &line->left_in))) return -1;
    if (hold_heads(held, field[HEADS_IN], in->count, &line->heads_in, &line->head_in) < 0) return -1;
    if (hold_shared(held, field[INBOX], 0, &inbox, &inbox_size) < 0) return -1;
    line->inbox = inbox;
    if (hold_pieces(held, field[AREAS_IN], field[STARTS_IN], in, target, inbox_size) < 0) return -1;
    Py_buffer *scratch = hold_bytes(held, field[SCRATCH], 1);
    if (!scratch) return -1;
    line->scratch = scratch->buf;
    line->room = scratch->len;
    if (!(line->progress = hold_integers(held, field[PROGRESS_FIELD], 1, &progress))) return -1;
    line->file = (int)file;
    line->piece_in = -1;
    if (file < 0 || file > INT_MAX || progress != PROGRESS || line->head_in > line->room || line->progress[SCRATCH_END] < 0 ||
        line->progress[SCRATCH_END] > line->room) {
        PyErr_SetString(PyExc_ValueError, "the fields of a line do not fit each other");
        return -1;
    }
    line->end = line->progress[SCRATCH_END];
    memset(line->progress, 0, PROGRESS * sizeof *line->progress);
    return 0;
}

/* Count the buffers of all lines, and those of their rests; return -1 with an exception set if a line is not a tuple. */
static Py_ssize_t count_buffers(PyObject *lines, Py_ssize_t *rests) {
    Py_ssize_t count = PyTuple_GET_SIZE(lines);
    *rests = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyTuple_GET_ITEM(lines, i);
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != FIELDS || !PyTuple_Check(PyTuple_GET_ITEM(one, REST))) {
            PyErr_SetString(PyExc_TypeError, "a line is not a tuple of its fields");
            return -1;
        }
        *rests += PyTuple_GET_SIZE(PyTuple_GET_ITEM(one, REST));
    }
    return count * FIELDS + *rests + 2;
}

/* Take all arguments; return 0, or -1 with an exception set. */
static int take_arguments(PyObject *const *args, Held *held, Exchange *exchange, struct iovec *rests) {
    int64_t lengths[2] = {INT64_MAX, INT64_MAX}; /* without an array, the areas are not used */
    for (int i = 0; i < 2; i++) {
        if (args[i] == Py_None) continue;
        Py_buffer *view = hold_bytes(held, args[i], i);
        if (!view) return -1;
        if (i) exchange->target = view->buf;
        else exchange->source = view->buf;
        lengths[i] = view->len;
    }
    for (Py_ssize_t i = 0; i < exchange->count; i++) {
        PyObject *fields = PyTuple_GET_ITEM(args[2], i);
        if (take_line(held, fields, &exchange->lines[i], rests, lengths[0], lengths[1]) < 0) return -1;
        rests += exchange->lines[i].rests;
    }
    double seconds = PyFloat_AsDouble(args[3]);
    if (seconds == -1.0 && PyErr_Occurred()) return -1;
    if (!(seconds >= 0 && seconds <= MOST_SECONDS)) {
        PyErr_SetString(PyExc_ValueError, "the seconds are not in their range");
        return -1;
    }
    exchange->deadline = read_clock() + (int64_t)(seconds * 1e9);
    return 0;
}

/* exchange(source, target, lines, seconds): send and receive until all is done, and return a Status, which is ExchangeStatus of exchange.py */
static PyObject *exchange(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyTuple_Check(args[2]) || PyTuple_GET_SIZE(args[2]) > MOST_LINES) {
        PyErr_SetString(PyExc_TypeError, "two arrays, a tuple of lines and the seconds are wanted");
        return NULL;
    }
    Py_ssize_t rests;
    Held held = {.room = count_buffers(args[2], &rests)};
    if (held.room < 0) return NULL;
    Exchange exchange = {.count = PyTuple_GET_SIZE(args[2])};
    Py_ssize_t lines = exchange.count * (Py_ssize_t)sizeof(Line);
    held.views = PyMem_Calloc((size_t)held.room, sizeof *held.views);
    exchange.lines = PyMem_Calloc((size_t)lines + 1, 1);
    exchange.polled = PyMem_Calloc((size_t)exchange.count + 1, sizeof *exchange.polled);
    struct iovec *vectors = PyMem_Calloc((size_t)rests + 1, sizeof *vectors);
    PyObject *result = NULL;
    if (!held.views || !exchange.lines || !exchange.polled || !vectors) {
        PyErr_NoMemory();
    } else if (take_arguments(args, &held, &exchange, vectors) == 0) {
        Status status;
        Py_BEGIN_ALLOW_THREADS
        status = run(&exchange);
        Py_END_ALLOW_THREADS
        result = PyLong_FromLong(status);
    }
    release_held(&held);
    PyMem_Free(held.views);
    PyMem_Free(exchange.lines);
    PyMem_Free(exchange.polled);
    PyMem_Free(vectors);
    return result;
}

PyMethodDef exchange_functions[] = {FUNCTION(exchange), {NULL, NULL, 0, NULL}};
