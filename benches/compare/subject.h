/* A subject: one way to allocate that the comparison measures. The program has some of its own; the others come from
   shared libraries, each of which exports `bench_subjects`. The loops are the subject's, so that a call through this
   table is paid once a batch. Every function that answers an int answers 0 when all went well. */
#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first step that names a slot allocates, the next one frees, and so on. */
typedef struct bench_step {
    uint32_t slot;
    uint32_t bytes;
} bench_step;

#define BENCH_SLOTS 32
/* How many blocks a burst holds at once. */
#define BENCH_BURST 100

typedef struct bench_subject {
    const char *name;
    const char *version;
    /* "device" or "host". */
    const char *memory;
    /* What all threads share; null when it cannot be had. */
    void *(*open)(void);
    void (*close)(void *shared);
    /* What one thread has for itself: made, used and unmade on that thread. */
    void *(*start)(void *shared);
    void (*finish)(void *worker);
    /* `count` times: allocate and free. */
    int (*pairs)(void *worker, size_t bytes, size_t count);
    /* `count` times: allocate BENCH_BURST blocks, then free them in the same order. */
    int (*bursts)(void *worker, size_t bytes, size_t count);
    /* `count` times: all steps, after which every slot is free. */
    int (*steps)(void *worker, const bench_step *steps, size_t length, size_t count);
    /* `count` times: allocate on one stream, move to another, free there. Null where that does not apply. */
    int (*handovers)(void *worker, size_t bytes, size_t count);
    /* Waits for what goes on elsewhere after a loop has returned, so that it disturbs nobody. Null where nothing does. */
    int (*settle)(void *worker);
} bench_subject;

const bench_subject *bench_subjects(size_t *count);

#ifdef __cplusplus
}
#endif
#endif
