/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The roll of members, driven by arrays of answers: each question with each
 * kind of answer, and who is in the zone afterwards.
 */


#include "zone.h"
#include "answers.h"
#include "follow/kvr_roll.h"


#define SIZE    (16u << 20)
#define SURE    (KVR_ROLL_TTL + 1)

#define NOTHING "[~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~]"
#define LACKS   "['127.0.0.1:1' ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ 'lost some' ~]"
#define DRAINS(n)                                                             \
    "['127.0.0.1:1' ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ '" n "' ~ ~]"
#define AT_1    "['127.0.0.1:1' ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~]"
#define AT_2    "['127.0.0.1:2' ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~]"


static kvr_roll_t     roll;
static kvr_roll_rc_t  ended;            /* of the last poll */
static char           asked[8192];      /* its commands, a line each */
static uint32_t       new_ones;         /* workers that it registered */
static bool           bad_address;


/* ---- a poll ------------------------------------------------------------- */

static const char *
address_wrong(void *data, const char *address)
{
    return bad_address ? "a bad address" : NULL;
}


static void
registered(void *data, uint32_t worker)
{
    new_ones++;
}


static void
begin(const char *only, bool checked)
{
    kvr_roll_conf_t  conf;

    tell_reset();
    memset(&roll, 0, sizeof(roll));
    new_ones = 0;
    bad_address = false;

    memset(&conf, 0, sizeof(conf));
    conf.router = &router;
    conf.tell = &tell;
    conf.only = only;
    conf.only_len = only ? strlen(only) : 0;
    conf.checked = checked;
    conf.address_wrong = address_wrong;
    conf.registered = registered;

    if (kvr_roll_open(&roll, &conf) != KVR_OK) {
        printf("Bail out! no memory\n");
        exit(1);
    }

    kvr_roll_connected(&roll, now_ms);
}


/*
 * A poll, whose questions have these answers; further ones have the last two
 * in turn, or the only one.  Returns how many questions there were.
 */

static uint32_t
poll(const char *const *answers)
{
    uint32_t           n, last;
    kvr_ask_t          ask;
    kvr_reply_t        reply;
    kvr_roll_asked_t  *of;

    for (last = 0; answers[last + 1]; last++) { /* void */ }

    told[0] = '\0';
    asked[0] = '\0';
    n = 0;

    kvr_roll_begin(&roll, now_ms, UINT64_MAX);

    for ( ;; ) {
        ended = kvr_roll_step(&roll, now_ms, &ask, &of);

        if (ended > KVR_ROLL_ASK_TTL) {
            return n;
        }

        if (strlen(asked) < sizeof(asked) - 1024) {
            strcat(strcat(asked, command(&ask)), "\n");
        }

        reply = answer(answers[n <= last ? n
                               : last ? last - (n - last) % 2 : 0]);
        n++;

        switch (ended) {

        case KVR_ROLL_ASK_PAGE:
            kvr_roll_page(&roll, &reply);
            break;

        case KVR_ROLL_ASK_HASH:
            kvr_roll_hash(of, &reply);
            break;

        default:
            if (kvr_roll_ttl(of, now_ms, &reply) == KVR_LOST) {
                ended = KVR_ROLL_LOST;
                return n;
            }
        }
    }
}


#define polled(...)  poll((const char *const []) { __VA_ARGS__, NULL })


static const kvr_worker_t *
worker(const char *id)
{
    uint32_t  n;

    return kvr_router_find_worker(&router, id, strlen(id), &n) == KVR_OK
           && !(kvr_load32(&kvr_router_worker(&router, n)->flags)
                & KVR_WORKER_DELETED)
           ? kvr_router_worker(&router, n) : NULL;
}


static bool
silent(const char *id)
{
    const char          *reason;
    const kvr_worker_t  *w;

    w = worker(id);

    return w && kvr_fleet_confidence(w, now_ms, 5000, true, &reason)
                == KVR_DEGRADED
           && strcmp(reason, "silent") == 0;
}


