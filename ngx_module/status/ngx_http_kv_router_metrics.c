
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_metrics.h"


static void ngx_http_kv_router_quoted(ngx_http_kv_router_answer_t *a,
    const ngx_str_t *value);


void
ngx_http_kv_router_metric(ngx_http_kv_router_metrics_t *s, const char *name,
    const char *type, const char *help)
{
    size_t      len;
    ngx_uint_t  total;

    if (s->name && ngx_strcmp(s->name, name) == 0) {
        return;
    }

    s->name = name;
    len = ngx_strlen(name);
    total = len > 6 && ngx_strcmp(name + len - 6, "_total") == 0;

    if (total && s->openmetrics) {
        len -= 6;
    }

    if (type == NULL) {
        type = total ? "counter" : "gauge";
    }

    ngx_http_kv_router_answer_printf(s->answer,
                                     "# HELP kv_router_%*s %s\n"
                                     "# TYPE kv_router_%*s %s\n",
                                     len, name, help, len, name, type);
}


void
ngx_http_kv_router_labels(ngx_http_kv_router_metrics_t *s, const char *added,
    const ngx_http_kv_router_worker_t *w)
{
    ngx_http_kv_router_answer_printf(s->answer, "kv_router_%s%s{zone=",
                                     s->name, added);
    ngx_http_kv_router_quoted(s->answer, &s->zone->conf.name);

    if (w) {
        ngx_http_kv_router_label_str(s, "worker", w->conf.id);
    }

    if (s->key) {
        ngx_http_kv_router_label(s, s->key, s->of);
    }
}


void
ngx_http_kv_router_label(ngx_http_kv_router_metrics_t *s, const char *name,
    const ngx_str_t *value)
{
    ngx_http_kv_router_answer_printf(s->answer, ",%s=", name);
    ngx_http_kv_router_quoted(s->answer, value);
}


static void
ngx_http_kv_router_quoted(ngx_http_kv_router_answer_t *a,
    const ngx_str_t *value)
{
    size_t  i;

    ngx_http_kv_router_answer_write(a, "\"", 1);

    for (i = 0; i < value->len; i++) {

        switch (value->data[i]) {

        case '\\':
        case '"':
            ngx_http_kv_router_answer_printf(a, "\\%c", value->data[i]);
            break;

        case '\n':
            ngx_http_kv_router_answer_write(a, "\\n", 2);
            break;

        default:
            ngx_http_kv_router_answer_write(a, &value->data[i], 1);
        }
    }

    ngx_http_kv_router_answer_write(a, "\"", 1);
}


void
ngx_http_kv_router_label_str(ngx_http_kv_router_metrics_t *s, const char *name,
    const char *value)
{
    ngx_str_t  str;

    str.data = (u_char *) value;
    str.len = ngx_strlen(value);

    ngx_http_kv_router_label(s, name, &str);
}


void
ngx_http_kv_router_value(ngx_http_kv_router_metrics_t *s, uint64_t value,
    ngx_uint_t digits)
{
    if (digits == 6) {
        ngx_http_kv_router_answer_printf(s->answer, "} %uL.%06uL\n",
                                         value / 1000000, value % 1000000);

    } else if (digits == 3) {
        ngx_http_kv_router_answer_printf(s->answer, "} %uL.%03uL\n",
                                         value / 1000, value % 1000);

    } else {
        ngx_http_kv_router_answer_printf(s->answer, "} %uL\n", value);
    }
}


void
ngx_http_kv_router_sample(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, const char *name, const char *label,
    uint64_t value)
{
    ngx_http_kv_router_labels(s, "", w);

    if (name) {
        ngx_http_kv_router_label_str(s, name, label);
    }

    ngx_http_kv_router_value(s, value, 0);
}


void
ngx_http_kv_router_fields_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, const void *base)
{
    for ( /* void */ ; f->key; f++) {

        if (f->metric == NULL
            || (f->object && s->zone->conf.redis == NULL
                && (ngx_strcmp(f->object, "redis") == 0
                    || ngx_strcmp(f->object, "sync") == 0))
            || (f->object && s->zone->conf.model == NULL
                && ngx_strcmp(f->object, "texts") == 0))
        {
            continue;
        }

        ngx_http_kv_router_metric(s, f->metric, NULL, f->help);
        ngx_http_kv_router_labels(s, "", NULL);
        ngx_http_kv_router_field_sample(s, f, base);
    }
}


void
ngx_http_kv_router_field_sample(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, const void *base)
{
    if (f->label) {
        ngx_http_kv_router_answer_printf(s->answer, ",%s", f->label);
    }

    ngx_http_kv_router_value(s, ngx_http_kv_router_field(f, base), 0);
}
