
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The part "tree" of the status: runs of blocks, and who holds them.
 */


#include "../request/ngx_http_kv_router_fleet.h"
#include "ngx_http_kv_router_history.h"


static void ngx_http_kv_router_node_json(const kvr_tree_node_t *node,
    ngx_http_kv_router_holder_t **holders, uint32_t nholders, yajl_gen g);
static void ngx_http_kv_router_gen_run(yajl_gen g, const char *key,
    uint32_t shard, uint32_t run);


void
ngx_http_kv_router_tree_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    bool                           cut;
    uint32_t                       i, n, nholders;
    kvr_rc_t                       rc;
    kvr_tree_node_t               *nodes;
    ngx_http_kv_router_fleet_t    *fleet;
    ngx_http_kv_router_holder_t  **holders;

    nholders = kvr_router_max_holders(&zone->run.router);

    fleet = ngx_http_kv_router_fleet_get(zone);
    nodes = ngx_palloc(r->pool, KVR_TREE_NODES * sizeof(kvr_tree_node_t));
    holders = ngx_pcalloc(r->pool, nholders * sizeof(void *));

    rc = KVR_ERROR;
    n = 0;
    cut = false;

    if (fleet && nodes && holders) {
        rc = kvr_router_tree(&zone->run.router, nodes, &n, &cut);

        for (i = 0; i < fleet->n; i++) {
            holders[fleet->holders[i].holder] = &fleet->holders[i];
        }
    }

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_str(g, "index",
                               kvr_index_name(zone->conf.params.index));
    ngx_http_kv_router_gen_u64(g, "block_size", zone->conf.params.block_size);
    ngx_http_kv_router_gen_array(g, "nodes");

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_node_json(&nodes[i], holders, nholders, g);
    }

    yajl_gen_array_close(g);

    /* the runs of a shard that could not be locked are cut off, too */

    ngx_http_kv_router_gen_bool(g, "cut", cut || rc != KVR_OK);
    yajl_gen_map_close(g);

    if (fleet) {
        ngx_http_kv_router_fleet_put(fleet);
    }
}


static void
ngx_http_kv_router_node_json(const kvr_tree_node_t *node,
    ngx_http_kv_router_holder_t **holders, uint32_t nholders, yajl_gen g)
{
    uint32_t                      i;
    ngx_http_kv_router_holder_t  *h;

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_run(g, "id", node->shard, node->run);
    ngx_http_kv_router_gen_run(g, "parent", node->shard, node->parent);
    ngx_http_kv_router_gen_u64(g, "offset", node->offset);
    ngx_http_kv_router_gen_u64(g, "blocks", node->blocks);
    ngx_http_kv_router_gen_u64(g, "below", node->below);
    ngx_http_kv_router_gen_u64(g, "holders_total", node->holders);
    ngx_http_kv_router_gen_array(g, "holders");

    for (i = 0; i < node->nholders; i++) {

        /* a worker without an address, or one that came just now, has none */

        h = (node->held[i].holder < nholders) ? holders[node->held[i].holder]
                                              : NULL;
        if (h == NULL) {
            continue;
        }

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_text(g, "worker", h->id.data, h->id.len);
        ngx_http_kv_router_gen_u64(g, "rank", h->rank);
        ngx_http_kv_router_gen_u64(g, "blocks", node->held[i].blocks);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


/* null: no run */

static void
ngx_http_kv_router_gen_run(yajl_gen g, const char *key, uint32_t shard,
    uint32_t run)
{
    u_char  text[2 * NGX_INT32_LEN + 1], *end;

    ngx_http_kv_router_gen_key(g, key);

    if (run == 0) {
        yajl_gen_null(g);
        return;
    }

    end = ngx_sprintf(text, "%uD.%uD", shard, run);
    yajl_gen_string(g, text, end - text);
}
