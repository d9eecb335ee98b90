
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Snapshots of workers, in Redis: a pointer names the parts of the newest
 * (wire/kvr_keys.h).  When a repair loads one, from where, and what it does
 * when there is none.
 */


#include "ngx_http_kv_router_consumer.h"

#include <wire/kvr_pointer.h>


/*
 * the maximum number of times that a repair reads the pointer: parts can
 * expire while a repair reads them
 */
#define NGX_HTTP_KV_ROUTER_LOOKS        4

/*
 * the minimum and maximum milliseconds between looks, and the number of slots
 * looked at in one tick
 */
#define NGX_HTTP_KV_ROUTER_LOOK_MIN     200
#define NGX_HTTP_KV_ROUTER_LOOK_MAX     5000
#define NGX_HTTP_KV_ROUTER_TICK         1024


static ngx_int_t ngx_http_kv_router_snapshot_parse(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r,
    const char **detail);
static ngx_uint_t ngx_http_kv_router_snapshot_useful(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r);
static ngx_int_t ngx_http_kv_router_snapshot_useless(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r,
    ngx_http_kv_router_trouble_e kind, const char *detail);
static ngx_int_t ngx_http_kv_router_snapshot_expired(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r);
static ngx_int_t ngx_http_kv_router_snapshot_step(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r,
    ngx_http_kv_router_trouble_e kind);


ngx_uint_t
ngx_http_kv_router_snapshot_wanted(ngx_http_kv_router_consumer_t *c,
    ngx_uint_t slot)
{
    return kvr_fleet_wants_snapshot(kvr_router_worker(&c->zone->router, slot));
}


/* ---- the pointer -------------------------------------------------------- */

ngx_int_t
ngx_http_kv_router_snapshot_pointer(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_int_t    rc;
    const char  *detail;

    r->looks++;

    rc = NGX_DECLINED;

    if (r->page) {
        rc = ngx_http_kv_router_snapshot_parse(c, r, &detail);

        if (rc == NGX_ERROR) {
            ngx_http_kv_router_snapshot_trouble(c, r,
                                            ngx_http_kv_router_trouble_pointer,
                                            detail);
        }

        ngx_http_kv_router_repair_free_page(r);
    }

    if (rc != NGX_OK || !ngx_http_kv_router_snapshot_useful(c, r)) {

        ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                       "kv_router zone \"%V\": repair of worker \"%V\": "
                       "%s", &c->zone->name, &r->worker,
                       rc == NGX_OK ? "its snapshot is of no use"
                                    : "it has no snapshot");

        return ngx_http_kv_router_snapshot_give_up(c, r);
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\": its "
                   "snapshot is at %uL-%uL, %ui parts", &c->zone->name,
                   &r->worker, r->head.epoch, r->head.seq, r->parts);

    r->state = ngx_http_kv_router_repair_load;

    return NGX_AGAIN;
}


/* NGX_DECLINED: there is no pointer. */

static ngx_int_t
ngx_http_kv_router_snapshot_parse(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, const char **detail)
{
    size_t         i, len[KVR_POINTER_ROUTER];
    const char    *values[KVR_POINTER_ROUTER];
    redisReply    *value;
    kvr_pointer_t  pointer;

    if (r->page->elements != KVR_POINTER_ROUTER) {
        *detail = "not the fields of a snapshot";
        return NGX_ERROR;
    }

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {
        value = r->page->element[i];

        switch (value->type) {

        case REDIS_REPLY_STRING:
            values[i] = value->str;
            len[i] = value->len;
            break;

        case REDIS_REPLY_NIL:
            values[i] = NULL;
            len[i] = 0;
            break;

        default:
            values[i] = "";
            len[i] = 0;
        }
    }

    /* a pointer without the field has the zone's kind of hashes */

    pointer.head.contract = kvr_params_contract(&c->zone->params);
    pointer.head.hybrid = false;

    switch (kvr_pointer_read(&pointer, values, len, detail)) {

    case KVR_OK:
        r->head = pointer.head;
        r->parts = pointer.parts;
        return NGX_OK;

    case KVR_DECLINED:
        return NGX_DECLINED;

    default:
        return NGX_ERROR;
    }
}


/*
 * If the log leads on from the cursor, the log is preferred: there is less to
 * read.
 */

