
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The first commands of a connection: AUTH, INFO, SELECT, PING; of one to a
 * Sentinel AUTH and the question for the master.
 */


#include "ngx_http_kv_router_redis_link.h"

#include <wire/kvr_redis_info.h>


static void ngx_http_kv_router_redis_login_auth(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_redis_login_master(
    ngx_http_kv_router_redis_t *r, void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_redis_login_info(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_redis_login_select(
    ngx_http_kv_router_redis_t *r, void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_redis_login_ping(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);
static ngx_int_t ngx_http_kv_router_redis_login_refused(
    ngx_http_kv_router_redis_t *r, const kvr_reply_t *reply);


ngx_int_t
ngx_http_kv_router_redis_login(ngx_http_kv_router_redis_t *r)
{
    kvr_ask_t                           ask;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    if (server->password.len) {
        kvr_ask_begin(&ask, "AUTH");

        if (server->user.len) {
            kvr_ask_bytes(&ask, (char *) server->user.data, server->user.len);
        }

        kvr_ask_bytes(&ask, (char *) server->password.data,
                      server->password.len);

        if (ngx_http_kv_router_redis_send(r,
                                          ngx_http_kv_router_redis_login_auth,
                                          NULL, &ask)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (r->asking) {

        r->log.action = "asking the Sentinel";

        kvr_ask_begin(&ask, "SENTINEL");
        kvr_ask_text(&ask, "get-master-addr-by-name");
        kvr_ask_bytes(&ask, (char *) server->master.data, server->master.len);

        return ngx_http_kv_router_redis_send(r,
                                         ngx_http_kv_router_redis_login_master,
                                             NULL, &ask);
    }

    /* a cluster has no databases: what it is must be known before SELECT */

    kvr_ask_begin(&ask, "INFO");

    if (ngx_http_kv_router_redis_send(r, ngx_http_kv_router_redis_login_info,
                                      NULL, &ask)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (server->db) {
        kvr_ask_begin(&ask, "SELECT");
        kvr_ask_printf(&ask, "%ld", (long) server->db);

        if (ngx_http_kv_router_redis_send(r,
                                         ngx_http_kv_router_redis_login_select,
                                          NULL, &ask)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, &r->log, 0,
                   "kv_router zone \"%V\": redis %s: logs in, user \"%V\", %s "
                   "password, database %i", &r->zone->conf.name, r->purpose,
                   &server->user, server->password.len ? "a" : "no",
                   server->db);

    /* if Redis needs a password or is loading data, PING gets an error */

    kvr_ask_begin(&ask, "PING");

    return ngx_http_kv_router_redis_send(r,
                                         ngx_http_kv_router_redis_login_ping,
                                         NULL, &ask);
}


static void
ngx_http_kv_router_redis_login_auth(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    u_char     *p;
    ngx_str_t   text, *password;

    /* a Sentinel may have other users than the master: AUTH may fail */

    if (reply->type == KVR_REPLY_ERROR && !r->asking) {

        text.data = (u_char *) reply->text;
        text.len = reply->len;

        /* an error may repeat the password, or its beginning: all before it */

        password = &ngx_http_kv_router_redis_current(r)->password;
        p = memmem(text.data, text.len, password->data,
                   ngx_min(password->len, 8));

        if (p) {
            text.len = p - text.data;
        }

        ngx_http_kv_router_redis_failed(r, 0, "redis refused the password",
                                        &text);
    }

    kvr_reply_release(reply);
}


static void
ngx_http_kv_router_redis_login_master(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply)
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

    kvr_reply_release(reply);
}


static void
ngx_http_kv_router_redis_login_info(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    ngx_str_t                           text;
    const char                         *why;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    /* without INFO the reply to PING has to say what is wrong */

    r->replica = reply->type == KVR_REPLY_STRING
                 && kvr_redis_info_replica(reply->text);

    why = (reply->type == KVR_REPLY_STRING)
          ? kvr_redis_info_refused(reply->text, server->master.len != 0)
          : NULL;

    if (why) {
        text.data = (u_char *) why;
        text.len = ngx_strlen(why);

        ngx_http_kv_router_redis_failed(r, 0, "redis can't be used", &text);
    }

    kvr_reply_release(reply);
}


static void
ngx_http_kv_router_redis_login_select(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply)
{
    (void) ngx_http_kv_router_redis_login_refused(r, reply);

    kvr_reply_release(reply);
}


static void
ngx_http_kv_router_redis_login_ping(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    ngx_int_t  rc;

    /* a user who may not send PING may be allowed all that is needed */

    rc = (reply->type == KVR_REPLY_ERROR
          && ngx_strncmp(reply->text, "NOPERM", 6) == 0)
         ? NGX_OK : ngx_http_kv_router_redis_login_refused(r, reply);

    kvr_reply_release(reply);

    if (rc != NGX_OK) {
        return;
    }

    ngx_http_kv_router_redis_debug(r, "ready");

    r->ready = 1;

    ngx_http_kv_router_count(r->zone->run.sh, REDIS_CONNECTS, !r->beside);

    r->connected(r);
}


/* NGX_DECLINED: the connection was closed, because the reply is an error. */

static ngx_int_t
ngx_http_kv_router_redis_login_refused(ngx_http_kv_router_redis_t *r,
    const kvr_reply_t *reply)
{
    ngx_str_t  text;

    if (reply->type != KVR_REPLY_ERROR) {
        return NGX_OK;
    }

    text.data = (u_char *) reply->text;
    text.len = reply->len;

    ngx_http_kv_router_redis_failed(r, 0, "redis refused the connection",
                                    &text);
    return NGX_DECLINED;
}
