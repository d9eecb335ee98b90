/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The messages of routers: written, read, and refused.
 */


#include "pack.h"
#include "tap.h"

#include "sync/kvr_sync.h"


#define HEAD  "'v': 1, 'r': 7, 'p': 3, 'n': 9, 'c': 123456"


static kvr_sync_writer_t   writer;
static kvr_sync_message_t  got;


static kvr_sync_message_t
header(void)
{
    kvr_sync_message_t  m;

    memset(&m, 0, sizeof(m));
    m.router = UINT64_C(0xfedcba9876543210);
    m.process = 123456;
    m.number = 1000000;
    m.clock_us = UINT64_C(1) << 40;

    return m;
}


static kvr_sync_add_t
an_add(uint32_t id, uint32_t n)
{
    uint32_t        i;
    kvr_sync_add_t  add;

    memset(&add, 0, sizeof(add));
    add.id = id;
    add.row = UINT64_MAX - id;
    add.n = n;

    for (i = 0; i < n; i++) {
        add.chains[i] = (UINT64_C(0x0000a1b2c3d4e5f6) * (i + 1))
                        & ((UINT64_C(1) << 48) - 1);
    }

    return add;
}


static kvr_sync_row_t
a_row(int64_t n)
{
    return (kvr_sync_row_t) { (uint64_t) n + 1, n, n + 2, n + 3, n + 4,
                              n + 5 };
}


static kvr_rc_t
reread(void)
{
    return kvr_sync_read(writer.bytes, kvr_sync_finish(&writer), &got);
}


/* What is written in JSON, see pack.h. */

static kvr_rc_t
said(const char *json)
{
    uint8_t  bytes[3 * KVR_SYNC_MAX];

    return kvr_sync_read((char *) bytes, pack(bytes, sizeof(bytes), json),
                         &got);
}


static void
test_round_trip(void)
{
    bool                same;
    size_t              len, cut, whole;
    uint32_t            i, id;
    char               *part;
    kvr_sync_add_t      add, want;
    kvr_sync_row_t      row, wanted;
    kvr_sync_message_t  m;

    m = header();
    m.full = true;
    m.epoch = UINT64_MAX;
    m.part = 1023;
    m.parts = 1024;
    m.share = 16;
    m.uncached = 1000000;
    m.leaving = true;
    m.again = 42;
    m.bye = true;
    memset(m.name, '~', KVR_PEERS_NAME_MAX);
    strcpy(m.version, "0.1.0 and later");

    kvr_sync_begin(&writer, &m);

    for (i = 0; i < 100; i++) {
        row = a_row((int64_t) i << 20);
        (void) kvr_sync_put_row(&writer, &row);
    }

    for (i = 0; i <= KVR_FLIGHT_SAMPLES / 4; i++) {
        add = an_add(i, i * 4);
        (void) kvr_sync_put_add(&writer, &add);
    }

    for (i = 0; i < 300; i++) {
        (void) kvr_sync_put_end(&writer, UINT32_MAX - i);
    }

    ok(reread() == KVR_OK, "what was written can be read");

    ok(got.router == m.router && got.process == m.process
       && got.number == m.number && got.clock_us == m.clock_us,
       "the sender, the number and the clock come through");

    ok(got.full && got.epoch == m.epoch && got.part == m.part
       && got.parts == m.parts && got.share == 16 && got.leaving
       && got.uncached == m.uncached && strcmp(got.name, m.name) == 0
       && strcmp(got.version, m.version) == 0,
       "what a full message has, too");

    ok(got.again == 42 && got.bye, "and again and bye");

    ok(got.left[KVR_SYNC_ROWS] == 100 && got.left[KVR_SYNC_ADDS] == 9
       && got.left[KVR_SYNC_ENDS] == 300,
       "rows, adds and ends are counted");

    for (i = 0, same = true; kvr_sync_row_next(&got, &row); i++) {
        wanted = a_row((int64_t) i << 20);
        same &= memcmp(&row, &wanted, sizeof(row)) == 0;
    }

    ok(same && i == 100 && got.left[KVR_SYNC_ROWS] == 0,
       "each row is the same");

    for (i = 0, same = true; kvr_sync_add_next(&got, &add); i++) {
        want = an_add(i, i * 4);
        same &= add.id == i && add.row == want.row && add.n == want.n
                && memcmp(add.chains, want.chains, add.n * 8) == 0;
    }

    ok(same && i == 9, "each add is the same, with its chains");

    for (i = 0, same = true; kvr_sync_end_next(&got, &id); i++) {
        same &= id == UINT32_MAX - i;
    }

    ok(same && i == 300, "each end is the same");

    whole = kvr_sync_finish(&writer);

    for (cut = 0, len = 0; len < whole; len++) {
        part = malloc(len + 1);
        memcpy(part, writer.bytes, len);
        cut += kvr_sync_read(part, len, &got) == KVR_INVALID;
        free(part);
    }

    is_u64(cut, whole, "a message that is cut anywhere is refused");
}


