
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Who may call the HTTP API: "kv_router_api", its token, and pages of other
 * sites.
 */


#include "ngx_http_kv_router_guard.h"


#define NGX_HTTP_KV_ROUTER_TOKEN_MIN  16        /* characters */
#define NGX_HTTP_KV_ROUTER_TOKEN_MAX  512


static char *ngx_http_kv_router_token(ngx_conf_t *cf, ngx_str_t *file,
    ngx_str_t *token);
static const char *ngx_http_kv_router_token_read(ngx_conf_t *cf,
    ngx_str_t *file, ngx_str_t *token);
static ngx_uint_t ngx_http_kv_router_token_equals(ngx_str_t *token,
    ngx_str_t *given);
static ngx_int_t ngx_http_kv_router_unauthorized(ngx_http_request_t *r);
static ngx_str_t *ngx_http_kv_router_header_in(ngx_http_request_t *r,
    const char *name);
static ngx_uint_t ngx_http_kv_router_same_origin(ngx_http_request_t *r,
    ngx_str_t *origin);
static ngx_uint_t ngx_http_kv_router_own_host(ngx_http_request_t *r);
static ngx_uint_t ngx_http_kv_router_is_name(ngx_http_request_t *r,
    ngx_http_server_name_t *name, ngx_str_t *host);


/* ---- kv_router_api ------------------------------------------------------ */

char *
ngx_http_kv_router_api_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_loc_conf_t *klcf = conf;

    char                            *rv;
    ngx_str_t                       *value, file;
    ngx_uint_t                       i;
    ngx_http_core_srv_conf_t       **server;
    ngx_http_kv_router_main_conf_t  *kmcf;

    value = cf->args->elts;

    rv = ngx_http_kv_router_location(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strcmp(value[i].data, "read_only") == 0) {
            klcf->read_only = 1;
            continue;
        }

        if (ngx_strncmp(value[i].data, "token_file=", 11) == 0) {
            file.data = value[i].data + 11;
            file.len = value[i].len - 11;

            rv = ngx_http_kv_router_token(cf, &file, &klcf->token);
            if (rv != NGX_CONF_OK) {
                return rv;
            }

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\": the parameters are "
                           "read_only, token_file", &value[i]);
        return NGX_CONF_ERROR;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);

    server = ngx_array_push(&kmcf->apis);
    if (server == NULL) {
        return NGX_CONF_ERROR;
    }

    *server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);

    return NGX_CONF_OK;
}


/* nginx forgets the names of a server when it has read the configuration. */

ngx_int_t
ngx_http_kv_router_api_names(ngx_conf_t *cf,
    ngx_http_kv_router_main_conf_t *kmcf)
{
    void                            *names;
    ngx_uint_t                       i;
    ngx_array_t                     *from;
    ngx_http_core_srv_conf_t       **servers;
    ngx_http_kv_router_srv_conf_t   *kscf;

    servers = kmcf->apis.elts;

    for (i = 0; i < kmcf->apis.nelts; i++) {

        from = &servers[i]->server_names;
        kscf = servers[i]->ctx->srv_conf[ngx_http_kv_router_module.ctx_index];

        if (kscf->names.nelts) {
            continue;
        }

        if (ngx_array_init(&kscf->names, cf->pool, from->nelts, from->size)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        names = ngx_array_push_n(&kscf->names, from->nelts);
        ngx_memcpy(names, from->elts, from->nelts * from->size);
    }

    return NGX_OK;
}


/* Messages name the file, and never what is in it. */

static char *
ngx_http_kv_router_token(ngx_conf_t *cf, ngx_str_t *file, ngx_str_t *token)
{
    const char  *why;

    if (token->len) {
        return "has \"token_file\" twice";
    }

    if (file->len == 0 || ngx_conf_full_name(cf->cycle, file, 1) != NGX_OK) {
        return "needs the name of a file: token_file=FILE";
    }

    why = ngx_http_kv_router_token_read(cf, file, token);

    if (why) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the token file \"%V\" %s: it must have one line "
                           "of %d to %d characters without blanks", file, why,
                           NGX_HTTP_KV_ROUTER_TOKEN_MIN,
                           NGX_HTTP_KV_ROUTER_TOKEN_MAX);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static const char *
ngx_http_kv_router_token_read(ngx_conf_t *cf, ngx_str_t *file,
    ngx_str_t *token)
{
    size_t       i;
    u_char       text[NGX_HTTP_KV_ROUTER_TOKEN_MAX + 3];
    ssize_t      n;
    ngx_fd_t     fd;
    const char  *why;

    fd = ngx_open_file(file->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        return ngx_errno == NGX_ENOENT ? "is missing" : "can't be opened";
    }

    n = ngx_read_fd(fd, text, sizeof(text));
    (void) ngx_close_file(fd);

    if (n < 0) {
        return "can't be read";
    }

    while (n && (text[n - 1] == LF || text[n - 1] == CR)) {
        n--;
    }

    why = n < NGX_HTTP_KV_ROUTER_TOKEN_MIN
          ? "is too short"
          : n > NGX_HTTP_KV_ROUTER_TOKEN_MAX ? "is too long" : NULL;

    for (i = 0; why == NULL && i < (size_t) n; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f) {
            why = "has a blank or another wrong character";
        }
    }

    if (why) {
        ngx_explicit_memzero(text, sizeof(text));
        return why;
    }

    token->data = ngx_pnalloc(cf->pool, n);
    if (token->data == NULL) {
        return "is too much for the memory";
    }

    ngx_memcpy(token->data, text, n);
    token->len = n;

    ngx_explicit_memzero(text, sizeof(text));

    return NULL;
}


