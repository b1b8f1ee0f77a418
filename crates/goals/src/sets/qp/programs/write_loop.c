/* Writes messages of one size to TCP connections in a loop.
 *
 * write_loop serve PORT: reads connections to their ends, answers each with its number of bytes.
 * write_loop send HOST PORT SIZE SESSIONS SECONDS: writes for so long to each of these connections.
 * write_loop copy SIZE SECONDS: copies memory of this size, for comparison.
 *
 * The last two print bytes and seconds. The time of `send` ends when the receiver's answer is there.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 65536, MOST_SESSIONS = 64 };

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static struct sockaddr_in address_of(const char *host, const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "%s is no IPv4 address\n", host);
        exit(2);
    }
    return address;
}

static void *serve_one(void *argument)
{
    int connection = (int)(intptr_t)argument;
    char *buffer = malloc(BUFFER);
    uint64_t sum = 0;
    ssize_t count;
    while (buffer && (count = read(connection, buffer, BUFFER)) > 0)
        sum += count;
    sum = htobe64(sum);
    if (!buffer || count < 0 || write(connection, &sum, sizeof sum) != sizeof sum)
        perror("connection");
    free(buffer);
    close(connection);
    return NULL;
}

static int serve(const char *port)
{
    struct sockaddr_in address = address_of("0.0.0.0", port);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64))
        fail(port);
    for (;;) {
        pthread_t thread;
        int connection = accept(listener, NULL, NULL);
        if (connection < 0)
            fail("accept");
        if (pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)connection))
            fail("pthread_create");
        pthread_detach(thread);
    }
}

/* One connection of `send`. */
struct session {
    int socket;
    size_t size;
    double end;
    uint64_t received;
};

static void *send_one(void *argument)
{
    struct session *session = argument;
    char *message = calloc(1, session->size);
    uint64_t sent = 0;
    if (!message)
        fail("memory");
    while (now() < session->end) {
        /* The time is looked at once for many messages: it costs as much as a small write. */
        for (int round = 0; round < 64; round++) {
            for (size_t done = 0; done < session->size;) {
                ssize_t count = write(session->socket, message + done, session->size - done);
                if (count <= 0)
                    fail("write");
                done += count;
            }
            sent += session->size;
        }
    }
    shutdown(session->socket, SHUT_WR);
    char *answer = (char *)&session->received;
    for (size_t done = 0; done < sizeof session->received;) {
        ssize_t count = read(session->socket, answer + done, sizeof session->received - done);
        if (count <= 0)
            fail("answer");
        done += count;
    }
    session->received = be64toh(session->received);
    if (session->received != sent) {
        fprintf(stderr, "%llu of %llu bytes were received\n", (unsigned long long)session->received,
                (unsigned long long)sent);
        exit(1);
    }
    close(session->socket);
    free(message);
    return NULL;
}

static void print(double bytes, double seconds)
{
    printf("{\"bytes\": %.0f, \"seconds\": %.6f}\n", bytes, seconds);
}

static int send_all(const char *host, const char *port, size_t size, int sessions, double seconds)
{
    struct sockaddr_in address = address_of(host, port);
    struct session all[MOST_SESSIONS];
    pthread_t threads[MOST_SESSIONS];
    double bytes = 0;
    for (int at = 0; at < sessions; at++) {
        all[at] = (struct session){.socket = socket(AF_INET, SOCK_STREAM, 0), .size = size};
        if (connect(all[at].socket, (struct sockaddr *)&address, sizeof address))
            fail(host);
    }
    double begin = now();
    for (int at = 0; at < sessions; at++) {
        all[at].end = begin + seconds;
        if (pthread_create(&threads[at], NULL, send_one, &all[at]))
            fail("pthread_create");
    }
    for (int at = 0; at < sessions; at++) {
        pthread_join(threads[at], NULL);
        bytes += all[at].received;
    }
    print(bytes, now() - begin);
    return 0;
}

static int copy(size_t size, double seconds)
{
    char *from = malloc(size), *to = malloc(size);
    if (!from || !to)
        fail("memory");
    memset(from, 1, size);
    memset(to, 2, size);
    double begin = now(), bytes = 0;
    do {
        for (int round = 0; round < 16; round++) {
            memcpy(to, from, size);
            /* Keeps the compiler from leaving copies out. */
            __asm__ volatile("" : : "r"(to) : "memory");
            bytes += size;
        }
    } while (now() - begin < seconds);
    print(bytes, now() - begin);
    return 0;
}

int main(int count, char **words)
{
    signal(SIGPIPE, SIG_IGN);
    const char *mode = count > 1 ? words[1] : "";
    if (count == 3 && !strcmp(mode, "serve"))
        return serve(words[2]);
    if (count == 7 && !strcmp(mode, "send")) {
        long size = atol(words[4]);
        int sessions = atoi(words[5]);
        if (size > 0 && sessions > 0 && sessions <= MOST_SESSIONS)
            return send_all(words[2], words[3], size, sessions, atof(words[6]));
    }
    if (count == 4 && !strcmp(mode, "copy") && atol(words[2]) > 0)
        return copy(atol(words[2]), atof(words[3]));
    fprintf(stderr, "write_loop serve PORT | send HOST PORT SIZE SESSIONS SECONDS | copy SIZE SECONDS\n");
    return 2;
}
