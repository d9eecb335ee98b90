/*
 * Copyright (C) the nginx-kv-router authors
 *
 * News of a peer: the lag, which clocks are near, and until when the peer
 * counts.
 */


#include "sync/kvr_news.h"
#include "tap.h"


#define SECOND   UINT64_C(1000000)
#define PEER_IS  UINT64_C(9000000000)   /* its clock, ahead of ours */
#define MOST     (3 * SECOND)


static kvr_news_t  news;
static uint64_t    now_us = 100 * SECOND;


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


/* ---- lag ---------------------------------------------------------------- */

/* A message that took so long, beyond the least. */

static void
take(uint32_t lag_ms)
{
    kvr_news_take(&news, now_us + PEER_IS - lag_ms * UINT64_C(1000), 0,
                  now_us);
}


/* A peer whose messages are quick. */

static void
met(void)
{
    memset(&news, 0, sizeof(news));
    take(0);
    now_us += 10000;
    take(1);
}


static void
lag(void)
{
    met();
    is_u64(news.lag_us, 1000, "the lag is what is beyond the least");
    is_u64(news.heard_us, now_us, "a message is heard now");
    is_u64(news.sent_us, now_us - 1000, "and was sent before");

    kvr_news_take(&news, now_us + PEER_IS, 2000, now_us);
    is_u64(news.lag_us, 2000, "half of our own echo's way is added");

    now_us += 10000;
    take(500);
    is_u64(news.lag_us, 500000, "an older message has its own lag");
    is_u64(news.sent_us, now_us - 11000, "the newest is what was sent last");

    memset(&news, 0, sizeof(news));
    kvr_news_take(&news, 5, 0, now_us);
    kvr_news_take(&news, (UINT64_C(1) << 62) - 1, 0, now_us);
    kvr_news_take(&news, 0, 0, now_us);
    ok(news.lag_us <= now_us && news.sent_us <= now_us,
       "clocks that can't be give no lag beyond our own clock");
}


/* ---- which clocks are near ----------------------------------------------- */

static bool
near(int64_t off_us)
{
    return kvr_news_near(&news, (uint64_t) ((int64_t) (now_us + PEER_IS)
                                            - off_us), MOST, now_us);
}


static void
nears(void)
{
    memset(&news, 0, sizeof(news));
    ok(near(0) && near(-100 * (int64_t) MOST) && near(50 * (int64_t) MOST),
       "who was never heard can have any clock");

    met();
    ok(near(0) && near(MOST) && near(-(int64_t) MOST),
       "3 s of the quickest message are near, both ways");
    ok(!near(MOST + 1) && !near(-(int64_t) MOST - 1), "more are not");
    ok(!kvr_news_near(&news, 0, MOST, now_us)
       && !kvr_news_near(&news, (UINT64_C(1) << 62) - 1, MOST, now_us),
       "nor are the ends of clocks");
}


/* ---- until when ---------------------------------------------------------- */

static bool
counts(bool load, uint64_t later_ms)
{
    return kvr_news_fresh(&news, load, now_us + later_ms * 1000);
}


static void
fresh(void)
{
    memset(&news, 0, sizeof(news));
    ok(!counts(true, 0) && !counts(false, 0),
       "who was never heard does not count");

    met();
    ok(counts(true, 149) && !counts(true, 150),
       "150 ms, lag included, are fresh, more are not");
    ok(counts(false, 1149) && !counts(false, 1150),
       "a peer without load speaks each second");

    now_us += 400000;
    take(120);
    ok(counts(true, 30) && !counts(true, 31), "a slow one counts for less");
    take(160);
    ok(counts(true, 30), "a slower one takes nothing away");

    now_us += 400000;
    take(151);
    ok(!counts(true, 0), "151 ms do not count at all");
    take(1);
    ok(counts(true, 0), "and the next that is quick does at once");
}


int
main(void)
{
    least();
    lag();
    nears();
    fresh();

    return done();
}