static ngx_uint_t
ngx_http_kv_router_snapshot_useful(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    kvr_cursor_t                cursor, head;
    ngx_http_kv_router_slot_t  *slot;

    slot = &c->slots[r->slot];

    head.epoch = r->head.epoch;
    head.seq = r->head.seq;

    if (head.epoch < r->last.epoch || r->given_up
        || (head.epoch == slot->useless.epoch
            && head.seq == slot->useless.seq)
        || !kvr_snapshot_usable(&c->zone->router, (char *) r->worker.data,
                                r->worker.len, &r->head))
    {
        return 0;
    }

    ngx_http_kv_router_repair_cursor(c, r, &cursor);

    return r->late || head.epoch > cursor.epoch
           || ngx_http_kv_router_repair_behind(&r->last, &head)
           || ngx_http_kv_router_snapshot_wanted(c, r->slot);
}


/* ---- loading ------------------------------------------------------------ */

ngx_int_t
ngx_http_kv_router_snapshot_load(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    kvr_rc_t   krc;
    ngx_int_t  rc;

    if (r->snapshot == NULL) {
        r->snapshot = kvr_snapshot_create(&c->zone->router);

        if (r->snapshot == NULL) {
            ngx_log_error(NGX_LOG_ALERT, c->log, 0,
                          "kv_router zone \"%V\": no memory for a snapshot",
                          &c->zone->name);

            return ngx_http_kv_router_snapshot_give_up(c, r);
        }
    }

    rc = ngx_http_kv_router_repair_begin_worker(c, r);
    if (rc != NGX_OK) {
        return rc;
    }

    krc = kvr_snapshot_begin(r->snapshot, (char *) r->worker.data,
                             r->worker.len, &r->head);

    switch (krc) {

    case KVR_OK:
        r->part = 0;
        r->state = r->parts ? ngx_http_kv_router_repair_ask_part
                            : ngx_http_kv_router_repair_swap;
        return NGX_AGAIN;

    case KVR_INVALID:
        return ngx_http_kv_router_snapshot_useless(c, r,
                          ngx_http_kv_router_trouble_block_size,
                          kvr_contract_differs(r->head.contract,
                                       kvr_params_contract(&c->zone->params)));

    case KVR_BUSY:
    case KVR_LOST:
        return ngx_http_kv_router_repair_rc(krc);

    default: /* KVR_DECLINED */
        return ngx_http_kv_router_snapshot_give_up(c, r);
    }
}


ngx_int_t
ngx_http_kv_router_snapshot_part(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_int_t    rc;
    const char  *detail;

    if (r->page == NULL || (!r->open && r->page->len == 0)) {
        return ngx_http_kv_router_snapshot_expired(c, r);
    }

    if (!r->open) {

        if (kvr_snapshot_open(r->snapshot, r->page->str, r->page->len,
                              &detail)
            != KVR_OK)
        {
            return ngx_http_kv_router_snapshot_useless(c, r,
                                               ngx_http_kv_router_trouble_part,
                                               detail);
        }

        r->open = 1;
    }

    rc = ngx_http_kv_router_snapshot_step(c, r,
                                          ngx_http_kv_router_trouble_part);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_kv_router_repair_free_page(r);

    r->part++;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\": part %ui "
                   "of %ui is aside", &c->zone->name, &r->worker, r->part,
                   r->parts);

    r->state = (r->part < r->parts) ? ngx_http_kv_router_repair_ask_part
                                    : ngx_http_kv_router_repair_swap;

    return NGX_DONE;
}


/* Applies a slice of the open data; NGX_OK: all of it is applied. */

static ngx_int_t
ngx_http_kv_router_snapshot_step(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, ngx_http_kv_router_trouble_e kind)
{
    kvr_rc_t  rc;

    rc = kvr_snapshot_step(r->snapshot, c->pace);

    switch (rc) {

    case KVR_OK:
        return NGX_DONE;

    case KVR_DONE:
        r->open = 0;
        return NGX_OK;

    case KVR_BUSY:
    case KVR_LOST:
        return ngx_http_kv_router_repair_rc(rc);

    case KVR_INVALID:
        return ngx_http_kv_router_snapshot_useless(c, r, kind,
                                                   "it can't be read to its "
                                                   "end");

    default: /* KVR_DECLINED: the worker was removed, or cleared */
        return ngx_http_kv_router_snapshot_give_up(c, r);
    }
}


