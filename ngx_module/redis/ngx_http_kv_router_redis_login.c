
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The first commands of a connection: AUTH, INFO, SELECT, PING; of one to a
 * Sentinel AUTH and the question for the master.
 */


#include "ngx_http_kv_router_redis.h"

#include <wire/kvr_redis_info.h>


static ngx_int_t ngx_http_kv_router_redis_login_refused(
    ngx_http_kv_router_redis_t *r, redisReply *reply);


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

    if (r->asking) {

        r->log.action = "asking the Sentinel";

        ngx_str_set(&args[0], "SENTINEL");
        ngx_str_set(&args[1], "get-master-addr-by-name");
        args[2] = server->master;

        if (ngx_http_kv_router_redis_send(r, 3, args) != NGX_OK) {
            return NGX_ERROR;
        }

        r->handshake = r->outstanding;

        return NGX_OK;
    }

    /* a cluster has no databases: what it is must be known before SELECT */

    ngx_str_set(&args[0], "INFO");

    if (ngx_http_kv_router_redis_send(r, 1, args) != NGX_OK) {
        return NGX_ERROR;
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
    ngx_int_t  rc;

    r->handshake--;
    r->outstanding--;

    rc = ngx_http_kv_router_redis_login_refused(r, reply);

    freeReplyObject(reply);

    if (rc != NGX_OK || r->handshake) {
        return;
    }

    if (r->asking) {
        ngx_http_kv_router_redis_go_to_master(r);
        return;
    }

    ngx_http_kv_router_redis_debug(r, "ready");

    r->ready = 1;

    r->connected(r);
}


/* NGX_DECLINED: the connection was closed for what the reply says. */

static ngx_int_t
ngx_http_kv_router_redis_login_refused(ngx_http_kv_router_redis_t *r,
    redisReply *reply)
{
    char                               *reason;
    u_char                             *p;
    ngx_str_t                           text;
    ngx_uint_t                          left, auth;
    const char                         *why;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    /* the replies that follow that of INFO, and of the Sentinel */

    left = r->asking ? 0 : 1 + (server->db ? 1 : 0);

    auth = server->password.len && r->handshake == left + 1;

    if (r->asking) {

        /* a Sentinel may have other users than the master: AUTH may fail */

        reason = auth ? NULL
                      : ngx_http_kv_router_redis_sentinel_reply(r, server,
                                                                reply, &text);
        if (reason == NULL) {
            return NGX_OK;
        }

        ngx_http_kv_router_redis_failed(r, 0, reason, &text);
        return NGX_DECLINED;
    }

    if (r->handshake == left) {

        /* without INFO the reply to PING has to say what is wrong */

        why = (reply->type == REDIS_REPLY_STRING)
              ? kvr_redis_info_refused(reply->str, server->master.len != 0)
              : NULL;

        if (why == NULL) {
            return NGX_OK;
        }

        text.data = (u_char *) why;
        text.len = ngx_strlen(why);

        ngx_http_kv_router_redis_failed(r, 0, "redis can't be used",
                                        &text);
        return NGX_DECLINED;
    }

    if (reply->type != REDIS_REPLY_ERROR
        || (r->handshake == 0 && ngx_strncmp(reply->str, "NOPERM", 6) == 0))
    {
        return NGX_OK;
    }

    text.data = (u_char *) reply->str;
    text.len = ngx_strlen(reply->str);

    if (auth) {

        /* an error of AUTH may repeat the password: log only its first word */

        p = ngx_strlchr(text.data, text.data + text.len, ' ');
        if (p) {
            text.len = p - text.data;
        }
    }

    ngx_http_kv_router_redis_failed(r, 0,
                                    auth ? "redis refused the password"
                                         : "redis refused the connection",
                                    &text);
    return NGX_DECLINED;
}
