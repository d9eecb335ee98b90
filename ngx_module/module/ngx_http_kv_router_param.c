
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_param.h"


static const ngx_http_kv_router_param_t *ngx_http_kv_router_param_find(
    const ngx_http_kv_router_param_t *params, ngx_str_t *arg);
static ngx_int_t ngx_http_kv_router_param_integer(
    const ngx_http_kv_router_param_t *param, ngx_str_t *value, int64_t *n);
static ngx_int_t ngx_http_kv_router_param_uri(ngx_str_t *value);
static u_char *ngx_http_kv_router_param_must(
    const ngx_http_kv_router_param_t *param, u_char *p, u_char *last);
static u_char *ngx_http_kv_router_param_number(
    ngx_http_kv_router_param_e kind, int64_t n, u_char *p, u_char *last);


static const char *const  ngx_http_kv_router_param_flags[] = {
    "off", "on", NULL
};


char *
ngx_http_kv_router_params(ngx_conf_t *cf, ngx_uint_t first,
    const ngx_http_kv_router_param_t *params, void *conf, uint32_t *given)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = first; i < cf->args->nelts; i++) {

        if (ngx_http_kv_router_param(cf, &value[i], &value[i], params, NULL,
                                     conf, given)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_kv_router_param(ngx_conf_t *cf, ngx_str_t *arg, ngx_str_t *shown,
    const ngx_http_kv_router_param_t *params, const char *also, void *conf,
    uint32_t *given)
{
    char                              *rv;
    u_char                            *p, *last, *field;
    const char                        *retired;
    u_char                             text[NGX_MAX_CONF_ERRSTR];
    int64_t                            n;
    ngx_int_t                          rc;
    ngx_str_t                          value;
    ngx_http_kv_router_param_pt        set;
    const ngx_http_kv_router_param_t  *param;

    p = text;
    last = text + sizeof(text);

    param = ngx_http_kv_router_param_find(params, arg);

    if (param == NULL) {
        retired = ngx_http_kv_router_retired_param(cf, arg);

        if (retired) {
            p = ngx_slprintf(p, last, ", it %s", retired);
            goto invalid;
        }

        p = ngx_slprintf(p, last, ": the parameters are %s",
                         also ? also : "");

        for (param = params; param->name.len; param++) {
            p = ngx_slprintf(p, last, "%s%V",
                             param == params && !also ? "" : ", ",
                             &param->name);
        }

        goto invalid;
    }

    value.data = arg->data + param->name.len + 1;
    value.len = arg->len - param->name.len - 1;

    field = (u_char *) conf + param->offset;
    rc = NGX_OK;

    switch (param->kind) {

    case NGX_HTTP_KV_ROUTER_STR:
    case NGX_HTTP_KV_ROUTER_URI:
        rc = (param->kind == NGX_HTTP_KV_ROUTER_URI)
             ? ngx_http_kv_router_param_uri(&value)
             : (value.len ? NGX_OK : NGX_ERROR);

        if (rc == NGX_OK) {
            *(ngx_str_t *) field = value;
        }

        break;

    case NGX_HTTP_KV_ROUTER_TEXT:
        rc = ngx_http_kv_router_param_copy(&value, (char *) field,
                                           param->size);
        break;

    case NGX_HTTP_KV_ROUTER_SET:
        set = (ngx_http_kv_router_param_pt) param->post;
        rv = set(cf, &value, field);

        if (rv == NGX_CONF_ERROR) {
            return rv;
        }

        if (rv != NGX_CONF_OK) {
            p = ngx_slprintf(p, last, ", %s", rv);
            goto invalid;
        }

        break;

    default:
        rc = ngx_http_kv_router_param_integer(param, &value, &n);

        if (rc != NGX_OK) {
            break;
        }

        switch (param->size) {

        case sizeof(uint8_t):
            *(uint8_t *) field = (uint8_t) n;
            break;

        case sizeof(uint32_t):
            *(uint32_t *) field = (uint32_t) n;
            break;

        default:
            *(uint64_t *) field = (uint64_t) n;
            break;
        }
    }

    if (rc != NGX_OK) {
        p = ngx_http_kv_router_param_must(param, p, last);
        goto invalid;
    }

    if (given) {
        *given |= param->bit;
    }

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"%*s",
                       shown, (size_t) (p - text), text);

    return NGX_CONF_ERROR;
}


static const ngx_http_kv_router_param_t *
ngx_http_kv_router_param_find(const ngx_http_kv_router_param_t *params,
    ngx_str_t *arg)
{
    for ( /* void */ ; params->name.len; params++) {

        if (arg->len > params->name.len
            && arg->data[params->name.len] == '='
            && ngx_strncmp(arg->data, params->name.data, params->name.len)
               == 0)
        {
            return params;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_kv_router_param_integer(const ngx_http_kv_router_param_t *param,
    ngx_str_t *value, int64_t *n)
{
    const char *const  *w;

    switch (param->kind) {

    case NGX_HTTP_KV_ROUTER_FLAG:
    case NGX_HTTP_KV_ROUTER_WORD:

        w = param->post ? param->post : ngx_http_kv_router_param_flags;

        for (*n = param->least; w[*n]; ++*n) {
            if (ngx_strlen(w[*n]) == value->len
                && ngx_strncmp(w[*n], value->data, value->len) == 0)
            {
                return NGX_OK;
            }
        }

        return NGX_ERROR;

    case NGX_HTTP_KV_ROUTER_AUTO:

        if (value->len == 4 && ngx_strncmp(value->data, "auto", 4) == 0) {
            *n = UINT32_MAX;
            return NGX_OK;
        }

        *n = ngx_atoi(value->data, value->len);
        break;

    case NGX_HTTP_KV_ROUTER_SIZE:
        *n = ngx_parse_size(value);
        break;

    case NGX_HTTP_KV_ROUTER_DECIMAL:
        *n = ngx_atofp(value->data, value->len, 3);
        break;

    case NGX_HTTP_KV_ROUTER_MSEC:
        *n = ngx_parse_time(value, 0);
        break;

    case NGX_HTTP_KV_ROUTER_SEC:
        *n = ngx_parse_time(value, 1);
        break;

    default: /* NGX_HTTP_KV_ROUTER_NUMBER */
        *n = ngx_atoi(value->data, value->len);
        break;
    }

    /* NGX_ERROR is negative, and no minimum is: NGX_ERROR fails this check */

    return *n >= param->least && *n <= param->most ? NGX_OK : NGX_ERROR;
}


/* Is the value a path of characters that a request line can contain? */

static ngx_int_t
ngx_http_kv_router_param_uri(ngx_str_t *value)
{
    size_t  i;

    for (i = 0; i < value->len; i++) {
        if (value->data[i] <= 0x20 || value->data[i] == 0x7f) {
            return NGX_ERROR;
        }
    }

    return value->len && value->data[0] == '/' ? NGX_OK : NGX_ERROR;
}


char *
ngx_http_kv_router_param_zone(ngx_conf_t *cf, ngx_str_t *value,
    ngx_str_t *name, size_t *size)
{
    u_char     *p, *last;
    ssize_t     n;
    ngx_str_t   s;

    last = value->data + value->len;

    p = ngx_strlchr(value->data, last, ':');

    s.data = p ? p + 1 : last;
    s.len = last - s.data;

    n = ngx_parse_size(&s);

    if (p == NULL || p == value->data || n == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone size \"zone=%V\", it must be a name "
                           "and a size in \"k\" or \"m\", as in "
                           "\"zone=main:1024m\"", value);
        return NGX_CONF_ERROR;
    }

    name->data = value->data;
    name->len = p - value->data;
    *size = n;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_kv_router_param_copy(ngx_str_t *value, char *to, size_t size)
{
    if (value->len >= size || ngx_strlchr(value->data,
                                          value->data + value->len, '\0'))
    {
        return NGX_ERROR;
    }

    ngx_memzero(to, size);
    ngx_memcpy(to, value->data, value->len);

    return NGX_OK;
}


/* ---- messages ----------------------------------------------------------- */

/* Writes the values that a parameter can have: "must be …". */

static u_char *
ngx_http_kv_router_param_must(const ngx_http_kv_router_param_t *param,
    u_char *p, u_char *last)
{
    int64_t             i;
    const char         *what;
    const char *const  *w;

    p = ngx_slprintf(p, last, ", it must be ");
    what = "a number";

    switch (param->kind) {

    case NGX_HTTP_KV_ROUTER_FLAG:
        return ngx_slprintf(p, last, "\"on\" or \"off\"");

    case NGX_HTTP_KV_ROUTER_WORD:

        w = param->post;

        for (i = param->least; w[i]; i++) {
            p = ngx_slprintf(p, last, "%s\"%s\"",
                             i == param->least ? ""
                                               : w[i + 1] ? ", " : " or ",
                             w[i]);
        }

        return p;

    case NGX_HTTP_KV_ROUTER_STR:
        return ngx_slprintf(p, last, "a text that is not empty");

    case NGX_HTTP_KV_ROUTER_TEXT:
        return ngx_slprintf(p, last, "a text of %uz bytes at most",
                            param->size - 1);

    case NGX_HTTP_KV_ROUTER_URI:
        return ngx_slprintf(p, last, "a URI that begins with \"/\" and has "
                            "no blanks");

    case NGX_HTTP_KV_ROUTER_MSEC:
    case NGX_HTTP_KV_ROUTER_SEC:
        what = "a time";
        break;

    case NGX_HTTP_KV_ROUTER_AUTO:
        what = "\"auto\", or a number";
        break;

    case NGX_HTTP_KV_ROUTER_SIZE:
        what = "a number, or one of \"k\" or \"m\",";
        break;

    default:
        break;
    }

    p = ngx_slprintf(p, last, "%s from ", what);
    p = ngx_http_kv_router_param_number(param->kind, param->least, p, last);
    p = ngx_slprintf(p, last, " to ");

    return ngx_http_kv_router_param_number(param->kind, param->most, p, last);
}


/* Writes a number as the configuration has it: 1d, 1h, 500ms, 0.001. */

static u_char *
ngx_http_kv_router_param_number(ngx_http_kv_router_param_e kind, int64_t n,
    u_char *p, u_char *last)
{
    ngx_uint_t  i;

    static const struct {
        int64_t      ms;
        const char  *name;
    } units[] = {
        { 86400000, "d" },
        { 3600000, "h" },
        { 60000, "m" },
        { 1000, "s" },
        { 1, "ms" }
    };

    switch (kind) {

    case NGX_HTTP_KV_ROUTER_DECIMAL:
        return (n % 1000) ? ngx_slprintf(p, last, "%L.%03L", n / 1000,
                                         n % 1000)
                          : ngx_slprintf(p, last, "%L", n / 1000);

    case NGX_HTTP_KV_ROUTER_SEC:
        n *= 1000;

        /* fall through */

    case NGX_HTTP_KV_ROUTER_MSEC:

        if (n == 0) {
            break;
        }

        for (i = 0; n % units[i].ms; i++) { /* void */ }

        return ngx_slprintf(p, last, "%L%s", n / units[i].ms, units[i].name);

    default:
        break;
    }

    return ngx_slprintf(p, last, "%L", n);
}


double
ngx_http_kv_router_param_get(const ngx_http_kv_router_param_t *params,
    const void *conf, const char *name)
{
    const u_char  *field;

    for ( /* void */ ; params->name.len; params++) {

        if (ngx_strcmp(params->name.data, name) == 0) {
            field = (const u_char *) conf + params->offset;

            return params->size == sizeof(uint32_t)
                   ? *(const uint32_t *) field : *(const uint64_t *) field;
        }
    }

    return -1;
}
