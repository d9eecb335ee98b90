/*
 * Copyright (C) the nginx-kv-router authors
 *
 * JSON text by the word.
 */


#ifndef KVR_JSON_WORD_H_INCLUDED
#define KVR_JSON_WORD_H_INCLUDED


#include "../kvr.h"


#define kvr_json_is_digit(c)  ((unsigned) (c) - '0' < 10)


/*
 * Eight bytes at once, the first of them the lowest: strings are searched and
 * numbers converted this way on little-endian machines, and byte by byte on
 * the others and near the end of the text.
 */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define KVR_JSON_WORDS       1
#else
#define KVR_JSON_WORDS       0
#endif

#define kvr_json_each(byte)  (0x0101010101010101ull * (byte))


static inline uint64_t
kvr_json_word(const char *p)
{
    uint64_t  w;

    memcpy(&w, p, sizeof(uint64_t));

    return w;
}


/* By vector instructions: a bit for each byte of a chunk. */

#define KVR_JSON_CHUNK       64

typedef struct {
    uint64_t  digits;
    uint64_t  zeros;
    uint64_t  commas;
    uint64_t  spaces;
} kvr_json_masks_t;


/*
 * Not 0: the chunk has something else than numbers without leading zeros, each
 * with a comma behind it and at most one blank before it.
 */

static inline uint64_t
kvr_json_wrong(const kvr_json_masks_t *m, uint64_t begins)
{
    return ~(m->digits | m->commas | m->spaces)
           | (m->commas & ~(m->digits << 1))
           | (m->spaces & ~((m->commas << 1) | 1))
           | ((m->spaces << 1) & ~m->digits)
           | (begins & m->zeros & (m->digits >> 1));
}


#endif /* KVR_JSON_WORD_H_INCLUDED */
