
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A fast MCP server and a fast client, each one thread:
 *
 *     fast peer PORT              answers anything, issues sessions; GET /count
 *                                 tells how many keepalives it got
 *     fast open PORT CONNECTIONS SESSIONS > IDS
 *                                 opens sessions and makes each ready
 *     fast call PORT CONNECTIONS MILLISECONDS FILE FIRST COUNT
 *                                 calls, taking the ids in turn; prints
 *                                 requests, answers that were not 200, seconds,
 *                                 and p50, p99, longest in microseconds
 */


#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


#define ID_LEN     36
#define BUF_SIZE   8192
#define TIMES_MAX  (1 << 22)


typedef struct {
    int          fd;
    int          step;                  /* of "open": 0, 1 */
    size_t       have;
    long long    began;
    char         id[ID_LEN + 1];
    char         buf[BUF_SIZE];
} conn_t;


static int fast_socket(int port, int server);
static long long fast_now(void);
static size_t fast_message(conn_t *c, const char **body, size_t *body_len);
static void fast_write(int fd, const char *data, size_t len);
static void fast_peer(int port);
static void fast_answer(conn_t *c, const char *body, size_t len);
static void fast_send(conn_t *c, const char *method, const char *id);
static conn_t *fast_connect(int port, int n);
static int fast_read(conn_t *c, int *status);
static int fast_open(int port, int n, long sessions);
static int fast_call(int port, int n, long ms, const char *file, long first,
    long count);
static int fast_compare(const void *one, const void *two);


static int       fast_epoll;
static long      fast_issued;
static long      fast_keepalives;
static unsigned  fast_times[TIMES_MAX];


int
main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);

    fast_epoll = epoll_create1(0);

    if (argc == 3 && strcmp(argv[1], "peer") == 0) {
        fast_peer(atoi(argv[2]));
    }

    if (argc == 5 && strcmp(argv[1], "open") == 0) {
        return fast_open(atoi(argv[2]), atoi(argv[3]), atol(argv[4]));
    }

    if (argc == 8 && strcmp(argv[1], "call") == 0) {
        return fast_call(atoi(argv[2]), atoi(argv[3]), atol(argv[4]), argv[5],
                         atol(argv[6]), atol(argv[7]));
    }

    fprintf(stderr, "fast: peer, open or call\n");

    return 2;
}


/* ---- both sides ---- */

static int
fast_socket(int port, int server)
{
    int                 fd, one;
    struct sockaddr_in  addr;

    one = 1;
    fd = socket(AF_INET, SOCK_STREAM, 0);

    memset(&addr, 0, sizeof(addr));
    addr.sin_family = AF_INET;
    addr.sin_port = htons(port);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    if (server) {
        if (bind(fd, (struct sockaddr *) &addr, sizeof(addr)) != 0
            || listen(fd, 4096) != 0)
        {
            perror("listen");
            exit(1);
        }

    } else if (connect(fd, (struct sockaddr *) &addr, sizeof(addr)) != 0) {
        perror("connect");
        exit(1);
    }

    fcntl(fd, F_SETFL, O_NONBLOCK);

    return fd;
}


static long long
fast_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}


/*
 * The length of the message in the buffer, with its body (chunks are left as
 * they are: the first byte of the body is in any case after the head); 0 if it
 * is not whole.
 */

static size_t
fast_message(conn_t *c, const char **body, size_t *body_len)
{
    char    *end, *p;
    size_t   head;

    c->buf[c->have] = '\0';

    end = strstr(c->buf, "\r\n\r\n");
    if (end == NULL) {
        return 0;
    }

    head = end + 4 - c->buf;
    *end = '\0';
    p = strcasestr(c->buf, "\r\nContent-Length:");
    *end = '\r';

    *body = c->buf + head;
    *body_len = p ? strtoul(p + 17, NULL, 10) : 0;

    return (c->have >= head + *body_len) ? head + *body_len : 0;
}


static void
fast_write(int fd, const char *data, size_t len)
{
    ssize_t  n;

    while (len != 0) {
        n = write(fd, data, len);

        if (n < 0) {
            if (errno != EAGAIN) {
                return;
            }

            n = 0;
        }

        data += n;
        len -= n;
    }
}


/* ---- the server ---- */

