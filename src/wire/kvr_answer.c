/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_answer.h"
#include "kvr_json.h"


static const char *kvr_answer_last(const char *text, const char *end,
    const char *key);
static bool kvr_answer_object(const char *text, const char *end,
    kvr_answer_usage_t *usage);
static bool kvr_answer_details(kvr_json_t *j, kvr_answer_usage_t *usage);


void
kvr_answer_add(kvr_answer_t *a, const void *data, size_t len)
{
    if (len >= KVR_ANSWER_TAIL) {
        memcpy(a->data, (const char *) data + len - KVR_ANSWER_TAIL,
               KVR_ANSWER_TAIL);
        a->len = KVR_ANSWER_TAIL;
        return;
    }

    if (a->len + len > sizeof(a->data)) {
        memmove(a->data, a->data + a->len - KVR_ANSWER_TAIL, KVR_ANSWER_TAIL);
        a->len = KVR_ANSWER_TAIL;
    }

    memcpy(a->data + a->len, data, len);
    a->len += len;
}


/*
 * Finds the last such key with an object; returns the position after the
 * colon, or NULL.  Inside of a string the quotes would have backslashes.
 */

static const char *
kvr_answer_last(const char *text, const char *end, const char *key)
{
    size_t       len;
    const char  *p, *v;

    len = strlen(key);

    if ((size_t) (end - text) < len) {
        return NULL;
    }

    for (p = end - len + 1; p-- > text; /* void */ ) {

        if (*p != '"' || memcmp(p, key, len) != 0) {
            continue;
        }

        for (v = p + len; v < end && (*v == ' ' || *v == ':'); v++) {
            /* void */
        }

        if (v < end && *v == '{' && v > p + len) {
            return v;
        }
    }

    return NULL;
}


static bool
kvr_answer_details(kvr_json_t *j, kvr_answer_usage_t *usage)
{
    bool             found;
    kvr_json_text_t  key;

    found = false;

    if (kvr_json_peek(j) != '{') {
        (void) kvr_json_skip(j);
        return false;
    }

    (void) kvr_json_open(j, '{');

    while (kvr_json_key(j, &key)) {

        if (kvr_json_is(&key, "cached_tokens") && kvr_json_peek(j) != 'n') {
            found = kvr_json_u64(j, &usage->cached_tokens);

        } else {
            (void) kvr_json_skip(j);
        }
    }

    return found;
}


static bool
kvr_answer_object(const char *text, const char *end, kvr_answer_usage_t *usage)
{
    bool             found;
    kvr_json_t       j;
    kvr_json_text_t  key;

    found = false;
    usage->prompt_tokens = 0;

    kvr_json_init(&j, text, end - text);
    (void) kvr_json_open(&j, '{');

    while (kvr_json_key(&j, &key)) {

        if (kvr_json_is(&key, "prompt_tokens") && kvr_json_peek(&j) != 'n') {
            (void) kvr_json_u64(&j, &usage->prompt_tokens);

        } else if (kvr_json_is(&key, "cached_tokens")
                   && kvr_json_peek(&j) != 'n')
        {
            found = kvr_json_u64(&j, &usage->cached_tokens);

        } else if (kvr_json_is(&key, "prompt_tokens_details")) {
            found |= kvr_answer_details(&j, usage);

        } else {
            (void) kvr_json_skip(&j);
        }
    }

    return found && j.error == NULL;
}


bool
kvr_answer_usage(const kvr_answer_t *a, kvr_answer_usage_t *usage)
{
    const char  *text, *end, *at;

    end = a->data + a->len;
    text = end - kvr_min(a->len, (size_t) KVR_ANSWER_TAIL);

    at = kvr_answer_last(text, end, "\"usage\"");

    if (at == NULL) {
        at = kvr_answer_last(text, end, "\"meta_info\"");
    }

    if (at == NULL || !kvr_answer_object(at, end, usage)) {
        return false;
    }

    /* no prompt is so long; the limit keeps the sums in range */

    return usage->prompt_tokens <= UINT32_MAX
           && usage->cached_tokens <= UINT32_MAX;
}
