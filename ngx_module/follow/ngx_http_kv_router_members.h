/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Members: the workers that Redis knows, EVENTS.md sections 2 and 7, rule 10.
 * Polled over a connection of their own by each process that has leases, for
 * the workers of its shards.
 *
 *     connected, or 2 s later
 *        │
 *        ▼                     for each id: HMGET kv-worker:{id}, PTTL
 *     SSCAN kv-workers ──► page ──► register, or ignore
 *        ▲                  │
 *        └──────────────────┘ until the cursor is 0
 *        │
 *        ▼
 *     workers of Redis that no page had: asked for in the same way
 *        │
 *        ▼
 *     workers that have neither are taken out, after Redis was connected
 *     long enough for their publishers to register
 *
 * A publisher renews its hash each second, and lets it expire when it dies:
 * then the id stays in the set, and the worker in the zone, STALE; unless it
 * fails its active checks as well, when it is taken out in the same way.
 */


#ifndef _NGX_HTTP_KV_ROUTER_MEMBERS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_MEMBERS_H_INCLUDED_


#include "ngx_http_kv_router_consumer.h"


/* of a registration, milliseconds */
#define NGX_HTTP_KV_ROUTER_TTL            15000

/* workers asked for at a time */
#define NGX_HTTP_KV_ROUTER_MEMBERS_ASKED  32

/* the maximum number of warnings that are remembered */
#define NGX_HTTP_KV_ROUTER_WARNINGS       1024


/* a worker of the zone, by its number */

typedef struct {
    uint32_t                        generation; /* of the worker asked for */
    uint32_t                        poll;       /* the last that found it */
    ngx_uint_t                      absences;   /* polls since then */
} ngx_http_kv_router_member_t;


/* two replies to come */

typedef struct {
    ngx_http_kv_router_members_t   *members;
    size_t                          len;
    u_char                          id[KVR_WORKER_ID_MAX + 1];
    redisReply                     *hash;
} ngx_http_kv_router_asked_t;


typedef struct {
    uint32_t                        id;        /* a hash of it */
    const char                     *text;
} ngx_http_kv_router_member_warning_t;


typedef enum {
    ngx_http_kv_router_members_idle = 0,
    ngx_http_kv_router_members_scan,           /* a page is to come */
    ngx_http_kv_router_members_page,
    ngx_http_kv_router_members_rest            /* workers in no page */
} ngx_http_kv_router_members_state_e;


struct ngx_http_kv_router_members_s {
    ngx_http_kv_router_consumer_t  *consumer;
    ngx_http_kv_router_redis_t      redis;
    ngx_event_t                     timer;
    ngx_connection_t                dummy;     /* of the timer */

    ngx_http_kv_router_members_state_e  state;
    uint32_t                        poll;      /* number of this one */
    ngx_msec_t                      begun;     /* this poll */
    ngx_msec_t                      since;     /* Redis has been there */

    redisReply                     *page;      /* of SSCAN */
    size_t                          next;      /* of it, or of the rest */
    ngx_uint_t                      ids;       /* of this poll */
    ngx_uint_t                      pages;     /* the same */

    ngx_http_kv_router_asked_t      asked[NGX_HTTP_KV_ROUTER_MEMBERS_ASKED];
    ngx_uint_t                      first;     /* of a ring */
    ngx_uint_t                      nasked;

    ngx_http_kv_router_member_t    *slots;     /* while it is open */
    ngx_uint_t                      nslots;
    uint32_t                        version;   /* of the zone, looked at */
    uint64_t                        shards;    /* of this poll */

    ngx_http_kv_router_member_warning_t
                          warnings[NGX_HTTP_KV_ROUTER_WARNINGS];

    unsigned                        failed:1;  /* this poll */
    unsigned                        logged:1;  /* polls fail */
};


/* polls */

/* starts polls; must be called after each subscription */
void ngx_http_kv_router_members_open(ngx_http_kv_router_consumer_t *c);
void ngx_http_kv_router_members_close(ngx_http_kv_router_consumer_t *c);

/* was Redis connected long enough to know that a worker is absent? */
ngx_uint_t ngx_http_kv_router_members_sure(ngx_http_kv_router_members_t *m);

/*
 * The poll failed: it can't find absent workers.  Logs the cause, once.  what:
 * the key.  Returns NGX_ERROR.
 */
ngx_int_t ngx_http_kv_router_members_fail(ngx_http_kv_router_members_t *m,
    char *what, redisReply *reply);

/*
 * Must be called now and then: polls soon if there are workers, or shards, for
 * which no poll asked yet.
 */
void ngx_http_kv_router_members_look(ngx_http_kv_router_consumer_t *c);


/* a member; NGX_ABORT: the lease is lost */

/* Redis has the worker: asked->hash, and ttl, milliseconds to live */
ngx_int_t ngx_http_kv_router_member_found(ngx_http_kv_router_members_t *m,
    ngx_http_kv_router_asked_t *asked, int64_t ttl);

/* the worker is no longer in Redis */
ngx_int_t ngx_http_kv_router_member_gone(ngx_http_kv_router_members_t *m,
    uint32_t slot);

/* NULL: not a worker of the zone */
ngx_http_kv_router_member_t *ngx_http_kv_router_member_slot(
    ngx_http_kv_router_members_t *m, u_char *id, size_t len);

/*
 * logs a warning about an id once; what == NULL: the cause has gone.  value:
 * the text that is wrong, or NULL
 */
void ngx_http_kv_router_member_warn(ngx_http_kv_router_members_t *m,
    u_char *id, size_t len, const char *what, const char *text,
    const redisReply *value);


#endif /* _NGX_HTTP_KV_ROUTER_MEMBERS_H_INCLUDED_ */
