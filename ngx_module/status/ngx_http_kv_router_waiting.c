
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The queue of a zone, as JSON and as metrics: how many wait, since when, and
 * how many are served.  It is read without its lock, while processes change
 * it: numbers may be one move behind, and each index is checked.
 */


#include "../request/ngx_http_kv_router_queue.h"
#include "ngx_http_kv_router_metrics.h"

#include <core/kvr_clock.h>
#include <core/kvr_hash.h>
#include <core/kvr_words.h>

#include <stdlib.h>


#define NGX_HTTP_KV_ROUTER_SHOWN  20    /* tenants; the others are summed up */
#define NGX_HTTP_KV_ROUTER_KNOWN  8192  /* to be summed up over the pools */
#define NGX_HTTP_KV_ROUTER_TRIED  64    /* places for one of these */

/* classes by their places, the tenants that are shown, the others */
#define NGX_HTTP_KV_ROUTER_ROWS                                               \
    (KVR_RULES_CLASSES + NGX_HTTP_KV_ROUTER_SHOWN + 1)


typedef struct {
    uint64_t                        hash;      /* of a tenant's name; 0: of
                                                  the others */
    uint64_t                        waiting;
    uint64_t                        active;
    uint64_t                        service;   /* tokens by weight */
    uint64_t                        since_ms;  /* when the first that waits
                                                  came; 0: none waits */
} ngx_http_kv_router_waiters_t;

/* a class, or a tenant in all pools and classes */

typedef struct {
    ngx_http_kv_router_waiters_t    now;
    ngx_http_kv_router_class_t      counts;    /* of a class */
    ngx_str_t                       name;
    u_char                          hex[8];
    const ngx_http_kv_router_field_t  *fields; /* NULL: none is there */
} ngx_http_kv_router_waiting_t;

static struct {
    kvr_admit_t                     admit;
    ngx_http_kv_router_waiting_t    rows[NGX_HTTP_KV_ROUTER_ROWS];
    ngx_http_kv_router_waiters_t    all[NGX_HTTP_KV_ROUTER_KNOWN + 1];
                                               /* the last: the others */
} ngx_http_kv_router_queued;


#define row(type, field, key, metric, label, help)                            \
    { NULL, key, metric, label, help, offsetof(type, field),                  \
      sizeof(((type *) 0)->field) * 8 }
#define zone(field, key, metric, help)                                        \
    row(kvr_admit_zone_t, field, key, metric, NULL, help)
#define of(field, key, metric, help)                                          \
    row(ngx_http_kv_router_waiting_t, field, key, metric, NULL, help)
