/* A relay that does nothing: what any broker pays to the kernel. The n-th connection to the first port is paired with the n-th
 * one to the second port; bytes that come from one end are written to the other as they are. Two ports on loopback; ends with
 * SIGTERM. Built by bench/brokers.py: cc -O2 null_relay.c -o null_relay */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FDS 20000
#define BYTES 262144

static int peer[FDS];             /* the other end, 0 for none yet */
static int waiting[2][FDS];       /* ends without a peer, by port */
static int first[2], last[2];
static char buffer[BYTES];

static int listen_at(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1024)) exit(1);
    return fd;
}

static void pair_up(int fd, int side) {
    int other = !side;
    if (first[other] < last[other]) {
        int found = waiting[other][first[other]++];
        peer[fd] = found;
        peer[found] = fd;
    } else {
        waiting[side][last[side]++] = fd;
    }
}

static void pass_on(int to, ssize_t size) {
    for (ssize_t done = 0; done < size;) {
        ssize_t written = write(to, buffer + done, size - done);
        if (written < 0 && errno != EINTR) return;
        if (written > 0) done += written;
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int epoll = epoll_create1(0), on = 1;
    int port[2] = {listen_at(atoi(arguments[1])), listen_at(atoi(arguments[2]))};
    struct epoll_event event = {.events = EPOLLIN}, events[256];
    for (int side = 0; side < 2; side++) {
        event.data.fd = port[side];
        epoll_ctl(epoll, EPOLL_CTL_ADD, port[side], &event);
    }
    for (;;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == port[0] || fd == port[1]) {
                int client = accept(fd, NULL, NULL);
                if (client < 0 || client >= FDS) return 1;
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                peer[client] = 0;
                pair_up(client, fd == port[1]);
                event.data.fd = client;
                epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event);
                continue;
            }
            ssize_t size = read(fd, buffer, BYTES);
            if (size <= 0) {
                close(fd);
                if (peer[fd]) peer[peer[fd]] = 0;
                else memset(first, 0, sizeof first), memset(last, 0, sizeof last); /* a probe went: nobody waits */
                peer[fd] = 0;
            } else if (peer[fd]) {
                pass_on(peer[fd], size);
            }
        }
    }
}
