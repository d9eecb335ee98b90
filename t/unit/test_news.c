/*
 * Copyright (C) the nginx-kv-router authors
 *
 * News of a peer: the order of messages, the lag, and the state: every pair of
 * a state and of what comes.
 */


#include "sync/kvr_news.h"
#include "tap.h"


#define MAX_LAG  50000                  /* us */
#define SECOND   UINT64_C(1000000)
#define PEER_IS  UINT64_C(9000000000)   /* its clock, ahead of ours */


static kvr_news_t  news;
static uint64_t    now_us = 100 * SECOND;

static const char  *states[] = { "fresh", "late", "silent", "leaving" };


/* ---- the order of messages ---------------------------------------------- */

static void
order(void)
{
    uint32_t          i, k;
    kvr_news_count_t  last = { 7, 1000 };

    static const uint64_t  clocks[] = { 999, 1000, 1001 };
    static const uint64_t  ns[] = { 6, 7, 8, 9 };
    static const char     *names[] = { "next", "gap", "restart", "old" };

    static const kvr_news_order_t  want[3][4] = {
        { KVR_NEWS_OLD, KVR_NEWS_OLD, KVR_NEWS_OLD, KVR_NEWS_OLD },
        { KVR_NEWS_OLD, KVR_NEWS_OLD, KVR_NEWS_NEXT, KVR_NEWS_GAP },
        { KVR_NEWS_RESTART, KVR_NEWS_RESTART, KVR_NEWS_NEXT, KVR_NEWS_GAP }
    };

    for (i = 0; i < 3; i++) {
        for (k = 0; k < 4; k++) {
            is_u64(kvr_news_order(&last, ns[k], clocks[i], k & 1), want[i][k],
                   "after 7 at 1000, %u at %u is: %s", (unsigned) ns[k],
                   (unsigned) clocks[i], names[want[i][k]]);
        }
    }

    last.number = 0;

    is_u64(kvr_news_order(&last, 1, 5, false), KVR_NEWS_NEXT,
           "a process begins with 1");
    is_u64(kvr_news_order(&last, 2, 5, false), KVR_NEWS_GAP,
           "a process that begins with 2 has said something before");
    is_u64(kvr_news_order(&last, 2, 5, true), KVR_NEWS_NEXT,
           "which nobody missed who met the router just now");
}


/* ---- the least ---------------------------------------------------------- */

static void
least(void)
{
    kvr_news_least_t  l;

    memset(&l, 0, sizeof(l));

    is_u64((uint64_t) kvr_news_least(&l, 500, now_us), 500,
           "the first is the least");
    (void) kvr_news_least(&l, 100, now_us + SECOND);
    is_u64((uint64_t) kvr_news_least(&l, 300, now_us + 2 * SECOND), 100,
           "a lesser one stays for 5 s");
    is_u64((uint64_t) kvr_news_least(&l, 300, now_us + 6 * SECOND), 100,
           "and for those of the 5 s after it");
    is_u64((uint64_t) kvr_news_least(&l, 300, now_us + 11 * SECOND), 300,
           "then it is forgotten");
    is_u64((uint64_t) kvr_news_least(&l, 700, now_us + 60 * SECOND), 700,
           "after a long silence all are");
    ok(kvr_news_least(&l, -900, now_us + 61 * SECOND) == -900,
       "a clock that is ahead gives one below 0");
}


/* ---- lag and state ------------------------------------------------------ */

/* A message that took so long, beyond the least. */

static void
take(uint32_t lag_ms)
{
    kvr_news_take(&news, now_us + PEER_IS - lag_ms * UINT64_C(1000), 0,
                  MAX_LAG, now_us);
}


/* Messages of such a lag, each 10 ms. */

static void
takes(uint32_t lag_ms, uint32_t ms)
{
    uint64_t  until_us;

    for (until_us = now_us + ms * UINT64_C(1000); now_us < until_us; ) {
        now_us += 10000;
        take(lag_ms);
    }
}


static kvr_peer_state_t
state(void)
{
    return kvr_news_state(&news, true, false, now_us);
}


static void
fresh(void)
{
    memset(&news, 0, sizeof(news));
    take(0);
    takes(1, 100);
}


