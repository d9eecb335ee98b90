/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Texts that grow up to a bound, and strings as Python sees them.
 */


#include "token/kvr_string.h"
#include "token/kvr_text.h"

#include "tap.h"


#define ROUNDS   20000
#define LENGTH   40


static uint64_t  seed = 20261122;


static uint32_t
draw(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;

    return (uint32_t) (seed >> 33) % n;
}


static bool
text_is(const kvr_text_t *t, const char *wanted)
{
    return t->len == strlen(wanted) && memcmp(t->data, wanted, t->len) == 0;
}


static bool
json_is(const char *s, size_t len, bool ascii, const char *wanted)
{
    bool        good;
    kvr_text_t  t;

    kvr_text_init(&t, 1 << 20);

    good = kvr_text_append_json(&t, s, len, ascii) == KVR_OK
           && text_is(&t, wanted);

    kvr_text_free(&t);

    return good;
}


static void
texts(void)
{
    size_t      i;
    kvr_text_t  t;

    kvr_text_init(&t, 10);

    ok(kvr_text_append(&t, "", 0) == KVR_OK && t.len == 0,
       "nothing can be appended to nothing");
    ok(kvr_text_append(&t, "12345", 5) == KVR_OK
       && kvr_text_append(&t, "67890", 5) == KVR_OK
       && text_is(&t, "1234567890"), "a text is as long as its bound");
    ok(kvr_text_append(&t, "x", 1) == KVR_FULL && text_is(&t, "1234567890"),
       "what goes beyond the bound is refused, and nothing is lost");
    ok(kvr_text_append(&t, "x", SIZE_MAX) == KVR_FULL,
       "a length that overflows is refused");

    kvr_text_cut(&t, 3);
    ok(text_is(&t, "123"), "a text can be cut");
    kvr_text_cut(&t, 7);
    ok(text_is(&t, "123"), "and is not made longer by that");

    kvr_text_reset(&t, 3);
    ok(t.len == 0 && kvr_text_append(&t, "1234", 4) == KVR_FULL,
       "an emptied text has the new bound");

    kvr_text_reset(&t, 16u << 20);

    for (i = 0; i < 5u << 20; i += 16) {
        if (kvr_text_append(&t, "0123456789abcdef", 16) != KVR_OK) {
            break;
        }
    }

    ok(t.len == 5u << 20 && memcmp(t.data + t.len - 16, "0123456789abcdef", 16)
                            == 0, "a text grows to some MB");

    kvr_text_reset(&t, 16u << 20);
    ok(t.cap == 0, "and gives so much memory back");

    kvr_text_free(&t);

    ok(json_is("", 0, false, "\"\"")
       && json_is("plain \303\251\177", 9, false, "\"plain \303\251\177\""),
       "JSON: what needs no escape is copied");
    ok(json_is("a\"\\\n\r\t\b\f\001", 9, false,
               "\"a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\""),
       "JSON: escapes are those of Python");
    ok(json_is("\0", 1, false, "\"\\u0000\""), "JSON: a zero byte");
    ok(json_is("\303\251\342\202\254\360\237\230\200\177", 10, true,
               "\"\\u00e9\\u20ac\\ud83d\\ude00\\u007f\""),
       "JSON: in ASCII, with pairs of surrogates");

    kvr_text_init(&t, 5);
    ok(kvr_text_append_json(&t, "1234", 4, false) == KVR_FULL && t.len == 0,
       "JSON: the bound holds for the quotes, too");
    kvr_text_free(&t);
}


/* ---- against the simplest way ------------------------------------------- */

static const char *const  pieces[] = {
    "a", "b", " ", "\n", "\x1c", "\302\205", "\302\240", "\303\251",
    "\342\200\200", "\342\200\213", "\343\200\200", "\341\232\200",
    "\360\237\230\200", "\342\200\250", "\0"
};

