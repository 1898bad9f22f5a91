
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Both ends of many idle event streams, for t/bench/streams.
 *
 *   hold origin PORT      answers every request with an event stream that says
 *                         nothing
 *   hold client PORT URI  takes orders from standard input, one a line: "open
 *                         N", "close N", "count"; answers "streams N bytes N"
 */


#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>


#define MAX_FDS  65536


static void hold_origin(void);
static void hold_client(void);
static void hold_order(char *line);
static void hold_open(int n);
static void hold_read(int fd);
static void hold_add(int fd, unsigned events);


static int                 ep, port, nended, nstreams, streams[MAX_FDS];
static const char         *uri;
static char                answered[MAX_FDS];
static unsigned long long  bytes;


int
main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "hold origin PORT | hold client PORT URI\n");
        return 2;
    }

    (void) signal(SIGPIPE, SIG_IGN);

    ep = epoll_create1(0);
    port = atoi(argv[2]);
    uri = (argc > 3) ? argv[3] : "/";

    if (strcmp(argv[1], "origin") == 0) {
        hold_origin();

    } else {
        hold_client();
    }

    return 0;
}


static void
hold_origin(void)
{
    int                 fd, c, i, n, on;
    char                buf[4096];
    ssize_t             got;
    struct epoll_event  ev[512];
    struct sockaddr_in  sin;
    static const char   head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";

    on = 1;
    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons(port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    fd = socket(AF_INET, SOCK_STREAM|SOCK_NONBLOCK, 0);
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));

    if (bind(fd, (struct sockaddr *) &sin, sizeof(sin)) == -1
        || listen(fd, 4096) == -1)
    {
        perror("listen");
        exit(1);
    }

    hold_add(fd, EPOLLIN);

    for ( ;; ) {
        n = epoll_wait(ep, ev, 512, -1);

        for (i = 0; i < n; i++) {

            if (ev[i].data.fd == fd) {
                while ((c = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) != -1) {
                    answered[c] = 0;
                    hold_add(c, EPOLLIN);
                }

                continue;
            }

            c = ev[i].data.fd;
            got = read(c, buf, sizeof(buf));

            if (got == 0 || (got == -1 && errno != EAGAIN)) {
                close(c);

            } else if (got > 0 && !answered[c]) {
                answered[c] = 1;
                (void) !write(c, head, sizeof(head) - 1);
            }
        }
    }
}


static void
hold_client(void)
{
    int                 i, n;
    char                line[64];
    struct epoll_event  ev[512];

    hold_add(0, EPOLLIN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);

    for ( ;; ) {
        n = epoll_wait(ep, ev, 512, -1);

        for (i = 0; i < n; i++) {

            if (ev[i].data.fd != 0) {
                hold_read(ev[i].data.fd);
                continue;
            }

            if (fgets(line, sizeof(line), stdin) == NULL) {
                return;
            }

            hold_order(line);
        }
    }
}


static void
hold_order(char *line)
{
    int  n;

    if (sscanf(line, "open %d", &n) == 1) {
        hold_open(n);

    } else if (sscanf(line, "close %d", &n) == 1) {
        while (n-- > 0 && nstreams > 0) {
            close(streams[--nstreams]);
        }
    }

    printf("streams %d bytes %llu\n", nstreams - nended, bytes);
}


static void
hold_open(int n)
{
    int                 fd, len;
    char                req[512];
    struct sockaddr_in  sin;

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons(port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    len = snprintf(req, sizeof(req),
                   "GET %s HTTP/1.1\r\nHost: tools.example\r\n"
                   "Accept: text/event-stream\r\n\r\n", uri);

    while (n-- > 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);

        if (fd == -1 || connect(fd, (struct sockaddr *) &sin, sizeof(sin)) == -1
            || write(fd, req, len) != len)
        {
            perror("open");
            exit(1);
        }

        (void) fcntl(fd, F_SETFL, O_NONBLOCK);
        hold_add(fd, EPOLLIN|EPOLLET);
        streams[nstreams++] = fd;

        /* not more at once than nginx accepts */

        if (n % 200 == 0) {
            usleep(20000);
        }
    }
}


static void
hold_read(int fd)
{
    char     buf[4096];
    ssize_t  got;

    while ((got = read(fd, buf, sizeof(buf))) > 0) {
        bytes += got;
    }

    if (got == 0 || (errno != EAGAIN && errno != EBADF)) {
        nended++;
        (void) epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL);
    }
}


static void
hold_add(int fd, unsigned events)
{
    struct epoll_event  ev;

    memset(&ev, 0, sizeof(ev));
    ev.events = events;
    ev.data.fd = fd;
    (void) epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}
