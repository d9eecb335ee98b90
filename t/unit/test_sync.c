/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The messages of routers: written, read, and refused.
 */


#include "pack.h"
#include "tap.h"

#include "sync/kvr_sync.h"


#define HEAD   "[1, 7, 3, 123456, "
#define ABOUT  "[4, 5, false, 'a', 'b']"
#define LARGE  (4 * KVR_SYNC_MAX)


static kvr_sync_message_t  m;           /* what is written */
static kvr_sync_message_t  got;
static char                bytes[KVR_SYNC_MAX];
static size_t              len;


static void
header(void)
{
    memset(&m, 0, sizeof(m));
    m.router = UINT64_C(0xfedcba9876543210);
    m.process = 123456;
    m.clock_us = UINT64_C(1) << 40;
}


static void
add(uint32_t id, uint64_t row, uint32_t n)
{
    uint32_t         i;
    kvr_sync_add_t  *to;

    to = &m.adds[m.nadds++];
    to->id = id;
    to->row = row;
    to->n = n;

    for (i = 0; i < n; i++) {
        to->chains[i] = (UINT64_C(0x0000a1b2c3d4e5f6) * (i + id + 1))
                        & ((UINT64_C(1) << 48) - 1);
    }
}


/* Writes, and reads a copy of just that size. */

static kvr_rc_t
reread(void)
{
    char      *copy;
    kvr_rc_t   rc;

    len = kvr_sync_write(&m, bytes);
    copy = malloc(len);
    memcpy(copy, bytes, len);
    memset(&got, 0xff, sizeof(got));
    rc = kvr_sync_read(copy, len, &got);
    free(copy);

    return rc;
}


/* Has all come through? */

static bool
same(void)
{
    bool      good;
    uint32_t  i;

    good = got.router == m.router && got.process == m.process
           && got.clock_us == m.clock_us && got.about == m.about
           && got.nrows == m.nrows && got.nadds == m.nadds
           && got.nends == m.nends
           && memcmp(got.rows, m.rows, m.nrows * sizeof(m.rows[0])) == 0
           && memcmp(got.ends, m.ends, m.nends * sizeof(m.ends[0])) == 0;

    for (i = 0; good && i < m.nadds; i++) {
        good = got.adds[i].id == m.adds[i].id
               && got.adds[i].row == m.adds[i].row
               && got.adds[i].n == m.adds[i].n
               && memcmp(got.adds[i].chains, m.adds[i].chains,
                         m.adds[i].n * sizeof(uint64_t)) == 0;
    }

    return good && (!m.about
                    || (got.share == m.share && got.uncached == m.uncached
                        && got.leaving == m.leaving
                        && strcmp(got.name, m.name) == 0
                        && strcmp(got.version, m.version) == 0));
}


/* What is written in JSON, see pack.h. */

static kvr_rc_t
said(const char *json)
{
    static uint8_t  packed[LARGE];

    return kvr_sync_read((char *) packed, pack(packed, LARGE, json), &got);
}


/* ---- what is written ---------------------------------------------------- */

/* All lists are full, of the largest numbers. */

static void
largest(void)
{
    uint32_t  i;

    header();
    m.router = UINT64_MAX;
    m.process = UINT32_MAX;
    m.clock_us = (UINT64_C(1) << 62) - 1;
    m.about = true;
    m.share = KVR_PEERS_SHARES;
    m.uncached = KVR_SYNC_MOST;
    m.leaving = true;
    memset(m.name, '~', KVR_PEERS_NAME_MAX);
    strcpy(m.version, "0.1.0 and later");

    while (m.nrows < KVR_SYNC_ROWS) {
        m.rows[m.nrows] = (kvr_sync_row_t) {
            UINT64_MAX - m.nrows, KVR_SYNC_MOST, KVR_SYNC_MOST - 1,
            KVR_SYNC_MOST - 2, KVR_SYNC_MOST - 3, KVR_SYNC_MOST - m.nrows
        };
        m.nrows++;
    }

    for (i = 0; i < KVR_SYNC_ADDS; i++) {
        add(UINT32_MAX - i, UINT64_MAX - i, KVR_FLIGHT_SAMPLES);
    }

    while (m.nends < KVR_SYNC_ENDS) {
        m.ends[m.nends] = UINT32_MAX - m.nends;
        m.nends++;
    }
}