static bool
told_of(const char *text)
{
    return text == NULL ? told[0] == '\0' : strstr(told, text) != NULL;
}


static void
open_zone(const char *only)
{
    uint32_t  i;

    zone_open(&kinds[0], SIZE);

    for (i = 0; i < kinds[0].params.shards; i++) {
        (void) kvr_router_lease(&router, i, 0, now_ms);
    }

    begin(only, false);
}


static void
close_zone(void)
{
    kvr_roll_close(&roll);
    zone_close();
}


/* ---- each question, each answer ----------------------------------------- */

typedef struct {
    const char    *page;
    const char    *hash;
    const char    *ttl;
    bool           fails;
    bool           there;               /* worker a, afterwards */
    const char    *log;                 /* NULL: nothing */
} case_t;

#define PAGE    "['0' ['a']]"
#define TYPE    "error: members can't be read, \"kv-workers\": \"an answer of " \
                "another type\""
#define HTYPE   "error: members can't be read, \"kv-worker\": \"an answer of "  \
                "another type\""
#define NOAUTH  "\"NOAUTH no\""

static const case_t  cases[] = {

    /* SSCAN */

    { "['0' []]", "", "", false, false, NULL },
    { "[]", "", "", true, false, TYPE },
    { "['0']", "", "", true, false, TYPE },
    { "['0' 'a']", "", "", true, false, TYPE },
    { "[:0 []]", "", "", true, false, TYPE },
    { "['0' [:1 ~ []]]", "", "", false, false, NULL },
    { "['0' ['no id']]", "", "", false, false,
      "error: registration of worker \"no id\" refused: not a worker's id" },
    { "'a'", "", "", true, false, TYPE },
    { "+OK", "", "", true, false, TYPE },
    { ":1", "", "", true, false, TYPE },
    { "~", "", "", true, false, TYPE },
    { "?", "", "", true, false, TYPE },
    { "!NOAUTH no", "", "", true, false, NOAUTH },
    { "BIG", "", "", true, false, NULL },
    { "LOST", "", "", true, false, NULL },

    /* HMGET */

    { PAGE, AT_1, ":1000", false, true,
      "notice: worker \"a\" registered, at \"127.0.0.1:1\"" },
    { PAGE, NOTHING, ":1000", false, true,
      "notice: worker \"a\" registered, at \"\"" },
    { PAGE, "[~ ~]", ":1000", true, false, HTYPE },
    { PAGE, "['nowhere' ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~]", ":1000", false, false,
      "error: registration of worker \"a\" refused: " },
    { PAGE, "[~ ~ ~ ~ ~ ~ ~ ~ ~ ~ '3' ~ ~ ~ ~ ~]", ":1000", false, false,
      "error: registration of worker \"a\" ignored: " },
    { PAGE, "'a'", ":1000", true, false, HTYPE },
    { PAGE, "+OK", ":1000", true, false, HTYPE },
    { PAGE, ":1", ":1000", true, false, HTYPE },
    { PAGE, "~", ":1000", true, false, HTYPE },
    { PAGE, "?", ":1000", true, false, HTYPE },
    { PAGE, "!NOAUTH no", ":1000", true, false, NOAUTH },
    { PAGE, "!WRONGTYPE no", ":1000", false, false,
      "error: registration of worker \"a\" refused: not a hash" },
    { PAGE, "BIG", "LOST", true, false, NULL },
    { PAGE, "LOST", "LOST", true, false, NULL },

    /* PTTL */

    { PAGE, AT_1, ":-1", false, true, "worker \"a\" registered" },
    { PAGE, AT_1, ":-2", false, false, NULL },
    { PAGE, AT_1, ":-7", false, true, "worker \"a\" registered" },
    { PAGE, AT_1, "'a'", true, false, HTYPE },
    { PAGE, AT_1, "+OK", true, false, HTYPE },
    { PAGE, AT_1, "~", true, false, HTYPE },
    { PAGE, AT_1, "[]", true, false, HTYPE },
    { PAGE, AT_1, "?", true, false, HTYPE },
    { PAGE, AT_1, "!NOAUTH no", true, false, NOAUTH },
    { PAGE, AT_1, "BIG", true, false, NULL },
    { PAGE, AT_1, "LOST", true, false, NULL }
};


