/* Runs the guide's samples between processes, in their order and each in its process. */
#include "tests/c/samples.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* What both processes know, in memory that both have mapped. */
struct shared {
    struct cudaMemPoolPtrExportData memory;
    cudaIpcEventHandle_t ready, finished;
    volatile int turn, failed;
};
static struct shared *shared;
static cudaEvent_t ready, finished;
static int channel;

static void send_fd(int to, int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof fd)];
    struct iovec data = {&byte, 1};
    struct msghdr message = {0};
    memset(room, 0, sizeof room);
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    sendmsg(to, &message, 0);
}

static int receive_fd(int from) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {0};
    int fd = -1;
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    recvmsg(from, &message, 0);
    if (CMSG_FIRSTHDR(&message)) memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

enum role { EXPORTER, IMPORTER };
struct step {
    enum role role;
    void (*run)(void);
};

/* Waits for the step's turn. */
static int waited_for(int step) {
    while (shared->turn < step && !shared->failed) usleep(100);
    return !shared->failed;
}

/* Takes one process's part in the steps. */
static int take_part(enum role role, const struct step *steps, int count) {
    alarm(60); /* the other may have crashed */
    before(0, 0, 0);
    for (int k = 0; k < count; k++) {
        if (steps[k].role != role) continue;
        if (!waited_for(k)) return 1;
        steps[k].run();
        if (cudaGetLastError() != cudaSuccess) shared->failed = 1;
        shared->turn = k + 1;
    }
    /* The other still uses this one's events: both wait for the end of both. */
    if (!waited_for(count) || cudaDeviceSynchronize() != cudaSuccess) shared->failed = 1;
    __atomic_add_fetch(&shared->turn, 1, __ATOMIC_SEQ_CST);
    return !waited_for(count + 2);
}

/* Runs the steps in two processes. Nothing of CUDA may have been used in this one before. */
static int between_processes(const struct step *steps, int count) {
    int ends[2], status = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
    pid_t child = fork();
    channel = ends[child == 0];
    if (child == 0) _exit(take_part(IMPORTER, steps, count));
    int failed = take_part(EXPORTER, steps, count);
    waitpid(child, &status, 0);
    return failed || status != 0;
}
