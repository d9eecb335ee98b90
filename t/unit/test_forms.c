/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The forms of requests: which path has which form for which engines, in
 * which fields the engines read token ids, and which fields make that void.
 */


#include <stdio.h>

#include "tap.h"

#include "wire/kvr_forms.h"


#define UNKNOWN  kvr_engine_bit(KVR_ENGINE_UNKNOWN)
#define VLLM     kvr_engine_bit(KVR_ENGINE_VLLM)
#define SGLANG   kvr_engine_bit(KVR_ENGINE_SGLANG)
#define TRTLLM   kvr_engine_bit(KVR_ENGINE_TRTLLM)


/* The form for engines: unknown ones, vLLM, SGLang, TensorRT-LLM. */

static void
path(const char *p, const char *unknown, const char *vllm, const char *sglang,
    const char *trtllm)
{
    size_t       i;
    const char  *name;

    struct {
        const char  *who;
        uint32_t     engines;
        const char  *form;
    } rows[] = {
        { "an unknown engine", UNKNOWN, unknown },
        { "vLLM", VLLM, vllm },
        { "SGLang", SGLANG, sglang },
        { "TensorRT-LLM", TRTLLM, trtllm }
    };

    for (i = 0; i < 4; i++) {
        name = kvr_form_name(kvr_form(true, p, strlen(p), rows[i].engines));

        if (!ok(strcmp(name, rows[i].form) == 0, "POST %s of %s has the form "
                "%s", p, rows[i].who, rows[i].form))
        {
            note("%s", name);
        }
    }
}


static void
same(const char *p, const char *form)
{
    path(p, form, form, form, form);
}


static void
test_paths(void)
{
    uint32_t  i;

    same("/v1/completions", "completions");
    same("/llama/v1/completions", "completions");
    same("/v1/chat/completions", "chat");
    same("/chat/completions", "chat");
    same("/v1/messages", "messages");
    same("/v1/responses", "responses");

    path("/inference/v1/generate", "generate", "generate", "unknown",
         "unknown");
    path("/generate", "sglang_generate", "unknown", "sglang_generate",
         "unknown");

    same("/v1/chat/completions/render", "no_load");
    same("/v1/messages/render", "no_load");
    same("/v1/messages/count_tokens", "no_load");
    same("/tokenize", "no_load");
    same("/v1/tokenize", "no_load");
    same("/detokenize", "no_load");

    same("/v1/embeddings", "no_prompt");
    same("/v1/rerank", "no_prompt");
    same("/rerank", "no_prompt");
    same("/v1/score", "no_prompt");
    same("/v1/audio/transcriptions", "no_prompt");
    same("/invocations", "no_prompt");
    same("/api/chat", "no_prompt");
    same("/api/generate", "no_prompt");

    same("/v1/chat/completions/batch", "unknown");
    same("/v1/threads/1/messages", "unknown");
    same("/v1/completions/", "unknown");
    same("/v1/completionsx", "unknown");
    same("/xcompletions", "unknown");
    same("/V1/COMPLETIONS", "unknown");
    same("/", "unknown");
    same("", "unknown");
    same("completions", "unknown");

    ok(kvr_form(true, "/generate", 9, 0) == KVR_FORM_SGLANG_GENERATE,
       "no engine at all counts as an unknown one");
    ok(kvr_form(true, "/generate", 9, VLLM | SGLANG)
       == KVR_FORM_SGLANG_GENERATE,
       "of several kinds of engines one that has the path is enough");
    ok(kvr_form(true, "/generate", 9, VLLM | TRTLLM) == KVR_FORM_UNKNOWN,
       "of kinds that do not have the path none is");
    ok(kvr_form(false, "/v1/completions", 15, VLLM) == KVR_FORM_NO_LOAD,
       "a GET of whatever path is no load");
    ok(kvr_form(false, "/unknown", 8, UNKNOWN) == KVR_FORM_NO_LOAD,
       "of an unknown one, too");

    for (i = 0; i < KVR_FORMS; i++) {
        if (strcmp(kvr_form_name(i), "unknown") == 0 && i != 0) {
            break;
        }
    }

    ok(i == KVR_FORMS, "each form has a name");
    ok(KVR_FORMS <= 16, "there are at most 16 forms");
}


/* The fields of ids, as "a b.c", in their order. */

static void
ids(kvr_form_t form, uint32_t engines, const char *fields, const char *what)
{
    char                out[256];
    size_t              n;
    uint32_t            i;
    const kvr_field_t  *f;

    n = 0;
    out[0] = '\0';

    for (i = 0; (f = kvr_form_ids(form, engines, i)) != NULL; i++) {
        n += snprintf(out + n, sizeof(out) - n, "%s%s%s%s", i ? " " : "",
                      f->object ? f->object : "", f->object ? "." : "",
                      f->name);
    }

    if (!ok(strcmp(out, fields) == 0, "%s", what)) {
        note("\"%s\"", out);
    }
}


