/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Usage: what is read from an answer.
 */


#include <stdlib.h>

#include "wire/kvr_answer.h"
#include "tap.h"


#define WHOLE  SIZE_MAX


/* ---- the answer --------------------------------------------------------- */

/* Reads an answer that came in pieces of so many bytes. */

static bool
reads(kvr_form_t form, const char *text, size_t piece, kvr_answer_usage_t *u)
{
    char          *copy;
    size_t         len, n;
    kvr_answer_t   a;

    kvr_answer_init(&a, form);

    for (len = strlen(text); len; len -= n, text += n) {
        n = kvr_min(piece, len);

        /* of its own, so that a read beyond is seen */

        copy = malloc(n);
        memcpy(copy, text, n);
        kvr_answer_add(&a, copy, n);
        free(copy);
    }

    return kvr_answer_usage(&a, u);
}


/* prompt, cached: -1: not said */

static void
says(kvr_form_t form, const char *text, int64_t prompt, int64_t cached,
    const char *what)
{
    bool                good;
    size_t              piece;
    kvr_answer_usage_t  u;

    piece = WHOLE;

    do {
        good = reads(form, text, piece, &u) == (prompt >= 0 || cached >= 0)
               && u.has_prompt == (prompt >= 0)
               && u.has_cached == (cached >= 0)
               && (prompt < 0 || u.prompt_tokens == (uint64_t) prompt)
               && (cached < 0 || u.cached_tokens == (uint64_t) cached);

        piece = (piece == WHOLE) ? 1 : piece + 1 + piece / 3;

    } while (good && piece < 1500);

    ok(good, "%s: %d of %d tokens, however it is cut", what, (int) cached,
       (int) prompt);
}


static void
silent(const char *text, const char *what)
{
    says(KVR_FORM_CHAT, text, -1, -1, what);
}


static void
answers(void)
{
    char                *text;
    kvr_answer_usage_t   u;

    ok(reads(KVR_FORM_CHAT, "{\"usage\":{\"prompt_tokens\":70,"
                            "\"completion_tokens\":5}}", WHOLE, &u)
       && u.completion_tokens == 5
       && reads(KVR_FORM_MESSAGES, "{\"usage\":{\"input_tokens\":70,"
                                   "\"output_tokens\":6}}", WHOLE, &u)
       && u.completion_tokens == 6
       && reads(KVR_FORM_CHAT, "{\"usage\":{\"prompt_tokens\":70}}", WHOLE,
                &u)
       && u.completion_tokens == 0, "the tokens of the answer itself");

    says(KVR_FORM_CHAT,
         "{\"choices\":[{\"message\":{\"content\":\"hi\"}}],\"usage\":"
         "{\"prompt_tokens\":70,\"total_tokens\":75,\"completion_tokens\":5,"
         "\"prompt_tokens_details\":{\"cached_tokens\":64}},"
         "\"prompt_logprobs\":null,\"kv_transfer_params\":null}",
         70, 64, "an answer in one piece");

    says(KVR_FORM_COMPLETIONS,
         "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],"
         "\"usage\":null}\n\n"
         "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,"
         "\"completion_tokens\":1,\"prompt_tokens_details\":"
         "{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n",
         9, 8, "a stream");

    says(KVR_FORM_CHAT,
         "data: {\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":"
         "{\"cached_tokens\":1}}}\n\n"
         "data: {\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":"
         "{\"cached_tokens\":2}}}\n\n",
         9, 2, "the last of several");

    says(KVR_FORM_CHAT,
         "data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n"
         "data: {\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":"
         "{\"multimodal_tokens\":{\"cached_tokens\":7},\"cached_tokens\":4}}}"
         "\n\n", 9, 4, "figures in every event, details in the last one");

    says(KVR_FORM_CHAT,
         "{ \"usage\" : { \"prompt_tokens\" : 4 , \"prompt_tokens_details\" :"
         " { \"audio_tokens\" : null , \"cached_tokens\" : 0 } } }",
         4, 0, "blanks");

    says(KVR_FORM_CHAT, "\"usage\":{\"prompt_tokens\":9}", 9, -1,
         "usage without details");
    says(KVR_FORM_CHAT,
         "\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":null}",
         9, -1, "usage with null details");
    says(KVR_FORM_UNKNOWN, "\"usage\":{\"cached_tokens\":3}", -1, 3,
         "an unknown form");

    text = malloc(200001);
    memset(text, ' ', 200000);
    text[200000] = '\0';
    strcpy(text + 100000 - 200,
           "\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":"
           "{\"cached_tokens\":3}}}");
    says(KVR_FORM_CHAT, text, 5, 3, "the end of a long one");

    memset(text, '1', 200000);
    memcpy(text, "{\"usage\":{\"prompt_tokens\":5,\"cached_tokens\":3},"
           "\"prompt_token_ids\":[", 65);
    says(KVR_FORM_CHAT, text, 5, 3, "what stands in front of 200 KB");
    free(text);
}


