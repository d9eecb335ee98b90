
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * API: /query, /query_by_hash, /hash.
 */


#include "ngx_http_kv_router_api.h"


/* the arguments of the three queries */

typedef struct {
    ngx_str_t                       lora;
    ngx_str_t                       salt;
    uint64_t                       *local;     /* NULL: not given */
    size_t                          blocks;
    uint64_t                        tokens;    /* 0: not known */
    bool                            early_exit;
} ngx_http_kv_router_query_t;


/* an element of "scores" in the answer */

typedef struct {
    kvr_match_t                     match;
    uint32_t                        rank;
    char                            worker[KVR_WORKER_ID_MAX + 1];
} ngx_http_kv_router_score_t;


static ngx_int_t ngx_http_kv_router_query_read(ngx_http_kv_router_call_t *c,
    ngx_http_kv_router_query_t *q, ngx_uint_t early_exit);
static void ngx_http_kv_router_query_early_exit(kvr_json_t *j,
    ngx_http_kv_router_query_t *q);
static void ngx_http_kv_router_query_lora_id(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, ngx_str_t *value);
static ngx_int_t ngx_http_kv_router_query_answer(ngx_http_kv_router_call_t *c,
    ngx_http_kv_router_query_t *q);
static int ngx_libc_cdecl ngx_http_kv_router_score_cmp(const void *one,
    const void *two);
static void ngx_http_kv_router_gen_hashes(ngx_http_kv_router_call_t *c,
    const char *key, uint64_t *hashes, size_t n);


ngx_int_t
ngx_http_kv_router_call_query(ngx_http_kv_router_call_t *c)
{
    ngx_int_t                   rc;
    ngx_http_kv_router_query_t  q;

    rc = ngx_http_kv_router_query_read(c, &q, 1);

    if (rc != NGX_OK || q.local == NULL) {
        return rc;
    }

    return ngx_http_kv_router_query_answer(c, &q);
}


ngx_int_t
ngx_http_kv_router_call_hash(ngx_http_kv_router_call_t *c)
{
    ngx_int_t                   rc;
    ngx_http_kv_router_query_t  q;

    rc = ngx_http_kv_router_query_read(c, &q, 0);

    if (rc != NGX_OK || q.local == NULL) {
        return rc;
    }

    yajl_gen_map_open(c->answer->gen);

    ngx_http_kv_router_gen_hashes(c, "local", q.local, q.blocks);

    kvr_hash_sequence(q.local, q.blocks, q.local);

    ngx_http_kv_router_gen_hashes(c, "sequence", q.local, q.blocks);

    yajl_gen_map_close(c->answer->gen);

    return ngx_http_kv_router_call_ok(c);
}


ngx_int_t
ngx_http_kv_router_call_query_by_hash(ngx_http_kv_router_call_t *c)
{
    size_t                      max;
    uint64_t                    hash;
    kvr_json_t                  j;
    kvr_json_text_t             key;
    ngx_http_kv_router_query_t  q;

    ngx_memzero(&q, sizeof(ngx_http_kv_router_query_t));

    /* a hash takes two bytes at least; the last of duplicate keys counts */

    max = ngx_min(c->body.len / 2 + 1, KVR_EVENT_TOKENS_MAX);

    kvr_json_init(&j, (char *) c->body.data, c->body.len);
    kvr_json_open(&j, '{');

    while (kvr_json_key(&j, &key)) {

        if (kvr_json_is(&key, "early_exit")) {
            ngx_http_kv_router_query_early_exit(&j, &q);
            continue;
        }

        if (kvr_json_is(&key, "prompt_tokens")) {
            (void) kvr_json_u64(&j, &q.tokens);
            continue;
        }

        if (!kvr_json_is(&key, "block_hashes")) {
            ngx_http_kv_router_call_unknown(c, &j, &key);
            break;
        }

        if (q.local == NULL) {
            q.local = ngx_palloc(c->request->pool, max * sizeof(uint64_t));
            if (q.local == NULL) {
                return NGX_HTTP_INTERNAL_SERVER_ERROR;
            }
        }

        q.blocks = 0;

        kvr_json_open(&j, '[');

        while (kvr_json_next(&j)) {

            if (!kvr_json_u64(&j, &hash)) {
                break;
            }

            if (q.blocks == max) {
                kvr_json_fail(&j, j.pos, "too many hashes");
                break;
            }

            q.local[q.blocks++] = hash;
        }
    }

    if (!kvr_json_end(&j)) {
        return ngx_http_kv_router_call_bad_body(c, &j);
    }

    if (q.local == NULL) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                               "body: \"block_hashes\" is "
                                               "missing");
    }

    return ngx_http_kv_router_query_answer(c, &q);
}


