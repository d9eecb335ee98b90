/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prompts of each form: where the ids are for which engine, the fields that
 * make overlaps unknown, cuts, namespaces, sequences.
 */


#include "tap.h"
#include "prompt.h"


#define UNKNOWN  kvr_engine_bit(KVR_ENGINE_UNKNOWN)
#define VLLM     kvr_engine_bit(KVR_ENGINE_VLLM)
#define SGLANG   kvr_engine_bit(KVR_ENGINE_SGLANG)
#define TRTLLM   kvr_engine_bit(KVR_ENGINE_TRTLLM)


static void
of(kvr_form_t form, uint32_t engines)
{
    prompt_form = form;
    prompt_engines = engines;
}


/* The ids of a body as "1 2"; "none", or "error". */

static const char *
ids_of(const char *body)
{
    size_t       i, n;
    static char  out[256];

    n = 0;
    out[0] = '\0';

    if (scan(body) != KVR_OK) {
        return "error";
    }

    if (!prompt.has_ids) {
        return prompt.text ? "text" : "none";
    }

    for (i = 0; i < prompt.ntokens; i++) {
        n += snprintf(out + n, sizeof(out) - n, "%s%u", i ? " " : "",
                      tokens[i]);
    }

    return out;
}


static void
reads(uint32_t engines, const char *body, const char *want, const char *what)
{
    const char  *ids;

    prompt_engines = engines;
    ids = ids_of(body);

    if (!ok(strcmp(ids, want) == 0, "%s", what)) {
        note("%s: \"%s\"", body, ids);
    }
}


static void
test_ids(void)
{
    of(KVR_FORM_CHAT, 0);

    reads(VLLM, "{\"messages\":[{\"content\":\"x\"}],\"kv_transfer_params\":"
          "{\"prompt_token_ids\":[1,2]}}", "1 2",
          "vLLM reads the ids of a chat in kv_transfer_params");
    reads(SGLANG, "{\"messages\":[{\"content\":\"x\"}],"
          "\"kv_transfer_params\":{\"prompt_token_ids\":[1,2]}}", "text",
          "SGLang does not");
    reads(SGLANG, "{\"messages\":[],\"input_ids\":[1,2]}", "1 2",
          "SGLang reads input_ids");
    reads(VLLM, "{\"messages\":[],\"input_ids\":[1,2]}", "text",
          "vLLM does not");
    reads(TRTLLM, "{\"messages\":[],\"prompt_token_ids\":[1,2]}", "1 2",
          "TensorRT-LLM reads prompt_token_ids");
    reads(VLLM | SGLANG, "{\"messages\":[],\"prompt_token_ids\":[1,2]}",
          "text", "the others do not");
    reads(UNKNOWN, "{\"messages\":[],\"input_ids\":[1,2]}", "1 2",
          "an unknown engine may be SGLang");
    reads(0, "{\"messages\":[],\"kv_transfer_params\":"
          "{\"prompt_token_ids\":[3]}}", "3", "or vLLM");
    reads(UNKNOWN, "{\"messages\":[],\"input_ids\":[1,2],"
          "\"kv_transfer_params\":{\"prompt_token_ids\":[3]}}", "3",
          "where both are, vLLM's count");
    reads(UNKNOWN, "{\"messages\":[],\"input_ids\":[1,2],"
          "\"kv_transfer_params\":{\"prompt_token_ids\":null}}", "1 2",
          "unless they are null");
    reads(VLLM, "{\"messages\":[],\"kv_transfer_params\":[1]}", "text",
          "parameters that are no object have none");
    reads(VLLM, "{\"messages\":[],\"kv_transfer_params\":"
          "{\"prompt_token_ids\":[-1]}}", "error", "wrong ids are an error");
    reads(VLLM, "{\"messages\":[{\"content\":\"x\"}],\"prompt\":[1]}", "text",
          "a chat has no prompt");

    of(KVR_FORM_MESSAGES, 0);
    reads(VLLM, "{\"messages\":[],\"kv_transfer_params\":"
          "{\"prompt_token_ids\":[4]}}", "4", "vLLM's messages are as chats");
    reads(SGLANG, "{\"messages\":[],\"input_ids\":[4]}", "text",
          "SGLang's have no ids");

    of(KVR_FORM_RESPONSES, 0);
    reads(VLLM, "{\"input\":\"x\",\"kv_transfer_params\":"
          "{\"prompt_token_ids\":[5]}}", "5", "vLLM's responses have ids");
    reads(VLLM, "{\"input\":\"x\"}", "text", "or a text");
    reads(VLLM, "{\"input\":[{\"role\":\"user\"}]}", "text", "or items");
    reads(VLLM, "{\"input\":1}", "none", "or what is neither");

    of(KVR_FORM_GENERATE, 0);
    reads(VLLM, "{\"token_ids\":[6,7],\"sampling_params\":{}}", "6 7",
          "vLLM's generate has token_ids");
    reads(VLLM, "{\"prompt\":[6,7]}", "none", "and no prompt");

    of(KVR_FORM_SGLANG_GENERATE, 0);
    reads(SGLANG, "{\"input_ids\":[8],\"text\":\"x\"}", "8",
          "SGLang's generate prefers ids to a text");
    reads(SGLANG, "{\"input_ids\":[[8,9],[1]]}", "8 9", "takes several");
    ok(prompt.prompts == 2 && prompt.others == 1, "which are counted");
    reads(SGLANG, "{\"text\":\"x\"}", "text", "and a text");
    reads(SGLANG, "{\"text\":[\"x\",\"y\"]}", "text", "or several");
    ok(prompt.prompts == 2, "which are counted, too");

    of(KVR_FORM_NO_PROMPT, 0);
    reads(UNKNOWN, "{\"prompt\":[1],\"input_ids\":[1]}", "none",
          "embeddings have no prompt");

    of(KVR_FORM_UNKNOWN, 0);
    reads(UNKNOWN, "{\"prompt\":[1],\"input_ids\":[1],\"token_ids\":[1]}",
          "none", "of an unknown path nothing is guessed");
}