static void
test_largest(void)
{
    char      *copy;
    size_t     cut, refused;
    uint32_t   i;

    largest();
    ok(reread() == KVR_OK && same(), "a message with all that it has room for "
       "comes through");
    ok(len < KVR_SYNC_MAX, "it has %zu bytes", len);

    for (cut = 0, refused = 0; cut < len; cut++) {
        copy = malloc(cut + 1);
        memcpy(copy, bytes, cut);
        refused += kvr_sync_read(copy, cut, &got) == KVR_INVALID;
        free(copy);
    }

    is_u64(refused, len, "a message that is cut anywhere is refused");

    bytes[len] = 1;
    ok(kvr_sync_read(bytes, len + 1, &got) == KVR_INVALID,
       "and so is one with a byte behind it");

    /* numbers that no reader takes have room, too */

    for (i = 0; i < KVR_SYNC_ROWS; i++) {
        m.rows[i] = (kvr_sync_row_t) { UINT64_MAX, INT64_MAX, INT64_MAX,
                                       INT64_MAX, INT64_MAX, INT64_MAX };
    }

    m.share = UINT32_MAX;
    m.uncached = UINT64_MAX;
    ok(reread() == KVR_OK && got.uncached == KVR_SYNC_MOST
       && got.rows[KVR_SYNC_ROWS - 1].active == KVR_SYNC_MOST
       && got.nends == KVR_SYNC_ENDS, "larger numbers are clamped");
}


static void
test_small(void)
{
    uint32_t  i;

    header();
    ok(reread() == KVR_OK && same() && len <= 32,
       "a message of nothing has %zu bytes", len);

    m.rows[m.nrows++] = (kvr_sync_row_t) { 1, -7, -1, INT64_MIN, -1, -2 };
    ok(reread() == KVR_OK && got.rows[0].active == 0
       && got.rows[0].prefill_tokens == 0 && got.rows[0].decode_blocks == 0,
       "nothing below zero is told");

    header();

    for (i = 0; i <= 8; i++) {
        add(i, i + 1, i * 4);
    }

    ok(reread() == KVR_OK && same(), "adds have as many chains as they have");

    /* a request of 4,096 tokens: told alone */

    header();
    m.rows[m.nrows++] = (kvr_sync_row_t) { UINT64_MAX, 40, 3, 12288, 150,
                                           60000 };
    add(1000000, UINT64_MAX, KVR_FLIGHT_SAMPLES);
    m.ends[m.nends++] = 1000000;
    ok(reread() == KVR_OK && same() && len <= 300,
       "a request's add, row and end have 300 bytes");
    note("%zu bytes", len);
}


/* ---- what is read ------------------------------------------------------- */

static void
test_clamped(void)
{
    ok(said(HEAD "null, [[5, -1, 18446744073709551615, 1099511627777, "
            "1099511627776, 3]], [], []]") == KVR_OK && got.nrows == 1
       && got.rows[0].active == 0 && got.rows[0].prefills == KVR_SYNC_MOST
       && got.rows[0].prefill_tokens == KVR_SYNC_MOST
       && got.rows[0].age_ms == KVR_SYNC_MOST
       && got.rows[0].decode_blocks == 3, "counts are clamped to 0..2^40");

    ok(said(HEAD "[17, -5, true, 'a', 'b'], [], [], []]") == KVR_OK
       && got.about && got.share == 16 && got.uncached == 0 && got.leaving,
       "a share is 16 sixteenths at most");
}


static void
test_later(void)
{
    ok(said(HEAD "[4, 5, false, 'a', 'b', {'x': 1}, 9],"
            "[[5, 1, 2, 3, 4, 6, 'x', [1]]],"
            "[[8, 5, {'$bin': '010203040506'}, null]],"
            "[9], 1.5, [[[]]], {'a': {'b': null}}]") == KVR_OK
       && got.about && got.share == 4 && strcmp(got.version, "b") == 0
       && got.nrows == 1 && got.rows[0].decode_blocks == 6
       && got.nadds == 1 && got.adds[0].n == 1
       && got.adds[0].chains[0] == UINT64_C(0x060504030201)
       && got.nends == 1 && got.ends[0] == 9,
       "elements of a later version are ignored");

    ok(said(HEAD "null, [], [], [], {'$hex': 'c1'}]") == KVR_INVALID,
       "unless they are none");
}


