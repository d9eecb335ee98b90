/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Known regular expressions are matched by a table: every match is that of
 * PCRE2, which gets the same expression in a group and so does not know it.
 */


#include "token/kvr_ascii.h"
#include "token/kvr_pattern.h"

#include "tap.h"

#include <string.h>


#define PATTERN(digits)                                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits       \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define LONGEST    6            /* characters of a text */


/* of each class several; a byte, a mark, and beyond ASCII */
static const char *const  chars[] = {
    "a", "s", "L", "e", "1", "9", " ", "\n", "\t", "'", "!", "\r", "\x01",
    "\xc3\xa9", "\xc5\xbf", "\xc2\xa0", "\xd9\xa1", "\xcc\x81"
};

#define CHARS      (sizeof(chars) / sizeof(chars[0]))


static kvr_matcher_t  *matcher;
static kvr_pattern_t  *known, *unknown;
static unsigned        matches, by_table;


/* All matches of a text; false: one differs. */

static bool
same(uint32_t digits, const char *text, size_t len)
{
    size_t  at, a, b, c, d;

    for (at = 0; at < len; at = b) {

        if (kvr_pattern_match(known, matcher, text, len, at, &a, &b)
            != KVR_OK
            || kvr_pattern_match(unknown, matcher, text, len, at, &c, &d)
               != KVR_OK
            || a != c || b != d)
        {
            return false;
        }

        matches++;
        by_table += kvr_ascii_match(digits, text, len, at) != 0;
    }

    return true;
}


/* All texts of so many more characters. */

static bool
all(uint32_t digits, char *text, size_t len, unsigned more, unsigned from)
{
    size_t    n;
    unsigned  i;

    if (!same(digits, text, len)) {
        return false;
    }

    for (i = 0; more && i < from; i++) {
        n = strlen(chars[i]);
        memcpy(text + len, chars[i], n);

        if (!all(digits, text, len + n, more - 1, from)) {
            return false;
        }
    }

    return true;
}


static void
check(const char *expression, const char *group, uint32_t digits)
{
    bool      good;
    char      why[KVR_PATTERN_WHY], text[4 * LONGEST];
    unsigned  a, b, c;

    is_u64(kvr_ascii_digits(expression, strlen(expression)), digits,
           "numbers of %u digits: the expression is known", digits);
    is_u64(kvr_ascii_digits(group, strlen(group)), 0,
           "numbers of %u digits: the same in a group is not known", digits);

    known = kvr_pattern_compile(expression, strlen(expression), 0, why);
    unknown = kvr_pattern_compile(group, strlen(group), 0, why);
    matches = 0;
    by_table = 0;
    good = true;

    for (a = 0; good && a < 128; a++) {
        for (b = 0; good && b < 128; b++) {
            for (c = 0; good && c < CHARS; c++) {
                text[0] = (char) a;
                text[1] = (char) b;
                memcpy(text + 2, chars[c], strlen(chars[c]));
                good = same(digits, text, 2 + strlen(chars[c]));
            }
        }
    }

    ok(good, "numbers of %u digits: all matches of two ASCII characters and "
       "a third one are those of PCRE2", digits);

    ok(all(digits, text, 0, 4, CHARS) && all(digits, text, 0, LONGEST, 11),
       "numbers of %u digits: all matches of texts of up to %u characters are "
       "those of PCRE2", digits, LONGEST);
    ok(by_table > matches / 2, "numbers of %u digits: most of them, %u of %u, "
       "are by the table", digits, by_table, matches);

    kvr_pattern_free(known);
    kvr_pattern_free(unknown);
}


int
main(void)
{
    matcher = kvr_matcher_new();

    check(PATTERN("\\p{N}"), "(?:" PATTERN("\\p{N}") ")", 1);
    check(PATTERN("\\p{N}{1,3}"), "(?:" PATTERN("\\p{N}{1,3}") ")", 3);

    kvr_matcher_free(matcher);

    return done();
}
