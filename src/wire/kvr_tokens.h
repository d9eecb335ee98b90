/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the body of an inference request says that routing wants to know: the
 * prompt's token ids, the model, the cache salt.  It is read from the tape of
 * the body.
 *
 *     {"model": "m", "prompt": [1, 2, 3], "stream": true}
 *
 * Token ids are looked for, at the top level, under
 *
 *     "prompt"              OpenAI's completions: [1, 2], [[1, 2]]
 *     "prompt_token_ids"    vLLM, the same forms
 *     "input_ids"           SGLang, the same forms
 *
 * in this order.  A key that comes twice counts as it comes last, as JSON
 * parsers have it.
 *
 * Some fields make the engine read other tokens than these, or read nothing
 * of its cache.  Such a field, unless it is null, is named in p->field:
 *
 *     "truncate_prompt_tokens"   vLLM drops a part of the prompt
 *     "prompt_logprobs"          vLLM computes all of the prompt anew
 *     "echo"                     the same, for a chat, or beside "logprobs"
 *     "prompt_embeds"            vLLM: vectors in front of the prompt
 *     "input_embeds"             SGLang: vectors instead of the prompt
 *     "session_params"           SGLang: the prompt continues another one
 */


#ifndef KVR_TOKENS_H_INCLUDED
#define KVR_TOKENS_H_INCLUDED


#include "kvr_tape.h"


#define KVR_PROMPT_STRING_MAX  1024      /* bytes of a decoded string that had
                                            escapes; others have no bound */


typedef enum {
    KVR_PROMPT_NONE = 0,        /* no token ids */
    KVR_PROMPT_PROMPT,
    KVR_PROMPT_TOKEN_IDS,
    KVR_PROMPT_INPUT_IDS,
    KVR_PROMPT_KINDS
} kvr_prompt_kind_t;


typedef struct {
    kvr_prompt_kind_t  kind;        /* where the ids were found */
    const uint32_t    *tokens;      /* in the tape's array of ids */
    size_t             ntokens;

    bool               several;     /* more than one prompt: this is the
                                       first */
    bool               text;        /* "prompt" is a string, or strings */
    bool               messages;    /* "messages" is an array */
    bool               stream;
    bool               has_max_tokens;
    uint64_t           max_tokens;

    /*
     * Not terminated, decoded; in the body or in the buffers below; NULL when
     * not there.
     */
    const char        *model;
    size_t             model_len;
    const char        *salt;        /* "cache_salt" */
    size_t             salt_len;

    const char        *field;       /* static name of a field that makes
                                       cached blocks unknown; NULL: none */

    const char        *error;       /* static sentence; NULL: none */
    size_t             error_at;    /* byte offset in the body */

    char               model_buf[KVR_PROMPT_STRING_MAX];
    char               salt_buf[KVR_PROMPT_STRING_MAX];
} kvr_prompt_t;


/*
 * Reads the tape of a body; kvr_tape_scan() must have answered KVR_OK.  What p
 * points to belongs to the tape.
 *
 * KVR_INVALID: not an object, or the ids are no ids: p->error and p->error_at.
 * KVR_FULL: more ids than the tape has room for; p->ntokens is their number
 * and the first t->ids_cap are there.  Everything else that was found is valid
 * with KVR_OK and KVR_FULL.
 */
kvr_rc_t kvr_prompt_read(kvr_prompt_t *p, kvr_tape_t *t);


#endif /* KVR_TOKENS_H_INCLUDED */
