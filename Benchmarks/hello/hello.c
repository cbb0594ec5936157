// The yardstick: the minimum work of libmicrohttpd for a request, with the same settings as the service.
// One prepared response, queued in the handler's second call so that the connection is kept open.
//
//   cc -O2 hello.c -lmicrohttpd -o hello && ./hello PORT BODY [THREADS]
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct MHD_Response *answer;

static enum MHD_Result handle(
    void *context, struct MHD_Connection *connection, const char *url, const char *method,
    const char *version, const char *piece, size_t *size, void **request) {
  (void)context, (void)url, (void)method, (void)version, (void)piece;
  if (!*request) {
    *request = &answer;
    return MHD_YES;
  }
  *size = 0;
  return MHD_queue_response(connection, MHD_HTTP_OK, answer);
}

int main(int count, char **arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: %s PORT BODY [THREADS]\n", arguments[0]);
    return 2;
  }
  unsigned threads = count > 3 ? (unsigned)atoi(arguments[3]) : 2;
  answer = MHD_create_response_from_buffer(
      strlen(arguments[2]), arguments[2], MHD_RESPMEM_PERSISTENT);
  struct sockaddr_in address = {
      .sin_family = AF_INET,
      .sin_port = htons((unsigned short)atoi(arguments[1])),
      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
  };
  struct MHD_Daemon *daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR, &address,
      MHD_OPTION_THREAD_POOL_SIZE, threads, MHD_OPTION_CONNECTION_LIMIT, 10000u, MHD_OPTION_END);
  if (!answer || !daemon) return 1;
  sigset_t signals;
  int received;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  sigwait(&signals, &received);
  MHD_stop_daemon(daemon);
  MHD_destroy_response(answer);
  return 0;
}
