/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The tape of a JSON text: its entries, look-ups, bounds and errors.
 */


#include <stdlib.h>

#include "tap.h"

#include "wire/kvr_json_ways.h"
#include "wire/kvr_tape.h"


#define ENTRIES        256
#define IDS            64


static kvr_tape_t        tape;
static kvr_tape_entry_t  entries[ENTRIES];
static uint32_t          ids[IDS];


/* Scans a copy that ends where its memory does, for AddressSanitizer. */

static kvr_rc_t
scan_into(const char *text, size_t len, uint32_t cap, size_t ids_cap)
{
    static char  *copy;

    free(copy);

    copy = malloc(len ? len : 1);
    memcpy(copy, text, len);

    kvr_tape_init(&tape, entries, cap, ids, ids_cap);

    return kvr_tape_scan(&tape, copy, len);
}


static kvr_rc_t
scan(const char *text)
{
    return scan_into(text, strlen(text), ENTRIES, IDS);
}


static uint32_t
get(const char *name)
{
    return kvr_tape_get(&tape, KVR_TAPE_ROOT, name);
}


/* Writes the tape as words: a value and what it has, objects in braces. */

static char *
words(char *out, uint32_t i)
{
    uint32_t                 at, k;
    kvr_json_text_t          text;
    const kvr_tape_entry_t  *e;

    static const char  *const names[] = {
        "none", "null", "false", "true", "int", "float", "string", "key"
    };

    e = &entries[i];

    switch (kvr_tape_kind(&tape, i)) {

    case KVR_TAPE_OBJECT:
    case KVR_TAPE_ARRAY:
        out += sprintf(out, "%u%c", e->len,
                       e->kind == KVR_TAPE_OBJECT ? '{' : '[');

        for (at = kvr_tape_first(&tape, i); at;
             at = kvr_tape_next(&tape, i, at))
        {
            out = words(out, at);

            if (e->kind == KVR_TAPE_OBJECT) {
                out = words(out, at + 1);
            }
        }

        return out + sprintf(out, "%c ",
                             e->kind == KVR_TAPE_OBJECT ? '}' : ']');

    case KVR_TAPE_IDS:
        out += sprintf(out, "ids");

        for (k = 0; k < e->len; k++) {
            out += sprintf(out, ",%u", ids[e->first + k]);
        }

        return out + sprintf(out, " ");

    case KVR_TAPE_INT:
    case KVR_TAPE_FLOAT:
    case KVR_TAPE_STRING:
    case KVR_TAPE_KEY:
        text = kvr_tape_text(&tape, i);

        return out + sprintf(out, "%s:%.*s ", names[e->kind],
                             (int) text.len, text.data);

    default:
        return out + sprintf(out, "%s ", names[e->kind]);
    }
}


static void
reads(const char *text, const char *want, const char *sentence)
{
    char      got[1024];
    kvr_rc_t  rc;

    got[0] = '\0';
    rc = scan(text);

    if (rc == KVR_OK) {
        words(got, KVR_TAPE_ROOT);
    }

    if (!ok(rc == KVR_OK && strcmp(got, want) == 0, "%s", sentence)) {
        note("%s: %d, %s; \"%s\"", text, rc,
             tape.error ? tape.error : "no error", got);
    }
}


static void
refuses(const char *text, size_t at, const char *sentence)
{
    kvr_rc_t  rc;

    rc = scan(text);

    if (!ok(rc == KVR_INVALID && tape.error && tape.error_at == at, "%s",
            sentence))
    {
        note("%s: %d, %s at %zu", text, rc, tape.error ? tape.error : "-",
             tape.error_at);
    }
}


static void
test_kinds(void)
{
    reads("null", "null ", "null is null");
    reads(" true ", "true ", "white space is no value");
    reads("false", "false ", "false is false");
    reads("-12", "int:-12 ", "a number without a fraction is an integer");
    reads("-0", "int:-0 ", "a minus does not change that");
    reads("18446744073709551616", "int:18446744073709551616 ",
          "nor does its size");
    reads("1.0", "float:1.0 ", "a fraction makes a float");
    reads("1E3", "float:1E3 ", "and so does an exponent");
    reads("\"a\\n\"", "string:a\\n ", "a string is as it stands in the text");
    reads("[]", "0[] ", "an empty array is no array of ids");
    reads("{}", "0{} ", "an object may be empty");
    reads("[1]", "ids,1 ", "one integer makes an array of ids");
    reads("[0, 4294967295 ,3]", "ids,0,4294967295,3 ",
          "ids are integers 0 .. 2^32 - 1");
    reads("[1,4294967296]", "2[int:1 int:4294967296 ] ",
          "greater integers are none");
    reads("[1,-1]", "2[int:1 int:-1 ] ", "nor are negative ones");
    reads("[1,2.5,3]", "3[int:1 float:2.5 int:3 ] ", "nor are floats");
    reads("[[1,2],[3],\"a\",[]]", "4[ids,1,2 ids,3 string:a 0[] ] ",
          "arrays of ids are elements, too");
    reads("{\"a\":{\"b\":[null,{\"c\":[7]}]},\"d\":1,\"a\":true}",
          "3{key:a 1{key:b 2[null 1{key:c ids,7 } ] } key:d int:1 key:a true "
          "} ", "keys are in the order of the text, with their values");
}


