/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The bulk of JSON text by AVX2, whatever the flags are that the rest is
 * compiled with.  Only called if the CPU has it.
 */


#include "kvr_json_ways.h"
#include "kvr_json_word.h"


#if KVR_JSON_AVX2

#include <immintrin.h>


#define KVR_JSON_TARGET  __attribute__((target("avx2,bmi,bmi2")))


KVR_JSON_TARGET
static inline uint64_t
kvr_json_mask(__m256i low, __m256i high)
{
    return (uint32_t) _mm256_movemask_epi8(low)
           | (uint64_t) (uint32_t) _mm256_movemask_epi8(high) << 32;
}


KVR_JSON_TARGET
static inline uint64_t
kvr_json_equal(__m256i low, __m256i high, char c)
{
    __m256i  all;

    all = _mm256_set1_epi8(c);

    return kvr_json_mask(_mm256_cmpeq_epi8(low, all),
                         _mm256_cmpeq_epi8(high, all));
}


KVR_JSON_TARGET
static inline void
kvr_json_chunk_masks(const char *p, kvr_json_masks_t *m)
{
    __m256i  low, high, shift, ten;

    low = _mm256_loadu_si256((const __m256i *) p);
    high = _mm256_loadu_si256((const __m256i *) (p + 32));

    /* the comparison is signed: digits become the ten lowest numbers */

    shift = _mm256_set1_epi8((char) (0x80 - '0'));
    ten = _mm256_set1_epi8(-128 + 10);

    m->digits = kvr_json_mask(
                    _mm256_cmpgt_epi8(ten, _mm256_add_epi8(low, shift)),
                    _mm256_cmpgt_epi8(ten, _mm256_add_epi8(high, shift)));
    m->zeros = kvr_json_equal(low, high, '0');
    m->commas = kvr_json_equal(low, high, ',');
    m->spaces = kvr_json_equal(low, high, ' ');
}


/*
 * A number of 1 to 8 digits: the digits become the highest bytes of a word,
 * with zeros below.  Of any other length: any word.
 */

KVR_JSON_TARGET
static inline uint64_t
kvr_json_top(const char *p, uint64_t begin, uint64_t len)
{
    return kvr_json_word(p + begin) << (-8 * len & 63);
}


/* The four numbers whose digits are the high bytes of four words. */

KVR_JSON_TARGET
static inline __m128i
kvr_json_numbers(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    __m256i  v;

    v = _mm256_set_epi64x((long long) d, (long long) c, (long long) b,
                          (long long) a);

    v = _mm256_subs_epu8(v, _mm256_set1_epi8('0'));
    v = _mm256_maddubs_epi16(v, _mm256_set1_epi16(0x010a));
    v = _mm256_madd_epi16(v, _mm256_set1_epi32(0x00010064));
    v = _mm256_packus_epi32(v, v);
    v = _mm256_madd_epi16(v, _mm256_set1_epi32(0x00012710));

    return _mm_unpacklo_epi64(_mm256_castsi256_si128(v),
                              _mm256_extracti128_si256(v, 1));
}


/*
 * Chunk by chunk, while a chunk contains only numbers, commas and blanks.
 * Four numbers at once: where they begin and end is known from the masks.
 */

KVR_JSON_TARGET
static const char *
kvr_json_ids_chunks(const char *p, const char *end, uint32_t *out, size_t cap,
    size_t *n)
{
    size_t            count, k, i;
    uint64_t          begins, commas, wrong, run, begin[4], len[4];
    kvr_json_masks_t  m;

    count = *n;

    /* a word loaded at the last digit of a chunk ends behind the chunk */

    while (end - p >= KVR_JSON_CHUNK + 8) {

        kvr_json_chunk_masks(p, &m);

        begins = m.digits & ~(m.digits << 1);
        commas = m.commas;

        wrong = kvr_json_wrong(&m, begins);

        /* nine digits in a row */

        run = m.digits & (m.digits >> 1);
        run &= run >> 2;
        run &= run >> 4;
        wrong |= run & (m.digits >> 8);

        /* the last numbers are written by four, too */

        k = (size_t) __builtin_popcountll(commas);

        if (wrong || k == 0 || count + k + 3 > cap) {
            break;
        }

        for (i = 0; i < k; i += 4) {

#define kvr_json_take(j)                                                     \
            begin[j] = _tzcnt_u64(begins);                                   \
            len[j] = _tzcnt_u64(commas) - begin[j];                          \
            begins = _blsr_u64(begins);                                      \
            commas = _blsr_u64(commas)

            kvr_json_take(0);
            kvr_json_take(1);
            kvr_json_take(2);
            kvr_json_take(3);

#undef kvr_json_take

            _mm_storeu_si128((__m128i *) (out + count + i),
                             kvr_json_numbers(
                                 kvr_json_top(p, begin[0], len[0]),
                                 kvr_json_top(p, begin[1], len[1]),
                                 kvr_json_top(p, begin[2], len[2]),
                                 kvr_json_top(p, begin[3], len[3])));
        }

        count += k;
        p += KVR_JSON_CHUNK - __builtin_clzll(m.commas);
    }

    *n = count;

    return p;
}


/* The base takes what no chunk has taken, and the end of the text. */

static const char *
kvr_json_ids_avx2(const char *p, const char *end, uint32_t *out, size_t cap,
    size_t *n)
{
    p = kvr_json_ids_chunks(p, end, out, cap, n);

    return kvr_json_way_base.ids(p, end, out, cap, n);
}


KVR_JSON_TARGET
static const char *
kvr_json_plain_avx2(const char *p, const char *end, bool *wide)
{
    __m256i   v, seen, quote, backslash, control, hits;
    uint32_t  mask;

    seen = _mm256_setzero_si256();
    quote = _mm256_set1_epi8('"');
    backslash = _mm256_set1_epi8('\\');
    control = _mm256_set1_epi8(0x1f);
    mask = 0;

    while (end - p >= 32) {
        v = _mm256_loadu_si256((const __m256i *) p);
        seen = _mm256_or_si256(seen, v);

        hits = _mm256_or_si256(
                   _mm256_or_si256(_mm256_cmpeq_epi8(v, quote),
                                   _mm256_cmpeq_epi8(v, backslash)),
                   _mm256_cmpeq_epi8(_mm256_max_epu8(v, control), control));

        mask = (uint32_t) _mm256_movemask_epi8(hits);

        if (mask) {
            break;
        }

        p += 32;
    }

    *wide |= _mm256_movemask_epi8(seen) != 0;

    return mask ? p + __builtin_ctz(mask)
                : kvr_json_way_base.plain(p, end, wide);
}


const kvr_json_way_t  kvr_json_way_avx2 = {
    "avx2",
    kvr_json_plain_avx2,
    kvr_json_ids_avx2
};

#endif
