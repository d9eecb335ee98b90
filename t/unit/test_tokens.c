/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Token ids in request bodies: forms, limits, errors, and the same answers as
 * yajl's tree parser for random bodies, whole and broken.
 */


#include <stdlib.h>
#include <time.h>

#include <yajl/yajl_tree.h>

#include "tap.h"

#include "prompt.h"

#include "wire/kvr_json.h"


#define FUZZ_ROUNDS    200000


/* ids: NULL: no ids at all */

static void
found(const char *body, const char *ids, const char *sentence)
{
    char    out[1024];
    size_t  i, n;

    n = 0;
    out[0] = '\0';

    if (scan(body) != KVR_OK) {
        snprintf(out, sizeof(out), "error: %s at %zu", prompt.error,
                 prompt.error_at);

    } else {
        for (i = 0; i < prompt.ntokens; i++) {
            n += snprintf(out + n, sizeof(out) - n, "%s%u", i ? " " : "",
                          tokens[i]);
        }
    }

    if (!ok(prompt.has_ids == (ids != NULL)
            && strcmp(out, ids ? ids : "") == 0, "%s", sentence))
    {
        note("%s: %s \"%s\"", body, prompt.has_ids ? "ids" : "none", out);
    }
}


static void
refused(const char *body, size_t at, const char *sentence)
{
    kvr_rc_t  rc;

    rc = scan(body);

    if (!ok(rc == KVR_INVALID && prompt.error && prompt.error_at == at, "%s",
            sentence))
    {
        note("%s: %d, \"%s\" at %zu", body, rc,
             prompt.error ? prompt.error : "", prompt.error_at);
    }
}


static void
test_ids(void)
{
    found("{\"prompt\":[1,2,3]}", "1 2 3", "a prompt of token ids is found");
    ok(prompt.prompts == 1 && !prompt.text, "it is one, and no text");

    found(" {\n\t\"prompt\" : [ 1 , 22,333 ,4444,\r\n 55555, 666666,7777777,"
          "88888888, 999999999, 4294967295, 0 ] } \n",
          "1 22 333 4444 55555 666666 7777777 88888888 999999999 4294967295 "
          "0", "ids of every length are read, whatever white space there is");

    found("{\"prompt\":[[7,8]]}", "7 8",
          "an array of one array is one prompt");
    ok(prompt.prompts == 1, "and not several");

    found("{\"prompt\":[[7,8],[9],[],[1,2,3]]}", "7 8",
          "of several prompts the first is taken");
    ok(prompt.prompts == 4 && prompt.others == 4, "the others are counted");

    found("{\"prompt\":[]}", "", "no ids are ids, too");
    found("{\"prompt\":[[]]}", "", "nested or not");
    found("{\"pr\\u006fmpt\":[1]}", "1", "a key may be written with escapes");
    found("{\"a\":{\"prompt\":[1]},\"b\":[{\"prompt\":[2]}]}", NULL,
          "a prompt below the top level is none");

    found("{\"prompt\":\"text\"}", NULL, "a text prompt has no ids");
    ok(prompt.text && prompt.prompts == 1, "it is text");
    found("{\"prompt\":[\"a\",\"b\"]}", NULL, "nor have several");
    ok(prompt.text && prompt.prompts == 2, "they are text");
    found("{\"prompt\":null}", NULL, "null is no prompt");
    ok(!prompt.text && prompt.prompts == 0, "nor a text");
    found("{\"prompt\":[{\"a\":1}]}", NULL,
          "an array of something else is no prompt");
    found("{\"prompt\":[[\"a\"]]}", NULL,
          "nor is an array of arrays of something else");
    found("{\"prompt_token_ids\":[1],\"input_ids\":[2],\"token_ids\":[3]}",
          NULL, "ids where no engine looks for them are none");
}


static void
test_duplicates(void)
{
    found("{\"prompt\":[1],\"prompt\":[2,3]}", "2 3",
          "of two prompts the last counts");
    found("{\"prompt\":[1],\"prompt\":\"x\"}", NULL,
          "even when it has no ids");
    found("{\"prompt\":[1.5],\"prompt\":[2]}", "2",
          "and when the first was wrong");
    found("{\"prompt\":[1,2],\"input_ids\":[-1]}", "1 2",
          "wrong ids that don't count do no harm");
    refused("{\"prompt\":[1,-2],\"input_ids\":[1]}", 13,
            "wrong ids that count are an error");
}