static void
test_answers(void)
{
    size_t         i;
    const case_t  *c;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        c = &cases[i];

        open_zone(NULL);
        now_ms += 10;

        polled(c->page, c->hash, c->ttl);

        if (!ok(ended == KVR_ROLL_ENDED && roll.failed == c->fails
                && (worker("a") != NULL) == c->there && told_of(c->log)
                && (roll.since == now_ms) == c->fails && unreleased == 0,
                "answers %s %s %s: the poll %s, the worker is %s", c->page,
                c->hash, c->ttl, c->fails ? "fails" : "is good",
                c->there ? "there" : "not there"))
        {
            note("failed %d, since %+d, %u not released, log: %s", roll.failed,
                 (int) (roll.since - now_ms), unreleased, told);
        }

        close_zone();
    }
}


/* ---- what becomes of workers -------------------------------------------- */

static void
test_questions(void)
{
    open_zone(NULL);

    is_u64(polled("['7' ['a']]", AT_1, ":1000", "['0' ['b' 'a']]", AT_2,
                  ":1000"),
           6, "two pages of two workers, of which one is there twice");
    ok(strncmp(asked, "SSCAN kv-workers 0 COUNT 256\n"
               "HMGET kv-worker:{a} address model ", 60) == 0
       && strstr(asked, "\nPTTL kv-worker:{a}\nSSCAN kv-workers 7 COUNT 256\n"
                 "HMGET kv-worker:{b} address"),
       "are asked for once, each hash with its time to live");
    is_u64(new_ones, 2, "both are new");

    is_u64(polled("['0' []]", AT_1, ":1000"), 5,
           "who is in no page any more is asked for as well");
    is_u64(new_ones, 2, "and is not new");
    ok(worker("a") && worker("b") && !silent("a") && told_of("changed"),
       "a registration without its id in the set counts");

    close_zone();

    open_zone("b");
    is_u64(polled("['0' ['a' 'b']]", AT_1, ":1000"), 3,
           "of a channel of one worker only that one is asked for");
    ok(worker("b") && worker("a") == NULL, "and registered");
    close_zone();

    open_zone(NULL);
    is_u64(polled("['1' []]"), 4096, "a cursor without an end ends");
    ok(roll.failed && told_of("\"kv-workers\": \"too many\""),
       "and fails the poll");
    close_zone();
}


/* Forty workers: no more questions at a time than there are places. */

