/*
 * Copyright (C) the nginx-kv-router authors
 */


#define _GNU_SOURCE                     /* memmem() */

#include "kvr_normalizer.h"


static kvr_rc_t kvr_normalizer_replace(const kvr_normalizer_op_t *op,
    kvr_unicode_age_t age, kvr_bytes_t *repaired, kvr_matcher_t *m,
    const char *text, size_t len, kvr_bytes_t *out);
static void kvr_normalizer_strip(const kvr_normalizer_op_t *op,
    const char **text, size_t *len);


void
kvr_normalizer_free(kvr_normalizer_t *n)
{
    uint32_t  i;

    for (i = 0; i < n->n; i++) {
        kvr_pattern_free(n->ops[i].pattern);
        kvr_bytes_free(&n->ops[i].from);
        kvr_bytes_free(&n->ops[i].to);
    }

    n->n = 0;
}


void
kvr_normalizer_work_free(kvr_normalizer_work_t *w)
{
    kvr_bytes_free(&w->work[0]);
    kvr_bytes_free(&w->work[1]);
    kvr_bytes_free(&w->repaired);
}


/*
 * Can a section be normalized in parts?  A normal form looks at neighbours, so
 * that it must be the first operation: the cuts are chosen for it.  A text
 * that is replaced must be one character, which no cut divides.
 */

static bool
kvr_normalizer_divides(const kvr_normalizer_t *n)
{
    uint32_t                    i, len;
    const kvr_normalizer_op_t  *op;

    for (i = 0; i < n->n; i++) {
        op = &n->ops[i];

        switch (op->kind) {

        case KVR_NORMALIZER_FORM:
            if (i) {
                return false;
            }
            break;

        case KVR_NORMALIZER_REPLACE:
            if (op->pattern) {
                return false;
            }

            (void) kvr_unicode_get(op->from.data, &len);

            if (len != op->from.n) {
                return false;
            }
            break;

        case KVR_NORMALIZER_STRIP:
            return false;

        default:
            break;
        }
    }

    return true;
}


size_t
kvr_normalizer_part(const kvr_normalizer_t *n, const char *text, size_t len,
    size_t at, size_t size)
{
    bool      form;
    uint32_t  c, k;

    if (len - at <= size || !kvr_normalizer_divides(n)) {
        return len;
    }

    form = n->n && n->ops[0].kind == KVR_NORMALIZER_FORM;

    /* the first start of a character behind the size */

    at += size;

    while (at < len && ((uint8_t) text[at] & 0xc0) == 0x80) {
        at++;
    }

    while (at < len) {
        c = kvr_unicode_get(text + at, &k);

        if (!form || kvr_unicode_starts(n->ops[0].form, c)) {
            break;
        }

        at += k;
    }

    return at;
}


kvr_rc_t
kvr_normalizer_apply(const kvr_normalizer_t *n, kvr_normalizer_work_t *w,
    kvr_matcher_t *m, const char *text, size_t at, size_t end,
    kvr_bytes_t *out)
{
    bool                        changed;
    size_t                      len;
    uint32_t                    i;
    const char                 *p;
    kvr_bytes_t                *to;
    const kvr_normalizer_op_t  *op;

    p = text + at;
    len = end - at;
    changed = false;

    for (i = 0; i < n->n; i++) {

        op = &n->ops[i];
        to = &w->work[i & 1];
        to->n = 0;

        switch (op->kind) {

        case KVR_NORMALIZER_FORM:
            if (kvr_unicode_quick(op->form, p, len)) {
                /* the other array has the text: leave it there */
                if (changed) {
                    kvr_bytes_add(to, p, len);
                    break;
                }
                continue;
            }

            kvr_unicode_normalize(op->form, p, len, to);
            break;

        case KVR_NORMALIZER_LOWER:
            kvr_unicode_lower(p, len, to);
            break;

        case KVR_NORMALIZER_STRIP:
            kvr_normalizer_strip(op, &p, &len);
            kvr_bytes_add(to, p, len);
            break;

        case KVR_NORMALIZER_PREPEND:
            if (at == 0 && len) {
                kvr_bytes_add(to, op->to.data, op->to.n);
            }

            kvr_bytes_add(to, p, len);
            break;

        case KVR_NORMALIZER_REPLACE:
            if (kvr_normalizer_replace(op, n->age, &w->repaired, m, p, len, to)
                != KVR_OK)
            {
                return KVR_ERROR;
            }
            break;
        }

        if (to->failed) {
            out->failed = true;
            return KVR_OK;
        }

        p = to->data ? to->data : "";
        len = to->n;
        changed = true;
    }

    if (!changed) {
        return KVR_DECLINED;
    }

    kvr_bytes_add(out, p, len);

    return KVR_OK;
}


static void
kvr_normalizer_strip(const kvr_normalizer_op_t *op, const char **text,
    size_t *len)
{
    size_t    a, b, at;
    uint32_t  n;

    a = 0;
    b = *len;

    while (op->left && a < b
           && kvr_unicode_white(kvr_unicode_get(*text + a, &n)))
    {
        a += n;
    }

    while (op->right && b > a) {
        at = kvr_unicode_before(*text, b);

        if (!kvr_unicode_white(kvr_unicode_get(*text + at, &n))) {
            break;
        }

        b = at;
    }

    *text += a;
    *len = b - a;
}


static kvr_rc_t
kvr_normalizer_replace(const kvr_normalizer_op_t *op, kvr_unicode_age_t age,
    kvr_bytes_t *repaired, kvr_matcher_t *m, const char *text, size_t len,
    kvr_bytes_t *out)
{
    size_t       at, a, b;
    kvr_rc_t     rc;
    const char  *p;

    at = 0;

    if (op->pattern) {
        repaired->n = 0;
        kvr_bytes_add(repaired, text, len);

        if (repaired->failed) {
            out->failed = true;
            return KVR_OK;
        }

        if (len) {
            kvr_unicode_repair(age, repaired->data, 0, len);
        }

        while (at < len) {
            rc = kvr_pattern_match(op->pattern, m, repaired->data, len, at,
                                   &a, &b);

            if (rc == KVR_DECLINED) {
                break;
            }

            if (rc != KVR_OK) {
                return rc;
            }

            kvr_bytes_add(out, text + at, a - at);
            kvr_bytes_add(out, op->to.data, op->to.n);
            at = b;
        }

    } else {
        for ( ;; ) {
            p = memmem(text + at, len - at, op->from.data, op->from.n);

            if (p == NULL) {
                break;
            }

            kvr_bytes_add(out, text + at, p - text - at);
            kvr_bytes_add(out, op->to.data, op->to.n);
            at = p - text + op->from.n;
        }
    }

    kvr_bytes_add(out, text + at, len - at);

    return KVR_OK;
}
