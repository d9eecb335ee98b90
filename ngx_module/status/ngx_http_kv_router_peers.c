
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The other routers of the group, as this one hears them.
 */


#include "ngx_http_kv_router_metrics.h"

#include <core/kvr_clock.h>


static const char  *ngx_http_kv_router_peer_states[] = {
    "fresh", "silent", "leaving"
};

#define NGX_HTTP_KV_ROUTER_PEER_STATES                                        \
    (sizeof(ngx_http_kv_router_peer_states) / sizeof(char *))


static const char *
ngx_http_kv_router_peer_state(const kvr_peer_t *peer)
{
    return ngx_http_kv_router_peer_states[
                       ngx_min(peer->state,
                               NGX_HTTP_KV_ROUTER_PEER_STATES - 1)];
}


void
ngx_http_kv_router_sync_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t     i, n;
    uint64_t     now;
    kvr_peer_t   peers[KVR_PEERS_MAX], *peer;

    if (zone->conf.redis == NULL) {
        return;
    }

    n = kvr_peers_read(&zone->run.router.peers, peers);
    now = kvr_now_us() / 1000;

    ngx_http_kv_router_gen_map(g, "sync");
    ngx_http_kv_router_gen_bool(g, "on", zone->conf.sync.on);
    ngx_http_kv_router_gen_u64(g, "routers", n + 1);
    ngx_http_kv_router_counters_json(zone, "sync", g);
    ngx_http_kv_router_gen_array(g, "peers");

    for (i = 0; i < n; i++) {
        peer = &peers[i];

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_str(g, "name", peer->name);
        ngx_http_kv_router_gen_str(g, "version", peer->version);
        ngx_http_kv_router_gen_str(g, "state",
                                   ngx_http_kv_router_peer_state(peer));
        ngx_http_kv_router_gen_decimal(g, "since",
                                       now - ngx_min(peer->since_ms, now), 3);
        ngx_http_kv_router_gen_decimal(g, "age",
                                       now - ngx_min(peer->heard_ms, now), 3);
        ngx_http_kv_router_gen_decimal(g, "lag", peer->lag_us, 6);
        ngx_http_kv_router_gen_decimal(g, "share",
                                       (uint64_t) peer->share * 10000
                                       / KVR_PEERS_SHARES, 4);
        ngx_http_kv_router_gen_u64(g, "active_requests", peer->active);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_sync_metrics(ngx_http_kv_router_metrics_t *s)
{
    uint32_t     i, n, lag, counts[NGX_HTTP_KV_ROUTER_PEER_STATES];
    ngx_uint_t   state;
    kvr_peer_t   peers[KVR_PEERS_MAX];

    if (s->zone->conf.redis == NULL) {
        return;
    }

    n = kvr_peers_read(&s->zone->run.router.peers, peers);
    lag = 0;
    ngx_memzero(counts, sizeof(counts));

    for (i = 0; i < n; i++) {
        lag = ngx_max(lag, peers[i].lag_us);
        counts[ngx_min(peers[i].state, NGX_HTTP_KV_ROUTER_PEER_STATES - 1)]++;
    }

    ngx_http_kv_router_metric(s, "peers", NULL, "Other routers of the group, "
                              "by state.");

    for (state = 0; state < NGX_HTTP_KV_ROUTER_PEER_STATES; state++) {
        ngx_http_kv_router_sample(s, NULL, "state",
                                  ngx_http_kv_router_peer_states[state],
                                  counts[state]);
    }

    ngx_http_kv_router_metric(s, "peers_lag_seconds", NULL, "Time that the "
                              "latest of the peers' news took.");
    ngx_http_kv_router_labels(s, "", NULL);
    ngx_http_kv_router_value(s, lag, 6);
}
