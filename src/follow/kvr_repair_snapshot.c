
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The states of a repair that have to do with the worker's snapshot: a pointer
 * names the parts of the newest (wire/kvr_keys.h).  When a repair loads one,
 * from where, and what it does when there is none.
 */


#include "kvr_repair_state.h"


/*
 * the maximum number of times that a repair reads the pointer: parts can
 * expire while a repair reads them
 */
#define KVR_REPAIR_LOOKS  4


static kvr_rc_t kvr_repair_read_pointer(kvr_repair_t *r,
    char why[KVR_POINTER_WHY]);
static bool kvr_repair_useful(const kvr_repair_t *r);
static kvr_next_t kvr_repair_useless(kvr_repair_t *r, kvr_trouble_t kind,
    const char *detail);
static kvr_next_t kvr_repair_put(kvr_repair_t *r, const kvr_turn_t *turn,
    const kvr_reply_t *body);


/* ---- the pointer -------------------------------------------------------- */

kvr_next_t
kvr_repair_pointer(kvr_repair_t *r)
{
    char      why[KVR_POINTER_WHY];
    kvr_rc_t  rc;

    r->looks++;

    rc = r->asked == KVR_ASKED_ANSWERED ? kvr_repair_read_pointer(r, why)
                                        : KVR_DECLINED;
    if (rc == KVR_INVALID) {
        kvr_repair_trouble(r, KVR_TROUBLE_POINTER, why);
    }

    if (rc != KVR_OK || !kvr_repair_useful(r)) {

        kvr_tell_debug(r->env->tell, "repair of worker \"%s\": %s", r->id,
                       rc == KVR_OK ? "its snapshot is of no use"
                                    : "it has no snapshot");

        return kvr_repair_give_up(r);
    }

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its snapshot is at "
                   "%llu-%llu, %u parts", r->id,
                   (unsigned long long) r->head.epoch,
                   (unsigned long long) r->head.seq, r->parts);

    return kvr_repair_sees(r, KVR_SEES_NEXT);
}


/* KVR_DECLINED: there is no pointer; KVR_INVALID: why says it. */

static kvr_rc_t
kvr_repair_read_pointer(kvr_repair_t *r, char why[KVR_POINTER_WHY])
{
    size_t         i, len[KVR_POINTER_ROUTER];
    kvr_rc_t       rc;
    const char    *values[KVR_POINTER_ROUTER];
    kvr_reply_t    value;
    kvr_pointer_t  pointer;

    if (r->reply.len != KVR_POINTER_ROUTER) {
        strcpy(why, "not the fields of a snapshot");
        return KVR_INVALID;
    }

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {
        value = kvr_reply_element(&r->reply, i);

        len[i] = value.type == KVR_REPLY_STRING ? value.len : 0;
        values[i] = value.type == KVR_REPLY_STRING ? value.text
                    : value.type == KVR_REPLY_NIL ? NULL : "";
    }

    /* a pointer without the field has the zone's kind of hashes */

    pointer.head.contract =
                       kvr_params_contract(kvr_router_params(r->env->router));
    pointer.head.hybrid = false;

    rc = kvr_pointer_read(&pointer, values, len, why);

    if (rc == KVR_OK) {
        r->head = pointer.head;
        r->parts = pointer.parts;
    }

    return rc;
}


/*
 * If the log leads on from the cursor, the log is preferred: there is less to
 * read.
 */

static bool
kvr_repair_useful(const kvr_repair_t *r)
{
    kvr_cursor_t  cursor, head;

    head = (kvr_cursor_t) { r->head.epoch, r->head.seq };

    if (head.epoch < r->last.epoch || r->looks > KVR_REPAIR_LOOKS
        || (head.epoch == r->lane->useless.epoch
            && head.seq == r->lane->useless.seq)
        || !kvr_snapshot_usable(r->env->router, r->id, r->len, &r->head))
    {
        return false;
    }

    cursor = kvr_repair_cursor(r);

    return r->way != KVR_WAY_ANY || head.epoch > cursor.epoch
           || kvr_repair_behind(&r->last, &head)
           || kvr_repair_wants_snapshot(r);
}


