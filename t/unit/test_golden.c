/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The golden requests beside what is read of them: the ids, the namespace, the
 * number of sequences, whether the engine reads its cache, and the usage in
 * its answer are those that vLLM and SGLang had themselves (t/vectors/golden).
 */


#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

#include "wire/kvr_answer.h"
#include "wire/kvr_question.h"
#include "wire/kvr_tokens.h"


#define LINE_MAX     (1 << 20)
#define ENTRIES_MAX  (1 << 16)


typedef struct {
    kvr_tape_entry_t  entries[ENTRIES_MAX];
    uint32_t          ids[ENTRIES_MAX];
    kvr_tape_t        tape;
} tape_t;


static tape_t             line, body;
static char               text[LINE_MAX], decoded[LINE_MAX], answer[LINE_MAX];
static char               name[256];
static kvr_engine_kind_t  engine;
static unsigned           compared, read_ids, questions;


static bool
scan(tape_t *t, const char *s, size_t len)
{
    kvr_tape_init(&t->tape, t->entries, ENTRIES_MAX, t->ids, ENTRIES_MAX);

    return kvr_tape_scan(&t->tape, s, len) == KVR_OK;
}


/* The string of a field, decoded; 0 and an empty one if it is null. */

static size_t
string(uint32_t i, char *out, size_t size)
{
    size_t           len;
    kvr_json_text_t  s;

    out[0] = '\0';

    if (kvr_tape_kind(&line.tape, i) != KVR_TAPE_STRING) {
        return 0;
    }

    s = kvr_tape_text(&line.tape, i);
    len = kvr_json_decode(&s, out, size - 1);

    if (len >= size) {
        return 0;
    }

    out[len] = '\0';

    return len;
}


static uint32_t
field(uint32_t object, const char *key)
{
    return kvr_tape_get(&line.tape, object, key);
}


/* Is the string that was read the one that the engine had? */

static bool
same(const kvr_prompt_string_t *s, uint32_t i)
{
    char  want[128];

    if (string(i, want, sizeof(want)) == 0) {
        return s->len == 0;
    }

    return s->len == strlen(want) && memcmp(s->data, want, s->len) == 0;
}


static bool
same_ids(const kvr_prompt_t *p, uint32_t i)
{
    size_t           n;
    const uint32_t  *ids;

    return kvr_tape_ids(&line.tape, i, &ids, &n) == KVR_OK && n == p->ntokens
           && memcmp(ids, p->tokens, n * sizeof(uint32_t)) == 0;
}


/* How many sequences the engine computed, of all prompts. */

static uint32_t
sequences(uint32_t list)
{
    uint32_t  i, n;
    uint64_t  times;

    n = 0;

    for (i = kvr_tape_first(&line.tape, list);
         i;
         i = kvr_tape_next(&line.tape, list, i))
    {
        (void) kvr_tape_u64(&line.tape, field(i, "times"), &times);
        n += (uint32_t) times;
    }

    return n;
}


static void
usage(kvr_form_t form, size_t len)
{
    size_t              at, n;
    uint32_t            want, c;
    uint64_t            prompt, cached;
    kvr_answer_t        a;
    kvr_answer_usage_t  u;

    want = field(KVR_TAPE_ROOT, "usage");
    c = field(want, "cached");

    kvr_answer_init(&a, form);

    for (at = 0; at < len; at += n) {
        n = kvr_min(len - at, (size_t) 100);
        kvr_answer_add(&a, answer + at, n);
    }

    if (!kvr_tape_u64(&line.tape, field(want, "prompt"), &prompt)) {
        ok(!kvr_answer_usage(&a, &u), "%s: no usage", name);
        return;
    }

    (void) kvr_answer_usage(&a, &u);

    if (!ok(u.has_prompt && u.prompt_tokens == prompt
            && (!kvr_tape_u64(&line.tape, c, &cached)
                || (u.has_cached ? u.cached_tokens == cached : cached == 0)),
            "%s: the usage is that of the engine", name))
    {
        note("%d %llu, %d %llu", u.has_prompt,
             (unsigned long long) u.prompt_tokens, u.has_cached,
             (unsigned long long) u.cached_tokens);
    }
}


/* The question is one that the engine answers: JSON, and without a stream. */

