/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pieces of a part of a section: each becomes ids.
 */


#include "kvr_encoder_state.h"


static bool kvr_encoder_next(kvr_encoder_t *e);
static void kvr_encoder_divide(kvr_encoder_t *e);
static void kvr_encoder_piece(kvr_encoder_t *e);


/* One piece, or the end of the part. */

void
kvr_encoder_split(kvr_encoder_t *e)
{
    if (kvr_encoder_next(e)) {
        kvr_encoder_piece(e);
        return;
    }

    if (e->state == KVR_ENCODER_NOTHING) {
        return;
    }

    if (e->inner != -1) {
        kvr_bytes_add(&e->ids, &e->t->added[e->inner].id, sizeof(uint32_t));
    }

    e->section_at = e->inner_b;
    e->state = KVR_ENCODER_SECTION;
}


static bool
kvr_encoder_next(kvr_encoder_t *e)
{
    kvr_rc_t  rc;

    if (e->rest) {
        kvr_encoder_divide(e);
        return true;
    }

    if (e->t->splitter.n == 0) {

        if (e->part_taken || e->part_len == 0) {
            return false;
        }

        e->part_taken = true;
        e->piece = e->part;
        e->piece_len = e->part_len;

    } else {
        rc = kvr_split_next(&e->split, &e->t->splitter, e->matcher, &e->piece,
                            &e->piece_len);

        if (rc == KVR_DONE) {
            return false;
        }

        if (rc != KVR_OK) {
            kvr_encoder_fail(e, rc == KVR_FULL ? KVR_ENCODER_MEMORY
                                               : KVR_ENCODER_REGEX);
            return false;
        }
    }

    if (e->t->divides) {
        e->rest = e->piece;
        e->rest_end = e->piece + e->piece_len;
        kvr_encoder_divide(e);
    }

    return true;
}


/*
 * Between two characters that no token has side by side nothing ever merges:
 * the piece can be divided there.
 */

static void
kvr_encoder_divide(kvr_encoder_t *e)
{
    size_t    i, len;
    uint32_t  n, a, b;

    len = e->rest_end - e->rest;
    a = kvr_unicode_get(e->rest, &n);

    for (i = n; i < len; i += n) {

        b = kvr_unicode_get(e->rest + i, &n);

        if (!kvr_vocabulary_joins(&e->t->vocabulary, a, b)) {
            break;
        }

        a = b;
    }

    e->piece = e->rest;
    e->piece_len = i;
    e->rest = i < len ? e->rest + i : NULL;
}


static void
kvr_encoder_piece(kvr_encoder_t *e)
{
    uint32_t                 n, id;
    uint64_t                 hash;
    const kvr_vocabulary_t  *v;

    if (e->piece_len > e->limits.piece) {
        kvr_encoder_fail(e, KVR_ENCODER_TOO_LONG);
        return;
    }

    if (!kvr_bytes_room(&e->ids, KVR_PIECES_IDS * sizeof(uint32_t))) {
        kvr_encoder_fail(e, KVR_ENCODER_MEMORY);
        return;
    }

    v = &e->t->vocabulary;
    hash = XXH3_64bits(e->piece, e->piece_len);

    if (e->pieces) {
        n = kvr_pieces_find(e->pieces, e->piece, e->piece_len, hash,
                            (uint32_t *) (void *) (e->ids.data + e->ids.n));

        if (n) {
            e->ids.n += n * sizeof(uint32_t);
            return;
        }
    }

    if (e->piece_len <= v->longest) {
        id = kvr_vocabulary_find(v, e->piece, e->piece_len, hash);

        if (id != KVR_TOKEN_NONE
            && (v->ignore_merges || kvr_vocabulary_is_whole(v, id)))
        {
            kvr_bytes_add(&e->ids, &id, sizeof(uint32_t));

            if (e->pieces) {
                kvr_pieces_keep(e->pieces, e->piece, e->piece_len, hash, &id,
                                1);
            }

            return;
        }
    }

    e->piece_hash = hash;
    kvr_merge_begin(e->merge, e->piece, e->piece_len);

    kvr_encoder_merge(e);
}


void
kvr_encoder_merge(kvr_encoder_t *e)
{
    kvr_merge_rc_t      rc;
    kvr_merge_state_t  *m;

    m = e->merge;
    rc = kvr_merge_run(m, &e->t->vocabulary, KVR_ENCODER_MERGES);

    if (m->failed) {
        kvr_encoder_fail(e, KVR_ENCODER_MEMORY);
        return;
    }

    if (rc == KVR_MERGE_AGAIN) {
        e->state = KVR_ENCODER_MERGE;
        return;
    }

    kvr_bytes_add(&e->ids, m->ids, m->n * sizeof(uint32_t));

    if (e->ids.failed) {
        kvr_encoder_fail(e, KVR_ENCODER_MEMORY);
        return;
    }

    if (e->pieces && m->n) {
        kvr_pieces_keep(e->pieces, e->piece, e->piece_len, e->piece_hash,
                        m->ids, m->n);
    }

    e->state = KVR_ENCODER_SPLIT;
}
