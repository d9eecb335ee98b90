/*
 * Copyright (C) the nginx-kv-router authors
 */


#define _GNU_SOURCE

#include "kvr_answer.h"


typedef struct {
    const char           *name;
    kvr_answer_figure_t   figure;
} kvr_answer_name_t;


static const char *kvr_answer_seek(kvr_answer_t *a, const char *p,
    const char *end);
static const char *kvr_answer_object(kvr_answer_t *a, const char *p,
    const char *end);
static void kvr_answer_string(kvr_answer_t *a, char c);
static void kvr_answer_key(kvr_answer_t *a);
static void kvr_answer_number(kvr_answer_t *a);
static bool kvr_answer_word(const kvr_answer_t *a, const char *word);
static void kvr_answer_close(kvr_answer_t *a);


static const kvr_answer_name_t  kvr_answer_names[] = {
    { "prompt_tokens", KVR_ANSWER_PROMPT },
    { "input_tokens", KVR_ANSWER_PROMPT },
    { "cached_tokens", KVR_ANSWER_CACHED },
    { "cache_read_input_tokens", KVR_ANSWER_READ },
    { "cache_creation_input_tokens", KVR_ANSWER_CREATED },
    { "completion_tokens", KVR_ANSWER_COMPLETION },
    { "output_tokens", KVR_ANSWER_COMPLETION },
    { NULL, KVR_ANSWER_NONE }
};


void
kvr_answer_init(kvr_answer_t *a, kvr_form_t form)
{
    memset(a, 0, sizeof(kvr_answer_t));

    a->form = form;

    switch (form) {

    case KVR_FORM_SGLANG_GENERATE:
        a->key = "\"meta_info\"";
        break;

    case KVR_FORM_NO_PROMPT:
    case KVR_FORM_NO_LOAD:
        break;

    default:
        a->key = "\"usage\"";
    }
}


void
kvr_answer_gap(kvr_answer_t *a)
{
    a->matched = 0;
    a->depth = 0;
    a->colon = false;
}


void
kvr_answer_add(kvr_answer_t *a, const void *data, size_t len)
{
    const char  *p, *end;

    if (a->key == NULL) {
        return;
    }

    p = data;
    end = p + len;

    while (p < end) {
        p = a->depth ? kvr_answer_object(a, p, end)
                     : kvr_answer_seek(a, p, end);
    }
}


/*
 * Looks for the key and the brace behind the key.  Returns the position behind
 * what was read.  Inside a string of JSON the key's quotes would have
 * backslashes, so a string can't be taken for the key.
 */

static const char *
kvr_answer_seek(kvr_answer_t *a, const char *p, const char *end)
{
    size_t       len;
    const char  *found;

    len = strlen(a->key);

    if (a->matched == 0) {
        found = memmem(p, end - p, a->key, len);

        if (found != NULL) {
            a->matched = len;
            return found + len;
        }

        /* the key may begin in the last bytes */

        if ((size_t) (end - p) >= len) {
            p = end - len + 1;
        }
    }

    for ( /* void */ ; p < end; p++) {

        if (a->matched < len) {

            if (*p == a->key[a->matched]) {
                a->matched++;

            } else if (*p == '"') {
                a->matched = 1;

            } else {
                a->matched = 0;
                return p + 1;
            }

            continue;
        }

        if (*p == ' ') {
            continue;
        }

        if (*p == ':' && !a->colon) {
            a->colon = true;
            continue;
        }

        if (*p == '{' && a->colon) {
            a->depth = 1;
            a->string = false;
            a->details = false;
            a->figure = KVR_ANSWER_NONE;
            a->word_len = 0;
            a->inside = 0;
            p++;
        }

        a->matched = 0;
        a->colon = false;

        break;
    }

    return p;
}


/* Reads the object up to its end; returns the position behind it, or end. */

