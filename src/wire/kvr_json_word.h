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


#endif /* KVR_JSON_WORD_H_INCLUDED */
