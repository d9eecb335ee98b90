/*
 * Copyright (C) the nginx-kv-router authors
 *
 * RouterEvents: reading and printing them.
 */


#include "decode.h"


#define STORED(worker)                                                        \
    "{'worker_id':" worker ",'event':{'event_id':1,'data':{'stored':"         \
    "{'parent_hash':null,'blocks':[{'block_hash':100,'tokens_hash':200}]}},"  \
    "'dp_rank':0}}"


/* One event in an array between two good ones: isolation, each time. */
static bool
refused(const char *event, kvr_verdict_t verdict, kvr_why_t why)
{
    bool    good;
    char   *text;
    size_t  len;

    len = strlen(event) + 2 * sizeof(STORED("7")) + 8;
    text = malloc(len);
    snprintf(text, len, "[%s, %s, %s]", STORED("7"), event, STORED("8"));
    decode_json(text);
    free(text);

    good = got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 3
           && got.event[0].ev.verdict == KVR_KEEP
           && got.event[1].ev.verdict == verdict
           && got.event[1].ev.why == why && got.event[1].ev.at == 1
           && got.event[1].detail[0] != '\0'
           && got.event[2].ev.verdict == KVR_KEEP
           && strcmp(got.event[2].worker, "8") == 0
           && got.event[2].handles[0] == 100
           && got.event[2].locals[0] == 200;

    if (!good) {
        note("open %d, end %d, events %u, verdict %d, why %s: %s",
             got.opened, got.ended, got.n, got.event[1].ev.verdict,
             kvr_why_name(got.event[1].ev.why), got.event[1].detail);
    }

    return good;
}


static void
test_reading(void)
{
    const kvr_event_t  *ev;

    ev = &got.event[0].ev;

    decode_json("{'worker_id':7,'event':{'event_id':1,'data':{'stored':"
                "{'parent_hash':18446744073709551615,'blocks':["
                "{'block_hash':18446744073709551615,"
                "'tokens_hash':9007199254740993},"
                "{'tokens_hash':18446744073709551614,"
                "'block_hash':9007199254740995,'mm_extra_info':{'mm_objects':["
                "{'mm_hash':5,'offsets':[[1,2]]}]}}]}},'dp_rank':3}}");

    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 1
       && got.msg.form == KVR_FORM_ROUTER_EVENT && got.msg.counted,
       "a RouterEvent is one event, counted");

    ok(ev->kind == KVR_STORE && ev->verdict == KVR_KEEP
       && ev->tier == KVR_DEVICE && ev->rank == 3 && ev->has_parent
       && ev->has_event_id && ev->event_id == 1
       && strcmp(got.event[0].worker, "7") == 0
       && ev->nhandles == 2 && ev->nlocals == 2 && ev->ntokens == 0,
       "a store has all its fields");

    ok(ev->parent == UINT64_MAX && got.event[0].handles[0] == UINT64_MAX
       && got.event[0].handles[1] == 9007199254740995u
       && got.event[0].locals[0] == 9007199254740993u
       && got.event[0].locals[1] == UINT64_MAX - 1,
       "numbers above 2^53 are exact");

    decode_json("{'worker_id':'w-1','storage_tier':'host_pinned','event':"
                "{'event_id':3,'data':{'removed':{'block_hashes':[101,102]}},"
                "'dp_rank':0}}");
    ok(got.n == 1 && ev->kind == KVR_REMOVE && ev->tier == KVR_HOST
       && ev->nhandles == 2 && got.event[0].handles[1] == 102
       && strcmp(got.event[0].worker, "w-1") == 0 && ev->verdict == KVR_KEEP,
       "a removal has all its fields");

    decode_json("{'worker_id':7,'event':{'event_id':4,'data':'cleared',"
                "'dp_rank':9}}");
    ok(got.n == 1 && ev->kind == KVR_CLEAR && ev->rank == 9
       && ev->verdict == KVR_KEEP, "a clear is a word");

    decode_json("{'event':{'data':{'stored':{'blocks':[]}}},'worker_id':7}");
    ok(got.n == 1 && ev->verdict == KVR_KEEP && ev->kind == KVR_STORE
       && ev->rank == 0 && !ev->has_event_id && !ev->has_parent
       && ev->nhandles == 0,
       "event_id, dp_rank and parent_hash may be missing");

    decode_json("{'storage_tier':null,'event':{'data':'cleared','dp_rank':"
                "null,'event_id':null},'worker_id':7}");
    ok(got.n == 1 && ev->verdict == KVR_KEEP && ev->rank == 0
       && !ev->has_event_id && ev->tier == KVR_DEVICE,
       "what may be missing may be null");

    decode_json("{'worker_id':18446744073709551615,'event':{'data':"
                "'cleared'}}");
    ok(got.n == 1 && ev->verdict == KVR_KEEP
       && strcmp(got.event[0].worker, "18446744073709551615") == 0,
       "an integer worker_id is its decimal text");

    decode_json("{'worker_id':7,'event':{'data':{'stored':{'parent_hash':"
                "'18446744073709551615','blocks':[{'block_hash':'100',"
                "'tokens_hash':'18446744073709551614'}]}}}} {'worker_id':7,"
                "'event':{'data':{'removed':{'block_hashes':['7',8]}}}}");
    ok(got.n == 2 && ev->verdict == KVR_KEEP && ev->parent == UINT64_MAX
       && got.event[0].handles[0] == 100
       && got.event[0].locals[0] == UINT64_MAX - 1
       && got.event[1].ev.verdict == KVR_KEEP
       && got.event[1].handles[0] == 7 && got.event[1].handles[1] == 8,
       "hashes may be decimal strings");

    decode_json("{'worker_id':7,'storage_tier':'disk','event':{'data':"
                "{'stored':{'blocks':[{'block_hash':5}]}}}}");
    ok(got.n == 1 && ev->verdict == KVR_KEEP && ev->tier == KVR_DISK
       && ev->nhandles == 1 && ev->nlocals == 0,
       "a store without any tokens_hash adds a tier");

    decode_json("{'worker_id':7,'storage_tier':'external','later':[{'a':[]}],"
                "'event':{'data':{'removed':{'block_hashes':[],'x':{}}},"
                "'y':'}'}}");
    ok(got.n == 1 && ev->verdict == KVR_KEEP && ev->tier == KVR_EXTERNAL
       && ev->nhandles == 0,
       "unknown fields are ignored, braces in strings too");

    decode_json("{'w\\u006frker_id':'\\u0077','event':{'data':"
                "'cl\\u0065ared'}}");
    ok(got.n == 1 && ev->verdict == KVR_KEEP
       && strcmp(got.event[0].worker, "w") == 0,
       "strings may be escaped");
}


