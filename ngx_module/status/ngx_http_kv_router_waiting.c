
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The queue of a zone, as JSON and as metrics: who waits, since when, and who
 * is served.  It is read without its lock, while processes change it: numbers
 * may be one move behind, and each index is checked.
 */


#include "../request/ngx_http_kv_router_queue.h"
#include "ngx_http_kv_router_metrics.h"

#include <core/kvr_clock.h>
#include <core/kvr_hash.h>
#include <core/kvr_words.h>

#include <stdlib.h>


#define NGX_HTTP_KV_ROUTER_SHOWN  20    /* tenants; the others are summed up */


/* a class, or a tenant in all pools and classes */

typedef struct {
    ngx_str_t                       name;      /* NULL: there is none */
    u_char                          hex[8];
    uint64_t                        hash;      /* of a tenant's name; 0: of the
                                                  others */
    uint64_t                        waiting;
    uint64_t                        active;
    uint64_t                        service;   /* tokens by weight */
    uint64_t                        since_ms;  /* when the first that waits
                                                  came; 0: none waits */
} ngx_http_kv_router_waiters_t;

typedef struct {
    kvr_admit_t                     admit;
    uint64_t                        looked;    /* of all pools */
    ngx_uint_t                      ntenants;
    ngx_http_kv_router_waiters_t    tenants[NGX_HTTP_KV_ROUTER_SHOWN + 1];
    ngx_http_kv_router_waiters_t    classes[KVR_RULES_CLASSES];
} ngx_http_kv_router_waiting_t;


static const char  *ngx_http_kv_router_refusals[] = {
    NGX_HTTP_KV_ROUTER_REFUSAL_LIST(NGX_HTTP_KV_ROUTER_REFUSAL_NAME)
};


#define row(type, field, key, metric, help)                                   \
    { NULL, key, metric, NULL, help, offsetof(type, field),                   \
      sizeof(((type *) 0)->field) * 8 }

#define end  { NULL, NULL, NULL, NULL, NULL, 0, 0 }

static const ngx_http_kv_router_field_t  ngx_http_kv_router_queue_fields[] = {
    row(kvr_admit_zone_t, limit, "limit", NULL, NULL),
    row(kvr_admit_zone_t, turns, "turns", NULL, NULL),
    row(kvr_admit_zone_t, long_turns, "long_turns", NULL, NULL),
    row(kvr_admit_zone_t, lost, "lost_wakes", "queue_lost_wakes_total",
        "Requests that had to be told twice that they may go, or may not."),
    row(kvr_admit_zone_t, rebuilt, "rebuilt", "queue_rebuilt_total",
        "Times that a process died while it had the lock of the queue."),
    end
};

static const ngx_http_kv_router_field_t  ngx_http_kv_router_waiting_fields[] =
{
    row(ngx_http_kv_router_waiters_t, waiting, "waiting", "queue_waiting",
        "Requests that wait for room, by class."),
    row(ngx_http_kv_router_waiters_t, active, "active", NULL, NULL),
    end
};

static const ngx_http_kv_router_field_t  ngx_http_kv_router_class_fields[] = {
    row(ngx_http_kv_router_class_t, requests, "requests",
        "queue_requests_total", "Requests that were served and have ended."),
    row(ngx_http_kv_router_class_t, tokens, "tokens", "queue_tokens_total",
        "Tokens that these have cost: uncached ones of their prompts, and "
        "those of their answers twice."),
    row(ngx_http_kv_router_class_t, would_wait, "would_wait",
        "queue_would_wait_total", "Requests that would have waited, by "
        "queue_mode=observe."),
    end
};

static const ngx_http_kv_router_field_t  ngx_http_kv_router_tenant_fields[] = {
    row(ngx_http_kv_router_waiters_t, waiting, "waiting",
        "queue_tenant_waiting", "Requests that wait for room, of the 20 "
        "tenants with the most service, and of the others."),
    row(ngx_http_kv_router_waiters_t, active, "active", "queue_tenant_active",
        "Requests that are served."),
    row(ngx_http_kv_router_waiters_t, service, "service",
        "queue_tenant_service", "Tokens by weight, of which the tenant with "
        "the least goes first."),
    end
};

#undef row
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


static int
ngx_http_kv_router_by_hash(const void *one, const void *two)
{
    const ngx_http_kv_router_waiters_t  *a = one, *b = two;

    return (a->hash > b->hash) - (a->hash < b->hash);
}


/* Most first; the others are last. */

static int
ngx_http_kv_router_by_service(const void *one, const void *two)
{
    const ngx_http_kv_router_waiters_t  *a = one, *b = two;

    return a->hash == 0 || b->hash == 0
           ? (a->hash == 0) - (b->hash == 0)
           : (a->service < b->service) - (a->service > b->service);
}


/* Reads the tenants of a pool, and counts for their classes; the end. */

