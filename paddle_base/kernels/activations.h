/* Activations of single numbers, written so that the compiler can vectorise them. */
#ifndef ACTIVATIONS_H
#define ACTIVATIONS_H

#include "kernels.h"

enum { LINEAR, SIGMOID, TANH, RELU, KINDS };

/* Return the kind of activation that a Python number stands for; -1 with an exception set if there is none. */
int kind_of(PyObject *object);

/* e^x for float32 within 2 units in the last place, computed as 2^n times a polynomial (Cephes' coefficients). */
static inline __attribute__((always_inline)) float exp_of(float x) {
    const float ROUNDER = 12582912.0f; /* 1.5 * 2^23: adding ROUNDER rounds to an integer */
    x = x < -87.3f ? -87.3f : x > 88.0f ? 88.0f : x;
    float n = (x * 1.44269504f + ROUNDER) - ROUNDER;
    float r = x - n * 0.693359375f - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    union {
        int32_t bits;
        float number;
    } power = {.bits = ((int32_t)n + 127) << 23};
    return (p * (r * r) + r + 1.0f) * power.number;
}

static inline __attribute__((always_inline)) float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

static inline __attribute__((always_inline)) float tanh_of(float x) { return 2.0f / (1.0f + exp_of(-2.0f * x)) - 1.0f; }

/* e^x for x <= 40, computed in double as 2^n times Taylor's polynomial and rounded to float32. */
static inline __attribute__((always_inline)) float nearest_exp_of(float x) {
    const double ROUNDER = 6755399441055744.0; /* 1.5 * 2^52: adding ROUNDER rounds to an integer in the last bits */
    double y = x < -100.0f ? -100.0 : x > 40.0f ? 40.0 : x;
    union {
        double number;
        uint64_t bits;
    } n = {.number = y * 1.4426950408889634 + ROUNDER}, power;
    double r = y - (n.number - ROUNDER) * 0.6931471805599453;
    double p = 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    power.bits = (n.bits + 1023) << 52;
    return (float)(p * power.number);
}

/* PaddlePaddle v0.10 computed tanh in two ways. For whole matrices it rounded e^(-2z) to float32 and divided in double.
 * In the steps of an LSTM it divided in float32 (tanh_of). Near 0 the results differ by far more than a unit in the
 * last place. */
static inline __attribute__((always_inline)) float nearest_tanh_of(float x) {
    return (float)(2.0 / (1.0 + (double)nearest_exp_of(-2.0f * x)) - 1.0);
}

/* replace z by y */
static inline __attribute__((always_inline)) void apply(int kind, float *z, Py_ssize_t n) {
    switch (kind) {
    case SIGMOID:
        for (Py_ssize_t i = 0; i < n; i++) z[i] = sigmoid_of(z[i]);
        break;
    case TANH:
        for (Py_ssize_t i = 0; i < n; i++) z[i] = tanh_of(z[i]);
        break;
    case RELU:
        for (Py_ssize_t i = 0; i < n; i++) z[i] = z[i] > 0 ? z[i] : 0;
    }
}

/* replace g, the gradient of y, by the gradient of z */
static inline __attribute__((always_inline)) void descend(int kind, float *g, const float *y, Py_ssize_t n) {
    switch (kind) {
    case SIGMOID:
        for (Py_ssize_t i = 0; i < n; i++) g[i] *= y[i] * (1.0f - y[i]);
        break;
    case TANH:
        for (Py_ssize_t i = 0; i < n; i++) g[i] *= 1.0f - y[i] * y[i];
        break;
    case RELU:
        for (Py_ssize_t i = 0; i < n; i++) g[i] = y[i] > 0 ? g[i] : 0;
    }
}

#endif
