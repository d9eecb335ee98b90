/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_tokens.h"
#include "kvr_json.h"


typedef enum {
    KVR_VALUE_OTHER = 0,        /* missing, or of another kind */
    KVR_VALUE_TEXT,
    KVR_VALUE_IDS,
    KVR_VALUE_BAD               /* well-formed, but no ids */
} kvr_value_t;


/* Fields that make cached blocks unknown. */

static const char *const  kvr_prompt_fields[] = {
    "truncate_prompt_tokens", "prompt_logprobs", "prompt_embeds",
    "input_embeds", "session_params"
};


/* The last value of one of the keys that may hold token ids. */

typedef struct {
    kvr_value_t  value;
    kvr_json_t   at;            /* where the value begins */
    size_t       ntokens;
    bool         several;
    const char  *error;
    size_t       error_at;
} kvr_ids_t;


/*
 * If ids are bad but well-formed, that is no error yet: the key may come
 * again, or another key may have precedence.
 */

static void
kvr_prompt_ids(kvr_json_t *j, kvr_ids_t *ids, uint32_t *tokens, size_t cap)
{
    kvr_json_t  saved;

    saved = *j;

    if (kvr_json_ids(j, tokens, cap, &ids->ntokens)) {
        ids->value = KVR_VALUE_IDS;
        return;
    }

    ids->value = KVR_VALUE_BAD;
    ids->error = j->error;
    ids->error_at = j->error_at;

    *j = saved;
    kvr_json_skip(j);
}


static bool
kvr_prompt_is_number(int c)
{
    return c == '-' || (c >= '0' && c <= '9');
}


/* "text", ["text", …], [ids], [[ids], …] */

static void
kvr_prompt_value(kvr_json_t *j, kvr_ids_t *ids, uint32_t *tokens, size_t cap)
{
    int         c;
    kvr_json_t  inner;

    c = kvr_json_peek(j);

    memset(ids, 0, sizeof(kvr_ids_t));
    ids->at = *j;

    if (c != '[') {
        ids->value = (c == '"') ? KVR_VALUE_TEXT : KVR_VALUE_OTHER;
        kvr_json_skip(j);
        return;
    }

    kvr_json_open(j, '[');
    c = kvr_json_peek(j);

    if (c == ']' || kvr_prompt_is_number(c)) {
        *j = ids->at;
        kvr_prompt_ids(j, ids, tokens, cap);
        return;
    }

    if (!kvr_json_next(j)) {
        return;
    }

    if (c == '[') {
        inner = *j;

        kvr_json_open(j, '[');
        c = kvr_json_peek(j);

        *j = inner;

        if (c == ']' || kvr_prompt_is_number(c)) {
            kvr_prompt_ids(j, ids, tokens, cap);

        } else {
            kvr_json_skip(j);
        }

    } else {
        ids->value = (c == '"') ? KVR_VALUE_TEXT : KVR_VALUE_OTHER;
        kvr_json_skip(j);
    }

    while (kvr_json_next(j)) {
        ids->several = true;
        kvr_json_skip(j);
    }
}


static void
kvr_prompt_string(kvr_json_t *j, const char **data, size_t *len, char *buf)
{
    const char       *at;
    kvr_json_text_t   s;

    *data = NULL;
    *len = 0;

    if (kvr_json_peek(j) != '"') {
        kvr_json_skip(j);
        return;
    }

    at = j->pos;

    if (!kvr_json_string(j, &s)) {
        return;
    }

    if (!s.escaped) {
        *data = s.data;
        *len = s.len;
        return;
    }

    *len = kvr_json_decode(&s, buf, KVR_PROMPT_STRING_MAX);
    *data = buf;

    if (*len > KVR_PROMPT_STRING_MAX) {
        kvr_json_fail(j, at, "a string with escapes is too long");
    }
}


static void
kvr_prompt_bool(kvr_json_t *j, bool *value)
{
    int  c;

    c = kvr_json_peek(j);

    *value = false;

    if (c == 't' || c == 'f') {
        kvr_json_bool(j, value);
        return;
    }

    kvr_json_skip(j);
}


static void
kvr_prompt_max_tokens(kvr_json_t *j, kvr_prompt_t *p)
{
    kvr_json_text_t  n;

    p->has_max_tokens = false;
    p->max_tokens = 0;

    if (!kvr_prompt_is_number(kvr_json_peek(j))) {
        kvr_json_skip(j);
        return;
    }

    if (kvr_json_number(j, &n)) {
        p->has_max_tokens = kvr_json_digits(n.data, n.len, &p->max_tokens);
    }
}


