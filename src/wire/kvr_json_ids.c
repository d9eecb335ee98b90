/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Arrays of token ids: nearly all of the bytes of a prompt.
 */


#include "kvr_json.h"
#include "kvr_json_word.h"

/* 64 bytes at once, if the processor is sure to have SSE2 */
#if (KVR_JSON_WORDS) && defined(__SSE2__)
#include <emmintrin.h>
#define KVR_JSON_CHUNK       64
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


#ifdef KVR_JSON_CHUNK

typedef struct {
    uint64_t  digits;
    uint64_t  zeros;
    uint64_t  commas;
    uint64_t  spaces;
} kvr_json_masks_t;


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
    uint64_t          begins, commas, wrong;
    kvr_json_masks_t  m;

    count = *n;

    /* a word loaded at the last digit of a chunk ends behind the chunk */

    while (end - p >= KVR_JSON_CHUNK + 8) {

        kvr_json_chunk_masks(p, &m);

        begins = m.digits & ~(m.digits << 1);
        commas = m.commas;

        wrong = ~(m.digits | m.commas | m.spaces);
        wrong |= m.commas & ~(m.digits << 1);
        wrong |= m.spaces & ~((m.commas << 1) | 1);
        wrong |= (m.spaces << 1) & ~m.digits;
        wrong |= begins & m.zeros & (m.digits >> 1);

        if (wrong || commas == 0) {
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


bool
kvr_json_ids(kvr_json_t *j, uint32_t *out, size_t cap, size_t *n)
{
    size_t       count;
    uint64_t     value;
    const char  *p, *id;

    if (!kvr_json_open(j, '[')) {
        return false;
    }

    count = 0;

    if (!kvr_json_next(j)) {
        *n = 0;
        return true;
    }

    for ( ;; ) {

#ifdef KVR_JSON_CHUNK
        j->pos = kvr_json_ids_chunks(j->pos, j->end, out, cap, &count);
#endif

#if (KVR_JSON_WORDS)

        p = j->pos;

        /* a space, seven digits, their delimiter, and one byte more */

        while (j->end - p >= 10) {
            unsigned  len;

            p += (*p == ' ');
            len = kvr_json_word_digits(kvr_json_word(p));

            if (len == 0 || len == 8 || p[len] != ','
                || (*p == '0' && len > 1))
            {
                break;
            }

            if (count < cap) {
                out[count] = kvr_json_word_value(kvr_json_word(p), len);
            }

            count++;
            p += len + 1;
        }

        j->pos = p;

#endif

        /* read any one id, and look at the character behind it */

        (void) kvr_json_peek(j);

        id = j->pos;
        p = id;

        while (p < j->end && kvr_json_is_digit(*p)) {
            p++;
        }

        if (p == id && p == j->end) {
            return kvr_json_fail(j, p, "unexpected end");
        }

        if (!kvr_json_digits(id, p - id, &value) || value > UINT32_MAX
            || (p < j->end && (*p == '.' || *p == 'e' || *p == 'E')))
        {
            return kvr_json_fail(j, id, "a token id 0..4294967295 was "
                                        "expected");
        }

        if (count < cap) {
            out[count] = (uint32_t) value;
        }

        count++;
        j->pos = p;

        if (!kvr_json_next(j)) {
            break;
        }
    }

    if (j->error) {
        return false;
    }

    *n = count;

    return true;
}
