/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The encoder beside Hugging Face's library (t/vectors/token/golden.json), in
 * one go, in the shortest slices and in longer ones, and texts that are made to
 * hurt.  Run with sanitizers, too.
 */


#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

#include "token/kvr_bytes.h"
#include "token/kvr_encoder.h"
#include "token/kvr_unicode.h"
#include "wire/kvr_tape.h"


#define GOLDEN     "t/vectors/token/golden.json"
#define MB         (1 << 20)

#define LETTER_A   68           /* ids of the base "bytes" */
#define LETTER_B   69
#define TWO_AS     297
#define DIGIT_1    20
#define NUL        192


static void variants(void);
static void variant(uint32_t v);
static uint32_t differences(uint32_t v, uint64_t budget);
static void left_alone(void);
static void broken(void);
static void endless(void);
static void nuls(void);
static void over_the_limit(void);
static void newer(void);


static kvr_tape_t          tape;
static char               *json;
static kvr_tokenizer_t    *t;
static kvr_pieces_t       *pieces;
static kvr_encoder_t      *plain, *cached;
static uint64_t            steps, compared;
static kvr_bytes_t         text;


static uint32_t
field(uint32_t object, const char *key)
{
    return kvr_tape_get(&tape, object, key);
}


/* The file as a tape. */

static bool
read_golden(void)
{
    long       n;
    FILE      *f;
    uint32_t   cap, *ids;

    f = fopen(GOLDEN, "r");
    if (f == NULL) {
        return false;
    }

    (void) fseek(f, 0, SEEK_END);
    n = ftell(f);
    rewind(f);

    cap = (uint32_t) n / 2 + 3;
    json = malloc((size_t) n);
    ids = malloc(cap * sizeof(uint32_t));

    kvr_tape_init(&tape, malloc(cap * sizeof(kvr_tape_entry_t)), cap, ids,
                  cap);

    n = (long) fread(json, 1, (size_t) n, f);
    fclose(f);

    return kvr_tape_scan(&tape, json, (size_t) n) == KVR_OK;
}


static void
add(kvr_bytes_t *b, const char *s)
{
    kvr_bytes_add(b, s, strlen(s));
}


/* A string of the file, decoded, at the end of the bytes. */

static void
add_string(kvr_bytes_t *b, uint32_t i)
{
    kvr_json_text_t  s;

    s = kvr_tape_text(&tape, i);

    if (kvr_bytes_room(b, s.len)) {
        b->n += kvr_json_decode(&s, b->data + b->n, s.len);
    }
}


/* An object of the base's members, of which a variant has some of its own. */

static void
add_members(kvr_bytes_t *b, uint32_t base, uint32_t own)
{
    char             key[64];
    uint32_t         i, v;
    kvr_json_text_t  s;

    for (i = kvr_tape_first(&tape, base);
         i;
         i = kvr_tape_next(&tape, base, i))
    {
        s = kvr_tape_text(&tape, i);
        (void) snprintf(key, sizeof(key), "%.*s", (int) s.len, s.data);
        v = field(own, key);

        add(b, "\"");
        add(b, key);
        add(b, "\":");
        add_string(b, v ? v : i + 1);
        add(b, ",");
    }
}


/* Loads a variant's tokenizer.json; 0: that of the base "bytes". */

static bool
load(uint32_t v)
{
    char         base[64], why[KVR_TOKENIZER_WHY];
    kvr_bytes_t  file;

    memset(&file, 0, sizeof(file));
    (void) snprintf(base, sizeof(base), "bytes");

    if (v) {
        add_string(&file, field(v, "base"));
        (void) snprintf(base, sizeof(base), "%.*s", (int) file.n, file.data);
        file.n = 0;
    }

    add(&file, "{");
    add_members(&file, field(field(KVR_TAPE_ROOT, "bases"), base),
                field(v, "parts"));
    add(&file, "\"model\":{");
    add_members(&file, field(field(KVR_TAPE_ROOT, "models"), base),
                field(v, "model"));
    file.data[file.n - 1] = '}';
    add(&file, "}");

    t = kvr_tokenizer_load(file.data, file.n, KVR_UNICODE_16, why,
                           sizeof(why));
    kvr_bytes_free(&file);

    if (t == NULL) {
        note("%s", why);
        return false;
    }

    pieces = kvr_pieces_new(16);
    plain = kvr_encoder_new(t, NULL, NULL);
    cached = kvr_encoder_new(t, pieces, NULL);

    return true;
}