/* The content of a message, with ids for vLLM. */

static void
media(const char *content, bool is, const char *what)
{
    char         body[512];
    const char  *ids;

    snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"user\","
             "\"content\":\"a\"},{\"role\":\"user\",\"content\":%s}],"
             "\"kv_transfer_params\":{\"prompt_token_ids\":[1]}}", content);

    ids = ids_of(body);

    ok(strcmp(ids, is ? "text" : "1") == 0, "%s: %s", what,
       is ? "the ids are left aside" : "the ids are read");
}


static void
test_media(void)
{
    of(KVR_FORM_CHAT, VLLM);

    media("\"text\"", false, "a text");
    media("null", false, "nothing");
    media("[]", false, "no part");
    media("[{\"type\":\"text\",\"text\":\"x\"},\"y\"]", false, "parts of text");
    media("[{\"text\":\"x\"}]", false, "a part without a type");
    media("[{\"type\":\"tool_reference\",\"name\":\"x\"}]", false,
          "a reference to a tool");
    media("[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"image_url\","
          "\"image_url\":{\"url\":\"y\"}}]", true, "an image");
    media("[{\"image_url\":{\"url\":\"y\"}}]", true, "an image without a type");
    media("[{\"type\":\"text\",\"text\":\"x\",\"input_audio\":{}}]", true,
          "a text with sound");
    media("[{\"type\":\"file\"}]", true, "a part of another type");
    media("[{\"type\":1}]", true, "a type that is none");
}


/* The field that p->field names, "" for none. */

static void
field(const char *body, const char *want, const char *what)
{
    kvr_rc_t  rc;

    rc = scan(body);

    ok(rc == KVR_OK && strcmp(prompt.field ? prompt.field : "", want) == 0,
       "%s: \"%s\" (%d)", what, prompt.field ? prompt.field : "", rc);
}