static void
test_look_ups(void)
{
    size_t           n;
    uint32_t         i;
    uint64_t         value;
    kvr_json_text_t  raw;
    const uint32_t  *found;

    scan("{\"a\":1, \"b\":{\"a\":[1, 2 ]}, \"c\":\"x\\u0079\", "
         "\"a\":18446744073709551615, \"\\u0064\" : null, "
         "\"e\" : [ {\"f\":1} , \"g\" ] }");

    ok(kvr_tape_u64(&tape, get("a"), &value) && value == UINT64_MAX,
       "of two equal keys the last one is found");
    ok(get("x") == 0 && get("f") == 0 && get("") == 0,
       "a key that is not there is not found");

    i = kvr_tape_get(&tape, get("b"), "a");

    ok(kvr_tape_ids(&tape, i, &found, &n) == KVR_OK && n == 2
       && found[0] == 1 && found[1] == 2,
       "objects within objects can be looked up in");

    ok(kvr_tape_is(&tape, get("c"), "xy"), "strings are compared decoded");
    ok(!kvr_tape_is(&tape, get("c"), "x") && !kvr_tape_is(&tape, i, "x"),
       "other values are not equal");
    ok(kvr_tape_kind(&tape, get("d")) == KVR_TAPE_NULL,
       "a key is found by what its escapes spell");
    ok(!kvr_tape_given(&tape, get("d")) && kvr_tape_given(&tape, get("c")),
       "null is not given, a string is");

    ok(kvr_tape_get(&tape, 0, "a") == 0
       && kvr_tape_get(&tape, get("x"), "a") == 0
       && kvr_tape_get(&tape, get("c"), "a") == 0
       && kvr_tape_get(&tape, get("e"), "f") == 0,
       "nothing is found in what is not there or no object");
    ok(kvr_tape_first(&tape, 0) == 0 && kvr_tape_kind(&tape, 0) == 0
       && !kvr_tape_given(&tape, 0) && !kvr_tape_is(&tape, 0, "")
       && !kvr_tape_u64(&tape, 0, &value)
       && kvr_tape_ids(&tape, 0, &found, &n) == KVR_DECLINED,
       "what is not there has no child, no kind and no value");
    ok(!kvr_tape_u64(&tape, get("c"), &value), "a string is no integer");

    raw = kvr_tape_raw(&tape, get("e"));
    ok(raw.len == 17 && memcmp(raw.data, "[ {\"f\":1} , \"g\" ]", 17) == 0,
       "an array has its text, brackets included");

    raw = kvr_tape_raw(&tape, get("c"));
    ok(raw.len == 9 && memcmp(raw.data, "\"x\\u0079\"", 9) == 0,
       "a string has its text, quotes included");

    raw = kvr_tape_raw(&tape, i);
    ok(raw.len == 7 && memcmp(raw.data, "[1, 2 ]", 7) == 0,
       "ids have their text");

    scan("{\"n\":18446744073709551616}");
    ok(!kvr_tape_u64(&tape, get("n"), &value),
       "an integer of 65 bits has no value");
}


