/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Repairs of a worker's view, without a Redis: what each state asks is
 * answered from a table that stands for the worker's log and snapshot, and
 * each state gets each kind of answer there is.
 */


#include "answers.h"
#include "pack.h"
#include "zone.h"
#include "follow/kvr_repair_state.h"


#define SIZE      (16u << 20)
#define MESSAGES  400
#define ALWAYS    1000


/* What Redis has of worker w, of epoch 7; message i stores block i. */

typedef struct {
    uint64_t       applied;             /* live, up to this message */
    uint64_t       missing;             /* a gap goes up to here */
    uint64_t       first;               /* of the log */
    uint64_t       last;                /* the same; 0: no log */
    uint64_t       snapshot;            /* after this message; 0: none */
    uint32_t       parts;
    bool           look;                /* a look for a snapshot */
} world_t;


/* The first `times` answers to a command are this one. */

typedef struct {
    const char    *command;
    const char    *answer;
    uint32_t       times;
} wrong_t;


static kvr_repair_env_t  env;
static kvr_lane_t        lane;
static kvr_repair_t      repair;
static const world_t    *world;
static bool              incomplete;    /* its snapshot */
static wrong_t           wrong;
static uint32_t          questions;
static char              asked[4096];   /* the commands' names */
static blob_t            messages[MESSAGES];


/* ---- bytes -------------------------------------------------------------- */

static blob_t
blob(const uint8_t *bytes, size_t len)
{
    char  *copy;

    copy = malloc(len);
    memcpy(copy, bytes, len);

    return (blob_t) { copy, len };
}


/* A batch that stores blocks from..to, each a prompt of its own. */

static size_t
batch(uint8_t *bytes, size_t size, uint64_t from, uint64_t to)
{
    uint64_t  i, name;
    pack_t    out;

    out.pos = bytes;
    out.end = bytes + size;

    pack_tag(&out, 0xdc, to - from + 1, 2);

    for (i = from; i <= to; i++) {
        name = 1000 + i;

        pack_tag(&out, 0x96, 0, 0);
        pack_str(&out, "s", 1);
        pack_u64(&out, 0);
        pack_u64(&out, 0);
        pack_tag(&out, 0xc0, 0, 0);
        pack_bin(&out, &name, 8);
        pack_bin(&out, &name, 8);
    }

    return out.pos - bytes;
}


static void
make_messages(void)
{
    pack_t    out;
    size_t    len;
    uint8_t   bytes[16384], inner[16384];
    uint64_t  i;

    for (i = 1; i < MESSAGES; i++) {
        len = batch(inner, sizeof(inner), i, i);

        out.pos = bytes;
        out.end = bytes + sizeof(bytes);

        pack_tag(&out, 0x97, 0, 0);
        pack_str(&out, "kvr1", 4);
        pack_str(&out, "w", 1);
        pack_u64(&out, 7);
        pack_u64(&out, i);
        pack_tag(&out, 0xc3, 0, 0);
        pack_u64(&out, 0);
        pack_bin(&out, inner, len);

        messages[i] = blob(bytes, out.pos - bytes);
    }
}


/* ---- a Redis without one ------------------------------------------------ */

static char *
entries(char *p, uint64_t from, uint64_t n)
{
    uint64_t  i;

    p += sprintf(p, "[");

    for (i = from; i < from + n; i++) {
        blobs[i - from] = messages[i];
        p += sprintf(p, "['7-%llu' ['m' @%llu]] ", (unsigned long long) i,
                     (unsigned long long) (i - from));
    }

    p += sprintf(p, "]");

    return p;
}


