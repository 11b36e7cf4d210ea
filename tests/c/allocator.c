/* The allocator for C, as a C program uses it. Prints what it skips, and ends with status 0 if all is as it must be. */
#include <cuda_mempool.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, cuda_mempool_last_error());       \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_SUPPORTED = 801 };

static struct cuda_mempool_allocator *make(size_t cap, int registered) {
    struct cuda_mempool_allocator *allocator;
    struct cuda_mempool_options options = {0};
    int device = 0;
    options.granted = &device;
    options.granted_count = 1;
    options.cap = cap;
    options.registered = registered;
    int answer = cuda_mempool_create(&options, &allocator);
    if (answer == NOT_SUPPORTED && !getenv("CUDA_MEMPOOL_REQUIRE_DEVICE")) {
        printf("skipped: %s\n", cuda_mempool_last_error());
        exit(0);
    }
    CHECK(answer == 0 && allocator);
    return allocator;
}

static struct cuda_mempool_statistics statistics(struct cuda_mempool_allocator *allocator) {
    struct cuda_mempool_statistics statistics;
    CHECK(cuda_mempool_stats(allocator, &statistics) == 0);
    return statistics;
}

static int is_filled(const unsigned char *bytes, size_t size, unsigned char byte) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != byte) return 0;
    return 1;
}

static void blocks(struct cuda_mempool_allocator *allocator) {
    void *empty = cuda_mempool_malloc(allocator, 0), *other = cuda_mempool_malloc(allocator, 0);
    CHECK(empty && other && empty != other);
    cuda_mempool_free(allocator, empty);
    cuda_mempool_free(allocator, other);
    cuda_mempool_free(allocator, NULL);
    CHECK(cuda_mempool_usable_size(NULL) == 0);

    /* From a byte to what does not fit a chunk. */
    for (size_t size = 1; size <= (size_t)40 << 20; size = size * 5 + 3) {
        unsigned char *block = cuda_mempool_malloc(allocator, size);
        CHECK(block && (size_t)block % 16 == 0);
        size_t usable = cuda_mempool_usable_size(block);
        CHECK(usable >= size);
        memset(block, 0xaa, usable);
        CHECK(is_filled(block, usable, 0xaa));
        cuda_mempool_free(allocator, block);
    }
    for (size_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
        unsigned char *block = cuda_mempool_aligned_malloc(allocator, alignment, 100);
        CHECK(block && (size_t)block % alignment == 0);
        memset(block, 0xbb, 100);
        block = cuda_mempool_realloc(allocator, block, 5000);
        CHECK(block && (size_t)block % alignment == 0 && is_filled(block, 100, 0xbb));
        cuda_mempool_free(allocator, block);
    }
}

static void reallocation(struct cuda_mempool_allocator *allocator) {
    size_t sizes[] = {10, 1000, 999, 100000, 6 << 20, 12 << 20, 70, 0, 33};
    unsigned char *block = cuda_mempool_realloc(allocator, NULL, 1);
    size_t filled = 1;
    CHECK(block);
    block[0] = 0x5c;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        block = cuda_mempool_realloc(allocator, block, sizes[i]);
        CHECK(block && cuda_mempool_usable_size(block) >= sizes[i]);
        CHECK(is_filled(block, filled < sizes[i] ? filled : sizes[i], 0x5c));
        memset(block, 0x5c, sizes[i]);
        filled = sizes[i];
    }
    cuda_mempool_free(allocator, block);
}

static size_t reserved(struct cuda_mempool_allocator *allocator) {
    size_t bytes;
    CHECK(cuda_mempool_reserved(allocator, &bytes) == 0);
    return bytes;
}

static void priming(struct cuda_mempool_allocator *allocator) {
    CHECK(cuda_mempool_trim(allocator) == 0);
    CHECK(cuda_mempool_prime(allocator, (size_t)96 << 20) == 0);
    size_t primed = reserved(allocator);
    CHECK(primed >= (size_t)96 << 20);
    void *block = cuda_mempool_malloc(allocator, (size_t)60 << 20);
    CHECK(block && reserved(allocator) == primed);
    cuda_mempool_free(allocator, block);
    CHECK(cuda_mempool_trim(allocator) == 0);
    CHECK(reserved(allocator) < (size_t)96 << 20);
}