/*
 * Reads tokens and hash namespace, and hashes.  If the result is not NGX_OK,
 * or q->local stays NULL, the handler must return the result.
 */

static ngx_int_t
ngx_http_kv_router_query_read(ngx_http_kv_router_call_t *c,
    ngx_http_kv_router_query_t *q, ngx_uint_t early_exit)
{
    size_t            n, max;
    uint32_t         *tokens;
    kvr_json_t        j;
    kvr_hasher_t      hasher;
    kvr_contract_t    contract;
    kvr_json_text_t   key;
    ngx_str_t         lora_id;

    ngx_str_null(&lora_id);
    ngx_memzero(q, sizeof(ngx_http_kv_router_query_t));

    n = 0;
    tokens = NULL;

    max = ngx_min(c->body.len / 2 + 1, c->zone->conf.max_tokens);

    kvr_json_init(&j, (char *) c->body.data, c->body.len);
    kvr_json_open(&j, '{');

    while (kvr_json_key(&j, &key)) {

        if (kvr_json_is(&key, "tokens")) {

            if (tokens == NULL) {
                tokens = ngx_palloc(c->request->pool, max * sizeof(uint32_t));
                if (tokens == NULL) {
                    return NGX_HTTP_INTERNAL_SERVER_ERROR;
                }
            }

            kvr_json_ids(&j, tokens, max, &n);

        } else if (kvr_json_is(&key, "lora_name")) {
            ngx_http_kv_router_call_string(c, &j, &q->lora);

        } else if (kvr_json_is(&key, "lora_id")) {
            ngx_http_kv_router_query_lora_id(c, &j, &lora_id);

        } else if (kvr_json_is(&key, "cache_salt")) {
            ngx_http_kv_router_call_string(c, &j, &q->salt);

        } else if (early_exit && kvr_json_is(&key, "early_exit")) {
            ngx_http_kv_router_query_early_exit(&j, q);

        } else {
            ngx_http_kv_router_call_unknown(c, &j, &key);
        }
    }

    if (!kvr_json_end(&j)) {
        return ngx_http_kv_router_call_bad_body(c, &j);
    }

    if (tokens == NULL) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                               "body: \"tokens\" is missing");
    }

    if (q->lora.len == 0) {
        q->lora = lora_id;
    }

    if (n > max) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                               "body: %uz tokens are more "
                                               "than max_tokens=%ui",
                                               n, c->zone->conf.max_tokens);
    }

    contract = kvr_params_contract(kvr_router_params(&c->zone->run.router));

    q->local = ngx_palloc(c->request->pool,
                          (kvr_contract_blocks(contract, n) + 1)
                          * sizeof(uint64_t));
    if (q->local == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(&hasher, sizeof(kvr_hasher_t));

    kvr_hasher_init(&hasher,
                    kvr_hash_seed((char *) q->lora.data, q->lora.len,
                                  (char *) q->salt.data, q->salt.len));

    q->blocks = kvr_contract_hash(contract, &hasher, tokens, n, q->local);
    q->tokens = n;

    return NGX_OK;
}


/* Reads true, false, or null, which changes nothing. */

static void
ngx_http_kv_router_query_early_exit(kvr_json_t *j,
    ngx_http_kv_router_query_t *q)
{
    if (kvr_json_peek(j) == 'n') {
        (void) kvr_json_null(j);

    } else {
        (void) kvr_json_bool(j, &q->early_exit);
    }
}


/*
 * Reads the number of a LoRA that has no name, or null.  The text of a number
 * is what events of this LoRA are hashed with: kvr_event_lora_id().
 */

static void
ngx_http_kv_router_query_lora_id(ngx_http_kv_router_call_t *c, kvr_json_t *j,
    ngx_str_t *value)
{
    u_char      *p;
    uint64_t     id;
    const char  *at;

    ngx_str_null(value);

    if (kvr_json_peek(j) == 'n') {
        (void) kvr_json_null(j);
        return;
    }

    at = j->pos;

    if (!kvr_json_u64(j, &id)) {
        return;
    }

    p = ngx_pnalloc(c->request->pool, NGX_INT64_LEN);
    if (p == NULL) {
        kvr_json_fail(j, at, "no memory for a number");
        return;
    }

    value->data = p;
    value->len = (size_t) (ngx_sprintf(p, "%uL", id) - p);
}


