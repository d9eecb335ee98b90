/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_tokens.h"


/* Fields that make cached blocks unknown. */

static const char *const  kvr_prompt_fields[] = {
    "truncate_prompt_tokens", "prompt_logprobs", "prompt_embeds",
    "input_embeds", "session_params"
};


/* The keys that may hold token ids, in the order of their precedence. */

static const struct {
    const char         *name;
    kvr_prompt_kind_t   kind;
} kvr_prompt_keys[] = {
    { "prompt", KVR_PROMPT_PROMPT },
    { "prompt_token_ids", KVR_PROMPT_TOKEN_IDS },
    { "input_ids", KVR_PROMPT_INPUT_IDS }
};


static kvr_rc_t
kvr_prompt_fail(kvr_prompt_t *p, const kvr_tape_t *t, uint32_t i,
    const char *error)
{
    p->error = error;
    p->error_at = t->entries[i].at;

    return KVR_INVALID;
}


static bool
kvr_prompt_is_number(kvr_tape_kind_t kind)
{
    return kind == KVR_TAPE_INT || kind == KVR_TAPE_FLOAT;
}


/*
 * Is the entry an array of numbers?  An empty array is one: a prompt of no
 * tokens.
 */

static bool
kvr_prompt_has_numbers(const kvr_tape_t *t, uint32_t i)
{
    kvr_tape_kind_t  kind;

    kind = kvr_tape_kind(t, i);

    return kind == KVR_TAPE_IDS
           || (kind == KVR_TAPE_ARRAY && !(t->entries[i].flags & KVR_TAPE_CUT)
               && (t->entries[i].len == 0
                   || kvr_prompt_is_number(kvr_tape_kind(t, i + 1))));
}


/* The ids of an array of numbers. */

static kvr_rc_t
kvr_prompt_ids(kvr_prompt_t *p, kvr_tape_t *t, uint32_t i)
{
    uint32_t  at;
    uint64_t  value;

    if (kvr_tape_kind(t, i) == KVR_TAPE_IDS) {
        return kvr_tape_ids(t, i, &p->tokens, &p->ntokens);
    }

    for (at = kvr_tape_first(t, i); at; at = kvr_tape_next(t, i, at)) {

        if (!kvr_tape_u64(t, at, &value) || value > UINT32_MAX) {
            return kvr_prompt_fail(p, t, at, "a token id 0..4294967295 was "
                                             "expected");
        }
    }

    return KVR_OK;
}


/* "text", ["text", …], [ids], [[ids], …]: KVR_DECLINED if there are no ids. */

static kvr_rc_t
kvr_prompt_value(kvr_prompt_t *p, kvr_tape_t *t, uint32_t i)
{
    bool      several;
    uint32_t  first;

    first = 0;
    several = false;

    if (kvr_tape_kind(t, i) == KVR_TAPE_ARRAY) {
        first = kvr_tape_first(t, i);
        several = t->entries[i].len > 1;
    }

    if (kvr_prompt_has_numbers(t, i)) {
        p->several = false;
        return kvr_prompt_ids(p, t, i);
    }

    if (kvr_prompt_has_numbers(t, first)) {
        p->several = several;
        return kvr_prompt_ids(p, t, first);
    }

    return KVR_DECLINED;
}


/* A string of the body, decoded; NULL if there is none. */

static kvr_rc_t
kvr_prompt_string(kvr_prompt_t *p, const kvr_tape_t *t, const char *name,
    const char **data, size_t *len, char *buf)
{
    uint32_t         i;
    kvr_json_text_t  s;

    i = kvr_tape_get(t, KVR_TAPE_ROOT, name);

    if (kvr_tape_kind(t, i) != KVR_TAPE_STRING) {
        return KVR_OK;
    }

    s = kvr_tape_text(t, i);

    *data = s.data;
    *len = s.len;

    if (s.escaped) {
        *data = buf;
        *len = kvr_json_decode(&s, buf, KVR_PROMPT_STRING_MAX);

        if (*len > KVR_PROMPT_STRING_MAX) {
            return kvr_prompt_fail(p, t, i,
                                   "a string with escapes is too long");
        }
    }

    return KVR_OK;
}


static bool
kvr_prompt_is_true(const kvr_tape_t *t, const char *name)
{
    return kvr_tape_kind(t, kvr_tape_get(t, KVR_TAPE_ROOT, name))
           == KVR_TAPE_TRUE;
}


static bool
kvr_prompt_given(const kvr_tape_t *t, const char *name)
{
    return kvr_tape_given(t, kvr_tape_get(t, KVR_TAPE_ROOT, name));
}


static const char *
kvr_prompt_field(const kvr_prompt_t *p, const kvr_tape_t *t)
{
    size_t  i;

    if (kvr_prompt_is_true(t, "echo")
        && (p->messages || kvr_prompt_given(t, "logprobs")))
    {
        return "echo";
    }

    for (i = 0; i < sizeof(kvr_prompt_fields) / sizeof(char *); i++) {

        if (kvr_prompt_given(t, kvr_prompt_fields[i])) {
            return kvr_prompt_fields[i];
        }
    }

    return NULL;
}


/* Is a prompt text?  If there is more than one text, *several is set. */

static bool
kvr_prompt_is_text(const kvr_tape_t *t, uint32_t i, bool *several)
{
    if (kvr_tape_kind(t, i) == KVR_TAPE_STRING) {
        return true;
    }

    if (kvr_tape_kind(t, i) != KVR_TAPE_ARRAY
        || kvr_tape_kind(t, kvr_tape_first(t, i)) != KVR_TAPE_STRING)
    {
        return false;
    }

    *several = t->entries[i].len > 1;

    return true;
}


kvr_rc_t
kvr_prompt_read(kvr_prompt_t *p, kvr_tape_t *t)
{
    size_t    k;
    uint32_t  i;
    kvr_rc_t  rc;

    /* clear all but the two buffers at the end */

    memset(p, 0, offsetof(kvr_prompt_t, model_buf));

    if (kvr_tape_kind(t, KVR_TAPE_ROOT) != KVR_TAPE_OBJECT) {
        return kvr_prompt_fail(p, t, KVR_TAPE_ROOT, "an object was expected");
    }

    if (kvr_prompt_string(p, t, "model", &p->model, &p->model_len,
                          p->model_buf)
        != KVR_OK
        || kvr_prompt_string(p, t, "cache_salt", &p->salt, &p->salt_len,
                             p->salt_buf)
           != KVR_OK)
    {
        return KVR_INVALID;
    }

    i = kvr_tape_get(t, KVR_TAPE_ROOT, "messages");

    p->messages = kvr_tape_kind(t, i) == KVR_TAPE_ARRAY;
    p->stream = kvr_prompt_is_true(t, "stream");
    p->has_max_tokens = kvr_tape_u64(t, kvr_tape_get(t, KVR_TAPE_ROOT,
                                                     "max_tokens"),
                                     &p->max_tokens);
    p->field = kvr_prompt_field(p, t);
    p->text = kvr_prompt_is_text(t, kvr_tape_get(t, KVR_TAPE_ROOT, "prompt"),
                                 &p->several);

    for (k = 0; k < sizeof(kvr_prompt_keys) / sizeof(kvr_prompt_keys[0]); k++)
    {
        i = kvr_tape_get(t, KVR_TAPE_ROOT, kvr_prompt_keys[k].name);
        rc = kvr_prompt_value(p, t, i);

        if (rc != KVR_DECLINED) {

            if (rc != KVR_INVALID) {
                p->kind = kvr_prompt_keys[k].kind;
            }

            return rc;
        }
    }

    return KVR_OK;
}
