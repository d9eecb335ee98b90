
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The counters that all processes of a zone add to.  A row is all that is
 * said of one: where it is added, ngx_http_kv_router_count() names it.
 */


#ifndef _NGX_HTTP_KV_ROUTER_COUNTS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_COUNTS_H_INCLUDED_


/*
 * X(id, object, key, metric, label, help): the object and its key in JSON, ""
 * where the counter is a part of another number; the metric's name after
 * "kv_router_", without one JSON alone has the number; a label of the sample,
 * or NULL.  The rows of a metric follow each other.
 */

#define NGX_HTTP_KV_ROUTER_COUNTS(X)                                          \
    X(REQUESTS, "requests", "routed", "requests_total", NULL,                 \
      "Requests routed.")                                                     \
    X(RETRIES, "requests", "retries", "retries_total", NULL,                  \
      "Attempts after a worker failed.")                                      \
    X(POLICY_ERRORS, "requests", "policy_errors", "policy_errors_total",      \
      NULL, "Requests whose policy failed.")                                  \
    X(POLICY_SLOW, "requests", "policy_slow", "policy_slow_total", NULL,      \
      "Times that a policy took over 10 ms to choose.")                       \
    X(PROMPTS_SCANNED, "requests", "prompts_scanned", NULL, NULL, NULL)       \
    X(LOOKUPS, "requests", "lookups", NULL, NULL, NULL)                       \
    X(LOOKUPS_MATCHED, "requests", "lookups_matched", NULL, NULL, NULL)       \
    X(PROMPT_BLOCKS, "requests", "prompt_blocks", "prompt_blocks_total",      \
      NULL, "Complete blocks of the prompts.")                                \
    X(OVERLAP_BLOCKS, "requests", "overlap_blocks", "overlap_blocks_total",   \
      NULL, "Blocks of the prompts that the chosen worker had.")              \
    X(BEST_BLOCKS, "requests", "best_overlap_blocks",                         \
      "best_overlap_blocks_total", NULL,                                      \
      "Blocks of the prompts that the best worker had.")                      \
    X(RANDOM_BLOCKS, "requests", "random_overlap_blocks",                     \
      "random_overlap_blocks_total", NULL,                                    \
      "Blocks of the prompts that a random worker would have had.")           \
    X(LEAST_LOADED_BLOCKS, "requests", "least_loaded_overlap_blocks",         \
      "least_loaded_overlap_blocks_total", NULL,                              \
      "Blocks of the prompts that the least loaded worker had.")              \
    X(UNSHARED, "requests", "unshared", NULL, NULL, NULL)                     \
    X(UNORDERED, "requests", "unordered", NULL, NULL, NULL)                   \
    X(SELECTED, "requests", "reservations", "reservations_total",             \
      "what=\"made\"", "Reservations of POST /select that were made, that "   \
      "ended with their lease, and that found the table full.")               \
    X(SELECTED_EXPIRED, "requests", "reservations_expired",                   \
      "reservations_total",                                                   \
      "what=\"expired\"", NULL)                                               \
    X(SELECTED_FULL, "requests", "reservations_full", "reservations_total",   \
      "what=\"full\"", NULL)                                                  \
    X(QUESTIONS, "questions", "asked", "asks_total", "what=\"tokens\"",       \
      "Times that the router asked an engine or a name server.")              \
    X(PROBES, "questions", "probes", "asks_total", "what=\"probe\"", NULL)    \
    X(SCRAPES, "scrape", "scrapes", "asks_total", "what=\"load\"", NULL)      \
    X(NAMES_ASKED, "names", "asked", "asks_total", "what=\"name\"", NULL)     \
    X(QUESTIONS_FAILED, "questions", "failed", "asks_failed_total",           \
      "what=\"tokens\"", "Of these, times without an answer in time.")        \
    X(PROBES_FAILED, "questions", "probes_failed", "asks_failed_total",       \
      "what=\"probe\"", NULL)                                                 \
    X(SCRAPES_FAILED, "scrape", "failed", "asks_failed_total",                \
      "what=\"load\"", NULL)                                                  \
    X(NAMES_FAILED, "names", "failed", "asks_failed_total",                   \
      "what=\"name\"", NULL)                                                  \
    X(QUESTIONS_KEPT, "questions", "kept", NULL, NULL, NULL)                  \
    X(QUESTIONS_JOINED, "questions", "joined", NULL, NULL, NULL)              \
    X(MODELS_LOADED, "local_model", "loaded", NULL, NULL, NULL)               \
    X(MODELS_KEPT, "local_model", "kept", NULL, NULL, NULL)                   \
    X(LOCAL_SLICES, "local_model", "slices", NULL, NULL, NULL)                \
    X(TEXTS_DONE, "texts", "done", "local_texts_total",                       \
      "how=\"done\"", "Texts for the zone's model, by what became of them.")  \
    X(TEXTS_BUSY, "texts", "busy", "local_texts_total",                       \
      "how=\"busy\"", NULL)                                                   \
    X(TEXTS_FAILED, "texts", "failed", "local_texts_total",                   \
      "how=\"failed\"", NULL)                                                 \
    X(ECHOES, "echoes", "kept", NULL, NULL, NULL)                             \
    X(ECHOES_VOID, "echoes", "void", NULL, NULL, NULL)                        \
    X(ECHOES_DROPPED, "echoes", "dropped", NULL, NULL, NULL)                  \
    X(ECHOES_LONG, "echoes", "long", NULL, NULL, NULL)                        \
    X(SHADOWS, "echoes", "shadows", NULL, NULL, NULL)                         \
    X(ROUTED_LOST, "", "", NULL, NULL, NULL)                                  \
    X(FAILED, "", "", NULL, NULL, NULL)                                       \
    X(REDIS_CONNECTS, "redis", "connects", NULL, NULL, NULL)                  \
    X(REDIS_DISCONNECTS, "redis", "disconnects", NULL, NULL, NULL)            \
    X(REDIS_MESSAGES, "redis", "messages", "redis_messages_total", NULL,      \
      "Messages received.")                                                   \
    X(REDIS_BYTES, "redis", "bytes", NULL, NULL, NULL)                        \
    X(REDIS_REFUSED, "redis", "refused", "redis_messages_refused_total",      \
      NULL, "Messages refused as a whole.")                                   \
    X(REDIS_DROPPED, "redis", "dropped", "redis_messages_dropped_total",      \
      NULL, "Messages dropped because the queue was full.")                   \
    X(REPAIRS_STARTED, "redis", "repairs_started", "repairs_started_total",   \
      NULL, "Repairs from the log begun.")                                    \
    X(REPAIRS_DONE, "redis", "repairs_done", NULL, NULL, NULL)                \
    X(REPAIRS_FAILED, "redis", "repairs_failed", "repairs_failed_total",      \
      NULL, "Repairs that did not fill their gap.")                           \
    X(SNAPSHOTS_LOADED, "redis", "snapshots_loaded", "snapshots_total",       \
      "what=\"loaded\"", "Snapshots that were loaded, refused, asked for.")   \
    X(SNAPSHOTS_REFUSED, "redis", "snapshots_refused", "snapshots_total",     \
      "what=\"refused\"", NULL)                                               \
    X(SNAPSHOTS_ASKED, "redis", "snapshots_asked", "snapshots_total",         \
      "what=\"asked\"", NULL)                                                 \
    X(SYNC_MESSAGES, "sync", "messages", NULL, NULL, NULL)                    \
    X(SYNC_REFUSED, "sync", "refused", "sync_lost_total",                     \
      "why=\"refused\"", "What peers told and was not taken, or this nginx "  \
      "could not tell.")                                                      \
    X(SYNC_DROPPED, "sync", "dropped", "sync_lost_total",                     \
      "why=\"dropped\"", NULL)


#define ngx_http_kv_router_count_id(id, object, key, metric, label, help)     \
    NGX_HTTP_KV_ROUTER_COUNT_##id,

typedef enum {
    NGX_HTTP_KV_ROUTER_COUNTS(ngx_http_kv_router_count_id)
    NGX_HTTP_KV_ROUTER_COUNTERS
} ngx_http_kv_router_count_t;

#undef ngx_http_kv_router_count_id


/* of a ngx_http_kv_router_shctx_t */

#define ngx_http_kv_router_counter(sh, id)                                    \
    ((sh)->counters[NGX_HTTP_KV_ROUTER_COUNT_##id])

#define ngx_http_kv_router_count(sh, id, n)                                   \
    (void) ngx_atomic_fetch_add(&ngx_http_kv_router_counter(sh, id), n)


#endif /* _NGX_HTTP_KV_ROUTER_COUNTS_H_INCLUDED_ */