static ngx_http_kv_router_waiters_t *
ngx_http_kv_router_waiting_pool(ngx_http_kv_router_waiting_t *v,
    const kvr_order_t *o, ngx_http_kv_router_waiters_t *w)
{
    double                     service;
    uint32_t                   i, n, class, first;
    const kvr_order_conf_t    *conf;
    const kvr_order_tenant_t  *t;

    if (!kvr_load32(&o->zone->formatted)) {
        return w;
    }

    v->looked += kvr_load64(&o->zone->looked);

    conf = &v->admit.zone->order;
    n = conf->nclasses * conf->nnamed;

    for (i = 0; i < kvr_order_tenants(conf); i++) {

        t = &o->tenants[i];
        class = kvr_load32(&t->class);
        w->hash = kvr_load64(&t->hash);

        if (w->hash == 0 || class >= KVR_RULES_CLASSES) {
            continue;
        }

        /* many share one */

        if (i >= n && i < n + conf->nclasses) {
            w->hash = 0;
        }

        w->waiting = kvr_load32(&t->waiting);
        w->active = kvr_load32(&t->active);

        service = *(const volatile double *) &t->service;
        w->service = service > 0 ? (uint64_t) service : 0;

        first = kvr_load32(&t->first);
        w->since_ms = w->waiting && first < v->admit.zone->nentries
                      ? kvr_load64(&v->admit.entries[first].at_ms) : 0;

        ngx_http_kv_router_waiters_add(&v->classes[class], w++);
    }

    return w;
}


/* The name, if the configuration has it or it is "", or else the hash. */

static void
ngx_http_kv_router_waiting_name(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_waiters_t *w)
{
    ngx_uint_t                              i;
    const ngx_http_kv_router_queue_name_t  *named;

    if (w->hash == 0) {
        ngx_str_set(&w->name, "other");
        return;
    }

    w->name.data = w->hex;
    w->name.len = ngx_sprintf(w->hex, "%08xD", (uint32_t) w->hash) - w->hex;

    if (w->hash == kvr_hash_bytes("", 0, 0)) {
        w->name.len = 0;
    }

    for (i = 0; zone->run.queue && i < KVR_RULES_TENANTS; i++) {
        named = &zone->run.queue->tenants[i];

        if (named->hash == w->hash) {
            w->name = named->name;
        }
    }
}


/* NGX_DECLINED: the zone has no queue. */

static ngx_int_t
ngx_http_kv_router_waiting(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_waiting_t *v)
{
    size_t                         size;
    ngx_str_t                     *name;
    ngx_uint_t                     i, n;
    ngx_http_kv_router_waiters_t  *all, *last, *w;

    if (zone->run.sh->queue == NULL) {
        return NGX_DECLINED;
    }

    ngx_memzero(v, sizeof(ngx_http_kv_router_waiting_t));
    kvr_admit_attach(&v->admit, zone->run.sh->queue);

    size = kvr_order_tenants(&v->admit.zone->order)
           * sizeof(ngx_http_kv_router_waiters_t);

    all = ngx_alloc(KVR_ADMIT_POOLS * size, ngx_cycle->log);
    if (all == NULL) {
        return NGX_ERROR;
    }

    for (last = all, i = 0; i < KVR_ADMIT_POOLS; i++) {
        last = ngx_http_kv_router_waiting_pool(v, &v->admit.orders[i], last);
    }

    /* a tenant once, for all pools and classes */

    qsort(all, last - all, sizeof(*all), ngx_http_kv_router_by_hash);

    for (n = 0, w = all; w < last; w++) {
        if (n && all[n - 1].hash == w->hash) {
            ngx_http_kv_router_waiters_add(&all[n - 1], w);

        } else {
            all[n++] = *w;
        }
    }

    qsort(all, n, sizeof(*all), ngx_http_kv_router_by_service);
    v->ntenants = ngx_min(n, NGX_HTTP_KV_ROUTER_SHOWN + 1);

    for (i = 0; i < n; i++) {
        w = &v->tenants[ngx_min(i, NGX_HTTP_KV_ROUTER_SHOWN)];
        ngx_http_kv_router_waiters_add(w, &all[i]);
        w->hash = i < NGX_HTTP_KV_ROUTER_SHOWN ? all[i].hash : 0;
        ngx_http_kv_router_waiting_name(zone, w);
    }

    ngx_free(all);

    for (i = 0; i < KVR_RULES_CLASSES; i++) {
        name = &v->classes[i].name;
        name->len = ngx_strnlen(zone->run.sh->classes[i].name,
                                NGX_HTTP_KV_ROUTER_CLASS_NAME);
        name->data = name->len ? zone->run.sh->classes[i].name : NULL;
    }

    return NGX_OK;
}


/* ---- JSON --------------------------------------------------------------- */

static void
ngx_http_kv_router_waiters_json(const ngx_http_kv_router_waiters_t *w,
    const ngx_http_kv_router_field_t *f, yajl_gen g)
{
    uint64_t  now;

    now = kvr_now_us() / 1000;

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_text(g, "name", w->name.data, w->name.len);
    ngx_http_kv_router_fields_json(f, w, g);
    ngx_http_kv_router_gen_ms(g, "oldest", w->since_ms == 0 ? -1
                              : (int64_t) (now - ngx_min(w->since_ms, now)));
}