static void
unload(void)
{
    kvr_encoder_free(cached);
    kvr_encoder_free(plain);
    kvr_pieces_free(pieces);
    kvr_tokenizer_free(t);
}


/* Encodes in slices of so many nanoseconds; 0: in one go. */

static kvr_encoder_rc_t
encode(kvr_encoder_t *e, const kvr_bytes_t *s, uint32_t flags,
    uint64_t budget)
{
    kvr_encoder_rc_t  rc;

    rc = kvr_encoder_begin(e, s->data, s->n, flags);

    while (rc == KVR_ENCODER_AGAIN) {
        rc = kvr_encoder_step(e, budget);
        steps++;
    }

    return rc;
}


/* Are they these ids?  The library's are none, or an entry of ids. */

static bool
same(const kvr_encoder_t *e, uint32_t list)
{
    size_t           n, want;
    const uint32_t  *got, *ids;

    got = kvr_encoder_ids(e, &n);

    if (kvr_tape_ids(&tape, list, &ids, &want) != KVR_OK) {
        return n == 0 && kvr_tape_kind(&tape, list) == KVR_TAPE_ARRAY
               && tape.entries[list].len == 0;
    }

    return n == want && memcmp(got, ids, n * sizeof(uint32_t)) == 0;
}


/* The text that is so many times a part. */

static void
repeat(const char *part, size_t len, uint32_t times)
{
    text.n = 0;

    while (times--) {
        kvr_bytes_add(&text, part, len);
    }
}


/* Are there n ids, in turns first and second? */

static bool
all_are(size_t n, uint32_t first, uint32_t second)
{
    size_t           i, got;
    const uint32_t  *ids;

    ids = kvr_encoder_ids(plain, &got);

    for (i = 0; i < got; i++) {
        if (ids[i] != (i % 2 ? second : first)) {
            return false;
        }
    }

    return got == n;
}


int
main(void)
{
    if (!ok(read_golden(), GOLDEN " can be read")) {
        return done();
    }

    variants();

    if (!ok(load(0), "the base \"bytes\" is taken")) {
        return done();
    }

    left_alone();
    broken();
    endless();
    nuls();
    over_the_limit();
    newer();

    unload();
    kvr_bytes_free(&text);
    free(tape.entries);
    free(tape.ids);
    free(json);

    return done();
}


static void
variants(void)
{
    uint32_t  v, n, list;

    n = 0;
    list = field(KVR_TAPE_ROOT, "variants");

    for (v = kvr_tape_first(&tape, list);
         v;
         v = kvr_tape_next(&tape, list, v))
    {
        variant(v);
        n++;
    }

    ok(n > 50 && compared > (uint64_t) n * 100 * 6,
       "%u variants, %llu encodings", n, (unsigned long long) compared);
}


static void
variant(uint32_t v)
{
    uint64_t     once;
    kvr_bytes_t  name;

    memset(&name, 0, sizeof(name));
    add_string(&name, field(v, "name"));
    kvr_bytes_add(&name, "", 1);

    if (ok(load(v), "%s: is taken", name.data)) {
        steps = 0;
        is_u64(differences(v, 0), 0, "%s: the library's ids in one go",
               name.data);
        once = steps;

        is_u64(differences(v, 1), 0, "%s: and in slices", name.data);
        ok(steps > 3 * once, "%s: more than two of a text", name.data);

        is_u64(differences(v, 7000), 0, "%s: and in slices of 7 us",
               name.data);

        unload();
    }

    kvr_bytes_free(&name);
}


/* Every second text has the ids around it: BOS, EOS. */

