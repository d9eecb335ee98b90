/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_merge.h"

#include "kvr_unicode.h"


#define KVR_MERGE_KEPT       65536      /* ids for which memory is kept */


static bool kvr_merge_ids(kvr_merge_state_t *m, const kvr_vocabulary_t *v,
    uint32_t budget);
static void kvr_merge_short(kvr_merge_state_t *m, const kvr_vocabulary_t *v);
static bool kvr_merge_heap(kvr_merge_state_t *m, const kvr_vocabulary_t *v,
    uint32_t *budget);
static bool kvr_merge_long(kvr_merge_state_t *m, const kvr_vocabulary_t *v,
    uint32_t *budget);
static void kvr_merge_pair(kvr_merge_state_t *m, const kvr_vocabulary_t *v,
    uint32_t i);
static void kvr_merge_up(uint64_t *heap, uint32_t i);
static void kvr_merge_down(uint64_t *heap, uint32_t n, uint32_t i);


kvr_merge_state_t *
kvr_merge_new(void)
{
    return calloc(1, sizeof(kvr_merge_state_t));
}


void
kvr_merge_free(kvr_merge_state_t *m)
{
    if (m) {
        free(m->ids);
        free(m->symbols);
        free(m->heap);
        free(m);
    }
}


void
kvr_merge_begin(kvr_merge_state_t *m, const char *text, size_t len)
{
    m->text = text;
    m->len = len;
    m->at = 0;
    m->n = 0;
    m->unknown = false;
    m->heaped = false;
    m->nheap = 0;
    m->nsymbols = 0;

    if (m->cap > KVR_MERGE_KEPT && len < KVR_MERGE_KEPT) {
        free(m->ids);
        free(m->symbols);
        free(m->heap);
        m->ids = NULL;
        m->symbols = NULL;
        m->heap = NULL;
        m->cap = 0;
        m->long_cap = 0;
    }
}


static bool
kvr_merge_room(kvr_merge_state_t *m, size_t n)
{
    uint32_t  *ids;

    if (n <= m->cap) {
        return true;
    }

    ids = realloc(m->ids, (n + n / 2 + 64) * sizeof(uint32_t));
    if (ids == NULL) {
        m->failed = true;
        return false;
    }

    m->ids = ids;
    m->cap = (uint32_t) (n + n / 2 + 64);

    return true;
}


/* A merge leaves two pairs, and makes two that may come into the heap. */

static bool
kvr_merge_long_room(kvr_merge_state_t *m)
{
    uint32_t             n;
    uint64_t            *heap;
    kvr_merge_symbol_t  *symbols;

    n = m->n;

    if (n <= m->long_cap) {
        return true;
    }

    n += n / 2;

    symbols = realloc(m->symbols, n * sizeof(kvr_merge_symbol_t));
    if (symbols) {
        m->symbols = symbols;
    }

    heap = realloc(m->heap, 3 * (uint64_t) n * sizeof(uint64_t));
    if (heap) {
        m->heap = heap;
    }

    if (symbols == NULL || heap == NULL) {
        m->failed = true;
        return false;
    }

    m->long_cap = n;

    return true;
}


kvr_merge_rc_t
kvr_merge_run(kvr_merge_state_t *m, const kvr_vocabulary_t *v, uint32_t budget)
{
    uint32_t  i;

    if (m->at < m->len && !kvr_merge_ids(m, v, budget)) {
        return m->failed ? KVR_MERGE_DONE : KVR_MERGE_AGAIN;
    }

    if (m->n <= KVR_MERGE_SHORT && !m->heaped) {
        kvr_merge_short(m, v);
        return KVR_MERGE_DONE;
    }

    if (!m->heaped && m->nsymbols == 0 && !kvr_merge_long_room(m)) {
        return KVR_MERGE_DONE;
    }

    if ((!m->heaped && !kvr_merge_heap(m, v, &budget))
        || !kvr_merge_long(m, v, &budget))
    {
        return KVR_MERGE_AGAIN;
    }

    m->n = 0;

    for (i = 0; i != KVR_TOKEN_NONE; i = m->symbols[i].next) {
        m->ids[m->n++] = m->symbols[i].id;
    }

    return KVR_MERGE_DONE;
}


/* The ids of single characters, or bytes; false: there are more. */

static bool
kvr_merge_ids(kvr_merge_state_t *m, const kvr_vocabulary_t *v, uint32_t budget)
{
    size_t       end;
    uint32_t     i, n, id;
    const char  *p;

    end = m->len - m->at > 4 * (uint64_t) budget ? m->at + 4 * (size_t) budget
                                                 : m->len;

    /* a character has four bytes at most, and each may be an id of its own */

    if (!kvr_merge_room(m, m->n + (end - m->at) + 4)) {
        return false;
    }

    while (m->at < end) {

        p = m->text + m->at;
        n = 1;

        if (v->byte_level) {
            id = v->byte_ids[(uint8_t) *p];

        } else {
            (void) kvr_unicode_get(p, &n);
            id = kvr_vocabulary_find(v, p, n, XXH3_64bits(p, n));
        }

        m->at += n;

        if (id != KVR_TOKEN_NONE) {
            m->ids[m->n++] = id;
            m->unknown = false;
            continue;
        }

        if (v->byte_fallback) {
            for (i = 0; i < n; i++) {
                m->ids[m->n++] = v->byte_ids[(uint8_t) p[i]];
            }
            continue;
        }

        if (v->unknown == KVR_TOKEN_NONE) {
            continue;
        }

        if (!m->unknown || !v->fuse_unknown) {
            m->ids[m->n++] = v->unknown;
        }

        m->unknown = true;
    }

    return m->at == m->len;
}