static kvr_reply_t
redis(const kvr_ask_t *ask)
{
    char          text[16384];
    size_t        len;
    uint8_t       bytes[16384];
    uint64_t      from, n;
    const char   *name;

    name = ask->argv[0];

    if (strcmp(name, "XREVRANGE") == 0) {
        entries(text, world->last, world->last ? 1 : 0);
        return answer(text);
    }

    if (strcmp(name, "XRANGE") == 0) {
        from = strtoull(ask->argv[2] + 3, NULL, 10) + 1;
        from = from > world->first ? from : world->first;
        n = strtoull(ask->argv[5], NULL, 10);
        n = from > world->last ? 0
            : world->last - from + 1 < n ? world->last - from + 1 : n;
        entries(text, from, n);
        return answer(text);
    }

    if (strcmp(name, "HMGET") == 0) {

        if (world->snapshot == 0) {
            return answer("[~ ~ ~ ~ ~ ~ ~ ~]");
        }

        sprintf(text, "['1' '7' '%llu' '%d' '%u' '4' ~ ~]",
                (unsigned long long) world->snapshot, !incomplete,
                world->parts);
        return answer(text);
    }

    if (strcmp(name, "GETRANGE") == 0) {

        /* half of the blocks in each of two parts, or all in one */

        n = strtoull(strrchr(ask->argv[1], ':') + 1, NULL, 10);
        from = n == 0 ? 1 : world->snapshot / 2 + 1;
        len = batch(bytes, sizeof(bytes), from,
                    n + 1 == world->parts ? world->snapshot
                                          : world->snapshot / 2);
        blobs[0] = (blob_t) { (char *) bytes, len };
        return answer("@0");
    }

    return answer("+OK");
}


/* ---- a repair ----------------------------------------------------------- */

static void
live(uint64_t seq)
{
    const char  *detail;

    if (kvr_ingest_open(env.ingest, "w", 1, messages[seq].bytes,
                        messages[seq].len, true, now_ms, &detail)
        != KVR_INGEST_APPLY)
    {
        printf("Bail out! message %u is not applied\n", (unsigned) seq);
        exit(1);
    }

    while (kvr_ingest_step(env.ingest, 64) == KVR_OK) { /* void */ }
}


static void
open_world(const world_t *of)
{
    uint64_t  i;

    zone_open(&kinds[0], SIZE);
    put("w");
    (void) lease("w", now_ms);

    tell_reset();
    memset(&lane, 0, sizeof(lane));
    asked[0] = '\0';
    questions = 0;

    world = of;
    env = (kvr_repair_env_t) { &router, kvr_ingest_create(&router), &tell };

    for (i = 1; i <= of->applied; i++) {
        live(i);
    }

    if (of->missing) {
        lane.missing = (kvr_cursor_t) { 7, of->missing };
    }

    lane.look = of->look;

    kvr_repair_begin(&repair, &env, &lane, 0, "w");
}


static void
close_world(void)
{
    kvr_repair_stop(&repair);
    kvr_ingest_destroy(env.ingest);
    zone_close();
}


/* Steps until the repair ends, or after so many questions; *rc: how. */

static kvr_next_t
steps(uint32_t most)
{
    uint32_t          n;
    kvr_ask_t         ask;
    kvr_turn_t        turn;
    kvr_reply_t       reply;
    kvr_next_t        rc;

    turn = (kvr_turn_t) { now_ms, 7, 3, true };

    for (n = 0; n < 10000; n++) {
        turn.now_ms = now_ms;
        rc = kvr_repair_step(&repair, &turn, &ask);

        switch (rc) {

        case KVR_NEXT_ASK:
            questions++;

            if (strlen(asked) < sizeof(asked) - 16) {
                strcat(strcat(asked, asked[0] ? " " : ""), ask.argv[0]);
            }

            if (kvr_repair_step(&repair, &turn, &ask) != KVR_NEXT_WAIT) {
                printf("Bail out! a question is not waited for\n");
                exit(1);
            }

            if (wrong.times && strcmp(wrong.command, ask.argv[0]) == 0) {
                wrong.times--;
                reply = answer(wrong.answer);

            } else {
                reply = redis(&ask);
            }

            if (most && questions == most) {
                kvr_reply_release(&reply);
                return rc;
            }

            kvr_repair_answer(&repair, &turn, &reply);
            break;

        case KVR_NEXT_APPLY:
            while (kvr_ingest_step(env.ingest, 3) == KVR_OK) { /* void */ }
            (void) kvr_repair_applied(&repair);
            break;

        case KVR_NEXT_WAIT:
            now_ms += 2000;
            break;

        case KVR_NEXT_AGAIN:
        case KVR_NEXT_YIELD:
            break;

        default:
            return rc;
        }
    }

    return KVR_NEXT_WAIT;
}


