/* Functions of the simulated CUDA runtime that no real one has. They are for tests.
 *
 * Look them up with dlsym in the library that the process has loaded, so that the same program runs on a real runtime,
 * where they are not found. Unless it says otherwise, a function may be called at any time from any thread. */
#ifndef CUDART_SIM_H
#define CUDART_SIM_H

#include <stddef.h>
#include <stdint.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: 1. That the function is there says that the runtime is the simulated one. */
int cudartSimVersion(void);

/* What a simulated kernel reads or writes: the race detector checks it. */
struct cudartSimAccess {
    void *pointer; /* device memory, or host memory that the stream's device reaches */
    size_t size;   /* bytes */
    int write;     /* not 0: it writes */
};

/* memory[i] is where the host finds the bytes of access i while the kernel runs. */
typedef void (*cudartSimKernel)(void *argument, void *const *memory);

/* Runs a host function in the stream's order as a kernel that makes these accesses. The name appears in race reports.
 * Memory that the device does not reach: cudaErrorIllegalAddress, sticky. */
cudaError_t cudartSimLaunch(cudaStream_t stream, const char *name, cudartSimKernel kernel, void *argument,
                            const struct cudartSimAccess *accesses, size_t count);

/* Adds rules of faults to inject, separated by commas: FUNCTION#N=ERROR lets the Nth call from now answer the error,
 * FUNCTION%RATE=ERROR that fraction of calls. FUNCTION is a name, that of a driver function too, or * for any of the
 * runtime; a ! behind the error makes it sticky. A call chosen to fail does nothing else. What cannot be read: cudaErrorInvalidValue, and no rule is added. */
cudaError_t cudartSimAddFaults(const char *specification);
void cudartSimClearFaults(void);

/* How often the function of this name was called since the last reset (the _ptsz and _ptds names count with it);
 * null: how often any of the runtime was. An unknown name: UINT64_MAX. */
uint64_t cudartSimCalls(const char *function);

/* How many objects are live. The runtime's own default pools and streams do not count. */
struct cudartSimLiveObjects {
    uint64_t streams;
    uint64_t events;
    uint64_t pools;
    uint64_t pool_allocations;   /* own and imported */
    uint64_t plain_allocations;  /* of cudaMalloc, and opened memory handles */
    uint64_t pinned_allocations; /* of cudaHostAlloc */
    uint64_t registered_ranges;  /* of cudaHostRegister */
    uint64_t graph_allocations;  /* made by a launch of a graph and not freed */
    uint64_t graphs;
    uint64_t graph_execs;
    uint64_t bytes; /* in all allocations but the registered ranges */
};

/* Fills the struct (which may be null) and returns how many objects are live. */
uint64_t cudartSimLive(struct cudartSimLiveObjects *live);

/* The live objects as text, one a line. Writes as much as there is room for, with a NUL; returns the bytes needed. */
size_t cudartSimLeakReport(char *buffer, size_t length);

/* How many races were found since the last reset, and the text of the latest (as cudartSimLeakReport gives it). */
uint64_t cudartSimRaces(void);
size_t cudartSimLastRace(char *buffer, size_t length);

/* What a race does: "error" (report, sticky cudaErrorIllegalAddress), "abort", "count" (go on) or "off". */
cudaError_t cudartSimSetRaceMode(const char *mode);

/* Before each operation a stream pauses for a random time up to this many microseconds; 0 ends that. */
void cudartSimSetDelay(unsigned longest_us, uint64_t seed);

/* One more device; returns its ordinal. */
int cudartSimAddDevice(void);
/* How much memory a device has, in bytes. What is allocated stays. */
cudaError_t cudartSimSetMemory(int device, size_t bytes);
/* Whether the device can be given access to the peer's memory. */
cudaError_t cudartSimSetPeerAccess(int device, int peer, int possible);
/* What cudaRuntimeGetVersion and cudaDriverGetVersion answer: 13000 is 13.0. */
void cudartSimSetVersions(int runtime, int driver);

/* Forgets counters, faults, races, the sticky error and this thread's last error. Objects and settings stay. */
void cudartSimReset(void);

#ifdef __cplusplus
}
#endif

#endif