static void
fast_peer(int port)
{
    int                  listening, fd, i, n, one;
    conn_t              *c;
    size_t               len, body_len;
    ssize_t              got;
    const char          *body;
    struct epoll_event   ev, events[256];

    one = 1;
    listening = fast_socket(port, 1);

    ev.events = EPOLLIN;
    ev.data.ptr = NULL;
    epoll_ctl(fast_epoll, EPOLL_CTL_ADD, listening, &ev);

    for ( ;; ) {
        n = epoll_wait(fast_epoll, events, 256, -1);

        for (i = 0; i < n; i++) {
            c = events[i].data.ptr;

            if (c == NULL) {
                fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK);

                if (fd >= 0) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

                    c = calloc(1, sizeof(conn_t));
                    c->fd = fd;
                    ev.events = EPOLLIN;
                    ev.data.ptr = c;
                    epoll_ctl(fast_epoll, EPOLL_CTL_ADD, fd, &ev);
                }

                continue;
            }

            got = read(c->fd, c->buf + c->have, BUF_SIZE - 1 - c->have);

            if (got <= 0) {
                close(c->fd);
                free(c);
                continue;
            }

            c->have += got;

            while ((len = fast_message(c, &body, &body_len)) != 0) {
                fast_answer(c, body, body_len);
                memmove(c->buf, c->buf + len, c->have - len);
                c->have -= len;
            }
        }
    }
}


static void
fast_answer(conn_t *c, const char *body, size_t len)
{
    int          id_len, n, m;
    char         out[1024], text[512], issued[80];
    const char  *id, *end;

    if (strncmp(c->buf, "GET /count", 10) == 0) {
        m = snprintf(text, sizeof(text), "%ld", fast_keepalives);

        n = snprintf(out, sizeof(out), "HTTP/1.1 200 OK\r\n"
                     "Content-Length: %d\r\n\r\n%s", m, text);
        fast_write(c->fd, out, n);
        return;
    }

    id = len ? memmem(body, len, "\"id\":", 5) : NULL;

    if (id == NULL) {
        n = snprintf(out, sizeof(out), "HTTP/1.1 %s\r\n"
                     "Content-Length: 0\r\n\r\n",
                     c->buf[0] == 'P' ? "202 Accepted"
                                      : "405 Method Not Allowed");
        fast_write(c->fd, out, n);
        return;
    }

    id += 5;
    end = id + (id[0] == '"' ? 1 + strcspn(id + 1, "\"") + 1
                             : strcspn(id, ",}"));
    id_len = (int) (end - id);
    id_len = (id_len < 100) ? id_len : 100;

    if (strncmp(id, "\"mcpka-", 7) == 0) {
        fast_keepalives++;
    }

    issued[0] = '\0';

    if (memmem(body, len, "\"initialize\"", 12) != NULL) {
        fast_issued++;
        snprintf(issued, sizeof(issued),
                 "Mcp-Session-Id: %08lx-4444-4444-4444-%012lx\r\n",
                 (fast_issued * 2654435761UL) & 0xffffffff, fast_issued);
    }

    m = snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%.*s,"
                 "\"result\":{\"tools\":[]}}", id_len, id);

    n = snprintf(out, sizeof(out), "HTTP/1.1 200 OK\r\n%s"
                 "Content-Type: application/json\r\n"
                 "Content-Length: %d\r\n\r\n%s", issued, m, text);

    fast_write(c->fd, out, n);
}


/* ---- the client ---- */

static void
fast_send(conn_t *c, const char *method, const char *id)
{
    int   n, m;
    char  out[1024], text[256], session[80];

    m = snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":7,"
                 "\"method\":\"%s\",\"params\":{}}", method);

    session[0] = '\0';

    if (id != NULL) {
        snprintf(session, sizeof(session), "Mcp-Session-Id: %.36s\r\n", id);
    }

    n = snprintf(out, sizeof(out), "POST /mcp HTTP/1.1\r\nHost: x\r\n%s"
                 "Content-Type: application/json\r\n"
                 "Accept: application/json, text/event-stream\r\n"
                 "Content-Length: %d\r\n\r\n%s", session, m, text);

    c->began = fast_now();
    fast_write(c->fd, out, n);
}


static conn_t *
fast_connect(int port, int n)
{
    int                  i;
    conn_t              *conns;
    struct epoll_event   ev;

    conns = calloc(n, sizeof(conn_t));

    for (i = 0; i < n; i++) {
        conns[i].fd = fast_socket(port, 0);
        ev.events = EPOLLIN;
        ev.data.ptr = &conns[i];
        epoll_ctl(fast_epoll, EPOLL_CTL_ADD, conns[i].fd, &ev);
    }

    return conns;
}


