
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_api.h"
#include "ngx_http_kv_router_guard.h"


typedef struct {
    const char                     *name;
    const char                     *method;
    ngx_uint_t                      methods;
    ngx_http_kv_router_call_pt      handler;
    unsigned                        body:1;
    unsigned                        changes:1;
} ngx_http_kv_router_endpoint_t;


static void ngx_http_kv_router_api_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_kv_router_api_run(ngx_http_request_t *r);
static void ngx_http_kv_router_api_path(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_http_kv_router_endpoint_t *ngx_http_kv_router_api_find(
    ngx_uint_t method, ngx_str_t *path, ngx_str_t *id);
static ngx_uint_t ngx_http_kv_router_api_match(const char *pattern,
    ngx_str_t *path, ngx_str_t *id);
static ngx_int_t ngx_http_kv_router_api_not_found(
    ngx_http_kv_router_call_t *c, ngx_str_t *path);
static ngx_int_t ngx_http_kv_router_api_not_allowed(
    ngx_http_kv_router_call_t *c, ngx_str_t *path);
static void ngx_http_kv_router_api_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_kv_router_api_body(ngx_http_request_t *r,
    ngx_str_t *body);

static kvr_rc_t ngx_http_kv_router_dump_line(void *data, const char *line,
    size_t len);


/* the path of a GET has HEAD, too */

#define call(func, name, method, body, changes)                               \
    { name, #method, NGX_HTTP_##method                                        \
                     | (NGX_HTTP_##method == NGX_HTTP_GET                     \
                        ? NGX_HTTP_HEAD : 0),                                 \
      ngx_http_kv_router_call_##func, body, changes },

static ngx_http_kv_router_endpoint_t  ngx_http_kv_router_endpoints[] = {
    NGX_HTTP_KV_ROUTER_CALLS(call)
    { NULL, NULL, 0, NULL, 0, 0 }
};

#undef call


ngx_int_t
ngx_http_kv_router_api_handler(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_str_t                       path, id;
    ngx_http_kv_router_endpoint_t  *e;

    ngx_http_kv_router_api_path(r, &path);

    e = ngx_http_kv_router_api_find(r->method, &path, &id);

    if (e && e->body) {

        r->request_body_in_single_buf = 1;

        rc = ngx_http_read_client_request_body(r,
                                         ngx_http_kv_router_api_body_handler);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            return rc;
        }

        return NGX_DONE;
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_http_kv_router_api_run(r);
}


static void
ngx_http_kv_router_api_body_handler(ngx_http_request_t *r)
{
    ngx_http_finalize_request(r, ngx_http_kv_router_api_run(r));
}


static ngx_int_t
ngx_http_kv_router_api_run(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_str_t                       path;
    ngx_http_kv_router_call_t      *c;
    ngx_http_kv_router_loc_conf_t  *klcf;
    ngx_http_kv_router_endpoint_t  *e;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kv_router_module);

    c = ngx_pcalloc(r->pool, sizeof(ngx_http_kv_router_call_t));
    if (c == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    c->request = r;
    c->zone = klcf->api;

    c->answer = ngx_http_kv_router_answer(r);
    if (c->answer == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_kv_router_api_path(r, &path);

    e = ngx_http_kv_router_api_find(r->method, &path, &c->id);

    if (e == NULL) {
        e = ngx_http_kv_router_api_find(0, &path, &c->id);

        return e ? ngx_http_kv_router_api_not_allowed(c, &path)
                 : ngx_http_kv_router_api_not_found(c, &path);
    }

    if (e->changes) {

        rc = ngx_http_kv_router_api_forbidden(c, e->name);

        if (rc != NGX_OK || r->header_sent) {
            return rc;
        }
    }

    if (e->body) {

        rc = ngx_http_kv_router_api_body(r, &c->body);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return e->handler(c);
}


/* Finds the path behind the location's prefix, without a slash in front. */

static void
ngx_http_kv_router_api_path(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    *path = r->uri;

    if (path->len >= clcf->name.len
        && ngx_strncmp(path->data, clcf->name.data, clcf->name.len) == 0)
    {
        path->data += clcf->name.len;
        path->len -= clcf->name.len;
    }

    if (path->len && path->data[0] == '/') {
        path->data++;
        path->len--;
    }
}


/* Finds the endpoint of a path and method; method 0: of any method. */

static ngx_http_kv_router_endpoint_t *
ngx_http_kv_router_api_find(ngx_uint_t method, ngx_str_t *path, ngx_str_t *id)
{
    ngx_http_kv_router_endpoint_t  *e;

    for (e = ngx_http_kv_router_endpoints; e->name; e++) {

        if ((method == 0 || (method & e->methods))
            && ngx_http_kv_router_api_match(e->name, path, id))
        {
            return e;
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_http_kv_router_api_match(const char *pattern, ngx_str_t *path,
    ngx_str_t *id)
{
    u_char  *p, *last;

    p = path->data;
    last = p + path->len;

    for ( /* void */ ; *pattern; pattern++) {

        if (*pattern >= 'A' && *pattern <= 'Z') {

            while (pattern[1] >= 'A' && pattern[1] <= 'Z') {
                pattern++;
            }

            id->data = p;

            while (p < last && *p != '/') {
                p++;
            }

            id->len = p - id->data;

            if (id->len == 0) {
                return 0;
            }

            continue;
        }

        if (p == last || *p++ != (u_char) *pattern) {
            return 0;
        }
    }

    return p == last;
}


static ngx_int_t
ngx_http_kv_router_api_not_found(ngx_http_kv_router_call_t *c, ngx_str_t *path)
{
    u_char                         *p, buf[512];
    ngx_http_kv_router_endpoint_t  *e;

    p = buf;

    for (e = ngx_http_kv_router_endpoints; e->name; e++) {
        p = ngx_slprintf(p, buf + sizeof(buf), "%s%s %s",
                         (p == buf) ? "" : ", ", e->method, e->name);
    }

    return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_NOT_FOUND,
                                           "there is no call \"%V\", only "
                                           "%*s", path, (size_t) (p - buf),
                                           buf);
}


static ngx_int_t
ngx_http_kv_router_api_not_allowed(ngx_http_kv_router_call_t *c,
    ngx_str_t *path)
{
    u_char                         *p;
    ngx_str_t                       allow, id;
    ngx_http_kv_router_endpoint_t  *e;

    allow.data = ngx_pnalloc(c->request->pool, 64);
    if (allow.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = allow.data;

    for (e = ngx_http_kv_router_endpoints; e->name; e++) {

        if (ngx_http_kv_router_api_match(e->name, path, &id)) {
            p = ngx_slprintf(p, allow.data + 64, "%s%s%s",
                             (p == allow.data) ? "" : ", ", e->method,
                             (e->methods & NGX_HTTP_HEAD) ? ", HEAD" : "");
        }
    }

    allow.len = p - allow.data;

    if (ngx_http_kv_router_answer_header(c->request, "Allow", &allow)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_NOT_ALLOWED,
                                           "\"%V\" is called by %V, not by "
                                           "%V", path, &allow,
                                           &c->request->method_name);
}


/* Copies the body into one buffer; client_max_body_size bounds the body. */

static ngx_int_t
ngx_http_kv_router_api_body(ngx_http_request_t *r, ngx_str_t *body)
{
    u_char       *p;
    size_t        len;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    ngx_str_null(body);

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_OK;
    }

    cl = r->request_body->bufs;

    if (cl->next == NULL && !cl->buf->in_file) {
        body->data = cl->buf->pos;
        body->len = cl->buf->last - cl->buf->pos;
        return NGX_OK;
    }

    len = 0;

    for ( /* void */ ; cl; cl = cl->next) {
        len += (size_t) ngx_buf_size(cl->buf);
    }

    p = ngx_pnalloc(r->pool, len ? len : 1);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    body->data = p;
    body->len = len;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;

        if (!b->in_file) {
            p = ngx_cpymem(p, b->pos, b->last - b->pos);
            continue;
        }

        n = ngx_read_file(b->file, p, (size_t) (b->file_last - b->file_pos),
                          b->file_pos);

        if (n != (ssize_t) (b->file_last - b->file_pos)) {
            ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                          "kv_router read only %z of %O bytes of the body "
                          "from \"%V\"", n, b->file_last - b->file_pos,
                          &b->file->name);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        p += n;
    }

    return NGX_OK;
}


/* ---- calls of a line or two --------------------------------------------- */

ngx_int_t
ngx_http_kv_router_call_stats(ngx_http_kv_router_call_t *c)
{
    ngx_http_kv_router_stats_json(c->zone, c->answer->gen);

    return ngx_http_kv_router_call_ok(c);
}


ngx_int_t
ngx_http_kv_router_call_dump(ngx_http_kv_router_call_t *c)
{
    kvr_rc_t   rc;
    ngx_str_t  arg;

    rc = kvr_router_dump(&c->zone->run.router, false,
                         ngx_http_kv_router_dump_line, c->answer);

    if (rc == KVR_OK
        && ngx_http_arg(c->request, (u_char *) "estimated", 9, &arg) == NGX_OK
        && arg.len == 1 && arg.data[0] == '1')
    {
        rc = kvr_router_dump(&c->zone->run.router, true,
                             ngx_http_kv_router_dump_line, c->answer);
    }

    if (c->answer->failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != KVR_OK) {
        return ngx_http_kv_router_call_failed(c, rc);
    }

    return ngx_http_kv_router_answer_send(c->answer, NGX_HTTP_OK,
                                          "application/x-ndjson");
}


static kvr_rc_t
ngx_http_kv_router_dump_line(void *data, const char *line, size_t len)
{
    ngx_http_kv_router_answer_t  *a = data;

    ngx_http_kv_router_answer_write(a, line, len);
    ngx_http_kv_router_answer_write(a, "\n", 1);

    return a->failed ? KVR_ERROR : KVR_OK;
}
