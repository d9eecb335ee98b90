/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_news.h"
#include "kvr_teller.h"


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


void
kvr_news_take(kvr_news_t *n, uint64_t clock_us, uint64_t way_us,
    uint64_t now_us)
{
    int64_t   offset;
    uint64_t  lag;

    offset = (int64_t) (now_us - clock_us);
    lag = (uint64_t) (offset - kvr_news_least(&n->offset, offset, now_us));
    lag = kvr_min(lag + way_us, kvr_min(now_us, UINT32_MAX));

    n->lag_us = (uint32_t) lag;
    n->heard_us = now_us;
    n->sent_us = kvr_max(n->sent_us, now_us - lag);
}


bool
kvr_news_fresh(const kvr_news_t *n, bool load, uint64_t now_us)
{
    uint64_t  most;

    most = KVR_PEERS_FRESH_MS + (load ? 0 : KVR_TELLER_ABOUT_MS);

    return n->heard_us != 0 && now_us - n->sent_us <= most * 1000;
}
