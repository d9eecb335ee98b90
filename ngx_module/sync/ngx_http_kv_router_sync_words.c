
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the log is told of peers, once each: who came and who went.
 */


#include "ngx_http_kv_router_sync.h"


static const kvr_peer_t *
ngx_http_kv_router_sync_peer(const kvr_peer_t *peers, uint32_t n,
    uint64_t router)
{
    uint32_t  i;

    for (i = 0; i < n && peers[i].router != router; i++) { /* void */ }

    return i < n ? &peers[i] : NULL;
}


/*
 * A peer has no name until it tells about itself.  What a channel says makes
 * a line for each peer and look at most, however much it says.
 */

void
ngx_http_kv_router_sync_look(ngx_http_kv_router_sync_t *s)
{
    uint32_t           i, n;
    kvr_peer_t         now[KVR_PEERS_MAX];
    const kvr_peer_t  *peer, *was;

    n = kvr_peers_read(&s->zone->run.router.peers, now);

    for (i = 0; i < s->npeers; i++) {
        peer = &s->peers[i];

        if (peer->name[0]
            && ngx_http_kv_router_sync_peer(now, n, peer->router) == NULL)
        {
            ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                                    "peer \"%s\" is gone: %uD router%s the "
                                    "load", peer->name, n + 1,
                                    n ? "s share" : " has");
        }
    }

    for (i = 0; i < n; i++) {
        peer = &now[i];
        was = ngx_http_kv_router_sync_peer(s->peers, s->npeers, peer->router);

        if (peer->name[0] && (was == NULL || was->name[0] == '\0')) {
            ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                                    "peer \"%s\" of version %s is heard: %uD "
                                    "routers share the load", peer->name,
                                    peer->version, n + 1);
        }
    }

    s->npeers = n;
    ngx_memcpy(s->peers, now, n * sizeof(kvr_peer_t));
}
