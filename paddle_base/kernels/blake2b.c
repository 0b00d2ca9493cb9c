/* BLAKE2b as RFC 7693 defines it; the names are those of the RFC. */
#include "kernels.h"

#include "blake2b.h"

enum { BLOCK = 128, ROUNDS = 12 };

static const uint64_t IV[8] = {
    0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu, 0xA54FF53A5F1D36F1u,
    0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu, 0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u,
};

static const uint8_t SIGMA[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static uint64_t load(const uint8_t *bytes) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | bytes[i];
    return word;
}

static uint64_t rotate(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

static void mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 63);
}

/* Compress one block; `counted` is the number of bytes up to its end, at most SIZE_MAX, so the counter's high word is 0. */
static void compress(uint64_t h[8], const uint8_t block[BLOCK], size_t counted, int is_last) {
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++) m[i] = load(block + 8 * i);
    memcpy(v, h, 64);
    memcpy(v + 8, IV, 64);
    v[12] ^= counted;
    if (is_last) v[14] = ~v[14];
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *s = SIGMA[round];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
}

void make_tag(const uint8_t *key, size_t key_length, const uint8_t *data, size_t length, uint8_t tag[TAG_BYTES]) {
    uint64_t h[8];
    uint8_t block[BLOCK] = {0};
    memcpy(h, IV, sizeof h);
    h[0] ^= 0x01010000u ^ key_length << 8 ^ TAG_BYTES;
    memcpy(block, key, key_length); /* the first block is the key, which has at least one byte */
    compress(h, block, BLOCK, length == 0);
    for (size_t at = 0; at < length; at += BLOCK) {
        size_t part = length - at < BLOCK ? length - at : BLOCK;
        memset(block, 0, BLOCK);
        memcpy(block, data + at, part);
        compress(h, block, BLOCK + at + part, at + part == length);
    }
    for (int i = 0; i < TAG_BYTES; i++) tag[i] = (uint8_t)(h[0] >> 8 * i);
}