/* The state of the view afterwards, as "EXACT 7-9 of 9", and how it ended. */

static const char *
outcome(kvr_next_t rc)
{
    uint32_t             h, visited, held;
    const kvr_worker_t  *w;

    static char  text[128];

    w = kvr_router_worker(&router, 0);
    h = KVR_HOLDER_NONE;
    visited = 0;
    held = 0;

    while (kvr_router_next_holder(&router, 0, &h, &visited)) {
        held += kvr_router_holder_held(&router, h);
    }

    snprintf(text, sizeof(text), "%s %llu-%llu of %u%s%s",
             kvr_confidence_name(w->stream.confidence),
             (unsigned long long) w->stream.epoch,
             (unsigned long long) w->stream.seq, held,
             repair.effect == KVR_EFFECT_LOST ? ", lost" : "",
             rc == KVR_NEXT_DONE ? "" : rc == KVR_NEXT_LOST
             ? ", lease lost" : ", no end");

    return text;
}


/* ---- each state, each answer -------------------------------------------- */

/* The log leads on, a snapshot is the only way, or there is neither. */

static const world_t  with_log = { 4, 9, 5, 9, 0, 0, false };
static const world_t  trimmed = { 4, 9, 7, 9, 6, 2, false };
static const world_t  neither = { 4, 9, 7, 9, 0, 0, false };

typedef struct {
    const char      *answer;
    uint32_t         times;
    const char      *outcome;
    const char      *log;               /* NULL: nothing of errors */
} case_t;

typedef struct {
    const char      *command;
    const world_t   *world;
    const char      *log;               /* of an answer of a wrong type */
    case_t           cases[20];
} table_t;

#define WHOLE    "EXACT 7-9 of 9"
#define NO_ARRAY "error: log of worker \"w\" can't be read: \"no array\""
#define NO       "error: log of worker \"w\" can't be read: \"ERR no\""
#define NOT      "warn: snapshot of worker \"w\" refused: not what was asked for"
#define LATER    "warn: no snapshot of worker \"w\" can be asked for: "