static void
test_bounds(void)
{
    char             text[512], *p;
    size_t           n;
    uint32_t         i, cap;
    uint64_t         value;
    kvr_rc_t         rc;
    const char      *body;
    kvr_json_text_t  raw;
    const uint32_t  *found;

    body = "{\"a\":1,\"b\":[true,{\"c\":[null,null],\"d\":\"x\"},null],"
           "\"e\":[5]}";

    /* room for a, b, and a part of b's members */

    for (cap = 10; cap < 13; cap++) {
        rc = scan_into(body, strlen(body), cap, IDS);
        i = get("b");

        ok(rc == KVR_OK && (entries[i].flags & KVR_TAPE_CUT)
           && kvr_tape_kind(&tape, i) == KVR_TAPE_ARRAY
           && entries[i].len == 0 && kvr_tape_first(&tape, i) == 0,
           "with %u entries a member is cut", cap);

        raw = kvr_tape_raw(&tape, i);

        ok(raw.len == 37 && raw.data[0] == '[' && raw.data[36] == ']',
           "and has its text");
        ok(kvr_tape_u64(&tape, get("a"), &value) && value == 1
           && kvr_tape_ids(&tape, get("e"), &found, &n) == KVR_OK && n == 1,
           "the members before and behind it are whole");
    }

    rc = scan_into(body, strlen(body), strlen(body) / 2 + 3, IDS);
    ok(rc == KVR_OK && !(entries[get("b")].flags & KVR_TAPE_CUT),
       "nothing is cut with an entry for every two bytes");

    body = "[[],[],[],[],[],[],[1],[],null,[]]";
    rc = scan_into(body, strlen(body), strlen(body) / 2 + 3, IDS);
    ok(rc == KVR_OK && entries[KVR_TAPE_ROOT].len == 10,
       "not even with many short values");

    rc = scan_into("{\"a\":1,\"b\":2,\"c\":3}", 19, 6, IDS);
    ok(rc == KVR_FULL && tape.error && tape.error_at == 17,
       "too many members at the top are an error");

    rc = scan_into("{\"a\":[1,2,3],\"b\":[4,5],\"c\":[6,7]}", 33, ENTRIES, 3);
    ok(rc == KVR_OK && (entries[get("b")].flags & KVR_TAPE_CUT)
       && entries[get("b")].len == 2,
       "ids without room are counted");
    ok(kvr_tape_ids(&tape, get("a"), &found, &n) == KVR_OK && n == 3
       && found[2] == 3, "those before are there");
    ok(kvr_tape_ids(&tape, get("c"), &found, &n) == KVR_OK && n == 2
       && found[0] == 6 && found[1] == 7, "they are read when asked for");

    scan_into("[[1,2,3,4]]", 11, ENTRIES, 3);
    ok(kvr_tape_ids(&tape, KVR_TAPE_ROOT + 1, &found, &n) == KVR_FULL
       && n == 4 && found[2] == 3, "more ids than the array holds are cut off");

    for (i = 63; i <= 64; i++) {
        p = text;
        memset(p, '[', i);
        p += i;
        p += sprintf(p, "[1]");
        memset(p, ']', i);
        p += i;

        rc = scan_into(text, p - text, ENTRIES, IDS);

        if (i == 63) {
            ok(rc == KVR_OK, "64 levels are read");

        } else {
            ok(rc == KVR_INVALID && tape.error_at == 64, "65 are not");
        }
    }
}


static void
test_errors(void)
{
    size_t       i;
    const char  *text;

    refuses("", 0, "nothing is no value");
    refuses("[1,]", 3, "a comma needs a value behind it");
    refuses("[1 2]", 3, "values need commas");
    refuses("{\"a\"}", 4, "a key needs a colon");
    refuses("{\"a\":1,}", 7, "a comma needs a key behind it");
    refuses("[1] 2", 4, "nothing may follow the value");
    refuses("[01]", 1, "a number does not begin with 0");
    refuses("nul", 3, "null is spelled so");
    refuses("[\"\x01\"]", 2, "control characters are escaped");

    refuses("\"a\xff\"", 2, "bytes which are no UTF-8 are refused");
    refuses("\"long enough \xc3\"", 13, "half a character is refused");
    refuses("\"\xc0\xaf\"", 1, "an overlong form is refused");
    refuses("\"\xed\xa0\x80\"", 1, "a surrogate in UTF-8 is refused");
    refuses("\"\xf4\x90\x80\x80\"", 1, "U+110000 is refused");
    refuses("\"\xe4\xb8\xad\xe6\x96\x87\xe4\xb8\xad\xed\xa0\x80 \"", 10,
            "a surrogate behind other characters of three bytes is refused");
    refuses("\"\xe4\xb8\xad\xe0\x9f\xbf   \"", 4,
            "an overlong form behind another character is refused");
    refuses("\"\xe4\xb8\xad\xe6\x96x   \"", 4,
            "half a character behind a whole one is refused");
    refuses("{\"\x80\":1}", 2, "keys are UTF-8, too");
    reads("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\"",
          "string:\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf ",
          "characters of 2, 3 and 4 bytes are read");
    reads("\"\xe4\xb8\xad\xe6\x96\x87\xe0\xa0\x80\xed\x9f\xbf\xef\xbc\x8c\xee\x80\x80"
          "ab\"", "string:\xe4\xb8\xad\xe6\x96\x87\xe0\xa0\x80\xed\x9f\xbf"
          "\xef\xbc\x8c\xee\x80\x80" "ab ", "many of 3 bytes are read");

    reads("\"\\ud83d\\ude00\\uD83D\\uDE00\\ud7ff\\ue000\"",
          "string:\\ud83d\\ude00\\uD83D\\uDE00\\ud7ff\\ue000 ",
          "a surrogate and its other half are read");
    refuses("\"a\\ud83d\"", 2, "a first half alone is refused");
    refuses("\"\\ud83d\\ud83d\\ude00\"", 1, "two first halves are refused");
    refuses("\"\\ud83dx\\ude00\"", 1, "halves are neighbours");
    refuses("\"\\ude00\"", 1, "a second half alone is refused");
    refuses("{\"\\udc00\":1}", 2, "also in a key");

    text = " {\"a\":[1, 22 ,{\"b\":\"c\\u00e9\"}],\"d\":[true,-1.5e+3],"
           "\"e\":[1,2]} ";

    for (i = 0; i + 1 < strlen(text); i++) {
        if (scan_into(text, i, ENTRIES, IDS) != KVR_INVALID
            || strcmp(tape.error, "unexpected end") != 0
            || tape.error_at != i)
        {
            break;
        }
    }

    is_u64(i, strlen(text) - 1, "a text cut anywhere ends unexpectedly");
}