static uint32_t
differences(uint32_t v, uint64_t budget)
{
    uint32_t  i, s, list, texts, wrong, flags;

    wrong = 0;
    flags = 0;
    list = field(v, "ids");
    texts = field(KVR_TAPE_ROOT, "texts");
    s = kvr_tape_first(&tape, texts);

    for (i = kvr_tape_first(&tape, list);
         i && s;
         i = kvr_tape_next(&tape, list, i))
    {
        text.n = 0;
        add_string(&text, s);

        wrong += encode(plain, &text, flags, budget) != KVR_ENCODER_DONE
                 || !same(plain, i);
        wrong += encode(cached, &text, flags, budget) != KVR_ENCODER_DONE
                 || !same(cached, i);
        compared += 2;

        flags ^= KVR_ENCODER_ADD_SPECIAL;
        s = kvr_tape_next(&tape, texts, s);
    }

    return wrong + (i != 0) + (s != 0);
}


/* An encoding may be left at any place. */

static void
left_alone(void)
{
    uint32_t     i, n, after, wrong;
    kvr_bytes_t  other;

    memset(&other, 0, sizeof(other));

    for (i = 0; i < 200; i++) {
        add(&other, "one of <|im_start|>many words, 1234\xc3\xa9 <|im_end|>\n");
    }

    repeat("aaaa", 4, 100);
    wrong = 0;

    for (after = 0; after <= 21; after += 7) {
        (void) kvr_encoder_begin(plain, other.data, other.n, 0);

        for (n = 0; n < after; n++) {
            wrong += kvr_encoder_step(plain, 1) != KVR_ENCODER_AGAIN;
        }

        wrong += encode(plain, &text, 0, 0) != KVR_ENCODER_DONE
                 || !all_are(200, TWO_AS, TWO_AS);
    }

    is_u64(wrong, 0, "an encoding that was left after 0, 7, 14 and 21 slices "
           "changes nothing of the next one");

    kvr_bytes_free(&other);
}


/* Behind texts of many lengths: the check works in parts. */

static void
broken(void)
{
    static const char *const  ends[] = {
        "\xff", "\x80", "\xc3", "\xc0\xaf", "\xe2\x82", "\xe0\x80\xaf",
        "\xed\xa0\x80", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80",
    };
    static const uint32_t     before[] = {
        0, 1, 3, 32767, 131069, 131070, 131071, 131072, 500000,
    };

    uint32_t  i, j, wrong, n;

    wrong = 0;
    n = 0;

    for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {

        for (j = 0; j < sizeof(before) / sizeof(before[0]); j++) {
            repeat("1", 1, before[j]);
            add(&text, ends[i]);

            wrong += encode(plain, &text, 0, 0) != KVR_ENCODER_BAD_UTF8;
            wrong += encode(cached, &text, 0, 1) != KVR_ENCODER_BAD_UTF8;

            /* nor in the middle */
            add(&text, "11");
            wrong += encode(plain, &text, 0, 1) != KVR_ENCODER_BAD_UTF8;
            n += 3;
        }
    }

    is_u64(wrong, 0, "%u texts that are no UTF-8 have no ids", n);

    repeat("aa", 2, 1);
    ok(encode(plain, &text, 0, 0) == KVR_ENCODER_DONE
       && all_are(1, TWO_AS, TWO_AS), "and the next text has its own");
}


static void
endless(void)
{
    kvr_encoder_t         *e;
    kvr_encoder_limits_t   limits;

    repeat("a", 1, MB);

    ok(encode(plain, &text, 0, 0) == KVR_ENCODER_TOO_LONG
       && encode(plain, &text, 0, 1) == KVR_ENCODER_TOO_LONG,
       "1 MB of one letter is one piece, and too long");

    memset(&limits, 0, sizeof(limits));
    limits.piece = MB;

    e = plain;
    plain = kvr_encoder_new(t, NULL, &limits);

    ok(encode(plain, &text, 0, 0) == KVR_ENCODER_DONE
       && all_are(MB / 2, TWO_AS, TWO_AS),
       "with a limit of 1 MB it has half as many ids, two letters each");

    steps = 0;

    ok(encode(plain, &text, 0, 1) == KVR_ENCODER_DONE
       && all_are(MB / 2, TWO_AS, TWO_AS), "and the same in slices");
    ok(steps > 1000, "which were %llu", (unsigned long long) steps);

    kvr_encoder_free(plain);
    plain = e;

    repeat("1", 1, MB);

    ok(encode(plain, &text, 0, 0) == KVR_ENCODER_DONE
       && all_are(MB, DIGIT_1, DIGIT_1),
       "1 MB of one digit is many pieces, and has its ids");

    ok(encode(plain, &text, 0, 1) == KVR_ENCODER_DONE
       && all_are(MB, DIGIT_1, DIGIT_1), "and the same in slices");
}


