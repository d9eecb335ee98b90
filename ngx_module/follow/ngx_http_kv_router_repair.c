
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Repair: what live messages did not bring is read from the workers' logs, or,
 * where these don't reach back, from their snapshots.
 */


#include "ngx_http_kv_router_consumer.h"


/* entries of a page; fewer when they are too big for one reply */
#define NGX_HTTP_KV_ROUTER_PAGE  128


static void ngx_http_kv_router_repair_start(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);
static ngx_int_t ngx_http_kv_router_repair_step(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r);
static ngx_int_t ngx_http_kv_router_repair_last_entry(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r);
static ngx_int_t ngx_http_kv_router_repair_entry(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r);
static ngx_int_t ngx_http_kv_router_repair_finish(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r);


void
ngx_http_kv_router_repair_stop(ngx_http_kv_router_consumer_t *c)
{
    ngx_uint_t  i;

    ngx_http_kv_router_redis_close(&c->repairer);

    for (i = 0; i < NGX_HTTP_KV_ROUTER_REPAIRS; i++) {
        kvr_snapshot_destroy(c->repairs[i].snapshot);
        c->repairs[i].snapshot = NULL;

        ngx_http_kv_router_repair_free_page(&c->repairs[i]);
        c->repairs[i].state = ngx_http_kv_router_repair_free;
    }

    c->repair = NULL;
    c->nactive = 0;
    c->nwanted = 0;
    c->repaired = 0;
    c->unrepaired = 0;
}


/*
 * Called after a subscription, or when a lease was taken: messages that were
 * published before are only in the logs.
 */

void
ngx_http_kv_router_repair_shards(ngx_http_kv_router_consumer_t *c,
    uint64_t shards)
{
    uint32_t       i, n, flags;
    kvr_router_t  *k;

    if (!c->zone->redis->replay) {
        return;
    }

    k = &c->zone->router;
    n = ngx_min(kvr_router_workers(k), c->nslots);

    for (i = 0; i < n; i++) {

        flags = kvr_load32(&kvr_router_worker(k, i)->flags);

        if (!(flags & KVR_WORKER_USED) || (flags & KVR_WORKER_DELETED)
            || !(shards >> kvr_router_worker_shard(k, i) & 1))
        {
            continue;
        }

        ngx_http_kv_router_repair_want(c, &c->slots[i]);
    }
}


void
ngx_http_kv_router_repair_want(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_slot_t *slot)
{
    if (!c->zone->redis->replay) {
        return;
    }

    slot->look = 0;

    if (!slot->wanted) {
        slot->wanted = 1;
        c->nwanted++;
    }

    ngx_http_kv_router_consumer_wake(c);
}


ngx_int_t
ngx_http_kv_router_repair_run(ngx_http_kv_router_consumer_t *c)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i;
    ngx_http_kv_router_repair_t  *r;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_REPAIRS; i++) {

        /* begin with another repair each time */

        r = &c->repairs[(c->turn / 2 + i) % NGX_HTTP_KV_ROUTER_REPAIRS];

        if (r->state == ngx_http_kv_router_repair_free) {

            if (c->nwanted) {
                ngx_http_kv_router_repair_start(c, r);
            }

            if (r->state == ngx_http_kv_router_repair_free) {
                continue;
            }
        }

        rc = ngx_http_kv_router_repair_step(c, r);

        if (rc == NGX_DECLINED) {
            continue;
        }

        if (rc == NGX_OK) {
            c->repair = r;
        }

        return rc;
    }

    return NGX_DECLINED;
}


static void
ngx_http_kv_router_repair_start(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    size_t                      len;
    uint32_t                    flags, generation;
    kvr_rc_t                    rc;
    ngx_uint_t                  i;
    kvr_worker_conf_t           conf;
    ngx_http_kv_router_slot_t  *slot;

    for (i = 0; i < c->nslots; i++) {

        slot = &c->slots[i];

        if (!slot->wanted || slot->active) {
            continue;
        }

        rc = kvr_router_read_worker(&c->zone->router, i, &conf, &flags,
                                    &generation);
        if (rc == KVR_BUSY) {
            continue;
        }

        slot->wanted = 0;
        c->nwanted--;

        if (rc != KVR_OK || (flags & KVR_WORKER_DELETED)) {
            ngx_http_kv_router_message_unpark(c, slot);
            continue;
        }

        ngx_memzero(r, sizeof(ngx_http_kv_router_repair_t));

        r->consumer = c;

        len = ngx_strlen(conf.id);
        ngx_memcpy(r->id, conf.id, len);

        r->worker.len = len;
        r->worker.data = r->id;
        r->slot = i;
        r->count = NGX_HTTP_KV_ROUTER_PAGE;
        r->look = slot->look;
        r->state = ngx_http_kv_router_repair_begin;

        ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                       "kv_router zone \"%V\": repair of worker \"%V\" "
                       "starts%s", &c->zone->name, &r->worker,
                       r->look ? ", looking for a snapshot" : "");

        slot->active = 1;
        c->nactive++;

        if (!r->look) {
            (void) ngx_atomic_fetch_add(&c->zone->sh->repairs_started, 1);
        }

        /* connect only now: there may be nothing to repair for days */

        ngx_http_kv_router_redis_open(&c->repairer);

        return;
    }
}


