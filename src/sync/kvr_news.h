/*
 * Copyright (C) the nginx-kv-router authors
 *
 * News: what the messages of a peer tell of themselves: whether one before is
 * missing, how late they come, and whether the peer counts.  Pure functions of
 * what was heard and the time, in microseconds of our clock.
 *
 * A message with number n and clock c, after one of the same process with N
 * and C:
 *
 *               n <= N     n = N + 1    n > N + 1
 *     c < C     OLD        OLD          OLD
 *     c = C     OLD        NEXT         GAP
 *     c > C     RESTART    NEXT         GAP
 *
 * The first message of a process is NEXT if its number is 1, or if the router
 * was met just now, otherwise GAP.
 *
 * The state of a peer is the first of these which is true.  Those in brackets
 * count.
 *
 *      SILENT      the newest message was sent more than KVR_PEERS_FRESH_MS
 *                  ago; a peer without load need not speak for a second more
 *      LATE        the lag was above max_lag for 100 ms, and was not below
 *                  half of it for 1 s since
 *     [LEAVING]    the peer takes no new requests
 *     [FRESH]
 */


#ifndef KVR_NEWS_H_INCLUDED
#define KVR_NEWS_H_INCLUDED


#include "../kvr.h"
#include "../traffic/kvr_peers.h"


#define KVR_NEWS_ABOVE_US    100000
#define KVR_NEWS_BELOW_US    1000000
#define KVR_NEWS_LEAST_US    5000000
#define KVR_NEWS_FULL_MS     1000       /* as KVR_TELLER_FULL_MS */


typedef enum {
    KVR_NEWS_NEXT = 0,
    KVR_NEWS_GAP,
    KVR_NEWS_RESTART,                   /* another process has its slot */
    KVR_NEWS_OLD                        /* doubled, or overtaken */
} kvr_news_order_t;

/* The newest message of a process; number 0: there was none. */
typedef struct {
    uint64_t    number;
    uint64_t    clock_us;
} kvr_news_count_t;

kvr_news_order_t kvr_news_order(const kvr_news_count_t *last, uint64_t number,
    uint64_t clock_us, bool met);


/* The least of the last 5 to 10 s. */
typedef struct {
    int64_t     present;                /* since began_us */
    int64_t     before;                 /* in the 5 s before */
    uint64_t    began_us;               /* 0: nothing was taken */
} kvr_news_least_t;

int64_t kvr_news_least(kvr_news_least_t *l, int64_t value, uint64_t now_us);


typedef struct {
    kvr_news_least_t  offset;           /* of our clock to the peer's, with the
                                           way of a message */
    uint64_t          heard_us;         /* 0: never */
    uint64_t          sent_us;          /* the newest message, by our clock */
    uint64_t          above_us;         /* since when the lag is above max_lag;
                                           0: it is not */
    uint64_t          below_us;         /* the same, below half of it */
    uint32_t          lag_us;
    bool              late;
} kvr_news_t;

/*
 * Is the clock of a message near what it must be?  One that is older by more
 * than most_us is too old to be taken; one that is as much ahead is no peer's.
 */
bool kvr_news_near(const kvr_news_t *n, uint64_t clock_us, uint64_t most_us,
    uint64_t now_us);

/* A message of that clock has come.  way_us: what the quickest one takes. */
void kvr_news_take(kvr_news_t *n, uint64_t clock_us, uint64_t way_us,
    uint64_t max_lag_us, uint64_t now_us);

kvr_peer_state_t kvr_news_state(const kvr_news_t *n, bool load, bool leaving,
    uint64_t now_us);


#endif /* KVR_NEWS_H_INCLUDED */