static void
lags(void)
{
    fresh();
    is_u64(news.lag_us, 1000, "the lag is what is beyond the least");

    kvr_news_take(&news, now_us + PEER_IS, 2000, MAX_LAG, now_us);
    is_u64(news.lag_us, 2000, "and half of our own echo's way");

    takes(60, 90);
    is_u64(state(), KVR_PEER_FRESH, "a lag above max_lag for 90 ms is borne");
    takes(40, 10);
    takes(60, 90);
    is_u64(state(), KVR_PEER_FRESH, "and again, when it was below between");
    takes(60, 20);
    is_u64(state(), KVR_PEER_LATE, "for more than 100 ms it is late");

    takes(40, 3000);
    is_u64(state(), KVR_PEER_LATE, "a lag above half of max_lag helps nobody");
    takes(20, 1000);
    is_u64(state(), KVR_PEER_LATE, "one below half does not at once");
    takes(20, 20);
    is_u64(state(), KVR_PEER_FRESH, "but after 1 s");

    fresh();
    now_us += 200000;
    take(140);
    now_us += 10000;
    is_u64(state(), KVR_PEER_FRESH, "150 ms, lag included, are fresh");
    now_us += 1000;
    is_u64(state(), KVR_PEER_SILENT, "more are not");
    is_u64(kvr_news_state(&news, false, false, now_us), KVR_PEER_FRESH,
           "unless the peer has no load");
    now_us += SECOND;
    is_u64(kvr_news_state(&news, false, false, now_us), KVR_PEER_SILENT,
           "a peer without load speaks each second");
}


/* ---- every pair --------------------------------------------------------- */

typedef enum {
    QUICK = 0,                          /* a message */
    SLOW,                               /* messages that lag for 120 ms */
    BETTER,                             /* ones that do not, for 1.1 s */
    NOTHING,                            /* for 160 ms */
    GOES,                               /* a message: it takes no more */
    STAYS,                              /* one that it does */
    INPUTS
} input_t;


static bool  leaving;


static void
put(input_t input)
{
    switch (input) {
    case QUICK:
        now_us += 1000;
        take(1);
        break;

    case SLOW:
        takes(60, 120);
        break;

    case BETTER:
        takes(1, 1100);
        break;

    case NOTHING:
        now_us += 160000;
        break;

    default:
        now_us += 1000;
        take(1);
        leaving = input == GOES;
        break;
    }
}


static void
pairs(void)
{
    uint32_t  from, input;

    static const char  *inputs[] = {
        "a message", "slow ones", "quick ones", "silence",
        "that it leaves", "that it stays"
    };

    /* how each state is come to */

    static const input_t  ways[4] = { QUICK, SLOW, NOTHING, GOES };

    static const kvr_peer_state_t  want[4][INPUTS] = {
        { KVR_PEER_FRESH, KVR_PEER_LATE, KVR_PEER_FRESH, KVR_PEER_SILENT,
          KVR_PEER_LEAVING, KVR_PEER_FRESH },
        { KVR_PEER_LATE, KVR_PEER_LATE, KVR_PEER_FRESH, KVR_PEER_SILENT,
          KVR_PEER_LATE, KVR_PEER_LATE },
        { KVR_PEER_FRESH, KVR_PEER_LATE, KVR_PEER_FRESH, KVR_PEER_SILENT,
          KVR_PEER_LEAVING, KVR_PEER_FRESH },
        { KVR_PEER_LEAVING, KVR_PEER_LATE, KVR_PEER_LEAVING, KVR_PEER_SILENT,
          KVR_PEER_LEAVING, KVR_PEER_FRESH }
    };

    for (from = 0; from < 4; from++) {
        for (input = 0; input < INPUTS; input++) {
            fresh();
            leaving = false;
            put(ways[from]);
            put(input);

            is_u64(kvr_news_state(&news, true, leaving, now_us),
                   want[from][input], "%s, then %s: %s", states[from],
                   inputs[input], states[want[from][input]]);
        }
    }

    memset(&news, 0, sizeof(news));
    is_u64(state(), KVR_PEER_SILENT, "who was never heard is silent");
}


int
main(void)
{
    order();
    least();
    lags();
    pairs();

    return done();
}
