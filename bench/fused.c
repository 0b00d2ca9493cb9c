/* An in-place step of SGD with momentum by two threads. bench/pserver.py compares the server's step with it. */
#include <pthread.h>
#include <stddef.h>

typedef struct {
    float *w, *m;
    const float *g;
    size_t n;
    float rate, mu;
} Part;

static void *work(void *argument) {
    Part *part = argument;
    float *restrict w = part->w, *restrict m = part->m, rate = part->rate, mu = part->mu;
    const float *restrict g = part->g;
    for (size_t i = 0; i < part->n; i++) {
        m[i] = m[i] * mu - g[i] * rate;
        w[i] += m[i];
    }
    return NULL;
}

void step(float *w, float *m, const float *g, size_t n, float rate, float mu) {
    size_t half = n / 2;
    Part first = {w, m, g, half, rate, mu}, second = {w + half, m + half, g + half, n - half, rate, mu};
    pthread_t thread;
    pthread_create(&thread, NULL, work, &first);
    work(&second);
    pthread_join(thread, NULL);
}
