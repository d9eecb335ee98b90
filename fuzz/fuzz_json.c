/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Request bodies: kvr_prompt_read() of each form, kvr_question(), whose bodies
 * are JSON and no longer than promised, and the cursor beside yajl, which reads
 * JSON by the same rules: what one takes the other takes, but for nesting,
 * which ours bounds, and for vertical tabs and form feeds, which are no white
 * space by RFC 8259 and are to yajl.
 */


#include "fuzz.h"

#include "wire/kvr_json.h"
#include "wire/kvr_question.h"
#include "wire/kvr_tokens.h"

#include <yajl/yajl_parse.h>


typedef struct {
    int  depth;
    int  deepest;
    int  values;                        /* at depth 1 */
} shape_t;


static void scan(const char *text, size_t len);
static void scan_form(const char *text, size_t len, kvr_tape_t *t,
    kvr_tape_t *u, kvr_form_t form, uint32_t engines);
static void ask(const kvr_tape_t *t, size_t len, kvr_form_t form);
static void scan_string(const char *text, size_t len,
    const kvr_prompt_string_t *s, const char *buf);
static void accepts(const char *text, size_t len);
static bool yajl_accepts(const char *text, size_t len, int *depth);
static int value(void *data);
static int value_bool(void *data, int is);
static int value_number(void *data, const char *s, size_t len);
static int value_string(void *data, const unsigned char *s, size_t len);
static int value_begins(void *data);
static int value_ends(void *data);
static void ids(const char *text, size_t len);


const uint32_t  fuzz_inputs = 100000;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char  *text;

    text = fuzz_copy(bytes, len);

    scan(text, len);
    accepts(text, len);
    ids(text, len);

    free(text);

    return 0;
}


static void
scan(const char *text, size_t len)
{
    kvr_form_t         form;
    kvr_tape_t         t, u;
    uint32_t          *all, few[4];
    kvr_tape_entry_t  *entries, *others;

    entries = malloc((len / 2 + 3) * sizeof(kvr_tape_entry_t));
    others = malloc((len / 2 + 3) * sizeof(kvr_tape_entry_t));
    all = malloc((len / 2 + 1) * sizeof(uint32_t));

    for (form = KVR_FORM_UNKNOWN; form < KVR_FORMS; form++) {

        kvr_tape_init(&t, entries, len / 2 + 3, all, len / 2 + 1);

        if (kvr_tape_scan(&t, text, len) != KVR_OK) {
            break;
        }

        kvr_tape_init(&u, others, len / 2 + 3, few, 4);

        if (kvr_tape_scan(&u, text, len) != KVR_OK) {
            fuzz_fail("no tape with room for 4 ids");
        }

        ask(&t, len, form);
        scan_form(text, len, &t, &u, form, 0);
        scan_form(text, len, &t, &u, form,
                  kvr_engine_bit(KVR_ENGINE_TRTLLM));
    }

    free(entries);
    free(others);
    free(all);
}


static void
ask(const kvr_tape_t *t, size_t len, kvr_form_t form)
{
    char               *out;
    size_t              n;
    kvr_rc_t            rc;
    kvr_json_t          j;
    const char         *field;
    kvr_engine_kind_t   engine;

    out = malloc(len + KVR_QUESTION_ROOM);

    for (engine = KVR_ENGINE_UNKNOWN; engine < KVR_ENGINES; engine++) {
        rc = kvr_question(t, form, engine, out, len + KVR_QUESTION_ROOM, &n,
                          &field);

        if (rc == KVR_DECLINED) {
            continue;
        }

        kvr_json_init(&j, out, n);
        (void) kvr_json_skip(&j);

        if (rc != KVR_OK || out[0] != '{' || !kvr_json_end(&j)) {
            fuzz_fail("a question: %d, %zu of %zu bytes", rc, n, len);
        }
    }

    free(out);
}


/* u: a tape with little room: it says the same, and has the first ids. */

static void
scan_form(const char *text, size_t len, kvr_tape_t *t, kvr_tape_t *u,
    kvr_form_t form, uint32_t engines)
{
    kvr_rc_t      rc, again;
    kvr_prompt_t  p, q;

    rc = kvr_prompt_read(&p, t, form, engines);

    if ((rc != KVR_OK && rc != KVR_INVALID) || (rc == KVR_OK) != !p.error
        || (p.error && p.error_at > len)
        || p.ntokens + p.others > len / 2 + 1
        || (rc == KVR_OK
            && (p.sequences < 1 || p.sequences > KVR_SEQUENCES_MAX)))
    {
        fuzz_fail("scan: %d, %zu tokens, %s at %zu", rc, p.ntokens,
                  p.error ? p.error : "-", p.error_at);
    }

    if (rc == KVR_OK) {
        scan_string(text, len, &p.model, p.model_buf);
        scan_string(text, len, &p.salt, p.salt_buf);
        scan_string(text, len, &p.lora, p.lora_buf);
    }

    again = kvr_prompt_read(&q, u, form, engines);

    if (rc == KVR_OK && again == KVR_FULL) {
        return;
    }

    if (again != rc || (rc == KVR_OK
                        && (q.ntokens != p.ntokens || q.has_ids != p.has_ids
                            || q.others != p.others
                            || (p.ntokens
                                && memcmp(p.tokens, q.tokens,
                                          p.ntokens * sizeof(uint32_t))
                                   != 0))))
    {
        fuzz_fail("scan with room for 4 of %zu: %d, %zu", p.ntokens, again,
                  q.ntokens);
    }
}


