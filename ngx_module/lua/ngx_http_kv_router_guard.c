
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_ffi.h"
#include "ngx_http_kv_router_guard.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>


#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id  _sigev_un._tid
#endif


/* of lua.h, which nothing else here needs */

#define NGX_HTTP_KV_ROUTER_MASKCALL   (1 << 0)
#define NGX_HTTP_KV_ROUTER_MASKRET    (1 << 1)
#define NGX_HTTP_KV_ROUTER_MASKCOUNT  (1 << 3)


typedef void (*ngx_http_kv_router_hook_pt)(void *lua, void *record);


/* LuaJIT's functions, of the library that the Lua module has brought */

typedef struct {
    int         (*sethook)(void *lua, ngx_http_kv_router_hook_pt hook,
                           int mask, int count);
    const char *(*pushfstring)(void *lua, const char *fmt, ...);
    int         (*error)(void *lua);
} ngx_http_kv_router_guard_lua_t;


/*
 * Of this process and its one thread, shared with the signal handler: each
 * field is written by one instruction.
 */

typedef struct {
    volatile sig_atomic_t   running;     /* a policy */
    volatile sig_atomic_t   armed;       /* the timer */
    volatile sig_atomic_t   hooked;
    volatile sig_atomic_t   compiled;    /* it outran a hook */
    volatile sig_atomic_t   periods;     /* since it was first seen */
    volatile uint32_t       serial;      /* of the run */
    volatile uint32_t       seen;        /* that of the last look */
    void *volatile          lua;         /* any state of the running VM */
    void *volatile          caller;      /* the coroutine that waits for it */
    volatile sig_atomic_t   stopped;
} ngx_http_kv_router_guard_t;


static ngx_int_t ngx_http_kv_router_guard_init(void);
static int ngx_http_kv_router_guard_signal(void);
static void ngx_http_kv_router_guard_arm(void);
static void ngx_http_kv_router_guard_look(int signo);
static void ngx_http_kv_router_guard_stop(void *lua, void *record);


static ngx_http_kv_router_guard_t      guard;
static ngx_http_kv_router_guard_lua_t  luajit;

static timer_t  ngx_http_kv_router_guard_timer;
static int      ngx_http_kv_router_guard_signo;

/* the process that has the timer, which a fork does not inherit */

static ngx_pid_t  ngx_http_kv_router_guard_owner;
static ngx_int_t  ngx_http_kv_router_guard_ready;


static ngx_int_t
ngx_http_kv_router_guard_init(void)
{
    struct sigevent   event;
    struct sigaction  action;

    luajit.sethook = dlsym(RTLD_DEFAULT, "lua_sethook");
    luajit.pushfstring = dlsym(RTLD_DEFAULT, "lua_pushfstring");
    luajit.error = dlsym(RTLD_DEFAULT, "lua_error");

    if (luajit.sethook == NULL || luajit.pushfstring == NULL
        || luajit.error == NULL)
    {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "kv_router can't stop policies that don't end: "
                      "no lua_sethook()");
        return NGX_ERROR;
    }

    ngx_memzero(&guard, sizeof(ngx_http_kv_router_guard_t));
    ngx_memzero(&action, sizeof(struct sigaction));
    ngx_memzero(&event, sizeof(struct sigevent));

    ngx_http_kv_router_guard_signo = ngx_http_kv_router_guard_signal();

    action.sa_handler = ngx_http_kv_router_guard_look;
    action.sa_flags = SA_RESTART;

    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = ngx_http_kv_router_guard_signo;
    event.sigev_notify_thread_id = syscall(SYS_gettid);

    if (ngx_http_kv_router_guard_signo == 0
        || sigaction(ngx_http_kv_router_guard_signo, &action, NULL) == -1
        || timer_create(CLOCK_THREAD_CPUTIME_ID, &event,
                        &ngx_http_kv_router_guard_timer) == -1)
    {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                      "kv_router can't stop policies that don't end: "
                      "timer_create() failed");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* A signal that nobody uses; 0: there is none. */

static int
ngx_http_kv_router_guard_signal(void)
{
    int               signo;
    struct sigaction  now;

    for (signo = SIGRTMAX; signo >= SIGRTMIN; signo--) {

        if (sigaction(signo, NULL, &now) == 0
            && !(now.sa_flags & SA_SIGINFO)
            && (now.sa_handler == SIG_DFL
                || now.sa_handler == ngx_http_kv_router_guard_look))
        {
            return signo;
        }
    }

    return 0;
}