/* What one implementation says of a text is what the base says. */

static bool
plain_as_base(const kvr_json_way_t *way, const kvr_json_way_t *base,
    const char *p, const char *end)
{
    bool         wide, other;
    const char  *at;

    wide = false;
    other = false;

    at = way->plain(p, end, &wide);

    /* a wide character behind the end may be seen, none may be missed */

    return at == base->plain(p, end, &other) && wide >= other;
}


static bool
ids_as_base(const kvr_json_way_t *way, const kvr_json_way_t *base,
    const char *p, const char *end, size_t cap)
{
    size_t    n, m;
    uint32_t  a[IDS], b[IDS];

    n = 0;
    m = 0;

    return way->ids(p, end, a, cap, &n) == base->ids(p, end, b, cap, &m)
           && n == m
           && memcmp(a, b, kvr_min(n, cap) * sizeof(uint32_t)) == 0;
}


/*
 * At each alignment, of each length, with each of the bytes that matter in
 * each place.  The text ends where its memory does.
 */

static void
test_ways(void)
{
    char                  *memory, *text;
    bool                   same;
    size_t                 way, at, len, cut, k, i;
    const kvr_json_way_t  *base, *other;

    enum { LEN = 150, TURNS = 32 };

    static const char  bytes[] = "\"\\\x1f\x00\x80\xff\x20\x7f";
    static const char  odd[] = "0 ,-.]x\t";

    base = &kvr_json_way_base;

    for (way = 0; (other = kvr_json_way(way)) != base; way++) {

        same = true;

        for (at = 0; at < TURNS; at++) {
            for (len = 0; len < LEN; len++) {

                memory = malloc(at + len + 1);
                text = memory + at + 1;
                memset(text, 'x', len);

                same &= plain_as_base(other, base, text, text + len);

                for (k = 0; k < len; k++) {
                    text[k] = bytes[(k + len) % 8];
                    same &= plain_as_base(other, base, text, text + len);
                    text[k] = 'x';
                }

                free(memory);
            }
        }

        ok(same, "%s and base find the same ends of strings", other->name);

        same = true;

        for (at = 0; at < 10; at++) {

            memory = malloc(2 * LEN);

            for (i = 0, k = at; k < LEN; i++) {
                k += sprintf(memory + k, (i + at) % 3 ? "%u," : "%u, ",
                             (unsigned) (i * 2654435761u
                                         >> (i * 7 + at) % 31));
            }

            for (cut = at; cut <= LEN; cut++) {

                text = malloc(cut - at + 1);
                memcpy(text, memory + at, cut - at);
                len = cut - at;

                same &= ids_as_base(other, base, text, text + len, IDS);
                same &= ids_as_base(other, base, text, text + len, 3);

                for (k = 0; k < len; k++) {
                    char  was = text[k];

                    text[k] = odd[(k + cut) % 8];
                    same &= ids_as_base(other, base, text, text + len, IDS);
                    text[k] = was;
                }

                free(text);
            }

            free(memory);
        }

        ok(same, "%s and base read the same ids", other->name);
    }

    ok(kvr_json_way(way + 1) == NULL, "the last implementation is the base");
}


int
main(void)
{
    test_ways();
    test_kinds();
    test_look_ups();
    test_bounds();
    test_errors();

    return done();
}
