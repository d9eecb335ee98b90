/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The bulk of JSON text by the instructions that all processors of an
 * architecture have.
 */


#include "kvr_json_ways.h"
#include "kvr_json_word.h"

/* chunks, if the processor is sure to have SSE2 */
#if (KVR_JSON_WORDS) && defined(__SSE2__)
#include <emmintrin.h>
#define KVR_JSON_SSE2        1
#endif


#if (KVR_JSON_WORDS)

/* The number that the first n bytes of a word spell: n digits, 1 .. 8. */

static inline uint32_t
kvr_json_word_value(uint64_t w, unsigned n)
{
    /* the shift puts zeros in front of the digits, to make eight digits */

    w = (w ^ kvr_json_each('0')) << (64 - n * 8);

    /* add up pairs, then all digits; the first digit is in the lowest byte */

    w = (w * 10) + (w >> 8);
    w = ((w & 0x000000ff000000ffull) * 0x000f424000000064ull
         + ((w >> 16) & 0x000000ff000000ffull) * 0x0000271000000001ull)
        >> 32;

    return (uint32_t) w;
}


/* Counts the digits at the start of a word. */

static inline unsigned
kvr_json_word_digits(uint64_t w)
{
    w ^= kvr_json_each('0');

    /* the high bit becomes set in bytes that are not 0..9 now; no carries */

    w = (((w & kvr_json_each(0x7f)) + kvr_json_each(0x76)) | w)
        & kvr_json_each(0x80);

    return w ? __builtin_ctzll(w) / 8 : 8;
}

#endif


#ifdef KVR_JSON_SSE2

static inline void
kvr_json_chunk_masks(const char *p, kvr_json_masks_t *m)
{
    int      i;
    __m128i  c;

    memset(m, 0, sizeof(kvr_json_masks_t));

#define kvr_json_mask(cond)                                                  \
    ((uint64_t) (uint32_t) _mm_movemask_epi8(cond) << (i * 16))

    for (i = 0; i < KVR_JSON_CHUNK / 16; i++) {
        c = _mm_loadu_si128((const __m128i *) (p + i * 16));

        /* the comparison is signed: digits become the ten lowest numbers */

        m->digits |= kvr_json_mask(_mm_cmplt_epi8(
                         _mm_add_epi8(c, _mm_set1_epi8((char) (0x80 - '0'))),
                         _mm_set1_epi8(-128 + 10)));
        m->zeros |= kvr_json_mask(_mm_cmpeq_epi8(c, _mm_set1_epi8('0')));
        m->commas |= kvr_json_mask(_mm_cmpeq_epi8(c, _mm_set1_epi8(',')));
        m->spaces |= kvr_json_mask(_mm_cmpeq_epi8(c, _mm_set1_epi8(' ')));
    }

#undef kvr_json_mask
}


/*
 * Reads "1, 22,333," chunk by chunk, while a chunk contains only numbers,
 * commas and blanks; returns the text behind the last comma.  The positions of
 * the numbers come from the masks, so that no number waits for the one before.
 */

static const char *
kvr_json_ids_chunks(const char *p, const char *end, uint32_t *out, size_t cap,
    size_t *n)
{
    size_t            count;
    unsigned          at, len;
    uint64_t          begins, commas;
    kvr_json_masks_t  m;

    count = *n;

    /* a word loaded at the last digit of a chunk ends behind the chunk */

    while (end - p >= KVR_JSON_CHUNK + 8) {

        kvr_json_chunk_masks(p, &m);

        begins = m.digits & ~(m.digits << 1);
        commas = m.commas;

        if (kvr_json_wrong(&m, begins) || commas == 0) {
            break;
        }

        /* the digits behind the last comma are for the next chunk */

        do {
            at = __builtin_ctzll(begins);
            len = __builtin_ctzll(commas) - at;

            if (len > 8) {
                *n = count;
                return p + at;
            }

            if (count < cap) {
                out[count] = kvr_json_word_value(kvr_json_word(p + at), len);
            }

            count++;

            begins &= begins - 1;
            commas &= commas - 1;

        } while (commas);

        p += KVR_JSON_CHUNK - __builtin_clzll(m.commas);
    }

    *n = count;

    return p;
}

#endif


static const char *
kvr_json_ids_base(const char *p, const char *end, uint32_t *out, size_t cap,
    size_t *n)
{
#ifdef KVR_JSON_SSE2
    p = kvr_json_ids_chunks(p, end, out, cap, n);
#endif

#if (KVR_JSON_WORDS)

    /* a space, seven digits, their delimiter, and one byte more */

    while (end - p >= 10) {
        unsigned     len;
        const char  *id;

        id = p + (*p == ' ');
        len = kvr_json_word_digits(kvr_json_word(id));

        if (len == 0 || len == 8 || id[len] != ','
            || (*id == '0' && len > 1))
        {
            break;
        }

        if (*n < cap) {
            out[*n] = kvr_json_word_value(kvr_json_word(id), len);
        }

        (*n)++;
        p = id + len + 1;
    }

#endif

    return p;
}


static const char *
kvr_json_plain_base(const char *p, const char *end, bool *wide)
{
    uint8_t   high;
    uint64_t  w, hits, seen;

    high = 0;
    seen = 0;

#if (KVR_JSON_WORDS)

    /* bytes below 0x20, quotes, backslashes: the lowest hit is exact */

    while (end - p >= 8) {
        w = kvr_json_word(p);
        seen |= w;

        hits = (w - kvr_json_each(0x20)) & ~w;
        w ^= kvr_json_each('"');
        hits |= (w - kvr_json_each(1)) & ~w;
        w ^= kvr_json_each('"' ^ '\\');
        hits |= (w - kvr_json_each(1)) & ~w;
        hits &= kvr_json_each(0x80);

        if (hits) {
            *wide |= (seen & kvr_json_each(0x80)) != 0;
            return p + __builtin_ctzll(hits) / 8;
        }

        p += 8;
    }

#else
    (void) w;
    (void) hits;
#endif

    while (p < end && *p != '"' && *p != '\\' && (uint8_t) *p >= 0x20) {
        high |= (uint8_t) *p++;
    }

    *wide |= (high & 0x80) || (seen & kvr_json_each(0x80));

    return p;
}


const kvr_json_way_t  kvr_json_way_base = {
    "base",
    kvr_json_plain_base,
    kvr_json_ids_base
};
