
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


static kvr_rc_t kvr_repair_read_pointer(kvr_repair_t *r, const char **detail);
static bool kvr_repair_useful(const kvr_repair_t *r);
static kvr_next_t kvr_repair_useless(kvr_repair_t *r, kvr_trouble_t kind,
    const char *detail);
static kvr_next_t kvr_repair_expired(kvr_repair_t *r);
static kvr_next_t kvr_repair_slice(kvr_repair_t *r,
    const kvr_turn_t *turn, kvr_trouble_t kind);


/* ---- the pointer -------------------------------------------------------- */

kvr_next_t
kvr_repair_pointer(kvr_repair_t *r)
{
    kvr_rc_t     rc;
    const char  *detail;

    r->looks++;

    rc = KVR_DECLINED;

    if (r->asked == KVR_ASKED_ANSWERED) {
        rc = kvr_repair_read_pointer(r, &detail);

        if (rc == KVR_INVALID) {
            kvr_repair_trouble(r, KVR_TROUBLE_POINTER, detail);
        }
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

    kvr_repair_to(r, KVR_REPAIR_LOAD);

    return KVR_NEXT_AGAIN;
}


/* KVR_DECLINED: there is no pointer; KVR_INVALID: *detail says why. */

static kvr_rc_t
kvr_repair_read_pointer(kvr_repair_t *r, const char **detail)
{
    size_t         i, len[KVR_POINTER_ROUTER];
    kvr_rc_t       rc;
    const char    *values[KVR_POINTER_ROUTER];
    kvr_reply_t    value;
    kvr_pointer_t  pointer;

    if (r->reply.len != KVR_POINTER_ROUTER) {
        *detail = "not the fields of a snapshot";
        return KVR_INVALID;
    }

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {
        value = kvr_reply_element(&r->reply, i);

        values[i] = "";
        len[i] = 0;

        if (value.type == KVR_REPLY_STRING) {
            values[i] = value.text;
            len[i] = value.len;

        } else if (value.type == KVR_REPLY_NIL) {
            values[i] = NULL;
        }
    }

    /* a pointer without the field has the zone's kind of hashes */

    pointer.head.contract =
                       kvr_params_contract(kvr_router_params(r->env->router));
    pointer.head.hybrid = false;

    rc = kvr_pointer_read(&pointer, values, len, r->why);

    if (rc == KVR_OK) {
        r->head = pointer.head;
        r->parts = pointer.parts;

    } else if (rc == KVR_INVALID) {
        *detail = r->why;
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

    head.epoch = r->head.epoch;
    head.seq = r->head.seq;

    if (head.epoch < r->last.epoch || r->given_up
        || (head.epoch == r->lane->useless.epoch
            && head.seq == r->lane->useless.seq)
        || !kvr_snapshot_usable(r->env->router, r->id, r->len, &r->head))
    {
        return false;
    }

    cursor = kvr_repair_cursor(r);

    return r->late || head.epoch > cursor.epoch
           || kvr_repair_behind(&r->last, &head)
           || kvr_repair_wants_snapshot(r);
}


/* ---- loading ------------------------------------------------------------ */

kvr_next_t
kvr_repair_load(kvr_repair_t *r)
{
    kvr_rc_t             rc;
    const kvr_params_t  *params;

    params = kvr_router_params(r->env->router);

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
        kvr_repair_to(r, r->parts ? KVR_REPAIR_PART : KVR_REPAIR_SWAP);

        return KVR_NEXT_AGAIN;

    case KVR_INVALID:
        return kvr_repair_useless(r, KVR_TROUBLE_BLOCK_SIZE,
                                  kvr_contract_differs(r->head.contract,
                                                kvr_params_contract(params)));

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
    const char       *detail;
    kvr_next_t        rc;

    if (r->asked == KVR_ASKED_IN_VAIN || (!r->open && r->reply.len == 0)) {
        return kvr_repair_expired(r);
    }

    if (!r->open) {

        if (kvr_snapshot_open(r->snapshot, r->reply.text, r->reply.len,
                              &detail)
            != KVR_OK)
        {
            return kvr_repair_useless(r, KVR_TROUBLE_PART, detail);
        }

        r->open = true;
    }

    rc = kvr_repair_slice(r, turn, KVR_TROUBLE_PART);
    if (rc != KVR_NEXT_DONE) {
        return rc;
    }

    r->part++;

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": part %u of %u is "
                   "aside", r->id, r->part, r->parts);

    kvr_repair_to(r, r->part < r->parts ? KVR_REPAIR_PART : KVR_REPAIR_SWAP);

    return KVR_NEXT_YIELD;
}


/* Applies a slice of the open data; KVR_NEXT_DONE: all of it is applied. */

static kvr_next_t
kvr_repair_slice(kvr_repair_t *r, const kvr_turn_t *turn, kvr_trouble_t kind)
{
    kvr_rc_t  rc;

    rc = kvr_snapshot_step(r->snapshot, turn->blocks);

    switch (rc) {

    case KVR_OK:
        return KVR_NEXT_YIELD;

    case KVR_DONE:
        r->open = false;
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


/*
 * A part is missing: a newer snapshot was written meanwhile, or the pointer
 * names parts that do not exist.
 */

static kvr_next_t
kvr_repair_expired(kvr_repair_t *r)
{
    if (r->asked == KVR_ASKED_IN_VAIN || r->looks >= KVR_REPAIR_LOOKS) {
        return kvr_repair_useless(r, KVR_TROUBLE_EXPIRED,
                                  "a part is not to be had");
    }

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": part %u is gone, "
                   "looking for a newer snapshot", r->id, r->part + 1);

    (void) kvr_snapshot_abort(r->snapshot);

    kvr_repair_to(r, KVR_REPAIR_POINTER);

    return KVR_NEXT_AGAIN;
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

    if (rc != KVR_OK && (!behind || r->aside || r->broken)) {
        return kvr_repair_give_up(r);
    }

    /* behind the snapshot, read the log to its end */

    r->last.epoch = r->head.epoch;
    r->last.seq = UINT64_MAX;

    if (rc != KVR_OK) {

        kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its view is "
                       "beyond %llu-%llu, the log's entries go aside, too",
                       r->id, (unsigned long long) r->head.epoch,
                       (unsigned long long) r->head.seq);

        /*
         * the current view has the messages behind the snapshot, the new view
         * has not: apply them again, to the view aside
         */

        r->aside = true;
        r->seq = r->head.seq;

        kvr_repair_to(r, KVR_REPAIR_PAGE);

        return KVR_NEXT_AGAIN;
    }

    if (!r->aside) {
        r->seq = r->head.seq;
    }

    r->aside = false;
    r->failed = false;
    r->late = false;

    kvr_repair_to(r, r->broken ? KVR_REPAIR_END : KVR_REPAIR_PAGE);
    r->broken = false;

    kvr_snapshot_destroy(r->snapshot);
    r->snapshot = NULL;

    r->env->tell->count(r->env->tell->data, KVR_COUNT_SNAPSHOTS_LOADED);

    kvr_tell(r->env->tell, KVR_LOG_NOTICE, "snapshot %llu-%llu of worker "
             "\"%s\" is loaded, %u parts%s",
             (unsigned long long) r->head.epoch,
             (unsigned long long) r->head.seq, r->id, r->parts,
             r->head.complete ? "" : ", incomplete");

    return KVR_NEXT_AGAIN;
}


kvr_next_t
kvr_repair_entry_aside(kvr_repair_t *r, const kvr_turn_t *turn, uint64_t seq,
    const kvr_reply_t *body)
{
    kvr_rc_t          krc;
    const char       *detail;
    kvr_cursor_t      cursor;
    kvr_next_t        rc;

    if (!r->open) {

        krc = kvr_snapshot_open(r->snapshot, body->text, body->len, &detail);

        if (krc != KVR_OK && krc != KVR_DONE) {
            return kvr_repair_useless(r, KVR_TROUBLE_LOG, detail);
        }

        r->open = (krc == KVR_OK);
    }

    if (r->open) {
        rc = kvr_repair_slice(r, turn, KVR_TROUBLE_LOG);
        if (rc != KVR_NEXT_DONE) {
            return rc;
        }
    }

    r->seq = seq;
    r->entry++;

    cursor = kvr_repair_cursor(r);

    if (r->seq >= cursor.seq) {
        kvr_repair_to(r, KVR_REPAIR_SWAP);
    }

    return KVR_NEXT_YIELD;
}


/* ---- without one -------------------------------------------------------- */

static kvr_next_t
kvr_repair_useless(kvr_repair_t *r, kvr_trouble_t kind, const char *detail)
{
    kvr_repair_trouble(r, kind, detail);

    /* do not load this snapshot again */

    r->lane->useless.epoch = r->head.epoch;
    r->lane->useless.seq = r->head.seq;

    return kvr_repair_give_up(r);
}


kvr_next_t
kvr_repair_give_up(kvr_repair_t *r)
{
    kvr_cursor_t  cursor;

    kvr_snapshot_destroy(r->snapshot);
    r->snapshot = NULL;

    r->open = false;
    r->aside = false;
    r->given_up = r->late || r->looks >= KVR_REPAIR_LOOKS;

    cursor = kvr_repair_cursor(r);

    if (r->broken || !kvr_repair_behind(&cursor, &r->last)) {
        kvr_repair_to(r, KVR_REPAIR_END);
        return KVR_NEXT_AGAIN;
    }

    /* if the epoch is new, its log is read from the first message on */

    r->seq = (cursor.epoch == r->last.epoch) ? cursor.seq : 0;
    kvr_repair_to(r, KVR_REPAIR_PAGE);

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its log is read "
                   "from behind %llu-%llu", r->id,
                   (unsigned long long) r->last.epoch,
                   (unsigned long long) r->seq);

    return KVR_NEXT_AGAIN;
}