static const table_t  tables[] = {
    { "XREVRANGE", &with_log, NULL, {
      { "['x']", 1, "DEGRADED 7-9 of 4, lost", "up to 7-9 are lost" },
      { "[]", 1, "DEGRADED 7-9 of 4, lost", "up to 7-9 are lost" },
      { "'x'", 1, WHOLE, NO_ARRAY },
      { "+OK", 1, WHOLE, NO_ARRAY },
      { ":1", 1, WHOLE, NO_ARRAY },
      { "~", 1, WHOLE, NO_ARRAY },
      { "?", 1, WHOLE, NO_ARRAY },
      { "!ERR no", 1, WHOLE, NO },
      { "!ERR no", 2, WHOLE, NO },
      { "!WRONGTYPE no stream", ALWAYS, "DEGRADED 7-9 of 4, lost",
        "can't be read: \"WRONGTYPE no stream\"" },
      { "~", ALWAYS, "DEGRADED 7-9 of 4, lost", NO_ARRAY },
      { "BIG", 1, WHOLE, NULL },
      { "BIG", ALWAYS, "DEGRADED 7-9 of 4, lost", "up to 7-9 are lost" },
      { "LOST", 7, WHOLE, NULL } } },

    { "XRANGE", &with_log, NULL, {
      { "[]", 1, WHOLE, NULL },
      { "[:1]", 1, WHOLE, "refused: not an entry of a log" },
      { "[['x' ['m' 'x']]]", 1, WHOLE, "refused: not an entry of a log" },
      { "[['7-5' 'x']]", 1, WHOLE, "refused: not an entry of a log" },
      { "[['7-5' ['m' :1]]]", 1, WHOLE, "refused: not an entry of a log" },
      { "[['7-5' ['m' 'x']]]", 1, WHOLE,
        "error: message of worker \"w\" refused: not a batch" },
      { "'x'", 1, WHOLE, NO_ARRAY },
      { "+OK", 1, WHOLE, NO_ARRAY },
      { ":1", 1, WHOLE, NO_ARRAY },
      { "~", 1, WHOLE, NO_ARRAY },
      { "?", 1, WHOLE, NO_ARRAY },
      { "!ERR no", 2, WHOLE, NO },
      { "!ERR no", ALWAYS, "DEGRADED 7-9 of 4, lost", NO },
      { "BIG", 1, WHOLE, NULL },
      { "BIG", 3, WHOLE, NULL },
      { "BIG", 4, "DEGRADED 7-9 of 8, lost", "up to 7-5 are lost" },
      { "BIG", ALWAYS, "DEGRADED 7-9 of 4, lost", "up to 7-9 are lost" },
      { "LOST", 7, WHOLE, NULL } } },

    { "HMGET", &trimmed, NULL, {
      { "[~ ~ ~ ~ ~ ~ ~ ~]", 1, WHOLE, NULL },
      { "[~ ~ ~ ~ ~ ~ ~ ~]", ALWAYS, "DEGRADED 7-9 of 7, lost",
        "up to 7-6 are lost" },
      { "[]", 1, WHOLE, "refused: not the fields of a snapshot" },
      { "[]", ALWAYS, "DEGRADED 7-9 of 7, lost",
        "refused: not the fields of a snapshot" },
      { "['1' '7' '6' '1' '2' '5' ~ ~]", ALWAYS, "DEGRADED 7-9 of 7, lost",
        "warn: snapshot of worker \"w\" refused: " },
      { "[:1 :1 :1 :1 :1 :1 :1 :1]", ALWAYS, "DEGRADED 7-9 of 7, lost",
        "warn: snapshot of worker \"w\" refused: " },
      { "'x'", 1, WHOLE, NOT },
      { "'x'", ALWAYS, "DEGRADED 7-9 of 7, lost", NOT },
      { "+OK", 1, WHOLE, NOT },
      { ":1", 1, WHOLE, NOT },
      { "~", 1, WHOLE, NOT },
      { "?", 1, WHOLE, NOT },
      { "!ERR no", 1, WHOLE, "refused: ERR no" },
      { "BIG", 1, WHOLE, NULL },
      { "BIG", 3, WHOLE, NULL },
      { "BIG", ALWAYS, "DEGRADED 7-9 of 7, lost", "up to 7-6 are lost" },
      { "LOST", 7, WHOLE, NULL } } },

    { "GETRANGE", &trimmed, NULL, {
      { "''", 1, WHOLE, NULL },
      { "''", ALWAYS, "DEGRADED 7-9 of 7, lost",
        "refused: a part is not to be had" },
      { "'x'", 1, "DEGRADED 7-9 of 7, lost",
        "warn: snapshot of worker \"w\" refused: " },
      { "+OK", 1, "DEGRADED 7-9 of 7, lost", NOT },
      { ":1", 1, "DEGRADED 7-9 of 7, lost", NOT },
      { "[]", 1, "DEGRADED 7-9 of 7, lost", NOT },
      { "~", 1, "DEGRADED 7-9 of 7, lost", NOT },
      { "?", 1, "DEGRADED 7-9 of 7, lost", NOT },
      { "!ERR no", 1, "DEGRADED 7-9 of 7, lost", "refused: ERR no" },
      { "BIG", 2, WHOLE, NULL },
      { "BIG", 3, "DEGRADED 7-9 of 7, lost",
        "refused: a part is not to be had" },
      { "LOST", 7, WHOLE, NULL } } },

    { "SET", &neither, NULL, {
      { "+OK", 1, "DEGRADED 7-9 of 7, lost", "up to 7-6 are lost" },
      { "~", 1, "DEGRADED 7-9 of 7, lost", "up to 7-6 are lost" },
      { "'x'", 1, "DEGRADED 7-9 of 7, lost", LATER "not what was asked for" },
      { ":1", 1, "DEGRADED 7-9 of 7, lost", LATER "not what was asked for" },
      { "[]", 1, "DEGRADED 7-9 of 7, lost", LATER "not what was asked for" },
      { "?", 1, "DEGRADED 7-9 of 7, lost", LATER "not what was asked for" },
      { "!ERR no", 1, "DEGRADED 7-9 of 7, lost", LATER "ERR no" },
      { "BIG", ALWAYS, "DEGRADED 7-9 of 7, lost", "up to 7-6 are lost" },
      { "LOST", 7, "DEGRADED 7-9 of 7, lost", "up to 7-6 are lost" } } }
};


