
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_metrics.h"


void
ngx_http_kv_router_metric(ngx_http_kv_router_metrics_t *s, const char *name,
    const char *type, const char *help)
{
    size_t  len;

    len = ngx_strlen(name);

    if (s->openmetrics && ngx_strcmp(type, "counter") == 0
        && len > 6 && ngx_strcmp(name + len - 6, "_total") == 0)
    {
        len -= 6;
    }

    ngx_http_kv_router_answer_printf(s->answer,
                                     "# HELP kv_router_%*s %s\n"
                                     "# TYPE kv_router_%*s %s\n",
                                     len, name, help, len, name, type);
}


/*
 * Writes the name and the labels that all metrics of workers have; more labels
 * may follow.
 */

void
ngx_http_kv_router_labels(ngx_http_kv_router_metrics_t *s, const char *name,
    const ngx_http_kv_router_worker_t *w)
{
    ngx_http_kv_router_answer_printf(s->answer, "kv_router_%s{", name);

    ngx_http_kv_router_label(s, "zone", s->zone->name.data,
                             s->zone->name.len);

    if (w) {
        ngx_http_kv_router_answer_write(s->answer, ",", 1);
        ngx_http_kv_router_label_str(s, "worker", w->conf.id);
    }
}


void
ngx_http_kv_router_label(ngx_http_kv_router_metrics_t *s, const char *name,
    const u_char *value, size_t len)
{
    size_t                        i;
    ngx_http_kv_router_answer_t  *a;

    a = s->answer;

    ngx_http_kv_router_answer_printf(a, "%s=\"", name);

    for (i = 0; i < len; i++) {

        switch (value[i]) {

        case '\\':
        case '"':
            ngx_http_kv_router_answer_printf(a, "\\%c", value[i]);
            break;

        case '\n':
            ngx_http_kv_router_answer_write(a, "\\n", 2);
            break;

        default:
            ngx_http_kv_router_answer_write(a, &value[i], 1);
        }
    }

    ngx_http_kv_router_answer_write(a, "\"", 1);
}


void
ngx_http_kv_router_label_str(ngx_http_kv_router_metrics_t *s, const char *name,
    const char *value)
{
    ngx_http_kv_router_label(s, name, (const u_char *) value,
                             ngx_strlen(value));
}


void
ngx_http_kv_router_value(ngx_http_kv_router_metrics_t *s, uint64_t value)
{
    ngx_http_kv_router_answer_printf(s->answer, "} %uL\n", value);
}
