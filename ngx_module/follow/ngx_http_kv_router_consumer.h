/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The consumer of a zone's events, in a process that has leases of shards.
 *
 *     subscriber ──► messages ──► kvr_ingest ──► zone
 *                       │  ▲           ▲
 *             a gap,    ▼  │ repaired  │ entries of pages
 *             in repair: parked        │
 *     repairer   ──► XREVRANGE, XRANGE of kv-log:{worker}
 *                    HMGET of kv-snap:{worker}, its parts ──► kvr_snapshot
 *
 * Messages of a worker in repair are parked until the log was read to its
 * end; then those that the log held are duplicates, and the rest follows
 * without a gap, since the log is written together with the publication.
 *
 * If the log does not reach back, or nothing is known of the worker, the
 * newest snapshot is loaded first.  If there is none, the view is kept,
 * DEGRADED, and a new snapshot is asked for, and looked for again and again.
 *
 * One message at a time is open in kvr_ingest, and is applied in slices, a
 * slice in each turn of the event loop: of as many blocks as take 0.3 ms, by
 * what the last ones took, and of kv_router_event_batch at most.
 *
 * SHARDS.  Each has a lease.  All consumers subscribe to the same channels;
 * messages of workers whose shard is another process's are dropped by the
 * channel's name, before anything of them is read.  A process takes a first
 * lease at once, and further ones the later the more it has, so that they
 * are spread over all processes.  A process that loses a lease, which happens
 * if it was stopped, drops all that waits, and starts again with the leases
 * that it still has.
 */


#ifndef _NGX_HTTP_KV_ROUTER_CONSUMER_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_CONSUMER_H_INCLUDED_


#include "ngx_http_kv_router_members.h"

#include <follow/kvr_snapshot.h>


/* maximum of workers in repair at a time, EVENTS.md section 7, rule 9 */
#define NGX_HTTP_KV_ROUTER_REPAIRS  4


typedef struct {
    ngx_queue_t                     queue;
    redisReply                     *reply;
    ngx_str_t                       worker;    /* in the reply */
    ngx_str_t                       body;      /* in the reply */
    ngx_uint_t                      gaps;      /* times it met a gap */
} ngx_http_kv_router_message_t;


/* a worker, by its number in the zone */

typedef struct {
    ngx_queue_t                     parked;    /* …_message_t */
    kvr_cursor_t                    missing;   /* the gap goes up to here */
    const char                     *detail;    /* last refusal logged */
    kvr_cursor_t                    useless;   /* snapshot that failed */
    ngx_msec_t                      again;     /* look for a snapshot; or 0 */
    ngx_msec_t                      delay;     /* before the next look */
    ngx_uint_t                      logged;    /* troubles, a bit each */
    unsigned                        wanted:1;  /* a repair */
    unsigned                        look:1;    /* only for a snapshot */
    unsigned                        active:1;  /* in repair */
    unsigned                        unheard:1; /* logged */
    unsigned                        dropped:2; /* 0-2: how often the loss must
                                                  still be recorded in the
                                                  zone (now, and behind the
                                                  queue) */
} ngx_http_kv_router_slot_t;


typedef enum {
    ngx_http_kv_router_repair_free = 0,
    ngx_http_kv_router_repair_begin,
    ngx_http_kv_router_repair_ask_last,
    ngx_http_kv_router_repair_wait_last,
    ngx_http_kv_router_repair_last,
    ngx_http_kv_router_repair_ask_page,
    ngx_http_kv_router_repair_wait_page,
    ngx_http_kv_router_repair_page,
    ngx_http_kv_router_repair_ask_pointer,
    ngx_http_kv_router_repair_wait_pointer,
    ngx_http_kv_router_repair_pointer,
    ngx_http_kv_router_repair_load,
    ngx_http_kv_router_repair_ask_part,
    ngx_http_kv_router_repair_wait_part,
    ngx_http_kv_router_repair_part,
    ngx_http_kv_router_repair_swap,
    ngx_http_kv_router_repair_ask_new,
    ngx_http_kv_router_repair_wait_new,
    ngx_http_kv_router_repair_new,
    ngx_http_kv_router_repair_end
} ngx_http_kv_router_repair_state_e;