static void
test_ring(void)
{
    char               page[512];
    uint32_t           i, n, waits;
    kvr_ask_t          ask;
    kvr_reply_t        reply;
    kvr_roll_rc_t      rc;
    kvr_roll_asked_t  *of, *open[KVR_ROLL_ASKED + 1];

    open_zone(NULL);

    strcpy(page, "['0' [");

    for (i = 0; i < 40; i++) {
        sprintf(page + strlen(page), "'w%u' ", i);
    }

    strcat(page, "]]");

    kvr_roll_begin(&roll, now_ms, UINT64_MAX);
    n = 0;
    waits = 0;

    while ((rc = kvr_roll_step(&roll, now_ms, &ask, &of)) != KVR_ROLL_ENDED) {

        switch (rc) {

        case KVR_ROLL_ASK_PAGE:
            reply = answer(page);
            kvr_roll_page(&roll, &reply);
            break;

        case KVR_ROLL_ASK_HASH:
            open[n++] = of;
            break;

        case KVR_ROLL_ASK_TTL:
            break;

        default:
            if (n == 0) {
                printf("Bail out! the roll waits for nothing\n");
                exit(1);
            }

            waits++;
            reply = answer(NOTHING);
            kvr_roll_hash(open[0], &reply);
            reply = answer(":1000");
            (void) kvr_roll_ttl(open[0], now_ms, &reply);
            memmove(open, open + 1, --n * sizeof(open[0]));
        }

        if (n > KVR_ROLL_ASKED) {
            break;
        }
    }

    ok(rc == KVR_ROLL_ENDED && waits == 40 && unreleased == 0,
       "of 40 workers 32 are asked for at a time, and all are answered");
    is_u64(kvr_router_workers(&router), kinds[0].params.max_workers,
           "the zone takes as many as it has room for");
    ok(told_of("refused: all workers are taken"), "and says so");

    kvr_roll_begin(&roll, now_ms, UINT64_MAX);
    (void) kvr_roll_step(&roll, now_ms, &ask, &of);
    reply = answer(page);
    kvr_roll_page(&roll, &reply);
    (void) kvr_roll_step(&roll, now_ms, &ask, &of);
    reply = answer(NOTHING);
    kvr_roll_hash(of, &reply);
    kvr_roll_reset(&roll);
    ok(unreleased == 0
       && kvr_roll_step(&roll, now_ms, &ask, &of) == KVR_ROLL_WAIT,
       "a connection that is lost between two questions leaves nothing");

    close_zone();
}


static void
test_absence(void)
{
    static const char *const  three[] = {
        "['0' ['a' 'b' 'c']]", AT_1, ":100000", AT_1, ":100000", AT_1,
        ":100000", NULL
    };
    static const char *const  without_c[] = {
        "['0' ['a' 'b']]", AT_1, ":100000", AT_1, ":100000", NOTHING, ":-2",
        NULL
    };

    open_zone(NULL);

    (void) poll(three);
    (void) poll(without_c);
    (void) poll(without_c);
    ok(worker("c") != NULL, "a worker that left is not taken out by a Redis "
                            "that just came back");

    now_ms += SURE;
    (void) poll(without_c);
    ok(worker("c") == NULL && told_of("notice: worker \"c\" has left"),
       "but after the life of a registration");

    (void) poll(three);
    ok(worker("c") != NULL, "it may come back");

    now_ms += SURE;
    (void) polled("['0' []]", NOTHING, ":-2");
    (void) polled("['0' []]", NOTHING, ":-2");
    (void) polled("['0' []]", NOTHING, ":-2");
    ok(worker("a") && worker("b") && worker("c"),
       "if all leave at once, Redis lost its data: none is taken out");

    now_ms += SURE;
    (void) polled("['0' []]", "!ERR no", ":1");
    now_ms += 10;
    (void) polled("['0' []]", NOTHING, ":-2");
    ok(worker("a") && worker("b") && worker("c"),
       "nor after a poll that failed");

    now_ms += SURE;
    (void) polled("['0' []]", NOTHING, ":-2");
    ok(!worker("a") && !worker("b") && !worker("c"),
       "but when they stay away");

    close_zone();
}


static void
test_silence(void)
{
    uint32_t  i;

    open_zone(NULL);

    (void) polled(PAGE, AT_1, ":100000");
    ok(worker("a") && !silent("a"), "a worker that is registered");

    (void) polled(PAGE, NOTHING, ":-2");
    now_ms++;
    ok(silent("a"), "is silent when its registration expired");

    now_ms += SURE;
    (void) polled(PAGE, NOTHING, ":-2");
    (void) polled(PAGE, NOTHING, ":-2");
    ok(worker("a") != NULL, "and stays as long as its id does");

    (void) polled(PAGE, AT_1, ":100000");
    ok(!silent("a"), "and is back with its registration");

    roll.conf.checked = true;
    (void) polled(PAGE, NOTHING, ":-2");
    ok(worker("a") != NULL, "one that answers its checks stays, too");

    (void) kvr_router_find_worker(&router, "a", 1, &i);
    (void) kvr_health_checked(kvr_router_health(&router, i),
                              kvr_router_worker(&router, i)->generation,
                              now_ms, false, 1, 1);
    (void) polled(PAGE, NOTHING, ":-2");
    ok(worker("a") == NULL && told_of("has left"),
       "one that fails them is taken out");

    close_zone();
}


