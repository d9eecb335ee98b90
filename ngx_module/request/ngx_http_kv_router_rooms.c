
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Rooms: places of workers are given to requests that wait, of all processes,
 * and the processes of these requests are told.
 *
 * A worker is looked at when this process frees a place there, at the end of
 * the turn of the event loop.  While requests wait, one process looks at all
 * workers each 20 ms: for rooms that nobody frees, as those of a worker that
 * comes, and for datagrams that were lost.
 *
 * A process is told by a datagram with the numbers of its entries, at an
 * abstract address that has the router's random number in it.  Any other
 * datagram that comes there makes the process look at the states of its
 * entries, no more.
 */


#include "ngx_http_kv_router_route.h"

#include <core/kvr_clock.h>

#include <sys/un.h>


#define NGX_HTTP_KV_ROUTER_ROOMS_IDLE  500      /* ms, while none waits here */
#define NGX_HTTP_KV_ROUTER_ROOMS_TELL  (KVR_ADMIT_WAKES / 2)


/* A worker that is looked at for a pool. */

typedef struct {
    ngx_http_kv_router_queue_t     *q;
    ngx_http_kv_router_fleet_t     *fleet;
    ngx_http_kv_router_holder_t    *h;
    uint64_t                        key;       /* of the pool */
    ngx_http_kv_router_pool_t      *pool;
    ngx_uint_t                      pair;      /* a prefiller has room, too */
} ngx_http_kv_router_look_t;


static void ngx_http_kv_router_rooms_tell(ngx_http_kv_router_queue_t *q);


/* ---- has a worker room for a pool? -------------------------------------- */

/* The key of a pool: the hash of its model, 0: any, and the bits of roles. */

uint64_t
ngx_http_kv_router_pool_key(const ngx_str_t *model, uint32_t roles)
{
    uint64_t  hash;

    hash = model->len ? ngx_murmur_hash2(model->data, model->len) : 0;

    return hash << 8 | roles;
}


ngx_uint_t
ngx_http_kv_router_pool_serves(uint64_t key,
    const ngx_http_kv_router_holder_t *h)
{
    return (key & 1 << h->role)
           && (key >> 8 == 0 || h->model.len == 0
               || key >> 8 == ngx_murmur_hash2(h->model.data, h->model.len));
}


static ngx_uint_t
ngx_http_kv_router_rooms_member(uint64_t key,
    const ngx_http_kv_router_holder_t *h)
{
    return h->role != KVR_ROLE_PREFILL
           && ngx_http_kv_router_pool_serves(key, h);
}


/*
 * A request of a pair takes a place at a prefiller, too, if any can be used.
 * Each grant that is not used yet will take one of them.
 */

static ngx_uint_t
ngx_http_kv_router_rooms_pair(const ngx_http_kv_router_look_t *l)
{
    int64_t                       n;
    ngx_uint_t                    i, any;
    ngx_http_kv_router_zone_t    *zone;
    ngx_http_kv_router_holder_t  *h;

    if (!(l->key & 1 << KVR_ROLE_PREFILL) || l->h->role != KVR_ROLE_DECODE) {
        return 1;
    }

    zone = l->q->zone;

    for (i = 0, n = 0, any = 0; i < l->fleet->n; i++) {
        h = &l->fleet->holders[i];

        if (h->role == KVR_ROLE_PREFILL && h->holder == h->first
            && ngx_http_kv_router_pool_serves(l->key, h)
            && ngx_http_kv_router_holder_usable(zone, h, 0))
        {
            any = 1;
            n += !ngx_http_kv_router_bound_worker(zone, NULL, l->fleet, h, 1);
        }
    }

    return !any
           || n > ngx_http_kv_router_queue_granted(zone, NULL, NULL).requests;
}


/* Counts what the pool has. */

static ngx_http_kv_router_pool_t *
ngx_http_kv_router_rooms_pool(const ngx_http_kv_router_look_t *l,
    uint32_t pool)
{
    ngx_uint_t                    i, bound;
    ngx_http_kv_router_pool_t    *p;
    ngx_http_kv_router_holder_t  *h;

    p = &l->q->pools[pool];

    if (p->version == l->fleet->version && p->at == ngx_time()) {
        return p;
    }

    ngx_memzero(p, sizeof(ngx_http_kv_router_pool_t));
    p->version = l->fleet->version;
    p->at = ngx_time();

    for (i = 0, bound = 1; i < l->fleet->n; i++) {
        h = &l->fleet->holders[i];

        if (h->holder == h->first
            && ngx_http_kv_router_rooms_member(l->key, h))
        {
            p->workers++;
            p->healthy += ngx_http_kv_router_holder_usable(l->q->zone, h, 0);
            p->places += h->max_active;
            bound = bound && h->max_active;
        }
    }

    /* the last pool may be that of several models */

    p->places = bound && pool < KVR_ADMIT_POOLS - 1 ? p->places : 0;

    return p;
}