static ngx_int_t
ngx_http_kv_router_query_answer(ngx_http_kv_router_call_t *c,
    ngx_http_kv_router_query_t *q)
{
    yajl_gen                     g;
    uint32_t                     i, n, holder, worker, flags, generation, max;
    uint32_t                    *frequencies, nfrequencies, cut;
    ngx_str_t                    arg;
    ngx_uint_t                   nscores, estimated;
    kvr_match_t                 *matches;
    kvr_worker_conf_t            conf;
    ngx_http_kv_router_score_t  *scores, *s;

    g = c->answer->gen;

    max = kvr_router_max_holders(&c->zone->run.router);

    matches = ngx_palloc(c->request->pool, max * sizeof(kvr_match_t));
    if (matches == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    n = kvr_router_find(&c->zone->run.router, q->local, q->blocks, q->tokens,
                        q->early_exit, matches, max);

    scores = ngx_palloc(c->request->pool,
                        (n + 1) * sizeof(ngx_http_kv_router_score_t));
    if (scores == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_kv_router_touch(c->request->pool, c->zone, q->local,
                                 q->blocks, matches, n, &frequencies,
                                 &nfrequencies)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    estimated = ngx_http_arg(c->request, (u_char *) "estimated", 9, &arg)
                == NGX_OK
                && arg.len == 1 && arg.data[0] == '1';
    nscores = 0;
    cut = 0;

    for (i = 0; i < n; i++) {

        if (matches[i].estimated && (!estimated || matches[i].device == 0)) {
            continue;
        }

        cut |= matches[i].cut;
        holder = matches[i].holder;
        worker = kvr_router_holder_worker(&c->zone->run.router, holder);

        /* a worker that is being removed just now has no score any more */

        if (kvr_router_read_worker(&c->zone->run.router, worker, &conf, &flags,
                                   &generation)
            != KVR_OK
            || (flags & KVR_WORKER_DELETED))
        {
            continue;
        }

        s = &scores[nscores++];

        s->match = matches[i];
        s->rank = kvr_router_holder_rank(&c->zone->run.router, holder);
        ngx_memcpy(s->worker, conf.id, sizeof(s->worker));
    }

    ngx_qsort(scores, nscores, sizeof(ngx_http_kv_router_score_t),
              ngx_http_kv_router_score_cmp);

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_u64(g, "block_size",
                         kvr_router_params(&c->zone->run.router)->block_size);
    ngx_http_kv_router_gen_u64(g, "blocks", q->blocks);

    ngx_http_kv_router_gen_key(g, "scores");
    yajl_gen_array_open(g);

    for (s = scores; s < scores + nscores; s++) {
        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_str(g, "worker_id", s->worker);
        ngx_http_kv_router_gen_u64(g, "dp_rank", s->rank);
        ngx_http_kv_router_gen_u64(g, "device", s->match.device);
        ngx_http_kv_router_gen_u64(g, "host", s->match.host);
        ngx_http_kv_router_gen_u64(g, "disk", s->match.disk);

        if (s->match.estimated) {
            ngx_http_kv_router_gen_bool(g, "estimated", 1);
        }

        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);

    if (frequencies) {
        ngx_http_kv_router_gen_key(g, "frequencies");
        yajl_gen_array_open(g);

        for (i = 0; i < nfrequencies; i++) {
            yajl_gen_integer(g, frequencies[i]);
        }

        yajl_gen_array_close(g);
    }

    if (cut) {
        ngx_http_kv_router_gen_bool(g, "cut", 1);
    }

    yajl_gen_map_close(g);

    return ngx_http_kv_router_call_ok(c);
}


/* Sorts by the blocks in device, most first; then by worker and rank. */

static int ngx_libc_cdecl
ngx_http_kv_router_score_cmp(const void *one, const void *two)
{
    int                                rc;
    const ngx_http_kv_router_score_t  *a, *b;

    a = one;
    b = two;

    if (a->match.device != b->match.device) {
        return (a->match.device > b->match.device) ? -1 : 1;
    }

    rc = ngx_strcmp(a->worker, b->worker);

    if (rc) {
        return rc;
    }

    return (a->rank > b->rank) - (a->rank < b->rank);
}


static void
ngx_http_kv_router_gen_hashes(ngx_http_kv_router_call_t *c, const char *key,
    uint64_t *hashes, size_t n)
{
    u_char    buf[NGX_INT64_LEN], *last;
    size_t    i;
    yajl_gen  g;

    g = c->answer->gen;

    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_array_open(g);

    for (i = 0; i < n; i++) {
        last = ngx_sprintf(buf, "%uL", hashes[i]);
        yajl_gen_string(g, buf, last - buf);
    }

    yajl_gen_array_close(g);
}
