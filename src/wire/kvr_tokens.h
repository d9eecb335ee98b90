/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the body of an inference request says that routing wants to know: the
 * prompt's token ids, the model, the namespaces of the cache, the load.  It is
 * read from the tape of the body, as engines of the given kinds read a body of
 * the given form: see kvr_forms.h for the fields.
 *
 *     {"model": "m", "prompt": [1, 2, 3], "n": 2}
 *
 * Ids can be [1, 2] or, for several prompts, [[1, 2], [3]].  A key that comes
 * twice counts as it comes last, as JSON parsers have it.  A field that no
 * engine of these kinds reads is ignored.
 */


#ifndef KVR_TOKENS_H_INCLUDED
#define KVR_TOKENS_H_INCLUDED


#include "kvr_forms.h"
#include "kvr_tape.h"


#define KVR_PROMPT_STRING_MAX  1024      /* bytes of a decoded string that had
                                            escapes; others have no bound */
#define KVR_SEQUENCES_MAX      128       /* of one request, for its load: more
                                            than engines run at once of one */


/* How "truncate_prompt_tokens" cuts a prompt. */
typedef struct {
    bool               on;
    bool               left;        /* from the left: the last tokens stay */
    uint64_t           keep;        /* the maximum number that stays */
} kvr_prompt_cut_t;


/*
 * Not terminated, decoded; in the body or in a buffer of the prompt; NULL when
 * not there.
 */
typedef struct {
    const char        *data;
    size_t             len;
} kvr_prompt_string_t;


typedef struct {
    bool               has_ids;
    bool               text;        /* there is text where ids could be */
    const uint32_t    *tokens;      /* the first prompt, in the tape's array of
                                       ids; cut */
    size_t             ntokens;
    size_t             others;      /* number of ids of the other prompts */
    uint32_t           prompts;     /* number of prompts, ids or texts; 0: no
                                       prompt was found */
    uint32_t           sequences;   /* number of sequences for all prompts,
                                       1..KVR_SEQUENCES_MAX */
    kvr_prompt_cut_t   cut;         /* for a text, once it is tokenized */

    kvr_prompt_string_t  model;
    kvr_prompt_string_t  salt;      /* "cache_salt" */
    kvr_prompt_string_t  lora;      /* "lora_path" */

    bool               stream;      /* the answer is to be streamed */
    bool               reports;     /* the engine is to announce again what it
                                       has cached of the prompt */

    const char        *field;       /* static name of a field for which cached
                                       blocks can't be told; NULL: none */

    const char        *error;       /* static sentence; NULL: none */
    size_t             error_at;    /* byte offset in the body */

    char               model_buf[KVR_PROMPT_STRING_MAX];
    char               salt_buf[KVR_PROMPT_STRING_MAX];
    char               lora_buf[KVR_PROMPT_STRING_MAX];
} kvr_prompt_t;


/*
 * Reads the tape of a body; kvr_tape_scan() must have answered KVR_OK.  What p
 * points to belongs to the tape.  engines: a set of kvr_engine_kind_t.
 *
 * KVR_INVALID: not an object, or the ids are no ids: p->error and p->error_at.
 * KVR_FULL: more ids than the tape has room for; p->ntokens is their number
 * and the first t->ids_cap are there.  Everything else that was found is valid
 * with KVR_OK and KVR_FULL.
 */
kvr_rc_t kvr_prompt_read(kvr_prompt_t *p, kvr_tape_t *t, kvr_form_t form,
    uint32_t engines);

/* The form that a body looks like, by its fields, if its path is not known. */
kvr_form_t kvr_prompt_form(const kvr_tape_t *t);

/*
 * The weight of a body whose tokens are not known: the bytes of all values and
 * keys, as they are written, and 4 for each token id, without the media in
 * "messages" or "input".
 */
size_t kvr_prompt_bytes(const kvr_tape_t *t);

/* Cuts n tokens. */
void kvr_prompt_cut(const kvr_prompt_cut_t *cut, const uint32_t **tokens,
    size_t *n);


#endif /* KVR_TOKENS_H_INCLUDED */