static ngx_int_t
ngx_http_kv_router_repair_step(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_int_t     rc;
    kvr_cursor_t  cursor;

    switch (r->state) {

    case ngx_http_kv_router_repair_begin:

        if (r->look) {
            r->state = ngx_http_kv_router_repair_ask_pointer;
            return ngx_http_kv_router_log_ask(c, r);
        }

        ngx_http_kv_router_repair_cursor(c, r, &cursor);

        /* without envelopes, only the log shows the missing messages */

        if (cursor.epoch || c->slots[r->slot].missing.epoch) {
            rc = ngx_http_kv_router_repair_begin_worker(c, r);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        r->state = ngx_http_kv_router_repair_ask_last;

        /* fall through */

    case ngx_http_kv_router_repair_ask_last:
    case ngx_http_kv_router_repair_ask_page:
    case ngx_http_kv_router_repair_ask_pointer:
    case ngx_http_kv_router_repair_ask_part:
    case ngx_http_kv_router_repair_ask_new:
        return ngx_http_kv_router_log_ask(c, r);

    case ngx_http_kv_router_repair_last:
        return ngx_http_kv_router_repair_last_entry(c, r);

    case ngx_http_kv_router_repair_page:
        return ngx_http_kv_router_repair_entry(c, r);

    case ngx_http_kv_router_repair_pointer:
        return ngx_http_kv_router_snapshot_pointer(c, r);

    case ngx_http_kv_router_repair_load:
        return ngx_http_kv_router_snapshot_load(c, r);

    case ngx_http_kv_router_repair_part:
        return ngx_http_kv_router_snapshot_part(c, r);

    case ngx_http_kv_router_repair_swap:
        return ngx_http_kv_router_snapshot_swap(c, r);

    case ngx_http_kv_router_repair_new:
        ngx_http_kv_router_repair_free_page(r);
        r->state = ngx_http_kv_router_repair_end;

        /* fall through */

    case ngx_http_kv_router_repair_end:
        return ngx_http_kv_router_repair_finish(c, r);

    default:
        return NGX_DECLINED;
    }
}


void
ngx_http_kv_router_repair_cursor(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, kvr_cursor_t *cursor)
{
    if (kvr_ingest_cursor(c->ingest, (char *) r->worker.data, r->worker.len,
                          cursor)
        != KVR_OK)
    {
        ngx_memzero(cursor, sizeof(kvr_cursor_t));
    }
}


ngx_int_t
ngx_http_kv_router_repair_begin_worker(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_int_t  rc;

    if (r->begun) {
        return NGX_OK;
    }

    rc = ngx_http_kv_router_repair_rc(
             kvr_ingest_repair_begin(c->ingest, (char *) r->worker.data,
                                     r->worker.len));
    if (rc == NGX_OK) {
        r->begun = 1;
    }

    return rc;
}


static ngx_int_t
ngx_http_kv_router_repair_last_entry(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_int_t     rc;
    kvr_cursor_t  cursor;

    if (r->page->elements == 0
        || ngx_http_kv_router_log_entry(r->page->element[0], &r->last, NULL)
           != NGX_OK)
    {
        ngx_memzero(&r->last, sizeof(kvr_cursor_t));
    }

    ngx_http_kv_router_repair_cursor(c, r, &cursor);

    ngx_log_debug6(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\": its log "
                   "ends at %uL-%uL, its view is at %uL-%uL", &c->zone->name,
                   &r->worker, r->last.epoch, r->last.seq, cursor.epoch,
                   cursor.seq);

    if (ngx_http_kv_router_repair_behind(&cursor, &r->last)) {
        rc = ngx_http_kv_router_repair_begin_worker(c, r);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    /* the end of the log is known: a snapshot may be a shorter way to it */

    r->state = ngx_http_kv_router_repair_ask_pointer;

    ngx_http_kv_router_repair_free_page(r);

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_kv_router_repair_entry(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_int_t                   rc;
    ngx_str_t                   body;
    const char                 *detail;
    kvr_cursor_t                id;
    ngx_http_kv_router_slot_t  *slot;

    if (r->entry == r->page->elements) {

        ngx_log_debug5(NGX_LOG_DEBUG_HTTP, c->log, 0,
                       "kv_router zone \"%V\": repair of worker \"%V\": page "
                       "of %uz entries is read, up to %uL-%uL",
                       &c->zone->name, &r->worker, r->entry, r->last.epoch,
                       r->seq);

        if (r->aside && r->entry < r->count) {
            return ngx_http_kv_router_snapshot_give_up(c, r);
        }

        r->state = r->entry < r->count ? ngx_http_kv_router_repair_end
                                       : ngx_http_kv_router_repair_ask_page;

        ngx_http_kv_router_repair_free_page(r);

        return NGX_AGAIN;
    }

    slot = &c->slots[r->slot];

    if (ngx_http_kv_router_log_entry(r->page->element[r->entry], &id,
                                        &body)
        != NGX_OK)
    {
        ngx_http_kv_router_message_refused(c, slot, &r->worker,
                                           "not an entry of a log");
        r->entry++;
        return NGX_AGAIN;
    }

    if (id.epoch != r->last.epoch || id.seq <= r->seq) {
        r->entry++;
        return NGX_AGAIN;
    }

    if (r->aside) {
        return ngx_http_kv_router_snapshot_entry(c, r, &id, &body);
    }

    if (id.seq != r->seq + 1) {

        ngx_log_debug5(NGX_LOG_DEBUG_HTTP, c->log, 0,
                       "kv_router zone \"%V\": repair of worker \"%V\": its "
                       "log goes on with %uL, %uL is applied%s",
                       &c->zone->name, &r->worker, id.seq, r->seq,
                       r->given_up ? "" : ", a snapshot is needed");

        if (!r->given_up) {
            r->late = 1;
            r->state = ngx_http_kv_router_repair_ask_pointer;

            ngx_http_kv_router_repair_free_page(r);

            return NGX_AGAIN;
        }

        rc = ngx_http_kv_router_repair_lost(c, &r->worker, id.epoch,
                                            id.seq - 1);
        if (rc != NGX_OK) {
            return rc;
        }

        r->seq = id.seq - 1;
        r->failed = 1;
    }

    detail = NULL;

    switch (kvr_ingest_open(c->ingest, (char *) r->worker.data, r->worker.len,
                            body.data, body.len, 0, ngx_current_msec,
                            &detail))
    {
    case KVR_INGEST_APPLY:

        if (detail) {
            ngx_http_kv_router_message_refused(c, slot, &r->worker, detail);
        }

        return NGX_OK;

    case KVR_INGEST_BUSY:
        return NGX_BUSY;

    case KVR_INGEST_LOST:
        return NGX_ABORT;

    case KVR_INGEST_GAP:

        /* the log's entry before this one was refused */

        r->failed = 1;

        if (r->gap != id.seq) {
            rc = ngx_http_kv_router_repair_lost(c, &r->worker, id.epoch,
                                                id.seq - 1);
            if (rc == NGX_OK) {
                r->gap = id.seq;
                rc = NGX_AGAIN;
            }

            return rc;
        }

        detail = "no place in the stream";

        /* fall through */

    default: /* KVR_INGEST_DROP */

        if (detail) {
            ngx_http_kv_router_message_refused(c, slot, &r->worker, detail);
        }

        r->seq = id.seq;
        r->entry++;
        return NGX_AGAIN;
    }
}


size_t
ngx_http_kv_router_repair_applied(ngx_http_kv_router_consumer_t *c)
{
    ngx_str_t                     body;
    kvr_cursor_t                  id;
    ngx_http_kv_router_repair_t  *r;

    r = c->repair;
    c->repair = NULL;

    (void) ngx_http_kv_router_log_entry(r->page->element[r->entry], &id,
                                           &body);
    r->seq = id.seq;
    r->entry++;

    return body.len;
}


ngx_int_t
ngx_http_kv_router_repair_lost(ngx_http_kv_router_consumer_t *c,
    ngx_str_t *worker, uint64_t epoch, uint64_t seq)
{
    ngx_int_t  rc;

    rc = ngx_http_kv_router_repair_rc(
             kvr_ingest_repair_failed(c->ingest, (char *) worker->data,
                                      worker->len, epoch, seq));
    if (rc == NGX_OK) {
        ngx_log_error(NGX_LOG_WARN, c->log, 0,
                      "kv_router zone \"%V\": messages of worker \"%V\" up to "
                      "%uL-%uL are lost", &c->zone->name, worker, epoch, seq);
    }

    return rc;
}


static ngx_int_t
ngx_http_kv_router_repair_finish(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    ngx_int_t                   rc;
    kvr_cursor_t                cursor, *end;
    ngx_http_kv_router_slot_t  *slot;

    slot = &c->slots[r->slot];

    /* the snapshot aside is of no use without the log, which can't be read */

    if (r->snapshot) {
        kvr_snapshot_destroy(r->snapshot);
        r->snapshot = NULL;
        r->aside = 0;
    }

    ngx_http_kv_router_repair_cursor(c, r, &cursor);

    rc = NGX_OK;
    end = &cursor;

    if (ngx_http_kv_router_repair_behind(&cursor, &slot->missing)) {

        /* the missing messages are not in the log either: try a snapshot */

        if (!r->given_up) {
            r->late = 1;
            r->state = ngx_http_kv_router_repair_ask_pointer;
            return NGX_AGAIN;
        }

        end = &slot->missing;
        r->broken = 1;
    }

    if (r->broken && end->epoch) {
        rc = ngx_http_kv_router_repair_lost(c, &r->worker, end->epoch,
                                            end->seq);

    } else if (r->begun && !r->failed && !(slot->wanted && cursor.epoch)) {

        /*
         * a repair that is still wanted may find more messages missing, and
         * makes this call at its own end
         */

        rc = ngx_http_kv_router_repair_rc(
                 kvr_ingest_repair_end(c->ingest, (char *) r->worker.data,
                                       r->worker.len));
    }

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_memzero(&slot->missing, sizeof(kvr_cursor_t));

    if (r->broken) {
        r->broken = 0;
        r->failed = 1;
    }

    if (!r->asked && c->repairer.ready
        && ngx_http_kv_router_snapshot_wanted(c, r->slot))
    {
        r->asked = 1;
        r->state = ngx_http_kv_router_repair_ask_new;

        (void) ngx_atomic_fetch_add(&c->zone->sh->snapshots_asked, 1);

        return NGX_AGAIN;
    }

    ngx_http_kv_router_snapshot_later(c, r);

    if (r->look && !r->begun) {
        /*
         * a look that found nothing to repair is not counted: looks are
         * frequent
         */

    } else if (r->failed) {
        (void) ngx_atomic_fetch_add(&c->zone->sh->repairs_failed, 1);
        c->unrepaired++;

    } else {
        (void) ngx_atomic_fetch_add(&c->zone->sh->repairs_done, 1);
        c->repaired++;
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\" ends at "
                   "%uL-%uL%s", &c->zone->name, &r->worker, cursor.epoch,
                   cursor.seq, r->failed ? ", messages are lost" : "");

    slot->active = 0;

    ngx_http_kv_router_message_unpark(c, slot);

    r->state = ngx_http_kv_router_repair_free;
    c->nactive--;

    if (c->nactive == 0 && c->nwanted == 0 && c->repaired + c->unrepaired) {
        ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                      "kv_router zone \"%V\": repair of %ui workers finished, "
                      "%ui with messages lost", &c->zone->name,
                      c->repaired + c->unrepaired, c->unrepaired);

        c->repaired = 0;
        c->unrepaired = 0;
    }

    return NGX_AGAIN;
}


void
ngx_http_kv_router_repair_free_page(ngx_http_kv_router_repair_t *r)
{
    if (r->page) {
        freeReplyObject(r->page);
        r->page = NULL;
    }

    r->entry = 0;
}


ngx_int_t
ngx_http_kv_router_repair_rc(kvr_rc_t rc)
{
    switch (rc) {

    case KVR_BUSY:
        return NGX_BUSY;

    case KVR_LOST:
        return NGX_ABORT;

    default:

        /* a worker removed in the meantime needs no repair */

        return NGX_OK;
    }
}


ngx_int_t
ngx_http_kv_router_repair_behind(const kvr_cursor_t *a,
    const kvr_cursor_t *b)
{
    return a->epoch < b->epoch || (a->epoch == b->epoch && a->seq < b->seq);
}
