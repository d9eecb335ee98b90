
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_fields.h"
#include "ngx_http_kv_router_stats.h"
#include "../token/ngx_http_kv_router_turns.h"


#define gauge(field, metric, help)                                           \
    ngx_http_kv_router_gauge(kvr_stats_t, field, #field, metric, help)
#define counter(field, metric, help)                                         \
    ngx_http_kv_router_counter(kvr_stats_t, field, #field, metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_memory_fields[] = {
    gauge(zone_bytes, "zone_size_bytes", "Size of the zone."),
    gauge(used_bytes, "zone_used_bytes",
          "Bytes in use of all that can run out."),
    gauge(arena_bytes, "arena_size_bytes",
          "Size of the arena that blocks are kept in."),
    gauge(arena_used, "arena_used_bytes", "Bytes in use of the arena."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_index_fields[] = {
    gauge(workers, "workers", "Workers that are known."),
    gauge(holders, "holders", "Pairs of a worker and a rank."),
    gauge(blocks, "blocks", "Block positions in the index."),
    gauge(pairs, "pairs", "Pairs of a holder and a handle of a block."),
    gauge(handles, "handles", "Handles that are known, shared ones once."),
    gauge(handles_max, "handles_max", "Handles that there is room for."),
    gauge(runs, "runs", "Runs of blocks in the index."),
    gauge(runs_max, "runs_max", "Runs that there is room for."),
    gauge(holes, "holes", "Pairs of a run and a holder with holes or tiers."),
    gauge(views_dying, "views_dying",
          "Cleared views that are not reclaimed yet."),
    counter(forgotten, "forgotten_total",
            "Pairs forgotten for want of room or use."),
    counter(stores_full, "stores_full_total",
            "Stores refused because the zone was full."),
    counter(lookups_torn, "lookups_torn_total",
            "Lookups cut short because a writer was in the way."),
    counter(lookups_cut, "lookups_cut_total",
            "Lookups ended at the maximum number of runs or blocks."),
    counter(rollbacks, "rollbacks_total",
            "Transactions of dead writers that were undone."),
    counter(lock_breaks, "lock_breaks_total",
            "Locks taken over from dead processes."),
    counter(load_reclaimed, "load_tables_reclaimed_total",
            "Load tables of dead processes that were zeroed."),
    counter(load_uncounted, "load_uncounted_total",
            "Requests that are missing in the load."),
    counter(load_below_zero, "load_below_zero_total",
            "Times that a load counter fell below zero: a bug."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


#define gauge(field, key, metric, help)                                      \
    ngx_http_kv_router_gauge(kvr_stats_t, field, key, metric, help)
#define counter(field, key, metric, help)                                    \
    ngx_http_kv_router_counter(kvr_stats_t, field, key, metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_frequency_fields[] = {
    gauge(frequency_max, "blocks_max", "frequency_blocks_max",
          "Blocks whose lookups can be counted; 0: none are."),
    counter(frequency_replaced, "replaced", "frequency_replaced_total",
            "Blocks forgotten in the window, because others took their room."),
    counter(frequency_cut, "cut", "frequency_cut_total",
            "Lookups of which only the first blocks were counted."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


#define gauge(field, key, metric, help)                                      \
    ngx_http_kv_router_gauge(ngx_http_kv_router_shctx_t, field, key, metric, \
                             help)
#define counter(field, key, metric, help)                                    \
    ngx_http_kv_router_counter(ngx_http_kv_router_shctx_t, field, key,       \
                               metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_request_fields[] = {
    counter(requests, "routed", "requests_total", "Requests routed."),
    counter(retries, "retries", "retries_total",
            "Attempts after a worker failed."),
    counter(policy_errors, "policy_errors", "policy_errors_total",
            "Requests whose policy failed."),
    counter(policy_slow, "policy_slow", "policy_slow_total",
            "Times that a policy took over 10 ms to choose."),
    counter(prompts_scanned, "prompts_scanned", "prompts_scanned_total",
            "Times that a request's body was searched for token ids."),
    counter(lookups, "lookups", "lookups_total",
            "Prompts whose blocks were looked up."),
    counter(lookups_matched, "lookups_matched", "lookups_matched_total",
            "Those of whose blocks some worker had one at least."),
    counter(prompt_blocks, "prompt_blocks", "prompt_blocks_total",
            "Complete blocks of the prompts."),
    counter(overlap_blocks, "overlap_blocks", "overlap_blocks_total",
            "Blocks of the prompts that the chosen worker had."),
    counter(best_blocks, "best_overlap_blocks", "best_overlap_blocks_total",
            "Blocks of the prompts that the best worker had."),
    counter(unshared, "unshared", "unshared_total",
            "Prompts counted as sharing no block with others in flight, for "
            "want of room."),
    { "decide_seconds", "decide_seconds_total", "Time spent deciding.",
      offsetof(ngx_http_kv_router_shctx_t, decide_us),
      sizeof(ngx_atomic_t) * 8, 1, 1 },
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_question_fields[] = {
    counter(questions, "asked", "questions_total",
            "Questions to engines for the token ids of a text."),
    counter(questions_failed, "failed", "questions_failed_total",
            "Of these, questions without token ids in time."),
    counter(questions_kept, "kept", "questions_kept_total",
            "Texts whose token ids were kept from an earlier question."),
    counter(questions_joined, "joined", "questions_joined_total",
            "Texts that waited for the same question of another request."),
    counter(probes, "probes", "probes_total",
            "Times that an engine was probed for what it can be asked for."),
    counter(probes_failed, "probes_failed", "probes_failed_total",
            "Of these, times that it did not answer."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_scrape_fields[] = {
    counter(scrapes, "scrapes", "scrapes_total",
            "Times that an engine was asked for its load."),
    counter(scrapes_failed, "failed", "scrapes_failed_total",
            "Of these, times that it could not be read."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_echo_fields[] = {
    counter(echoes, "kept", "echoes_total",
            "Answers whose blocks are looked for in the events."),
    counter(echoes_void, "void", "echoes_void_total",
            "Of these, answers that proved nothing."),
    counter(echoes_dropped, "dropped", "echoes_dropped_total",
            "Answers that were not looked at for want of room."),
    counter(echoes_long, "long", "echoes_long_total",
            "Answers that were not looked at, as their prompts were too "
            "long."),
    counter(shadows, "shadows", "echoes_shadow_total",
            "Prompts whose token ids, by the zone's model, were only looked "
            "for in the events."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_name_fields[] = {
    counter(names_asked, "asked", "names_total",
            "Lookups of host names of workers."),
    counter(names_failed, "failed", "names_failed_total",
            "Of these, lookups that found no address."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_redis_fields[] = {
    counter(redis_connects, "connects", "redis_connects_total",
            "Connections to Redis made."),
    counter(redis_disconnects, "disconnects", "redis_disconnects_total",
            "Connections to Redis lost."),
    counter(redis_messages, "messages", "redis_messages_total",
            "Messages received."),
    counter(redis_bytes, "bytes", "redis_received_bytes_total",
            "Bytes of the messages received."),
    counter(redis_refused, "refused", "redis_messages_refused_total",
            "Messages refused as a whole."),
    counter(redis_dropped, "dropped", "redis_messages_dropped_total",
            "Messages dropped because the queue was full."),
    counter(repairs_started, "repairs_started", "repairs_started_total",
            "Repairs from the log begun."),
    counter(repairs_done, "repairs_done", "repairs_done_total",
            "Repairs that filled their gap."),
    counter(repairs_failed, "repairs_failed", "repairs_failed_total",
            "Repairs that did not."),
    counter(snapshots_loaded, "snapshots_loaded", "snapshots_loaded_total",
            "Snapshots that took the place of a view."),
    counter(snapshots_refused, "snapshots_refused", "snapshots_refused_total",
            "Troubles with snapshots, each said once a worker in the log."),
    counter(snapshots_asked, "snapshots_asked", "snapshots_asked_total",
            "Times that a new snapshot was asked for."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


#define counter(field, help)                                                 \
    ngx_http_kv_router_counter(kvr_worker_counters_t, field, #field,         \
                               "worker_" #field "_total", help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_counter_fields[] = {
    counter(messages, "Messages applied."),
    counter(heartbeats, "Heartbeats received."),
    counter(duplicates, "Messages that had been applied before."),
    counter(gaps, "Gaps in the sequence of messages."),
    counter(repairs, "Repairs finished."),
    counter(restarts, "Restarts of the publisher."),
    counter(snapshots, "Snapshots that took the place of the view."),
    counter(stores, "Store events applied."),
    counter(removes, "Remove events applied."),
    counter(clears, "Clear events applied."),
    counter(blocks_stored, "Blocks stored."),
    counter(blocks_removed, "Blocks removed."),
    counter(blocks_unknown, "Blocks to be removed that were not held."),
    counter(blocks_forgotten, "Blocks forgotten for want of room or use."),
    ngx_http_kv_router_fields_end
};

#undef counter


#define counter(field, key, help)                                            \
    ngx_http_kv_router_counter(kvr_usage_counters_t, field, key,             \
                               "worker_usage_" key "_total", help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_usage_fields[] = {
    counter(requests, "requests",
            "Answers in which the engine said what it had cached."),
    counter(prompt_tokens, "prompt_tokens", "Tokens of their prompts."),
    counter(predicted_tokens, "predicted_tokens",
            "Of these, tokens that the worker had by its events."),
    counter(best_tokens, "best_tokens",
            "Of these, tokens that the best worker had by its events."),
    counter(cached_tokens, "cached_tokens",
            "Of these, tokens that the engine said it had."),
    ngx_http_kv_router_fields_end
};

#undef counter


#define counter(field, metric, help)                                         \
    ngx_http_kv_router_counter(kvr_trust_view_t, field, #field, metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_trust_fields[] = {
    counter(full, "worker_echoes_full_total",
            "Answers all of whose blocks the engine has stored."),
    counter(parted, "worker_echoes_parted_total",
            "Answers of whose blocks the engine has stored others."),
    counter(mismatches, "token_mismatch_total",
            "Times that the trust in a route was lost, or never came."),
    ngx_http_kv_router_fields_end
};

#undef counter


#define gauge(field, key, help)                                              \
    ngx_http_kv_router_gauge(ngx_http_kv_router_load_t, field, key,          \
                             "worker_" key, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_held_fields[] = {
    ngx_http_kv_router_gauge(ngx_http_kv_router_load_t, held, "blocks",
                             "worker_held_blocks",
                             "Blocks that the rank holds, in any tier."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_load_fields[] = {
    gauge(row.active, "active_requests", "Requests sent and not ended."),
    gauge(row.prefills, "active_prefills",
          "Requests before their first byte."),
    gauge(row.prefill_tokens, "prefill_tokens",
          "Uncached prompt tokens of the requests before their first byte."),
    gauge(row.decode_blocks, "decode_blocks", "KV blocks of the requests."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_speed_fields[] = {
    gauge(speed, "prefill_tokens_per_second",
          "Prompt tokens that the rank prefills in a second; 0: not known."),
    ngx_http_kv_router_gauge(ngx_http_kv_router_load_t, samples, "samples",
                             "worker_prefill_speed_samples",
                             "Answers by which that speed was measured."),
    ngx_http_kv_router_fields_end
};

#undef gauge


#define counter(field, metric, help)                                         \
    ngx_http_kv_router_counter(kvr_health_counters_t, field, #field,         \
                               "worker_" metric "_total", help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_health_fields[] = {
    counter(attempts, "attempts", "Times that a request was sent there."),
    counter(aborted, "attempts_aborted",
            "Attempts whose end nobody waited for."),
    counter(pauses, "pauses", "Times that the engine asked for a pause."),
    counter(opened, "circuit_opened", "Times that the worker failed."),
    counter(probes, "probes",
            "Requests sent to the failed worker to see whether it answers."),
    counter(checks, "checks", "Active checks."),
    counter(checks_failed, "checks_failed", "Active checks that failed."),
    ngx_http_kv_router_fields_end
};

#undef counter


/* Reads a field once: other processes may be adding to it. */


#define gauge(field, key, metric, help)                                      \
    ngx_http_kv_router_gauge(kvr_turns_stats_t, field, key, metric, help)
#define counter(field, key, metric, help)                                    \
    ngx_http_kv_router_counter(kvr_turns_stats_t, field, key, metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_turns_fields[] = {
    gauge(slots.slots, "slots", "turn_cache_slots",
          "Slots of the turn cache."),
    gauge(slots.used, "used", "turn_cache_slots_used",
          "Slots of the turn cache that have been written."),
    counter(hits, "hits", "turn_cache_hits_total",
            "Texts whose beginning was in the turn cache."),
    counter(misses, "misses", "turn_cache_misses_total",
            "Texts of which nothing was in the turn cache."),
    counter(tokens, "tokens", "turn_cache_tokens_total",
            "Token ids that were not computed again, thanks to the turn "
            "cache."),
    counter(kept, "kept", "turn_cache_entries_total",
            "Entries that the turn cache has taken."),
    counter(slots.evicted, "evicted", "turn_cache_evicted_total",
            "Slots of the turn cache whose entry was forgotten for want of "
            "room."),
    counter(lost, "lost", "turn_cache_lost_total",
            "Entries of the turn cache that were of no use, as an entry "
            "before them was forgotten."),
    counter(slots.torn, "torn", "turn_cache_torn_total",
            "Slots of the turn cache that were read while they were written, "
            "or whose writer had died."),
    counter(too_large, "too_large", "turn_cache_too_large_total",
            "Entries too large for the turn cache."),
    counter(busy, "busy", "turn_cache_busy_total",
            "Entries that the turn cache did not take, as other processes "
            "were writing."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


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
        ngx_http_kv_router_gen_decimal(g, f->key,
                                       ngx_http_kv_router_field(f, base),
                                       f->us ? 6 : 0);
    }
}
