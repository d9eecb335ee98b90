/*
 * Copyright (C) the nginx-kv-router authors
 */


#define _GNU_SOURCE                     /* memmem() */

#include "kvr_splitter.h"


static bool kvr_split_enter(kvr_split_t *s, const kvr_splitter_op_t *op,
    const char *text, const char *repaired, size_t len, bool first);
static void kvr_split_mark(const kvr_splitter_op_t *op, const char *text,
    size_t len, bool first, kvr_bytes_t *out);


void
kvr_splitter_free(kvr_splitter_t *s)
{
    uint32_t  i;

    for (i = 0; i < s->n; i++) {
        kvr_pattern_free(s->ops[i].pattern);
        kvr_bytes_free(&s->ops[i].literal);
    }

    s->n = 0;
}


void
kvr_split_free(kvr_split_t *s)
{
    uint32_t  i;

    for (i = 0; i < KVR_SPLITTER_OPS; i++) {
        kvr_bytes_free(&s->levels[i].own);
        kvr_bytes_free(&s->levels[i].own_repaired);
    }
}


bool
kvr_split_begin(kvr_split_t *s, const kvr_splitter_t *splitter,
    const char *text, const char *repaired, size_t len, bool first)
{
    s->depth = 0;
    s->first = first;

    return kvr_split_enter(s, &splitter->ops[0], text, repaired, len, first);
}


static bool
kvr_split_enter(kvr_split_t *s, const kvr_splitter_op_t *op, const char *text,
    const char *repaired, size_t len, bool first)
{
    kvr_split_level_t  *l;

    l = &s->levels[s->depth];

    if (op->kind != KVR_SPLITTER_SPLIT) {

        kvr_split_mark(op, text, len, first, &l->own);

        if (repaired != text) {
            kvr_split_mark(op, repaired, len, first, &l->own_repaired);
        }

        if (l->own.failed || l->own_repaired.failed) {
            return false;
        }

        repaired = repaired != text ? l->own_repaired.data : l->own.data;
        text = l->own.data ? l->own.data : "";
        len = l->own.n;
    }

    l->text = text;
    l->repaired = repaired;
    l->len = len;
    l->at = 0;
    l->found = false;
    l->peeked = false;

    s->depth++;

    return true;
}


static void
kvr_split_mark(const kvr_splitter_op_t *op, const char *text, size_t len,
    bool first, kvr_bytes_t *out)
{
    bool         marked;
    size_t       at;
    const char  *p;

    out->n = 0;

    if (op->kind == KVR_SPLITTER_PREFIX) {

        if (len == 0 || text[0] != ' ') {
            kvr_bytes_add(out, " ", 1);
        }

        kvr_bytes_add(out, text, len);
        return;
    }

    marked = len && (text[0] == ' '
                     || (len >= op->literal.n
                         && memcmp(text, op->literal.data, op->literal.n)
                            == 0));

    if (!marked && (op->scheme == KVR_SPLITTER_ALWAYS
                    || (op->scheme == KVR_SPLITTER_FIRST && first)))
    {
        kvr_bytes_add(out, op->literal.data, op->literal.n);
    }

    for (at = 0; at < len; at = p + 1 - text) {

        p = memchr(text + at, ' ', len - at);

        if (p == NULL) {
            kvr_bytes_add(out, text + at, len - at);
            break;
        }

        kvr_bytes_add(out, text + at, p - text - at);
        kvr_bytes_add(out, op->literal.data, op->literal.n);
    }
}


/* A match, or what is before the next one. */

static kvr_rc_t
kvr_split_part(kvr_split_level_t *l, const kvr_splitter_op_t *op,
    kvr_matcher_t *m, kvr_split_part_t *part)
{
    kvr_rc_t     rc;
    const char  *p;

    if (l->at >= l->len) {
        return KVR_DONE;
    }

    if (!l->found) {
        l->a = l->len;
        l->b = l->len;

        if (op->pattern) {
            rc = kvr_pattern_match(op->pattern, m, l->repaired, l->len, l->at,
                                   &l->a, &l->b);

            if (rc != KVR_OK && rc != KVR_DECLINED) {
                return rc;
            }

        } else if (op->literal.n && !op->joined) {
            p = memmem(l->text + l->at, l->len - l->at, op->literal.data,
                       op->literal.n);

            if (p) {
                l->a = p - l->text;
                l->b = l->a + op->literal.n;
            }
        }

        l->found = l->a < l->len;
    }

    part->a = l->at;

    if (l->at < l->a) {
        part->match = false;
        part->b = l->a;

    } else {
        part->match = true;
        part->b = l->b;
        l->found = false;
    }

    l->at = part->b;
    part->match = part->match != op->invert;

    return KVR_OK;
}


static kvr_rc_t
kvr_split_first(kvr_split_level_t *l, const kvr_splitter_op_t *op,
    kvr_matcher_t *m, kvr_split_part_t *part)
{
    if (l->peeked) {
        l->peeked = false;
        *part = l->peek;
        return KVR_OK;
    }

    return kvr_split_part(l, op, m, part);
}


static kvr_rc_t
kvr_split_joined(kvr_split_level_t *l, const kvr_splitter_op_t *op,
    kvr_matcher_t *m, kvr_split_part_t *part)
{
    kvr_rc_t          rc;
    kvr_split_part_t  next;

    switch (op->behaviour) {

    case KVR_SPLITTER_ISOLATED:
        return kvr_split_part(l, op, m, part);

    case KVR_SPLITTER_REMOVED:
        do {
            rc = kvr_split_part(l, op, m, part);
        } while (rc == KVR_OK && part->match);

        return rc;

    default:
        break;
    }

    rc = kvr_split_first(l, op, m, part);

    if (rc != KVR_OK) {
        return rc;
    }

    if (op->behaviour != KVR_SPLITTER_CONTIGUOUS
        && part->match != (op->behaviour == KVR_SPLITTER_NEXT))
    {
        return KVR_OK;
    }

    for ( ;; ) {
        rc = kvr_split_part(l, op, m, &next);

        if (rc != KVR_OK) {
            return rc == KVR_DONE ? KVR_OK : rc;
        }

        if (op->behaviour == KVR_SPLITTER_CONTIGUOUS
            ? next.match != part->match : next.match == part->match)
        {
            l->peek = next;
            l->peeked = true;
            return KVR_OK;
        }

        part->b = next.b;

        if (op->behaviour != KVR_SPLITTER_CONTIGUOUS) {
            return KVR_OK;
        }
    }
}


kvr_rc_t
kvr_split_next(kvr_split_t *s, const kvr_splitter_t *splitter,
    kvr_matcher_t *m, const char **piece, size_t *len)
{
    kvr_rc_t            rc;
    kvr_split_part_t    part;
    kvr_split_level_t  *l;

    while (s->depth) {

        l = &s->levels[s->depth - 1];

        rc = kvr_split_joined(l, &splitter->ops[s->depth - 1], m, &part);

        if (rc == KVR_DONE) {
            s->depth--;
            continue;
        }

        if (rc != KVR_OK) {
            return rc;
        }

        if (part.a == part.b) {
            continue;
        }

        if (s->depth == splitter->n) {
            *piece = l->text + part.a;
            *len = part.b - part.a;
            return KVR_OK;
        }

        if (!kvr_split_enter(s, &splitter->ops[s->depth], l->text + part.a,
                             l->repaired + part.a, part.b - part.a,
                             s->first && part.a == 0))
        {
            return KVR_FULL;
        }
    }

    return KVR_DONE;
}