static void
test_answers(void)
{
    bool             quiet;
    size_t           i;
    const char      *got;
    const case_t    *c;
    const table_t   *t;
    kvr_next_t       rc;

    for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        t = &tables[i];

        for (c = t->cases; c->answer; c++) {

            open_world(t->world);
            wrong = (wrong_t) { t->command, c->answer, c->times };

            rc = steps(0);
            got = outcome(rc);

            quiet = strstr(told, "warn:") == NULL
                    && strstr(told, "error:") == NULL;

            if (!ok(strcmp(got, c->outcome) == 0 && unreleased == 0
                    && (c->log ? strstr(told, c->log) != NULL : quiet)
                    && wrong.times != c->times,
                    "%s is answered %s %u times: %s", t->command, c->answer,
                    c->times, c->outcome))
            {
                note("%s; asked %s; log: %s", got, asked, told);
            }

            wrong.times = 0;
            close_world();
            ok(unreleased == 0, "and no answer is left");
        }
    }
}


/* ---- moves -------------------------------------------------------------- */

#define WAYS     "any snapshot log alone none"
#define STATES   "start last pointer load part swap aside page end new done"
#define EVENTS   "next enough loss gone hole vain useless neither beyond "    \
                 "swapped"

/*
 * The moves of each state for each event, with each way: "state way", with "!"
 * if messages are lost first.  A pair that is not here can't be.
 */

typedef struct {
    const char  *state;
    const char  *event;
    const char  *moves[KVR_WAYS];
} move_t;

#define NO_LOG    "end alone", "end none"
#define NO_HELP   { "page any", "page log", "page log", "end none", "end none" }
#define NEITHER   { "end any", "end log", "end log", "end none", "end none" }
#define GOES(to)  { to " any", to " snapshot", to " log", to " alone",        \
                    to " none" }

