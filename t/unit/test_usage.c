/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Predicted against actual: what is read from an answer, and what is made of
 * many.
 */


#include <stdlib.h>

#include "traffic/kvr_usage.h"
#include "wire/kvr_answer.h"
#include "tap.h"


#define BLOCK  16
#define WHOLE  SIZE_MAX


/* ---- the answer --------------------------------------------------------- */

/* Reads an answer that came in pieces of so many bytes: 0 when it is silent. */

static bool
reads(const char *text, size_t piece, kvr_answer_usage_t *u)
{
    char          *copy;
    bool           found;
    size_t         len, n;
    kvr_answer_t  *a;

    a = calloc(1, sizeof(kvr_answer_t));

    for (len = strlen(text); len; len -= n, text += n) {
        n = kvr_min(piece, len);

        /* of its own, so that a read beyond is seen */

        copy = malloc(n);
        memcpy(copy, text, n);
        kvr_answer_add(a, copy, n);
        free(copy);
    }

    found = kvr_answer_usage(a, u);

    free(a);

    return found;
}


static void
says(const char *text, uint64_t prompt, uint64_t cached, const char *what)
{
    bool                found;
    size_t              piece;
    kvr_answer_usage_t  u;

    found = reads(text, WHOLE, &u) && u.prompt_tokens == prompt
            && u.cached_tokens == cached;

    for (piece = 1; piece < 1500 && found; piece += 1 + piece / 3) {
        found = reads(text, piece, &u) && u.prompt_tokens == prompt
                && u.cached_tokens == cached;
    }

    ok(found, "%s: %u of %u tokens, however it is cut", what,
       (unsigned) cached, (unsigned) prompt);
}


static void
silent(const char *text, const char *what)
{
    kvr_answer_usage_t  u;

    ok(!reads(text, WHOLE, &u) && !reads(text, 7, &u), "%s says nothing",
       what);
}


static void
answers(void)
{
    char  *text;

    says("{\"choices\":[{\"message\":{\"content\":\"hi\"}}],\"usage\":"
         "{\"prompt_tokens\":70,\"total_tokens\":75,\"completion_tokens\":5,"
         "\"prompt_tokens_details\":{\"cached_tokens\":64}},"
         "\"prompt_logprobs\":null,\"kv_transfer_params\":null}",
         70, 64, "an answer in one piece");

    says("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],"
         "\"usage\":null}\n\n"
         "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,"
         "\"completion_tokens\":1,\"prompt_tokens_details\":"
         "{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n",
         9, 8, "a stream");

    says("data: {\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":"
         "{\"cached_tokens\":1}}}\n\n"
         "data: {\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":"
         "{\"cached_tokens\":2}}}\n\n",
         9, 2, "the last of several");

    says("{\"text\":\"x\",\"meta_info\":{\"id\":\"1\",\"prompt_tokens\":33,"
         "\"cached_tokens\":32,\"e2e_latency\":0.5}}\n",
         33, 32, "SGLang's own protocol");

    says("{ \"usage\" : { \"prompt_tokens\" : 4 , \"prompt_tokens_details\" :"
         " { \"audio_tokens\" : null , \"cached_tokens\" : 0 } } }",
         4, 0, "blanks");

    text = malloc(100001);
    memset(text, ' ', 100000);
    strcpy(text + 100000 - 200,
           "\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":"
           "{\"cached_tokens\":3}}}");
    says(text, 5, 3, "the end of a long one");

    memset(text, 'a', 100000);
    memcpy(text, "\"usage\":{\"cached_tokens\":3}", 27);
    text[100000] = '\0';
    silent(text, "what is far from the end");
    free(text);

    silent("", "nothing");
    silent("\"usage\"", "a word");
    silent("\"usage\":", "a key");
    silent("\"usage\":{", "an open object");
    silent("\"usage\":{\"prompt_tokens\":9}", "usage without details");
    silent("\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":null}",
           "usage with null details");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":null}}",
           "null");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":-1}}",
           "a number below zero");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":1e3}}",
           "a number that is none");
    silent("\"usage\":{\"prompt_tokens_details\":"
           "{\"cached_tokens\":99999999999}}", "a number without measure");
    silent("\"usage\":{\"cached_tokens\":3", "a cut object");
    silent("{\"content\":\"\\\"usage\\\":{\\\"cached_tokens\\\":3}\"}",
           "what is quoted in the text");
    silent("{\"logprobs\":[{\"token\":\"usage\",\"cached_tokens\":3}]}",
           "a token of that name");
}


/* Bytes of nonsense, with the key in them: nothing is read beyond. */

static void
nonsense(void)
{
    size_t              i, n;
    unsigned            k;
    kvr_answer_t       *a;
    kvr_answer_usage_t  u;
    static const char  *words[] = {
        "\"usage\"", ":", "{", "}", "\"", "\\", "cached_tokens", "\":",
        "\"prompt_tokens_details\":", "12", "[", "]", ",", "\0", "\xff"
    };

    srandom(7);

    for (k = 0; k < 20000; k++) {
        a = calloc(1, sizeof(kvr_answer_t));
        n = (size_t) random() % 40;

        for (i = 0; i < n; i++) {
            const char  *w = words[(size_t) random() % 15];

            kvr_answer_add(a, w, kvr_max(strlen(w), (size_t) 1));
        }

        (void) kvr_answer_usage(a, &u);
        free(a);
    }

    ok(true, "20000 ends of nonsense do no harm");
}


/* ---- the verdict -------------------------------------------------------- */