/*
 * If all workers are out by health, requests try them anyway.  A request that
 * comes may need no prefiller, as its policy has found: the room of prefillers
 * is for those that wait.
 */

static bool
ngx_http_kv_router_rooms_has(void *data, uint32_t worker)
{
    ngx_http_kv_router_look_t *l = data;

    ngx_http_kv_router_zone_t  *zone;

    zone = l->q->zone;

    l->pair = ngx_http_kv_router_rooms_pair(l);

    return ngx_http_kv_router_holder_usable(zone, l->h, l->pool->healthy == 0)
           && !ngx_http_kv_router_bound_worker(zone, NULL, l->fleet, l->h, 1)
           && !ngx_http_kv_router_bound_zone(zone, NULL, l->fleet);
}


/* A narrow request can use the workers that it names alone. */

static bool
ngx_http_kv_router_rooms_fits(void *data, const kvr_order_entry_t *e,
    uint32_t worker)
{
    ngx_http_kv_router_look_t *l = data;

    uint32_t  i;

    if (!l->pair || e->deadline_ms <= ngx_current_msec) {
        return false;
    }

    if (!e->narrow) {
        return ngx_http_kv_router_rooms_member(l->key, l->h);
    }

    for (i = 0; i < e->cost.nbest && i < KVR_ORDER_BEST; i++) {
        if (e->cost.best[i].worker == worker) {
            return true;
        }
    }

    return false;
}


kvr_rc_t
ngx_http_kv_router_room(ngx_http_kv_router_queue_t *q,
    ngx_http_kv_router_fleet_t *fleet, ngx_http_kv_router_holder_t *h,
    uint32_t pool, uint32_t mine, uint32_t *entry)
{
    kvr_rc_t                   rc;
    kvr_admit_worker_t         w;
    ngx_http_kv_router_look_t  l;

    l.q = q;
    l.fleet = fleet;
    l.h = h;
    l.key = kvr_load64(&q->admit.zone->pools[pool].key);
    l.pool = ngx_http_kv_router_rooms_pool(&l, pool);

    /* most looks end here, and need no lock */

    if (!ngx_http_kv_router_rooms_has(&l, h->first)
        || (mine == KVR_ADMIT_NONE && !l.pair))
    {
        return KVR_DECLINED;
    }

    w.pool = pool;
    w.worker = h->first;
    w.generation = h->generation;
    w.workers = l.pool->workers;
    w.places = l.pool->places;
    w.room = ngx_http_kv_router_rooms_has;
    w.fits = ngx_http_kv_router_rooms_fits;
    w.data = &l;

    rc = kvr_admit_room(&q->admit, &w, mine, ngx_current_msec, entry);

    if (q->admit.nwakes >= NGX_HTTP_KV_ROUTER_ROOMS_TELL) {
        ngx_http_kv_router_rooms_tell(q);

    } else if (q->admit.nwakes || q->admit.look) {
        ngx_post_event(&q->look, &ngx_posted_events);
    }

    return rc;
}


/* ---- looking ------------------------------------------------------------ */

static ngx_uint_t
ngx_http_kv_router_rooms_waiting(ngx_http_kv_router_queue_t *q)
{
    uint32_t  i, n;

    for (i = 0, n = 0; i < KVR_ADMIT_POOLS; i++) {
        n += kvr_admit_waiting(&q->admit, i);
    }

    return n;
}


/* Gives the places of a worker away. */

static void
ngx_http_kv_router_rooms_worker(ngx_http_kv_router_queue_t *q,
    ngx_http_kv_router_fleet_t *fleet, ngx_http_kv_router_holder_t *h)
{
    uint32_t  i, n, pool, entry;

    for (n = 0; n < KVR_ADMIT_POOLS && q->admit.zone->pools[n].key; n++) {
        /* void */
    }

    /* each pool is the first one in its turn */

    q->turn++;

    for (i = 0; i < n; i++) {
        pool = (i + q->turn) % n;

        while (kvr_admit_waiting(&q->admit, pool)
               && ngx_http_kv_router_room(q, fleet, h, pool, KVR_ADMIT_NONE,
                                          &entry)
                  == KVR_OK)
        {
            /* void */
        }
    }
}