static void
dialects(void)
{
    says(KVR_FORM_RESPONSES,
         "{\"id\":\"resp_1\",\"output\":[],\"usage\":{\"input_tokens\":41,"
         "\"input_tokens_details\":{\"cached_tokens\":32,"
         "\"cached_tokens_per_turn\":[32]},\"output_tokens\":3}}",
         41, 32, "a response");

    says(KVR_FORM_RESPONSES,
         "event: response.created\n"
         "data: {\"response\":{\"usage\":null},\"type\":\"response.created\"}"
         "\n\nevent: response.completed\n"
         "data: {\"response\":{\"usage\":{\"input_tokens\":41,"
         "\"input_tokens_details\":{\"cached_tokens\":32},"
         "\"output_tokens\":3,\"total_tokens\":44}},"
         "\"type\":\"response.completed\"}\n\n",
         41, 32, "a streamed response");

    says(KVR_FORM_MESSAGES,
         "{\"type\":\"message\",\"usage\":{\"input_tokens\":10,"
         "\"output_tokens\":2,\"cache_creation_input_tokens\":1,"
         "\"cache_read_input_tokens\":30}}",
         41, 30, "a message");

    says(KVR_FORM_MESSAGES,
         "event: message_start\n"
         "data: {\"type\":\"message_start\",\"message\":{\"content\":[],"
         "\"usage\":{\"input_tokens\":10,\"output_tokens\":0,"
         "\"cache_read_input_tokens\":30}}}\n\n"
         "event: message_delta\n"
         "data: {\"delta\":{},\"usage\":{\"output_tokens\":2}}\n\n",
         40, 30, "a streamed message with figures at its head");

    says(KVR_FORM_MESSAGES,
         "data: {\"message\":{\"usage\":{\"input_tokens\":40,"
         "\"output_tokens\":0}}}\n\n"
         "data: {\"delta\":{},\"usage\":{\"input_tokens\":10,"
         "\"cache_read_input_tokens\":30,\"output_tokens\":2}}\n\n",
         40, 30, "a streamed message with figures at its tail");

    says(KVR_FORM_MESSAGES,
         "{\"usage\":{\"input_tokens\":40,\"output_tokens\":0,"
         "\"cache_read_input_tokens\":null}}",
         40, -1, "a message that does not say what was cached");

    says(KVR_FORM_SGLANG_GENERATE,
         "{\"text\":\"x\",\"meta_info\":{\"id\":\"1\",\"prompt_tokens\":33,"
         "\"input_token_logprobs\":[[-0.5,1,null],[-1.5,2,\"}\"]],"
         "\"cached_tokens\":32,\"e2e_latency\":0.5}}\n",
         33, 32, "SGLang's generate, with logprobs before it");

    says(KVR_FORM_SGLANG_GENERATE,
         "[{\"text\":\"x\",\"meta_info\":{\"prompt_tokens\":33,"
         "\"cached_tokens\":32}},{\"text\":\"y\",\"meta_info\":"
         "{\"prompt_tokens\":20,\"cached_tokens\":0}}]",
         33, 32, "the first of several prompts there");

    says(KVR_FORM_GENERATE,
         "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":10,"
         "\"completion_tokens\":1,\"prompt_tokens_details\":"
         "{\"cached_tokens\":8}}}", 9, 8, "vLLM's generate");

    says(KVR_FORM_NO_PROMPT, "{\"usage\":{\"prompt_tokens\":9}}", -1, -1,
         "embeddings are not looked at");
    says(KVR_FORM_NO_LOAD, "{\"usage\":{\"prompt_tokens\":9}}", -1, -1,
         "nor are answers to questions");
}


