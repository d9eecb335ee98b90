/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A tokenizer's normalizer: what is done to a section of text before the text
 * is split.
 *
 * A normalizer is read-only when it is built.
 */


#ifndef KVR_NORMALIZER_H_INCLUDED
#define KVR_NORMALIZER_H_INCLUDED


#include "kvr_pattern.h"


#define KVR_NORMALIZER_OPS   12


typedef enum {
    KVR_NORMALIZER_FORM,
    KVR_NORMALIZER_LOWER,
    KVR_NORMALIZER_STRIP,
    KVR_NORMALIZER_PREPEND,
    KVR_NORMALIZER_REPLACE
} kvr_normalizer_kind_t;


typedef struct {
    kvr_normalizer_kind_t  kind;
    kvr_unicode_form_t     form;
    bool                   left;        /* strip */
    bool                   right;
    kvr_bytes_t            from;        /* replace: a text, */
    kvr_pattern_t         *pattern;     /* or a pattern */
    kvr_bytes_t            to;          /* replace, prepend */
} kvr_normalizer_op_t;


typedef struct {
    kvr_normalizer_op_t    ops[KVR_NORMALIZER_OPS];
    uint32_t               n;
    kvr_unicode_age_t      age;
} kvr_normalizer_t;


/* The buffers of one thread; all zero is a beginning. */
typedef struct {
    kvr_bytes_t            work[2];
    kvr_bytes_t            repaired;
} kvr_normalizer_work_t;


void kvr_normalizer_free(kvr_normalizer_t *n);
void kvr_normalizer_work_free(kvr_normalizer_work_t *w);

/*
 * Where a part of a section ends that begins at `at` and can be normalized
 * apart: behind `size` bytes or more, or at the section's end.
 */
size_t kvr_normalizer_part(const kvr_normalizer_t *n, const char *text,
    size_t len, size_t at, size_t size);

/*
 * Adds the normalized part text[at..end) of a section to out.  KVR_DECLINED:
 * the part is normalized already, and nothing was added.  KVR_ERROR: PCRE2
 * could not tell.  Without memory out->failed is true.
 */
kvr_rc_t kvr_normalizer_apply(const kvr_normalizer_t *n,
    kvr_normalizer_work_t *w, kvr_matcher_t *m, const char *text, size_t at,
    size_t end, kvr_bytes_t *out);


#endif /* KVR_NORMALIZER_H_INCLUDED */