static void
test_fields(void)
{
    of(KVR_FORM_COMPLETIONS, VLLM);

    field("{\"prompt\":[1],\"prompt_logprobs\":0}", "prompt_logprobs",
          "all of the prompt is computed, for no logprobs, too");
    ok(prompt.has_ids && prompt.ntokens == 1, "its ids are there all the same");
    field("{\"prompt\":[1],\"prompt_embeds\":\"AAAA\"}", "prompt_embeds",
          "vectors");
    field("{\"prompt\":[1],\"prompt_embeds\":[]}", "", "no vectors");
    field("{\"prompt\":\"x\",\"suffix\":\"\"}", "suffix", "text to fill in");
    field("{\"prompt\":[1],\"suffix\":\"\"}", "",
          "such text beside ids is the engine's to refuse");
    field("{\"prompt\":[1],\"prompt\\u005flogprobs\":1}", "prompt_logprobs",
          "a name with escapes");
    field("{\"echo\":true,\"prompt\":\"x\",\"logprobs\":1}", "echo",
          "an echo with logprobs");
    field("{\"echo\":true,\"prompt\":\"x\",\"logprobs\":null}", "",
          "an echo without");
    field("{\"echo\":false,\"prompt\":\"x\",\"logprobs\":1}", "",
          "logprobs without an echo");
    field("{\"prompt\":[1],\"session_params\":{\"id\":\"x\"},"
          "\"extra_key\":\"y\"}", "", "fields of another engine");
    field("{\"prompt\":[1],\"truncate_prompt_tokens\":null,"
          "\"prompt_logprobs\":null,\"prompt_embeds\":null,\"echo\":null}",
          "", "fields of null");
    field("{\"prompt\":[1],\"x\":{\"prompt_logprobs\":1}}", "",
          "a field below the top level");

    of(KVR_FORM_COMPLETIONS, SGLANG);

    field("{\"prompt\":[1],\"extra_key\":\"y\"}", "extra_key",
          "a namespace of SGLang's, which no event names");
    field("{\"prompt\":[1],\"extra_key\":\"\"}", "", "an empty one is none");
    field("{\"prompt\":[1],\"prompt_logprobs\":1}", "",
          "SGLang ignores prompt_logprobs");
    field("{\"prompt\":[1],\"session_params\":{\"id\":\"x\"}}",
          "session_params", "a prompt that continues another one");
    field("{\"prompt\":[1],\"session_params\":{}}", "", "or does not");

    of(KVR_FORM_CHAT, VLLM);

    field("{\"messages\":[],\"echo\":true}", "echo", "a chat with an echo");
    field("{\"messages\":[],\"logprobs\":true}", "", "a chat with logprobs");

    of(KVR_FORM_CHAT, SGLANG);

    field("{\"messages\":[],\"echo\":true}", "", "SGLang ignores the echo");

    of(KVR_FORM_RESPONSES, UNKNOWN);

    field("{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}",
          "previous_response_id", "a response to an earlier one");
    field("{\"input\":\"x\",\"previous_response_id\":null}", "",
          "a response to none");

    of(KVR_FORM_GENERATE, VLLM);

    field("{\"token_ids\":[1],\"sampling_params\":{\"prompt_logprobs\":1}}",
          "prompt_logprobs", "a parameter of generate");
    field("{\"token_ids\":[1],\"sampling_params\":"
          "{\"skip_reading_prefix_cache\":true}}",
          "skip_reading_prefix_cache", "a cache that is not read");
    field("{\"token_ids\":[1],\"sampling_params\":"
          "{\"skip_reading_prefix_cache\":false}}", "", "or is");
    field("{\"token_ids\":[1],\"content_parts\":[{}]}", "content_parts",
          "media to be expanded");

    of(KVR_FORM_SGLANG_GENERATE, SGLANG);

    field("{\"input_ids\":[1],\"input_embeds\":[[0.5]]}", "input_embeds",
          "vectors of SGLang");
    field("{\"input_ids\":[1],\"image_data\":[\"x\"]}", "image_data",
          "images of SGLang");
    field("{\"input_ids\":[1],\"image_data\":null}", "", "or none");
    field("{\"input_ids\":[1],\"return_logprob\":true,"
          "\"logprob_start_len\":0}", "logprob_start_len",
          "logprobs from the prompt's start");
    field("{\"input_ids\":[1],\"return_logprob\":true,"
          "\"logprob_start_len\":-1}", "", "logprobs of the output alone");
    field("{\"input_ids\":[1],\"logprob_start_len\":0}", "",
          "logprobs that are not asked for");
}