/* ---- the token ---------------------------------------------------------- */

/*
 * In the access phase, so that the token also guards what Lua answers there.
 * With "satisfy any" a token alone lets a request in.
 */

ngx_int_t
ngx_http_kv_router_api_access(ngx_http_request_t *r)
{
    ngx_str_t                       given;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_kv_router_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kv_router_module);

    if (klcf->api == NULL || klcf->token.len == 0) {
        return NGX_DECLINED;
    }

    if (r->headers_in.authorization) {
        given = r->headers_in.authorization->value;

        if (given.len > 7
            && ngx_strncasecmp(given.data, (u_char *) "Bearer ", 7) == 0)
        {
            given.data += 7;
            given.len -= 7;

            if (ngx_http_kv_router_token_equals(&klcf->token, &given)) {
                return NGX_OK;
            }
        }
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->satisfy == NGX_HTTP_SATISFY_ANY) {
        return NGX_HTTP_UNAUTHORIZED;
    }

    ngx_http_finalize_request(r, ngx_http_kv_router_unauthorized(r));

    return NGX_DONE;
}


/* Takes as long for a token that is wrong as for one that is right. */

static ngx_uint_t
ngx_http_kv_router_token_equals(ngx_str_t *token, ngx_str_t *given)
{
    size_t           i;
    volatile u_char  different;

    different = (token->len != given->len);

    for (i = 0; i < token->len; i++) {
        different |= token->data[i] ^ given->data[i % given->len];
    }

    return different == 0;
}


static ngx_int_t
ngx_http_kv_router_unauthorized(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_http_kv_router_answer_t  *a;

    static ngx_str_t  bearer = ngx_string("Bearer");

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    a = ngx_http_kv_router_answer(r);

    if (a == NULL
        || ngx_http_kv_router_answer_header(r, "WWW-Authenticate", &bearer)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_kv_router_answer_error(a, NGX_HTTP_UNAUTHORIZED,
                                           "the token is missing or wrong: "
                                           "send \"Authorization: Bearer "
                                           "TOKEN\" with that of token_file");
}


/* ---- calls that change something ---------------------------------------- */

ngx_int_t
ngx_http_kv_router_api_forbidden(ngx_http_kv_router_call_t *c,
    const char *call)
{
    ngx_str_t                      *host, *site, *origin;
    ngx_http_request_t             *r;
    ngx_http_kv_router_loc_conf_t  *klcf;

    r = c->request;
    host = &r->headers_in.server;
    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kv_router_module);

    if (klcf->read_only) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_FORBIDDEN,
                                               "\"%s\" changes zone \"%V\", "
                                               "and this location of "
                                               "kv_router_api is read_only",
                                               call, &c->zone->conf.name);
    }

    if (klcf->token.len == 0 && !ngx_http_kv_router_own_host(r)) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_FORBIDDEN,
                                               "the host \"%*s\" is no name "
                                               "of this server: call \"%s\" "
                                               "by an address, add the host "
                                               "to \"server_name\", or use "
                                               "\"token_file\"",
                                               ngx_min(host->len, 128),
                                               host->data, call);
    }

    site = ngx_http_kv_router_header_in(r, "sec-fetch-site");
    origin = ngx_http_kv_router_header_in(r, "origin");

    if ((site == NULL || site->len != 10
         || ngx_strncmp(site->data, "cross-site", 10) != 0)
        && (origin == NULL || ngx_http_kv_router_same_origin(r, origin)))
    {
        return NGX_OK;
    }

    return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_FORBIDDEN,
                                           "a page of another site (\"%*s\") "
                                           "can't call \"%s\" of \"%V\": call "
                                           "it without a browser",
                                           origin ? ngx_min(origin->len, 128)
                                                  : (size_t) 10,
                                           origin ? origin->data
                                                  : (u_char *) "cross-site",
                                           call, host);
}


