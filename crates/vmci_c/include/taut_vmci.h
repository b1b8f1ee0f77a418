/*
 * taut_vmci.h: queue pairs for C programs in Linux guests. The bytes of a VMCI stream go through
 * memory that the program shares with its host, instead of through packets of the kernel.
 *
 * A program connects or accepts a stream socket of AF_VSOCK as usual, and attaches it before it
 * reads or writes. From then on it reads and writes by the handle only:
 *
 *     struct taut_vmci *line = taut_vmci_attach(fd, 50, reason, sizeof reason);
 *     if (line == NULL && errno == EPROTO)
 *         close(fd);                               (bytes may be missing: connect again)
 *     else if (line == NULL)
 *         fprintf(stderr, "by packets, since %s\n", reason);    (the socket works as before)
 *
 * Link with -ltaut_vmci_c. Functions that fail set errno. A handle may be used by several threads
 * at once. Each direction may have any number of threads in taut_vmci_read or taut_vmci_write, and
 * one thread that waits by itself. It does not survive fork: only one of the processes may use it.
 */
#ifndef TAUT_VMCI_H
#define TAUT_VMCI_H

#include <poll.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A connection whose end is attached to a queue pair. */
struct taut_vmci;

/* Values for `timeout_ms`. */
#define TAUT_VMCI_FOREVER (-1)
#define TAUT_VMCI_AT_ONCE 0

/*
 * Attaches a connected stream socket of AF_VSOCK, whose descriptor stays the caller's. A call that
 * finds nothing looks at the rings for at most `poll_us` microseconds before it sleeps. The host is
 * asked, which usually takes less than a millisecond. A host that does not answer is waited for.
 * This takes up to 1 second, and more if the guest is busy.
 *
 * Returns NULL if the end is not attached, and writes the reason with a hint to `reason`, which
 * holds `reason_size` bytes and may be NULL. errno is
 *   EBADF       `fd` is negative; there is no reason in text
 *   EOPNOTSUPP  `fd` is not a connected stream socket of AF_VSOCK
 *   ENODEV      this machine has no memory for queue pairs, or no driver for it
 *   EACCES      the program may not open the device
 *   ENOSPC      all channels are in use
 *   EPROTO      the host may have attached the end although this side has not: close the socket
 *   ENOTSUP     anything else
 * After all of these but EPROTO, the socket works as if nothing had been asked.
 */
struct taut_vmci *taut_vmci_attach(int fd, unsigned poll_us, char *reason, size_t reason_size);

/*
 * Reads at least one byte; 0 means the end of the stream. Waits for at most `timeout_ms`
 * milliseconds. Returns -1 with errno EAGAIN or ETIMEDOUT if nothing came, EINTR after a signal,
 * ECONNRESET after a reset, EPROTO if the words in shared memory contradict the protocol.
 */
ssize_t taut_vmci_read(struct taut_vmci *line, void *buffer, size_t size, int timeout_ms);

/*
 * Writes at least one byte, unless `size` is 0. Returns the number of bytes written, or -1 with
 * the errors of taut_vmci_read, or EPIPE after a shutdown or if the peer has closed. No SIGPIPE.
 */
ssize_t taut_vmci_write(struct taut_vmci *line, const void *bytes, size_t size, int timeout_ms);

/*
 * Says that no more bytes follow. May be repeated. Returns 0, or -1 with errno EPROTO if the words
 * in shared memory contradict the protocol. After a reset it returns 0, too.
 */
int taut_vmci_shutdown(struct taut_vmci *line);

/*
 * Begins a wait of the program's own, for several connections at once. `events` is POLLIN, POLLOUT
 * or both. Returns those that are ready: the program must not wait then. If it returns 0, the
 * program waits for both entries of `fds`, and for no longer than `*longest_ms` milliseconds unless
 * that is -1; then it calls taut_vmci_disarm with the same `events`.
 *
 * One thread may wait for POLLIN while another one waits for POLLOUT. Each direction may have one
 * thread at most between this call and taut_vmci_disarm. The entries belong to this wait: another
 * thread uses those of its own call. The first one may be another descriptor in the next wait.
 */
short taut_vmci_arm(struct taut_vmci *line, short events, struct pollfd fds[2], int *longest_ms);

/*
 * Ends a wait of the program's own. `events` are those of taut_vmci_arm. Returns what is ready of
 * them: POLLIN, POLLOUT, both, or 0 if the event was for another thread.
 */
short taut_vmci_disarm(struct taut_vmci *line, short events);

/* Ends the use of the queue pair, and frees the handle. The caller closes the socket. */
void taut_vmci_close(struct taut_vmci *line);

#ifdef __cplusplus
}
#endif

#endif