static void
test_isolation(void)
{
    size_t  i, n, len;
    char   *text;

    static const struct {
        const char  *json;
        kvr_why_t    why;
        const char  *name;
    } bad[] = {
        { "7", KVR_WHY_TYPE, "a number" },
        { "null", KVR_WHY_TYPE, "null" },
        { "true", KVR_WHY_TYPE, "true" },
        { "'x'", KVR_WHY_TYPE, "a string" },
        { "[[{}]]", KVR_WHY_TYPE, "an array" },
        { "{}", KVR_WHY_WORKER, "an empty object" },
        { "{'worker_id':7}", KVR_WHY_TYPE, "an event without data" },
        { "{'worker_id':7,'event':{'data':'freed'}}", KVR_WHY_TYPE,
          "unknown data" },
        { "{'worker_id':7,'event':{'data':{'moved':{}}}}", KVR_WHY_TYPE,
          "unknown data in an object" },
        { "{'event':{'data':'cleared'}}", KVR_WHY_WORKER, "no worker_id" },
        { "{'worker_id':'a b','event':{'data':'cleared'}}", KVR_WHY_WORKER,
          "a worker_id with a space" },
        { "{'worker_id':'','event':{'data':'cleared'}}", KVR_WHY_WORKER,
          "an empty worker_id" },
        { "{'worker_id':1.5,'event':{'data':'cleared'}}", KVR_WHY_SYNTAX,
          "a worker_id with a point" },
        { "{'worker_id':-1,'event':{'data':'cleared'}}", KVR_WHY_SYNTAX,
          "a worker_id below zero" },
        { "{'worker_id':null,'event':{'data':'cleared'}}", KVR_WHY_SYNTAX,
          "a worker_id that is null" },
        { "{'worker_id':{'a':1},'event':{'data':'cleared'}}", KVR_WHY_SYNTAX,
          "a worker_id that is an object" },
        { "{'worker_id':7,'event':{'data':'cleared','dp_rank':1024}}",
          KVR_WHY_RANK, "a rank out of range" },
        { "{'worker_id':7,'event':{'data':'cleared','dp_rank':'1'}}",
          KVR_WHY_SYNTAX, "a rank that is a string" },
        { "{'worker_id':7,'event':5}", KVR_WHY_SYNTAX,
          "an event that is a number" },
        { "{'worker_id':7,'event':{'data':{'stored':5}}}", KVR_WHY_SYNTAX,
          "stored that is a number" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':{}}}}}",
          KVR_WHY_SYNTAX, "blocks that are an object" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':null}}}}",
          KVR_WHY_SYNTAX, "blocks that are null" },
        { "{'worker_id':7,'event':{'data':{'stored':{'parent_hash':5}}}}",
          KVR_WHY_SYNTAX, "a store without blocks" },
        { "{'worker_id':7,'event':{'data':{'removed':{}}}}", KVR_WHY_SYNTAX,
          "a removal without block_hashes" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':[5]}}}}",
          KVR_WHY_SYNTAX, "a block that is a number" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':[[]]}}}}",
          KVR_WHY_SYNTAX, "a block that is an array" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':"
          "[{'tokens_hash':5}]}}}}", KVR_WHY_SYNTAX,
          "a block without block_hash" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':"
          "[{'block_hash':5},{'block_hash':6,'tokens_hash':7}]}}}}",
          KVR_WHY_LENGTH, "one block of two without tokens_hash" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':"
          "[{'block_hash':18446744073709551616,'tokens_hash':7}]}}}}",
          KVR_WHY_SYNTAX, "a hash of 2^64" },
        { "{'worker_id':7,'event':{'data':{'stored':{'blocks':"
          "[{'block_hash':'18446744073709551616'}]}}}}",
          KVR_WHY_SYNTAX, "a hash of 2^64 in a string" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':"
          "['-1']}}}}", KVR_WHY_SYNTAX, "a string that is no hash" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':"
          "['']}}}}", KVR_WHY_SYNTAX, "an empty one" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':"
          "'5'}}}}", KVR_WHY_SYNTAX, "block_hashes that are a string" },
        { "{'worker_id':7,'event':{'data':{'stored':{'parent_hash':-1,"
          "'blocks':[]}}}}", KVR_WHY_SYNTAX, "a parent below zero" },
        { "{'worker_id':7,'event':{'data':{'stored':{'parent_hash':1e3,"
          "'blocks':[]}}}}", KVR_WHY_SYNTAX, "a parent with an exponent" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':5}}}}",
          KVR_WHY_SYNTAX, "block_hashes that are a number" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':"
          "[null]}}}}", KVR_WHY_SYNTAX, "a handle that is null" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':"
          "[{'a':1}]}}}}", KVR_WHY_SYNTAX, "a handle that is an object" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':"
          "[[5]]}}}}", KVR_WHY_SYNTAX, "a handle that is an array" },
        { "{'worker_id':7,'event':{'data':{'removed':{'block_hashes':[]},"
          "'stored':{'blocks':[]}}}}", KVR_WHY_SYNTAX, "two kinds of data" },
        { "{'worker_id':7,'event':{'data':'cleared'},"
          "'x':[[[[[[[[[{}]]]]]]]]]}", KVR_WHY_LIMIT, "nested too deep" }
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ok(refused(bad[i].json, KVR_REFUSED, bad[i].why),
           "%s: refused, the events before and after are kept", bad[i].name);
    }

    ok(refused("{'worker_id':7,'storage_tier':'tape','event':{'data':"
               "{'removed':{'block_hashes':[null]}}}}", KVR_FILTERED,
               KVR_WHY_MEDIUM),
       "an unknown storage_tier is filtered, whatever else is wrong");

    decode_json("[1, 2, 3, {'worker_id':7,'event':{'data':'cleared'}}, 4]");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 5
       && got.event[2].ev.why == KVR_WHY_TYPE && got.event[2].ev.at == 2
       && got.event[3].ev.verdict == KVR_KEEP && got.event[3].ev.at == 3
       && got.event[4].ev.why == KVR_WHY_TYPE,
       "events keep their places among values that are none");

    decode_json("[]");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 0,
       "an empty array of RouterEvents has no events");

    decode_json(STORED("7") "\n" STORED("8") "\n" STORED("9") "\n");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 3
       && strcmp(got.event[2].worker, "9") == 0,
       "a dump, an event a line, is read as it is");

    decode_json("[" STORED("7") "," STORED("8") ",{'worker_id':7,,}]");
    ok(got.opened == KVR_OK && got.ended == KVR_INVALID && got.n == 2
       && got.event[1].ev.verdict == KVR_KEEP && got.detail[0] != '\0',
       "what comes before a syntax error is kept");

    decode_json("[" STORED("7") "," STORED("8"));
    ok(got.opened == KVR_OK && got.ended == KVR_INVALID && got.n == 2,
       "what comes before a missing bracket is kept");

    decode_json(STORED("7") " garbage");
    ok(got.opened == KVR_OK && got.ended == KVR_INVALID && got.n == 1,
       "garbage after an event is an error");

    decode_json("{");
    ok(got.opened == KVR_OK && got.ended == KVR_INVALID && got.n == 0,
       "a brace alone is an error");

    decode_json("{'\\u0077orker\\u005fid':'\\u0077-\\u0031','e\\u0076ent':"
                "{'d\\u0061ta':{'removed':{'block_hashes':"
                "['\\u0031\\u0037']}}}}");
    ok(got.n == 1 && got.event[0].ev.verdict == KVR_KEEP
       && strcmp(got.event[0].worker, "w-1") == 0
       && got.event[0].handles[0] == 17,
       "keys, ids and hashes may have escapes");

    text = malloc(1024);

    for (i = 0; i < 2; i++) {

        /* levels: event, x and so many lists */

        n = 63 + i;
        len = (size_t) sprintf(text, "{\"worker_id\":7,\"x\":");
        memset(text + len, '[', n);
        memset(text + len + n, ']', n);
        len += 2 * n;
        len += (size_t) sprintf(text + len, "}" "{\"worker_id\":7,"
                                "\"event\":{\"data\":\"cleared\"}}");
        decode_bytes(text, len);

        if (i == 0) {
            ok(got.n == 2 && got.event[0].ev.why == KVR_WHY_LIMIT
               && got.event[1].ev.verdict == KVR_KEEP
               && got.ended == KVR_DONE,
               "an event of 64 levels is refused, the next one is kept");

        } else {
            ok(got.n == 0 && got.ended == KVR_INVALID,
               "a message of 65 levels is broken");
        }
    }

    free(text);

    len = 1u << 20;
    text = malloc(len);
    memset(text, '[', len);
    decode_bytes(text, len);
    ok(got.opened == KVR_OK && got.ended == KVR_INVALID,
       "a million brackets are an error, and nothing worse");
    free(text);
}


