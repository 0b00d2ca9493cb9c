/* The server's side of a round of many trainers: receive the expected messages of all connections that are ready, add
 * the gradients, send the answers. No function waits, and none decides: what is unexpected is left to the caller.
 *
 * The system calls and the sums run without the interpreter's lock; all buffers are held until the end of the call. */
#include "kernels.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE */
#endif

enum { WAITS, COMPLETE, UNEXPECTED, ENDED };                /* the same numbers as in server_rounds.py */
enum { COUNTER = 8, MOST_HEADER = 256, MOST_READS = 4 };    /* bytes; bytes; reads from one connection in one call */
enum { BLOCK = 2048 };                                      /* elements that are added at a time, and stay in the first cache */
typedef float Unaligned __attribute__((aligned(1)));        /* a message may contain an array at any address */

/* ----- Buffers of a variable number of objects ----- */

typedef struct {
    Py_buffer *views;
    Py_ssize_t count;
} Buffers;

static int begin(Buffers *held, Py_ssize_t most) {
    held->count = 0;
    held->views = PyMem_New(Py_buffer, most > 0 ? most : 1);
    if (!held->views) PyErr_NoMemory();
    return held->views ? 0 : -1;
}

static void end(Buffers *held) {
    while (held->count > 0) PyBuffer_Release(&held->views[--held->count]);
    PyMem_Free(held->views);
}

/* Return the bytes of an object, and set `length`; NULL with an exception set if it has no such buffer. */
static uint8_t *hold(Buffers *held, PyObject *object, int writable, Py_ssize_t *length) {
    static uint8_t nothing; /* an empty buffer may have no address */
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return NULL;
    held->count++;
    *length = view->len;
    return view->buf ? view->buf : &nothing;
}

/* Return a file descriptor, or -1 with an exception set. */
static int file_of(PyObject *object) {
    long file = PyLong_AsLong(object);
    if (file == -1 && PyErr_Occurred()) return -1;
    if (file < 0 || file > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "a file descriptor is out of range");
        return -1;
    }
    return (int)file;
}

/* Return item `i` of a list if it is a tuple of three, else NULL with an exception set. */
static PyObject *triple(PyObject *list, Py_ssize_t i) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 3) return item;
    PyErr_SetString(PyExc_TypeError, "a list of tuples of three items is needed");
    return NULL;
}

/* ----- Receiving ----- */

typedef struct {
    int file;
    uint8_t *state, *payload; /* state: the number of received bytes, the expected header, the received header */
    Py_ssize_t size;          /* bytes of the payload */
    uint64_t have;
    uint8_t status;
} Message;

static int differs(const uint8_t *expected, const uint8_t *received, const uint8_t *mask, uint64_t length) {
    uint8_t found = 0;
    for (uint64_t i = 0; i < length; i++) found |= (uint8_t)((expected[i] ^ received[i]) & mask[i]);
    return found != 0;
}

/* Receive what is there of one message; return the number of bytes. */
static uint64_t receive_one(Message *message, const uint8_t *mask, Py_ssize_t header) {
    uint8_t *expected = message->state + COUNTER, *received = expected + header;
    uint64_t size = (uint64_t)header + (uint64_t)message->size, before = message->have;
    for (int reads = 0; reads < MOST_READS && message->status == WAITS; reads++) {
        uint64_t have = message->have, of_header = have < (uint64_t)header ? (uint64_t)header - have : 0;
        uint64_t at = have > (uint64_t)header ? have - (uint64_t)header : 0;
        struct iovec parts[2] = {{received + (header - (Py_ssize_t)of_header), of_header},
                                 {message->payload + at, (size_t)message->size - at}};
        struct msghdr into = {.msg_iov = of_header ? parts : parts + 1, .msg_iovlen = of_header ? 2 : 1};
        ssize_t got = recvmsg(message->file, &into, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (got <= 0) {
            message->status = ENDED;
            break;
        }
        message->have += (uint64_t)got;
        uint64_t known = message->have < (uint64_t)header ? message->have : (uint64_t)header;
        if (have < (uint64_t)header && differs(expected, received, mask, known))
            message->status = UNEXPECTED;
        else if (message->have == size)
            message->status = COMPLETE;
    }
    return message->have - before;
}

/* Get a message from its tuple; return -1 with an exception set if the tuple does not fit. */
static int message_of(Buffers *held, PyObject *item, Py_ssize_t header, Message *message) {
    Py_ssize_t of_state;
    message->file = file_of(PyTuple_GET_ITEM(item, 0));
    if (message->file < 0) return -1;
    message->state = hold(held, PyTuple_GET_ITEM(item, 1), 1, &of_state);
    message->payload = message->state ? hold(held, PyTuple_GET_ITEM(item, 2), 1, &message->size) : NULL;
    if (!message->payload) return -1;
    if (of_state != COUNTER + 2 * header) {
        PyErr_SetString(PyExc_ValueError, "a state does not fit the header");
        return -1;
    }
    memcpy(&message->have, message->state, COUNTER);
    message->status = WAITS;
    if (message->have >= (uint64_t)header + (uint64_t)message->size) {
        PyErr_SetString(PyExc_ValueError, "no byte of a message is left to receive");
        return -1;
    }
    return 0;
}

/* receive_expected(messages, mask): receive what is there of each message (file, state, payload); return the status of
 * each message as bytes, and the number of received bytes */
static PyObject *receive_expected(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a list of messages and a mask are wanted");
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(args[0]), header = 0;
    uint64_t received = 0;
    Buffers held;
    if (begin(&held, 2 * number + 1) < 0) return NULL;
    Message *messages = PyMem_New(Message, number > 0 ? number : 1);
    PyObject *statuses = messages ? PyBytes_FromStringAndSize(NULL, number) : PyErr_NoMemory(), *result = NULL;
    const uint8_t *mask = statuses ? hold(&held, args[1], 0, &header) : NULL;
    int good = mask != NULL;
    if (good && (header < 1 || header > MOST_HEADER)) {
        PyErr_SetString(PyExc_ValueError, "the mask has no valid length");
        good = 0;
    }
    for (Py_ssize_t i = 0; good && i < number; i++) {
        PyObject *item = triple(args[0], i);
        good = item && message_of(&held, item, header, &messages[i]) == 0;
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < number; i++) received += receive_one(&messages[i], mask, header);
        Py_END_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < number; i++) {
            memcpy(messages[i].state, &messages[i].have, COUNTER);
            PyBytes_AS_STRING(statuses)[i] = (char)messages[i].status;
        }
        result = Py_BuildValue("OK", statuses, (unsigned long long)received);
    }
    Py_XDECREF(statuses);
    PyMem_Free(messages);
    end(&held);
    return result;
}

