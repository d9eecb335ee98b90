
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The first commands of a connection: AUTH, INFO, SELECT, PING; of one to a
 * Sentinel AUTH and the question for the master.
 */


#include "ngx_http_kv_router_redis.h"

#include <wire/kvr_redis_info.h>


static void ngx_http_kv_router_redis_login_auth(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply);
static void ngx_http_kv_router_redis_login_master(
    ngx_http_kv_router_redis_t *r, void *data, redisReply *reply);
static void ngx_http_kv_router_redis_login_info(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply);
static void ngx_http_kv_router_redis_login_select(
    ngx_http_kv_router_redis_t *r, void *data, redisReply *reply);
static void ngx_http_kv_router_redis_login_ping(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply);
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

        if (ngx_http_kv_router_redis_send(r,
                                          ngx_http_kv_router_redis_login_auth,
                                          NULL, n + 1, args)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (r->asking) {

        r->log.action = "asking the Sentinel";

        ngx_str_set(&args[0], "SENTINEL");
        ngx_str_set(&args[1], "get-master-addr-by-name");
        args[2] = server->master;

        return ngx_http_kv_router_redis_send(r,
                                         ngx_http_kv_router_redis_login_master,
                                             NULL, 3, args);
    }

    /* a cluster has no databases: what it is must be known before SELECT */

    ngx_str_set(&args[0], "INFO");

    if (ngx_http_kv_router_redis_send(r, ngx_http_kv_router_redis_login_info,
                                      NULL, 1, args)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (server->db) {
        ngx_str_set(&args[0], "SELECT");
        args[1].data = db;
        args[1].len = ngx_sprintf(db, "%i", server->db) - db;

        if (ngx_http_kv_router_redis_send(r,
                                         ngx_http_kv_router_redis_login_select,
                                          NULL, 2, args)
            != NGX_OK)
        {
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

    return ngx_http_kv_router_redis_send(r,
                                         ngx_http_kv_router_redis_login_ping,
                                         NULL, 1, args);
}


static void
ngx_http_kv_router_redis_login_auth(ngx_http_kv_router_redis_t *r, void *data,
    redisReply *reply)
{
    u_char     *p;
    ngx_str_t   text;

    /* a Sentinel may have other users than the master: AUTH may fail */

    if (reply->type == REDIS_REPLY_ERROR && !r->asking) {

        /* an error of AUTH may repeat the password: log only its first word */

        text.data = (u_char *) reply->str;
        text.len = ngx_strlen(reply->str);

        p = ngx_strlchr(text.data, text.data + text.len, ' ');
        if (p) {
            text.len = p - text.data;
        }

        ngx_http_kv_router_redis_failed(r, 0, "redis refused the password",
                                        &text);
    }

    freeReplyObject(reply);
}


static void
ngx_http_kv_router_redis_login_master(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply)
{
    char       *reason;
    ngx_str_t   text;

    reason = ngx_http_kv_router_redis_sentinel_reply(r,
                                           ngx_http_kv_router_redis_current(r),
                                                     reply, &text);
    if (reason) {
        ngx_http_kv_router_redis_failed(r, 0, reason, &text);

    } else {
        ngx_http_kv_router_redis_go_to_master(r);
    }

    freeReplyObject(reply);
}


static void
ngx_http_kv_router_redis_login_info(ngx_http_kv_router_redis_t *r, void *data,
    redisReply *reply)
{
    ngx_str_t                           text;
    const char                         *why;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    /* without INFO the reply to PING has to say what is wrong */

    why = (reply->type == REDIS_REPLY_STRING)
          ? kvr_redis_info_refused(reply->str, server->master.len != 0)
          : NULL;

    if (why) {
        text.data = (u_char *) why;
        text.len = ngx_strlen(why);

        ngx_http_kv_router_redis_failed(r, 0, "redis can't be used", &text);
    }

    freeReplyObject(reply);
}


static void
ngx_http_kv_router_redis_login_select(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply)
{
    (void) ngx_http_kv_router_redis_login_refused(r, reply);

    freeReplyObject(reply);
}


static void
ngx_http_kv_router_redis_login_ping(ngx_http_kv_router_redis_t *r, void *data,
    redisReply *reply)
{
    ngx_int_t  rc;

    /* a user who may not send PING may be allowed all that is needed */

    rc = (reply->type == REDIS_REPLY_ERROR
          && ngx_strncmp(reply->str, "NOPERM", 6) == 0)
         ? NGX_OK : ngx_http_kv_router_redis_login_refused(r, reply);

    freeReplyObject(reply);

    if (rc != NGX_OK) {
        return;
    }

    ngx_http_kv_router_redis_debug(r, "ready");

    r->ready = 1;

    r->connected(r);
}


/* NGX_DECLINED: the connection was closed, because the reply is an error. */

static ngx_int_t
ngx_http_kv_router_redis_login_refused(ngx_http_kv_router_redis_t *r,
    redisReply *reply)
{
    ngx_str_t  text;

    if (reply->type != REDIS_REPLY_ERROR) {
        return NGX_OK;
    }

    text.data = (u_char *) reply->str;
    text.len = ngx_strlen(reply->str);

    ngx_http_kv_router_redis_failed(r, 0, "redis refused the connection",
                                    &text);
    return NGX_DECLINED;
}