static const move_t  moves[] = {
    { "start", "next", GOES("last") },
    { "last", "next", GOES("pointer") },
    { "last", "vain", { "pointer alone", "pointer alone", "pointer none",
                        "pointer alone", "pointer none" } },
    { "pointer", "next", GOES("load") },
    { "load", "next", GOES("part") },
    { "load", "enough", GOES("swap") },
    { "part", "next", GOES("part") },
    { "part", "enough", GOES("swap") },
    { "part", "gone", GOES("pointer") },
    { "swap", "beyond", { "aside any", "aside snapshot", "aside log",
                          "end none", "end none" } },
    { "swap", "swapped", { "page any", "page any", "page any", "end any",
                           "end any" } },
    { "aside", "next", { "aside any", "aside snapshot", "aside log", NO_LOG } },
    { "aside", "enough", GOES("swap") },
    { "aside", "vain", { "end alone", "end alone", "end none", NO_LOG } },
    { "page", "next", { "page any", "page snapshot", "page log", NO_LOG } },
    { "page", "enough", GOES("end") },
    { "page", "vain", { "end alone", "end alone", "end none", NO_LOG } },
    { "page", "hole", { "pointer snapshot", "pointer snapshot", "!page log",
                        "pointer alone", "!end none" } },
    { "page", "loss", { "!page any", "!page snapshot", "!page log",
                        "!end alone", "!end none" } },
    { "end", "enough", { "new any", "new snapshot", "new log", "!new alone",
                         "!new none" } },
    { "end", "hole", { "pointer snapshot", "pointer snapshot", "!new log",
                       "pointer alone", "!new none" } },
    { "end", "loss", GOES("!new") },
    { "new", "next", GOES("done") },
    { "new", "enough", GOES("done") },

    { "pointer", "useless", NO_HELP }, { "pointer", "neither", NEITHER },
    { "load", "useless", NO_HELP }, { "load", "neither", NEITHER },
    { "part", "useless", NO_HELP }, { "part", "neither", NEITHER },
    { "swap", "useless", NO_HELP }, { "swap", "neither", NEITHER },
    { "aside", "useless", NO_HELP }, { "aside", "neither", NEITHER }
};


/* The n-th word of a list. */

static const char *
word(const char *list, uint32_t n)
{
    size_t  len;

    static char  words[4][16];
    static int   turn;

    for ( /* void */ ; n; n--) {
        list = strchr(list, ' ') + 1;
    }

    len = strcspn(list, " ");
    turn = (turn + 1) % 4;
    memcpy(words[turn], list, len);
    words[turn][len] = '\0';

    return words[turn];
}


/* What a move must be: a pair that can't be leads to a safe end. */

