/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Tokenizers: text to token ids, exactly as Hugging Face's library makes them
 * of a tokenizer.json.
 *
 * What can't be done exactly is refused when the file is loaded, with a
 * sentence: other models than BPE, dropout, subwords with prefixes or
 * suffixes, normalizers and pre-tokenizers whose tables are unknown, regular
 * expressions which mean something else in PCRE2 (kvr_pattern.h), and files of
 * which the library itself makes something else than they say.
 *
 * A tokenizer is read-only after its load: for all threads, and for processes
 * that are forked.  No load may run at the same time as another one.
 */


#ifndef KVR_TOKENIZER_H_INCLUDED
#define KVR_TOKENIZER_H_INCLUDED


#include "kvr_unicode.h"


#define KVR_TOKENIZER_WHY    200        /* bytes of a sentence */


typedef struct kvr_tokenizer_s  kvr_tokenizer_t;


/*
 * Loads a tokenizer.json.  age: the Unicode of the engine's version of
 * "tokenizers".  The text is not needed any more afterwards.  NULL: refused,
 * and why, of why_len bytes, has a sentence.
 */
kvr_tokenizer_t *kvr_tokenizer_load(const char *json, size_t len,
    kvr_unicode_age_t age, char *why, size_t why_len);
void kvr_tokenizer_free(kvr_tokenizer_t *t);

/* Bytes of memory. */
size_t kvr_tokenizer_bytes(const kvr_tokenizer_t *t);


#endif /* KVR_TOKENIZER_H_INCLUDED */
