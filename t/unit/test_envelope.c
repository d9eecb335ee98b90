/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv-relay's own: normalised batches and envelopes.
 */


#include "decode.h"


#define LE7   "0700000000000000"
#define LE8   "0800000000000000"


static void
test_normalised(void)
{
    size_t  i;

    static const struct {
        const char  *json;
        kvr_why_t    why;
        const char  *name;
    } bad[] = {
        { "['s', 0, 0, null, {'$bin': '07'}, {'$bin': ''}]", KVR_WHY_LENGTH,
          "handles of one byte" },
        { "['s', 0, 0, null, {'$bin': '" LE7 "'}, {'$bin': '" LE7 "00'}]",
          KVR_WHY_LENGTH, "locals of nine bytes" },
        { "['s', 0, 0, null, {'$bin': '" LE7 LE8 "'}, {'$bin': '" LE7 "'}]",
          KVR_WHY_LENGTH, "fewer locals than handles" },
        { "['s', 0, 0, null, {'$bin': ''}, {'$bin': '" LE7 "'}]",
          KVR_WHY_LENGTH, "locals without handles" },
        { "['s', 0, 4, null, {'$bin': ''}, {'$bin': ''}]", KVR_WHY_SYNTAX,
          "tier 4" },
        { "['r', 0, -1, {'$bin': ''}]", KVR_WHY_SYNTAX, "tier -1" },
        { "['r', 1024, 0, {'$bin': ''}]", KVR_WHY_RANK, "rank 1024" },
        { "['c', null]", KVR_WHY_RANK, "no rank" },
        { "['s', 0, 0, 'x', {'$bin': ''}, {'$bin': ''}]", KVR_WHY_SYNTAX,
          "a parent that is a string" },
        { "['s', 0, 0, null, [7], {'$bin': ''}]", KVR_WHY_SYNTAX,
          "handles in an array" },
        { "['s', 0, 0, null, {'$bin': ''}]", KVR_WHY_SYNTAX, "no locals" },
        { "['r', 0, 0]", KVR_WHY_SYNTAX, "no handles" },
        { "['c']", KVR_WHY_SYNTAX, "nothing but a letter" },
        { "['x', 0]", KVR_WHY_TYPE, "a letter that we don't know" },
        { "[['c'], 0]", KVR_WHY_TYPE, "no letter" },
        { "[]", KVR_WHY_TYPE, "no fields" },
        { "7", KVR_WHY_TYPE, "a number for an event" },
        { "{'c': 1}", KVR_WHY_TYPE, "a map for an event" }
    };

    char  json[512];

    decode("[['s', 2, 1, 18446744073709551615, {'$bin': '" LE7 LE8 "'}, "
           "{'$bin': '0102030405060708ffffffffffffffff'}], "
           "['s', 0, 0, null, {'$bin': '" LE7 "'}, {'$bin': '" LE7 LE8 "'}], "
           "['s', 0, 3, null, {'$bin': '" LE7 "'}, {'$bin': ''}, 'later'], "
           "['r', 1023, 2, {'$bin': '" LE8 "'}], ['c', 1]]");

    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 5
       && got.msg.counted && got.msg.form == KVR_FORM_NORMALISED,
       "a normalised batch may come without an envelope");

    ok(got.event[0].ev.kind == KVR_STORE && got.event[0].ev.rank == 2
       && got.event[0].ev.tier == KVR_HOST && got.event[0].ev.has_parent
       && got.event[0].ev.parent == UINT64_MAX
       && got.event[0].ev.nhandles == 2 && got.event[0].handles[0] == 7
       && got.event[0].handles[1] == 8 && got.event[0].ev.nlocals == 2
       && got.event[0].locals[0] == 0x0807060504030201u
       && got.event[0].locals[1] == UINT64_MAX
       && got.event[0].ev.verdict == KVR_KEEP,
       "a normalised store has all its fields, little-endian");

    ok(got.event[1].ev.nhandles == 1 && got.event[1].ev.nlocals == 2
       && !got.event[1].ev.has_parent && got.event[1].ev.verdict == KVR_KEEP,
       "locals may be a multiple of handles");

    ok(got.event[2].ev.nlocals == 0 && got.event[2].ev.tier == KVR_EXTERNAL
       && got.event[2].ev.verdict == KVR_KEEP,
       "a store that only adds a tier has no locals");

    ok(got.event[3].ev.kind == KVR_REMOVE && got.event[3].ev.rank == 1023
       && got.event[3].ev.tier == KVR_DISK && got.event[3].handles[0] == 8,
       "a normalised removal has all its fields");

    ok(got.event[4].ev.kind == KVR_CLEAR && got.event[4].ev.rank == 1,
       "a normalised clear has its rank");

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(json, sizeof(json), "[['c', 0], %s, ['c', 5]]", bad[i].json);
        decode(json);

        ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 3
           && got.event[1].ev.verdict == KVR_REFUSED
           && got.event[1].ev.why == bad[i].why
           && got.event[2].ev.verdict == KVR_KEEP && got.event[2].ev.rank == 5,
           "%s: refused, and the next event is kept", bad[i].name);
    }

    decode("[]");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 0
       && got.msg.counted, "an empty array is a batch without events");
}