static ngx_str_t *
ngx_http_kv_router_header_in(ngx_http_request_t *r, const char *name)
{
    ngx_table_elt_t               *h;
    ngx_http_kv_router_headers_t   at = { &r->headers_in.headers.part, 0 };

    h = ngx_http_kv_router_header(&at, name);

    return h ? &h->value : NULL;
}


/* Has an Origin the host and port that the request is for? */

static ngx_uint_t
ngx_http_kv_router_same_origin(ngx_http_request_t *r, ngx_str_t *origin)
{
    size_t      skip;
    ngx_str_t  *host;

    if (r->headers_in.host == NULL) {
        return 0;
    }

    host = &r->headers_in.host->value;

    skip = origin->len > 8
           && ngx_strncasecmp(origin->data, (u_char *) "https://", 8) == 0
           ? 8 : 7;

    return origin->len == skip + host->len
           && (skip == 8
               || ngx_strncasecmp(origin->data, (u_char *) "http://", 7) == 0)
           && ngx_strncasecmp(origin->data + skip, host->data, host->len) == 0;
}


/*
 * Is the request for a host that only this server can have?  Attackers can
 * have a name of their own point here: to a browser, a page which came from
 * that name is then of the same origin as this server.
 */

static ngx_uint_t
ngx_http_kv_router_own_host(ngx_http_request_t *r)
{
    ngx_str_t                      *host;
    ngx_uint_t                      i;
    ngx_http_server_name_t         *name;
    ngx_http_kv_router_srv_conf_t  *kscf;

    host = &r->headers_in.server;

    if (host->len == 0                          /* no browser leaves it out */
        || (host->len == 9 && ngx_strncmp(host->data, "localhost", 9) == 0)
        || host->data[0] == '['                 /* an IPv6 address */
        || ngx_inet_addr(host->data, host->len) != INADDR_NONE)
    {
        return 1;
    }

    kscf = ngx_http_get_module_srv_conf(r, ngx_http_kv_router_module);
    name = kscf->names.elts;

    for (i = 0; i < kscf->names.nelts; i++) {
        if (ngx_http_kv_router_is_name(r, &name[i], host)) {
            return 1;
        }
    }

    return 0;
}


/* As nginx compares them: "a.b", ".a.b", "*.a.b", "a.*", "~regex". */

static ngx_uint_t
ngx_http_kv_router_is_name(ngx_http_request_t *r, ngx_http_server_name_t *name,
    ngx_str_t *host)
{
    size_t   n;
    u_char  *p;

    p = name->name.data;
    n = name->name.len;

#if (NGX_PCRE)
    if (name->regex) {
        return ngx_http_regex_exec(r, name->regex, host) == NGX_OK;
    }
#endif

    if (n > 1 && p[n - 1] == '*') {
        return host->len >= n && ngx_strncmp(host->data, p, n - 1) == 0;
    }

    if (n > 1 && p[0] == '.' && host->len == n - 1) {
        p++;
        n--;

    } else if (n > 2 && (p[0] == '.' || p[0] == '*')) {
        p += (p[0] == '*');
        n = name->name.len - (p - name->name.data);

        return host->len > n
               && ngx_strncmp(host->data + host->len - n, p, n) == 0;
    }

    return host->len == n && ngx_strncmp(host->data, p, n) == 0;
}