#define refused(id, name)                                                     \
    row(ngx_http_kv_router_waiting_t,                                         \
        counts.refused[NGX_HTTP_KV_ROUTER_REFUSED_##id], "refused_" name,     \
        "queue_refused_total", "why=\"" name "\"",                            \
        "Requests that were refused, or left while they waited."),
#define end  { NULL, NULL, NULL, NULL, NULL, 0, 0 }

static const ngx_http_kv_router_field_t  ngx_http_kv_router_queue_fields[] = {
    zone(limit, "limit", NULL, NULL),
    zone(turns, "turns", NULL, NULL),
    zone(long_turns, "long_turns", NULL, NULL),
    zone(lost, "lost_wakes", "queue_lost_wakes_total",
         "Requests whose process could not be told that they may go."),
    zone(rebuilt, "rebuilt", "queue_rebuilt_total",
         "Times that a process died while it had the lock of the queue."),
    end
};

static const ngx_http_kv_router_field_t  ngx_http_kv_router_class_fields[] = {
    of(now.waiting, "waiting", "queue_waiting", "Requests that wait."),
    of(now.active, "active", NULL, NULL),
    of(counts.requests, "requests", "queue_requests_total",
       "Requests that were served."),
    of(counts.tokens, "tokens", "queue_tokens_total",
       "Tokens that these have cost."),
    of(counts.would_wait, "would_wait", "queue_would_wait_total",
       "Requests that would have waited, by queue_mode=observe."),
    NGX_HTTP_KV_ROUTER_REFUSAL_LIST(refused)
    end
};

static const ngx_http_kv_router_field_t  ngx_http_kv_router_tenant_fields[] = {
    of(now.waiting, "waiting", "queue_tenant_waiting", "Requests that wait, "
       "of the 20 tenants with the most service, and of the others."),
    of(now.active, "active", "queue_tenant_active",
       "Requests that are served."),
    of(now.service, "service", "queue_tenant_service",
       "Tokens by weight, of which the tenant with the least goes first."),
    end
};

#undef row
#undef zone
#undef of
#undef refused
#undef end


/* ---- who waits ---------------------------------------------------------- */

static void
ngx_http_kv_router_waiters_add(ngx_http_kv_router_waiters_t *to,
    const ngx_http_kv_router_waiters_t *w)
{
    to->waiting += w->waiting;
    to->active += w->active;
    to->service += w->service;

    if (w->since_ms && (to->since_ms == 0 || w->since_ms < to->since_ms)) {
        to->since_ms = w->since_ms;
    }
}


/* Most service first; empty places are the last. */

static int
ngx_http_kv_router_waiters_sort(const void *one, const void *two)
{
    const ngx_http_kv_router_waiters_t  *a = one, *b = two;

    return a->hash == 0 || b->hash == 0
           ? (a->hash == 0) - (b->hash == 0)
           : (a->service < b->service) - (a->service > b->service);
}


/* Adds a tenant of a pool, or an empty place, to its class and its name. */

static void
ngx_http_kv_router_waiters_read(kvr_order_tenant_t t, ngx_uint_t shared)
{
    uint32_t                       i;
    const kvr_admit_t             *q = &ngx_http_kv_router_queued.admit;
    ngx_http_kv_router_waiters_t   w, *to, *all, *others;

    w.hash = shared ? 0 : t.hash;
    w.waiting = t.waiting;
    w.active = t.active;
    w.service = t.service > 0 ? (uint64_t) t.service : 0;
    w.since_ms = t.waiting && t.first < q->zone->nentries
                 ? kvr_load64(&q->entries[t.first].at_ms) : 0;

    all = ngx_http_kv_router_queued.all;
    others = &all[NGX_HTTP_KV_ROUTER_KNOWN];
    to = others;

    for (i = 0; to->hash != w.hash && i < NGX_HTTP_KV_ROUTER_TRIED; i++) {
        to = &all[(w.hash + i) % NGX_HTTP_KV_ROUTER_KNOWN];
        to->hash = to->hash ? to->hash : w.hash;
    }

    ngx_http_kv_router_waiters_add(to->hash == w.hash ? to : others, &w);
    ngx_http_kv_router_waiters_add(
        &ngx_http_kv_router_queued.rows[t.class % KVR_RULES_CLASSES].now, &w);
}


/* A tenant's name, if the configuration has it or it is "", else its hash. */

static void
ngx_http_kv_router_waiting_name(ngx_http_kv_router_queue_t *q,
    ngx_http_kv_router_waiting_t *w)
{
    ngx_uint_t  i;

    w->fields = ngx_http_kv_router_tenant_fields;
    w->name.data = w->hex;
    w->name.len = w->now.hash == kvr_hash_bytes("", 0, 0) ? 0
                  : ngx_sprintf(w->hex, "%08xD", (uint32_t) w->now.hash)
                    - w->hex;

    for (i = 0; q && i < KVR_RULES_TENANTS; i++) {
        if (q->tenants[i].hash == w->now.hash) {
            w->name = q->tenants[i].name;
        }
    }
}


/* NGX_DECLINED: the zone has no queue. */

static ngx_int_t
ngx_http_kv_router_waiting(ngx_http_kv_router_zone_t *zone)
{
    uint32_t                       i, k, n, hashed;
    kvr_admit_t                   *q = &ngx_http_kv_router_queued.admit;
    ngx_http_kv_router_waiters_t  *all = ngx_http_kv_router_queued.all;
    ngx_http_kv_router_waiting_t  *w;

    if (zone->run.sh->queue == NULL) {
        return NGX_DECLINED;
    }

    ngx_memzero(&ngx_http_kv_router_queued, sizeof(ngx_http_kv_router_queued));
    kvr_admit_attach(q, zone->run.sh->queue);

    n = kvr_order_tenants(&q->zone->order);
    hashed = n - KVR_ORDER_TENANTS;

    for (k = 0; k < KVR_ADMIT_POOLS; k++) {
        for (i = 0; kvr_load32(&q->orders[k].zone->formatted) && i < n; i++) {
            ngx_http_kv_router_waiters_read(q->orders[k].tenants[i],
                         i < hashed && i >= hashed - q->zone->order.nclasses);
        }
    }

    qsort(all, NGX_HTTP_KV_ROUTER_KNOWN, sizeof(*all),
          ngx_http_kv_router_waiters_sort);

    for (i = 0; i < KVR_RULES_CLASSES; i++) {
        w = &ngx_http_kv_router_queued.rows[i];
        w->counts = zone->run.sh->classes[i];
        w->name.data = w->counts.name;
        w->name.len = ngx_strnlen(w->counts.name, sizeof(w->counts.name));
        w->fields = w->name.len ? ngx_http_kv_router_class_fields : NULL;
    }

    for (i = 0, w++; all[i].hash && i < NGX_HTTP_KV_ROUTER_SHOWN; i++, w++) {
        w->now = all[i];
        ngx_http_kv_router_waiting_name(zone->run.queue, w);
    }

    w->fields = ngx_http_kv_router_tenant_fields;
    ngx_str_set(&w->name, "other");

    for ( /* void */ ; i <= NGX_HTTP_KV_ROUTER_KNOWN; i++) {
        ngx_http_kv_router_waiters_add(&w->now, &all[i]);
    }

    return NGX_OK;
}


/* ---- JSON and metrics --------------------------------------------------- */

void
ngx_http_kv_router_queue_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    int64_t                        age;
    ngx_uint_t                     i;
    ngx_http_kv_router_waiting_t  *w;

    if (ngx_http_kv_router_waiting(zone) != NGX_OK) {
        return;
    }

    ngx_http_kv_router_gen_map(g, "queue");
    ngx_http_kv_router_gen_bool(g, "observe", zone->conf.queue.observe);
    ngx_http_kv_router_fields_json(ngx_http_kv_router_queue_fields,
                                   ngx_http_kv_router_queued.admit.zone, g);
    ngx_http_kv_router_gen_array(g, "classes");

    for (i = 0; i < NGX_HTTP_KV_ROUTER_ROWS; i++) {
        w = &ngx_http_kv_router_queued.rows[i];

        if (i == KVR_RULES_CLASSES) {
            yajl_gen_array_close(g);
            ngx_http_kv_router_gen_array(g, "tenants");
        }

        if (w->fields == NULL) {
            continue;
        }

        age = kvr_now_us() / 1000 - w->now.since_ms;

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_text(g, "name", w->name.data, w->name.len);
        ngx_http_kv_router_gen_ms(g, "oldest",
                                  w->now.since_ms ? ngx_max(age, 0) : -1);
        ngx_http_kv_router_fields_json(w->fields, w, g);

        if (i < KVR_RULES_CLASSES) {
            ngx_http_kv_router_histogram_json("wait", KVR_TIME_WAIT,
                                              &w->counts.wait, g);
        }

        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


/* Metrics of all rows that have these fields; key: the name of their label. */

static void
ngx_http_kv_router_waiting_metrics(ngx_http_kv_router_metrics_t *s,
    const char *key, const ngx_http_kv_router_field_t *fields)
{
    ngx_uint_t                         i;
    ngx_http_kv_router_waiting_t      *w;
    const ngx_http_kv_router_field_t  *f;

    s->key = key;

    for (f = fields; f->key; f++) {
        for (i = 0; f->metric && i < NGX_HTTP_KV_ROUTER_ROWS; i++) {
            w = &ngx_http_kv_router_queued.rows[i];
            s->of = &w->name;

            if (w->fields == fields) {
                ngx_http_kv_router_metric(s, f->metric, NULL, f->help);
                ngx_http_kv_router_labels(s, "", NULL);
                ngx_http_kv_router_field_sample(s, f, w);
            }
        }
    }
}


void
ngx_http_kv_router_queue_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                     i;
    ngx_http_kv_router_waiting_t  *w;

    if (ngx_http_kv_router_waiting(s->zone) != NGX_OK) {
        return;
    }

    ngx_http_kv_router_fields_metrics(s, ngx_http_kv_router_queue_fields,
                                      ngx_http_kv_router_queued.admit.zone);
    ngx_http_kv_router_waiting_metrics(s, "tenant",
                                       ngx_http_kv_router_tenant_fields);
    ngx_http_kv_router_waiting_metrics(s, "class",
                                       ngx_http_kv_router_class_fields);

    for (i = 0; i < KVR_RULES_CLASSES; i++) {
        w = &ngx_http_kv_router_queued.rows[i];
        s->of = &w->name;

        if (w->fields) {
            ngx_http_kv_router_metric(s, "queue_wait_seconds", "histogram",
                                      "Time that requests waited.");
            ngx_http_kv_router_histogram_metric(s, NULL, KVR_TIME_WAIT,
                                                &w->counts.wait);
        }
    }

    s->key = NULL;
}
