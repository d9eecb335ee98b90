/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The log: lines of key=value on stderr, for machines and for people.
 *
 *     time=2026-01-02T03:04:05.678Z level=info worker=w1 msg="ready" …
 *
 * What follows msg is given ready, as key=value pairs; values that come from
 * elsewhere go through kvr_relay_quote().
 */


#ifndef KVR_RELAY_LOG_H_INCLUDED
#define KVR_RELAY_LOG_H_INCLUDED


#include <stddef.h>
#include <stdint.h>


#define KVR_RELAY_QUOTED  256       /* room for a value that was quoted */
#define KVR_RELAY_BAD     2         /* exit code: an option is wrong */


typedef enum {
    KVR_RELAY_ERROR = 0,
    KVR_RELAY_WARN,
    KVR_RELAY_INFO,
    KVR_RELAY_DEBUG,
    KVR_RELAY_LEVELS
} kvr_relay_level_t;


/* The worker's id must stay; NULL: none. */
void kvr_relay_log_init(kvr_relay_level_t level, const char *worker);

/* "error", "warn", "info", "debug". */
const char *kvr_relay_level_name(kvr_relay_level_t level);

/* One line; fmt may be NULL.  Dropped where stderr can't take it at once. */
__attribute__((format(printf, 3, 4)))
void kvr_relay_log(kvr_relay_level_t level, const char *msg, const char *fmt,
    ...);

/* Says how many lines were dropped, once stderr takes one again. */
void kvr_relay_log_tick(void);

/* Those dropped since the start. */
uint64_t kvr_relay_log_dropped(void);

/* A value in quotation marks, its controls replaced; cut where out ends. */
const char *kvr_relay_quote(char out[KVR_RELAY_QUOTED], const char *text,
    size_t len);

/* Says on stderr what is wrong with an option; the process's exit code. */
__attribute__((format(printf, 2, 3)))
int kvr_relay_bad(const char *name, const char *fmt, ...);

/* A value as messages may have it: a URL may have a password. */
const char *kvr_relay_shown(const char *value);


#endif /* KVR_RELAY_LOG_H_INCLUDED */
