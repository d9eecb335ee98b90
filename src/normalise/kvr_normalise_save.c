/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Saves and loads the normaliser's memory of a worker.
 *
 * A part is msgpack: ["kve4", rank, groups, blocks], the last two bin, of
 * records whose numbers are little-endian:
 *
 *     group    number (4), kind (1), the size of its largest block (4), window
 *              (4), class (1; 255: none, see kvr_group_class.c)
 *     block    handle (8), parent (8), path (8), seed (8), copies by tier
 *              (2 each), k (2), flags (1), why (1), and k local hashes (8
 *              each)
 *
 * A block of a group with a class has the group's place, from 1, in the upper
 * five flags.
 *
 * Blocks come oldest first.  An indexed block of a plain chain with one copy
 * is left out, because the index's own snapshot contains all of it.  In the
 * index's snapshot a span is as many separate blocks.
 */


#include "kvr_normalise_op.h"
#include "../wire/kvr_msgpack.h"

#include <stdlib.h>


#define KVR_SAVE_TAG         "kve4"
#define KVR_SAVE_GROUP       14         /* bytes */
#define KVR_SAVE_NO_CLASS    255
#define KVR_SAVE_BLOCK       44         /* without local hashes */
#define KVR_SAVE_FRAME       64         /* of a part, at most, and its groups
                                           apart */

#define KVR_SAVE_HAS_PARENT  0x01
#define KVR_SAVE_NOT_INDEXED 0x02
#define KVR_SAVE_PLACE       3          /* bits before the group's place */


typedef struct {
    kvr_normalise_op_t  op;
    kvr_rc_t          (*put)(void *data, const void *part, size_t size);
    void               *data;
    char               *part;
    char               *blocks;         /* records of the next part */
    size_t              size;
    bool                groups_saved;
} kvr_save_t;


static kvr_rc_t kvr_save_list(kvr_save_t *s, const kvr_known_list_t *list);
static kvr_rc_t kvr_save_block(kvr_save_t *s, const kvr_known_block_t *b,
    uint32_t place);
static kvr_rc_t kvr_save_flush(kvr_save_t *s);
static size_t kvr_save_token(char *out, mpack_token_t token);
static kvr_rc_t kvr_load_part(kvr_normalise_op_t *op, const void *part,
    size_t size);
static bool kvr_load_sound(const kvr_msgpack_item_t *groups,
    const kvr_msgpack_item_t *blocks);
static bool kvr_load_sound_group(const char *p);
static void kvr_load_group(kvr_normalise_op_t *op, const char *p);
static void kvr_load_block(kvr_normalise_op_t *op, const char *p);
static void kvr_load_class_block(kvr_normalise_op_t *op, const char *p,
    uint32_t place);
static void kvr_save_number(char *p, uint64_t n, uint32_t bytes);
static uint64_t kvr_load_number(const char *p, uint32_t bytes);


/* ---- save --------------------------------------------------------------- */

kvr_rc_t
kvr_normalise_save(kvr_normaliser_t *e, const char *worker, size_t len,
    kvr_rc_t (*put)(void *data, const void *part, size_t size), void *data)
{
    uint32_t    h;
    kvr_rc_t    rc;
    kvr_save_t  s;

    memset(&s, 0, sizeof(kvr_save_t));

    s.put = put;
    s.data = data;
    s.part = malloc(KVR_NORMALISE_PART);
    s.blocks = malloc(KVR_NORMALISE_PART);

    if (s.part == NULL || s.blocks == NULL) {
        rc = KVR_ERROR;
        goto done;
    }

    rc = kvr_normalise_enter(&s.op, e, worker, len);
    if (rc != KVR_OK) {
        goto done;
    }

    for (h = s.op.k->fleet.workers[s.op.worker].first_holder;
         rc == KVR_OK && h != KVR_HOLDER_NONE;
         h = s.op.k->fleet.holders[h].next)
    {
        rc = kvr_normalise_op(&s.op, s.op.k->fleet.holders[h].rank);

        if (rc == KVR_OK) {
            s.groups_saved = s.op.h->ngroups == 0;
            rc = kvr_save_list(&s, &s.op.h->live);
        }

        if (rc == KVR_OK) {
            rc = kvr_save_list(&s, &e->blocks.gone);
        }

        if (rc == KVR_OK) {
            rc = kvr_save_list(&s, &e->blocks.filtered);
        }

        if (rc == KVR_OK && (s.size || !s.groups_saved)) {
            rc = kvr_save_flush(&s);
        }
    }

    kvr_shard_unlock(s.op.k);

done:

    free(s.part);
    free(s.blocks);

    return rc;
}