static void failures(int registered) {
    struct cuda_mempool_allocator *allocator = make((size_t)64 << 20, registered);
    CHECK(cuda_mempool_prime(allocator, (size_t)1 << 30) == OUT_OF_MEMORY);
    CHECK(!cuda_mempool_malloc(allocator, (size_t)1 << 30));
    CHECK(*cuda_mempool_last_error());
    unsigned char *block = cuda_mempool_malloc(allocator, 64);
    CHECK(block);
    memset(block, 1, 64);
    CHECK(!cuda_mempool_realloc(allocator, block, (size_t)1 << 30) && is_filled(block, 64, 1));
    CHECK(!cuda_mempool_malloc(allocator, (size_t)-1));
    CHECK(!cuda_mempool_realloc(allocator, block, (size_t)-1) && is_filled(block, 64, 1));
    CHECK(!cuda_mempool_aligned_malloc(allocator, 48, 8)); /* no power of two */
    CHECK(strstr(cuda_mempool_last_error(), "48"));
    CHECK(!cuda_mempool_aligned_malloc(allocator, 0, 8));
    cuda_mempool_free(allocator, block);
    CHECK(cuda_mempool_destroy(allocator) == 0);

    struct cuda_mempool_options options = {0};
    options.on_node = 1;
    options.node = 4096;
    CHECK(cuda_mempool_create(&options, &allocator) == NOT_SUPPORTED && !allocator);
    CHECK(strstr(cuda_mempool_last_error(), "4096"));
    options.node = 0;
    options.device = -1;
    CHECK(cuda_mempool_create(&options, &allocator) != 0 && !allocator);
    options.device = 0;
    options.granted_count = 1;
    CHECK(cuda_mempool_create(&options, &allocator) == INVALID_VALUE && !allocator);
    CHECK(cuda_mempool_create(NULL, &allocator) == INVALID_VALUE && !allocator);
    CHECK(cuda_mempool_create(&options, NULL) == INVALID_VALUE);
    CHECK(!cuda_mempool_malloc(NULL, 1));
    CHECK(cuda_mempool_stats(NULL, NULL) == INVALID_VALUE);
    CHECK(cuda_mempool_trim(NULL) == INVALID_VALUE);
    CHECK(cuda_mempool_prime(NULL, 1) == INVALID_VALUE);
    CHECK(cuda_mempool_reserved(NULL, NULL) == INVALID_VALUE);
    CHECK(cuda_mempool_destroy(NULL) == 0);
}

/* Each thread frees what another made. */
enum { THREADS = 4, ROUNDS = 200, KEPT = 16 };
static struct cuda_mempool_allocator *shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *kept[KEPT];

static void *work(void *number) {
    unsigned seed = 1 + (unsigned)(size_t)number;
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 1664525 + 1013904223;
        size_t size = 32 + (seed >> 8) % 20000;
        unsigned char *block = cuda_mempool_malloc(shared, size);
        CHECK(block);
        memset(block, (unsigned char)seed, 32);
        pthread_mutex_lock(&lock);
        unsigned char *old = kept[seed % KEPT];
        kept[seed % KEPT] = block;
        pthread_mutex_unlock(&lock);
        if (old) CHECK(is_filled(old, 32, old[0]));
        cuda_mempool_free(shared, old);
    }
    return NULL;
}

static void threads(struct cuda_mempool_allocator *allocator) {
    pthread_t thread[THREADS];
    shared = allocator;
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < KEPT; i++) {
        cuda_mempool_free(allocator, kept[i]);
        kept[i] = NULL;
    }
}

/* Each thread is told why its own call failed. */
static void *ask_for_too_much(void *number) {
    char bytes[32];
    size_t size = ((size_t)1 << 40) + ((size_t)number << 20);
    snprintf(bytes, sizeof bytes, "%zu", size);
    void *block = cuda_mempool_malloc(shared, 64);
    CHECK(block);
    for (int round = 0; round < 10 * ROUNDS; round++) {
        CHECK(!cuda_mempool_malloc(shared, size - 16) && strstr(cuda_mempool_last_error(), bytes));
        CHECK(!cuda_mempool_realloc(shared, block, size - 16) && strstr(cuda_mempool_last_error(), bytes));
    }
    cuda_mempool_free(shared, block);
    return NULL;
}

static void reasons(int registered) {
    pthread_t thread[THREADS];
    shared = make((size_t)64 << 20, registered);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, ask_for_too_much, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    CHECK(cuda_mempool_destroy(shared) == 0);
}

/* A forked child does not have the memory, as here on any runtime, and may give back what it inherited all the same. */
static void forked_child(int registered) {
    struct cuda_mempool_allocator *allocator = make(0, registered);
    unsigned char *block = cuda_mempool_malloc(allocator, (size_t)8 << 20);
    CHECK(block);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    /* A driver's memory may have been kept from children already, and may not be told so again. */
    (void)!madvise((void *)((uintptr_t)block & ~(page - 1)), page, MADV_DONTFORK);
    pid_t child = fork();
    if (child == 0) {
        int failed = cuda_mempool_malloc(allocator, 1) || cuda_mempool_realloc(allocator, block, 100);
        cuda_mempool_free(allocator, block);
        cuda_mempool_destroy(allocator);
        /* At an exit, valgrind would look for pointers in memory that is not there, word by word. */
        if (!failed) execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    cuda_mempool_free(allocator, block);
    CHECK(cuda_mempool_destroy(allocator) == 0);
}

static void all(int registered) {
    struct cuda_mempool_allocator *allocator = make(0, registered);
    blocks(allocator);
    reallocation(allocator);
    priming(allocator);
    threads(allocator);
    failures(registered);
    reasons(registered);
    forked_child(registered);
    CHECK(statistics(allocator).live_blocks == 0 && statistics(allocator).live_bytes == 0);
    CHECK(statistics(allocator).peak_taken_bytes > 0);
    CHECK(cuda_mempool_trim(allocator) == 0);
    CHECK(statistics(allocator).taken_bytes == 0);
    CHECK(cuda_mempool_destroy(allocator) == 0);
}

int main(void) {
    CHECK(*cuda_mempool_last_error() == 0);
    all(0);
    all(1);
    printf("passed\n");
    return 0;
}