typedef struct {
    ngx_http_kv_router_consumer_t  *consumer;

    ngx_http_kv_router_repair_state_e  state;

    uint32_t                        slot;
    ngx_str_t                       worker;
    u_char                          id[KVR_WORKER_ID_MAX + 1];

    kvr_cursor_t                    last;      /* of the log */
    uint64_t                        seq;       /* applied, of last.epoch */
    uint64_t                        gap;       /* entry that met a gap */

    redisReply                     *page;
    size_t                          entry;     /* the next one of the page */
    ngx_uint_t                      count;     /* entries asked for */

    ngx_msec_t                      after;     /* when to ask again */
    ngx_uint_t                      errors;

    kvr_snapshot_t                 *snapshot;  /* being loaded */
    kvr_snapshot_head_t             head;      /* of the pointer */
    ngx_uint_t                      parts;
    ngx_uint_t                      part;      /* the next one */
    ngx_uint_t                      looks;     /* at the pointer */

    unsigned                        begun:1;
    unsigned                        look:1;    /* only for a snapshot */
    unsigned                        late:1;    /* the log begins too late */
    unsigned                        given_up:1;/* no snapshot helps */
    unsigned                        open:1;    /* in snapshot: a part */
    unsigned                        aside:1;   /* entries go to snapshot */
    unsigned                        asked:1;   /* for a new one */
    unsigned                        failed:1;  /* messages are lost */
    unsigned                        broken:1;  /* the log can't be read */
    unsigned                        skip:1;    /* the entry is too big */
} ngx_http_kv_router_repair_t;


struct ngx_http_kv_router_consumer_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_log_t                      *log;

    ngx_event_t                     lease;     /* timer */
    ngx_event_t                     work;      /* posted */
    ngx_event_t                     busy;      /* timer, instead of work */
    ngx_connection_t                dummy;     /* of the timers */
    ngx_msec_t                      started;
    ngx_msec_t                      watched;   /* last */

    kvr_tell_t                      tell;
    ngx_http_kv_router_redis_t      subscriber;
    ngx_http_kv_router_redis_t      repairer;
    ngx_http_kv_router_members_t    members;

    uint64_t                        leased;    /* shards, a bit each */
    uint64_t                        not_syncing;
                                               /* shards, a bit each: their
                                                  workers must still be made
                                                  SYNCING after a takeover */

    /* with a lease only */

    kvr_ingest_t                   *ingest;
    ngx_http_kv_router_message_t   *message;   /* open in ingest, */
    ngx_http_kv_router_repair_t    *repair;    /* or NULL: an entry is */

    ngx_queue_t                     messages;  /* …_message_t */
    size_t                          bytes;     /* queued and parked */
    ngx_uint_t                      count;

    ngx_http_kv_router_slot_t      *slots;
    ngx_uint_t                      nslots;
    const char                     *detail;    /* of workers without slot */

    ngx_http_kv_router_repair_t     repairs[NGX_HTTP_KV_ROUTER_REPAIRS];
    ngx_uint_t                      nactive;
    ngx_uint_t                      nwanted;
    ngx_uint_t                      turn;
    ngx_uint_t                      pace;      /* blocks of a turn */
    ngx_uint_t                      looked;    /* slots, up to this one */
    ngx_uint_t                      repaired;  /* since last logged */
    ngx_uint_t                      unrepaired;

    unsigned                        up:1;      /* subscribed */
    unsigned                        full:1;    /* logged: queue full */
    unsigned                        dropped:2; /* the most of any slot */
    unsigned                        unmatched:1;/* logged: no match */
};


/* leases: handler of the timer */

void ngx_http_kv_router_lease_handler(ngx_event_t *ev);


/* consumer */

/* with the first lease; NGX_ERROR: no memory */
ngx_int_t ngx_http_kv_router_consumer_begin(ngx_http_kv_router_consumer_t *c);

/* a lease was lost: drops all that waits, because it must not be applied */
void ngx_http_kv_router_consumer_lost(ngx_http_kv_router_consumer_t *c);

/*
 * Sets in the zone, for each shard with a lease here, whether its events are
 * received.  After a takeover the shard's workers are made SYNCING first.
 */
void ngx_http_kv_router_consumer_say(ngx_http_kv_router_consumer_t *c);

/* there is work: run in the next turn of the event loop */
void ngx_http_kv_router_consumer_wake(ngx_http_kv_router_consumer_t *c);

/* NULL: not a worker of the zone */
ngx_http_kv_router_slot_t *ngx_http_kv_router_consumer_slot(
    ngx_http_kv_router_consumer_t *c, ngx_str_t *worker);


/* messages */

/* queues a reply, which is a message; NGX_DECLINED: it was dropped */
ngx_int_t ngx_http_kv_router_message_push(ngx_http_kv_router_consumer_t *c,
    redisReply *reply);

/*
 * Records in the zone the loss of messages, for workers with dropped >= times;
 * NGX_OK, NGX_BUSY or NGX_ABORT.  A loss is recorded twice: at once, and
 * behind the messages queued before it, for these may make the worker EXACT
 * again.
 */
ngx_int_t ngx_http_kv_router_message_dropped(ngx_http_kv_router_consumer_t *c,
    ngx_uint_t times);

