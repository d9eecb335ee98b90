/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Answers of engines to a probe: lists of models, versions, token ids.
 */


#include <stdio.h>
#include <stdlib.h>

#include "wire/kvr_probe.h"
#include "tap.h"


/* A copy of its own, so that a read beyond its end is seen. */

static char *
copy_of(const char *text)
{
    char    *copy;
    size_t   len;

    len = strlen(text);
    copy = malloc(len ? len : 1);
    memcpy(copy, text, len);

    return copy;
}


static void
model(const char *text, const char *want, const char *what)
{
    bool               found;
    char              *copy, got[2048];
    kvr_json_text_t    id;
    kvr_engine_kind_t  engine;

    copy = copy_of(text);
    found = kvr_probe_model(copy, strlen(text), &id, &engine);

    snprintf(got, sizeof(got), "none");

    if (found) {
        snprintf(got, sizeof(got), "%.*s of %s", (int) id.len, id.data,
                 kvr_engine_name(engine));
    }

    if (!ok(strcmp(got, want) == 0, "%s", what)) {
        printf("# got: %s\n", got);
    }

    free(copy);
}


static void
windows(const char *text, bool want, const char *what)
{
    char  *copy;

    copy = malloc(strlen(text) + 1);
    memcpy(copy, text, strlen(text));

    ok(kvr_probe_windows(copy, strlen(text)) == want, "windows: %s", what);

    free(copy);
}


static void
version(const char *text, const char *want, const char *what)
{
    char  *copy, got[16];

    copy = copy_of(text);

    if (!kvr_probe_version(copy, strlen(text), got, sizeof(got))) {
        strcpy(got, "none");
    }

    ok(strcmp(got, want) == 0, "%s", what);
    free(copy);
}


static void
ids(const char *text, bool want, const char *what)
{
    char  *copy;

    copy = copy_of(text);
    ok(kvr_probe_ids(copy, strlen(text), "tokens") == want, "%s", what);
    free(copy);
}


int
main(void)
{
    char               text[1024];
    kvr_json_text_t    id;
    kvr_engine_kind_t  engine;

    model("{\"object\":\"list\",\"data\":[{\"id\":\"a/b\",\"owned_by\":\"vllm\","
          "\"max_model_len\":8,\"permission\":[{\"id\":\"p\"}]},"
          "{\"id\":\"lora\",\"owned_by\":\"x\"}]}", "a/b of vllm",
          "the first model, and who has made the list");
    model("{\"data\":[{\"owned_by\":null,\"id\":\"a\\\"b\"}]}", "a\\\"b of unknown",
          "a name as it is written; no owner");
    model("{\"data\":[]}", "none", "an empty list");
    model("{\"data\":null}", "none", "no list");
    model("{\"data\":[7]}", "none", "a list of anything");
    model("{\"data\":[{\"id\":7}]}", "none", "a name that is no string");
    model("{\"data\":[{\"owned_by\":\"vllm\"}]}", "none", "no name");
    model("{\"data\":[{\"id\":\"a\"}]", "none", "a list that is cut");
    model("{\"data\":[{\"id\":\"a\"}]}x", "none", "more than a list");
    model("w1\n", "none", "no JSON");
    model("", "none", "nothing");

    snprintf(text, sizeof(text), "{\"data\":[{\"id\":\"%0256d\"}]}", 0);
    ok(kvr_probe_model(text, strlen(text), &id, &engine) && id.len == 256,
       "a name of the greatest length");
    snprintf(text, sizeof(text), "{\"data\":[{\"id\":\"%0257d\"}]}", 0);
    model(text, "none", "a longer one");

    model("{\"data\":[{\"id\":\"a\",\"owned_by\":\"sglang\"}]}", "a of sglang",
          "SGLang's");
    model("{\"data\":[{\"id\":\"a\",\"owned_by\":\"tensorrt_llm\"}]}",
          "a of trtllm", "TensorRT-LLM's");
    model("{\"data\":[{\"id\":\"a\",\"owned_by\":\"vllm2\"}]}",
          "a of unknown", "anybody else's");

    version("{\"version\":\"0.32.0+cu12\"}", "0.32.0+cu12", "a version");
    version("{\"a\":{\"version\":\"1\"},\"version\":\"2\"}", "2",
            "not that of something inside");
    version("{\"version\":\"\"}", "none", "an empty one");
    version("{\"version\":5}", "none", "a number");
    version("{\"version\":\"a b\"}", "none", "one with a blank");
    version("{\"version\":\"<script>\"}", "none", "one that is a text");
    version("{\"version\":\"0123456789abcdef\"}", "none", "a long one");
    version("{\"version\":\"0123456789abcde\"}", "0123456789abcde",
            "one of the greatest length");
    version("\"0.1\"", "none", "no object");
    version("", "none", "nothing at all");

    windows("{\"internal_states\":[{\"memory_usage\":{\"token_capacity_swa\":"
            "4096}}]}", true, "a capacity for windows");
    windows("{\"internal_states\":[{\"a\":1},{\"memory_usage\":{\"weight\":"
            "0.1,\"token_capacity_swa\":1}}],\"version\":\"0.5.23\"}", true,
            "one of the second rank");
    windows("{\"internal_states\":[{\"memory_usage\":{\"token_capacity_swa\":"
            "null}}]}", false, "null");
    windows("{\"internal_states\":[{\"memory_usage\":{\"token_capacity_swa\":"
            "0}}]}", false, "none of them");
    windows("{\"token_capacity_swa\":4096}", false, "one elsewhere");
    windows("{\"internal_states\":[{\"memory_usage\":{\"token_capacity_swa\":"
            "4096}}]", false, "a text that ends early");
    windows("{\"internal_states\":{\"memory_usage\":4096}}", false,
            "another shape");

    ids("{\"count\":2,\"tokens\":[1,2]}", true, "token ids");
    ids("[{\"tokens\":[1]},{\"tokens\":[]},7]", true,
        "those of the first of a list");
    ids("[]", false, "an empty list of them");
    ids("[7]", false, "a list of anything else");
    ids("{\"tokens\":[]}", false, "no ids");
    ids("{\"tokens\":[1,-1]}", false, "ids that are none");
    ids("{\"tokens\":null}", false, "null");
    ids("{\"token_ids\":[1]}", false, "another field");
    ids("{\"tokens\":[1]", false, "an answer that is cut");
    ids("", false, "no answer");

    return done();
}
