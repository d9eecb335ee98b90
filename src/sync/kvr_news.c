/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_news.h"


kvr_news_order_t
kvr_news_order(const kvr_news_count_t *last, uint64_t number,
    uint64_t clock_us, bool met)
{
    if (last->number == 0) {
        return number == 1 || met ? KVR_NEWS_NEXT : KVR_NEWS_GAP;
    }

    if (clock_us < last->clock_us) {
        return KVR_NEWS_OLD;
    }

    if (number <= last->number) {
        return clock_us > last->clock_us ? KVR_NEWS_RESTART : KVR_NEWS_OLD;
    }

    return number == last->number + 1 ? KVR_NEWS_NEXT : KVR_NEWS_GAP;
}


int64_t
kvr_news_least(kvr_news_least_t *l, int64_t value, uint64_t now_us)
{
    uint64_t  took;

    took = now_us - l->began_us;

    if (l->began_us == 0 || took >= KVR_NEWS_LEAST_US) {
        l->before = l->began_us && took < 2 * KVR_NEWS_LEAST_US ? l->present
                                                                : value;
        l->present = value;
        l->began_us = now_us;
    }

    l->present = kvr_min(l->present, value);

    return kvr_min(l->present, l->before);
}


bool
kvr_news_near(const kvr_news_t *n, uint64_t clock_us, uint64_t most_us,
    uint64_t now_us)
{
    int64_t  off;

    off = (int64_t) (now_us - clock_us)
          - kvr_min(n->offset.present, n->offset.before);

    return n->heard_us == 0
           || (off <= (int64_t) most_us && -off <= (int64_t) most_us);
}


/* Since when is it so? */

static uint64_t
kvr_news_since(uint64_t since_us, bool is, uint64_t now_us)
{
    return !is ? 0 : since_us ? since_us : now_us;
}


void
kvr_news_take(kvr_news_t *n, uint64_t clock_us, uint64_t way_us,
    uint64_t max_lag_us, uint64_t now_us)
{
    int64_t   offset;
    uint64_t  lag;

    offset = (int64_t) (now_us - clock_us);
    lag = (uint64_t) (offset - kvr_news_least(&n->offset, offset, now_us));
    lag = kvr_min(lag + way_us, kvr_min(now_us, UINT32_MAX));

    n->lag_us = (uint32_t) lag;
    n->heard_us = now_us;
    n->sent_us = kvr_max(n->sent_us, now_us - lag);
    n->above_us = kvr_news_since(n->above_us, lag > max_lag_us, now_us);
    n->below_us = kvr_news_since(n->below_us, lag < max_lag_us / 2, now_us);

    if (n->above_us && now_us - n->above_us >= KVR_NEWS_ABOVE_US) {
        n->late = true;

    } else if (n->below_us && now_us - n->below_us >= KVR_NEWS_BELOW_US) {
        n->late = false;
    }
}


kvr_peer_state_t
kvr_news_state(const kvr_news_t *n, bool load, bool leaving, uint64_t now_us)
{
    uint64_t  most;

    most = KVR_PEERS_FRESH_MS + (load ? 0 : KVR_NEWS_FULL_MS);

    if (n->heard_us == 0 || now_us - n->sent_us > most * 1000) {
        return KVR_PEER_SILENT;
    }

    if (n->late) {
        return KVR_PEER_LATE;
    }

    return leaving ? KVR_PEER_LEAVING : KVR_PEER_FRESH;
}