static void
test_cuts(void)
{
    size_t           n;
    const uint32_t  *t;
    static uint32_t  three[] = { 1, 2, 3 };

    of(KVR_FORM_COMPLETIONS, VLLM);

    reads(VLLM, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":2}", "2 3",
          "vLLM keeps the last tokens");
    reads(VLLM, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":2,"
          "\"truncation_side\":\"left\"}", "2 3", "so it is told");
    reads(VLLM, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":2,"
          "\"truncation_side\":\"right\"}", "1 2",
          "the first ones when the right side is cut");
    reads(VLLM, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":3}", "1 2 3",
          "a prompt that fits is not cut");
    reads(VLLM, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":0}", "",
          "nothing may be left");
    reads(UNKNOWN, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":1}", "3",
          "an unknown engine is taken to cut");
    reads(SGLANG, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":1}",
          "1 2 3", "SGLang does not cut");

    of(KVR_FORM_COMPLETIONS, TRTLLM);
    field("{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":1}",
          "truncate_prompt_tokens", "what TensorRT-LLM cuts is not known");

    of(KVR_FORM_COMPLETIONS, VLLM);
    field("{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":-1}",
          "truncate_prompt_tokens", "nor is the model's limit");
    field("{\"prompt\":[1],\"truncate_prompt_tokens\":1.5}",
          "truncate_prompt_tokens", "nor what is no number");
    field("{\"prompt\":[1],\"truncate_prompt_tokens\":1,"
          "\"truncation_side\":\"top\"}", "truncate_prompt_tokens",
          "nor another side");

    of(KVR_FORM_CHAT, VLLM);
    reads(VLLM, "{\"messages\":[],\"truncate_prompt_tokens\":1,"
          "\"kv_transfer_params\":{\"prompt_token_ids\":[1,2]}}", "1 2",
          "ids that were handed on are not cut");

    scan("{\"messages\":[],\"truncate_prompt_tokens\":1}");
    t = three;
    n = 3;
    kvr_prompt_cut(&prompt.cut, &t, &n);
    ok(n == 1 && t[0] == 3, "a text is cut when it is tokenized");

    of(KVR_FORM_GENERATE, VLLM);
    reads(VLLM, "{\"token_ids\":[1,2],\"truncate_prompt_tokens\":1}", "1 2",
          "other forms are not cut");
}


static void
sequences(const char *body, uint32_t want, const char *what)
{
    ok(scan(body) == KVR_OK && prompt.sequences == want, "%s: %u sequences",
       what, prompt.sequences);
}


static void
test_sequences(void)
{
    of(KVR_FORM_COMPLETIONS, VLLM);

    sequences("{\"prompt\":[1]}", 1, "a prompt");
    sequences("{\"prompt\":[1],\"n\":4}", 4, "n");
    sequences("{\"prompt\":[[1],[2],[3]],\"n\":2}", 6, "n of several prompts");
    sequences("{\"prompt\":[\"a\",\"b\"]}", 2, "several texts");
    sequences("{\"prompt\":[1],\"n\":0}", 1, "n of 0");
    sequences("{\"prompt\":[1],\"n\":-2}", 1, "n below 0");
    sequences("{\"prompt\":[1],\"n\":1e3}", 1, "n that is no integer");
    sequences("{\"prompt\":[1],\"n\":18446744073709551615}",
              KVR_SEQUENCES_MAX, "n without measure");
    sequences("{\"prompt\":[1],\"best_of\":5}", 1, "best_of of vLLM");
    sequences("{}", 1, "nothing");

    of(KVR_FORM_COMPLETIONS, TRTLLM);
    sequences("{\"prompt\":[1],\"n\":2,\"best_of\":5}", 5,
              "best_of of TensorRT-LLM");

    of(KVR_FORM_SGLANG_GENERATE, SGLANG);
    sequences("{\"input_ids\":[1],\"sampling_params\":{\"n\":3}}", 3,
              "n of SGLang's generate");
    sequences("{\"input_ids\":[[1],[2]],\"sampling_params\":[{\"n\":3},{}]}",
              6, "parameters for each prompt");
    sequences("{\"input_ids\":[1],\"sampling_params\":[]}", 1,
              "parameters for none");
}


