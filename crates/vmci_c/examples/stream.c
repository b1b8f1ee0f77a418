/*
 * stream.c: sends bytes from one VM to another through queue pairs, and compares each of them.
 *
 *     stream listen PORT                      in one VM
 *     stream connect CID PORT SIZE TOTAL      in another: TOTAL bytes in writes of SIZE
 *
 * Both print how the bytes went, and the receiver how many were right.
 */
#include <errno.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "taut_vmci.h"

/* A connection: by the handle if there is one, else by the socket. */
struct end {
	int fd;
	struct taut_vmci *line;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned char byte_at(uint64_t position)
{
	return (unsigned char)((position * 2654435761u) >> 13);
}

static struct end attach(int fd)
{
	char reason[256] = "";
	struct end end = { fd, taut_vmci_attach(fd, 50, reason, sizeof reason) };
	if (end.line == NULL && errno == EPROTO)
		die("attach");
	printf("stream: by %s%s%s\n", end.line ? "a ring" : "packets, since ", reason, "");
	return end;
}

static ssize_t get(struct end end, void *buffer, size_t size)
{
	if (end.line == NULL)
		return read(end.fd, buffer, size);
	for (;;) {
		ssize_t got = taut_vmci_read(end.line, buffer, size, TAUT_VMCI_AT_ONCE);
		if (got >= 0 || errno != EAGAIN)
			return got;
		/* Waits as a program does that has several connections. */
		struct pollfd fds[2];
		int longest;
		if (taut_vmci_arm(end.line, POLLIN, fds, &longest) == 0 && poll(fds, 2, longest) < 0)
			die("poll");
		taut_vmci_disarm(end.line, POLLIN);
	}
}

static void put(struct end end, const unsigned char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t done = end.line ? taut_vmci_write(end.line, bytes, size, TAUT_VMCI_FOREVER)
					: write(end.fd, bytes, size);
		if (done < 0)
			die("write");
		bytes += done;
		size -= (size_t)done;
	}
}

static void serve(unsigned port)
{
	struct sockaddr_vm own = { .svm_family = AF_VSOCK, .svm_port = port, .svm_cid = VMADDR_CID_ANY };
	int listener = socket(AF_VSOCK, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&own, sizeof own) < 0 || listen(listener, 8) < 0)
		die("listen");
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			die("accept");
		struct end end = attach(fd);
		static unsigned char buffer[65536];
		uint64_t right = 0, total = 0;
		ssize_t got;
		while ((got = get(end, buffer, sizeof buffer)) > 0) {
			for (ssize_t at = 0; at < got; at++, total++)
				right += buffer[at] == byte_at(total);
		}
		if (got < 0)
			die("read");
		put(end, (unsigned char *)&right, sizeof right);
		printf("stream: %llu of %llu bytes were right\n", (unsigned long long)right,
		       (unsigned long long)total);
		fflush(stdout);
		taut_vmci_close(end.line);
		close(fd);
	}
}

static void send_all(unsigned cid, unsigned port, size_t size, uint64_t total)
{
	struct sockaddr_vm to = { .svm_family = AF_VSOCK, .svm_port = port, .svm_cid = cid };
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
		die("connect");
	struct end end = attach(fd);
	unsigned char *bytes = malloc(size);
	if (bytes == NULL)
		die("malloc");
	for (uint64_t sent = 0; sent < total;) {
		size_t part = total - sent < size ? (size_t)(total - sent) : size;
		for (size_t at = 0; at < part; at++)
			bytes[at] = byte_at(sent + at);
		put(end, bytes, part);
		sent += part;
	}
	if (end.line ? taut_vmci_shutdown(end.line) : shutdown(fd, SHUT_WR))
		die("shutdown");
	uint64_t right = 0;
	if (get(end, &right, sizeof right) != sizeof right)
		die("answer");
	printf("stream: the receiver found %llu of %llu bytes right\n", (unsigned long long)right,
	       (unsigned long long)total);
	taut_vmci_close(end.line);
	close(fd);
	exit(right == total ? 0 : 1);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "listen") == 0)
		serve((unsigned)atoi(argv[2]));
	if (argc == 6 && strcmp(argv[1], "connect") == 0)
		send_all((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), (size_t)atol(argv[4]),
			 strtoull(argv[5], NULL, 10));
	fprintf(stderr, "usage: stream listen PORT | stream connect CID PORT SIZE TOTAL\n");
	return 2;
}