static void
test_limits(void)
{
    char    *p, *text;
    size_t   i, n;

    n = KVR_EVENT_BLOCKS_MAX;
    text = malloc(n * 48 + 1024);

    for (i = n; i <= n + 1; i++) {
        size_t  k;

        p = text;
        p += sprintf(p, "[{\"worker_id\":7,\"event\":{\"data\":{\"stored\":{"
                     "\"blocks\":[");

        for (k = 0; k < i; k++) {
            p += sprintf(p, "%s{\"block_hash\":%zu,\"tokens_hash\":%zu}",
                         k == 0 ? "" : ",", k, k + 1);
        }

        p += sprintf(p, "]}}}},{\"worker_id\":7,\"event\":{\"data\":"
                     "\"cleared\"}}]");

        decode_bytes(text, (size_t) (p - text));

        if (i == n) {
            ok(got.n == 2 && got.event[0].ev.verdict == KVR_KEEP
               && got.event[0].ev.nhandles == n
               && got.event[0].handles[255] == 255
               && got.event[0].locals[255] == 256,
               "an event may have %zu blocks", n);

        } else {
            ok(got.n == 2 && got.event[0].ev.verdict == KVR_REFUSED
               && got.event[0].ev.why == KVR_WHY_LIMIT
               && got.event[1].ev.verdict == KVR_KEEP,
               "an event of more blocks is refused, the next one kept");
        }
    }

    free(text);
}


