/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Processes for the tests that kill them.
 */


#ifndef PROCESSES_H_INCLUDED
#define PROCESSES_H_INCLUDED


#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>


/* A function in another process. */

static inline pid_t
start(void (*fn)(void))
{
    pid_t  pid;

    fflush(stdout);
    pid = fork();

    if (pid == -1) {
        perror("fork");
        exit(1);
    }

    if (pid == 0) {
        fn();
        _exit(0);
    }

    return pid;
}


/*
 * Two functions in another process, killed after so many instructions of the
 * second, or where it ends: false then.  It stops there, for with sanitizers
 * the way from there to _exit() has far more instructions than the function.
 */

static inline bool
killed_behind(void (*first)(void), void (*fn)(void), uint32_t steps)
{
    int    status;
    bool   inside;
    pid_t  pid;

    pid = fork();

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1) {
            _exit(1);
        }

        if (first) {
            first();
        }

        raise(SIGSTOP);
        fn();
        raise(SIGSTOP);
        _exit(0);
    }

    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        return false;
    }

    inside = true;

    while (steps-- && inside) {
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == -1
            || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        {
            return false;
        }

        inside = WSTOPSIG(status) == SIGTRAP;
    }

    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);

    return inside;
}


/* The same with one function. */

static inline bool
killed_at(void (*fn)(void), uint32_t steps)
{
    return killed_behind(NULL, fn, steps);
}


#endif /* PROCESSES_H_INCLUDED */