/* which of them are white space */
static const bool  space[] = {
    false, false, true, true, true, true, true, false,
    true, false, true, true, false, true, false
};


/* and which of them end a line */
static const bool  line_end[] = {
    false, false, false, true, true, true, false, false,
    false, false, false, false, false, true, false
};


static void
strings(void)
{
    char      s[4 * LENGTH + 1];
    bool      chars, offsets, wide, odd, left, right, found, last, next, lines;
    size_t    at[LENGTH + 1], len, i, from, to, got, part, part_len;
    uint32_t  n, kind[LENGTH], round;

    chars = offsets = wide = odd = left = right = found = last = true;
    next = lines = true;

    for (round = 0; round < ROUNDS; round++) {
        n = draw(LENGTH);
        len = 0;

        for (i = 0; i < n; i++) {
            kind[i] = draw(round % 2 ? 6 : sizeof(space));
            at[i] = len;

            /* the last piece is a zero byte */

            part_len = strlen(pieces[kind[i]]);
            part_len += (part_len == 0);
            memcpy(s + len, pieces[kind[i]], part_len);
            len += part_len;
        }

        at[n] = len;

        chars = chars && kvr_string_chars(s, len) == n;

        for (i = 0; i <= n; i++) {
            offsets = offsets && kvr_string_offset(s, len, i) == at[i];
        }

        offsets = offsets && kvr_string_offset(s, len, n + 3) == len;

        for (i = 0; i < len && (unsigned char) s[i] < 0x80; i++) { }
        wide = wide && kvr_string_wide(s, len) == i;

        for (i = 0; i < len && s[i] >= 0x20 && s[i] < 0x7f; i++) { }
        odd = odd && kvr_string_odd(s, len) == i;

        for (from = 0; from < n && space[kind[from]]; from++) { }
        left = left && kvr_string_lstrip(s, len) == at[from];

        for (to = n; to > 0 && space[kind[to - 1]]; to--) { }
        right = right && kvr_string_rstrip(s, len) == at[to];

        from = n ? draw(n) : 0;
        for (to = from; to < n && !space[kind[to]]; to++) { }
        next = next && kvr_string_space_at(s, len, at[from]) == at[to];

        for (to = from; to < n && !line_end[kind[to]]; to++) { }
        lines = lines && kvr_string_line_end(s, len, at[from]) == at[to];

        part = len ? draw((uint32_t) len) : 0;
        part_len = draw((uint32_t) (len - part) + 1);

        for (i = 0; memcmp(s + i, s + part, part_len) != 0; i++) { }
        found = found
                && kvr_string_find(s, len, s + part, part_len, 0) == i;

        for (i = len - part_len; memcmp(s + i, s + part, part_len) != 0; i--)
        { }
        last = last && kvr_string_rfind(s, len, s + part, part_len) == i;
    }

    ok(chars, "characters are counted");
    ok(offsets, "the offset of each character is found");
    ok(wide, "the first byte beyond ASCII is found");
    ok(odd, "so is what repr() looks at");
    ok(left, "white space at the start is measured");
    ok(right, "and at the end");
    ok(next, "the next white space is found");
    ok(lines, "so is the end of a line");
    ok(found, "the first place of a part is found");
    ok(last, "and its last place");

    memset(s, 'a', sizeof(s));
    got = kvr_string_find(s, 10, "b", 1, 0);
    ok(got == KVR_STRING_NONE && kvr_string_rfind(s, 10, "b", 1) == got
       && kvr_string_find(s, 10, "aaaaaaaaaaa", 11, 0) == got
       && kvr_string_find(s, 10, "a", 1, 11) == got
       && kvr_string_rfind(s, 3, "aaaa", 4) == got,
       "what is not there is not found");
    ok(kvr_string_find(s, 10, "", 0, 10) == 10
       && kvr_string_rfind(s, 10, "", 0) == 10, "nothing is found at the end");
}


int
main(void)
{
    texts();
    strings();

    return done();
}