static void
kvr_prompt_field(kvr_json_t *j, kvr_prompt_t *p, const kvr_json_text_t *key)
{
    size_t  i;

    for (i = 0; i < sizeof(kvr_prompt_fields) / sizeof(char *); i++) {

        if (kvr_json_is(key, kvr_prompt_fields[i])) {

            if (kvr_json_peek(j) != 'n') {
                p->field = kvr_prompt_fields[i];
            }

            break;
        }
    }

    kvr_json_skip(j);
}


kvr_rc_t
kvr_prompt_scan(kvr_prompt_t *p, const char *body, size_t len,
    uint32_t *tokens, size_t cap)
{
    bool                echo, logprobs;
    kvr_ids_t           ids[KVR_PROMPT_KINDS], *last;
    kvr_json_t          j;
    kvr_json_text_t     key;
    kvr_prompt_kind_t   kind;

    /* clear all but the two buffers at the end */

    memset(p, 0, offsetof(kvr_prompt_t, model_buf));
    p->tokens = tokens;

    memset(ids, 0, sizeof(ids));
    last = NULL;
    echo = false;
    logprobs = false;

    kvr_json_init(&j, body, len);
    kvr_json_open(&j, '{');

    while (kvr_json_key(&j, &key)) {

        if (kvr_json_is(&key, "prompt")) {
            kind = KVR_PROMPT_PROMPT;

        } else if (kvr_json_is(&key, "prompt_token_ids")) {
            kind = KVR_PROMPT_TOKEN_IDS;

        } else if (kvr_json_is(&key, "input_ids")) {
            kind = KVR_PROMPT_INPUT_IDS;

        } else {
            kind = KVR_PROMPT_NONE;
        }

        if (kind) {
            kvr_prompt_value(&j, &ids[kind], tokens, cap);

            if (ids[kind].value == KVR_VALUE_IDS
                || ids[kind].value == KVR_VALUE_BAD)
            {
                last = &ids[kind];
            }

        } else if (kvr_json_is(&key, "model")) {
            kvr_prompt_string(&j, &p->model, &p->model_len, p->model_buf);

        } else if (kvr_json_is(&key, "cache_salt")) {
            kvr_prompt_string(&j, &p->salt, &p->salt_len, p->salt_buf);

        } else if (kvr_json_is(&key, "messages")) {
            p->messages = (kvr_json_peek(&j) == '[');
            kvr_json_skip(&j);

        } else if (kvr_json_is(&key, "stream")) {
            kvr_prompt_bool(&j, &p->stream);

        } else if (kvr_json_is(&key, "max_tokens")) {
            kvr_prompt_max_tokens(&j, p);

        } else if (kvr_json_is(&key, "echo")) {
            kvr_prompt_bool(&j, &echo);

        } else if (kvr_json_is(&key, "logprobs")) {
            logprobs = (kvr_json_peek(&j) != 'n');
            kvr_json_skip(&j);

        } else {
            kvr_prompt_field(&j, p, &key);
        }
    }

    if (!kvr_json_end(&j)) {
        p->error = j.error;
        p->error_at = j.error_at;
        return KVR_INVALID;
    }

    if (echo && (logprobs || p->messages)) {
        p->field = "echo";
    }

    p->text = (ids[KVR_PROMPT_PROMPT].value == KVR_VALUE_TEXT);
    p->several = p->text && ids[KVR_PROMPT_PROMPT].several;

    for (kind = KVR_PROMPT_PROMPT; kind < KVR_PROMPT_KINDS; kind++) {

        if (ids[kind].value == KVR_VALUE_BAD) {
            p->error = ids[kind].error;
            p->error_at = ids[kind].error_at;
            return KVR_INVALID;
        }

        if (ids[kind].value == KVR_VALUE_IDS) {
            break;
        }
    }

    if (kind == KVR_PROMPT_KINDS) {
        return KVR_OK;
    }

    if (last != &ids[kind]) {

        /* a later key's ids overwrote the ids that count: read these again */

        j = ids[kind].at;
        kvr_prompt_value(&j, &ids[kind], tokens, cap);
    }

    p->kind = kind;
    p->ntokens = ids[kind].ntokens;
    p->several = ids[kind].several;

    return (p->ntokens > cap) ? KVR_FULL : KVR_OK;
}