void
ngx_http_kv_router_rooms_look(ngx_http_kv_router_queue_t *q)
{
    uint64_t                      granted;
    ngx_uint_t                    i, over;
    ngx_http_kv_router_fleet_t   *fleet;
    ngx_http_kv_router_holder_t  *h;

    fleet = ngx_http_kv_router_rooms_waiting(q)
            ? ngx_http_kv_router_fleet_get(q->zone) : NULL;
    if (fleet == NULL) {
        return;
    }

    granted = q->admit.zone->granted;
    over = ngx_http_kv_router_bound_zone(q->zone, NULL, fleet);

    for (i = 0; i < fleet->n && !over; i++) {
        h = &fleet->holders[i];

        if (h->holder == h->first && h->role != KVR_ROLE_PREFILL) {
            ngx_http_kv_router_rooms_worker(q, fleet, h);
        }

        if (granted != q->admit.zone->granted) {
            granted = q->admit.zone->granted;
            over = !ngx_http_kv_router_rooms_waiting(q)
                   || ngx_http_kv_router_bound_zone(q->zone, NULL, fleet);
        }
    }

    ngx_http_kv_router_fleet_put(fleet);
}


/* A place that is freed may be what requests at any worker wait for. */

static ngx_uint_t
ngx_http_kv_router_rooms_wide(ngx_http_kv_router_queue_t *q,
    ngx_http_kv_router_fleet_t *fleet)
{
    ngx_uint_t  i, index;

    if (q->nfreed > NGX_HTTP_KV_ROUTER_FREED || q->zone->conf.max_active) {
        return 1;
    }

    for (i = 0; i < q->nfreed; i++) {
        index = fleet->by_holder[q->freed[i]];

        if (index && fleet->holders[index - 1].role == KVR_ROLE_PREFILL) {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_kv_router_rooms_turn(ngx_event_t *ev)
{
    ngx_uint_t                   i, index;
    ngx_connection_t            *dummy;
    ngx_http_kv_router_queue_t  *q;
    ngx_http_kv_router_fleet_t  *fleet;

    dummy = ev->data;
    q = dummy->data;

    /* a request that begins to wait after this sees the places freed before */

    __atomic_thread_fence(__ATOMIC_SEQ_CST);

    fleet = ngx_http_kv_router_rooms_waiting(q)
            ? ngx_http_kv_router_fleet_get(q->zone) : NULL;

    if (fleet) {

        if (q->admit.look || ngx_http_kv_router_rooms_wide(q, fleet)) {
            q->admit.look = false;
            ngx_http_kv_router_rooms_look(q);

        } else {
            for (i = 0; i < q->nfreed; i++) {
                index = fleet->by_holder[q->freed[i]];

                if (index) {
                    ngx_http_kv_router_rooms_worker(q, fleet,
                                                &fleet->holders[index - 1]);
                }
            }
        }

        ngx_http_kv_router_fleet_put(fleet);
    }

    q->nfreed = 0;

    ngx_http_kv_router_rooms_tell(q);
}


/* ---- telling ------------------------------------------------------------ */

static socklen_t
ngx_http_kv_router_rooms_address(ngx_http_kv_router_queue_t *q,
    kvr_owner_t owner, struct sockaddr_un *sun)
{
    u_char  *p;

    ngx_memzero(sun, sizeof(struct sockaddr_un));

    sun->sun_family = AF_UNIX;

    p = ngx_sprintf((u_char *) sun->sun_path + 1, "kv-router-%016xL-%016xL",
                    q->zone->run.router.peers.zone->router, owner);

    return (socklen_t) (p - (u_char *) sun);
}


/* The request of an entry, if it waits in this process, looks at its state. */

static void
ngx_http_kv_router_rooms_wake(ngx_http_kv_router_queue_t *q, uint32_t entry)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = entry < q->admit.zone->nentries ? q->waiting[entry] : NULL;

    if (ctx && ngx_http_kv_router_queue_state(ctx) != KVR_ADMIT_WAITING) {
        (void) ctx->queue.post(ctx->queue.semaphore, 1);
    }
}


/* One datagram for each process. */

static void
ngx_http_kv_router_rooms_tell(ngx_http_kv_router_queue_t *q)
{
    uint32_t            i, k, n, entries[KVR_ADMIT_WAKES];
    socklen_t           len;
    kvr_owner_t         owner;
    struct sockaddr_un  sun;

    for (i = 0; i < q->admit.nwakes; i++) {
        owner = q->admit.wakes[i].owner;

        for (k = i, n = 0; k < q->admit.nwakes; k++) {

            if (owner && q->admit.wakes[k].owner == owner) {
                entries[n++] = q->admit.wakes[k].entry;
                q->admit.wakes[k].owner = 0;
            }
        }

        if (owner == q->admit.self) {
            for (k = 0; k < n; k++) {
                ngx_http_kv_router_rooms_wake(q, entries[k]);
            }

        } else if (n && q->socket) {
            len = ngx_http_kv_router_rooms_address(q, owner, &sun);

            /* if the process is not dead, a sweep tells it again */

            if (sendto(q->socket->fd, entries, n * sizeof(uint32_t),
                       MSG_DONTWAIT|MSG_NOSIGNAL, (struct sockaddr *) &sun,
                       len)
                == -1)
            {
                (void) __atomic_fetch_add(&q->admit.zone->lost, n,
                                          __ATOMIC_RELAXED);
            }
        }
    }

    q->admit.nwakes = 0;
}


static void
ngx_http_kv_router_rooms_read(ngx_event_t *ev)
{
    ssize_t                      n;
    uint32_t                     i, k, entries[KVR_ADMIT_WAKES];
    ngx_connection_t            *c;
    ngx_http_kv_router_queue_t  *q;

    c = ev->data;
    q = c->data;

    /* a flood of datagrams leaves time for requests */

    for (k = 0; k < NGX_HTTP_KV_ROUTER_ROOMS_TELL; k++) {
        n = recv(c->fd, entries, sizeof(entries), MSG_DONTWAIT);

        if (n == -1) {
            return;
        }

        for (i = 0; i < n / sizeof(uint32_t); i++) {
            ngx_http_kv_router_rooms_wake(q, entries[i]);
        }
    }
}


static ngx_int_t
ngx_http_kv_router_rooms_open(ngx_cycle_t *cycle,
    ngx_http_kv_router_queue_t *q)
{
    int                  fd;
    socklen_t            len;
    ngx_connection_t    *c;
    struct sockaddr_un   sun;

    fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);
    if (fd == -1) {
        return NGX_ERROR;
    }

    len = ngx_http_kv_router_rooms_address(q, q->admit.self, &sun);

    if (bind(fd, (struct sockaddr *) &sun, len) == -1) {
        goto failed;
    }

    c = ngx_get_connection(fd, cycle->log);
    if (c == NULL) {
        goto failed;
    }

    c->data = q;
    c->log = cycle->log;
    c->read->log = cycle->log;
    c->write->log = cycle->log;
    c->read->handler = ngx_http_kv_router_rooms_read;

    if (ngx_add_event(c->read, NGX_READ_EVENT, 0) != NGX_OK) {
        ngx_free_connection(c);
        goto failed;
    }

    q->socket = c;

    return NGX_OK;

failed:

    (void) ngx_close_socket(fd);

    return NGX_ERROR;
}


/* ---- the process -------------------------------------------------------- */

static void
ngx_http_kv_router_rooms_tick(ngx_event_t *ev)
{
    ngx_connection_t            *dummy;
    ngx_http_kv_router_queue_t  *q;

    dummy = ev->data;
    q = dummy->data;

    if (q->pending
        && ngx_current_msec - q->pending >= NGX_HTTP_KV_ROUTER_ROOMS_IDLE)
    {
        ngx_http_kv_router_queue_configure(q);
    }

    if (kvr_admit_sweep(&q->admit, ngx_current_msec) || q->admit.look) {
        q->admit.look = false;
        ngx_http_kv_router_rooms_look(q);
    }

    ngx_http_kv_router_rooms_tell(q);

    ngx_add_timer(ev, q->nwaiting ? KVR_ADMIT_SWEEP_MS
                                  : NGX_HTTP_KV_ROUTER_ROOMS_IDLE);
}


ngx_int_t
ngx_http_kv_router_queue_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_queue_t  *q;

    if (zone->run.sh->queue == NULL || zone->run.queue) {
        return NGX_OK;
    }

    q = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_queue_t));
    if (q == NULL) {
        return NGX_ERROR;
    }

    q->zone = zone;

    kvr_admit_attach(&q->admit, zone->run.sh->queue);
    q->admit.self = kvr_router_self(&zone->run.router);

    q->waiting = ngx_pcalloc(cycle->pool, q->admit.zone->nentries
                                          * sizeof(q->waiting[0]));
    if (q->waiting == NULL) {
        return NGX_ERROR;
    }

    ngx_http_kv_router_timer(&q->timer, &q->dummy,
                             ngx_http_kv_router_rooms_tick, q, cycle->log);
    ngx_http_kv_router_timer(&q->look, &q->dummy,
                             ngx_http_kv_router_rooms_turn, q, cycle->log);

    if (ngx_http_kv_router_rooms_open(cycle, q) != NGX_OK) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_socket_errno,
                      "kv_router zone \"%V\": no socket for the queue: "
                      "requests that wait are told by the timer, up to %d ms "
                      "late: see \"worker_connections\", \"ulimit -n\"",
                      &zone->conf.name, KVR_ADMIT_SWEEP_MS);
    }

    zone->run.queue = q;

    ngx_add_timer(&q->timer, NGX_HTTP_KV_ROUTER_ROOMS_IDLE);

    return NGX_OK;
}


void
ngx_http_kv_router_queue_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_queue_t  *q;

    q = zone->run.queue;

    if (q && q->socket) {
        ngx_close_connection(q->socket);
    }

    zone->run.queue = NULL;
}
