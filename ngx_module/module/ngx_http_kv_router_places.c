
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Locations: kv_router_status and kv_router_api set the handler of theirs.
 */


#include "ngx_http_kv_router_module.h"


/* Keeps a location of a status, unless its name is no path. */

static char *
ngx_http_kv_router_conf_place(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_place_t      *place;
    ngx_http_kv_router_main_conf_t  *kmcf;

    if (clcf->noname || clcf->named
#if (NGX_PCRE)
        || clcf->regex
#endif
       )
    {
        return NGX_CONF_OK;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);

    place = ngx_array_push(&kmcf->places);
    if (place == NULL) {
        return NGX_CONF_ERROR;
    }

    place->zone = zone;
    place->server = ngx_http_conf_get_module_srv_conf(cf,
                                                      ngx_http_core_module);
    place->path = clcf->name;

    return NGX_CONF_OK;
}


/* kv_router_status, kv_router_api: sets the location's zone and handler. */

char *
ngx_http_kv_router_location(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_kv_router_zone_t  **zone;

    zone = (ngx_http_kv_router_zone_t **) (p + cmd->offset);

    if (*zone) {
        return "is duplicate";
    }

    *zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (*zone == NULL) {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler) {
        return "conflicts with another handler of this location";
    }

    clcf->handler = (ngx_http_handler_pt) cmd->post;

    if (cmd->offset == offsetof(ngx_http_kv_router_loc_conf_t, status)) {
        return ngx_http_kv_router_conf_place(cf, clcf, *zone);
    }

    return NGX_CONF_OK;
}
