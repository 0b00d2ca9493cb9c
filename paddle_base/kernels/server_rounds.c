/* The server's side of a round of many trainers: receive the expected messages of all connections that are ready, add
 * the gradients, answer the messages. No function waits, and none decides: what is unexpected is left to the caller.
 *
 * The system calls and the sums run without the interpreter's lock; all buffers are held until the end of the call. */
#include "kernels.h"

#include "blake2b.h"

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

/* ----- Messages ----- */

enum { FILE_NUMBER, STATE, PAYLOAD, RECEIVING_KEY, SENDING_KEY, FIELDS }; /* the fields of ExpectedMessage */
enum { HELD = 3 };                                                        /* buffers that one message needs */

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t length; /* 0: messages have no tags */
} Key;

typedef struct {
    int file;
    uint8_t *state, *expected, *received, *answer; /* the three headers are parts of the state */
    uint8_t *payload;
    Py_ssize_t size; /* bytes of the payload */
    Key key;
    uint64_t have;
    uint8_t status;
    ssize_t sent;
} Message;

/* Get a message with one of its keys; return -1 with an exception set if its parts do not fit each other. */
static int message_of(Buffers *held, PyObject *item, int key, Py_ssize_t header, Message *message) {
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a message is not a tuple of its fields");
        return -1;
    }
    Py_ssize_t of_state;
    message->file = file_of(PyTuple_GET_ITEM(item, FILE_NUMBER));
    if (message->file < 0) return -1;
    message->state = hold(held, PyTuple_GET_ITEM(item, STATE), 1, &of_state);
    message->payload = message->state ? hold(held, PyTuple_GET_ITEM(item, PAYLOAD), 1, &message->size) : NULL;
    message->key.bytes = message->payload ? hold(held, PyTuple_GET_ITEM(item, key), 0, &message->key.length) : NULL;
    if (!message->key.bytes) return -1;
    if (of_state != COUNTER + 3 * header || message->key.length > MOST_KEY) {
        PyErr_SetString(PyExc_ValueError, "a state does not fit the header, or a key is too long");
        return -1;
    }
    message->expected = message->state + COUNTER;
    message->received = message->expected + header;
    message->answer = message->received + header;
    memcpy(&message->have, message->state, COUNTER);
    message->status = WAITS;
    return 0;
}

/* Get all messages of a list with one of their keys; the result is allocated. NULL with an exception set on failure. */
static Message *messages_of(Buffers *held, PyObject *list, int key, Py_ssize_t header) {
    Py_ssize_t number = PyList_GET_SIZE(list);
    if (header < TAG_BYTES || header > MOST_HEADER) {
        PyErr_SetString(PyExc_ValueError, "the header has no valid length");
        return NULL;
    }
    Message *messages = PyMem_New(Message, number > 0 ? number : 1);
    if (!messages) PyErr_NoMemory();
    for (Py_ssize_t i = 0; messages && i < number; i++)
        if (message_of(held, PyList_GET_ITEM(list, i), key, header, &messages[i]) < 0) {
            PyMem_Free(messages);
            messages = NULL;
        }
    return messages;
}

/* ----- Receiving ----- */

static int differs(const uint8_t *expected, const uint8_t *received, const uint8_t *mask, uint64_t length) {
    uint8_t found = 0;
    for (uint64_t i = 0; i < length; i++) found |= (uint8_t)((expected[i] ^ received[i]) & mask[i]);
    return found != 0;
}

/* Return whether the received header ends with its tag, in a time that does not depend on the bytes of the tag. */
static int is_signed(const Message *message, Py_ssize_t header) {
    uint8_t tag[TAG_BYTES], difference = 0;
    if (!message->key.length) return 1;
    make_tag(message->key.bytes, (size_t)message->key.length, message->received, (size_t)header - TAG_BYTES, tag);
    for (int i = 0; i < TAG_BYTES; i++) difference |= (uint8_t)(tag[i] ^ message->received[header - TAG_BYTES + i]);
    return !difference;
}

