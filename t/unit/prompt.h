/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A body's prompt as the engines of a test read it.
 */


#ifndef PROMPT_H_INCLUDED
#define PROMPT_H_INCLUDED


#include <stdlib.h>

#include "wire/kvr_tokens.h"


#define PROMPT_MAX  4096


static kvr_prompt_t       prompt;
static kvr_tape_entry_t   entries[PROMPT_MAX];
static uint32_t           tokens[PROMPT_MAX];
static kvr_form_t         prompt_form = KVR_FORM_COMPLETIONS;
static uint32_t           prompt_engines;


/* The tape of a body, and what is read from it. */

static kvr_rc_t
read_body(const char *body, size_t len, size_t cap)
{
    kvr_rc_t    rc;
    kvr_tape_t  tape;

    kvr_tape_init(&tape, entries, PROMPT_MAX, tokens, cap);
    rc = kvr_tape_scan(&tape, body, len);

    if (rc != KVR_OK) {
        memset(&prompt, 0, sizeof(prompt));
        prompt.error = tape.error;
        prompt.error_at = tape.error_at;

        return rc;
    }

    /* an id of two bytes, "1,", weighs four */

    if (kvr_prompt_bytes(&tape) > 2 * len + 2) {
        abort();
    }

    rc = kvr_prompt_read(&prompt, &tape, prompt_form, prompt_engines);

    if (prompt.ntokens) {
        memmove(tokens, prompt.tokens,
                kvr_min(prompt.ntokens, cap) * sizeof(uint32_t));
    }

    return rc;
}


/* Scans a copy that ends where its memory does, for AddressSanitizer. */

static kvr_rc_t
scan_n(const char *body, size_t len, size_t cap)
{
    char         *copy;
    kvr_rc_t      rc;

    /* strings without escapes are pointed at: the last copy stays */

    static char  *last;

    free(last);

    copy = malloc(len ? len : 1);
    last = copy;

    memcpy(copy, body, len);

    rc = read_body(copy, len, cap);

    return rc;
}


static kvr_rc_t
scan(const char *body)
{
    return scan_n(body, strlen(body), PROMPT_MAX);
}


#endif /* PROMPT_H_INCLUDED */
