
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Memory of a request that each of its matches uses again.
 */


#include "ngx_http_kv_router_route.h"


void *
ngx_http_kv_router_room(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_room_e which, size_t size)
{
    void                       *data;
    ngx_http_kv_router_room_t  *room;

    room = &ctx->rooms[which];

    /* a decision that was made stands on what it has */

    if (size > room->size || ctx->reserved) {

        /* doubled: what is left behind is bounded */

        if (size > room->size) {
            size = ngx_max(size, 2 * room->size);
        }

        data = ngx_palloc(ctx->request->pool, size);
        if (data == NULL) {
            return NULL;
        }

        room->data = data;
        room->size = size;
    }

    return room->data;
}