static void
test_empty(void)
{
    kvr_sync_row_t      row;
    kvr_sync_message_t  m;

    m = header();
    kvr_sync_begin(&writer, &m);
    is_u64(kvr_sync_finish(&writer), 0, "a header alone is no message");

    m.alive = true;
    kvr_sync_begin(&writer, &m);
    ok(kvr_sync_finish(&writer) <= 48 && reread() == KVR_OK
       && got.router == m.router && !got.full && !got.bye && got.again == 0
       && !kvr_sync_row_next(&got, &row),
       "unless it says that its sender is alive");

    m = header();
    m.bye = true;
    kvr_sync_begin(&writer, &m);
    ok(reread() == KVR_OK && got.bye, "a bye is a message");

    m = header();
    m.again = 1;
    kvr_sync_begin(&writer, &m);
    ok(reread() == KVR_OK && got.again == 1 && !got.bye,
       "and so is a question for a full one");

    row = a_row(-7);
    row.row = 1;
    kvr_sync_begin(&writer, &m);
    (void) kvr_sync_put_row(&writer, &row);
    ok(reread() == KVR_OK && kvr_sync_row_next(&got, &row) && row.active == 0
       && row.decode_blocks == 0, "nothing below zero is told");
}


static void
test_sizes(void)
{
    size_t              empty, len;
    uint32_t            n;
    kvr_sync_add_t      add;
    kvr_sync_row_t      row;
    kvr_sync_message_t  m;

    /* a request of 4,096 tokens: told alone */

    m = header();
    add = an_add(1000000, KVR_FLIGHT_SAMPLES);
    row = (kvr_sync_row_t) { UINT64_MAX, 40, 3, 12288, 150, 60000 };

    kvr_sync_begin(&writer, &m);
    empty = writer.len;
    (void) kvr_sync_put_row(&writer, &row);
    (void) kvr_sync_put_add(&writer, &add);
    (void) kvr_sync_put_end(&writer, 1000000);
    len = kvr_sync_finish(&writer);

    note("a request with its row and its end: %zu bytes, %zu of the header",
         len, empty);
    ok(len <= 310, "a request's add, row and end have 300 bytes");
    ok(empty <= 48, "of which the header has a sixth");

    /* as many as there is room for, and no more */

    for (n = 0; kvr_sync_put_row(&writer, &row); n++) { /* void */ }
    for ( /* void */ ; kvr_sync_put_add(&writer, &add); n++) { /* void */ }

    len = kvr_sync_finish(&writer);

    ok(!kvr_sync_put_add(&writer, &add) && kvr_sync_finish(&writer) == len,
       "what there is no room for leaves the message as it was");

    kvr_sync_begin(&writer, &m);

    for (n = 0; kvr_sync_put_row(&writer, &row); n++) { /* void */ }

    len = kvr_sync_finish(&writer);
    ok(len <= KVR_SYNC_MAX && len > KVR_SYNC_MAX - 32 && n > 300,
       "a message has room for %u rows", n);
    ok(!kvr_sync_put_add(&writer, &add), "and then for no add");
    ok(reread() == KVR_OK && got.left[KVR_SYNC_ROWS] == n
       && got.left[KVR_SYNC_ADDS] == 0,
       "a full message can be read");

    while (kvr_sync_put_end(&writer, 1)) { /* void */ }

    ok(reread() == KVR_OK && got.left[KVR_SYNC_ROWS] == n
       && got.left[KVR_SYNC_ADDS] == 0
       && writer.len <= KVR_SYNC_MAX,
       "with ends in the bytes that were left, too");
}


static void
test_clamped(void)
{
    kvr_sync_row_t  row;

    ok(said("{" HEAD ", 'l': [[5, -1, 18446744073709551615, 1099511627777, "
            "1099511627776, 3, 'later']]}") == KVR_OK
       && kvr_sync_row_next(&got, &row) && row.active == 0
       && row.prefills == KVR_SYNC_MOST && row.prefill_tokens == KVR_SYNC_MOST
       && row.age_ms == KVR_SYNC_MOST && row.decode_blocks == 3,
       "counts are clamped to 0..2^40");

    ok(said("{" HEAD ", 'f': [1, 0, 1, 17, -5, false, 'a', 'b', [9]]}")
       == KVR_OK && got.share == 16 && got.uncached == 0,
       "a share is 16 sixteenths at most");
}