/* ---- loading ------------------------------------------------------------ */

kvr_next_t
kvr_repair_load(kvr_repair_t *r)
{
    kvr_rc_t         rc;
    kvr_contract_t   zone;

    if (r->snapshot == NULL) {
        r->snapshot = kvr_snapshot_create(r->env->router);

        if (r->snapshot == NULL) {
            kvr_tell(r->env->tell, KVR_LOG_ALERT, "no memory for a snapshot");
            return kvr_repair_give_up(r);
        }
    }

    rc = kvr_repair_syncing(r);
    if (rc != KVR_OK) {
        return kvr_repair_stopped(rc);
    }

    rc = kvr_snapshot_begin(r->snapshot, r->id, r->len, &r->head);

    switch (rc) {

    case KVR_OK:
        r->part = 0;
        r->seq = r->head.seq;

        return kvr_repair_sees(r, r->parts ? KVR_SEES_NEXT : KVR_SEES_ENOUGH);

    case KVR_INVALID:
        zone = kvr_params_contract(kvr_router_params(r->env->router));

        return kvr_repair_useless(r, KVR_TROUBLE_BLOCK_SIZE,
                                  kvr_contract_differs(r->head.contract,
                                                       zone));

    case KVR_BUSY:
    case KVR_LOST:
        return kvr_repair_stopped(rc);

    default: /* KVR_DECLINED */
        return kvr_repair_give_up(r);
    }
}


kvr_next_t
kvr_repair_part(kvr_repair_t *r, const kvr_turn_t *turn)
{
    kvr_next_t  rc;

    if (r->asked == KVR_ASKED_IN_VAIN
        || (r->reply.len == 0 && r->looks >= KVR_REPAIR_LOOKS))
    {
        return kvr_repair_useless(r, KVR_TROUBLE_EXPIRED,
                                  "a part is not to be had");
    }

    /*
     * a newer snapshot was written meanwhile, or the pointer names parts that
     * do not exist
     */

    if (r->reply.len == 0) {

        kvr_tell_debug(r->env->tell, "repair of worker \"%s\": part %u is "
                       "gone, looking for a newer snapshot", r->id,
                       r->part + 1);

        return kvr_repair_sees(r, KVR_SEES_GONE);
    }

    rc = kvr_repair_put(r, turn, &r->reply);
    if (rc != KVR_NEXT_DONE) {
        return rc;
    }

    r->part++;

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": part %u of %u is "
                   "aside", r->id, r->part, r->parts);

    (void) kvr_repair_sees(r, r->part < r->parts ? KVR_SEES_NEXT
                                                 : KVR_SEES_ENOUGH);
    return KVR_NEXT_YIELD;
}


/* Puts a slice of a part or entry aside; KVR_NEXT_DONE: all of it is. */

static kvr_next_t
kvr_repair_put(kvr_repair_t *r, const kvr_turn_t *turn,
    const kvr_reply_t *body)
{
    kvr_rc_t        rc;
    const char     *detail;
    kvr_trouble_t   kind;

    kind = r->state == KVR_REPAIR_PART ? KVR_TROUBLE_PART : KVR_TROUBLE_LOG;

    if (r->asked != KVR_ASKED_OPEN) {
        rc = kvr_snapshot_open(r->snapshot, body->text, body->len, &detail);

        if (rc == KVR_DONE && r->state == KVR_REPAIR_ASIDE) {
            return KVR_NEXT_DONE;
        }

        if (rc != KVR_OK) {
            return kvr_repair_useless(r, kind, detail ? detail : "no part");
        }

        r->asked = KVR_ASKED_OPEN;
    }

    rc = kvr_snapshot_step(r->snapshot, turn->blocks);

    switch (rc) {

    case KVR_OK:
        return KVR_NEXT_YIELD;

    case KVR_DONE:
        r->asked = KVR_ASKED_ANSWERED;
        return KVR_NEXT_DONE;

    case KVR_BUSY:
    case KVR_LOST:
        return kvr_repair_stopped(rc);

    case KVR_INVALID:
        return kvr_repair_useless(r, kind, "it can't be read to its end");

    default: /* KVR_DECLINED: the worker was removed, or cleared */
        return kvr_repair_give_up(r);
    }
}


