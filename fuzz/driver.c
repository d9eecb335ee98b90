/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Runs a fuzz target where libFuzzer is not: the seeds, and a fixed number of
 * inputs made from them by a random generator that always begins alike.
 *
 *     test_fuzz_NAME [-n inputs] [-s seed] [FILE...]
 *
 * With files, only these are run.  Without, the seeds are those of
 * $KVR_BUILD/fuzz/seeds/NAME (build/ when that is not set).  An input on which
 * the target fails is left in the folder of the seeds' folder, and said where.
 */


#include "fuzz.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>


#define SEEDS        4096
#define INPUT_MAX    8192                /* no seed is larger */


typedef struct {
    size_t    len;
    uint8_t  *bytes;
} input_t;


static bool seed_read(const char *path);
static void seeds_read(void);
static int by_name(const void *a, const void *b);
static void input_make(void);
static void mutate(void);
static void run(const uint8_t *bytes, size_t len);
static void failed(void);
static void aborted(int number);
static uint32_t below(uint32_t n);

/* of the sanitizers' run time */
void __sanitizer_set_death_callback(void (*callback)(void))
    __attribute__((weak));


static input_t         seeds[SEEDS];
static uint32_t        nseeds;
static uint64_t        random_ = 1;
static char            folder[512];
static const char     *name;
static uint8_t         made[INPUT_MAX];
static size_t          made_len;
static const uint8_t  *at;
static size_t          at_len;


int
main(int argc, char **argv)
{
    int          option;
    uint32_t     i, n;
    const char  *build;

    n = fuzz_inputs;

    while ((option = getopt(argc, argv, "n:s:")) != -1) {
        switch (option) {

        case 'n':
            n = strtoul(optarg, NULL, 0);
            break;

        case 's':
            random_ = strtoull(optarg, NULL, 0);
            break;

        default:
            return 2;
        }
    }

    name = strstr(argv[0], "fuzz_");
    build = getenv("KVR_BUILD");
    snprintf(folder, sizeof(folder), "%s/fuzz", build ? build : "build");

    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(failed);
    }

    signal(SIGABRT, aborted);

    if (optind < argc) {
        for (i = optind; i < (uint32_t) argc; i++) {
            if (!seed_read(argv[i])) {
                perror(argv[i]);
                return 2;
            }
        }

        n = 0;

    } else {
        seeds_read();
    }

    for (i = 0; i < nseeds; i++) {
        run(seeds[i].bytes, seeds[i].len);
    }

    printf("%sok 1 - %u seeds\n", nseeds ? "" : "not ", nseeds);

    for (i = 0; nseeds && i < n; i++) {
        input_make();
        run(made, made_len);
    }

    printf("ok 2 - %u inputs made from them\n1..2\n", n);

    for (i = 0; i < nseeds; i++) {
        free(seeds[i].bytes);
    }

    return nseeds == 0;
}


static bool
seed_read(const char *path)
{
    FILE    *f;
    input_t  s;

    f = fopen(path, "rb");
    if (f == NULL) {
        return false;
    }

    s.bytes = malloc(1 << 20);
    s.len = fread(s.bytes, 1, 1 << 20, f);
    fclose(f);

    if (nseeds < SEEDS) {
        seeds[nseeds++] = s;
        return true;
    }

    free(s.bytes);

    return true;
}


/* In the order of their names: a run is the same everywhere. */

static void
seeds_read(void)
{
    DIR            *dir;
    char            path[1100], *names[SEEDS];
    uint32_t        i, n;
    struct dirent  *e;

    n = 0;
    snprintf(path, sizeof(path), "%s/seeds/%s", folder,
             name ? name + strlen("fuzz_") : "");

    dir = opendir(path);
    if (dir == NULL) {
        perror(path);
        return;
    }

    while ((e = readdir(dir)) && n < SEEDS) {
        if (e->d_name[0] != '.') {
            names[n++] = strdup(e->d_name);
        }
    }

    closedir(dir);
    qsort(names, n, sizeof(char *), by_name);

    for (i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/seeds/%s/%s", folder,
                 name + strlen("fuzz_"), names[i]);
        (void) seed_read(path);
        free(names[i]);
    }
}


static int
by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *) a, *(char *const *) b);
}


/* A seed, or the beginning of one and the end of another; then mutations. */

static void
input_make(void)
{
    size_t          cut, from;
    uint32_t        i;
    const input_t  *s;

    s = &seeds[below(nseeds)];
    cut = s->len < INPUT_MAX ? s->len : INPUT_MAX;

    if (below(4) == 0) {
        cut = below(cut + 1);
    }

    memcpy(made, s->bytes, cut);
    made_len = cut;

    if (below(3) == 0) {
        s = &seeds[below(nseeds)];
        from = below(s->len + 1);
        cut = s->len - from;

        if (cut > INPUT_MAX - made_len) {
            cut = INPUT_MAX - made_len;
        }

        memcpy(made + made_len, s->bytes + from, cut);
        made_len += cut;
    }

    for (i = 1 + below(1u << below(6)); i > 0; i--) {
        mutate();
    }
}


static void
mutate(void)
{
    size_t  i, k, n;

    static const uint8_t  odd[] = { 0, 1, 0x7f, 0x80, 0xff, '"', '\\', '[',
                                    '{', ',', '0', '-', 0xcf, 0xdd, 0x93 };

    if (made_len == 0) {
        made[made_len++] = (uint8_t) below(256);
        return;
    }

    i = below(made_len);
    n = 1 + below(8);

    switch (below(6)) {

    case 0:
        made[i] ^= (uint8_t) (1u << below(8));
        break;

    case 1:
        made[i] = (uint8_t) below(256);
        break;

    case 2:
        made[i] = odd[below(sizeof(odd))];
        break;

    case 3:                             /* some are gone */
        n = n < made_len - i ? n : made_len - i;
        memmove(made + i, made + i + n, made_len - i - n);
        made_len -= n;
        break;

    case 4:                             /* some come in */
        if (made_len + n <= INPUT_MAX) {
            memmove(made + i + n, made + i, made_len - i);
            made_len += n;

            for (k = i; k < i + n; k++) {
                made[k] = (uint8_t) below(256);
            }
        }

        break;

    default:                            /* a part comes again elsewhere */
        k = below(made_len);
        n = 1 + below(64);
        n = n < made_len - i ? n : made_len - i;
        n = n < made_len - k ? n : made_len - k;
        memmove(made + i, made + k, n);
    }
}


static void
run(const uint8_t *bytes, size_t len)
{
    at = bytes;
    at_len = len;

    (void) LLVMFuzzerTestOneInput(bytes, len);
}


static void
failed(void)
{
    FILE  *f;
    char   path[600];

    if (at == NULL) {
        return;
    }

    snprintf(path, sizeof(path), "%s/failed-%s", folder,
             name ? name : "fuzz");

    f = fopen(path, "wb");

    if (f) {
        fwrite(at, 1, at_len, f);
        fclose(f);
        fprintf(stderr, "# the input is in %s\n", path);
    }

    at = NULL;
}


static void
aborted(int number)
{
    failed();
    signal(number, SIG_DFL);
    raise(number);
}


static uint32_t
below(uint32_t n)
{
    uint64_t  z;

    random_ += 0x9e3779b97f4a7c15u;
    z = random_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;

    return (uint32_t) (((z ^ (z >> 31)) >> 32) * n >> 32);
}