static void
test_unknown(void)
{
    size_t   len;
    uint8_t  bytes[256];

    ok(said("{'x': [[1], {'y': 2.5}], " HEAD ", 'later': null, 'b': true, "
            "'e': [4]}") == KVR_OK && got.bye && got.left[KVR_SYNC_ENDS] == 1,
       "unknown keys are skipped");

    len = pack(bytes, sizeof(bytes), "{" HEAD ", 'b': true}");
    bytes[0] += 2;                      /* pairs of the map */
    len += unhex(bytes + len, "0790" "9101c0");
    ok(kvr_sync_read((char *) bytes, len, &got) == KVR_OK && got.bye,
       "and keys that are no texts");

    bytes[0]++;
    bytes[len++] = 0x91;
    ok(kvr_sync_read((char *) bytes, len, &got) == KVR_INVALID,
       "but a broken key is refused");

    bytes[0]--;
    ok(kvr_sync_read((char *) bytes, len, &got) == KVR_INVALID,
       "and so are bytes behind the map");
}


static void
test_refused(void)
{
    size_t  i;
    char    json[1024];

    static const struct {
        const char  *json;
        const char  *name;
    } bad[] = {
        { "[1]", "an array" },
        { "{}", "an empty map" },
        { "{'r': 7, 'p': 3, 'n': 9, 'c': 1}", "no version" },
        { "{'v': 2, 'r': 7, 'p': 3, 'n': 9, 'c': 1}", "another version" },
        { "{'v': 1, 'p': 3, 'n': 9, 'c': 1}", "no router" },
        { "{'v': 1, 'r': 0, 'p': 3, 'n': 9, 'c': 1}", "router 0" },
        { "{'v': 1, 'r': -7, 'p': 3, 'n': 9, 'c': 1}", "router -7" },
        { "{'v': 1, 'r': 7, 'n': 9, 'c': 1}", "no process" },
        { "{'v': 1, 'r': 7, 'p': 4294967296, 'n': 9, 'c': 1}",
          "a process of 33 bits" },
        { "{'v': 1, 'r': 7, 'p': 3, 'n': 0, 'c': 1}", "number 0" },
        { "{'v': 1, 'r': 7, 'p': 3, 'n': 4611686018427387904, 'c': 1}",
          "a number of 63 bits" },
        { "{'v': 1, 'r': 7, 'p': 3, 'n': 9, 'c': 18446744073709551615}",
          "a clock of 64 bits" },
        { "{'v': 1, 'r': 7, 'p': 3, 'n': 9, 'c': 1.5}",
          "a clock with a point" },
        { "{'v': 1, 'r': 7, 'p': 3, 'n': 9}", "no clock" },
        { "{" HEAD ", 'r': 8}", "two routers" },
        { "{" HEAD ", 'b': 1}", "a bye that is a number" },
        { "{" HEAD ", 'g': 'x'}", "again with a text" },
        { "{" HEAD ", 'l': 5}", "a load that is a number" },
        { "{" HEAD ", 'l': {'a': 1}}", "a load that is a map" },
        { "{" HEAD ", 'l': [5]}", "a row that is a number" },
        { "{" HEAD ", 'l': [[5, 1, 1, 1, 1]]}", "a short row" },
        { "{" HEAD ", 'l': [[0, 1, 1, 1, 1, 1]]}", "row 0" },
        { "{" HEAD ", 'l': [[5, 1, 1, 1.5, 1, 1]]}",
          "a row with a point" },
        { "{" HEAD ", 'l': [[5, 1, 1, [1], 1, 1]]}",
          "a row with an array" },
        { "{" HEAD ", 'l': [[5, 1, 1, 1, 1, 1], [6]]}",
          "a good row before a bad one" },
        { "{" HEAD ", 'a': [[1, 5]]}", "an add without chains" },
        { "{" HEAD ", 'a': [[1, 5, 'aaaaaa']]}",
          "chains that are a text" },
        { "{" HEAD ", 'a': [[1, 5, {'$bin': '0102030405'}]]}",
          "chains of five bytes" },
        { "{" HEAD ", 'a': [[1, 0, {'$bin': '010203040506'}]]}",
          "an add of row 0" },
        { "{" HEAD ", 'a': [[4294967296, 5, {'$bin': '010203040506'}]]}",
          "an add with a long id" },
        { "{" HEAD ", 'e': [1, -1]}", "an end below zero" },
        { "{" HEAD ", 'e': [[1]]}", "an end that is an array" },
        { "{" HEAD ", 'f': [1, 0, 1, 1, 1, false, 'a']}",
          "a full message without a version" },
        { "{" HEAD ", 'f': [1, 0, 0, 1, 1, false, 'a', 'b']}",
          "no parts" },
        { "{" HEAD ", 'f': [1, 1, 1, 1, 1, false, 'a', 'b']}",
          "part 1 of 1" },
        { "{" HEAD ", 'f': [1, 0, 1025, 1, 1, false, 'a', 'b']}",
          "1025 parts" },
        { "{" HEAD ", 'f': [1, 0, 1, 1, 1, 0, 'a', 'b']}",
          "leaving that is a number" },
        { "{" HEAD ", 'f': [1, 0, 1, 1, 1, false, 'a\\n', 'b']}",
          "a name of two lines" },
        { "{" HEAD ", 'f': [1, 0, 1, 1, 1, false, 'a', '\\u00e4']}",
          "a version beyond ASCII" },
        { "{" HEAD ", 'f': [1, 0, 1, 1, 1, false, 'a', '0123456789abcdef']}",
          "a version of 16 bytes" },
        { "{" HEAD ", 'f': [1, 0, 1, 1, 1, false, 'aaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'b']}",
          "a name of 64 bytes" },
        { "{" HEAD ", 'z': {'$hex': 'c1'}}", "a byte that is no msgpack" }
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ok(said(bad[i].json) == KVR_INVALID, "%s: refused", bad[i].name);
    }

    memset(json, 0, sizeof(json));
    strcpy(json, "{" HEAD ", 'a': [[1, 5, {'$bin': '");
    memset(json + strlen(json), '1', (KVR_FLIGHT_SAMPLES + 1) * 12);
    strcat(json, "'}]]}");
    ok(said(json) == KVR_INVALID, "34 chains: refused");
}


