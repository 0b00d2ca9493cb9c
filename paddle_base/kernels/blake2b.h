/* Tags: the keyed digests of short messages, by BLAKE2b (RFC 7693). */
#ifndef BLAKE2B_H
#define BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

enum { TAG_BYTES = 8, MOST_KEY = 64 }; /* the longest key of BLAKE2b */

/* Write the tag of `length` bytes of data: hashlib.blake2b(data, digest_size=TAG_BYTES, key=key).
 *
 * The key has 1 to MOST_KEY bytes. */
void make_tag(const uint8_t *key, size_t key_length, const uint8_t *data, size_t length, uint8_t tag[TAG_BYTES]);

#endif