static void
test_ids(void)
{
    ids(KVR_FORM_COMPLETIONS, VLLM, "prompt",
        "completions have ids in \"prompt\"");
    ids(KVR_FORM_COMPLETIONS, SGLANG | TRTLLM, "prompt", "with every engine");
    ids(KVR_FORM_CHAT, VLLM, "kv_transfer_params.prompt_token_ids",
        "vLLM's chats have them in kv_transfer_params");
    ids(KVR_FORM_CHAT, SGLANG, "input_ids", "SGLang's in \"input_ids\"");
    ids(KVR_FORM_CHAT, TRTLLM, "prompt_token_ids",
        "TensorRT-LLM's in \"prompt_token_ids\"");
    ids(KVR_FORM_CHAT, UNKNOWN, "kv_transfer_params.prompt_token_ids "
        "input_ids", "chats of an unknown engine where vLLM's or SGLang's do");
    ids(KVR_FORM_CHAT, UNKNOWN | TRTLLM, "kv_transfer_params.prompt_token_ids "
        "input_ids prompt_token_ids",
        "chats of an unknown engine beside TensorRT-LLM in any of them");
    ids(KVR_FORM_MESSAGES, VLLM, "kv_transfer_params.prompt_token_ids",
        "vLLM's messages have them like its chats");
    ids(KVR_FORM_MESSAGES, SGLANG, "", "SGLang's have none");
    ids(KVR_FORM_RESPONSES, VLLM, "kv_transfer_params.prompt_token_ids",
        "vLLM's responses have them like its chats");
    ids(KVR_FORM_GENERATE, VLLM, "token_ids",
        "vLLM's generate has them in \"token_ids\"");
    ids(KVR_FORM_SGLANG_GENERATE, SGLANG, "input_ids",
        "SGLang's generate has them in \"input_ids\"");
    ids(KVR_FORM_NO_PROMPT, UNKNOWN, "", "embeddings have none");
    ids(KVR_FORM_NO_LOAD, UNKNOWN, "", "nor have questions");
    ids(KVR_FORM_UNKNOWN, UNKNOWN, "", "nor has an unknown path");
}


/* The fields that make cached blocks unknown, as "a b.c", in their order. */

static void
rules(kvr_form_t form, uint32_t engines, const char *fields, const char *what)
{
    char                     out[256];
    size_t                   n;
    uint32_t                 i;
    const kvr_field_rule_t  *r;

    n = 0;
    i = 0;
    out[0] = '\0';

    while ((r = kvr_form_rule(form, engines, &i)) != NULL) {
        n += snprintf(out + n, sizeof(out) - n, "%s%s%s%s", n ? " " : "",
                      r->field.object ? r->field.object : "",
                      r->field.object ? "." : "", r->field.name);
    }

    if (!ok(strcmp(out, fields) == 0, "%s", what)) {
        note("\"%s\"", out);
    }
}


static void
test_rules(void)
{
    rules(KVR_FORM_COMPLETIONS, VLLM,
          "prompt_logprobs echo prompt_embeds suffix",
          "vLLM's completions have fields that make overlaps unknown");
    rules(KVR_FORM_COMPLETIONS, SGLANG,
          "echo session_params suffix extra_key", "so have SGLang's");
    rules(KVR_FORM_COMPLETIONS, TRTLLM,
          "prompt_logprobs echo suffix lora_request",
          "so have TensorRT-LLM's");
    rules(KVR_FORM_CHAT, VLLM, "prompt_logprobs echo", "so have vLLM's chats");
    rules(KVR_FORM_CHAT, SGLANG, "session_params extra_key", "and SGLang's");
    rules(KVR_FORM_CHAT, UNKNOWN,
          "prompt_logprobs echo session_params extra_key",
          "an unknown engine may be either");
    rules(KVR_FORM_MESSAGES, UNKNOWN, "", "messages have no such field");
    rules(KVR_FORM_RESPONSES, VLLM, "previous_response_id",
          "responses continue an earlier one");
    rules(KVR_FORM_RESPONSES, SGLANG, "previous_response_id extra_key",
          "SGLang's have namespaces, too");
    rules(KVR_FORM_GENERATE, VLLM, "sampling_params.prompt_logprobs "
          "sampling_params.prompt_logprob_token_ids "
          "sampling_params.skip_reading_prefix_cache content_parts",
          "vLLM's generate has such fields among its parameters");
    rules(KVR_FORM_SGLANG_GENERATE, SGLANG, "logprob_start_len input_embeds "
          "session_params image_data video_data audio_data extra_key",
          "SGLang's generate has vectors, sessions and media");
    rules(KVR_FORM_NO_PROMPT, UNKNOWN, "", "what is not cached has none");
}


static void
truncates(kvr_form_t form, uint32_t engines, kvr_rc_t rc, bool cut,
    const char *what)
{
    bool  c;

    ok(kvr_form_truncates(form, engines, &c) == rc && c == cut, "%s", what);
}


