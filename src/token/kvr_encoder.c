/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_encoder_state.h"

#include "../wire/kvr_utf8.h"

#include <time.h>


#define KVR_ENCODER_KEPT     (2 << 20)  /* bytes of a buffer that is kept from
                                           text to text */

static void kvr_encoder_check(kvr_encoder_t *e);
static void kvr_encoder_find(kvr_encoder_t *e);
static void kvr_encoder_token(kvr_encoder_t *e);
static void kvr_encoder_end(kvr_encoder_t *e);


/* A part of the work, and how much it is, in pieces. */
typedef struct {
    void      (*go)(kvr_encoder_t *e);
    uint32_t    pieces;
} kvr_encoder_work_t;


static const kvr_encoder_work_t  kvr_encoder_works[KVR_ENCODER_NOTHING] = {
    [KVR_ENCODER_CHECK] = { kvr_encoder_check, KVR_ENCODER_PIECES },
    [KVR_ENCODER_FIND] = { kvr_encoder_find, KVR_ENCODER_PIECES / 4 },
    [KVR_ENCODER_NORMALIZE] = { kvr_encoder_normalize,
                                KVR_ENCODER_PIECES / 4 },
    [KVR_ENCODER_SECTION] = { kvr_encoder_section, 1 },
    [KVR_ENCODER_REPAIR] = { kvr_encoder_repair, 1 },
    [KVR_ENCODER_SPLIT] = { kvr_encoder_split, 1 },
    [KVR_ENCODER_MERGE] = { kvr_encoder_merge, KVR_ENCODER_PIECES },
    [KVR_ENCODER_TOKEN] = { kvr_encoder_token, 1 },
    [KVR_ENCODER_END] = { kvr_encoder_end, 1 }
};


static uint64_t
kvr_encoder_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}


kvr_encoder_t *
kvr_encoder_new(const kvr_tokenizer_t *t, kvr_pieces_t *pieces,
    const kvr_encoder_limits_t *limits)
{
    kvr_encoder_t  *e;

    e = calloc(1, sizeof(kvr_encoder_t));
    if (e == NULL) {
        return NULL;
    }

    e->t = t;
    e->pieces = pieces;
    e->limits.text = limits && limits->text ? limits->text : INT32_MAX;
    e->limits.piece = limits && limits->piece ? limits->piece
                                              : KVR_ENCODER_PIECE;
    e->matcher = kvr_matcher_new();
    e->merge = kvr_merge_new();

    if (e->matcher == NULL || e->merge == NULL) {
        kvr_encoder_free(e);
        return NULL;
    }

    return e;
}


void
kvr_encoder_free(kvr_encoder_t *e)
{
    if (e) {
        kvr_matcher_free(e->matcher);
        kvr_merge_free(e->merge);
        kvr_split_free(&e->split);
        kvr_normalizer_work_free(&e->work);
        kvr_bytes_free(&e->normalized);
        kvr_bytes_free(&e->repaired);
        kvr_bytes_free(&e->ids);
        kvr_bytes_free(&e->cuts);
        free(e);
    }
}


static void
kvr_encoder_trim(kvr_bytes_t *b)
{
    if (b->cap > KVR_ENCODER_KEPT || b->failed) {
        kvr_bytes_free(b);
    }

    b->n = 0;
}


kvr_encoder_rc_t
kvr_encoder_begin(kvr_encoder_t *e, const char *text, size_t len,
    uint32_t flags)
{
    return kvr_encoder_begin_at(e, text, len, 0, NULL, 0, flags);
}


kvr_encoder_rc_t
kvr_encoder_begin_at(kvr_encoder_t *e, const char *text, size_t len,
    size_t cut, const uint32_t *ids, size_t n, uint32_t flags)
{
    kvr_encoder_trim(&e->normalized);
    kvr_encoder_trim(&e->repaired);
    kvr_encoder_trim(&e->ids);
    kvr_encoder_trim(&e->cuts);
    kvr_encoder_trim(&e->work.work[0]);
    kvr_encoder_trim(&e->work.work[1]);
    kvr_encoder_trim(&e->work.repaired);

    e->text = text;
    e->len = len;
    e->flags = flags;
    e->checked = cut;
    e->at = cut;
    e->from = cut;
    e->rest = NULL;
    e->merge->failed = false;
    e->state = KVR_ENCODER_CHECK;
    e->rc = KVR_ENCODER_AGAIN;

    if (cut > len || len > e->limits.text) {
        kvr_encoder_fail(e, KVR_ENCODER_TOO_LONG);
        return e->rc;
    }

    if ((flags & KVR_ENCODER_ADD_SPECIAL) && cut == 0) {
        kvr_bytes_add(&e->ids, e->t->before,
                      e->t->nbefore * sizeof(uint32_t));
    }

    kvr_bytes_add(&e->ids, ids, n * sizeof(uint32_t));

    e->framed = e->ids.n / sizeof(uint32_t);

    return e->rc;
}


