
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Words of earlier versions, and what takes their place.
 */


#include "ngx_http_kv_router_module.h"
#include "ngx_http_kv_router_param.h"


static const struct {
    const char                     *word;
    const char                     *successor;
} ngx_http_kv_router_retired_words[] = {

    { "kv_router_engine_header",
      "is now the parameter \"header=NAME: VALUE\" of \"kv_router_engine\"" },

    { "kv_router_engine_tls",
      "is now \"kv_router_engine\", with the same parameters" },

    { "kv_router_event_batch",
      "was removed, a turn ends by its time: remove the line" },

    { "kv_router_max_body",
      "is now the parameter \"max_body=\" of \"kv_router_zone\"" },

    { "kv_router_max_tokens",
      "is now the parameter \"max_tokens=\" of \"kv_router_zone\"" },

    { "kv_router_stale",
      "is now the parameter \"stale=\" of \"kv_router_zone\"" },

    { "kv_router_turn_cache",
      "is now the parameter \"turns=SIZE\" of \"kv_router_model\", by default "
      "16m: remove the line" },

    { "kv_router_zone model=", "is now \"served=\"" },

    { NULL, NULL }
};


char *
ngx_http_kv_router_retired(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_uint_t  i;

    for (i = 0; ngx_http_kv_router_retired_words[i].word; i++) {
        if (ngx_strcmp(cmd->name.data,
                       ngx_http_kv_router_retired_words[i].word)
            == 0)
        {
            return (char *) ngx_http_kv_router_retired_words[i].successor;
        }
    }

    return NGX_CONF_ERROR;
}


const char *
ngx_http_kv_router_retired_param(ngx_conf_t *cf, ngx_str_t *arg)
{
    ngx_str_t   *directive;
    ngx_uint_t   i;
    const char  *word;

    directive = cf->args->elts;

    for (i = 0; ngx_http_kv_router_retired_words[i].word; i++) {
        word = ngx_http_kv_router_retired_words[i].word;

        if (ngx_strncmp(word, directive->data, directive->len) == 0
            && word[directive->len] == ' ')
        {
            word += directive->len + 1;

            if (ngx_strncmp(arg->data, word, ngx_strlen(word)) == 0) {
                return ngx_http_kv_router_retired_words[i].successor;
            }
        }
    }

    return NULL;
}
