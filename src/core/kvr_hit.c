/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_hit.h"


#define KVR_HIT_NONE  UINT32_MAX


static uint32_t kvr_hit_class(const kvr_class_t *c, const uint64_t *row,
    uint32_t n, const kvr_hit_rule_t *rule);
static uint32_t kvr_hit_last(const uint64_t *row, uint64_t flip, uint32_t from,
    uint32_t to);


/*
 * A class that accepts less than n makes n smaller, and the classes before it
 * are asked again.  n only falls, and each fall passes a row of blocks that a
 * class does not hold.
 */

uint32_t
kvr_hit(const kvr_class_t *classes, uint32_t nclasses,
    const uint64_t *const rows[KVR_CLASSES_MAX], uint32_t span, uint32_t full,
    uint32_t limit, const kvr_hit_rule_t *rule)
{
    uint32_t  i, n, had, asked;

    if (nclasses) {
        span = classes[0].span;
    }

    n = kvr_min(full, limit);
    n -= n % span;

    if (rule->drop) {
        n -= kvr_min(n, span);
    }

    asked = 0;

    for (i = 0; n && asked < nclasses; i = (i + 1) % nclasses) {

        had = n;
        n = kvr_hit_class(&classes[i], rows[i], n, rule);
        asked = n == had ? asked + 1 : 1;
    }

    return n;
}


/* The largest number, at most n, which the class accepts. */

static uint32_t
kvr_hit_class(const kvr_class_t *c, const uint64_t *row, uint32_t n,
    const kvr_hit_rule_t *rule)
{
    uint32_t  s, from, more, zero, one, chunk;
    uint64_t  window;

    s = c->span;
    window = (uint64_t) c->window * s;
    chunk = c->kind == KVR_GROUP_CHUNKED && rule->chunk % s == 0
            ? rule->chunk : 0;
    more = rule->drop && (c->kind == KVR_GROUP_INDEXED
                          || c->kind == KVR_GROUP_WINDOW) ? s : 0;

    for (n -= n % s; n; n -= n % s) {

        switch (c->kind) {

        case KVR_GROUP_WINDOW:
            from = n - (uint32_t) kvr_min(n, window);
            break;

        case KVR_GROUP_MAMBA:
            from = n - s;
            break;

        case KVR_GROUP_CHUNKED:
            from = chunk ? n - n % chunk : n;
            break;

        default: /* KVR_GROUP_INDEXED */
            from = 0;
            break;
        }

        zero = kvr_hit_last(row, UINT64_MAX, from, n + more);

        if (zero == KVR_HIT_NONE) {
            break;
        }

        /*
         * No number is accepted whose last block is in this row of blocks that
         * are not held; a chunk's start needs no block.
         */

        one = kvr_hit_last(row, 0, 0, zero);
        n = one == KVR_HIT_NONE ? 0 : one + 1;
        n -= n % s;
        n -= kvr_min(n, more);

        if (chunk) {
            n = kvr_max(n, zero - zero % chunk);
        }
    }

    return n;
}


/*
 * The last of the bits [from, to) that is set in row ^ flip; KVR_HIT_NONE:
 * there is none.
 */

static uint32_t
kvr_hit_last(const uint64_t *row, uint64_t flip, uint32_t from, uint32_t to)
{
    uint64_t  word;

    while (to > from) {

        word = row[(to - 1) / 64] ^ flip;
        word &= UINT64_MAX >> (63 - (to - 1) % 64);
        to = (to - 1) & ~63u;

        if (word) {
            to += 63 - (uint32_t) __builtin_clzll(word);
            return to >= from ? to : KVR_HIT_NONE;
        }
    }

    return KVR_HIT_NONE;
}
