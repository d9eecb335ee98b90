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


/* Starts the log.  The worker's id is not copied; NULL: no id. */
void kvr_relay_log_init(kvr_relay_level_t level, const char *worker);

/* "error", "warn", "info", "debug". */
const char *kvr_relay_level_name(kvr_relay_level_t level);

/*
 * Writes one line; fmt may be NULL.  The line is dropped and counted when
 * stderr can't take it at once.
 */
__attribute__((format(printf, 3, 4)))
void kvr_relay_log(kvr_relay_level_t level, const char *msg, const char *fmt,
    ...);

/* When stderr takes a line again, logs how many lines were dropped. */
void kvr_relay_log_tick(void);

/* The number of lines dropped since the start. */
uint64_t kvr_relay_log_dropped(void);

/*
 * Puts a value in quotation marks and replaces control characters.  The value
 * is cut where out ends.
 */
const char *kvr_relay_quote(char out[KVR_RELAY_QUOTED], const char *text,
    size_t len);

/*
 * Writes to stderr what is wrong with an option.  Returns the exit code of the
 * process.
 */
__attribute__((format(printf, 2, 3)))
int kvr_relay_bad(const char *name, const char *fmt, ...);

/*
 * The form of a value that messages show: the password of a URL is left out.
 */
const char *kvr_relay_shown(const char *value);


#endif /* KVR_RELAY_LOG_H_INCLUDED */