static const char *
expected(const char *state, const char *event, kvr_way_t way)
{
    size_t  i;

    for (i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {

        if (strcmp(moves[i].state, state) == 0
            && strcmp(moves[i].event, event) == 0)
        {
            return moves[i].moves[way];
        }
    }

    return strcmp(state, "end") == 0 || strcmp(state, "new") == 0
           || strcmp(state, "done") == 0 ? "done none" : "end none";
}


static void
test_moves(void)
{
    char                got[64];
    uint32_t            s, e, w;
    const char         *state, *event, *want;
    kvr_repair_move_t   move;

    for (s = 0; s < KVR_REPAIR_STATES; s++) {
        for (e = 0; e < KVR_SEES_EVENTS; e++) {
            for (w = 0; w < KVR_WAYS; w++) {
                state = word(STATES, s);
                event = word(EVENTS, e);
                want = expected(state, event, w);

                move = kvr_repair_decide(s, w, e);

                snprintf(got, sizeof(got), "%s%s %s", move.lose ? "!" : "",
                         word(STATES, move.state), word(WAYS, move.way));

                if (!ok(strcmp(got, want) == 0, "%s, %s, with %s: %s", state,
                        event, word(WAYS, w), want))
                {
                    note("%s", got);
                }
            }
        }
    }
}


/* ---- ways --------------------------------------------------------------- */

typedef struct {
    const char  *title;
    world_t      world;
    const char  *asked;
    const char  *outcome;
} way_t;

static const way_t  ways[] = {
    { "nothing is missing", { 4, 0, 1, 4, 0, 0, false },
      "XREVRANGE HMGET", "EXACT 7-4 of 4" },
    { "the log leads on", { 4, 9, 1, 9, 0, 0, false },
      "XREVRANGE HMGET XRANGE", WHOLE },
    { "the log leads on, and a snapshot is no shorter way",
      { 4, 9, 1, 9, 6, 2, false }, "XREVRANGE HMGET XRANGE", WHOLE },
    { "nothing is known of the worker", { 0, 0, 1, 9, 0, 0, false },
      "XREVRANGE HMGET XRANGE", WHOLE },
    { "nothing is known, and the log is trimmed", { 0, 0, 7, 9, 6, 2, false },
      "XREVRANGE HMGET GETRANGE GETRANGE XRANGE", WHOLE },
    { "nothing is known, the log is trimmed, and there is no snapshot",
      { 0, 0, 7, 9, 0, 0, false }, "XREVRANGE HMGET XRANGE HMGET XRANGE SET",
      "DEGRADED 7-9 of 3, lost" },
    { "the log is trimmed", { 4, 9, 7, 9, 6, 2, false },
      "XREVRANGE HMGET XRANGE HMGET GETRANGE GETRANGE XRANGE", WHOLE },
    { "the log is trimmed, the snapshot has one part",
      { 4, 9, 7, 9, 6, 1, false },
      "XREVRANGE HMGET XRANGE HMGET GETRANGE XRANGE", WHOLE },
    { "the snapshot is later than the log's end",
      { 4, 9, 1, 5, 9, 2, false },
      "XREVRANGE HMGET GETRANGE GETRANGE XRANGE", WHOLE },
    { "the log is empty, and a snapshot is there", { 4, 9, 0, 0, 9, 2, false },
      "XREVRANGE HMGET GETRANGE GETRANGE XRANGE", WHOLE },
    { "there are neither log nor snapshot", { 4, 9, 0, 0, 0, 0, false },
      "XREVRANGE HMGET HMGET SET", "DEGRADED 7-9 of 4, lost" },
    { "the snapshot is behind what is missing", { 4, 9, 9, 9, 6, 2, false },
      "XREVRANGE HMGET XRANGE HMGET GETRANGE GETRANGE XRANGE HMGET XRANGE SET",
      "DEGRADED 7-9 of 7, lost" },
    { "nothing is there of an unknown worker", { 0, 0, 0, 0, 0, 0, false },
      "XREVRANGE HMGET", "UNKNOWN 0-0 of 0" },
    { "a look without a snapshot", { 4, 0, 0, 0, 0, 0, true },
      "HMGET", "EXACT 7-4 of 4" },
    { "a look at a snapshot that is later", { 4, 0, 7, 9, 6, 2, true },
      "HMGET GETRANGE GETRANGE XRANGE", WHOLE },
    { "three pages", { 4, 300, 1, 300, 0, 0, false },
      "XREVRANGE HMGET XRANGE XRANGE XRANGE", "EXACT 7-300 of 300" },
    { "two pages, the last of which is full", { 44, 300, 1, 300, 0, 0, false },
      "XREVRANGE HMGET XRANGE XRANGE XRANGE", "EXACT 7-300 of 300" }
};


static void
test_ways(void)
{
    size_t           i;
    const way_t     *w;
    kvr_next_t       rc;

    for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        w = &ways[i];

        open_world(&w->world);
        rc = steps(0);

        if (!ok(strcmp(outcome(rc), w->outcome) == 0
                && strcmp(asked, w->asked) == 0 && unreleased == 0,
                "%s: %s", w->title, w->outcome))
        {
            note("%s; asked %s; log: %s", outcome(rc), asked, told);
        }

        close_world();
    }
}


/* A snapshot that can be loaded again and again is not. */

static void
test_incomplete(void)
{
    static const world_t  behind = { 4, 9, 9, 9, 6, 1, false };

    incomplete = true;
    open_world(&behind);

    if (!ok(strcmp(outcome(steps(0)), "DEGRADED 7-9 of 7, lost") == 0
            && strcmp(asked, "XREVRANGE HMGET XRANGE HMGET GETRANGE XRANGE "
                      "HMGET GETRANGE XRANGE HMGET GETRANGE XRANGE HMGET "
                      "XRANGE SET") == 0,
            "an incomplete snapshot, behind what is missing: loaded 3 times"))
    {
        note("asked %s", asked);
    }

    close_world();
    incomplete = false;
}


/* A message of the log that can't be read: what follows it is applied. */