/* puts messages that waited for a repair before all others */
void ngx_http_kv_router_message_unpark(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_slot_t *slot);

/* counts a message of which all is refused; logs each reason once */
void ngx_http_kv_router_message_refused(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_slot_t *slot, ngx_str_t *worker, const char *detail);

/* frees a message, which must be in no queue, with its reply */
void ngx_http_kv_router_message_free(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_message_t *m);


/* repair */

void ngx_http_kv_router_repair_stop(ngx_http_kv_router_consumer_t *c);

/* asks the logs of all workers of these shards */
void ngx_http_kv_router_repair_shards(ngx_http_kv_router_consumer_t *c,
    uint64_t shards);

void ngx_http_kv_router_repair_want(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_slot_t *slot);

/*
 * Goes on with one of the repairs.  NGX_OK: an entry is open, c->repair is
 * set; NGX_AGAIN: call again at once; NGX_DONE: call again in the next turn;
 * NGX_DECLINED: nothing to do now; NGX_BUSY: the zone's lock is taken;
 * NGX_ABORT: the lease is lost.
 */
ngx_int_t ngx_http_kv_router_repair_run(ngx_http_kv_router_consumer_t *c);

/* the entry of c->repair was applied; returns its size in bytes */
size_t ngx_http_kv_router_repair_applied(ngx_http_kv_router_consumer_t *c);

/* goes on behind messages that are lost; NGX_OK, NGX_BUSY or NGX_ABORT */
ngx_int_t ngx_http_kv_router_repair_lost(ngx_http_kv_router_consumer_t *c,
    ngx_str_t *worker, uint64_t epoch, uint64_t seq);


void ngx_http_kv_router_repair_cursor(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, kvr_cursor_t *cursor);

/* the worker is SYNCING from now on; NGX_OK, NGX_BUSY or NGX_ABORT */
ngx_int_t ngx_http_kv_router_repair_begin_worker(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_repair_t *r);

void ngx_http_kv_router_repair_free_page(ngx_http_kv_router_repair_t *r);
ngx_int_t ngx_http_kv_router_repair_rc(kvr_rc_t rc);
ngx_int_t ngx_http_kv_router_repair_behind(const kvr_cursor_t *a,
    const kvr_cursor_t *b);


/* snapshots: a repair's states from pointer on; return as repair_run() */

ngx_int_t ngx_http_kv_router_snapshot_pointer(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);
ngx_int_t ngx_http_kv_router_snapshot_load(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);
ngx_int_t ngx_http_kv_router_snapshot_part(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);
ngx_int_t ngx_http_kv_router_snapshot_swap(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);

/* an entry of the log that comes before the swap */
ngx_int_t ngx_http_kv_router_snapshot_entry(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, kvr_cursor_t *id, ngx_str_t *body);

/* goes on without the snapshot, with the log */
ngx_int_t ngx_http_kv_router_snapshot_give_up(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);

/* starts repairs of workers whose views only a snapshot can complete */
void ngx_http_kv_router_snapshot_tick(ngx_http_kv_router_consumer_t *c);

/* after a repair: sets when to look for a snapshot again */
void ngx_http_kv_router_snapshot_later(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);

ngx_uint_t ngx_http_kv_router_snapshot_wanted(ngx_http_kv_router_consumer_t *c,
    ngx_uint_t slot);

/* errors with snapshots, each logged once for each kind and worker */

typedef enum {
    ngx_http_kv_router_trouble_pointer = 0,
    ngx_http_kv_router_trouble_read,
    ngx_http_kv_router_trouble_block_size,
    ngx_http_kv_router_trouble_part,
    ngx_http_kv_router_trouble_expired,
    ngx_http_kv_router_trouble_log,
    ngx_http_kv_router_trouble_ask
} ngx_http_kv_router_trouble_e;

void ngx_http_kv_router_snapshot_trouble(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r, ngx_http_kv_router_trouble_e kind,
    const char *detail);


/* log */

void ngx_http_kv_router_log_init(ngx_http_kv_router_consumer_t *c);

/*
 * Asks Redis for the last entry, a page, the pointer to the snapshot, a part
 * of it, or for a new one, according to the repair's state.  The state moves
 * on now, and again with the reply.  NGX_AGAIN: asked; NGX_DECLINED: not now;
 * NGX_BUSY; NGX_ABORT.
 */
ngx_int_t ngx_http_kv_router_log_ask(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r);

/* NGX_ERROR: not an entry of a log; body may be NULL */
ngx_int_t ngx_http_kv_router_log_entry(redisReply *entry, kvr_cursor_t *id,
    ngx_str_t *body);


#endif /* _NGX_HTTP_KV_ROUTER_CONSUMER_H_INCLUDED_ */
