// CCurl: libcurl, for the modules Fetch and Client, with wrappers for its variadic functions.
// Also access to the TLS session that libcurl uses, and to epoll and eventfd.
#pragma once
#include <curl/curl.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/// CURL_NETRC_IGNORED is an enumerator before libcurl 8.14 and a macro since.
static const long CCurl_netrcIgnored = CURL_NETRC_IGNORED;

// Swift imports no variadic C functions. Each function below wraps one for a fixed argument type.

static inline CURLcode CCurl_setLong(CURL *easy, CURLoption option, long value) {
    return curl_easy_setopt(easy, option, value);
}
static inline CURLcode CCurl_setString(CURL *easy, CURLoption option, const char *value) {
    return curl_easy_setopt(easy, option, value);
}
static inline CURLcode CCurl_setPointer(CURL *easy, CURLoption option, void *value) {
    return curl_easy_setopt(easy, option, value);
}
static inline CURLcode CCurl_setList(CURL *easy, CURLoption option, struct curl_slist *value) {
    return curl_easy_setopt(easy, option, value);
}
static inline CURLcode CCurl_setWriteFunction(CURL *easy, CURLoption option,
                                              curl_write_callback value) {
    return curl_easy_setopt(easy, option, value);
}
static inline CURLcode CCurl_setReadFunction(CURL *easy, curl_read_callback value) {
    return curl_easy_setopt(easy, CURLOPT_READFUNCTION, value);
}
static inline CURLcode CCurl_setSeekFunction(CURL *easy, curl_seek_callback value) {
    return curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, value);
}
static inline CURLcode CCurl_setOffset(CURL *easy, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(easy, option, value);
}
static inline CURLcode CCurl_setOpenSocketFunction(CURL *easy, curl_opensocket_callback value) {
    return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, value);
}
static inline CURLcode CCurl_setCloseSocketFunction(CURL *easy, curl_closesocket_callback value) {
    return curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, value);
}
static inline CURLcode CCurl_setPrereqFunction(CURL *easy, curl_prereq_callback value) {
    return curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, value);
}
static inline CURLcode CCurl_setResolverStartFunction(CURL *easy,
                                                      curl_resolver_start_callback value) {
    return curl_easy_setopt(easy, CURLOPT_RESOLVER_START_FUNCTION, value);
}
static inline CURLcode CCurl_setProgressFunction(CURL *easy, curl_xferinfo_callback value) {
    return curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, value);
}

static inline CURLcode CCurl_getLong(CURL *easy, CURLINFO info, long *value) {
    return curl_easy_getinfo(easy, info, value);
}
static inline CURLcode CCurl_getOffset(CURL *easy, CURLINFO info, curl_off_t *value) {
    return curl_easy_getinfo(easy, info, value);
}
static inline CURLcode CCurl_getPointer(CURL *easy, CURLINFO info, void **value) {
    return curl_easy_getinfo(easy, info, value);
}

// Gets the OpenSSL session of the connection that a transfer is about to use; NULL for a connection without
// TLS.
// Returns 0 if libcurl does not report the session or uses another TLS library than OpenSSL.
static inline int CCurl_getSession(CURL *easy, const void **session) {
    struct curl_tlssessioninfo *info = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &info) != CURLE_OK || !info) return 0;
    *session = info->internals;
    return !info->internals || info->backend == CURLSSLBACKEND_OPENSSL;
}
// Looks up a function of the libssl that libcurl has loaded. This module does not link libssl itself.
static inline void *CCurl_findFunction(const char *name) {
    void *const everywhere = NULL;
    return dlsym(everywhere, name);
}

// Whether the connection that a transfer is about to use speaks HTTP/2: 1 yes, 0 no, -1 unknown.
static inline int CCurl_speaksHTTP2(CURL *easy) {
    const void *session = NULL;
    if (!CCurl_getSession(easy, &session)) return -1;
    if (!session) return 0;
    void (*protocol)(const void *, const unsigned char **, unsigned *) =
        (void (*)(const void *, const unsigned char **, unsigned *))CCurl_findFunction(
            "SSL_get0_alpn_selected");
    if (!protocol) return -1;
    const unsigned char *name = NULL;
    unsigned length = 0;
    protocol(session, &name, &length);
    return length == 2 && memcmp(name, "h2", 2) == 0;
}

// Whether OpenSSL holds decrypted bytes of this connection that libcurl has not read: 1 yes, 0 no, -1
// unknown.
// libcurl reads only up to a body's length. The rest of a TLS record then stays in OpenSSL's buffer, where
// polling
// the socket does not find it. Call it for HTTP/1.1 only: HTTP/2 frames may arrive at any time.
static inline int CCurl_hasUnreadPlaintext(CURL *easy) {
    const void *session = NULL;
    if (!CCurl_getSession(easy, &session)) return -1;
    if (!session) return 0;
    int (*pending)(const void *) = (int (*)(const void *))CCurl_findFunction("SSL_pending");
    return pending ? pending(session) > 0 : -1;
}

static inline CURLMcode CCurl_multiSetLong(CURLM *multi, CURLMoption option, long value) {
    return curl_multi_setopt(multi, option, value);
}
static inline CURLMcode CCurl_multiSetPointer(CURLM *multi, CURLMoption option, void *value) {
    return curl_multi_setopt(multi, option, value);
}
static inline CURLMcode CCurl_multiSetSocketFunction(CURLM *multi, curl_socket_callback value) {
    return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, value);
}
static inline CURLMcode CCurl_multiSetTimerFunction(CURLM *multi, curl_multi_timer_callback value) {
    return curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, value);
}

static inline CURLSHcode CCurl_shareNames(CURLSH *share) {
    return curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
}

// epoll and eventfd are not part of Swift's Glibc module.
// The kernel may have closed a descriptor and reused its number since it was last watched. CCurl_watch
// therefore tries
// EPOLL_CTL_MOD first and then EPOLL_CTL_ADD.
static inline void CCurl_unwatch(int epoll, int descriptor) {
    struct epoll_event event = {0};
    epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, &event);
}
// Watches a descriptor for CURL_POLL_IN, CURL_POLL_OUT or both. With neither it stops watching.
static inline void CCurl_watch(int epoll, int descriptor, int what) {
    struct epoll_event event = {0};
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    event.data.fd = descriptor;
    if (!event.events) {
        CCurl_unwatch(epoll, descriptor);
    } else if (epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &event) != 0) {
        epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
    }
}
// Watches an idle connection for incoming bytes and for its end.
static inline void CCurl_watchIdle(int epoll, int descriptor) {
    struct epoll_event event = {0};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.fd = descriptor;
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}
static inline int CCurl_newEpoll(void) { return epoll_create1(EPOLL_CLOEXEC); }
static inline int CCurl_newEvent(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
