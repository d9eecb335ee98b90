
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_stats.h"
#include "../module/ngx_http_kv_router_ffi.h"
#include "../token/ngx_http_kv_router_turns.h"


/* a row: in JSON alone; and as a metric, with a label or without */

#define row(type, field, key, metric, label, help)                            \
    { NULL, key, metric, label, help, offsetof(type, field),                  \
      sizeof(((type *) 0)->field) * 8 }

#define end  { NULL, NULL, NULL, NULL, NULL, 0, 0 }


#define counter(id, object, key, metric, label, help)                         \
    { object, key, metric, label, help,                                       \
      offsetof(ngx_http_kv_router_shctx_t, counters)                          \
      + NGX_HTTP_KV_ROUTER_COUNT_##id * sizeof(ngx_atomic_t),                 \
      sizeof(ngx_atomic_t) * 8 },

const ngx_http_kv_router_field_t  ngx_http_kv_router_counters[] = {
    NGX_HTTP_KV_ROUTER_COUNTS(counter)
    end
};

#undef counter


#define json(field)                                                           \
    row(kvr_stats_t, field, #field, NULL, NULL, NULL)
#define metric(field, name, help)                                             \
    row(kvr_stats_t, field, #field, name, NULL, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_memory_fields[] = {
    json(zone_bytes),
    json(used_bytes),
    metric(arena_bytes, "arena_size_bytes",
           "Size of the arena that blocks are kept in."),
    metric(arena_used, "arena_used_bytes", "Bytes in use of the arena."),
    end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_index_fields[] = {
    json(workers),
    json(holders),
    json(blocks),
    json(pairs),
    metric(handles, "handles", "Handles that are known, shared ones once."),
    metric(handles_max, "handles_max", "Handles that there is room for."),
    json(runs),
    json(runs_max),
    json(holes),
    json(views_dying),
    metric(forgotten, "forgotten_total",
           "Pairs forgotten for want of room or use."),
    metric(stores_full, "stores_full_total",
           "Stores refused because the zone was full."),
    json(lookups_torn),
    metric(lookups_cut, "lookups_cut_total",
           "Lookups ended at the maximum number of runs or blocks."),
    json(rollbacks),
    json(lock_breaks),
    json(load_reclaimed),
    json(load_uncounted),
    json(load_below_zero),
    metric(selections, "reservations", "Reservations of POST /select that are "
           "held."),
    end
};

#undef json
#undef metric


#define json(field, key)  row(kvr_stats_t, field, key, NULL, NULL, NULL)

const ngx_http_kv_router_field_t  ngx_http_kv_router_frequency_fields[] = {
    json(frequency_max, "blocks_max"),
    json(frequency_replaced, "replaced"),
    json(frequency_cut, "cut"),
    end
};

#undef json


#define json(field, key)  row(kvr_turns_stats_t, field, key, NULL, NULL, NULL)
#define metric(field, label, help)                                            \
    row(kvr_turns_stats_t, field, #field, "turn_cache_texts_total", label,    \
        help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_turns_fields[] = {
    json(slots.slots, "slots"),
    json(slots.used, "used"),
    metric(hits, "found=\"yes\"",
           "Texts, by whether their beginning was in the turn cache."),
    metric(misses, "found=\"no\"", NULL),
    json(tokens, "tokens"),
    json(kept, "kept"),
    json(slots.evicted, "evicted"),
    json(lost, "lost"),
    json(slots.torn, "torn"),
    json(too_large, "too_large"),
    json(busy, "busy"),
    end
};

#undef json
#undef metric


#define json(field)                                                           \
    row(ngx_http_kv_router_routed_t, field, #field, NULL, NULL, NULL)
#define metric(field, label, help)                                            \
    row(ngx_http_kv_router_routed_t, field, #field, "routed_lost_total",      \
        label, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_routed_fields[] = {
    json(rings),
    json(unread),
    json(appended),
    metric(dropped, "why=\"full\"",
           "Requests to workers without events that are missing in the "
           "estimates."),
    json(cut),
    metric(damaged, "why=\"damaged\"", NULL),
    metric(lost, "why=\"no_ring\"", NULL),
    end
};

#undef json
#undef metric


#define json(field)                                                           \
    row(ngx_http_kv_router_worker_t, counters.field, #field, NULL, NULL, NULL)
#define metric(field, help)                                                   \
    row(ngx_http_kv_router_worker_t, counters.field, #field,                  \
        "worker_" #field "_total", NULL, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_counter_fields[] = {
    json(messages),
    json(heartbeats),
    json(duplicates),
    metric(gaps, "Gaps in the sequence of messages."),
    json(repairs),
    json(restarts),
    json(snapshots),
    json(stores),
    json(removes),
    json(clears),
    metric(blocks_stored, "Blocks stored."),
    metric(blocks_removed, "Blocks removed."),
    json(blocks_unknown),
    json(blocks_forgotten),
    end
};

#undef json
#undef metric


#define json(field)                                                           \
    row(ngx_http_kv_router_worker_t, usage.field, #field, NULL, NULL, NULL)
#define metric(field, help)                                                   \
    row(ngx_http_kv_router_worker_t, usage.field, #field,                     \
        "worker_usage_" #field "_total", NULL, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_usage_fields[] = {
    json(requests),
    metric(prompt_tokens, "Prompt tokens of the answers in which the engine "
           "said what it had cached."),
    metric(predicted_tokens,
           "Of these, tokens that the worker had by its events."),
    json(best_tokens),
    metric(cached_tokens, "Of these, tokens that the engine said it had."),
    end
};

#undef json
#undef metric


#define json(field)                                                           \
    row(ngx_http_kv_router_worker_t, health.counters.field, #field, NULL,     \
        NULL, NULL)

const ngx_http_kv_router_field_t  ngx_http_kv_router_health_fields[] = {
    row(ngx_http_kv_router_worker_t, health.counters.attempts, "attempts",
        "worker_attempts_total", NULL,
        "Times that a request was sent there."),
    json(aborted),
    json(pauses),
    json(opened),
    json(probes),
    json(checks),
    json(checks_failed),
    end
};

#undef json


#define json(field)  row(kvr_trust_view_t, field, #field, NULL, NULL, NULL)

const ngx_http_kv_router_field_t  ngx_http_kv_router_trust_fields[] = {
    json(full),
    json(parted),
    json(mismatches),
    end
};

#undef json


#define json(field, key)                                                      \
    row(ngx_http_kv_router_rank_t, field, key, NULL, NULL, NULL)
#define metric(field, key, name, help)                                        \
    row(ngx_http_kv_router_rank_t, field, key, "worker_" name, NULL, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_held_fields[] = {
    metric(held, "blocks", "held_blocks",
           "Blocks that the rank holds, in any tier."),
    end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_load_fields[] = {
    metric(row.active, "active_requests", "active_requests",
           "Requests sent and not ended."),
    json(row.prefills, "active_prefills"),
    metric(row.prefill_tokens, "prefill_tokens", "prefill_tokens",
           "Uncached prompt tokens of the requests that are being "
           "prefilled."),
    metric(row.decode_blocks, "decode_blocks", "decode_blocks",
           "KV blocks of the requests."),
    json(peers, "peers_requests"),
    end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_speed_fields[] = {
    metric(speed, "prefill_tokens_per_second", "prefill_tokens_per_second",
           "Prompt tokens that the rank prefills in a second; 0: not known."),
    json(samples, "samples"),
    end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_estimate_fields[] = {
    metric(estimate.capacity, "capacity", "estimate_capacity",
           "Tokens that the rank's cache has room for; 0: not known."),
    metric(estimate.held, "held", "estimate_held",
           "Tokens that the rank is estimated to have cached."),
    json(estimate.ghosts, "ghosts"),
    json(estimate.ends, "ends"),
    json(estimate.answers, "answers"),
    json(estimate.grown, "grown"),
    json(estimate.shrunk, "shrunk"),
    json(estimate.refused, "refused"),
    end
};

#undef json
#undef metric


/* Reads a field once: other processes may be adding to it. */

uint64_t
ngx_http_kv_router_field(const ngx_http_kv_router_field_t *f, const void *base)
{
    const u_char  *p;

    p = (const u_char *) base + f->offset;

    return (f->bits == 32) ? *(const volatile uint32_t *) p
                           : *(const volatile uint64_t *) p;
}


void
ngx_http_kv_router_fields_json(const ngx_http_kv_router_field_t *f,
    const void *base, yajl_gen g)
{
    for ( /* void */ ; f->key; f++) {
        ngx_http_kv_router_gen_u64(g, f->key,
                                   ngx_http_kv_router_field(f, base));
    }
}


void
ngx_http_kv_router_counters_json(ngx_http_kv_router_zone_t *zone,
    const char *object, yajl_gen g)
{
    const ngx_http_kv_router_field_t  *f;

    for (f = ngx_http_kv_router_counters; f->key; f++) {
        if (ngx_strcmp(f->object, object) == 0) {
            ngx_http_kv_router_gen_u64(g, f->key,
                                       ngx_http_kv_router_field(f,
                                                           zone->run.sh));
        }
    }
}


void
ngx_http_kv_router_counts_json(ngx_http_kv_router_zone_t *zone,
    const char *object, yajl_gen g)
{
    ngx_http_kv_router_gen_map(g, object);
    ngx_http_kv_router_counters_json(zone, object, g);
    yajl_gen_map_close(g);
}


uint32_t
ngx_http_kv_router_ffi_counter(const char *name)
{
    size_t                             len;
    uint32_t                           id;
    const ngx_http_kv_router_field_t  *f;

    for (id = 0; id < NGX_HTTP_KV_ROUTER_COUNTERS; id++) {
        f = &ngx_http_kv_router_counters[id];
        len = ngx_strlen(f->object);

        if (ngx_strncmp(name, f->object, len) == 0 && name[len] == '.'
            && ngx_strcmp(name + len + 1, f->key) == 0)
        {
            break;
        }
    }

    return id;
}