static void
test_warnings(void)
{
    open_zone(NULL);

    bad_address = true;
    (void) polled(PAGE, AT_1, ":1000");
    ok(told_of("error: registration of worker \"a\" refused: a bad address, it "
               "is \"127.0.0.1:1\"") && !worker("a"),
       "an address that can't be used is refused, and named");
    (void) polled(PAGE, AT_1, ":1000");
    ok(told_of("info: registration of worker \"a\" refused"),
       "once as an error");

    bad_address = false;
    (void) polled(PAGE, AT_1, ":1000");
    bad_address = true;
    (void) polled(PAGE, AT_1, ":1000");
    ok(told_of("error: registration of worker \"a\" refused"),
       "and again after it was good");

    bad_address = false;
    (void) polled(PAGE, LACKS, ":1000");
    ok(told_of("warn: the publisher of worker \"a\" is not complete: \"lost "
               "some\""), "what a publisher says is logged");
    (void) polled(PAGE, LACKS, ":1000");
    ok(told_of(NULL), "once");

    (void) polled(PAGE, DRAINS("1"), ":1000");
    ok(told_of("notice: worker \"a\" drains, its registration says")
       && worker("a")->flags & KVR_WORKER_LEAVING, "so is that it drains");
    (void) polled(PAGE, DRAINS("1"), ":1000");
    ok(told_of(NULL), "once");
    (void) polled(PAGE, DRAINS("0"), ":1000");
    ok(told_of("notice: worker \"a\" drains no more, its registration says")
       && !(worker("a")->flags & KVR_WORKER_LEAVING),
       "until it drains no more");

    (void) polled("!ERR no");
    ok(told_of("error: members can't be read"), "a poll that fails is told");
    (void) polled("!ERR no");
    ok(told_of("info: members can't be read"), "once as an error");
    (void) polled("['0' []]", AT_1, ":1000");
    (void) polled("!ERR no");
    ok(told_of("error: members can't be read"), "and again after a good one");

    close_zone();
}


/* Workers that are known from events alone make a poll due. */

static void
test_due(void)
{
    open_zone(NULL);

    (void) polled("['0' []]");
    now_ms += 1000;
    (void) kvr_roll_due(&roll, now_ms, UINT64_MAX);
    ok(!kvr_roll_due(&roll, now_ms, UINT64_MAX), "without news no poll is due");
    ok(kvr_roll_due(&roll, now_ms, 1), "another lease makes one due");

    (void) polled("['0' []]");
    (void) router_put(&router, "seen", "", 1, KVR_WORKER_SEEN);
    ok(!kvr_roll_due(&roll, now_ms + 100, UINT64_MAX),
       "a worker of which only events are known does, not at once");
    ok(kvr_roll_due(&roll, now_ms + 600, UINT64_MAX), "but soon");

    now_ms += 600;
    (void) polled("['0' []]");
    now_ms += 600;
    ok(!kvr_roll_due(&roll, now_ms, UINT64_MAX), "and once");

    close_zone();
}


static void
test_lease(void)
{
    open_zone(NULL);

    (void) polled(PAGE, AT_1, ":1000");
    kvr_router_lease_release(&router);

    (void) polled(PAGE, AT_2, ":1000");
    ok(ended == KVR_ROLL_LOST, "without the lease a registration is not "
                               "taken");
    ok(strcmp(worker("a")->conf.address, "127.0.0.1:1") == 0,
       "and changes nothing");

    kvr_roll_reset(&roll);
    is_u64(unreleased, 0, "no answer is left");

    close_zone();
}


int
main(void)
{
    test_answers();
    test_questions();
    test_ring();
    test_absence();
    test_silence();
    test_warnings();
    test_due();
    test_lease();

    return done();
}
