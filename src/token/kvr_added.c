/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_added.h"


static void kvr_added_node(kvr_added_trie_t *t, const kvr_added_t *tokens,
    const kvr_added_t **sorted, uint32_t n, uint32_t depth);


static int
kvr_added_compare(const void *one, const void *two)
{
    int                 rc;
    const kvr_added_t  *a, *b;

    a = *(const kvr_added_t *const *) one;
    b = *(const kvr_added_t *const *) two;

    rc = memcmp(a->text, b->text, kvr_min(a->len, b->len));

    return rc ? rc : (a->len > b->len) - (a->len < b->len);
}


/* A trie has no more nodes than its tokens have bytes, and the root. */

bool
kvr_added_build(kvr_added_trie_t *t, const kvr_added_t *tokens, uint32_t n,
    bool normalized)
{
    size_t               bytes;
    uint8_t              a;
    uint32_t             i, k, byte;
    const kvr_added_t  **sorted;

    memset(t, 0, sizeof(kvr_added_trie_t));

    sorted = malloc((n + 1) * sizeof(kvr_added_t *));
    if (sorted == NULL) {
        return false;
    }

    bytes = 1;

    for (i = 0, k = 0; i < n; i++) {
        if (tokens[i].normalized == normalized && tokens[i].len) {
            sorted[k++] = &tokens[i];
            bytes += tokens[i].len;
        }
    }

    if (k == 0) {
        free(sorted);
        return true;
    }

    t->nodes = malloc(bytes * sizeof(kvr_added_node_t));
    t->edges = malloc(bytes * sizeof(kvr_added_edge_t));

    if (t->nodes == NULL || t->edges == NULL) {
        free(sorted);
        kvr_added_free(t);
        return false;
    }

    for (i = 0; i < k; i++) {
        a = (uint8_t) sorted[i]->text[0];

        t->nfirst += !t->first[a];
        t->first[a] = 1;
        t->only = a;

        for (byte = 0; byte < 256; byte++) {
            if (sorted[i]->len == 1 || (uint8_t) sorted[i]->text[1] == byte) {
                t->two[(a << 8 | byte) / 8] |= 1 << byte % 8;
            }
        }
    }

    qsort(sorted, k, sizeof(kvr_added_t *), kvr_added_compare);

    for (i = 1; i < k; i++) {
        if (kvr_added_compare(&sorted[i - 1], &sorted[i]) == 0) {
            t->twin = sorted[i];
        }
    }

    kvr_added_node(t, tokens, sorted, k, 0);
    free(sorted);

    return true;
}


void
kvr_added_free(kvr_added_trie_t *t)
{
    free(t->nodes);
    free(t->edges);
    memset(t, 0, sizeof(kvr_added_trie_t));
}


/* The node of tokens that agree in their first `depth` bytes. */

static void
kvr_added_node(kvr_added_trie_t *t, const kvr_added_t *tokens,
    const kvr_added_t **sorted, uint32_t n, uint32_t depth)
{
    uint32_t           i, j, edge;
    kvr_added_node_t  *node;

    node = &t->nodes[t->nnodes++];
    node->token = -1;
    node->edges = t->nedges;
    node->nedges = 0;

    while (n && sorted[0]->len == depth) {
        node->token = (int32_t) (sorted[0] - tokens);
        sorted++;
        n--;
    }

    for (i = 0; i < n; i++) {
        node->nedges += i == 0 || sorted[i]->text[depth]
                                  != sorted[i - 1]->text[depth];
    }

    edge = t->nedges;
    t->nedges += node->nedges;

    for (i = 0; i < n; i = j) {

        for (j = i; j < n && sorted[j]->text[depth] == sorted[i]->text[depth];
             j++)
        {
            /* void */
        }

        t->edges[edge].byte = (uint8_t) sorted[i]->text[depth];
        t->edges[edge].to = t->nnodes;
        edge++;

        kvr_added_node(t, tokens, sorted + i, j - i, depth + 1);
    }
}


int32_t
kvr_added_find(const kvr_added_trie_t *t, const char *text, size_t len,
    size_t from, size_t upto, size_t *a, size_t *b)
{
    size_t                   i, at;
    int32_t                  best;
    uint32_t                 low, high, middle, pair;
    const uint8_t           *p;
    const kvr_added_node_t  *node;

    if (t->nnodes == 0) {
        return -1;
    }

    p = (const uint8_t *) text;

    for (i = from; i < upto; i++) {

        if (t->nfirst == 1) {
            p = memchr(text + i, t->only, upto - i);

            if (p == NULL) {
                return -1;
            }

            i = p - (const uint8_t *) text;
            p = (const uint8_t *) text;

        } else {
            while (i < upto && !t->first[p[i]]) {
                i++;
            }

            if (i >= upto) {
                return -1;
            }
        }

        pair = (uint32_t) p[i] << 8 | (i + 1 < len ? p[i + 1] : 0);

        if (!(t->two[pair / 8] >> pair % 8 & 1)) {
            continue;
        }

        node = &t->nodes[0];
        best = -1;

        for (at = i; /* void */ ; at++) {

            if (node->token >= 0) {
                best = node->token;
                *b = at;
            }

            if (at == len) {
                break;
            }

            low = node->edges;
            high = node->edges + node->nedges;

            while (low < high) {
                middle = (low + high) / 2;

                if (t->edges[middle].byte < p[at]) {
                    low = middle + 1;

                } else {
                    high = middle;
                }
            }

            if (low == node->edges + node->nedges
                || t->edges[low].byte != p[at])
            {
                break;
            }

            node = &t->nodes[t->edges[low].to];
        }

        if (best >= 0) {
            *a = i;
            return best;
        }
    }

    return -1;
}


bool
kvr_added_accept(const kvr_added_t *token, kvr_matcher_t *m,
    kvr_unicode_age_t age, const char *text, size_t len, size_t start,
    size_t *a, size_t *b)
{
    size_t    at;
    uint32_t  n;

    if (token->single_word) {

        if (*a && kvr_pattern_word(m, age, kvr_unicode_get(
                                   text + kvr_unicode_before(text, *a), &n)))
        {
            return false;
        }

        if (*b < len
            && kvr_pattern_word(m, age, kvr_unicode_get(text + *b, &n)))
        {
            return false;
        }
    }

    if (token->lstrip) {

        while (*a) {
            at = kvr_unicode_before(text, *a);

            if (!kvr_unicode_white(kvr_unicode_get(text + at, &n))) {
                break;
            }

            *a = at;
        }

        *a = kvr_max(*a, start);
    }

    if (token->rstrip) {
        while (*b < len && kvr_unicode_white(kvr_unicode_get(text + *b, &n))) {
            *b += n;
        }
    }

    return true;
}
