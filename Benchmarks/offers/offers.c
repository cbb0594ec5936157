// Offers jobs at a fixed rate, whether the service answers or not, and measures the response times. It is in C to use little
// CPU time, because it shares the cores with the service, unlike a real client. See ../overload.py.
//
//   cc -O2 offers.c -o offers && ./offers PORT RATE SECONDS CONNECTIONS IMAGES URL TAG
//
// Prints a line for each status: the count, and the median and 99th percentile of the response time in ms, from when the
// request was given to the kernel. Then its CPU seconds, the number of jobs that were not offered because too many were
// unanswered, the seconds until all responses arrived, and the number without a response.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/// Maximum unanswered requests of a connection.
#define MOST_WAITING 4096
#define ROOM (64 << 10)
#define TICK_MILLISECONDS 2
#define DRAIN_SECONDS 30

typedef struct {
  int socket;
  /// When each unanswered request was sent.
  double sent[MOST_WAITING];
  unsigned first, waiting;
  char unsent[ROOM], text[ROOM];
  size_t unsent_count, text_count;
} Connection;

typedef struct {
  float *milliseconds;
  size_t count, room;
} Times;

static Times times[600];

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "unexpected");
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void note(int status, double seconds) {
  if (status < 100 || status >= 600) {
    fprintf(stderr, "no status: %d\n", status);
    exit(1);
  }
  Times *of_status = &times[status];
  if (of_status->count == of_status->room) {
    of_status->room = of_status->room ? 2 * of_status->room : 1024;
    of_status->milliseconds = realloc(of_status->milliseconds, of_status->room * sizeof(float));
    if (!of_status->milliseconds) fail("realloc");
  }
  of_status->milliseconds[of_status->count++] = (float)(seconds * 1000);
}

static void send_all(Connection *connection) {
  size_t done = 0;
  while (done < connection->unsent_count) {
    ssize_t count = send(
        connection->socket, connection->unsent + done, connection->unsent_count - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) fail("send");
    done += (size_t)count;
  }
  connection->unsent_count -= done;
  memmove(connection->unsent, connection->unsent + done, connection->unsent_count);
}

/// Parses responses in the form that libmicrohttpd writes, which is the only server this is used with.
static void take(Connection *connection) {
  ssize_t count = recv(
      connection->socket, connection->text + connection->text_count, ROOM - 1 - connection->text_count, MSG_DONTWAIT);
  if (count < 0 && errno == EAGAIN) return;
  errno = 0;
  if (count <= 0) fail("the service closed a connection");
  connection->text_count += (size_t)count;
  connection->text[connection->text_count] = 0;
  char *at = connection->text, *end = at + connection->text_count;
  const double moment = now();
  for (char *head; (head = strstr(at, "\r\n\r\n"));) {
    char *length = strstr(at, "Content-Length: ");
    if (!length || length > head) fail("a response without a length");
    char *next = head + 4 + atoi(length + strlen("Content-Length: "));
    if (next > end) break;
    if (connection->waiting == 0) fail("a response without a request");
    note(atoi(at + strlen("HTTP/1.1 ")), moment - connection->sent[connection->first]);
    connection->first = (connection->first + 1) % MOST_WAITING;
    connection->waiting--;
    at = next;
  }
  connection->text_count = (size_t)(end - at);
  memmove(connection->text, at, connection->text_count);
}

static int compare(const void *one, const void *other) {
  float difference = *(const float *)one - *(const float *)other;
  return difference < 0 ? -1 : difference > 0;
}

int main(int count, char **arguments) {
  if (count != 8) {
    fprintf(stderr, "usage: %s PORT RATE SECONDS CONNECTIONS IMAGES URL TAG\n", arguments[0]);
    return 2;
  }
  const double rate = atof(arguments[2]), seconds = atof(arguments[3]);
  const int connections = atoi(arguments[4]), images = atoi(arguments[5]);
  struct sockaddr_in address = {
      .sin_family = AF_INET,
      .sin_port = htons((unsigned short)atoi(arguments[1])),
      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
  };
  Connection *all = calloc((size_t)connections, sizeof *all);
  int ready = epoll_create1(EPOLL_CLOEXEC);
  if (!all || ready < 0) fail("epoll_create1");
  for (int i = 0; i < connections; i++) {
    all[i].socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(all[i].socket, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
    setsockopt(all[i].socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
    if (epoll_ctl(ready, EPOLL_CTL_ADD, all[i].socket, &event) != 0) fail("epoll_ctl");
  }
  const double start = now(), end = start + seconds;
  long sent = 0, unanswered = 1, skipped = 0;
  for (double moment; (moment = now()) < end + DRAIN_SECONDS && (moment < end || unanswered > 0);) {
    if (moment < end) {
      for (long due = (long)((moment - start) * rate); sent < due; sent++) {
        // A client would give up on a connection that is not read for seconds, so skip the job.
        Connection *connection = &all[sent % connections];
        char body[512], request[1024];
        if (connection->waiting >= MOST_WAITING || connection->waiting > 2 * rate / connections) {
          skipped++;
          continue;
        }
        int length = snprintf(
            body, sizeof body, "{\"url\": \"%s/%ld.jpg?%s%ld\", \"cache\": \"no-store\"}", arguments[6], sent % images,
            arguments[7], sent);
        int size = snprintf(
            request, sizeof request,
            "POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
            length, body);
        if (connection->unsent_count + (size_t)size > ROOM) {
          skipped++;
          continue;
        }
        memcpy(connection->unsent + connection->unsent_count, request, (size_t)size);
        connection->unsent_count += (size_t)size;
        connection->sent[(connection->first + connection->waiting++) % MOST_WAITING] = moment;
        send_all(connection);
      }
    }
    struct epoll_event events[64];
    int many = epoll_wait(ready, events, sizeof events / sizeof *events, TICK_MILLISECONDS);
    if (many < 0 && errno != EINTR) fail("epoll_wait");
    for (int i = 0; i < many; i++) take(events[i].data.ptr);
    unanswered = 0;
    for (int i = 0; i < connections; i++) {
      if (all[i].unsent_count > 0) send_all(&all[i]);
      unanswered += all[i].waiting;
    }
  }
  const double drain = now() - end;
  for (int status = 0; status < 600; status++) {
    Times *of_status = &times[status];
    if (of_status->count == 0) continue;
    qsort(of_status->milliseconds, of_status->count, sizeof(float), compare);
    printf("%d %zu %.2f %.2f\n", status, of_status->count, of_status->milliseconds[of_status->count / 2],
           of_status->milliseconds[of_status->count * 99 / 100]);
  }
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("%.3f %ld %.3f %ld\n",
         (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
             (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
         skipped, drain, unanswered);
  return 0;
}