static void
test_strings(void)
{
    found("{\"model\":\"m/7b\",\"cache_salt\":\"t\"}", NULL,
          "strings are found");
    ok(prompt.model.len == 4 && memcmp(prompt.model.data, "m/7b", 4) == 0,
       "the model");
    ok(prompt.salt.len == 1 && prompt.salt.data[0] == 't', "the cache salt");

    scan("{\"model\":\"a\\\"\\\\\\/\\n\\u00e9\\u20ac\\ud83d\\ude00\"}");
    ok(prompt.model.len == 14
       && memcmp(prompt.model.data,
                 "a\"\\/\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                 14)
          == 0,
       "escapes of a model are decoded");

    scan("{\"cache_salt\":\"a\\u0000b\"}");
    ok(prompt.salt.len == 3 && memcmp(prompt.salt.data, "a\0b", 3) == 0,
       "a salt may hold a zero byte");

    scan("{\"model\":\"a\",\"model\":null,\"cache_salt\":1}");
    ok(prompt.model.data == NULL && prompt.salt.data == NULL,
       "values of other types are not there");

    scan("{\"model\":\"\"}");
    ok(prompt.model.data && prompt.model.len == 0, "an empty model is there");
}


static void
test_limits(void)
{
    char      body[512], *p;
    size_t    i;
    kvr_rc_t  rc;

    rc = scan_n("{\"prompt\":[1,2,3,4],\"model\":\"m\"}", 32, 3);

    ok(rc == KVR_FULL && prompt.ntokens == 4 && tokens[2] == 3,
       "more ids than there is room for are counted");
    ok(prompt.model.len == 1, "what comes behind them is read");

    rc = scan_n("{\"prompt\":[1,2,3],\"input_ids\":[1,2,3,4,5]}", 42, 3);
    ok(rc == KVR_OK && prompt.ntokens == 3,
       "ids that don't count need no room");

    rc = read_body("{\"prompt\":[]}", 13, 0);
    ok(rc == KVR_OK && prompt.has_ids, "no ids need no buffer");

    for (i = 62; i <= 63; i++) {
        p = body;
        p += sprintf(p, "{\"a\":");
        memset(p, '[', i + 1);
        p += i + 1;
        memset(p, ']', i + 1);
        p += i + 1;
        *p++ = '}';

        rc = scan_n(body, p - body, PROMPT_MAX);

        if (i == 62) {
            ok(rc == KVR_OK, "64 levels are read");

        } else {
            ok(rc == KVR_INVALID && prompt.error_at == 68, "65 are not");
        }
    }

    p = body;
    p += sprintf(p, "{\"a\":");
    memset(p, '[', 400);
    ok(scan_n(body, p + 400 - body, PROMPT_MAX) == KVR_INVALID,
       "an endless nesting is refused");
}


static void
test_errors(void)
{
    char        *longest;
    size_t       i;
    const char  *body;

    refused("", 0, "nothing is no body");
    refused("  ", 2, "nor is white space");
    refused("[1]", 0, "an array is no body");
    refused("{\"prompt\":[1]} x", 15, "nothing may follow");
    refused("{\"prompt\":[1]}{}", 14, "not even another object");
    refused("{\"prompt\":[1,]}", 13, "a comma needs an id behind it");
    refused("{\"prompt\":[,1]}", 11, "and one before it");
    refused("{\"prompt\":[1 2]}", 13, "ids need commas");
    refused("{\"prompt\":[1],}", 14, "a key has to follow a comma");
    refused("{\"prompt\" [1]}", 10, "a key needs a colon");
    refused("{prompt:[1]}", 1, "a key needs quotes");
    refused("{\"prompt\":[01]}", 11, "a number doesn't begin with 0");
    refused("{\"a\":01}", 5, "no number does");
    refused("{\"prompt\":[1.0]}", 11, "an id is no float");
    refused("{\"prompt\":[1e3]}", 11, "nor has it an exponent");
    refused("{\"prompt\":[1, -1]}", 14, "nor is it negative");
    refused("{\"prompt\":[4294967296]}", 11, "an id has 32 bits");
    refused("{\"prompt\":[99999999999999999999999]}", 11,
            "and not many more");
    refused("{\"prompt\":[1,\"2\"]}", 13, "a string is no id");
    refused("{\"prompt\":[1,null]}", 13, "null is no id");
    refused("{\"prompt\":[1,[2]]}", 13, "an array is no id");
    refused("{\"a\":\"\x01\"}", 6, "control characters are escaped");
    refused("{\"a\":\"long enough \x1f\"}", 18, "anywhere in a string");
    refused("{\"a\":\"\\x\"}", 7, "escapes are those of JSON");
    refused("{\"a\":\"\\u12g4\"}", 10, "hex digits are hex digits");
    refused("{\"a\":tru}", 5, "true is spelled so");
    refused("{\"a\":1.}", 7, "a fraction has digits");
    refused("{\"a\":1e}", 7, "an exponent has digits");
    refused("{\"a\":-}", 6, "a minus has digits");
    refused("{\"a\":[1}", 7, "brackets match");
    refused("{\"a\":{1:2}}", 6, "a number is no key");

    body = " {\"prompt\":[[1, 22 ,33333,123456789],[]],"
           "\"model\":\"a\\u00e9b\","
           "\"x\":[true,false,null,-1.5e+3,{\"y\":{}}],"
           "\"input_ids\":[1,2] } ";

    for (i = 0; i + 1 < strlen(body); i++) {
        if (scan_n(body, i, PROMPT_MAX) != KVR_INVALID
            || strcmp(prompt.error, "unexpected end") != 0
            || prompt.error_at != i)
        {
            break;
        }
    }

    is_u64(i, strlen(body) - 1, "a body cut anywhere ends unexpectedly");
    ok(scan(body) == KVR_OK, "and whole it is read");

    longest = malloc(8192);
    i = sprintf(longest, "{\"cache_salt\":\"");
    memset(longest + i, 'x', 2000);
    i += 2000;
    strcpy(longest + i, "\"}");
    ok(scan(longest) == KVR_OK && prompt.salt.len == 2000,
       "a plain string may be long");
    longest[30] = '\\';
    longest[31] = 'n';
    refused(longest, 14, "one with escapes has a bound");
    free(longest);
}


static void
test_numbers(void)
{
    size_t      i;
    bool        good;
    uint64_t    value;
    kvr_json_t  j;

    static const struct {
        const char  *text;
        bool         good;
        uint64_t     value;
    } cases[] = {
        { "18446744073709551615", true, UINT64_MAX },
        { "\"18446744073709551615\"", true, UINT64_MAX },
        { "9007199254740993", true, 9007199254740993 },
        { "0", true, 0 },
        { "18446744073709551616", false, 0 },
        { "99999999999999999999", false, 0 },
        { "-1", false, 0 },
        { "1.0", false, 0 },
        { "1e3", false, 0 },
        { "\"01\"", false, 0 },
        { "\"\"", false, 0 },
        { "null", false, 0 }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        value = 0;

        kvr_json_init(&j, cases[i].text, strlen(cases[i].text));
        good = kvr_json_u64(&j, &value) && kvr_json_end(&j);

        ok(good == cases[i].good && value == cases[i].value, "%s is %s u64",
           cases[i].text, cases[i].good ? "a" : "no");
    }
}


/* ---- what yajl says ----------------------------------------------------- */

static uint64_t  seed = 88172645463325252ull;


static uint32_t
rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) ((seed >> 32) % n);
}


