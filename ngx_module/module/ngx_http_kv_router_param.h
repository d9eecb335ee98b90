/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Parameters of a directive, "name=value": a table has a line for each of
 * them, and one parser reads their values into a structure.
 */


#ifndef _NGX_HTTP_KV_ROUTER_PARAM_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_PARAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* The syntax of a value, and the type of the field that stores it. */

typedef enum {
    NGX_HTTP_KV_ROUTER_FLAG,        /* on|off; an integer: 1, 0 */
    NGX_HTTP_KV_ROUTER_NUMBER,      /* a whole one; an integer */
    NGX_HTTP_KV_ROUTER_AUTO,        /* a whole one, or "auto"; an integer,
                                       UINT32_MAX */
    NGX_HTTP_KV_ROUTER_SIZE,        /* a whole one, or one of "k" (1024) or "m"
                                       (1024 * 1024); an integer */
    NGX_HTTP_KV_ROUTER_DECIMAL,     /* an integer of thousandths */
    NGX_HTTP_KV_ROUTER_MSEC,        /* a time; an integer of milliseconds */
    NGX_HTTP_KV_ROUTER_SEC,         /* a time; an integer of seconds */
    NGX_HTTP_KV_ROUTER_WORD,        /* one of the table's, from least on; an
                                       integer */
    NGX_HTTP_KV_ROUTER_STR,         /* not empty; an ngx_str_t */
    NGX_HTTP_KV_ROUTER_TEXT,        /* a char[], terminated */
    NGX_HTTP_KV_ROUTER_URI,         /* begins with "/"; an ngx_str_t */
    NGX_HTTP_KV_ROUTER_SET          /* the table's function takes it */
} ngx_http_kv_router_param_e;


/*
 * Takes a value into the field.  Answers NGX_CONF_OK, NGX_CONF_ERROR when it
 * has logged what is wrong, or else what is wrong with the value, "it must …".
 */

typedef char *(*ngx_http_kv_router_param_pt)(ngx_conf_t *cf, ngx_str_t *value,
    void *field);


/* An integer has 1, 4 or 8 bytes; most of a char[] follows from its size. */

typedef struct {
    ngx_str_t                       name;      /* len 0: the table's end */
    ngx_http_kv_router_param_e      kind;
    size_t                          offset;    /* of the field */
    size_t                          size;      /* of the field */
    int64_t                         least;
    int64_t                         most;
    const void                     *post;      /* a WORD's words by number,
                                                  const char *[], then NULL;
                                                  a SET's function */
    uint32_t                        bit;       /* to be set in *given */
} ngx_http_kv_router_param_t;


/* offset and size of a line */

#define ngx_http_kv_router_at(type, field)                                    \
    offsetof(type, field), sizeof(((type *) 0)->field)


/*
 * Reads arguments of a directive, from number first on, into conf, the
 * structure that the table describes.  The bits of the parameters found are
 * set in *given, which may be NULL.  NGX_CONF_OK, or NGX_CONF_ERROR, logged.
 */
char *ngx_http_kv_router_params(ngx_conf_t *cf, ngx_uint_t first,
    const ngx_http_kv_router_param_t *params, void *conf, uint32_t *given);

/*
 * The same with one argument.  shown: the argument as messages show it; also:
 * NULL, or text that the message for an unknown parameter has before the names
 * of the parameters.
 */
char *ngx_http_kv_router_param(ngx_conf_t *cf, ngx_str_t *arg,
    ngx_str_t *shown, const ngx_http_kv_router_param_t *params,
    const char *also, void *conf, uint32_t *given);

/*
 * The successor of a parameter of the directive that is being read; NULL if no
 * earlier version had the parameter.
 */
const char *ngx_http_kv_router_retired_param(ngx_conf_t *cf, ngx_str_t *arg);

/* Reads "name:size".  NGX_CONF_ERROR: a message with the parameter as it is
 * written has been logged. */
char *ngx_http_kv_router_param_zone(ngx_conf_t *cf, ngx_str_t *value,
    ngx_str_t *name, size_t *size);

/* A value as a terminated string.  NGX_ERROR: it has size bytes or more. */
ngx_int_t ngx_http_kv_router_param_copy(ngx_str_t *value, char *to,
    size_t size);

/* The integer of 4 or 8 bytes of a parameter; -1: there is no such one. */
double ngx_http_kv_router_param_get(const ngx_http_kv_router_param_t *params,
    const void *conf, const char *name);


#endif /* _NGX_HTTP_KV_ROUTER_PARAM_H_INCLUDED_ */
