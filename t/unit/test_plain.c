/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The plain text of prompts: the same for the same words however they are
 * written, and going on where a chat goes on.
 */


#include <stdlib.h>

#include "wire/kvr_plain.h"
#include "tap.h"


#define ENTRIES  256
#define TEXT     1024


static kvr_tape_entry_t  entries[ENTRIES];
static uint32_t          ids[ENTRIES];
static char              text[TEXT];


/* Writes to a buffer of its own, so that a write beyond its end is seen. */

static size_t
plain(const char *body, kvr_form_t form, size_t size)
{
    char        *out;
    size_t       n;
    kvr_tape_t   t;

    memset(&t, 0, sizeof(t));
    kvr_tape_init(&t, entries, ENTRIES, ids, ENTRIES);

    if (kvr_tape_scan(&t, body, strlen(body)) != KVR_OK) {
        printf("# %s at %zu\n", t.error, t.error_at);
        return SIZE_MAX;
    }

    out = malloc(size ? size : 1);
    n = kvr_plain_text(&t, form, out, size);
    memcpy(text, out, n);
    text[n] = '\0';
    free(out);

    return n;
}


static void
is(const char *body, kvr_form_t form, const char *want, const char *what)
{
    size_t  n;

    n = plain(body, form, strlen(body));

    if (!ok(n == strlen(want) && strcmp(text, want) == 0, "%s", what)) {
        printf("# %zu bytes: %s\n", n, text);
    }
}


static void
forms(void)
{
    is("{\"prompt\":\"a\\nb\\u0063\"}", KVR_FORM_COMPLETIONS, "a\nbc",
       "a completion is its prompt");
    is("{\"prompt\":[\"first\",\"second\"]}", KVR_FORM_COMPLETIONS, "first",
       "of several the first");
    is("{\"text\":\"t\",\"prompt\":\"p\"}", KVR_FORM_SGLANG_GENERATE, "t",
       "SGLang's text");
    is("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
       KVR_FORM_CHAT, "\x1e" "user\x1fHi", "a chat has roles and contents");
    is("{\"messages\":[{\"content\":\"Hi\",\"role\":\"user\"}]}",
       KVR_FORM_CHAT, "\x1e" "user\x1fHi", "in one order");
    is("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
       "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]}",
       KVR_FORM_CHAT, "\x1e" "user\x1f" "ab", "texts of parts are one");
    is("{\"messages\":[{\"role\":\"user\",\"content\":[{\"image\":1}]}]}",
       KVR_FORM_CHAT, "\x1e" "user\x1f{\"image\":1}",
       "what is no text, is as it stands");
    is("{\"messages\":[{\"role\":\"tool\",\"content\":null,\"name\":\"f\"}]}",
       KVR_FORM_CHAT, "\x1e" "tool\x1fname\x1f" "f", "a message has fields");
    is("{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}],"
       "\"system\":\"a\"}", KVR_FORM_MESSAGES,
       "\x1e" "a\x1e" "user\x1f" "b", "the system's words come first");
    is("{\"input\":\"a\",\"instructions\":\"i\"}", KVR_FORM_RESPONSES,
       "\x1e" "i\x1e" "a", "a response has an input");
    is("{\"messages\":[{\"role\":\"u\",\"content\":\"b\"}],\"tools\":[{}]}",
       KVR_FORM_CHAT, "\x1e{}\x1eu\x1f" "b", "tools come before");
    is("{\"prompt\":[1,2,3]}", KVR_FORM_COMPLETIONS, "", "ids are no text");
    is("{\"prompt\":\"a\"}", KVR_FORM_CHAT, "", "nor is another form's");
    is("{\"prompt\":\"a\"}", KVR_FORM_UNKNOWN, "", "nor one not known");
    is("[1]", KVR_FORM_CHAT, "", "nor is no object");
}


static void
grows(void)
{
    char    first[TEXT];
    size_t  n;

    n = plain("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
              KVR_FORM_CHAT, TEXT);
    memcpy(first, text, n);

    (void) plain("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
                 "{\"role\":\"assistant\",\"content\":\"Yes\"}]}",
                 KVR_FORM_CHAT, TEXT);

    ok(memcmp(first, text, n) == 0 && strcmp(text + n,
                                             "\x1e" "assistant\x1fYes") == 0,
       "a chat that goes on begins as before");
}


static void
bounds(void)
{
    size_t  n;
    bool    whole;

    whole = true;

    for (n = 0; n < 12; n++) {
        whole = whole
                && plain("{\"messages\":[{\"role\":\"user\",\"content\":"
                         "\"Hi you\"}]}", KVR_FORM_CHAT, n) == n
                && memcmp(text, "\x1e" "user\x1fHi you", n) == 0;
    }

    ok(whole, "a buffer that is too small has the beginning");
}


int
main(void)
{
    forms();
    grows();
    bounds();

    return done();
}