typedef struct {
    bool      valid;
    bool      has_ids;
    size_t    n;
    uint32_t  ids[PROMPT_MAX];
} answer_t;


static unsigned
depth_of(yajl_val v)
{
    size_t    i;
    unsigned  d, max;

    max = 0;

    if (YAJL_IS_ARRAY(v)) {
        for (i = 0; i < v->u.array.len; i++) {
            d = depth_of(v->u.array.values[i]);
            max = kvr_max(max, d);
        }

        return max + 1;
    }

    if (YAJL_IS_OBJECT(v)) {
        for (i = 0; i < v->u.object.len; i++) {
            d = depth_of(v->u.object.values[i]);
            max = kvr_max(max, d);
        }

        return max + 1;
    }

    return 0;
}


/* 0: no ids; 1: ids; -1: wrong ones */

static int
ids_of(yajl_val v, answer_t *a)
{
    char        *end;
    size_t       i;
    const char  *s;

    if (!YAJL_IS_ARRAY(v)) {
        return 0;
    }

    if (v->u.array.len && YAJL_IS_ARRAY(v->u.array.values[0])) {
        v = v->u.array.values[0];
    }

    if (v->u.array.len && v->u.array.values[0]->type != yajl_t_number) {
        return 0;
    }

    a->n = v->u.array.len;

    for (i = 0; i < v->u.array.len; i++) {

        if (v->u.array.values[i]->type != yajl_t_number) {
            return -1;
        }

        s = v->u.array.values[i]->u.number.r;

        if (strspn(s, "0123456789") != strlen(s) || strlen(s) > 10
            || strtoull(s, &end, 10) > UINT32_MAX)
        {
            return -1;
        }

        a->ids[i] = (uint32_t) strtoull(s, &end, 10);
    }

    return 1;
}