static const struct {
    const char  *json;
    const char  *name;
} bad[] = {
    { "7", "a number" },
    { "{'v': 1}", "a map" },
    { "[]", "an empty array" },
    { "[1, 7, 3, 1, null, [], []]", "seven elements" },
    { "[2, 7, 3, 1, null, [], [], []]", "another version" },
    { "[0, 7, 3, 1, null, [], [], []]", "version 0" },
    { "['1', 7, 3, 1, null, [], [], []]", "a version that is a text" },
    { "[1, 0, 3, 1, null, [], [], []]", "router 0" },
    { "[1, -7, 3, 1, null, [], [], []]", "router -7" },
    { "[1, 7, 4294967296, 1, null, [], [], []]", "a process of 33 bits" },
    { "[1, 7, 3, 4611686018427387904, null, [], [], []]",
      "a clock of 63 bits" },
    { "[1, 7, 3, 1.5, null, [], [], []]", "a clock with a point" },
    { "[1, 7, 3, -1, null, [], [], []]", "a clock below zero" },
    { HEAD "false, [], [], []]", "about that is false" },
    { HEAD "[4, 5, false, 'a'], [], [], []]", "about without a version" },
    { HEAD "[4.5, 5, false, 'a', 'b'], [], [], []]", "half a share" },
    { HEAD "[4, '5', false, 'a', 'b'], [], [], []]", "tokens in letters" },
    { HEAD "[4, 5, 0, 'a', 'b'], [], [], []]", "leaving that is a number" },
    { HEAD "[4, 5, false, 'a\\n', 'b'], [], [], []]", "a name of two lines" },
    { HEAD "[4, 5, false, null, 'b'], [], [], []]", "no name" },
    { HEAD "[4, 5, false, 'a', '\\u00e4'], [], [], []]",
      "a version beyond ASCII" },
    { HEAD "[4, 5, false, 'a', '0123456789abcdef'], [], [], []]",
      "a version of 16 bytes" },
    { HEAD "[4, 5, false, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aaaaaaaaaaaa', 'b'], [], [], []]", "a name of 64 bytes" },
    { HEAD "null, 5, [], []]", "a load that is a number" },
    { HEAD "null, {'a': 1}, [], []]", "a load that is a map" },
    { HEAD "null, [5], [], []]", "a row that is a number" },
    { HEAD "null, [[5, 1, 1, 1, 1]], [], []]", "a short row" },
    { HEAD "null, [[0, 1, 1, 1, 1, 1]], [], []]", "row 0" },
    { HEAD "null, [[-5, 1, 1, 1, 1, 1]], [], []]", "row -5" },
    { HEAD "null, [[5, 1, 1, 1.5, 1, 1]], [], []]", "a row with a point" },
    { HEAD "null, [[5, 1, 1, [1], 1, 1]], [], []]", "a row with an array" },
    { HEAD "null, [[5, 1, 1, 1, 1, null]], [], []]", "a row with a nil" },
    { HEAD "null, [[5, 1, 1, 1, 1, 1], [6]], [], []]",
      "a good row before a bad one" },
    { HEAD "null, [], null, []]", "adds that are nil" },
    { HEAD "null, [], [7], []]", "an add that is a number" },
    { HEAD "null, [], [[1, 5]], []]", "an add without chains" },
    { HEAD "null, [], [[1, 5, 'aaaaaa']], []]", "chains that are a text" },
    { HEAD "null, [], [[1, 5, {'$bin': '0102030405'}]], []]",
      "chains of five bytes" },
    { HEAD "null, [], [[1, 0, {'$bin': '010203040506'}]], []]",
      "an add of row 0" },
    { HEAD "null, [], [[4294967296, 5, {'$bin': '010203040506'}]], []]",
      "an add with a long id" },
    { HEAD "null, [], [[-1, 5, {'$bin': '010203040506'}]], []]",
      "an add with an id below zero" },
    { HEAD "null, [], [], 5]", "ends that are a number" },
    { HEAD "null, [], [], [1, -1]]", "an end below zero" },
    { HEAD "null, [], [], [4294967296]]", "a long end" },
    { HEAD "null, [], [], [[1]]]", "an end that is an array" },
    { HEAD "null, [], [], [1.5]]", "half an end" }
};