static void
ngx_http_kv_router_guard_arm(void)
{
    struct itimerspec  period;

    ngx_memzero(&period, sizeof(struct itimerspec));
    period.it_value.tv_nsec = NGX_HTTP_KV_ROUTER_GUARD_PERIOD * 1000000;

    guard.armed = 1;

    (void) timer_settime(ngx_http_kv_router_guard_timer, 0, &period, NULL);
}


/*
 * The signal's handler.  Setting a hook here is what LuaJIT's own program does
 * on SIGINT.  A finalizer of the collector may put back the hooks from before
 * it: so each look sets it anew.
 */

static void
ngx_http_kv_router_guard_look(int signo)
{
    int  saved;

    if (!guard.running) {
        guard.armed = 0;
        return;
    }

    saved = errno;

    if (guard.seen != guard.serial) {
        guard.seen = guard.serial;

    } else {
        guard.periods++;

        if (guard.hooked && !guard.stopped) {
            guard.compiled = 1;
        }

        guard.hooked = 1;

        (void) luajit.sethook(guard.lua, ngx_http_kv_router_guard_stop,
                              NGX_HTTP_KV_ROUTER_MASKCALL
                              | NGX_HTTP_KV_ROUTER_MASKRET
                              | NGX_HTTP_KV_ROUTER_MASKCOUNT, 1);
    }

    ngx_http_kv_router_guard_arm();

    errno = saved;
}


/*
 * The hook stays until the run is ended, so that a policy that catches errors
 * gets the next one at once, and so does each of its coroutines.
 */

static void
ngx_http_kv_router_guard_stop(void *lua, void *record)
{
    if (!guard.running) {
        guard.hooked = 0;
        (void) luajit.sethook(lua, NULL, 0, 0);
        return;
    }

    /* the policy's coroutine is dead: the next thing is the end of the run */

    if (lua == guard.caller) {
        return;
    }

    guard.stopped = 1;

    (void) luajit.pushfstring(lua, "it has run for more than %d ms",
                              (int) guard.periods
                              * NGX_HTTP_KV_ROUTER_GUARD_PERIOD);
    (void) luajit.error(lua);
}


/* ---- for Lua ------------------------------------------------------------ */

void
ngx_http_kv_router_ffi_guard(void *lua, void *caller)
{
    if (ngx_http_kv_router_guard_owner != ngx_pid) {
        ngx_http_kv_router_guard_owner = ngx_pid;
        ngx_http_kv_router_guard_ready = ngx_http_kv_router_guard_init();
    }

    if (ngx_http_kv_router_guard_ready != NGX_OK) {
        return;
    }

    guard.lua = lua;
    guard.serial++;
    guard.periods = 0;
    guard.compiled = 0;
    guard.stopped = 0;
    guard.caller = caller;
    guard.running = 1;

    if (!guard.armed) {
        ngx_http_kv_router_guard_arm();
    }
}


int
ngx_http_kv_router_ffi_guarded(uint32_t *ms)
{
    int  rc;

    if (!guard.running) {
        return NGX_OK;
    }

    guard.running = 0;

    rc = NGX_OK;

    if (guard.periods) {
        rc = (guard.stopped && !guard.compiled) ? NGX_BUSY : NGX_DECLINED;
        *ms = guard.periods * NGX_HTTP_KV_ROUTER_GUARD_PERIOD;
    }

    if (guard.hooked) {
        guard.hooked = 0;
        (void) luajit.sethook(guard.lua, NULL, 0, 0);
    }

    guard.stopped = 0;

    return rc;
}


/* ---- the end ------------------------------------------------------------ */

void
ngx_http_kv_router_guard_exit(void)
{
    if (ngx_http_kv_router_guard_owner != ngx_pid
        || ngx_http_kv_router_guard_ready != NGX_OK)
    {
        return;
    }

    ngx_http_kv_router_guard_ready = NGX_DECLINED;
    guard.running = 0;

    (void) timer_delete(ngx_http_kv_router_guard_timer);
    (void) signal(ngx_http_kv_router_guard_signo, SIG_IGN);
}
