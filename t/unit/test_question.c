/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Questions to engines: what each engine is asked about a request of each
 * form, and the ids in the answers.
 */


#include <stdlib.h>

#include "tap.h"

#include "wire/kvr_question.h"


#define ROOM  1024


static kvr_tape_entry_t  entries[ROOM];
static uint32_t          ids[ROOM];


static const char *
asks(kvr_form_t form, kvr_engine_kind_t engine, const char *body)
{
    char         *copy, *exact;
    size_t        len, n;
    kvr_rc_t      rc;
    kvr_tape_t    t;
    const char   *field;
    static char   out[4096];

    len = strlen(body);
    copy = malloc(len);
    memcpy(copy, body, len);

    kvr_tape_init(&t, entries, ROOM, ids, ROOM);

    if (kvr_tape_scan(&t, copy, len) != KVR_OK) {
        free(copy);
        return "no JSON";
    }

    /* what the header says of the room is enough */

    exact = malloc(len + KVR_QUESTION_ROOM);
    rc = kvr_question(&t, form, engine, exact, len + KVR_QUESTION_ROOM, &n,
                      &field);

    if (rc == KVR_OK) {
        memcpy(out, exact, n);
        out[n] = '\0';

        /* one byte less is not */

        if (kvr_question(&t, form, engine, exact, n - 1, &n, &field)
            != KVR_FULL)
        {
            strcpy(out, "a byte too much");
        }

    } else {
        snprintf(out, sizeof(out), "%s%s",
                 rc == KVR_DECLINED ? "declined" : "full",
                 field ? field : "");
    }

    free(exact);
    free(copy);

    return out;
}


static void
asked(kvr_form_t form, kvr_engine_kind_t engine, const char *body,
    const char *want, const char *what)
{
    const char  *got;

    got = asks(form, engine, body);

    if (!ok(strcmp(got, want) == 0, "%s", what)) {
        note("got  %s", got);
        note("want %s", want);
    }
}


static void
test_texts(void)
{
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM,
          "{\"prompt\":\"a \\\"b\\\\\\u00e9\\\"\",\"max_tokens\":5,"
          "\"model\":\"m\",\"add_special_tokens\":false}",
          "{\"model\":\"m\",\"prompt\":\"a \\\"b\\\\\\u00e9\\\"\","
          "\"add_special_tokens\":false}",
          "a text goes to vLLM as it came");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_SGLANG,
          "{\"prompt\":\"a\",\"add_special_tokens\":false}",
          "{\"prompt\":\"a\"}",
          "to SGLang without a field that its completions ignore");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_UNKNOWN,
          "{\"prompt\":[\"a\",\"b\"]}", "{\"prompt\":\"a\"}",
          "of several the first is asked about");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM,
          "{\"prompt\":\"a\",\"prompt\":\"b\"}", "{\"prompt\":\"b\"}",
          "of a key that comes twice the last counts");
    asked(KVR_FORM_SGLANG_GENERATE, KVR_ENGINE_SGLANG,
          "{\"text\":\"a\",\"sampling_params\":{}}", "{\"prompt\":\"a\"}",
          "the text of SGLang's generate is a prompt to its tokenizer");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM,
          "{\"prompt\":\"a\",\"truncate_prompt_tokens\":4}",
          "declinedtruncate_prompt_tokens",
          "a text that vLLM's tokenizer cuts keeps its special tokens");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM,
          "{\"prompt\":\"a\",\"truncate_prompt_tokens\":4,"
          "\"truncation_side\":\"left\"}", "{\"prompt\":\"a\"}",
          "unless the side is given");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM,
          "{\"prompt\":\"a\",\"truncate_prompt_tokens\":4,"
          "\"add_special_tokens\":false}",
          "{\"prompt\":\"a\",\"add_special_tokens\":false}",
          "or there are none");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM, "{\"prompt\":[1]}",
          "declined", "ids are no text");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM, "{\"prompt\":[]}",
          "declined", "nor is nothing");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_TRTLLM, "{\"prompt\":\"a\"}",
          "declined", "TensorRT-LLM can't be asked");
    asked(KVR_FORM_COMPLETIONS, KVR_ENGINE_VLLM, "[1]", "declined",
          "an array is no request");
}


