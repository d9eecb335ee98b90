/*
 * Copyright (C) the nginx-kv-router authors
 *
 * "added_tokens" of a tokenizer.json.
 */


#include "kvr_tokenizer_state.h"


#define KVR_TOKEN_LONGEST    1024       /* bytes of an added token */


static bool kvr_token_one_added(kvr_token_load_t *l, kvr_token_value_t v,
    const kvr_token_names_t *names, uint32_t *next, uint32_t *largest);
static bool kvr_token_normalize_added(kvr_token_load_t *l);


bool
kvr_token_added(kvr_token_load_t *l, kvr_token_value_t added,
    const kvr_token_names_t *names)
{
    uint32_t           n, next, largest;
    kvr_json_t         j;
    kvr_tokenizer_t   *t;
    kvr_token_value_t  element;

    t = l->t;
    n = 0;

    if (kvr_token_open(&j, added)) {
        while (kvr_token_next(&j, &element)) {
            n++;
        }
    }

    t->added = calloc(n + 1, sizeof(kvr_added_t));
    if (t->added == NULL) {
        return kvr_token_no_memory(l);
    }

    next = names->n;
    largest = 0;

    if (kvr_token_open(&j, added)) {
        while (kvr_token_next(&j, &element)) {
            if (!kvr_token_one_added(l, element, names, &next, &largest)) {
                return false;
            }
        }
    }

    if (!kvr_token_normalize_added(l)) {
        return false;
    }

    if (!kvr_added_build(&t->raw, t->added, t->nadded, false)
        || !kvr_added_build(&t->normalized, t->added, t->nadded, true))
    {
        return kvr_token_no_memory(l);
    }

    /* the library takes either of the two, another one in another run */

    if (t->normalized.twin) {
        return kvr_token_refuse(l, "two added tokens are \"%.*s\" when they "
                                "are normalized",
                                (int) kvr_min(t->normalized.twin->len, 60),
                                t->normalized.twin->text);
    }

    return true;
}


/*
 * The library takes an added token's id from the vocabulary, else it counts
 * on; a file that says otherwise is not what an engine runs.
 */

static bool
kvr_token_one_added(kvr_token_load_t *l, kvr_token_value_t v,
    const kvr_token_names_t *names, uint32_t *next, uint32_t *largest)
{
    uint32_t          i, id, given;
    kvr_added_t      *d;
    kvr_bytes_t       text;
    kvr_tokenizer_t  *t;

    t = l->t;
    memset(&text, 0, sizeof(kvr_bytes_t));

    if (!kvr_token_text(kvr_token_get(v, "content"), &text)
        || !kvr_token_u32(kvr_token_get(v, "id"), &given) || text.n == 0)
    {
        kvr_bytes_free(&text);
        return true;
    }

    d = &t->added[t->nadded];
    d->text = text.data;
    d->len = (uint32_t) text.n;
    t->nadded++;

    if (text.n > KVR_TOKEN_LONGEST) {
        return kvr_token_refuse(l, "an added token has %zu bytes, at most %u "
                                "are supported", text.n,
                                (unsigned) KVR_TOKEN_LONGEST);
    }

    id = kvr_token_id(names, text.data, text.n);

    for (i = 0; id == KVR_TOKEN_NONE && i + 1 < t->nadded; i++) {
        if (t->added[i].len == text.n
            && memcmp(t->added[i].text, text.data, text.n) == 0)
        {
            return kvr_token_refuse(l, "the added token \"%.*s\" is there "
                                    "twice", (int) text.n, text.data);
        }
    }

    if (id == KVR_TOKEN_NONE) {

        if (t->nadded > 1 && *largest >= *next) {
            *next = *largest + 1;
        }

        id = (*next)++;
    }

    if (id != given) {
        return kvr_token_refuse(l, "the added token \"%.*s\" has the id %u in "
                                "the file, and gets %u by the library",
                                (int) kvr_min(text.n, 60), text.data, given,
                                id);
    }

    *largest = kvr_max(*largest, id);

    d->id = id;
    d->special = kvr_token_yes(kvr_token_get(v, "special"), false);
    d->normalized = kvr_token_yes(kvr_token_get(v, "normalized"), !d->special);
    d->lstrip = kvr_token_yes(kvr_token_get(v, "lstrip"), false);
    d->rstrip = kvr_token_yes(kvr_token_get(v, "rstrip"), false);
    d->single_word = kvr_token_yes(kvr_token_get(v, "single_word"), false);

    return true;
}


/* Tokens that are looked for in normalized text are normalized, too. */

static bool
kvr_token_normalize_added(kvr_token_load_t *l)
{
    bool                    good;
    kvr_rc_t                rc;
    uint32_t                i;
    kvr_added_t            *d;
    kvr_bytes_t             out;
    kvr_matcher_t          *m;
    kvr_normalizer_work_t   work;

    if (l->t->normalizer.n == 0) {
        return true;
    }

    m = kvr_matcher_new();
    if (m == NULL) {
        return kvr_token_no_memory(l);
    }

    memset(&work, 0, sizeof(kvr_normalizer_work_t));
    good = true;

    for (i = 0; good && i < l->t->nadded; i++) {

        d = &l->t->added[i];

        if (!d->normalized) {
            continue;
        }

        memset(&out, 0, sizeof(kvr_bytes_t));
        rc = kvr_normalizer_apply(&l->t->normalizer, &work, m, d->text, 0,
                                  d->len, &out);

        if (rc == KVR_DECLINED) {
            kvr_bytes_free(&out);
            continue;
        }

        if (rc != KVR_OK || out.failed) {
            kvr_bytes_free(&out);
            good = kvr_token_refuse(l, "an added token can't be normalized");
            break;
        }

        free(d->text);
        d->text = out.data;
        d->len = (uint32_t) out.n;
    }

    kvr_normalizer_work_free(&work);
    kvr_matcher_free(m);

    return good;
}