static void
test_refused(void)
{
    size_t  i;

    ok(said(HEAD "null, [], [], []]") == KVR_OK && !got.about,
       "a message may have nothing");
    ok(said(HEAD ABOUT ", [], [], []]") == KVR_OK && got.about,
       "or what is of the router alone");

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ok(said(bad[i].json) == KVR_INVALID, "%s: refused", bad[i].name);
    }
}


/* A message of n elements in a list: those before it, one, those behind. */

static kvr_rc_t
many(const char *before, const char *one, uint32_t n, const char *behind)
{
    char      *json;
    uint32_t   i;
    kvr_rc_t   rc;

    json = calloc(1, LARGE);
    strcpy(json, before);

    for (i = 0; i < n; i++) {
        strcat(json, i ? ", " : "");
        strcat(json, one);
    }

    strcat(json, behind);
    rc = said(json);
    free(json);

    return rc;
}


static void
test_most(void)
{
    static const char  row[] = "[5, 1, 1, 1, 1, 1]";
    static const char  empty[] = "[1, 5, {'$bin': ''}]";

    ok(many(HEAD "null, [", row, 128, "], [], []]") == KVR_OK
       && got.nrows == 128
       && many(HEAD "null, [", row, 129, "], [], []]") == KVR_INVALID,
       "a message has 128 rows at most");
    ok(many(HEAD "null, [], [", empty, 24, "], []]") == KVR_OK
       && got.nadds == 24
       && many(HEAD "null, [], [", empty, 25, "], []]") == KVR_INVALID,
       "and 24 adds");
    ok(many(HEAD "null, [], [], [", "7", 256, "]]") == KVR_OK
       && got.nends == 256
       && many(HEAD "null, [], [], [", "7", 257, "]]") == KVR_INVALID,
       "and 256 ends");

    ok(many(HEAD "null, [], [[1, 5, {'$bin': '", "010203040506", 0,
            "'}]], []]") == KVR_OK && got.adds[0].n == 0,
       "an add may have no chains");

    /* numbers of one byte: as long as may be, and a byte more */

    ok(many(HEAD "null, [], [], [], [", "7", KVR_SYNC_MAX - 16, "]]")
       == KVR_OK
       && many(HEAD "null, [], [], [], [", "7", KVR_SYNC_MAX - 15, "]]")
          == KVR_INVALID, "a message of 16,384 bytes is read, a longer one not");
}


static void
test_chains(void)
{
    uint32_t  n;
    char      json[1024];

    for (n = KVR_FLIGHT_SAMPLES; n <= KVR_FLIGHT_SAMPLES + 1; n++) {
        memset(json, 0, sizeof(json));
        strcpy(json, HEAD "null, [], [[1, 5, {'$bin': '");
        memset(json + strlen(json), '1', n * 12);
        strcat(json, "'}]], []]");

        ok(said(json) == (n == KVR_FLIGHT_SAMPLES ? KVR_OK : KVR_INVALID),
           "an add of %u chains", n);
    }
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
    uint32_t        i;
    kvr_sync_row_t  row;

    static const uint64_t  begun[3] = { 0, 700, 1001 };
    static const int64_t   ages[3] = { 0, 300, 0 };

    for (i = 0; i < 3; i++) {
        row = kvr_sync_load(7, &(kvr_load_row_t) { 9, 1, 2, 3, 4, begun[i],
                                                   800 }, 1000);
        ok(row.row == 7 && row.active == 1 && row.prefills == 2
           && row.prefill_tokens == 3 && row.decode_blocks == 4
           && row.age_ms == ages[i], "a prefill that began at %u, at 1000",
           (unsigned) begun[i]);
    }
}


int
main(void)
{
    test_largest();
    test_small();
    test_clamped();
    test_later();
    test_refused();
    test_most();
    test_chains();
    test_names();
    test_load();

    return done();
}