static void
question(kvr_form_t form, size_t len)
{
    size_t       n;
    kvr_rc_t     rc;
    const char  *why;
    static char  out[LINE_MAX];

    rc = kvr_question(&body.tape, form, engine, out, len + KVR_QUESTION_ROOM,
                      &n, &why);

    if (rc != KVR_OK) {
        ok(rc == KVR_DECLINED, "%s: nothing to ask", name);
        return;
    }

    questions++;

    ok(scan(&body, out, n)
       && kvr_tape_get(&body.tape, KVR_TAPE_ROOT, "stream") == 0,
       "%s: the question is an object without a stream", name);
}


static void
request(void)
{
    bool          reads;
    char          path[128];
    size_t        len;
    uint32_t      list, first;
    uint64_t      status;
    kvr_form_t    form;
    kvr_prompt_t  p;

    (void) string(field(KVR_TAPE_ROOT, "name"), name, sizeof(name));
    (void) string(field(KVR_TAPE_ROOT, "path"), path, sizeof(path));

    len = string(field(KVR_TAPE_ROOT, "body"), decoded, sizeof(decoded));
    list = field(KVR_TAPE_ROOT, "sequences");
    first = kvr_tape_first(&line.tape, list);

    (void) kvr_tape_u64(&line.tape, field(KVR_TAPE_ROOT, "status"), &status);

    form = kvr_form(kvr_tape_is(&line.tape, field(KVR_TAPE_ROOT, "method"),
                                "POST"),
                    path, strlen(path), kvr_engine_bit(engine));

    /* what SageMaker invokes may be a chat: it is not looked at */

    if (form == KVR_FORM_NO_LOAD || form == KVR_FORM_NO_PROMPT) {
        ok(first == 0 || strcmp(path, "/invocations") == 0,
           "%s: the engine computes no prompt", name);
        return;
    }

    if (status != 200 || first == 0 || form == KVR_FORM_UNKNOWN) {
        return;
    }

    if (!scan(&body, decoded, len)
        || kvr_prompt_read(&p, &body.tape, form, kvr_engine_bit(engine))
           != KVR_OK)
    {
        ok(false, "%s: is read", name);
        return;
    }

    compared++;

    reads = kvr_tape_kind(&line.tape, field(first, "reads_cache"))
            == KVR_TAPE_TRUE;

    ok(reads || p.field != NULL,
       "%s: a cache that is not read is not told of", name);

    if (p.field == NULL) {
        ok(same(&p.salt, field(first, "cache_salt"))
           && (p.lora.len == 0 || strstr(name, "by model") != NULL
               || same(&p.lora, field(first, "lora"))),
           "%s: the namespace is that of the engine", name);
    }

    if (p.field == NULL && p.has_ids) {
        read_ids++;
        ok(same_ids(&p, field(first, "ids")),
           "%s: the ids are those of the engine", name);
    }

    if (strstr(name, "beam search") == NULL) {
        ok(p.sequences == sequences(list), "%s: %u sequences", name,
           p.sequences);
    }

    if (p.prompts < 2 && p.sequences == 1) {
        len = string(field(field(KVR_TAPE_ROOT, "answer"), "text"), answer,
                     sizeof(answer));
        usage(form, len);
    }

    question(form, strlen(decoded));
}


static void
golden(kvr_engine_kind_t kind, const char *path)
{
    FILE  *f;

    engine = kind;
    compared = 0;
    read_ids = 0;
    questions = 0;

    f = fopen(path, "r");

    if (f == NULL) {
        ok(false, "%s can be read", path);
        return;
    }

    while (fgets(text, sizeof(text), f) != NULL) {

        if (!scan(&line, text, strlen(text))) {
            ok(false, "a line of %s is JSON", path);

        } else if (field(KVR_TAPE_ROOT, "name")) {
            request();
        }
    }

    fclose(f);

    ok(compared > 100 && read_ids > 15 && questions > 50,
       "%s: %u requests were compared, %u with ids, %u with a question",
       kvr_engine_name(kind), compared, read_ids, questions);
}


int
main(void)
{
    golden(KVR_ENGINE_VLLM, "t/vectors/golden/vllm.jsonl");
    golden(KVR_ENGINE_SGLANG, "t/vectors/golden/sglang.jsonl");

    return done();
}