static kvr_rc_t
kvr_save_list(kvr_save_t *s, const kvr_known_list_t *list)
{
    uint32_t                  i, k;
    kvr_rc_t                  rc;
    const kvr_known_block_t  *b;

    rc = KVR_OK;

    for (i = list->first; i && rc == KVR_OK; i = b->next) {
        b = &s->op.e->blocks.blocks[i];

        if (b->owner == s->op.h->owner) {
            rc = kvr_save_block(s, b, 0);
            continue;
        }

        for (k = 0; k < s->op.h->ngroups; k++) {
            if (b->owner == s->op.h->groups[k].owner) {
                rc = kvr_save_block(s, b, k + 1);
                break;
            }
        }
    }

    return rc;
}


/* place: that of the block's group, from 1; 0: it is the naming group's. */

static kvr_rc_t
kvr_save_block(kvr_save_t *s, const kvr_known_block_t *b, uint32_t place)
{
    char      *p;
    size_t     size;
    uint32_t   i, max;
    kvr_rc_t   rc;

    max = 0;

    for (i = 0; i < KVR_TIERS; i++) {
        max = kvr_max(max, b->copies[i]);
    }

    if (place == 0
        && b->state == KVR_KNOWN_LIVE && max <= 1 && b->k <= 1
        && !b->not_indexed
        && (b->seed == 0 || b->seed == KVR_HASH_SEED))
    {
        return KVR_OK;
    }

    size = KVR_SAVE_BLOCK + b->k * sizeof(uint64_t);

    if (s->size + size > KVR_NORMALISE_PART - KVR_SAVE_FRAME
                         - KVR_NORMALISE_GROUPS * KVR_SAVE_GROUP)
    {
        rc = kvr_save_flush(s);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    p = s->blocks + s->size;
    s->size += size;

    kvr_save_number(p, b->handle, 8);
    kvr_save_number(p + 8, b->parent, 8);
    kvr_save_number(p + 16, b->path_hash, 8);
    kvr_save_number(p + 24, b->seed, 8);

    for (i = 0; i < KVR_TIERS; i++) {
        kvr_save_number(p + 32 + i * 2, b->copies[i], 2);
    }

    kvr_save_number(p + 40, b->k, 2);
    p[42] = (char) ((b->has_parent ? KVR_SAVE_HAS_PARENT : 0)
                    | (b->not_indexed ? KVR_SAVE_NOT_INDEXED : 0)
                    | place << KVR_SAVE_PLACE);
    p[43] = (char) b->why;

    for (i = 0; i < b->k; i++) {
        kvr_save_number(p + KVR_SAVE_BLOCK + i * 8,
                        kvr_known_locals(b)[i], 8);
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_save_flush(kvr_save_t *s)
{
    char                          *p;
    uint32_t                       i, n;
    const kvr_normalise_group_t   *g;
    const kvr_normalise_holder_t  *h;

    h = s->op.h;
    n = s->groups_saved ? 0 : h->ngroups;
    s->groups_saved = true;

    p = s->part;
    p += kvr_save_token(p, mpack_pack_array(4));
    p += kvr_save_token(p, mpack_pack_str(sizeof(KVR_SAVE_TAG) - 1));
    memcpy(p, KVR_SAVE_TAG, sizeof(KVR_SAVE_TAG) - 1);
    p += sizeof(KVR_SAVE_TAG) - 1;
    p += kvr_save_token(p, mpack_pack_uint(s->op.rank));
    p += kvr_save_token(p, mpack_pack_bin(n * KVR_SAVE_GROUP));

    for (i = 0; i < n; i++, p += KVR_SAVE_GROUP) {
        g = &h->groups[i];

        kvr_save_number(p, g->group, 4);
        p[4] = (char) (g->owner || g->kind == KVR_GROUP_INDEXED
                       ? g->kind : KVR_GROUP_OTHER);
        kvr_save_number(p + 5, g->size, 4);

        kvr_save_number(p + 9, g->window, 4);
        p[13] = (char) (g->owner ? g->class_at : KVR_SAVE_NO_CLASS);
    }

    p += kvr_save_token(p, mpack_pack_bin((mpack_uint32_t) s->size));
    memcpy(p, s->blocks, s->size);
    p += s->size;

    s->size = 0;

    return s->put(s->data, s->part, (size_t) (p - s->part));
}


/* Writes one token, of KVR_SAVE_FRAME / 4 bytes at most. */

static size_t
kvr_save_token(char *out, mpack_token_t token)
{
    char           *p;
    size_t          left;
    mpack_tokbuf_t  buf;

    p = out;
    left = KVR_SAVE_FRAME / 4;

    mpack_tokbuf_init(&buf);
    (void) mpack_write(&buf, &p, &left, &token);

    return (size_t) (p - out);
}


/* ---- load --------------------------------------------------------------- */

kvr_rc_t
kvr_normalise_load(kvr_normaliser_t *e, const char *worker, size_t len,
    const void *part, size_t size)
{
    kvr_rc_t            rc;
    kvr_normalise_op_t  op;

    rc = kvr_normalise_enter(&op, e, worker, len);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_load_part(&op, part, size);

    kvr_shard_unlock(op.k);

    return rc;
}


static kvr_rc_t
kvr_load_part(kvr_normalise_op_t *op, const void *part, size_t size)
{
    uint32_t             i;
    const char          *p, *end;
    kvr_msgpack_t        in;
    kvr_msgpack_item_t   frame, item[4];

    in.pos = part;
    in.left = size;

    if (kvr_msgpack_read(&in, &frame) != KVR_OK
        || frame.type != MPACK_TOKEN_ARRAY || frame.count != 4)
    {
        return KVR_INVALID;
    }

    for (i = 0; i < 4; i++) {
        if (kvr_msgpack_read(&in, &item[i]) != KVR_OK) {
            return KVR_INVALID;
        }
    }

    if (in.left != 0 || !kvr_msgpack_equals(&item[0], KVR_SAVE_TAG)
        || item[1].type != MPACK_TOKEN_UINT
        || item[1].number >= KVR_RANKS_MAX
        || !kvr_load_sound(&item[2], &item[3]))
    {
        return KVR_INVALID;
    }

    if (kvr_normalise_op(op, (uint32_t) item[1].number) != KVR_OK) {
        return KVR_ERROR;
    }

    p = item[2].bytes;

    for (end = p + item[2].count; p < end; p += KVR_SAVE_GROUP) {
        kvr_load_group(op, p);
    }

    p = item[3].bytes;

    for (end = p + item[3].count; p < end; /* void */ ) {
        kvr_load_block(op, p);
        p += KVR_SAVE_BLOCK + kvr_load_number(p + 40, 2) * 8;
    }

    return KVR_OK;
}


/* Are all records complete, and all values in range? */

static bool
kvr_load_sound(const kvr_msgpack_item_t *groups,
    const kvr_msgpack_item_t *blocks)
{
    size_t       left;
    uint64_t     k;
    const char  *p;

    if (groups->type != MPACK_TOKEN_BIN || blocks->type != MPACK_TOKEN_BIN
        || groups->count % KVR_SAVE_GROUP
        || groups->count > KVR_NORMALISE_GROUPS * KVR_SAVE_GROUP)
    {
        return false;
    }

    p = groups->bytes;

    for (left = groups->count; left; left -= KVR_SAVE_GROUP) {
        if (!kvr_load_sound_group(p)) {
            return false;
        }

        p += KVR_SAVE_GROUP;
    }

    p = blocks->bytes;
    left = blocks->count;

    while (left) {
        if (left < KVR_SAVE_BLOCK) {
            return false;
        }

        k = kvr_load_number(p + 40, 2);

        if (k > KVR_BLOCK_SIZE_MAX || left < KVR_SAVE_BLOCK + k * 8
            || (uint8_t) p[42] >> KVR_SAVE_PLACE > KVR_NORMALISE_GROUPS
            || kvr_why_class((uint8_t) p[43])
               != (p[42] & KVR_SAVE_NOT_INDEXED ? KVR_WHY_IS_FILTERED
                                            : KVR_WHY_IS_NONE))
        {
            return false;
        }

        p += KVR_SAVE_BLOCK + k * 8;
        left -= KVR_SAVE_BLOCK + k * 8;
    }

    return true;
}


static bool
kvr_load_sound_group(const char *p)
{
    uint8_t  kind, class_at;

    kind = (uint8_t) p[4];

    if (kvr_load_number(p + 5, 4) > KVR_BLOCK_SIZE_MAX) {
        return false;
    }

    class_at = (uint8_t) p[13];

    return class_at == KVR_SAVE_NO_CLASS
           ? kind == KVR_GROUP_INDEXED || kind == KVR_GROUP_OTHER
           : class_at < KVR_CLASSES_MAX && kvr_group_has_rule(kind);
}


/* A group whose class is not indexed here makes the worker hybrid. */

static void
kvr_load_group(kvr_normalise_op_t *op, const char *p)
{
    bool                     fresh;
    uint8_t                  class_at;
    uint32_t                 i;
    kvr_normalise_group_t   *g;
    kvr_normalise_holder_t  *h;

    h = op->h;
    i = kvr_groups_learn(h, (uint32_t) kvr_load_number(p, 4), (uint8_t) p[4],
                         (uint32_t) kvr_load_number(p + 5, 4), &fresh);

    class_at = (uint8_t) p[13];

    if (i < KVR_NORMALISE_GROUPS && fresh && op->e->groups
        && class_at <= h->nclasses)
    {
        g = &h->groups[i];
        g->window = (uint32_t) kvr_load_number(p + 9, 4);
        g->class_at = class_at;
        g->owner = ++op->e->owner;
        h->nclasses += class_at == h->nclasses;
        return;
    }

    if (p[4] != KVR_GROUP_INDEXED || class_at != KVR_SAVE_NO_CLASS) {
        kvr_fleet_set_flags(&op->k->fleet, op->worker, KVR_WORKER_HYBRID, 0);
    }
}


/* The tiers of a block are taken from the index, not from the record. */

static void
kvr_load_block(kvr_normalise_op_t *op, const char *p)
{
    uint16_t            n;
    uint32_t            i, k, tiers;
    uint64_t            handle;
    kvr_known_state_t   state;
    kvr_known_block_t  *b;

    i = (uint8_t) p[42] >> KVR_SAVE_PLACE;

    if (i) {
        kvr_load_class_block(op, p, i);
        return;
    }

    handle = kvr_load_number(p, 8);
    k = (uint32_t) kvr_load_number(p + 40, 2);

    tiers = kvr_normalise_tiers(op, handle);
    b = kvr_normalise_find(op, handle);

    if (tiers) {
        state = KVR_KNOWN_LIVE;

    } else if (k) {
        state = KVR_KNOWN_GONE;

    } else if (p[42] & KVR_SAVE_NOT_INDEXED) {
        state = KVR_KNOWN_FILTERED;

    } else {
        return;
    }

    if (b == NULL) {
        b = kvr_normalise_add(op, handle, state);

        if (b == NULL) {
            return;
        }

    } else {
        kvr_known_move(&op->e->blocks, &op->h->live, b, state);
    }

    if (k) {
        for (i = 0; i < k; i++) {
            op->e->locals[i] = kvr_load_number(p + KVR_SAVE_BLOCK + i * 8, 8);
        }

        b->has_parent = (p[42] & KVR_SAVE_HAS_PARENT) != 0;
        b->parent = kvr_load_number(p + 8, 8);
        b->path_hash = kvr_load_number(p + 16, 8);
        b->seed = kvr_load_number(p + 24, 8);

        kvr_known_set_locals(&op->e->blocks, b, op->e->locals, k);
    }

    for (i = 0; i < KVR_TIERS; i++) {
        n = (uint16_t) kvr_load_number(p + 32 + i * 2, 2);
        b->copies[i] = tiers >> i & 1 ? kvr_max(n, 1) : 0;
    }

    b->not_indexed = (p[42] & KVR_SAVE_NOT_INDEXED) != 0;
    b->why = (uint8_t) p[43];
}


/* A block of a group with a class. */

static void
kvr_load_class_block(kvr_normalise_op_t *op, const char *p, uint32_t place)
{
    uint64_t            handle;
    kvr_known_block_t  *b;

    if (place > op->h->ngroups || op->h->groups[place - 1].owner == 0) {
        return;
    }

    handle = kvr_load_number(p, 8);
    place = op->h->groups[place - 1].owner;

    if (kvr_known_find(&op->e->blocks, place, handle)) {
        return;
    }

    b = kvr_known_add(&op->e->blocks, &op->h->live, place, handle,
                      KVR_KNOWN_LIVE);

    if (b) {
        b->copies[KVR_DEVICE]
            = kvr_max((uint16_t) kvr_load_number(p + 32, 2), 1);
    }
}


/* ---- numbers ------------------------------------------------------------ */

static void
kvr_save_number(char *p, uint64_t n, uint32_t bytes)
{
    uint32_t  i;

    for (i = 0; i < bytes; i++) {
        p[i] = (char) (n >> (i * 8));
    }
}


static uint64_t
kvr_load_number(const char *p, uint32_t bytes)
{
    uint32_t  i;
    uint64_t  n;

    n = 0;

    for (i = 0; i < bytes; i++) {
        n |= (uint64_t) (uint8_t) p[i] << (i * 8);
    }

    return n;
}