/* Reads; 1 if a whole answer came: its status is in "*status". */

static int
fast_read(conn_t *c, int *status)
{
    size_t       len, body_len;
    ssize_t      got;
    const char  *body;

    got = read(c->fd, c->buf + c->have, BUF_SIZE - 1 - c->have);

    if (got <= 0) {
        fprintf(stderr, "fast: nginx closed a connection\n");
        exit(1);
    }

    c->have += got;

    len = fast_message(c, &body, &body_len);

    if (len == 0) {
        return 0;
    }

    *status = atoi(c->buf + 9);
    c->have = 0;

    return 1;
}


static int
fast_open(int port, int n, long sessions)
{
    int                  i, k, status;
    char                *p;
    long                 done, started;
    conn_t              *conns, *c;
    struct epoll_event   events[256];

    conns = fast_connect(port, n);

    for (started = 0; started < n && started < sessions; started++) {
        fast_send(&conns[started], "initialize", NULL);
    }

    for (done = 0; done < sessions; /* void */ ) {
        k = epoll_wait(fast_epoll, events, 256, 10000);

        if (k <= 0) {
            fprintf(stderr, "fast: no answer\n");
            return 1;
        }

        for (i = 0; i < k; i++) {
            c = events[i].data.ptr;

            if (!fast_read(c, &status)) {
                continue;
            }

            if (status != 200) {
                fprintf(stderr, "fast: status %d\n", status);
                return 1;
            }

            if (c->step == 0) {
                p = strcasestr(c->buf, "\r\nMcp-Session-Id: ");
                if (p == NULL) {
                    fprintf(stderr, "fast: no session\n");
                    return 1;
                }

                memcpy(c->id, p + 18, ID_LEN);
                c->step = 1;
                fast_send(c, "tools/list", c->id);
                continue;
            }

            puts(c->id);
            done++;

            if (started < sessions) {
                c->step = 0;
                started++;
                fast_send(c, "initialize", NULL);
            }
        }
    }

    return 0;
}


static int
fast_call(int port, int n, long ms, const char *file, long first, long count)
{
    int                  i, k, status;
    char                *ids;
    FILE                *f;
    long                 done, bad, next;
    conn_t              *conns, *c;
    long long            from, end, now;
    struct epoll_event   events[256];

    ids = malloc(count * (ID_LEN + 1));
    f = fopen(file, "r");

    if (f == NULL || fseek(f, first * (ID_LEN + 1), SEEK_SET) != 0
        || fread(ids, ID_LEN + 1, count, f) != (size_t) count)
    {
        fprintf(stderr, "fast: no ids\n");
        return 1;
    }

    fclose(f);

    conns = fast_connect(port, n);
    done = bad = next = 0;
    from = fast_now();
    end = from + ms * 1000;

    for (i = 0; i < n; i++) {
        fast_send(&conns[i], "tools/call", ids + next * (ID_LEN + 1));
        next = (next + 7919) % count;
    }

    do {
        k = epoll_wait(fast_epoll, events, 256, 10000);

        if (k <= 0) {
            fprintf(stderr, "fast: no answer\n");
            return 1;
        }

        for (i = 0; i < k; i++) {
            c = events[i].data.ptr;

            if (!fast_read(c, &status)) {
                continue;
            }

            now = fast_now();
            fast_times[done++ & (TIMES_MAX - 1)] = (unsigned) (now - c->began);
            bad += (status != 200);

            fast_send(c, "tools/call", ids + next * (ID_LEN + 1));
            next = (next + 7919) % count;
        }

        now = fast_now();

    } while (now < end);

    k = (done < TIMES_MAX) ? (int) done : TIMES_MAX;
    qsort(fast_times, k, sizeof(unsigned), fast_compare);

    printf("%ld %ld %.3f %u %u %u\n", done, bad, (now - from) / 1e6,
           fast_times[k / 2], fast_times[(long) k * 99 / 100],
           fast_times[k - 1]);

    return 0;
}


static int
fast_compare(const void *one, const void *two)
{
    unsigned  a, b;

    a = *(const unsigned *) one;
    b = *(const unsigned *) two;

    return (a > b) - (a < b);
}