static bool
is(const kvr_prompt_string_t *s, const char *want)
{
    return want ? s->len == strlen(want) && memcmp(s->data, want, s->len) == 0
                : s->data == NULL;
}


static void
test_namespaces(void)
{
    static const char  body[] =
        "{\"model\":\"m\",\"cache_salt\":\"s\",\"lora_path\":\"l\"}";

    of(KVR_FORM_CHAT, SGLANG);
    scan(body);
    ok(is(&prompt.salt, "s") && is(&prompt.lora, "l")
       && is(&prompt.model, "m"), "SGLang reads a salt and an adapter");

    of(KVR_FORM_CHAT, VLLM);
    scan(body);
    ok(is(&prompt.salt, "s") && is(&prompt.lora, NULL),
       "vLLM reads the salt alone");

    of(KVR_FORM_MESSAGES, SGLANG);
    scan(body);
    ok(is(&prompt.salt, NULL) && is(&prompt.lora, NULL),
       "SGLang's messages have neither");

    of(KVR_FORM_NO_PROMPT, UNKNOWN);
    scan(body);
    ok(is(&prompt.salt, NULL) && is(&prompt.model, "m"),
       "embeddings have a model");

    of(KVR_FORM_SGLANG_GENERATE, SGLANG);
    scan("{\"input_ids\":[[1],[2]],\"cache_salt\":[\"a\",\"b\"],"
         "\"lora_path\":[null,\"x\"]}");
    ok(is(&prompt.salt, "a") && is(&prompt.lora, NULL),
       "of several those of the first prompt count");

    scan("{\"cache_salt\":1,\"lora_path\":{}}");
    ok(is(&prompt.salt, NULL) && is(&prompt.lora, NULL),
       "values of other types are not there");
}


static void
looks(const char *body, kvr_form_t form)
{
    kvr_tape_t  tape;

    kvr_tape_init(&tape, entries, PROMPT_MAX, tokens, PROMPT_MAX);

    ok(kvr_tape_scan(&tape, body, strlen(body)) == KVR_OK
       && kvr_prompt_form(&tape) == form, "%s looks like %s", body,
       kvr_form_name(form));
}


static void
test_looks(void)
{
    looks("{\"messages\":[]}", KVR_FORM_CHAT);
    looks("{\"input\":\"x\"}", KVR_FORM_RESPONSES);
    looks("{\"token_ids\":[1]}", KVR_FORM_GENERATE);
    looks("{\"input_ids\":[1]}", KVR_FORM_SGLANG_GENERATE);
    looks("{\"text\":\"x\"}", KVR_FORM_SGLANG_GENERATE);
    looks("{\"prompt\":\"x\"}", KVR_FORM_COMPLETIONS);
    looks("{\"messages\":null,\"prompt\":[1]}", KVR_FORM_COMPLETIONS);
    looks("[1]", KVR_FORM_COMPLETIONS);
}


/* How many bytes of text there are, with room for so many entries. */

static void
weighs(const char *body, uint32_t cap, size_t want, const char *what)
{
    size_t      n;
    kvr_tape_t  tape;

    kvr_tape_init(&tape, entries, cap, tokens, PROMPT_MAX);

    n = kvr_tape_scan(&tape, body, strlen(body)) == KVR_OK
        ? kvr_prompt_bytes(&tape) : 0;

    if (!ok(n == want, "%s", what)) {
        note("%s: %zu bytes", body, n);
    }
}