static void
add(kvr_usage_t *u, uint32_t generation, uint32_t n, uint32_t blocks,
    uint32_t predicted, uint32_t cached)
{
    kvr_usage_answer_t  a;

    a.block_size = BLOCK;
    a.blocks = blocks;
    a.prompt_tokens = blocks * BLOCK + 3;
    a.predicted = predicted * BLOCK;
    a.best = predicted * BLOCK;
    a.cached = cached * BLOCK;

    while (n--) {
        kvr_usage_add(u, generation, &a);
    }
}


/* The verdict changes to this one, and that is said once. */

static void
changes(kvr_usage_t *u, bool holds, kvr_usage_verdict_t to, const char *what)
{
    bool                  said, again;
    kvr_usage_verdict_t         v, is;
    kvr_usage_counters_t  c;

    v = KVR_USAGE_UNKNOWN;
    said = kvr_usage_judge(u, 1, holds, false, &v);
    again = kvr_usage_judge(u, 1, holds, false, &v);

    kvr_usage_read(u, 1, &c, &is);

    ok(said && !again && v == to && is == to, "%s: %s, said once", what,
       kvr_usage_verdict_name(to));
}


static void
stays(kvr_usage_t *u, bool holds, kvr_usage_verdict_t at, const char *what)
{
    bool                  said;
    kvr_usage_verdict_t         v, is;
    kvr_usage_counters_t  c;

    said = kvr_usage_judge(u, 1, holds, false, &v);

    kvr_usage_read(u, 1, &c, &is);

    ok(!said && is == at, "%s: %s, and nothing is said", what,
       kvr_usage_verdict_name(at));
}


static void
verdicts(void)
{
    kvr_usage_t           u;
    kvr_usage_verdict_t         v;
    kvr_usage_counters_t  c;

    memset(&u, 0, sizeof(u));

    add(&u, 1, 49, 10, 8, 0);
    stays(&u, true, KVR_USAGE_UNKNOWN, "49 prompts");

    add(&u, 1, 1, 10, 8, 0);
    changes(&u, true, KVR_USAGE_NOT_CACHED,
            "50 prompts of which the engine had nothing");

    add(&u, 1, 49, 10, 8, 0);
    stays(&u, true, KVR_USAGE_NOT_CACHED, "49 more");
    add(&u, 1, 500, 10, 8, 0);
    stays(&u, true, KVR_USAGE_NOT_CACHED, "hundreds more");

    add(&u, 1, 50, 10, 0, 0);
    stays(&u, true, KVR_USAGE_NOT_CACHED, "prompts that nobody has seen");

    add(&u, 1, 50, 10, 8, 8);
    changes(&u, true, KVR_USAGE_GOOD, "50 that were cached as predicted");

    add(&u, 1, 50, 10, 0, 4);
    changes(&u, true, KVR_USAGE_NEVER_MATCHED,
            "50 that only the engine knew of");

    add(&u, 1, 30, 10, 0, 4);
    add(&u, 1, 20, 10, 4, 4);
    changes(&u, true, KVR_USAGE_GOOD, "50 of which some matched");

    add(&u, 1, 50, 3, 0, 3);
    stays(&u, true, KVR_USAGE_GOOD, "short prompts");

    add(&u, 1, 45, 10, 0, 0);
    add(&u, 1, 5, 10, 0, 10);
    stays(&u, true, KVR_USAGE_GOOD, "a tenth of the prompts");

    add(&u, 1, 50, 10, 9, 2);
    changes(&u, true, KVR_USAGE_LESS_CACHED,
            "50 of which the engine had less than half");

    add(&u, 1, 47, 10, 9, 5);
    add(&u, 1, 3, 10, 9, 3);
    stays(&u, true, KVR_USAGE_LESS_CACHED, "a few more such");

    add(&u, 1, 48, 10, 9, 5);
    add(&u, 1, 2, 10, 9, 0);
    changes(&u, true, KVR_USAGE_GOOD, "50 of which two were evicted");

    add(&u, 1, 50, 10, 9, 2);
    ok(!kvr_usage_judge(&u, 1, true, true, &v),
       "of a worker whose overlaps are upper bounds that is no news");

    memset(&u, 0, sizeof(u));

    add(&u, 1, 50, 10, 8, 8);
    stays(&u, true, KVR_USAGE_GOOD, "a good beginning");

    memset(&u, 0, sizeof(u));

    add(&u, 1, 50, 10, 0, 8);
    stays(&u, false, KVR_USAGE_UNKNOWN, "a worker that nothing is held of");

    memset(&u, 0, sizeof(u));

    add(&u, 1, 50, 10, 8, 0);
    changes(&u, true, KVR_USAGE_NOT_CACHED, "a worker");
    kvr_usage_read(&u, 2, &c, &v);
    ok(v == KVR_USAGE_UNKNOWN && c.requests == 0,
       "of the next one with its number nothing is known");

    add(&u, 2, 1, 10, 8, 6);
    kvr_usage_read(&u, 2, &c, &v);
    ok(v == KVR_USAGE_UNKNOWN && c.requests == 1
       && c.prompt_tokens == 10 * BLOCK + 3 && c.predicted_tokens == 8 * BLOCK
       && c.best_tokens == 8 * BLOCK && c.cached_tokens == 6 * BLOCK,
       "and its first answer begins the record anew");

    ok(!kvr_usage_judge(&u, 1, true, false, &v),
       "of the one before nothing is judged any more");
}


int
main(void)
{
    answers();
    nonsense();
    verdicts();

    return done();
}
