
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The first commands of a connection: AUTH, SELECT, PING.
 */


#include "ngx_http_kv_router_redis.h"


ngx_int_t
ngx_http_kv_router_redis_login(ngx_http_kv_router_redis_t *r)
{
    int                                 n;
    u_char                              db[NGX_INT_T_LEN];
    ngx_str_t                           args[3];
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    if (server->password.len) {
        n = 0;
        ngx_str_set(&args[n], "AUTH");

        if (server->user.len) {
            args[++n] = server->user;
        }

        args[++n] = server->password;

        if (ngx_http_kv_router_redis_send(r, n + 1, args) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (server->db) {
        ngx_str_set(&args[0], "SELECT");
        args[1].data = db;
        args[1].len = ngx_sprintf(db, "%i", server->db) - db;

        if (ngx_http_kv_router_redis_send(r, 2, args) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, &r->log, 0,
                   "kv_router zone \"%V\": redis %s: logs in, user \"%V\", %s "
                   "password, database %i", &r->zone->name, r->purpose,
                   &server->user, server->password.len ? "a" : "no",
                   server->db);

    /* if Redis needs a password or is loading data, PING gets an error */

    ngx_str_set(&args[0], "PING");

    if (ngx_http_kv_router_redis_send(r, 1, args) != NGX_OK) {
        return NGX_ERROR;
    }

    r->handshake = r->outstanding;

    return NGX_OK;
}


void
ngx_http_kv_router_redis_login_reply(ngx_http_kv_router_redis_t *r,
    redisReply *reply)
{
    u_char                             *p;
    ngx_str_t                           text;
    ngx_uint_t                          auth;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    auth = (server->password.len
            && r->handshake == 2 + (server->db ? 1 : 0));

    r->handshake--;
    r->outstanding--;

    if (reply->type == REDIS_REPLY_ERROR
        && !(r->handshake == 0
             && ngx_strncmp(reply->str, "NOPERM", 6) == 0))
    {
        text.data = (u_char *) reply->str;
        text.len = ngx_strlen(reply->str);

        if (auth) {

            /*
             * an error of AUTH may repeat the password: log only its first
             * word
             */

            p = ngx_strlchr(text.data, text.data + text.len, ' ');
            if (p) {
                text.len = p - text.data;
            }
        }

        ngx_http_kv_router_redis_failed(r, 0,
                                        auth ? "redis refused the password"
                                             : "redis refused the connection",
                                        &text);
        freeReplyObject(reply);
        return;
    }

    freeReplyObject(reply);

    if (r->handshake) {
        return;
    }

    ngx_http_kv_router_redis_debug(r, "ready");

    r->ready = 1;

    r->connected(r);
}