static void
envelope(const char *head, const void *payload, size_t len)
{
    pack_t   out;
    size_t   n;
    uint8_t  bytes[8192];

    /* head is an array of seven whose last is cut off */

    n = pack(bytes, sizeof(bytes), head) - 1;
    out.pos = bytes + n;
    out.end = bytes + sizeof(bytes);
    pack_bin(&out, payload, len);

    decode_bytes(bytes, (size_t) (out.pos - bytes));
}


static void
test_envelopes(void)
{
    size_t       i, len;
    char         json[256];
    uint8_t      payload[1024];
    const char  *text;

    static const struct {
        const char  *json;
        kvr_why_t    why;
        const char  *name;
    } bad[] = {
        { "['kvr1', '', 1, 2, true, 0, null]", KVR_WHY_WORKER,
          "an empty worker" },
        { "['kvr1', 'a/b', 1, 2, true, 0, null]", KVR_WHY_WORKER,
          "a worker with a slash" },
        { "['kvr1', 'a b', 1, 2, true, 0, null]", KVR_WHY_WORKER,
          "a worker with a space" },
        { "['kvr1', 'a\\u00e4', 1, 2, true, 0, null]", KVR_WHY_WORKER,
          "a worker with a letter beyond ASCII" },
        { "['kvr1', 7, 1, 2, true, 0, null]", KVR_WHY_WORKER,
          "a worker that is a number" },
        { "['kvr1', 'a123456789a123456789a123456789a123456789a123456789"
          "a123456789abcd', 1, 2, true, 0, null]", KVR_WHY_WORKER,
          "a worker of 64 bytes" },
        { "['kvr1', 'a', -1, 2, true, 0, null]", KVR_WHY_SYNTAX,
          "an epoch below zero" },
        { "['kvr1', 'a', 1, 2.5, true, 0, null]", KVR_WHY_SYNTAX,
          "a seq that is a float" },
        { "['kvr1', 'a', 1, 2, 1, 0, null]", KVR_WHY_SYNTAX,
          "complete that is a number" },
        { "['kvr1', 'a', 1, 2, true, 1024, null]", KVR_WHY_RANK,
          "rank 1024" },
        { "['kvr1', 'a', 1, 2, true, 'x', null]", KVR_WHY_RANK,
          "a rank that is a string" },
        { "['kvr1', 'a', 1, 2, true, 0, 'text']", KVR_WHY_SYNTAX,
          "a payload that is a string" },
        { "['kvr1', 'a', 1, 2, true, 0, [['c', 0]]]", KVR_WHY_SYNTAX,
          "a payload that is an array" },
        { "['kvr1', 'a', 1, 2, true, 0]", KVR_WHY_SYNTAX, "no payload" },
        { "['kvr1', 'a', 1, 2, true, 0, {'$bin': ''}]", KVR_WHY_SYNTAX,
          "an empty payload" },
        { "['kvr1', 'a', 1, 2, true, 0, {'$bin': '05'}]", KVR_WHY_SYNTAX,
          "a payload that is no batch" },
        { "['kvr1', 'a', 1, 2, true, 0, {'$bin': '91a46b767231'}]",
          KVR_WHY_SYNTAX, "an envelope in an envelope" },
        { "['kvr2', 'a', 1, 2, true, 0, null]", KVR_WHY_SYNTAX,
          "another version's name" },
        { "['kvr', 'a', 1, 2, true, 0, null]", KVR_WHY_SYNTAX,
          "a name without a version" },
        { "['kvr1x', 'a', 1, 2, true, 0, null]", KVR_WHY_SYNTAX,
          "a name that is longer" },
        { "['kvr123456789', 'a']", KVR_WHY_SYNTAX, "a version too long" }
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        decode(bad[i].json);

        ok(got.opened == KVR_INVALID && got.why == bad[i].why
           && got.detail[0] != '\0', "%s: the envelope is refused",
           bad[i].name);
    }

    decode("['kvr12345678']");
    ok(got.opened == KVR_INVALID && got.msg.form != KVR_FORM_ENVELOPE
       && strcmp(got.detail, "an envelope of version \"kvr12345678\", and this "
                 "router reads \"kvr1\": upgrade the router") == 0,
       "another version: both are named");

    decode("['kvr1', 'a123456789a123456789a123456789a123456789a123456789"
           "a.B_c:9-XYZ01', 18446744073709551615, 12, false, null, null]");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 0
       && got.msg.form == KVR_FORM_ENVELOPE && got.msg.heartbeat
       && got.msg.epoch == UINT64_MAX && got.msg.seq == 12
       && !got.msg.complete && got.msg.worker_len == 63
       && strncmp(got.worker, "a123456789", 10) == 0,
       "a heartbeat has no events; every character of an id may be used");

    text = "['kvr1', 'w:1', 5, 6, true, 9, null]";

    len = pack(payload, sizeof(payload), "[['c', 1], ['r', 0, 0, "
               "{'$bin': '" LE7 "'}]]");
    envelope(text, payload, len);
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 2
       && got.msg.form == KVR_FORM_ENVELOPE && got.msg.counted
       && !got.msg.heartbeat && got.msg.complete && got.msg.epoch == 5
       && got.msg.seq == 6 && strcmp(got.worker, "w:1") == 0
       && got.event[0].ev.rank == 1 && got.event[1].ev.rank == 0
       && got.event[1].handles[0] == 7,
       "an envelope with a normalised batch");

    len = pack(payload, sizeof(payload), "[]");
    envelope(text, payload, len);
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 0
       && !got.msg.heartbeat && got.msg.counted,
       "an envelope with an empty batch is no heartbeat");

    len = pack(payload, sizeof(payload),
               "[1.5, [['BlockRemoved', [7]], {'type': 'BlockRemoved', "
               "'block_hashes': [8], 'dp_rank': 2}]]");
    envelope(text, payload, len);
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 2
       && got.msg.form == KVR_FORM_ENVELOPE && !got.msg.counted
       && got.event[0].ev.rank == 9 && got.event[1].ev.rank == 2,
       "an envelope with an engine's batch: its rank is the last resort");

    len = pack(payload, sizeof(payload),
               "[1.5, [['BlockRemoved', [7]]], 3]");
    envelope(text, payload, len);
    ok(got.n == 1 && got.event[0].ev.rank == 3,
       "a batch's rank goes before the envelope's");

    snprintf(json, sizeof(json), " \n%s", "{\"worker_id\":7,\"event\":{"
             "\"event_id\":1,\"data\":\"cleared\"}}");
    envelope(text, json, strlen(json));
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 1
       && got.msg.form == KVR_FORM_ENVELOPE && got.msg.counted
       && got.event[0].ev.kind == KVR_CLEAR && got.event[0].ev.rank == 9
       && strcmp(got.event[0].worker, "7") == 0,
       "an envelope with a RouterEvent");

    decode("['kvr1', 'a', 1, 2, true, 0, null, {'later': [1]}]");
    ok(got.opened == KVR_OK && got.msg.heartbeat,
       "an envelope may be longer");

    decode("{'$hex': '97a46b767231a1610102c3c0c000'}");
    ok(got.opened == KVR_INVALID, "bytes after an envelope are an error");
}


int
main(void)
{
    decoder = kvr_decoder_create();

    test_normalised();
    test_envelopes();

    kvr_decoder_destroy(decoder);

    return done();
}