static void
nothing(void)
{
    char               *text;
    kvr_answer_t        a;
    kvr_answer_usage_t  u;

    silent("", "nothing");
    silent("\"usage\"", "a word");
    silent("\"usage\":", "a key");
    silent("\"usage\":{", "an open object");
    silent("\"usage\" {\"cached_tokens\":3}", "a key without a colon");
    silent("\"usage\"::{\"cached_tokens\":3}", "a key with two of them");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":null}}",
           "null");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":-1}}",
           "a number below zero");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":1e3}}",
           "a number with an exponent");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":1.5}}",
           "a fraction");
    silent("\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":\"3\"}}",
           "a string");
    silent("\"usage\":{\"prompt_tokens_details\":"
           "{\"cached_tokens\":99999999999}}", "a number without measure");
    silent("\"usage\":{\"prompt_tokens_details\":"
           "{\"cached_tokens\":5000000000}}", "a number over 2^32");
    silent("\"usage\":{\"prompt_tokens_details\":[{\"cached_tokens\":3}]}",
           "details in an array");
    silent("\"usage\":{\"x\":{\"prompt_tokens_details\":"
           "{\"cached_tokens\":3}}}", "details further down");
    silent("\"usage\":{\"cached_tokens\":3", "a cut object");
    silent("{\"content\":\"\\\"usage\\\":{\\\"cached_tokens\\\":3}\"}",
           "what is quoted in the text");
    silent("{\"usage\":{\"note\":\"\\\"cached_tokens\\\":3,\"}}",
           "what is quoted in the object");
    silent("{\"logprobs\":[{\"token\":\"usage\",\"cached_tokens\":3}]}",
           "a token of that name");

    text = malloc(1000);
    memset(text, '[', 1000);
    memcpy(text, "\"usage\":{\"x\":", 13);
    memcpy(text + 200, "\"cached_tokens\":3}", 19);
    silent(text, "an object without end");
    free(text);

    kvr_answer_init(&a, KVR_FORM_CHAT);
    kvr_answer_add(&a, "\"usage\":{\"prompt_tokens\":1", 26);
    kvr_answer_gap(&a);
    kvr_answer_add(&a, "0}", 2);
    ok(!kvr_answer_usage(&a, &u), "what has a gap in it says nothing");

    kvr_answer_add(&a, "\"usage\":{\"prompt_tokens\":10}", 28);
    kvr_answer_gap(&a);
    ok(kvr_answer_usage(&a, &u) && u.prompt_tokens == 10,
       "what stood before a gap counts");
}


/* Bytes of nonsense, with the key in them: nothing is read beyond. */

static void
nonsense(void)
{
    size_t              i, n;
    unsigned            k;
    kvr_answer_t        a;
    kvr_answer_usage_t  u;
    static const char  *words[] = {
        "\"usage\"", ":", "{", "}", "\"", "\\", "cached_tokens", "\":",
        "\"prompt_tokens_details\":", "12", "[", "]", ",", "\0", "\xff"
    };

    srandom(7);

    for (k = 0; k < 20000; k++) {
        kvr_answer_init(&a, k % KVR_FORMS);
        n = (size_t) random() % 40;

        for (i = 0; i < n; i++) {
            const char  *w = words[(size_t) random() % 15];

            kvr_answer_add(&a, w, kvr_max(strlen(w), (size_t) 1));
        }

        (void) kvr_answer_usage(&a, &u);
    }

    ok(true, "20000 answers of nonsense do no harm");
}


int
main(void)
{
    answers();
    dialects();
    nothing();
    nonsense();

    return done();
}