static void
test_refused(void)
{
    blob_t           good;
    kvr_next_t       rc;

    good = messages[6];
    messages[6] = (blob_t) { "x", 1 };

    open_world(&with_log);
    rc = steps(0);
    ok(strcmp(outcome(rc), "DEGRADED 7-9 of 8, lost") == 0
       && strstr(told, "refused: not a batch")
       && strstr(told, "up to 7-6 are lost"),
       "one message of the log is refused: the others are applied, DEGRADED");
    close_world();

    messages[6] = good;
}


/* A gap that was given up, and a snapshot from before what came since. */

static void
test_aside(void)
{
    static const world_t  beyond = { 4, 9, 7, 9, 0, 0, false };
    static const world_t  now = { 4, 0, 7, 9, 6, 2, true };
    static const world_t  gone = { 4, 0, 0, 0, 6, 2, true };

    open_world(&beyond);
    (void) steps(0);
    kvr_repair_stop(&repair);

    world = &gone;
    lane.look = true;
    asked[0] = '\0';
    kvr_repair_begin(&repair, &env, &lane, 0, "w");
    ok(strcmp(outcome(steps(0)), "DEGRADED 7-9 of 7") == 0
       && strstr(asked, "HMGET GETRANGE GETRANGE XRANGE") == asked,
       "a snapshot is of no use if the log does not lead on to the view");
    kvr_repair_stop(&repair);

    world = &now;
    asked[0] = '\0';
    kvr_repair_begin(&repair, &env, &lane, 0, "w");
    ok(strcmp(outcome(steps(0)), WHOLE) == 0
       && strcmp(asked, "HMGET GETRANGE GETRANGE XRANGE XRANGE") == 0,
       "entries that the view has are applied aside, then it is whole");

    close_world();
    is_u64(unreleased, 0, "no answer is left");
}


/* The lease goes before each question in turn: nothing is written. */

static void
test_lease(void)
{
    uint32_t         n;
    char             before[128];
    const char      *after;
    kvr_next_t       rc;

    for (n = 1; n <= 7; n++) {
        open_world(&trimmed);
        (void) steps(n);
        strcpy(before, outcome(KVR_NEXT_DONE));

        kvr_router_lease_release(&router);
        repair.asked = KVR_ASKED_NOT;

        rc = steps(0);
        after = outcome(KVR_NEXT_DONE);

        ok(rc == KVR_NEXT_LOST && strcmp(before, after) == 0,
           "the lease is lost before question %u: the repair ends, the view "
           "is as it was, %s", n, before);

        close_world();
        is_u64(unreleased, 0, "no answer is left");
    }
}


/* Questions wait for the connection, and for their time. */

static void
test_waits(void)
{
    kvr_ask_t    ask;
    kvr_turn_t   turn = { 0, 7, 3, false };
    kvr_reply_t  reply;

    open_world(&with_log);
    turn.now_ms = now_ms;

    ok(kvr_repair_step(&repair, &turn, &ask) == KVR_NEXT_AGAIN
       && kvr_repair_step(&repair, &turn, &ask) == KVR_NEXT_WAIT,
       "without a connection a repair waits");

    turn.ready = true;
    ok(kvr_repair_step(&repair, &turn, &ask) == KVR_NEXT_ASK
       && strcmp(command(&ask), "XREVRANGE kv-log:{w} + - COUNT 1") == 0,
       "and asks when there is one");

    kvr_repair_unasked(&repair);
    ok(kvr_repair_step(&repair, &turn, &ask) == KVR_NEXT_ASK,
       "a question that was not sent is asked again");

    reply = answer("!ERR no");
    kvr_repair_answer(&repair, &turn, &reply);
    ok(kvr_repair_step(&repair, &turn, &ask) == KVR_NEXT_WAIT,
       "one that was refused is not, at once");

    turn.now_ms += 1000;
    ok(kvr_repair_step(&repair, &turn, &ask) == KVR_NEXT_ASK,
       "but some time later");

    close_world();
}


int
main(void)
{
    make_messages();

    test_answers();
    test_moves();
    test_ways();
    test_incomplete();
    test_refused();
    test_aside();
    test_lease();
    test_waits();

    return done();
}