static void
test_vllm(void)
{
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[]}],"
          "\"tools\":[], \"temperature\" : 1.0,\"stream\":true,"
          "\"add_generation_prompt\":false,\"continue_final_message\":true,"
          "\"chat_template\":\"x\",\"add_special_tokens\":true}",
          "{\"model\":\"m\",\"messages\":[{\"role\":\"user\","
          "\"content\":[]}],\"add_generation_prompt\":false,"
          "\"continue_final_message\":true,\"add_special_tokens\":true,"
          "\"tools\":[],\"chat_template\":\"x\"}",
          "a chat goes to vLLM with the fields of its tokenizer");
    asked(KVR_FORM_CHAT, KVR_ENGINE_UNKNOWN, "{\"messages\":[]}",
          "{\"messages\":[]}", "so to an unknown engine");

    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"chat_template_kwargs\":{\"a\": 1}}",
          "{\"messages\":[],\"chat_template_kwargs\":{\"a\": 1}}",
          "the client's kwargs alone are not touched");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"reasoning_effort\":\"high\"}",
          "{\"messages\":[],\"chat_template_kwargs\":"
          "{\"reasoning_effort\":\"high\",\"enable_thinking\":true}}",
          "an effort goes among them, and turns thinking on");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"reasoning_effort\":\"none\","
          "\"documents\":[{\"text\":\"d\"}],\"chat_template_kwargs\":"
          "{\"a\":[1,2],\"reasoning_effort\":\"low\",\"b\":\"\\n\"}}",
          "{\"messages\":[],\"chat_template_kwargs\":{\"a\":[1,2],"
          "\"b\":\"\\n\",\"documents\":[{\"text\":\"d\"}],"
          "\"reasoning_effort\":\"none\",\"enable_thinking\":false}}",
          "documents, too, over the client's own; none turns it off");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"reasoning_effort\":\"low\","
          "\"chat_template_kwargs\":{\"enable_thinking\":false}}",
          "{\"messages\":[],\"chat_template_kwargs\":"
          "{\"enable_thinking\":false,\"reasoning_effort\":\"low\"}}",
          "the client's word on thinking stands");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"documents\":[],\"reasoning_effort\":null,"
          "\"chat_template_kwargs\":{\"documents\":1,"
          "\"reasoning_effort\":\"x\"}}",
          "{\"messages\":[],\"chat_template_kwargs\":"
          "{\"reasoning_effort\":\"x\",\"documents\":[]}}",
          "a field of null does not go over the client's");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"documents\":null,\"reasoning_effort\":null}",
          "{\"messages\":[]}", "fields of null are none");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"documents\":[],\"chat_template_kwargs\":null}",
          "{\"messages\":[],\"chat_template_kwargs\":{\"documents\":[]}}",
          "kwargs of null are none");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"documents\":[],\"chat_template_kwargs\":[1]}",
          "{\"messages\":[],\"chat_template_kwargs\":[1]}",
          "kwargs that are no object are for the engine to refuse");

    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"tools\":[{}],\"tool_choice\":\"none\"}",
          "declinedtool_choice",
          "tools that the template may not see are a question without answer");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[],\"tool_choice\":\"none\"}",
          "{\"messages\":[]}", "without tools they are not");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[{\"role\":\"user\"},"
          "{\"reasoning_content\":\"so\"}]}",
          "declinedreasoning_content",
          "nor has a message's reasoning, which /tokenize drops");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[{\"reasoning\":\"so\"}]}", "declinedreasoning",
          "by its newer name, too");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM,
          "{\"messages\":[{\"reasoning_content\":null}]}",
          "{\"messages\":[{\"reasoning_content\":null}]}",
          "but null is none");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM, "{\"messages\":\"x\"}", "declined",
          "messages are an array");
    asked(KVR_FORM_CHAT, KVR_ENGINE_VLLM, "{}", "declined",
          "no messages are no chat");
}


static void
test_sglang(void)
{
    asked(KVR_FORM_CHAT, KVR_ENGINE_SGLANG,
          "{\"model\":\"m\",\"messages\":[],\"tools\":[{}],"
          "\"tool_choice\":\"none\",\"reasoning_effort\":\"high\","
          "\"add_generation_prompt\":true,\"chat_template_kwargs\":{}}",
          "{\"model\":\"m\",\"messages\":[],\"tools\":[{}],"
          "\"tool_choice\":\"none\",\"reasoning_effort\":\"high\","
          "\"chat_template_kwargs\":{}}",
          "a chat goes to SGLang as it came, but for add_generation_prompt");
    asked(KVR_FORM_CHAT, KVR_ENGINE_SGLANG,
          "{\"add\\u005fgeneration_prompt\":true,\"prompt\":\"x\","
          "\"stream\":true,\"stream_options\":{},"
          "\"add_special_tokens\":true,\"messages\":[]}",
          "{\"messages\":[]}", "and for what its tokenizer takes otherwise");
    asked(KVR_FORM_CHAT, KVR_ENGINE_SGLANG,
          "{\"messages\":[],\"stream\":true,"
          "\"stream_options\":{\"include_usage\":true}}",
          "{\"messages\":[]}", "and for a stream, which it refuses");
    asked(KVR_FORM_CHAT, KVR_ENGINE_SGLANG,
          "{ \"a\\n\" : 1 , \"messages\" : [ ] }",
          "{\"a\\n\":1,\"messages\":[ ]}", "keys stay as they are written");
}