static void
test_long(void)
{
    char  *json;

    /* as long as may be, and a byte more */

    json = calloc(1, 2 * KVR_SYNC_MAX);
    strcpy(json, "{" HEAD ", 'x': '");
    memset(json + strlen(json), 'x', KVR_SYNC_MAX - 25);
    strcat(json, "'}");
    ok(said(json) == KVR_OK, "a message of 8192 bytes is read");

    strcpy(strrchr(json, '\''), "x'}");
    ok(said(json) == KVR_INVALID, "a longer one is not");

    free(json);
}


static void
test_names(void)
{
    char          hash[5][17];
    uint32_t      i, k, same;
    kvr_params_t  params;

    ok(kvr_sync_row("w1", 2, 0) == kvr_sync_row("w1", 2, 0)
       && kvr_sync_row("w1", 2, 0) != kvr_sync_row("w1", 2, 1)
       && kvr_sync_row("w1", 2, 0) != kvr_sync_row("w2", 2, 0),
       "each rank of each worker has a row");

    memset(&params, 0, sizeof(params));
    params.block_size = 16;
    strcpy(params.model, "m");

    (void) kvr_sync_channel_hash(&params, NULL, 0, hash[0]);
    (void) kvr_sync_channel_hash(&params, "key", 3, hash[1]);
    params.block_size = 32;
    (void) kvr_sync_channel_hash(&params, NULL, 0, hash[2]);
    params.eagle = true;
    (void) kvr_sync_channel_hash(&params, NULL, 0, hash[3]);
    params.model[0] = 'n';
    (void) kvr_sync_channel_hash(&params, NULL, 0, hash[4]);

    for (i = 0, same = 0; i < 5; i++) {
        for (k = 0; k < i; k++) {
            same += strcmp(hash[i], hash[k]) == 0;
        }
    }

    is_u64(same, 0, "another model, block size or key: another channel");
    is_u64(strspn(hash[0], "0123456789abcdef"), 16,
           "a channel has 16 hexadecimal digits");

    params.max_workers = 7;
    (void) kvr_sync_channel_hash(&params, "", 0, hash[0]);
    ok(strcmp(hash[0], hash[4]) == 0,
       "an empty key is none, and other parameters do not count");
}


static void
test_load(void)
{
    int64_t             ages[3];
    uint32_t            i;
    kvr_sync_row_t      row;
    kvr_sync_message_t  m;

    const uint64_t  begun[3] = { 0, 700, 1001 };

    m = header();
    kvr_sync_begin(&writer, &m);

    for (i = 0; i < 3; i++) {
        (void) kvr_sync_put_load(&writer, 7, &(kvr_load_row_t) {
                                     9, 1, 2, 3, 4, begun[i], 800 }, 1000);
    }

    ok(reread() == KVR_OK && got.left[KVR_SYNC_ROWS] == 3,
       "loads are told as rows");

    for (i = 0; i < 3 && kvr_sync_row_next(&got, &row); i++) {
        ages[i] = row.age_ms;
    }

    ok(i == 3 && row.row == 7 && row.active == 1 && row.prefills == 2
       && row.prefill_tokens == 3 && row.decode_blocks == 4,
       "with all their numbers");
    ok(i == 3 && ages[0] == 0 && ages[1] == 300 && ages[2] == 0,
       "a prefill that another process began a moment ago has no age");
}


int
main(void)
{
    test_load();
    test_round_trip();
    test_empty();
    test_sizes();
    test_clamped();
    test_unknown();
    test_refused();
    test_long();
    test_names();

    return done();
}
