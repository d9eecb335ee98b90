/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of the arena, for kvr_radix_check() and the tests.
 */


#include "kvr_check.h"


typedef struct {
    const kvr_arena_t  *a;
    uint64_t            used;           /* words in slots that are taken */
    uint64_t            chunks;         /* in use */
    uint64_t            roomy;          /* of these, with room */
    void              (*nobodys)(void *data, uint32_t piece, uint32_t words);
    void               *data;
} kvr_arena_check_t;


static const char *kvr_arena_check_chunk(kvr_arena_check_t *k, uint32_t chunk);
static const char *kvr_arena_check_span(kvr_arena_check_t *k, uint32_t chunk);
static const char *kvr_arena_check_lists(kvr_arena_check_t *k);
static const char *kvr_arena_check_limbo(kvr_arena_check_t *k);
static bool kvr_arena_check_taken(const kvr_arena_t *a, uint32_t chunk);


const char *
kvr_arena_check(const kvr_arena_t *a,
    void (*nobodys)(void *data, uint32_t piece, uint32_t words), void *data)
{
    uint32_t                 chunk;
    const char              *why;
    kvr_arena_check_t        k;
    const kvr_arena_zone_t  *z;

    z = a->zone;

    if (z->epoch & 1) {
        return "its epoch is odd";
    }

    if (z->bump > z->limit || z->bump % KVR_ARENA_CHUNK) {
        return "its bump is not where it can be";
    }

    memset(&k, 0, sizeof(kvr_arena_check_t));

    k.a = a;
    k.nobodys = nobodys;
    k.data = data;

    for (chunk = z->first; chunk < z->nchunks; chunk++) {

        if (kvr_arena_check_taken(a, chunk)) {

            if (chunk >= z->bump / KVR_ARENA_CHUNK) {
                return "a chunk behind the bump is in use";
            }

            why = kvr_arena_check_chunk(&k, chunk);

            if (why) {
                return why;
            }

            if (a->chunks[chunk].class == KVR_ARENA_SPAN) {
                chunk += a->chunks[chunk].span - 1;
            }

        } else {

            if (chunk < z->low) {
                return "a free chunk is below the lowest";
            }

            if (!kvr_arena_is_empty(&a->chunks[chunk])) {
                return "a free chunk has pieces";
            }

            if (chunk < z->bump / KVR_ARENA_CHUNK) {
                nobodys(data, chunk * KVR_ARENA_CHUNK, KVR_ARENA_CHUNK);
            }
        }
    }

    if (k.chunks != z->chunks) {
        return "the chunks in use are not as many as counted";
    }

    why = kvr_arena_check_lists(&k);

    if (why == NULL) {
        why = kvr_arena_check_limbo(&k);
    }

    if (why == NULL && k.used != z->used) {
        return "the words in use are not as many as counted";
    }

    return why;
}


static bool
kvr_arena_check_taken(const kvr_arena_t *a, uint32_t chunk)
{
    return a->map[chunk / 64] >> (chunk & 63) & 1;
}


static const char *
kvr_arena_check_chunk(kvr_arena_check_t *k, uint32_t chunk)
{
    uint32_t                  i;
    const kvr_arena_chunk_t  *r;
    const kvr_arena_class_t  *class;

    r = &k->a->chunks[chunk];
    k->chunks++;

    if (r->class == KVR_ARENA_SPAN) {
        return kvr_arena_check_span(k, chunk);
    }

    if (r->class == 0 || r->class > KVR_ARENA_SPAN) {
        return "a chunk has no class";
    }

    class = &kvr_arena_classes[r->class];

    if ((r->taken[0] & ~class->full[0]) || (r->taken[1] & ~class->full[1])) {
        return "a chunk has more pieces than slots";
    }

    for (i = 0; i < class->slots; i++) {

        if (r->taken[i / 64] >> (i & 63) & 1) {
            k->used += class->words;

        } else {
            k->nobodys(k->data, chunk * KVR_ARENA_CHUNK + i * class->words,
                       class->words);
        }
    }

    k->roomy += !kvr_arena_is_full(r, class);

    return NULL;
}


static const char *
kvr_arena_check_span(kvr_arena_check_t *k, uint32_t chunk)
{
    uint32_t                  i;
    const kvr_arena_chunk_t  *r;

    r = &k->a->chunks[chunk];

    if (r->span < 2 || r->span > KVR_ARENA_WORDS_MAX / KVR_ARENA_CHUNK
        || chunk + r->span > k->a->zone->nchunks)
    {
        return "a span has a size that can't be";
    }

    for (i = 0; i < r->span; i++) {

        if (!kvr_arena_check_taken(k->a, chunk + i)) {
            return "a span has a free chunk";
        }

        if (!kvr_arena_is_empty(&k->a->chunks[chunk + i])) {
            return "a span has pieces in it";
        }
    }

    k->chunks += r->span - 1;
    k->used += r->span * KVR_ARENA_CHUNK;

    return NULL;
}


/* Who has room is in its class's list; one without pieces is alone there. */

static const char *
kvr_arena_check_lists(kvr_arena_check_t *k)
{
    uint32_t                  c, chunk, prev;
    uint64_t                  n;
    const kvr_arena_chunk_t  *r;
    const kvr_arena_zone_t   *z;

    z = k->a->zone;
    n = 0;

    for (c = 1; c < KVR_ARENA_SPAN; c++) {

        prev = 0;

        for (chunk = z->room[c]; chunk; chunk = r->next) {

            if (chunk < z->first || chunk >= z->nchunks
                || !kvr_arena_check_taken(k->a, chunk) || n++ == k->roomy)
            {
                return "a list goes astray";
            }

            r = &k->a->chunks[chunk];

            if (r->class != c || (prev && r->prev != prev)
                || kvr_arena_is_full(r, &kvr_arena_classes[c]))
            {
                return "a list has a chunk that is not its";
            }

            if (kvr_arena_is_empty(r) && (prev || r->next)) {
                return "a chunk without pieces is not alone in its list";
            }

            prev = chunk;
        }
    }

    return n == k->roomy ? NULL : "a chunk with room is in no list";
}


/* Places in limbo are taken, and not used any more. */

static const char *
kvr_arena_check_limbo(kvr_arena_check_t *k)
{
    uint32_t                  i, piece, slot, words;
    const kvr_arena_chunk_t  *r;
    const kvr_arena_zone_t   *z;

    z = k->a->zone;

    if (z->nlimbo > KVR_ARENA_LIMBO) {
        return "its limbo is too long";
    }

    for (i = 0; i < z->nlimbo; i++) {

        piece = z->limbo[i];

        if (piece / KVR_ARENA_CHUNK < z->first || piece >= z->bump
            || !kvr_arena_check_taken(k->a, piece / KVR_ARENA_CHUNK))
        {
            return "a piece in limbo is outside";
        }

        r = &k->a->chunks[piece / KVR_ARENA_CHUNK];
        words = r->span * KVR_ARENA_CHUNK;
        slot = 0;

        if (r->class != KVR_ARENA_SPAN) {
            words = kvr_arena_classes[r->class].words;
            slot = piece % KVR_ARENA_CHUNK / words;

            if ((r->taken[slot / 64] >> (slot & 63) & 1) == 0) {
                return "a piece in limbo is free";
            }
        }

        if (piece % KVR_ARENA_CHUNK != slot * words) {
            return "a piece in limbo is none";
        }

        k->used -= words;
        k->nobodys(k->data, piece, words);
    }

    return NULL;
}