/*
 * A part is missing: a newer snapshot was written meanwhile, or the pointer
 * names parts that do not exist.
 */

static ngx_int_t
ngx_http_kv_router_snapshot_expired(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    if (r->page == NULL || r->looks >= NGX_HTTP_KV_ROUTER_LOOKS) {
        return ngx_http_kv_router_snapshot_useless(c, r,
                                            ngx_http_kv_router_trouble_expired,
                                            "a part is not to be had");
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\": part %ui "
                   "is gone, looking for a newer snapshot", &c->zone->name,
                   &r->worker, r->part + 1);

    (void) kvr_snapshot_abort(r->snapshot);

    ngx_http_kv_router_repair_free_page(r);

    r->state = ngx_http_kv_router_repair_ask_pointer;

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_kv_router_snapshot_swap(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    bool      behind;
    kvr_rc_t  rc;

    rc = kvr_snapshot_end(r->snapshot, ngx_current_msec, &behind);

    if (rc == KVR_BUSY || rc == KVR_LOST) {
        return ngx_http_kv_router_repair_rc(rc);
    }

    if (rc != KVR_OK && (!behind || r->aside || r->broken)) {
        return ngx_http_kv_router_snapshot_give_up(c, r);
    }

    /* behind the snapshot, read the log to its end */

    r->last.epoch = r->head.epoch;
    r->last.seq = UINT64_MAX;
    r->state = ngx_http_kv_router_repair_ask_page;

    if (rc != KVR_OK) {

        ngx_log_debug4(NGX_LOG_DEBUG_HTTP, c->log, 0,
                       "kv_router zone \"%V\": repair of worker \"%V\": its "
                       "view is beyond %uL-%uL, the log's entries go aside, "
                       "too", &c->zone->name, &r->worker, r->head.epoch,
                       r->head.seq);

        /*
         * the current view has the messages behind the snapshot, the new view
         * has not: apply them again, to the view aside
         */

        r->aside = 1;
        r->seq = r->head.seq;

        return NGX_AGAIN;
    }

    if (!r->aside) {
        r->seq = r->head.seq;
    }

    r->aside = 0;
    r->failed = 0;
    r->late = 0;

    if (r->broken) {
        r->broken = 0;
        r->state = ngx_http_kv_router_repair_end;
    }

    kvr_snapshot_destroy(r->snapshot);
    r->snapshot = NULL;

    (void) ngx_atomic_fetch_add(&c->zone->sh->snapshots_loaded, 1);

    ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                  "kv_router zone \"%V\": snapshot %uL-%uL of worker \"%V\" "
                  "is loaded, %ui parts%s", &c->zone->name, r->head.epoch,
                  r->head.seq, &r->worker, r->parts,
                  r->head.complete ? "" : ", incomplete");

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_kv_router_snapshot_entry(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, kvr_cursor_t *id, ngx_str_t *body)
{
    kvr_rc_t      krc;
    ngx_int_t     rc;
    const char   *detail;
    kvr_cursor_t  cursor;

    if (!r->open) {

        krc = kvr_snapshot_open(r->snapshot, body->data, body->len, &detail);

        if (krc != KVR_OK && krc != KVR_DONE) {
            return ngx_http_kv_router_snapshot_useless(c, r,
                                                ngx_http_kv_router_trouble_log,
                                                detail);
        }

        r->open = (krc == KVR_OK);
    }

    if (r->open) {
        rc = ngx_http_kv_router_snapshot_step(c, r,
                                              ngx_http_kv_router_trouble_log);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    r->seq = id->seq;
    r->entry++;

    ngx_http_kv_router_repair_cursor(c, r, &cursor);

    if (r->seq >= cursor.seq) {
        ngx_http_kv_router_repair_free_page(r);
        r->state = ngx_http_kv_router_repair_swap;
    }

    return NGX_DONE;
}


/* ---- without one -------------------------------------------------------- */

static ngx_int_t
ngx_http_kv_router_snapshot_useless(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, ngx_http_kv_router_trouble_e kind,
    const char *detail)
{
    ngx_http_kv_router_slot_t  *slot;

    ngx_http_kv_router_snapshot_trouble(c, r, kind, detail);

    /* do not load this snapshot again */

    slot = &c->slots[r->slot];
    slot->useless.epoch = r->head.epoch;
    slot->useless.seq = r->head.seq;

    return ngx_http_kv_router_snapshot_give_up(c, r);
}


ngx_int_t
ngx_http_kv_router_snapshot_give_up(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    kvr_cursor_t  cursor;

    if (r->snapshot) {
        kvr_snapshot_destroy(r->snapshot);
        r->snapshot = NULL;
    }

    ngx_http_kv_router_repair_free_page(r);

    r->open = 0;
    r->aside = 0;
    r->given_up = r->late || r->looks >= NGX_HTTP_KV_ROUTER_LOOKS;

    ngx_http_kv_router_repair_cursor(c, r, &cursor);

    if (r->broken || !ngx_http_kv_router_repair_behind(&cursor, &r->last)) {
        r->state = ngx_http_kv_router_repair_end;
        return NGX_AGAIN;
    }

    /* if the epoch is new, its log is read from the first message on */

    r->seq = (cursor.epoch == r->last.epoch) ? cursor.seq : 0;
    r->state = ngx_http_kv_router_repair_ask_page;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\": its log "
                   "is read from behind %uL-%uL", &c->zone->name, &r->worker,
                   r->last.epoch, r->seq);

    return NGX_AGAIN;
}


void
ngx_http_kv_router_snapshot_trouble(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, ngx_http_kv_router_trouble_e kind,
    const char *detail)
{
    ngx_uint_t                  level;
    ngx_http_kv_router_slot_t  *slot;

    slot = &c->slots[r->slot];

    level = (slot->logged >> kind & 1) ? NGX_LOG_INFO : NGX_LOG_WARN;
    slot->logged |= (ngx_uint_t) 1 << kind;

    (void) ngx_atomic_fetch_add(&c->zone->sh->snapshots_refused, 1);

    if (kind == ngx_http_kv_router_trouble_ask) {
        ngx_log_error(level, c->log, 0,
                      "kv_router zone \"%V\": no snapshot of worker \"%V\" "
                      "can be asked for: %s", &c->zone->name, &r->worker,
                      detail);
        return;
    }

    ngx_log_error(level, c->log, 0,
                  "kv_router zone \"%V\": snapshot of worker \"%V\" refused: "
                  "%s", &c->zone->name, &r->worker, detail);
}


/* ---- again -------------------------------------------------------------- */

void
ngx_http_kv_router_snapshot_later(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_msec_t                  delay;
    ngx_http_kv_router_slot_t  *slot;

    slot = &c->slots[r->slot];

    if (!ngx_http_kv_router_snapshot_wanted(c, r->slot)) {
        slot->again = 0;
        slot->delay = 0;
        return;
    }

    delay = ngx_max(slot->delay * 2, NGX_HTTP_KV_ROUTER_LOOK_MIN);
    delay = ngx_min(delay, NGX_HTTP_KV_ROUTER_LOOK_MAX);

    /* 50-100% of the delay, so that workers are not repaired at once */

    slot->delay = delay;
    slot->again = ngx_current_msec + delay / 2 + ngx_random() % (delay / 2);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": worker \"%V\" needs a snapshot, "
                   "looking again in %M ms", &c->zone->name, &r->worker,
                   slot->again - ngx_current_msec);
}


void
ngx_http_kv_router_snapshot_tick(ngx_http_kv_router_consumer_t *c)
{
    ngx_uint_t                  i, n;
    kvr_router_t               *k;
    ngx_http_kv_router_slot_t  *slot;

    if (!c->up || !c->zone->redis->replay) {
        return;
    }

    k = &c->zone->router;
    n = ngx_min(kvr_router_workers(k), c->nslots);

    for (i = 0; i < ngx_min(n, NGX_HTTP_KV_ROUTER_TICK); i++) {

        c->looked = (c->looked + 1 < n) ? c->looked + 1 : 0;
        slot = &c->slots[c->looked];

        if (slot->wanted || slot->active
            || !(c->leased >> kvr_router_worker_shard(k, c->looked) & 1)
            || !ngx_http_kv_router_snapshot_wanted(c, c->looked)
            || (slot->again
                && (ngx_msec_int_t) (slot->again - ngx_current_msec) > 0))
        {
            continue;
        }

        ngx_http_kv_router_repair_want(c, slot);
        slot->look = 1;
    }
}