/* In the text or in its buffer. */

static void
scan_string(const char *text, size_t len, const kvr_prompt_string_t *s,
    const char *buf)
{
    if (s->data == NULL) {
        return;
    }

    if (s->data == buf ? s->len > KVR_PROMPT_STRING_MAX
        : s->data < text || s->data > text + len
          || s->len > (size_t) (text + len - s->data))
    {
        fuzz_fail("a string of %zu is outside", s->len);
    }
}


static void
accepts(const char *text, size_t len)
{
    int         depth;
    bool        ours, theirs;
    kvr_json_t  j;

    kvr_json_init(&j, text, len);
    (void) kvr_json_skip(&j);
    ours = kvr_json_end(&j);
    theirs = yajl_accepts(text, len, &depth);

    if (theirs && (depth > KVR_JSON_DEPTH || memchr(text, '\v', len)
                   || memchr(text, '\f', len)))
    {
        return;
    }

    if (ours != theirs) {
        fuzz_fail("yajl %s this, we don't: %s at %zu",
                  theirs ? "takes" : "refuses", j.error ? j.error : "-",
                  j.error_at);
    }
}


/*
 * The text in brackets has to be an array of one value: by itself yajl would
 * take a text with half a string behind its value.
 */

static bool
yajl_accepts(const char *text, size_t len, int *depth)
{
    bool         good;
    shape_t      shape;
    yajl_handle  h;

    static yajl_callbacks  callbacks = {
        .yajl_null = value,
        .yajl_boolean = value_bool,
        .yajl_number = value_number,
        .yajl_string = value_string,
        .yajl_start_map = value_begins,
        .yajl_end_map = value_ends,
        .yajl_start_array = value_begins,
        .yajl_end_array = value_ends
    };

    memset(&shape, 0, sizeof(shape));
    h = yajl_alloc(&callbacks, NULL, &shape);
    yajl_config(h, yajl_dont_validate_strings, 1);

    good = yajl_parse(h, (const unsigned char *) "[", 1) == yajl_status_ok
           && yajl_parse(h, (const unsigned char *) text, len)
              == yajl_status_ok
           && shape.depth == 1
           && yajl_parse(h, (const unsigned char *) "]", 1) == yajl_status_ok
           && yajl_complete_parse(h) == yajl_status_ok
           && shape.depth == 0 && shape.values == 1;

    yajl_free(h);

    *depth = shape.deepest - 1;

    return good;
}


static int
value(void *data)
{
    shape_t  *shape = data;

    shape->values += shape->depth == 1;

    return 1;
}


static int
value_bool(void *data, int is)
{
    return value(data);
}


static int
value_number(void *data, const char *s, size_t len)
{
    return value(data);
}


static int
value_string(void *data, const unsigned char *s, size_t len)
{
    return value(data);
}


static int
value_begins(void *data)
{
    shape_t  *shape = data;

    (void) value(data);

    shape->depth++;
    shape->deepest = kvr_max(shape->depth, shape->deepest);

    return 1;
}


static int
value_ends(void *data)
{
    shape_t  *shape = data;

    shape->depth--;

    return 1;
}


/* The fast reader of ids beside one number after another. */

static void
ids(const char *text, size_t len)
{
    bool              good, slow;
    size_t            i, n, m;
    uint32_t         *out;
    uint64_t          value;
    kvr_json_t        j, k;
    kvr_json_text_t   number;

    m = len / 2 + 1;
    out = malloc(m * sizeof(uint32_t));
    n = 0;

    kvr_json_init(&j, text, len);
    kvr_json_init(&k, text, len);

    good = kvr_json_ids(&j, out, m, &n) && kvr_json_end(&j);
    slow = kvr_json_open(&k, '[');

    for (i = 0; slow && kvr_json_next(&k); i++) {
        slow = kvr_json_number(&k, &number)
               && kvr_json_digits(number.data, number.len, &value)
               && value <= UINT32_MAX;

        if (good && (!slow || i >= n || out[i] != value)) {
            fuzz_fail("id %zu of %zu", i, n);
        }
    }

    slow = slow && kvr_json_end(&k);

    if (good != slow || (good && i != n)) {
        fuzz_fail("ids: %d and %d, %zu and %zu", good, slow, n, i);
    }

    free(out);
}
