
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the status tells of a zone's model, and of the texts that were
 * tokenized by it.
 */


#include "../token/ngx_http_kv_router_local.h"
#include "ngx_http_kv_router_stats.h"


const char *
ngx_http_kv_router_model_state(ngx_http_kv_router_zone_t *zone,
    const char **why)
{
    ngx_http_kv_router_model_t  *model;

    model = zone->conf.model;
    *why = "";

    if (kvr_model_tokenizer(model->model) == NULL) {
        *why = kvr_model_refused(model->model);
        return "refused";
    }

    if (model->refused) {
        *why = model->template_why;
        return "refused";
    }

    return model->ready ? "ready" : "loaded";
}


void
ngx_http_kv_router_model_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    const char                  *state, *why;
    ngx_http_kv_router_model_t  *model;

    model = zone->conf.model;
    state = ngx_http_kv_router_model_state(zone, &why);

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_str(g, "directory", (char *) model->dir.data);
    ngx_http_kv_router_gen_str(g, "engine", kvr_model_engine(model->model));
    ngx_http_kv_router_gen_str(g, "state", state);
    ngx_http_kv_router_gen_str(g, "why", why);
    ngx_http_kv_router_gen_str(g, "digest", kvr_model_digest(model->model));
    ngx_http_kv_router_gen_u64(g, "bytes", kvr_model_bytes(model->model));
    ngx_http_kv_router_gen_u64(g, "strings_compared",
                               kvr_model_strings(model->model));
    ngx_http_kv_router_gen_bool(g, "conversations_compared",
                                kvr_model_proven(model->model));

    ngx_http_kv_router_counters_json(zone, "local_model", g);

    ngx_http_kv_router_counts_json(zone, "texts", g);
    yajl_gen_map_close(g);
}