static void
yajl_says(const char *body, answer_t *a)
{
    int       rc;
    char      error[256], *wrapped;
    size_t    i;
    yajl_val  tree, root;

    memset(a, 0, offsetof(answer_t, ids));

    /*
     * At the end of a text yajl takes an unfinished string for nothing, so
     * that the body has to be good in an array, too.
     */

    tree = yajl_tree_parse(body, error, sizeof(error));

    if (tree == NULL) {
        return;
    }

    yajl_tree_free(tree);

    wrapped = malloc(strlen(body) + 3);
    sprintf(wrapped, "[%s]", body);

    tree = yajl_tree_parse(wrapped, error, sizeof(error));

    free(wrapped);

    if (tree == NULL) {
        return;
    }

    if (!YAJL_IS_ARRAY(tree) || tree->u.array.len != 1) {
        yajl_tree_free(tree);
        return;
    }

    root = tree->u.array.values[0];

    a->valid = YAJL_IS_OBJECT(root) && depth_of(root) <= KVR_JSON_DEPTH;

    for (i = a->valid ? root->u.object.len : 0; i > 0; i--) {

        if (strcmp(root->u.object.keys[i - 1], "prompt") == 0) {
            rc = ids_of(root->u.object.values[i - 1], a);

            a->valid = (rc != -1);
            a->has_ids = (rc == 1);
            break;
        }
    }

    yajl_tree_free(tree);
}


static char *
random_value(char *p, unsigned depth)
{
    unsigned  i, n;

    static const char  *scalars[] = {
        "1", "0", "-1", "12345", "1.5", "1e3", "true", "false", "null",
        "4294967295", "4294967296", "1234567", "12345678", "\"s\"",
        "\"\\u0041\\n\"", "\"a longer string \\\\\"", "\"\"", "[]", "{}"
    };

    switch (depth ? rnd(6) : 5) {

    case 0:
    case 1:
        n = rnd(8) ? rnd(12) : rnd(100);
        *p++ = '[';

        for (i = 0; i < n; i++) {
            p += sprintf(p, "%s%u%s", i ? "," : "",
                         rnd(3) ? rnd(200000) : rnd(12), rnd(20) ? "" : " ");
        }

        *p++ = ']';
        return p;

    case 2:
    case 3:
        n = rnd(4);
        *p++ = '[';

        for (i = 0; i < n; i++) {
            p += sprintf(p, "%s", i ? ", " : "");
            p = random_value(p, depth - 1);
        }

        *p++ = ']';
        return p;

    case 4:
        n = rnd(3);
        *p++ = '{';

        for (i = 0; i < n; i++) {
            p += sprintf(p, "%s\"k%u\":", i ? "," : "", i);
            p = random_value(p, depth - 1);
        }

        *p++ = '}';
        return p;

    default:
        return p + sprintf(p, "%s", scalars[rnd(19)]);
    }
}