kvr_next_t
kvr_repair_swap(kvr_repair_t *r, const kvr_turn_t *turn)
{
    bool      behind;
    kvr_rc_t  rc;

    rc = kvr_snapshot_end(r->snapshot, turn->now_ms, &behind);

    if (rc == KVR_BUSY || rc == KVR_LOST) {
        return kvr_repair_stopped(rc);
    }

    /* entries aside help once */

    if (rc != KVR_OK && (!behind || r->seq > r->head.seq)) {
        return kvr_repair_give_up(r);
    }

    /* behind the snapshot, read the log to its end */

    r->last = (kvr_cursor_t) { r->head.epoch, UINT64_MAX };

    if (rc != KVR_OK) {

        kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its view is "
                       "beyond %llu-%llu, the log's entries go aside, too",
                       r->id, (unsigned long long) r->head.epoch,
                       (unsigned long long) r->seq);

        return kvr_repair_sees(r, KVR_SEES_BEYOND);
    }

    r->effect = KVR_EFFECT_SYNCING;

    r->env->tell->count(r->env->tell->data, KVR_COUNT_SNAPSHOTS_LOADED);

    kvr_tell(r->env->tell, KVR_LOG_NOTICE, "snapshot %llu-%llu of worker "
             "\"%s\" is loaded, %u parts%s",
             (unsigned long long) r->head.epoch,
             (unsigned long long) r->head.seq, r->id, r->parts,
             r->head.complete ? "" : ", incomplete");

    return kvr_repair_sees(r, KVR_SEES_SWAPPED);
}


kvr_next_t
kvr_repair_entry_aside(kvr_repair_t *r, const kvr_turn_t *turn, uint64_t seq,
    const kvr_reply_t *body)
{
    kvr_next_t    rc;
    kvr_cursor_t  cursor;

    rc = kvr_repair_put(r, turn, body);
    if (rc != KVR_NEXT_DONE) {
        return rc;
    }

    r->seq = seq;
    r->entry++;

    cursor = kvr_repair_cursor(r);

    if (r->seq >= cursor.seq) {
        (void) kvr_repair_sees(r, KVR_SEES_ENOUGH);
    }

    return KVR_NEXT_YIELD;
}


/* ---- without one -------------------------------------------------------- */

static kvr_next_t
kvr_repair_useless(kvr_repair_t *r, kvr_trouble_t kind, const char *detail)
{
    kvr_repair_trouble(r, kind, detail);

    /* do not load this snapshot again */

    r->lane->useless = (kvr_cursor_t) { r->head.epoch, r->head.seq };

    return kvr_repair_give_up(r);
}


kvr_next_t
kvr_repair_give_up(kvr_repair_t *r)
{
    kvr_cursor_t  cursor;

    cursor = kvr_repair_cursor(r);

    if (!kvr_repair_behind(&cursor, &r->last)) {
        return kvr_repair_sees(r, KVR_SEES_NEITHER);
    }

    /* if the epoch is new, its log is read from the first message on */

    r->seq = (cursor.epoch == r->last.epoch) ? cursor.seq : 0;

    (void) kvr_repair_sees(r, KVR_SEES_USELESS);

    if (r->state == KVR_REPAIR_PAGE) {
        kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its log is "
                       "read from behind %llu-%llu", r->id,
                       (unsigned long long) r->last.epoch,
                       (unsigned long long) r->seq);
    }

    return KVR_NEXT_AGAIN;
}