static void
nuls(void)
{
    repeat("", 1, 100000);

    ok(encode(plain, &text, 0, 0) == KVR_ENCODER_DONE
       && all_are(100000, NUL, NUL), "100,000 NULs have an id each");

    ok(encode(plain, &text, 0, 1) == KVR_ENCODER_DONE
       && all_are(100000, NUL, NUL), "and the same in slices");

    repeat("b\0", 2, 100000);

    ok(encode(plain, &text, 0, 1) == KVR_ENCODER_DONE
       && all_are(200000, LETTER_B, NUL), "a NUL ends no text");

    repeat("a\0", 2, 1);

    ok(encode(plain, &text, 0, 0) == KVR_ENCODER_DONE
       && all_are(2, LETTER_A, NUL), "nor at the end of one");
}


static void
over_the_limit(void)
{
    size_t                 n;
    kvr_encoder_t         *e;
    kvr_encoder_limits_t   limits;

    memset(&limits, 0, sizeof(limits));
    limits.text = 1000;
    e = kvr_encoder_new(t, NULL, &limits);

    repeat("1", 1, 1001);
    ok(encode(e, &text, 0, 0) == KVR_ENCODER_TOO_LONG,
       "a text of a byte over the limit is refused");

    text.n = 1000;
    ok(encode(e, &text, 0, 0) == KVR_ENCODER_DONE,
       "a text of as many bytes as the limit is not");

    ok(kvr_encoder_begin_at(e, text.data, text.n, 1001, NULL, 0, 0)
       == KVR_ENCODER_TOO_LONG, "nor is there a cut behind its end");

    ok(kvr_encoder_begin_at(e, text.data, text.n, 1000,
                            (uint32_t []) { 7, 8, 9 }, 3, 0)
       == KVR_ENCODER_AGAIN && kvr_encoder_step(e, 0) == KVR_ENCODER_DONE
       && kvr_encoder_ids(e, &n)[2] == 9 && n == 3,
       "ids that are given at a cut come first");

    kvr_encoder_free(e);
}


/* Characters that Unicode 9 has not: the library's normal forms leave them. */

static void
newer(void)
{
    size_t       i, n;
    uint32_t     k, same;
    kvr_bytes_t  out;

    static const struct {
        kvr_unicode_form_t   form;
        const char          *text;
    } left[] = {
        { KVR_NFC, "\U00011935\U00011930" },     /* Unicode 13: would compose */
        { KVR_NFD, "\U00011938" },               /* and decompose */
        { KVR_NFKC, "\u32ff" },                  /* Unicode 12.1 */
        { KVR_NFC, "e\u1df9\u0301" },            /* Unicode 10: a mark, 220 */
        { KVR_NFD, "e\u0301\u1df9" }
    };

    memset(&out, 0, sizeof(kvr_bytes_t));
    same = 0;

    for (k = 0; k < 5; k++) {
        n = strlen(left[k].text);
        out.n = 0;
        kvr_unicode_normalize(left[k].form, left[k].text, n, &out);
        same += out.n == n && memcmp(out.data, left[k].text, n) == 0;
    }

    is_u64(same, 5, "characters newer than Unicode 9 are not normalized");

    out.n = 0;
    kvr_unicode_lower("\u0130\u1c89\ua7cb", 8, &out);
    ok(out.n == 8 && memcmp(out.data, "i\u0307\u1c8a\u0264", 8) == 0,
       "lower case is Rust's where libutf8proc has another, or none");

    repeat("\u0301\u0327", 4, 100000);
    out.n = 0;
    kvr_unicode_normalize(KVR_NFD, text.data, text.n, &out);

    for (i = 0; i < out.n && memcmp(out.data + i, "\u0327", 2) == 0; i += 2) {
        /* void */
    }

    ok(out.n == 400000 && i == 200000, "a flood of marks is sorted by class");

    kvr_bytes_free(&out);
}