static void
test_bytes(void)
{
    weighs("{}", PROMPT_MAX, 2, "an empty body weighs its brackets");
    weighs("\"abc\"", PROMPT_MAX, 5, "a text weighs its bytes");
    weighs("{\"a\":\"bc\",\"n\":17}", PROMPT_MAX, 2 + 3 + 4 + 3 + 2,
           "so do keys and numbers");
    weighs("{\"a\":[[1,2],[3000000]],\"b\":[\"x\",{\"c\":\"y\"}]}",
           PROMPT_MAX, 2 + (3 + 2 + 12) + (3 + 2 + 3 + 2 + 3 + 3),
           "ids weigh 4 each, whatever they are in");
    weighs("{\"image_url\":\"x\",\"source\":{\"type\":\"base64\"},"
           "\"a\":[]}", PROMPT_MAX, 2 + (11 + 3) + (8 + 2 + 6 + 8) + (3 + 2),
           "at the top there are no media");
    weighs("{\"tools\":[{\"image_url\":{\"a\":[0.5,\"xyz\"]}}]}", PROMPT_MAX,
           2 + 7 + 2 + 2 + 11 + 2 + 3 + 2 + 3 + 5, "nor are they in tools");
    weighs("{\"input\":[{\"image_url\":{\"url\":\"xyz\"},\"text\":\"t\"},"
           "{\"input\\u005faudio\":\"xyz\"}]}", PROMPT_MAX,
           2 + 7 + 2 + (2 + 6 + 3) + 2, "in messages they weigh nothing");
    weighs("{\"messages\":[{\"source\":{\"type\":\"base64\","
           "\"data\":\"xyz\"}},{\"source\":{\"type\":\"text\","
           "\"data\":\"xyz\"}},{\"source\":\"x\"}]}", PROMPT_MAX,
           2 + 10 + 2 + 2 + (2 + 8 + 2 + 6 + 6 + 6 + 5) + (2 + 8 + 3),
           "nor does base64 in a source");
    weighs("{\"a\":\"b\",\"m\":[{\"x\":1},{\"x\":2}]}", 6,
           2 + 3 + 3 + 3 + 17, "what the tape has no room for weighs all of it");
}


/* vLLM's kv_cache_report_mode. */

static void
reports(const char *args, bool wanted)
{
    char  body[256];

    of(KVR_FORM_COMPLETIONS, UNKNOWN);
    snprintf(body, sizeof(body), "{\"prompt\":[1,2],%s}", args);

    ok(read_body(body, strlen(body), PROMPT_MAX) == KVR_OK
       && prompt.reports == wanted, "%s asks for %s", args,
       wanted ? "full reports" : "nothing");
}


static void
test_reports(void)
{
    reports("\"vllm_xargs\":{\"kv_cache_report_mode\":\"full\"}", true);
    reports("\"vllm_xargs\":{\"kv_cache_report\\u005fmode\":\"full\"}", true);
    reports("\"sampling_params\":{\"extra_args\":{\"kv_cache_report_mode\":"
            "\"full\"}}", true);
    reports("\"vllm_xargs\":{\"kv_cache_report_mode\":\"incremental\"}", false);
    reports("\"vllm_xargs\":{\"other\":\"full\"}", false);
    reports("\"vllm_xargs\":null", false);
    reports("\"kv_cache_report_mode\":\"full\"", false);
}


static void
test_stream(void)
{
    of(KVR_FORM_CHAT, VLLM);

    ok(scan("{\"messages\":[],\"stream\":true}") == KVR_OK && prompt.stream,
       "the answer is to be streamed");
    ok(scan("{\"messages\":[],\"stream\":false}") == KVR_OK && !prompt.stream
       && scan("{\"stream\":null}") == KVR_OK && !prompt.stream
       && scan("{}") == KVR_OK && !prompt.stream, "or it is not");
}


int
main(void)
{
    test_ids();
    test_media();
    test_fields();
    test_cuts();
    test_sequences();
    test_namespaces();
    test_looks();
    test_bytes();
    test_reports();
    test_stream();

    return done();
}
