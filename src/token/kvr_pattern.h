/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Regular expressions of tokenizers, matched by PCRE2.
 *
 * Hugging Face's tokenizers match by Oniguruma with Ruby's syntax.  PCRE2
 * takes most of it, and means other things by some of it, without a word.  So
 * a gate lets only those constructs pass which mean the same in both, rewrites
 * three which have an equivalent (\p{Han}, [A&&[^B]], \uHHHH), and refuses the
 * rest by name.
 *
 * A pattern is read-only when it is compiled: for all threads, and for
 * processes that are forked.  Each thread matches by a matcher of its own.
 */


#ifndef KVR_PATTERN_H_INCLUDED
#define KVR_PATTERN_H_INCLUDED


#include "kvr_unicode.h"


typedef struct kvr_pattern_s  kvr_pattern_t;
typedef struct kvr_matcher_s  kvr_matcher_t;


#define KVR_PATTERN_WHY      160        /* bytes of a sentence */


/*
 * Compiles a pattern; NULL: it is refused, and why has a sentence, or there is
 * no memory.
 */
kvr_pattern_t *kvr_pattern_compile(const char *text, size_t len,
    kvr_unicode_age_t age, char why[KVR_PATTERN_WHY]);
void kvr_pattern_free(kvr_pattern_t *p);

/* Bytes that the compiled pattern takes. */
size_t kvr_pattern_bytes(const kvr_pattern_t *p);

/* A matcher; NULL: no memory. */
kvr_matcher_t *kvr_matcher_new(void);
void kvr_matcher_free(kvr_matcher_t *m);

/*
 * The first match in text[from..len), which is well-formed UTF-8 and repaired
 * (kvr_unicode.h).  KVR_OK: [*a, *b) is the match; KVR_DECLINED: there is
 * none; KVR_ERROR: PCRE2 could not tell, for example for want of stack.
 */
kvr_rc_t kvr_pattern_match(const kvr_pattern_t *p, kvr_matcher_t *m,
    const char *text, size_t len, size_t from, size_t *a, size_t *b);

/* Is this character one of words, \w of Rust's regular expressions? */
bool kvr_pattern_word(kvr_matcher_t *m, kvr_unicode_age_t age, uint32_t c);


#endif /* KVR_PATTERN_H_INCLUDED */
