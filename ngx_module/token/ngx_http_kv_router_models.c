
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_model: the models of zones.  The master loads them; one whose
 * files did not change is taken over by the next configuration, and freed with
 * the last configuration that has it.
 */


#include "ngx_http_kv_router_local.h"
#include "ngx_http_kv_router_turns.h"
#include "../module/ngx_http_kv_router_param.h"


typedef struct ngx_http_kv_router_loaded_s  ngx_http_kv_router_loaded_t;

struct ngx_http_kv_router_loaded_s {
    ngx_cycle_t                    *cycle;
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_loaded_t    *next;
};


static char *ngx_http_kv_router_model_load(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone, const char *engine);
static ngx_uint_t ngx_http_kv_router_model_known(kvr_model_t **known,
    ngx_uint_t max);
static void ngx_http_kv_router_model_cleanup(void *data);
static void ngx_http_kv_router_reading_cleanup(void *data);


/* kv_router_model, as it is written */

typedef struct {
    uint32_t                        engine;
    size_t                          turns;     /* bytes; 0: none */
} ngx_http_kv_router_model_conf_t;


static const ngx_http_kv_router_param_t  ngx_http_kv_router_model_params[] = {

    { ngx_string("engine"), NGX_HTTP_KV_ROUTER_WORD,
      offsetof(ngx_http_kv_router_model_conf_t, engine), sizeof(uint32_t),
      KVR_ENGINE_VLLM, 0, kvr_engines, 0 },

    { ngx_string("turns"), NGX_HTTP_KV_ROUTER_SET,
      offsetof(ngx_http_kv_router_model_conf_t, turns), sizeof(size_t),
      0, 0, ngx_http_kv_router_turns_size, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};


/* The models of this process, of all configurations, the newest first. */

static ngx_http_kv_router_loaded_t  *ngx_http_kv_router_loaded;

/* The configuration that is being read; NULL: none is. */

static ngx_cycle_t  *ngx_http_kv_router_reading;


char *
ngx_http_kv_router_model(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                             *rv;
    ngx_str_t                        *value;
    ngx_http_kv_router_zone_t        *zone;
    ngx_http_kv_router_model_t       *model;
    ngx_http_kv_router_model_conf_t   written;

    value = cf->args->elts;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.model) {
        return "is duplicate: a zone has one model; several models are "
               "several zones";
    }

    written.engine = KVR_ENGINE_UNKNOWN;
    written.turns = NGX_HTTP_KV_ROUTER_TURNS;

    if (ngx_http_kv_router_params(cf, 3, ngx_http_kv_router_model_params,
                                  &written, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    model = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_model_t));
    if (model == NULL) {
        return NGX_CONF_ERROR;
    }

    model->dir = value[2];

    if (ngx_conf_full_name(cf->cycle, &model->dir, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    zone->conf.model = model;

    rv = ngx_http_kv_router_model_load(cf, zone,
                                       written.engine == KVR_ENGINE_UNKNOWN
                                       ? NULL
                                       : kvr_engine_name(written.engine));

    if (rv != NGX_CONF_OK || written.turns == 0
        || kvr_model_tokenizer(model->model) == NULL)
    {
        return rv;
    }

    return ngx_http_kv_router_turns_add(cf, zone, written.turns);
}


static char *
ngx_http_kv_router_model_load(ngx_conf_t *cf, ngx_http_kv_router_zone_t *zone,
    const char *engine)
{
    char                          why[KVR_MODEL_WHY];
    ngx_uint_t                    n;
    kvr_model_t                  *known[NGX_HTTP_KV_ROUTER_MODELS_MAX];
    ngx_pool_cleanup_t           *cln;
    ngx_http_kv_router_model_t   *model;
    ngx_http_kv_router_loaded_t  *loaded;

    model = zone->conf.model;

    cln = ngx_pool_cleanup_add(cf->pool, sizeof(ngx_http_kv_router_loaded_t));
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    n = ngx_http_kv_router_model_known(known, NGX_HTTP_KV_ROUTER_MODELS_MAX);

    if (kvr_model_load(&model->model, (char *) model->dir.data, engine, known,
                       n, why)
        != KVR_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the model \"%V\" of zone \"%V\" can't be used: "
                           "%s", &model->dir, &zone->conf.name, why);
        return NGX_CONF_ERROR;
    }

    zone->conf.model_kept = kvr_model_users(model->model) > 1;

    loaded = cln->data;
    loaded->cycle = cf->cycle;
    loaded->zone = zone;
    loaded->next = ngx_http_kv_router_loaded;
    ngx_http_kv_router_loaded = loaded;

    cln->handler = ngx_http_kv_router_model_cleanup;

    if (kvr_model_tokenizer(model->model) == NULL) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "the model \"%V\" of zone \"%V\" is refused: %s; "
                           "engines are asked for the token ids of its texts",
                           &model->dir, &zone->conf.name,
                           kvr_model_refused(model->model));
    }

    return NGX_CONF_OK;
}