void
ngx_http_kv_router_queue_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    ngx_uint_t                         i, why;
    const ngx_http_kv_router_class_t  *class;
    ngx_http_kv_router_waiting_t       v;

    if (ngx_http_kv_router_waiting(zone, &v) != NGX_OK) {
        return;
    }

    ngx_http_kv_router_gen_map(g, "queue");
    ngx_http_kv_router_gen_bool(g, "observe", zone->conf.queue.observe);
    ngx_http_kv_router_fields_json(ngx_http_kv_router_queue_fields,
                                   v.admit.zone, g);
    ngx_http_kv_router_gen_u64(g, "looked", v.looked);

    ngx_http_kv_router_gen_array(g, "classes");

    for (i = 0; i < KVR_RULES_CLASSES; i++) {

        if (v.classes[i].name.data == NULL) {
            continue;
        }

        class = &zone->run.sh->classes[i];

        ngx_http_kv_router_waiters_json(&v.classes[i],
                                        ngx_http_kv_router_waiting_fields, g);
        ngx_http_kv_router_fields_json(ngx_http_kv_router_class_fields, class,
                                       g);
        ngx_http_kv_router_gen_map(g, "refused");

        for (why = 0; why < NGX_HTTP_KV_ROUTER_REFUSALS; why++) {
            ngx_http_kv_router_gen_u64(g, ngx_http_kv_router_refusals[why],
                                       class->refused[why]);
        }

        yajl_gen_map_close(g);
        ngx_http_kv_router_histogram_json("wait", KVR_TIME_WAIT, &class->wait,
                                          g);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
    ngx_http_kv_router_gen_array(g, "tenants");

    for (i = 0; i < v.ntenants; i++) {
        ngx_http_kv_router_waiters_json(&v.tenants[i],
                                        ngx_http_kv_router_tenant_fields, g);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


/* ---- metrics ------------------------------------------------------------ */

/* Fields of n structures, each with the label of its waiters. */

static void
ngx_http_kv_router_waiting_metrics(ngx_http_kv_router_metrics_t *s,
    ngx_http_kv_router_waiters_t *w, ngx_uint_t n,
    const ngx_http_kv_router_field_t *f, const void *base, size_t size)
{
    ngx_uint_t  i;

    for ( /* void */ ; f->key; f++) {

        for (i = 0; f->metric && i < n; i++) {

            ngx_http_kv_router_metric(s, f->metric, NULL, f->help);

            if (w[i].name.data) {
                s->of = &w[i].name;
                ngx_http_kv_router_sample(s, NULL, NULL, NULL,
                     ngx_http_kv_router_field(f, (u_char *) base + i * size));
            }
        }
    }
}


void
ngx_http_kv_router_queue_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                     i, why;
    ngx_http_kv_router_waiters_t  *w, none = { .name = ngx_string("") };
    ngx_http_kv_router_waiting_t   v;
    ngx_http_kv_router_class_t    *classes;

    if (ngx_http_kv_router_waiting(s->zone, &v) != NGX_OK) {
        return;
    }

    classes = s->zone->run.sh->classes;
    w = v.classes;

    ngx_http_kv_router_waiting_metrics(s, &none, 1,
                        ngx_http_kv_router_queue_fields, v.admit.zone, 0);

    s->key = "class";
    ngx_http_kv_router_waiting_metrics(s, w, KVR_RULES_CLASSES,
                        ngx_http_kv_router_waiting_fields, w, sizeof(*w));
    ngx_http_kv_router_waiting_metrics(s, w, KVR_RULES_CLASSES,
                        ngx_http_kv_router_class_fields, classes,
                        sizeof(*classes));

    ngx_http_kv_router_metric(s, "queue_refused_total", NULL, "Requests that "
                              "were refused, or that left while they waited.");

    for (i = 0; i < KVR_RULES_CLASSES; i++) {
        s->of = &w[i].name;

        for (why = 0; w[i].name.data && why < NGX_HTTP_KV_ROUTER_REFUSALS;
             why++)
        {
            ngx_http_kv_router_sample(s, NULL, "why",
                                      ngx_http_kv_router_refusals[why],
                                      classes[i].refused[why]);
        }
    }

    ngx_http_kv_router_metric(s, "queue_wait_seconds", "histogram", "Time "
                              "that requests waited for room; of those that "
                              "were refused in the end, too.");

    for (i = 0; i < KVR_RULES_CLASSES; i++) {
        if (w[i].name.data) {
            s->of = &w[i].name;
            ngx_http_kv_router_histogram_metric(s, NULL, KVR_TIME_WAIT,
                                                &classes[i].wait);
        }
    }

    s->key = "tenant";
    ngx_http_kv_router_waiting_metrics(s, v.tenants, v.ntenants,
                        ngx_http_kv_router_tenant_fields, v.tenants,
                        sizeof(*w));
    s->key = NULL;
}
