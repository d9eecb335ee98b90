/*
 * Copyright (C) the nginx-kv-router authors
 *
 * News: what the messages of a peer tell of themselves: how late they come,
 * and whether the peer counts.  Pure functions of what was heard and the time,
 * in microseconds of our clock.
 *
 * LAG.  (our clock at arrival - sender's clock) - the least of that in the
 * last 10 s, + half of what our own echo takes at the least: clocks of hosts
 * are not compared.
 */


#ifndef KVR_NEWS_H_INCLUDED
#define KVR_NEWS_H_INCLUDED


#include "../kvr.h"


#define KVR_NEWS_LEAST_US  5000000


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
    uint32_t          lag_us;           /* of the last message */
} kvr_news_t;

/*
 * Is the clock of a message near what it must be?  One that is older by more
 * than most_us is too old to be taken; one that is as much ahead is no peer's.
 */
bool kvr_news_near(const kvr_news_t *n, uint64_t clock_us, uint64_t most_us,
    uint64_t now_us);

/* A message of that clock has come.  way_us: what the quickest one takes. */
void kvr_news_take(kvr_news_t *n, uint64_t clock_us, uint64_t way_us,
    uint64_t now_us);

/*
 * Was the newest message sent at most KVR_PEERS_FRESH_MS ago?  A peer without
 * load need not speak for KVR_TELLER_ABOUT_MS more.
 */
bool kvr_news_fresh(const kvr_news_t *n, bool load, uint64_t now_us);


#endif /* KVR_NEWS_H_INCLUDED */
