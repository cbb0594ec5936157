// libmicrohttpd, with wrappers for its variadic functions, which Swift cannot call.
// Also declares what a Linux server needs and Swift's Glibc module lacks: epoll, eventfd, accept4.
#pragma once
#include <microhttpd.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/// sys/socket.h declares accept4 only if _GNU_SOURCE is defined.
extern int accept4(int, struct sockaddr *, socklen_t *, int);

/// The flags of accept4 as an int. In C they are an enum, which Swift would have to convert at each use.
static const int CMicroHTTPD_acceptFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

/// The epoll events as plain numbers, for the same reason.
static const unsigned int CMicroHTTPD_readable = EPOLLIN;
static const unsigned int CMicroHTTPD_halfClosedOnce = (unsigned int)EPOLLRDHUP | EPOLLONESHOT;

/// The results of a reader callback that return no bytes. libmicrohttpd's macros contain casts, which Swift
/// does not import.
static const long CMicroHTTPD_streamEnded = MHD_CONTENT_READER_END_OF_STREAM;
static const long CMicroHTTPD_streamFailed = MHD_CONTENT_READER_END_WITH_ERROR;

/// Starts a daemon without a listening socket. Accepted connections are passed to it with MHD_add_connection.
static inline struct MHD_Daemon *CMicroHTTPD_start(
    unsigned int flags, MHD_AccessHandlerCallback handler, void *context,
    const struct MHD_OptionItem *options) {
  return MHD_start_daemon(
      flags, 0, NULL, NULL, handler, context, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
}

/// Receives libmicrohttpd's log messages. Defined in Swift (HTTP/Daemon.swift).
extern void imagefetch_http_message(void *context, const char *text);

/// Formats a log message, truncated to 511 bytes. Written in C, because Swift 6.3 crashes while it compiles a
/// C callback
/// with a va_list where va_list is a struct, as on ARM64.
static inline void CMicroHTTPD_formatMessage(void *context, const char *format, va_list arguments) {
  char text[512];
  if (context && format && vsnprintf(text, sizeof text, format, arguments) >= 0) imagefetch_http_message(context, text);
}

/// The function above as a number for MHD_OPTION_EXTERNAL_LOGGER.
static inline intptr_t CMicroHTTPD_logger(void) { return (intptr_t)CMicroHTTPD_formatMessage; }

/// Sends content of unknown length without chunks and without Content-Length. The connection closes after the
/// response.
static inline void CMicroHTTPD_sendUnframed(struct MHD_Response *response) {
  MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
}

/// The context that the connection's NOTIFY_CONNECTION callback stored.
static inline void *CMicroHTTPD_socketContext(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info ? info->socket_context : NULL;
}

/// The connection's descriptor, -1 if there is none.
static inline int CMicroHTTPD_descriptor(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? info->connect_fd : -1;
}

static inline const struct sockaddr *CMicroHTTPD_clientAddress(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  return info ? info->client_addr : NULL;
}

/// The size of the request's header section in bytes, including the request line and the blank line.
static inline size_t CMicroHTTPD_headerSize(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  return info ? info->header_size : 0;
}