static void
test_paths(void)
{
    static const struct {
        kvr_form_t   form;
        const char  *render, *remote;
    } rows[] = {
        { KVR_FORM_COMPLETIONS, "/v1/completions/render", "/tokenize" },
        { KVR_FORM_CHAT, "/v1/chat/completions/render", "/tokenize" },
        { KVR_FORM_MESSAGES, "/v1/messages/render", NULL },
        { KVR_FORM_RESPONSES, "/v1/responses/render", NULL },
        { KVR_FORM_GENERATE, NULL, NULL },
        { KVR_FORM_SGLANG_GENERATE, NULL, "/tokenize" },
        { KVR_FORM_NO_PROMPT, NULL, NULL },
        { KVR_FORM_NO_LOAD, NULL, NULL },
        { KVR_FORM_UNKNOWN, NULL, NULL }
    };

    size_t       i;
    const char  *render, *remote;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        render = kvr_question_path(KVR_ASK_RENDER, rows[i].form);
        remote = kvr_question_path(KVR_ASK_REMOTE, rows[i].form);

        ok((render && rows[i].render ? strcmp(render, rows[i].render) == 0
                                     : render == rows[i].render)
           && (remote && rows[i].remote ? strcmp(remote, rows[i].remote) == 0
                                        : remote == rows[i].remote),
           "%s is asked about at %s and %s", kvr_form_name(rows[i].form),
           rows[i].render ? rows[i].render : "no renderer",
           rows[i].remote ? rows[i].remote : "no tokenizer");
    }

    asked(KVR_FORM_MESSAGES, KVR_ENGINE_VLLM, "{\"messages\":[]}", "declined",
          "messages are never tokenized as a chat");
    asked(KVR_FORM_RESPONSES, KVR_ENGINE_VLLM, "{\"input\":\"x\"}",
          "declined", "nor are responses");
}


/* The ids of an answer as "1 2", or the error. */

static void
answers(const char *text, const char *want, const char *what)
{
    char             out[256], *copy;
    size_t           i, n, len, at;
    kvr_rc_t         rc;
    kvr_tape_t       t;
    const char      *err;
    const uint32_t  *found;

    len = strlen(text);
    copy = malloc(len ? len : 1);
    memcpy(copy, text, len);

    kvr_tape_init(&t, entries, ROOM, ids, 4);

    rc = kvr_answer_ids(&t, copy, len, &found, &n, &err);
    at = 0;
    out[0] = '\0';

    if (rc == KVR_INVALID) {
        snprintf(out, sizeof(out), "%s", err);

    } else if (rc == KVR_FULL) {
        snprintf(out, sizeof(out), "full: %zu", n);

    } else {
        for (i = 0; i < n; i++) {
            at += snprintf(out + at, sizeof(out) - at, "%s%u", i ? " " : "",
                           found[i]);
        }
    }

    free(copy);

    if (!ok(strcmp(out, want) == 0, "%s", what)) {
        note("%s", out);
    }
}


static void
test_answers(void)
{
    answers("{\"count\":3,\"max_model_len\":9,\"tokens\":[1,2,3],"
            "\"token_strs\":null}", "1 2 3", "a tokenizer answers with ids");
    answers("{\"request_id\":\"x\",\"token_ids\":[4,5],"
            "\"sampling_params\":{\"stop\":[]},\"features\":null}", "4 5",
            "so does a renderer");
    answers("[{\"token_ids\":[4,5]},{\"token_ids\":[6]}]", "4 5",
            "of several prompts the first counts");
    answers("{\"tokens\":[]}", "", "there may be none");
    answers("{\"tokens\":null,\"token_ids\":[1]}", "1",
            "null is not there");
    answers("{\"tokens\":[1,2,3,4,5]}", "full: 5",
            "more than there is room for are counted");

    answers("{\"tokens\":[1,-2]}",
            "the tokens in the answer are not numbers 0..4294967295",
            "a number below 0 is no id");
    answers("{\"tokens\":[[1]]}",
            "the tokens in the answer are not numbers 0..4294967295",
            "nor is an array");
    answers("{\"tokens\":[4294967296]}",
            "the tokens in the answer are not numbers 0..4294967295",
            "nor is a number over 32 bits");
    answers("{\"tokens\":[1.0]}",
            "the tokens in the answer are not numbers 0..4294967295",
            "nor is a fraction");
    answers("{\"tokens\":\"1\"}", "no tokens in the answer",
            "a string has none");
    answers("{\"x\":{\"tokens\":[1]}}", "no tokens in the answer",
            "those of an object inside don't count");
    answers("[]", "no tokens in the answer", "an empty list has none");
    answers("[[1]]", "no tokens in the answer", "nor has a list of lists");
    answers("7", "no tokens in the answer", "nor has a number");
    answers("{\"token_ids\":[1],\"tokens_trusted\":false}",
            "the engine says that its tokens are not to be trusted",
            "an engine may not trust its own");
    answers("{\"tokens\":[1,2", "unexpected end", "a cut answer is an error");
    answers("", "unexpected end", "so is none");
    answers("<html>", "a value was expected", "and a page");
}


int
main(void)
{
    test_texts();
    test_vllm();
    test_sglang();
    test_paths();
    test_answers();

    return done();
}