kvr_encoder_rc_t
kvr_encoder_step(kvr_encoder_t *e, uint64_t budget_ns)
{
    uint32_t                    units;
    uint64_t                    end;
    const kvr_encoder_work_t   *work;

    end = budget_ns ? kvr_encoder_now() + budget_ns : 0;
    units = 0;

    while (e->state != KVR_ENCODER_NOTHING) {

        work = &kvr_encoder_works[e->state];
        work->go(e);
        units += work->pieces;

        if (units >= KVR_ENCODER_PIECES) {
            units = 0;

            if (end && e->state != KVR_ENCODER_NOTHING
                && kvr_encoder_now() >= end)
            {
                return KVR_ENCODER_AGAIN;
            }
        }
    }

    return e->rc;
}


/* A part may end within a character, whose begin is then the next part's. */

static void
kvr_encoder_check(kvr_encoder_t *e)
{
    size_t  n, good;

    n = kvr_min(e->len - e->checked, 4 * KVR_ENCODER_PART);
    good = kvr_utf8_valid(e->text + e->checked, n);

    if (good < n && (n - good >= 4 || e->checked + n == e->len)) {
        kvr_encoder_fail(e, KVR_ENCODER_BAD_UTF8);
        return;
    }

    e->checked += good;

    if (e->checked == e->len) {
        e->state = KVR_ENCODER_FIND;
    }
}


static void
kvr_encoder_find(kvr_encoder_t *e)
{
    size_t              upto;
    int32_t             token;
    const kvr_added_t  *added;

    upto = kvr_min(e->from + KVR_ENCODER_PART, e->len);

    token = kvr_added_find(&e->t->raw, e->text, e->len, e->from, upto, &e->a,
                           &e->b);

    if (token == -1) {
        e->from = upto;

        if (upto < e->len) {
            return;
        }

        e->a = e->len;
        e->b = e->len;

    } else {
        added = &e->t->added[token];
        e->from = e->b;

        if (!kvr_added_accept(added, e->matcher, e->t->age, e->text, e->len,
                              e->at, &e->a, &e->b))
        {
            return;
        }
    }

    e->token = token;

    if (e->at >= e->a) {
        e->state = KVR_ENCODER_TOKEN;
        return;
    }

    e->raw_at = e->at;
    e->copied = false;
    e->normalized.n = 0;
    e->state = KVR_ENCODER_NORMALIZE;
}


static bool
kvr_encoder_is_cut(const kvr_added_t *token)
{
    return token->special && !token->lstrip && !token->rstrip
           && !token->single_word;
}


static void
kvr_encoder_token(kvr_encoder_t *e)
{
    kvr_encoder_cut_t   cut;
    const kvr_added_t  *token;

    if (e->token == -1) {
        e->state = KVR_ENCODER_END;
        return;
    }

    token = &e->t->added[e->token];
    kvr_bytes_add(&e->ids, &token->id, sizeof(uint32_t));
    e->at = e->b;

    if (kvr_encoder_is_cut(token)) {
        cut.byte = e->b;
        cut.ids = e->ids.n / sizeof(uint32_t) - e->framed;
        kvr_bytes_add(&e->cuts, &cut, sizeof(kvr_encoder_cut_t));
    }

    e->state = KVR_ENCODER_FIND;

    if (e->ids.failed || e->cuts.failed) {
        kvr_encoder_fail(e, KVR_ENCODER_MEMORY);
    }
}


static void
kvr_encoder_end(kvr_encoder_t *e)
{
    if (e->flags & KVR_ENCODER_ADD_SPECIAL) {
        kvr_bytes_add(&e->ids, e->t->behind,
                      e->t->nbehind * sizeof(uint32_t));
    }

    kvr_encoder_fail(e, e->ids.failed ? KVR_ENCODER_MEMORY : KVR_ENCODER_DONE);
}


const uint32_t *
kvr_encoder_ids(const kvr_encoder_t *e, size_t *n)
{
    *n = e->ids.n / sizeof(uint32_t);

    return (const uint32_t *) (const void *) e->ids.data;
}


const kvr_encoder_cut_t *
kvr_encoder_cuts(const kvr_encoder_t *e, size_t *n)
{
    *n = e->cuts.n / sizeof(kvr_encoder_cut_t);

    return (const kvr_encoder_cut_t *) (const void *) e->cuts.data;
}


bool
kvr_encoder_next_cut(kvr_encoder_t *e, const char *text, size_t len,
    size_t *at, size_t size)
{
    size_t   a, b, upto;
    int32_t  token;

    upto = kvr_min(len - *at, size) + *at;

    while (*at < upto) {
        token = kvr_added_find(&e->t->raw, text, len, *at, upto, &a, &b);

        if (token == -1) {
            *at = upto;
            return false;
        }

        *at = b;

        if (kvr_encoder_is_cut(&e->t->added[token])) {
            return true;
        }
    }

    return false;
}


const char *
kvr_encoder_error(kvr_encoder_rc_t rc)
{
    switch (rc) {

    case KVR_ENCODER_DONE:
        return "done";

    case KVR_ENCODER_AGAIN:
        return "not yet done";

    case KVR_ENCODER_BAD_UTF8:
        return "the text is not well-formed UTF-8";

    case KVR_ENCODER_REGEX:
        return "PCRE2 gave up on the text: too much stack, or too many steps";

    case KVR_ENCODER_MEMORY:
        return "no memory";

    case KVR_ENCODER_TOO_LONG:
        return "the text, or one piece of it without a break, is too long";
    }

    return "unknown";
}
