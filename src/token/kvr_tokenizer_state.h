/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a tokenizer is made of, for the files that make and use it.
 */


#ifndef KVR_TOKENIZER_STATE_H_INCLUDED
#define KVR_TOKENIZER_STATE_H_INCLUDED


#include "kvr_added.h"
#include "kvr_normalizer.h"
#include "kvr_splitter.h"
#include "kvr_tokenizer.h"
#include "kvr_vocabulary.h"

#include "../wire/kvr_json.h"


#define KVR_TOKENIZER_FRAME  8          /* ids before, or behind a text */


struct kvr_tokenizer_s {
    kvr_vocabulary_t    vocabulary;
    kvr_normalizer_t    normalizer;
    kvr_splitter_t      splitter;
    kvr_unicode_age_t   age;

    kvr_added_t        *added;
    uint32_t            nadded;
    kvr_added_trie_t    raw;
    kvr_added_trie_t    normalized;

    uint32_t            before[KVR_TOKENIZER_FRAME];
    uint32_t            behind[KVR_TOKENIZER_FRAME];
    uint32_t            nbefore;
    uint32_t            nbehind;

    bool                divides;        /* pieces can be cut between characters
                                           that no token joins */
};


/* A value of the file: its text. */
typedef struct {
    const char  *data;                  /* NULL: not there */
    size_t       len;
} kvr_token_value_t;


/* A load. */
typedef struct {
    kvr_tokenizer_t    *t;
    char               *why;
    size_t              why_len;
    kvr_token_value_t   root;
} kvr_token_load_t;


/* A string of the file, decoded. */
typedef struct {
    uint32_t    at;                     /* in names */
    uint32_t    len;
    uint32_t    id;
} kvr_token_name_t;


/* The vocabulary as the file spells it: string -> id. */
typedef struct {
    kvr_bytes_t        text;
    kvr_token_name_t  *names;
    uint32_t           n;
    uint32_t           cap;
    uint32_t          *slots;           /* index of a name + 1 */
    uint32_t           mask;
    uint32_t           largest;         /* id */
} kvr_token_names_t;


/* Refuses the file with a sentence, as printf() has it; answers false. */
bool kvr_token_refuse(kvr_token_load_t *l, const char *format, ...);
bool kvr_token_no_memory(kvr_token_load_t *l);

/*
 * Values.  members: n members of an object, by their names, in one walk over
 * it; a member that is not there: {NULL, 0}.  get: one of them.  open, next:
 * the elements of an array.  text: a string's characters, added to out; false:
 * it is no string.
 */
void kvr_token_members(kvr_token_value_t object, const char *const *names,
    kvr_token_value_t *values, uint32_t n);
kvr_token_value_t kvr_token_get(kvr_token_value_t object, const char *name);
bool kvr_token_open(kvr_json_t *j, kvr_token_value_t array);
bool kvr_token_next(kvr_json_t *j, kvr_token_value_t *element);
bool kvr_token_is(kvr_token_value_t v, const char *text);
bool kvr_token_given(kvr_token_value_t v);      /* there, and not null */
bool kvr_token_yes(kvr_token_value_t v, bool otherwise);
bool kvr_token_text(kvr_token_value_t v, kvr_bytes_t *out);
bool kvr_token_u32(kvr_token_value_t v, uint32_t *out);

/* The parts of a tokenizer; false: refused. */
bool kvr_token_normalizers(kvr_token_load_t *l, kvr_token_value_t v);
bool kvr_token_splitters(kvr_token_load_t *l, kvr_token_value_t v);
bool kvr_token_frame(kvr_token_load_t *l, kvr_token_value_t v);
bool kvr_token_added(kvr_token_load_t *l, kvr_token_value_t added,
    const kvr_token_names_t *names);

/* The id of a token as the file spells it; KVR_TOKEN_NONE: there is none. */
uint32_t kvr_token_id(const kvr_token_names_t *names, const char *text,
    size_t len);


#endif /* KVR_TOKENIZER_STATE_H_INCLUDED */
