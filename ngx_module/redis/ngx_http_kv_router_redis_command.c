
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The commands of a connection whose replies are to come, in their order.
 */


#include "ngx_http_kv_router_redis_link.h"


ngx_int_t
ngx_http_kv_router_redis_send(ngx_http_kv_router_redis_t *r,
    ngx_http_kv_router_redis_reply_pt reply, void *data, const kvr_ask_t *ask)
{
    char                                *cmd;
    ssize_t                              len;
    ngx_uint_t                           last;
    ngx_http_kv_router_redis_command_t  *command;

    if (!r->established || r->ncommands == NGX_HTTP_KV_ROUTER_COMMANDS) {
        return NGX_ERROR;
    }

    len = redisFormatCommandArgv(&cmd, ask->argc, (const char **) ask->argv,
                                 ask->len);
    if (len < 0) {
        return NGX_ERROR;
    }

    if ((size_t) len > NGX_HTTP_KV_ROUTER_OUT_MAX - r->out_len) {
        redisFreeCommand(cmd);
        return NGX_ERROR;
    }

    ngx_memcpy(r->out + r->out_len, cmd, len);
    r->out_len += len;

    last = (r->first + r->ncommands++) % NGX_HTTP_KV_ROUTER_COMMANDS;

    command = &r->commands[last];
    command->reply = reply;
    command->data = data;

    redisFreeCommand(cmd);

    /* written by the event, so that no caller finds the connection closed */

    ngx_post_event(r->peer.connection->write, &ngx_posted_events);

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_redis_answer(ngx_http_kv_router_redis_t *r,
    kvr_reply_t *reply)
{
    ngx_http_kv_router_redis_command_t  command;

    if (r->ncommands == 0) {
        return NGX_DECLINED;
    }

    command = r->commands[r->first];
    r->first = (r->first + 1) % NGX_HTTP_KV_ROUTER_COMMANDS;
    r->ncommands--;

    command.reply(r, command.data, reply);

    return NGX_OK;
}


void
ngx_http_kv_router_redis_lost(ngx_http_kv_router_redis_t *r)
{
    kvr_reply_t  reply;

    /* the reply that is too big is that to the first command */

    ngx_memzero(&reply, sizeof(kvr_reply_t));
    reply.type = r->too_big ? KVR_REPLY_TOO_BIG : KVR_REPLY_LOST;

    while (ngx_http_kv_router_redis_answer(r, &reply) == NGX_OK) {
        ngx_memzero(&reply, sizeof(kvr_reply_t));
        reply.type = KVR_REPLY_LOST;
    }

    ngx_http_kv_router_count(r->zone->run.sh, REDIS_DISCONNECTS, !r->beside);

    if (r->disconnected) {
        r->disconnected(r);
    }
}
