/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The bulk of JSON text, by vector instructions: the plain bytes of strings,
 * and arrays of token ids.  There are several implementations with the same
 * answers; the CPU is asked which of them it can run.
 */


#ifndef KVR_JSON_WAYS_H_INCLUDED
#define KVR_JSON_WAYS_H_INCLUDED


#include "kvr_json.h"


#if defined(__x86_64__) && defined(__GNUC__)
#define KVR_JSON_AVX2        1
#else
#define KVR_JSON_AVX2        0
#endif


struct kvr_json_way_s {

    const char  *name;          /* of its instructions: "base", "avx2" */

    /*
     * The first byte from p on that is a quote, a backslash, or below 0x20;
     * end: there is none.  If one of the bytes passed is above 0x7f, *wide is
     * set; it may be set because of such a byte shortly behind, too.
     */
    const char *(*plain)(const char *p, const char *end, bool *wide);

    /*
     * Reads "1, 22,333," as far as it is fast: ids of up to 8 digits, each
     * with the comma behind it and at most one blank before it.  Returns the
     * text behind the last comma.  *n grows by the number of ids; ids whose
     * number is below cap are written to out.
     */
    const char *(*ids)(const char *p, const char *end, uint32_t *out,
        size_t cap, size_t *n);
};


/* The base of the architecture; AVX2 with BMI and BMI2. */
extern const kvr_json_way_t  kvr_json_way_base;
extern const kvr_json_way_t  kvr_json_way_avx2;


/*
 * The implementations that this CPU can run, the fastest first, by number from
 * 0; NULL: there are no more.  The last one is the architecture's base.
 */
const kvr_json_way_t *kvr_json_way(size_t i);


#endif /* KVR_JSON_WAYS_H_INCLUDED */