/* The models of this process, each once. */

static ngx_uint_t
ngx_http_kv_router_model_known(kvr_model_t **known, ngx_uint_t max)
{
    ngx_uint_t                    i, n;
    ngx_http_kv_router_loaded_t  *l;

    n = 0;

    for (l = ngx_http_kv_router_loaded; l && n < max; l = l->next) {

        for (i = 0; i < n; i++) {
            if (known[i] == l->zone->conf.model->model) {
                break;
            }
        }

        if (i == n) {
            known[n++] = l->zone->conf.model->model;
        }
    }

    return n;
}


static void
ngx_http_kv_router_model_cleanup(void *data)
{
    ngx_http_kv_router_loaded_t  *loaded = data;

    ngx_http_kv_router_model_t    *model;
    ngx_http_kv_router_loaded_t  **l;

    for (l = &ngx_http_kv_router_loaded; *l; l = &(*l)->next) {
        if (*l == loaded) {
            *l = loaded->next;
            break;
        }
    }

    model = loaded->zone->conf.model;

    ngx_http_kv_router_encode_forget(model);
    kvr_pieces_free(model->pieces);
    kvr_model_put(model->model);
}


/* ---- for Lua ------------------------------------------------------------ */

ngx_int_t
ngx_http_kv_router_models_begin(ngx_conf_t *cf)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_kv_router_reading_cleanup;
    cln->data = cf->cycle;

    ngx_http_kv_router_reading = cf->cycle;

    return NGX_OK;
}


ngx_cycle_t *
ngx_http_kv_router_models_cycle(void)
{
    return ngx_http_kv_router_reading ? ngx_http_kv_router_reading
                                      : (ngx_cycle_t *) ngx_cycle;
}


ngx_cycle_t *
ngx_http_kv_router_models_serving(void)
{
    ngx_cycle_t  *cycle;

    cycle = ngx_http_kv_router_reading;

    return cycle && cycle->old_cycle && cycle->old_cycle->conf_ctx
           ? cycle->old_cycle : NULL;
}


void
ngx_http_kv_router_models_end(void)
{
    ngx_http_kv_router_reading = NULL;
}


static void
ngx_http_kv_router_reading_cleanup(void *data)
{
    if (ngx_http_kv_router_reading == data) {
        ngx_http_kv_router_reading = NULL;
    }
}


static ngx_http_kv_router_model_t *
ngx_http_kv_router_model_of(const u_char *name, size_t len)
{
    ngx_http_kv_router_zone_t    *zone;
    ngx_http_kv_router_loaded_t  *l;

    if (ngx_http_kv_router_reading == NULL) {
        zone = ngx_http_kv_router_find_zone((ngx_cycle_t *) ngx_cycle,
                                            name, len);

        return zone ? zone->conf.model : NULL;
    }

    for (l = ngx_http_kv_router_loaded; l; l = l->next) {
        zone = l->zone;

        if (l->cycle == ngx_http_kv_router_reading
            && zone->conf.name.len == len
            && ngx_strncmp(zone->conf.name.data, name, len) == 0)
        {
            return zone->conf.model;
        }
    }

    return NULL;
}


kvr_model_t *
ngx_http_kv_router_ffi_model(const u_char *name, size_t len)
{
    ngx_http_kv_router_model_t  *model;

    model = ngx_http_kv_router_model_of(name, len);

    return model ? model->model : NULL;
}


void
ngx_http_kv_router_ffi_model_state(const u_char *name, size_t len,
    const char *why)
{
    ngx_http_kv_router_model_t  *model;

    model = ngx_http_kv_router_model_of(name, len);

    if (model) {
        (void) ngx_cpystrn((u_char *) model->template_why, (u_char *) why,
                           sizeof(model->template_why));
        model->refused = (why[0] != '\0');
        model->ready = !model->refused;
    }
}