/* Receive what is there of one message; return the number of bytes. */
static uint64_t receive_one(Message *message, const uint8_t *mask, Py_ssize_t header) {
    uint64_t size = (uint64_t)header + (uint64_t)message->size, before = message->have;
    for (int reads = 0; reads < MOST_READS && message->status == WAITS; reads++) {
        uint64_t have = message->have, of_header = have < (uint64_t)header ? (uint64_t)header - have : 0;
        uint64_t at = have > (uint64_t)header ? have - (uint64_t)header : 0;
        struct iovec parts[2] = {{message->received + (header - (Py_ssize_t)of_header), of_header},
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
        if (of_header && (differs(message->expected, message->received, mask, known) ||
                          (known == (uint64_t)header && !is_signed(message, header))))
            message->status = UNEXPECTED;
        else if (message->have == size)
            message->status = COMPLETE;
    }
    return message->have - before;
}

/* receive_expected(messages, mask): receive what is there of each message; return the status of each message as bytes,
 * and the number of received bytes */
static PyObject *receive_expected(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a list of messages and a mask are wanted");
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(args[0]), header = 0;
    uint64_t received = 0;
    Buffers held;
    if (begin(&held, HELD * number + 1) < 0) return NULL;
    PyObject *statuses = PyBytes_FromStringAndSize(NULL, number), *result = NULL;
    const uint8_t *mask = statuses ? hold(&held, args[1], 0, &header) : NULL;
    Message *messages = mask ? messages_of(&held, args[0], RECEIVING_KEY, header) : NULL;
    int good = messages != NULL;
    for (Py_ssize_t i = 0; good && i < number; i++) {
        good = messages[i].have < (uint64_t)header + (uint64_t)messages[i].size;
        if (!good) PyErr_SetString(PyExc_ValueError, "no byte of a message is left to receive");
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

/* What all answers of a call have in common. */
typedef struct {
    const uint8_t *template, *echo; /* the header, and which bits of the expected header are added to it */
    Py_ssize_t header, number_at;
    uint8_t *payload;
    Py_ssize_t size;
} Form;

/* Add one to the number in a header, which is little-endian on every machine. */
static void count_up(uint8_t *number) {
    for (int i = 0; i < COUNTER && !++number[i]; i++) continue;
}

/* Write the answer's header, send as much of the answer as the socket takes, and expect the next message; `sent` is -1
 * if the connection is broken. */
static void send_one(Message *message, const Form *form) {
    Py_ssize_t unsigned_bytes = form->header - TAG_BYTES;
    for (Py_ssize_t i = 0; i < form->header; i++) message->answer[i] = form->template[i] | (message->expected[i] & form->echo[i]);
    if (message->key.length)
        make_tag(message->key.bytes, (size_t)message->key.length, message->answer, (size_t)unsigned_bytes, message->answer + unsigned_bytes);
    struct iovec parts[2] = {{message->answer, (size_t)form->header}, {form->payload, (size_t)form->size}};
    struct msghdr from = {.msg_iov = parts, .msg_iovlen = form->size ? 2 : 1};
    message->sent = sendmsg(message->file, &from, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (message->sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) message->sent = 0;
    memset(message->state, 0, COUNTER);
    count_up(message->expected + form->number_at);
}

/* Return the number of bytes that were sent, and (index, sent bytes) of each answer that was not sent completely. */
static PyObject *list_unsent(const Message *messages, Py_ssize_t number, const Form *form) {
    PyObject *unsent = PyList_New(0);
    unsigned long long sent = 0;
    for (Py_ssize_t i = 0; unsent && i < number; i++) {
        if (messages[i].sent > 0) sent += (unsigned long long)messages[i].sent;
        if (messages[i].sent == form->header + form->size) continue;
        PyObject *one = Py_BuildValue("nn", i, messages[i].sent);
        if (!one || PyList_Append(unsent, one) < 0) Py_CLEAR(unsent);
        Py_XDECREF(one);
    }
    return unsent ? Py_BuildValue("KN", sent, unsent) : NULL;
}

/* send_answers(messages, template, echo, number_at, payload): answer each message as far as its socket takes the answer,
 * and expect the message with the next number; see server_rounds.py */
static PyObject *send_answers(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 5 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a list of messages, a header, its mask, a place and a payload are wanted");
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(args[0]), of_echo = 0;
    Form form = {.number_at = PyLong_AsSsize_t(args[3])};
    if (form.number_at == -1 && PyErr_Occurred()) return NULL;
    Buffers held;
    if (begin(&held, HELD * number + 3) < 0) return NULL;
    PyObject *result = NULL;
    Message *messages = NULL;
    form.template = hold(&held, args[1], 0, &form.header);
    form.echo = form.template ? hold(&held, args[2], 0, &of_echo) : NULL;
    form.payload = form.echo ? hold(&held, args[4], 0, &form.size) : NULL;
    if (form.payload && (of_echo != form.header || form.number_at < 0 || form.number_at > form.header - COUNTER))
        PyErr_SetString(PyExc_ValueError, "the mask or the place does not fit the header");
    else if (form.payload)
        messages = messages_of(&held, args[0], SENDING_KEY, form.header);
    if (messages) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < number; i++) send_one(&messages[i], &form);
        Py_END_ALLOW_THREADS
        result = list_unsent(messages, number, &form);
    }
    PyMem_Free(messages);
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
                                         FUNCTION(send_answers),
                                         FUNCTION(add_gradients),
                                         {NULL, NULL, 0, NULL}};