static void
kvr_merge_short(kvr_merge_state_t *m, const kvr_vocabulary_t *v)
{
    uint32_t         n, i, at, least, *ids;
    uint32_t         ranks[KVR_MERGE_SHORT], to[KVR_MERGE_SHORT];
    const uint8_t   *p;
    kvr_merge_to_t   merge;

    n = m->n;
    ids = m->ids;
    p = (const uint8_t *) m->text;

    for (i = 0; i + 1 < n; i++) {
        merge = v->byte_level && n == m->len
                ? v->byte_pairs[p[i] << 8 | p[i + 1]]
                : kvr_vocabulary_merge(v, ids[i], ids[i + 1]);

        ranks[i] = merge.rank;
        to[i] = merge.id;
    }

    while (n > 1) {

        least = KVR_TOKEN_NONE;
        at = 0;

        for (i = 0; i + 1 < n; i++) {
            if (ranks[i] < least) {
                least = ranks[i];
                at = i;
            }
        }

        if (least == KVR_TOKEN_NONE) {
            break;
        }

        ids[at] = to[at];

        for (i = at + 1; i + 1 < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
            to[i - 1] = to[i];
        }

        n--;

        if (at + 1 < n) {
            merge = kvr_vocabulary_merge(v, ids[at], ids[at + 1]);
            ranks[at] = merge.rank;
            to[at] = merge.id;
        }

        if (at) {
            merge = kvr_vocabulary_merge(v, ids[at - 1], ids[at]);
            ranks[at - 1] = merge.rank;
            to[at - 1] = merge.id;
        }
    }

    m->n = n;
}


/* Links the ids, and puts their pairs into the heap; false: there are more. */

static bool
kvr_merge_heap(kvr_merge_state_t *m, const kvr_vocabulary_t *v,
    uint32_t *budget)
{
    uint32_t             i;
    kvr_merge_to_t       merge;
    kvr_merge_symbol_t  *s;

    for (i = m->nsymbols; i < m->n; i++) {

        if ((*budget)-- == 0) {
            *budget = 0;
            m->nsymbols = i;
            return false;
        }

        s = &m->symbols[i];
        s->id = m->ids[i];
        s->previous = i ? i - 1 : KVR_TOKEN_NONE;
        s->next = KVR_TOKEN_NONE;
        s->rank = KVR_TOKEN_NONE;

        if (i + 1 < m->n) {
            merge = kvr_vocabulary_merge(v, m->ids[i], m->ids[i + 1]);
            s->next = i + 1;
            s->rank = merge.rank;
            s->to = merge.id;
        }

        if (s->rank != KVR_TOKEN_NONE) {
            m->heap[m->nheap] = (uint64_t) s->rank << 32 | i;
            kvr_merge_up(m->heap, m->nheap++);
        }
    }

    m->nsymbols = m->n;
    m->heaped = true;

    return true;
}


/* An entry of the heap is out of date when its rank is not its symbol's. */

static bool
kvr_merge_long(kvr_merge_state_t *m, const kvr_vocabulary_t *v,
    uint32_t *budget)
{
    uint32_t             i;
    uint64_t             top;
    kvr_merge_symbol_t  *s, *right;

    while (m->nheap) {

        if ((*budget)-- == 0) {
            *budget = 0;
            return false;
        }

        top = m->heap[0];
        i = (uint32_t) top;
        s = &m->symbols[i];

        m->heap[0] = m->heap[--m->nheap];
        kvr_merge_down(m->heap, m->nheap, 0);

        if (s->rank != top >> 32) {
            continue;
        }

        right = &m->symbols[s->next];
        s->id = s->to;
        s->next = right->next;
        right->rank = KVR_TOKEN_NONE;

        if (right->next != KVR_TOKEN_NONE) {
            m->symbols[right->next].previous = i;
        }

        kvr_merge_pair(m, v, i);

        if (s->previous != KVR_TOKEN_NONE) {
            kvr_merge_pair(m, v, s->previous);
        }
    }

    return true;
}


static void
kvr_merge_pair(kvr_merge_state_t *m, const kvr_vocabulary_t *v, uint32_t i)
{
    kvr_merge_to_t       merge;
    kvr_merge_symbol_t  *s;

    s = &m->symbols[i];
    s->rank = KVR_TOKEN_NONE;

    if (s->next == KVR_TOKEN_NONE) {
        return;
    }

    merge = kvr_vocabulary_merge(v, s->id, m->symbols[s->next].id);
    s->rank = merge.rank;
    s->to = merge.id;

    if (s->rank != KVR_TOKEN_NONE) {
        m->heap[m->nheap] = (uint64_t) s->rank << 32 | i;
        kvr_merge_up(m->heap, m->nheap++);
    }
}


/* A heap of four children each: fewer levels than with two. */

static void
kvr_merge_up(uint64_t *heap, uint32_t i)
{
    uint32_t  parent;
    uint64_t  entry;

    entry = heap[i];

    while (i) {
        parent = (i - 1) / 4;

        if (heap[parent] <= entry) {
            break;
        }

        heap[i] = heap[parent];
        i = parent;
    }

    heap[i] = entry;
}


static void
kvr_merge_down(uint64_t *heap, uint32_t n, uint32_t i)
{
    uint32_t  child, end, least;
    uint64_t  entry;

    if (i >= n) {
        return;
    }

    entry = heap[i];

    for ( ;; ) {
        child = 4 * i + 1;

        if (child >= n) {
            break;
        }

        end = kvr_min(child + 4, n);
        least = child;

        for (child++; child < end; child++) {
            if (heap[child] < heap[least]) {
                least = child;
            }
        }

        if (heap[least] >= entry) {
            break;
        }

        heap[i] = heap[least];
        i = least;
    }

    heap[i] = entry;
}