static bool
prints(const kvr_event_t *ev, const char *worker, uint64_t event_id,
    const char *want)
{
    bool    good;
    char   *text, out[1024];
    size_t  len, n;

    text = quoted(want);
    len = strlen(text);

    n = kvr_router_event_print(out, sizeof(out), worker, strlen(worker),
                               event_id, ev);

    good = n == len && memcmp(out, text, len) == 0
           && kvr_router_event_print(out, len, worker, strlen(worker),
                                     event_id, ev) == len
           && kvr_router_event_print(out, len - 1, worker, strlen(worker),
                                     event_id, ev) == 0;
    if (!good) {
        note("got:  %.*s", (int) n, out);
        note("want: %s", text);
    }

    free(text);

    return good;
}


static void
test_printing(void)
{
    char            out[1024], one[1024];
    size_t          len, n;
    uint32_t        tokens[] = { 1 };
    uint64_t        handles[] = { UINT64_MAX, 0, 9007199254740993u };
    uint64_t        locals[] = { 1, UINT64_MAX - 1, 9007199254740995u };
    kvr_event_t     ev;
    kvr_event_t    *back;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.handles = handles;
    ev.nhandles = 2;
    ev.locals = locals;
    ev.nlocals = 2;

    ok(prints(&ev, "7", 0, "{'worker_id':7,'event':{'event_id':0,'data':"
              "{'stored':{'parent_hash':null,'blocks':[{'block_hash':"
              "18446744073709551615,'tokens_hash':1},{'block_hash':0,"
              "'tokens_hash':18446744073709551614}]}},'dp_rank':0}}"),
       "a store at the root is printed, and needs just its length");

    ev.kind = KVR_REMOVE;
    ev.tier = KVR_HOST;
    ev.rank = 1023;
    ev.nlocals = 0;

    ok(prints(&ev, "w-1", UINT64_MAX, "{'worker_id':'w-1','storage_tier':"
              "'host_pinned','event':{'event_id':18446744073709551615,'data':"
              "{'removed':{'block_hashes':[18446744073709551615,0]}},"
              "'dp_rank':1023}}"),
       "a removal is printed with its tier and rank");

    ev.kind = KVR_CLEAR;
    ok(prints(&ev, "7x", 4, "{'worker_id':'7x','event':{'event_id':4,"
              "'data':'cleared','dp_rank':1023}}"),
       "a clear is printed without a tier");

    ok(prints(&ev, "18446744073709551615", 4, "{'worker_id':"
              "18446744073709551615,'event':{'event_id':4,"
              "'data':'cleared','dp_rank':1023}}")
       && prints(&ev, "0", 4, "{'worker_id':0,'event':{'event_id':4,"
                 "'data':'cleared','dp_rank':1023}}"),
       "an id that is a u64 is printed as a number");

    ok(prints(&ev, "18446744073709551616", 4, "{'worker_id':"
              "'18446744073709551616','event':{'event_id':4,"
              "'data':'cleared','dp_rank':1023}}")
       && prints(&ev, "007", 4, "{'worker_id':'007','event':{'event_id':4,"
                 "'data':'cleared','dp_rank':1023}}"),
       "an id that a number would change is printed as a string");

    ev.kind = KVR_STORE;
    ev.locals = locals;
    ev.nhandles = 1;
    ev.nlocals = 2;
    is_u64(kvr_router_event_print(out, sizeof(out), "7", 1, 0, &ev), 0,
           "several locals to a handle can't be printed");

    ev.nlocals = 0;
    ev.tokens = tokens;
    ev.ntokens = 1;
    is_u64(kvr_router_event_print(out, sizeof(out), "7", 1, 0, &ev), 0,
           "tokens can't be printed");

    ev.ntokens = 0;
    is_u64(kvr_router_event_print(out, sizeof(out), "a\"b", 3, 0, &ev), 0,
           "an invalid worker can't be printed");

    is_u64(kvr_router_event_print(NULL, 0, "7", 1, 0, &ev), 0,
           "nothing is printed where there is no room");

    /* round trips */

    ev.has_parent = true;
    ev.parent = UINT64_MAX - 2;
    ev.nhandles = 3;
    ev.tier = KVR_DISK;
    ev.rank = 12;

    for (ev.nlocals = 0; ev.nlocals <= 3; ev.nlocals += 3) {
        len = kvr_router_event_print(out, sizeof(out), "w.1:8000", 8, 99,
                                     &ev);
        decode_bytes(out, len);
        back = &got.event[0].ev;

        ok(got.n == 1 && got.ended == KVR_DONE && back->verdict == KVR_KEEP
           && back->kind == KVR_STORE && back->tier == KVR_DISK
           && back->rank == 12 && back->has_parent
           && back->parent == ev.parent && back->event_id == 99
           && back->nhandles == 3 && back->nlocals == ev.nlocals
           && memcmp(got.event[0].handles, handles, sizeof(handles)) == 0
           && memcmp(got.event[0].locals, locals,
                     ev.nlocals * sizeof(locals[0])) == 0,
           "a store with %u locals is read back as it was printed",
           ev.nlocals);

        back->handles = got.event[0].handles;
        back->locals = got.event[0].locals;
        n = kvr_router_event_print(one, sizeof(one), got.event[0].worker,
                                   strlen(got.event[0].worker),
                                   back->event_id, back);

        ok(n == len && memcmp(one, out, len) == 0,
           "and printed again as it was read, with %u locals", ev.nlocals);
    }
}


int
main(void)
{
    decoder = kvr_decoder_create();

    test_reading();
    test_isolation();
    test_limits();
    test_printing();

    kvr_decoder_destroy(decoder);

    return done();
}