static void
test_rest(void)
{
    uint32_t            i;
    const kvr_field_t  *f;

    truncates(KVR_FORM_COMPLETIONS, VLLM, KVR_OK, true,
              "vLLM cuts a prompt where it is told to");
    truncates(KVR_FORM_CHAT, UNKNOWN, KVR_OK, true,
              "an unknown engine is taken to do so");
    truncates(KVR_FORM_CHAT, SGLANG, KVR_OK, false, "SGLang ignores it");
    truncates(KVR_FORM_CHAT, TRTLLM, KVR_DECLINED, false,
              "what TensorRT-LLM cuts can't be told");
    truncates(KVR_FORM_CHAT, VLLM | SGLANG, KVR_DECLINED, false,
              "nor what vLLM or SGLang does");
    truncates(KVR_FORM_CHAT, UNKNOWN | TRTLLM, KVR_DECLINED, false,
              "nor what an unknown engine or TensorRT-LLM does");
    truncates(KVR_FORM_GENERATE, VLLM, KVR_OK, false,
              "other forms are never cut");

    ok(kvr_form_has_salt(KVR_FORM_COMPLETIONS, TRTLLM)
       && kvr_form_has_salt(KVR_FORM_CHAT, SGLANG)
       && kvr_form_has_salt(KVR_FORM_MESSAGES, VLLM)
       && kvr_form_has_salt(KVR_FORM_MESSAGES, UNKNOWN)
       && kvr_form_has_salt(KVR_FORM_RESPONSES, SGLANG)
       && kvr_form_has_salt(KVR_FORM_GENERATE, VLLM)
       && kvr_form_has_salt(KVR_FORM_SGLANG_GENERATE, SGLANG),
       "where an engine reads a salt, the salt is a namespace");
    ok(!kvr_form_has_salt(KVR_FORM_MESSAGES, SGLANG)
       && !kvr_form_has_salt(KVR_FORM_RESPONSES, TRTLLM)
       && !kvr_form_has_salt(KVR_FORM_NO_PROMPT, UNKNOWN),
       "where none does, it is none");

    ok(kvr_form_has_lora_path(KVR_FORM_CHAT, SGLANG)
       && kvr_form_has_lora_path(KVR_FORM_SGLANG_GENERATE, UNKNOWN)
       && !kvr_form_has_lora_path(KVR_FORM_CHAT, VLLM)
       && !kvr_form_has_lora_path(KVR_FORM_MESSAGES, SGLANG),
       "lora_path is SGLang's");
    ok(kvr_form_has_base_adapter(KVR_FORM_CHAT, SGLANG)
       && kvr_form_has_base_adapter(KVR_FORM_MESSAGES, SGLANG)
       && !kvr_form_has_base_adapter(KVR_FORM_CHAT, VLLM)
       && !kvr_form_has_base_adapter(KVR_FORM_SGLANG_GENERATE, SGLANG),
       "so is an adapter behind the model and a colon");

    f = kvr_form_sequences(KVR_FORM_CHAT, VLLM, 0);
    ok(f && f->object == NULL && strcmp(f->name, "n") == 0
       && kvr_form_sequences(KVR_FORM_CHAT, VLLM, 1) == NULL,
       "a chat has its number of sequences at the top");

    f = kvr_form_sequences(KVR_FORM_COMPLETIONS, TRTLLM, 1);
    ok(f && strcmp(f->name, "best_of") == 0,
       "TensorRT-LLM has best_of beside n");

    f = kvr_form_sequences(KVR_FORM_GENERATE, VLLM, 0);
    ok(f && f->object && strcmp(f->object, "sampling_params") == 0,
       "a generate has the number among its parameters");

    ok(kvr_form_sequences(KVR_FORM_MESSAGES, VLLM, 0) == NULL,
       "messages have none");

    ok(strcmp(kvr_form_rows[KVR_FORM_COMPLETIONS].text, "prompt") == 0
       && strcmp(kvr_form_rows[KVR_FORM_CHAT].text, "messages") == 0
       && strcmp(kvr_form_rows[KVR_FORM_MESSAGES].text, "messages") == 0
       && strcmp(kvr_form_rows[KVR_FORM_RESPONSES].text, "input") == 0
       && strcmp(kvr_form_rows[KVR_FORM_SGLANG_GENERATE].text, "text") == 0
       && kvr_form_rows[KVR_FORM_GENERATE].text == NULL
       && kvr_form_rows[KVR_FORM_UNKNOWN].text == NULL,
       "the text of each form has its field");

    for (i = 0; i < KVR_ENGINES; i++) {
        if (kvr_engine_kind(kvr_engine_name(i), strlen(kvr_engine_name(i)))
            != i)
        {
            break;
        }
    }

    ok(i == KVR_ENGINES, "each kind of engine is found by its name");
    ok(kvr_engine_kind("vLLM", 4) == KVR_ENGINES
       && kvr_engine_kind("", 0) == KVR_ENGINES
       && kvr_engine_kind("vll", 3) == KVR_ENGINES,
       "no other name is found");
    ok(strcmp(kvr_engine_name(99), "unknown") == 0
       && strcmp(kvr_form_name(99), "unknown") == 0,
       "numbers beyond are unknown");
}


int
main(void)
{
    test_paths();
    test_ids();
    test_rules();
    test_rest();

    return done();
}