static const char *
kvr_answer_object(kvr_answer_t *a, const char *p, const char *end)
{
    for ( /* void */ ; p < end; p++) {

        if (a->string) {
            kvr_answer_string(a, *p);
            continue;
        }

        switch (*p) {

        case '"':
            a->figure = KVR_ANSWER_NONE;
            a->string = true;
            a->escape = false;
            a->word_len = 0;
            break;

        case ':':
            kvr_answer_key(a);
            break;

        case '{':
        case '[':
            a->figure = KVR_ANSWER_NONE;

            if (a->depth == 1) {
                a->details = *p == '{'
                             && (kvr_answer_word(a, "prompt_tokens_details")
                                 || kvr_answer_word(a,
                                                    "input_tokens_details"));
            }

            if (++a->depth > KVR_ANSWER_DEPTH) {
                a->depth = 0;
                return p + 1;
            }

            break;

        case '}':
        case ']':
            kvr_answer_number(a);

            if (--a->depth == 0) {
                kvr_answer_close(a);
                return p + 1;
            }

            break;

        case ',':
            kvr_answer_number(a);
            break;

        case ' ':
            break;

        default:

            if (*p >= '0' && *p <= '9' && a->digits < 10) {
                a->number = a->number * 10 + (uint64_t) (*p - '0');
                a->digits++;

            } else {
                a->figure = KVR_ANSWER_NONE;
            }
        }
    }

    return p;
}


static void
kvr_answer_string(kvr_answer_t *a, char c)
{
    if (a->escape) {
        a->escape = false;

    } else if (c == '\\') {

        /* the names that are looked for have no escapes */

        a->escape = true;
        a->word_len = KVR_ANSWER_WORD + 1;

    } else if (c == '"') {
        a->string = false;

    } else if (a->word_len < KVR_ANSWER_WORD) {
        a->word[a->word_len++] = c;

    } else {
        a->word_len = KVR_ANSWER_WORD + 1;
    }
}


static bool
kvr_answer_word(const kvr_answer_t *a, const char *word)
{
    return a->word_len == strlen(word)
           && memcmp(a->word, word, a->word_len) == 0;
}


/* A key has ended: does the value behind the key belong to a figure? */

static void
kvr_answer_key(kvr_answer_t *a)
{
    const kvr_answer_name_t  *n;

    a->figure = KVR_ANSWER_NONE;
    a->number = 0;
    a->digits = 0;

    if (a->depth > 1 && !(a->depth == 2 && a->details)) {
        return;
    }

    for (n = kvr_answer_names; n->name != NULL; n++) {

        if (kvr_answer_word(a, n->name)
            && (a->depth == 1 || n->figure == KVR_ANSWER_CACHED))
        {
            a->figure = n->figure;
            return;
        }
    }
}


/* A value ends.  No prompt has 2^32 tokens; the limit keeps sums in range. */

static void
kvr_answer_number(kvr_answer_t *a)
{
    if (a->figure != KVR_ANSWER_NONE && a->digits && a->number <= UINT32_MAX) {
        a->object[a->figure] = (uint32_t) a->number;
        a->inside |= 1u << a->figure;
    }

    a->figure = KVR_ANSWER_NONE;
}


/* The object ends: its figures are those of the answer. */

static void
kvr_answer_close(kvr_answer_t *a)
{
    uint32_t  i;

    if (a->form == KVR_FORM_SGLANG_GENERATE && a->known) {
        return;
    }

    for (i = 0; i < KVR_ANSWER_FIGURES; i++) {

        if (a->inside & 1u << i) {
            a->figures[i] = a->object[i];
            a->known |= 1u << i;
        }
    }
}


bool
kvr_answer_usage(const kvr_answer_t *a, kvr_answer_usage_t *usage)
{
    kvr_answer_figure_t  cached;

    cached = (a->form == KVR_FORM_MESSAGES) ? KVR_ANSWER_READ
                                            : KVR_ANSWER_CACHED;

    usage->has_prompt = (a->known & 1u << KVR_ANSWER_PROMPT) != 0;
    usage->has_cached = (a->known & 1u << cached) != 0;
    usage->prompt_tokens = a->figures[KVR_ANSWER_PROMPT];
    usage->cached_tokens = a->figures[cached];
    usage->completion_tokens = a->figures[KVR_ANSWER_COMPLETION];

    /* a figure that is not known is 0 */

    if (a->form == KVR_FORM_MESSAGES) {
        usage->prompt_tokens += (uint64_t) a->figures[KVR_ANSWER_READ]
                                + a->figures[KVR_ANSWER_CREATED];
    }

    return usage->has_prompt || usage->has_cached;
}