static void
random_body(char *p)
{
    unsigned  i, n;

    static const char  *keys[] = {
        "prompt", "prompt_token_ids", "input_ids", "prompt", "model",
        "cache_salt", "stream", "max_tokens", "x", "p\\u0072ompt", "messages",
        "echo", "logprobs", "prompt_logprobs", "session_params"
    };

    n = rnd(6);
    *p++ = '{';

    for (i = 0; i < n; i++) {
        p += sprintf(p, "%s\"%s\"%s", i ? "," : "", keys[rnd(15)],
                     rnd(3) ? ":" : " : ");
        p = random_value(p, 3);
    }

    strcpy(p, "}");
}


static void
mutate(char *body)
{
    char      c;
    size_t    len, at;

    static const char  alphabet[] = "{}[]\",:0123456789-+.eEtfnu\\ \n\x01";

    len = strlen(body);
    at = rnd(len + 1);
    c = alphabet[rnd(sizeof(alphabet) - 1)];

    switch (rnd(4)) {

    case 0:
        if (at < len) {
            body[at] = c;
        }

        return;

    case 1:
        if (at < len) {
            memmove(body + at, body + at + 1, len - at);
        }

        return;

    case 2:
        memmove(body + at + 1, body + at, len - at + 1);
        body[at] = c;
        return;

    default:
        body[at] = '\0';
    }
}


static void
test_fuzz(void)
{
    char      *body;
    size_t     i, bad, valid, cap;
    kvr_rc_t   rc;
    answer_t  *want;

    body = malloc(1 << 20);
    want = malloc(sizeof(answer_t));

    bad = 0;
    valid = 0;

    for (i = 0; i < FUZZ_ROUNDS; i++) {

        random_body(body);

        while (rnd(2)) {
            mutate(body);
        }

        yajl_says(body, want);

        /* the bound on the number of ids holds, and is enough */

        cap = kvr_min(strlen(body) / 2 + 1, PROMPT_MAX);
        rc = scan_n(body, strlen(body), cap);

        valid += want->valid;

        if ((rc == KVR_OK) != want->valid
            || (want->valid
                && (prompt.has_ids != want->has_ids
                    || prompt.ntokens != want->n * want->has_ids
                    || (want->has_ids
                        && memcmp(tokens, want->ids, want->n * 4) != 0))))
        {
            if (bad++ < 5) {
                note("%s", body);
                note("rc %d, %s at %zu, ids %d, n %zu; yajl: %d, ids %d, "
                     "n %zu", rc, prompt.error ? prompt.error : "-",
                     prompt.error_at, prompt.has_ids, prompt.ntokens,
                     want->valid, want->has_ids, want->n);
            }
        }
    }

    is_u64(bad, 0, "yajl says the same of %d random bodies", FUZZ_ROUNDS);
    note("%zu of them were valid", valid);

    free(want);
    free(body);
}


/* ---- a long prompt ------------------------------------------------------ */

static void
test_long(void)
{
    char             *body, *p;
    size_t            i, k, len;
    uint32_t          want;

    static const char  *separators[] = { ",", ", " };

    body = malloc(1 << 20);

    for (k = 0; k < 2; k++) {

        p = body;
        p += sprintf(p, "{\"model\":\"m\",\"prompt\":[");

        want = 0;

        for (i = 0; i < 4096; i++) {
            want = rnd(5) ? rnd(128256) : rnd(1000);
            p += sprintf(p, "%s%u", i ? separators[k] : "", want);
        }

        p += sprintf(p, "],\"max_tokens\":16,\"stream\":true}");
        len = p - body;

        read_body(body, len, PROMPT_MAX);

        ok(prompt.ntokens == 4096 && tokens[4095] == want,
           "4096 ids are read");
    }

    free(body);
}


int
main(void)
{
    test_ids();
    test_duplicates();
    test_strings();
    test_limits();
    test_errors();
    test_numbers();
    test_fuzz();
    test_long();

    return done();
}