/* ----- Sending ----- */

typedef struct {
    int file;
    struct iovec parts[2];
    ssize_t sent;
} Answer;

/* Send as much of an answer as the socket takes; `sent` is -1 if the connection is broken. */
static void send_one(Answer *answer) {
    struct msghdr from = {.msg_iov = answer->parts, .msg_iovlen = answer->parts[1].iov_len ? 2 : 1};
    answer->sent = sendmsg(answer->file, &from, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (answer->sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) answer->sent = 0;
}

/* send_answers(answers): send each answer (file, header, payload) as far as its socket takes it; return the number of
 * sent bytes of each answer, which is -1 if its connection is broken */
static PyObject *send_answers(PyObject *self, PyObject *list) {
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "a list of answers is wanted");
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(list), length = 0;
    Buffers held;
    if (begin(&held, 2 * number) < 0) return NULL;
    Answer *answers = PyMem_New(Answer, number > 0 ? number : 1);
    PyObject *result = answers ? PyList_New(number) : PyErr_NoMemory();
    int good = result != NULL;
    for (Py_ssize_t i = 0; good && i < number; i++) {
        PyObject *item = triple(list, i);
        good = item && (answers[i].file = file_of(PyTuple_GET_ITEM(item, 0))) >= 0;
        for (int part = 0; good && part < 2; part++) {
            answers[i].parts[part].iov_base = hold(&held, PyTuple_GET_ITEM(item, 1 + part), 0, &length);
            answers[i].parts[part].iov_len = (size_t)length;
            good = answers[i].parts[part].iov_base != NULL;
        }
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < number; i++) send_one(&answers[i]);
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t i = 0; good && i < number; i++) {
        PyObject *sent = PyLong_FromSsize_t(answers[i].sent);
        good = sent != NULL;
        if (sent) PyList_SET_ITEM(result, i, sent);
    }
    if (!good) Py_CLEAR(result);
    PyMem_Free(answers);
    end(&held);
    return result;
}

/* ----- Adding ----- */

FAST static void add_block(float *restrict out, const Unaligned *restrict more, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) out[i] += more[i];
}

/* add_gradients(out, gradients, start): out is the sum of the elements of each gradient from `start` on, added in the
 * order of the list; a gradient has any address */
static PyObject *add_gradients(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(args[1]) || PyList_GET_SIZE(args[1]) < 1) {
        PyErr_SetString(PyExc_TypeError, "an array, a list of gradients and a start are wanted");
        return NULL;
    }
    Arrays arrays = {.count = 0};
    Py_ssize_t number = PyList_GET_SIZE(args[1]), length = 0, bytes;
    Py_ssize_t start = PyLong_AsSsize_t(args[2]);
    if (start == -1 && PyErr_Occurred()) return NULL;
    float *out = floats(&arrays, args[0], &length);
    if (!out) return fail(&arrays, "");
    Buffers held;
    if (begin(&held, number) < 0) return fail(&arrays, "");
    int good = start >= 0;
    for (Py_ssize_t i = 0; good && i < number; i++) {
        /* the length is compared without a sum that could overflow */
        good = hold(&held, PyList_GET_ITEM(args[1], i), 0, &bytes) && bytes / 4 >= length && bytes / 4 - length >= start;
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < length; at += BLOCK) {
            Py_ssize_t block = length - at < BLOCK ? length - at : BLOCK;
            memcpy(out + at, (const char *)held.views[0].buf + 4 * (start + at), 4 * (size_t)block);
            for (Py_ssize_t i = 1; i < number; i++) add_block(out + at, (const Unaligned *)held.views[i].buf + start + at, block);
        }
        Py_END_ALLOW_THREADS
    }
    end(&held);
    if (!good) return fail(&arrays, "a gradient is too short");
    DONE;
}

PyMethodDef server_rounds_functions[] = {FUNCTION(receive_expected),
                                         {"send_answers", send_answers, METH_O, NULL},
                                         FUNCTION(add_gradients),
                                         {NULL, NULL, 0, NULL}};
