#define _GNU_SOURCE
#include "CCounting.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <sqlite3.h>

static atomic_long file_syncs, log_syncs, database_syncs, synced_commits, unsynced_commits, statements;
static atomic_long shared_threads, fetch_wake_ups, suspends, resumes;

static void count(atomic_long *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// MARK: Syncs

/// The function with this name that this file overrides.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/// The number of log syncs of this thread.
static _Thread_local long own_log_syncs;

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static void count_sync(int descriptor) {
    char link[64], path[4096];
    int code = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = code;
    path[length > 0 ? length : 0] = 0;
    if (ends_with(path, "-wal")) {
        count(&log_syncs);
        own_log_syncs++;
    } else if (ends_with(path, ".sqlite")) {
        count(&database_syncs);
    } else {
        count(&file_syncs);
    }
}

int fsync(int descriptor) {
    count_sync(descriptor);
    return NEXT(fsync)(descriptor);
}

int fdatasync(int descriptor) {
    count_sync(descriptor);
    return NEXT(fdatasync)(descriptor);
}

// MARK: SQLite

static _Thread_local long log_syncs_before;
static _Thread_local sqlite3_stmt *commit;

static int traced(unsigned event, void *unused, void *statement, void *text) {
    (void)unused;
    if (event == SQLITE_TRACE_STMT) {
        // Statements of triggers are reported as comments.
        if (strncmp(text, "--", 2) == 0) return 0;
        count(&statements);
        int writes = sqlite3_txn_state(sqlite3_db_handle(statement), "main") == SQLITE_TXN_WRITE;
        if (!writes || strncasecmp(text, "COMMIT", 6) != 0) return 0;
        commit = statement;
        log_syncs_before = own_log_syncs;
    } else if (statement == commit) {
        count(own_log_syncs > log_syncs_before ? &synced_commits : &unsynced_commits);
        commit = NULL;
    }
    return 0;
}

static int opened(sqlite3 *database, char **error, const void *routines) {
    (void)error, (void)routines;
    return sqlite3_trace_v2(database, SQLITE_TRACE_STMT | SQLITE_TRACE_PROFILE, traced, NULL);
}

// MARK: Threads

typedef __attribute__((swiftcall)) void (*EnqueueOriginal)(void *job);
typedef __attribute__((swiftcall)) void (*EnqueueHook)(void *job, EnqueueOriginal original);

static __attribute__((swiftcall)) void enqueued(void *job, EnqueueOriginal original) {
    count(&shared_threads);
    original(job);
}

int eventfd_write(int descriptor, uint64_t value);
int eventfd_write(int descriptor, uint64_t value) {
    // Swift's timers also wake their thread this way.
    Dl_info caller;
    int known = dladdr(__builtin_return_address(0), &caller);
    if (!known || !strstr(caller.dli_fname, "libdispatch")) count(&fetch_wake_ups);
    return NEXT(eventfd_write)(descriptor, value);
}

void MHD_suspend_connection(void *connection);
void MHD_suspend_connection(void *connection) {
    count(&suspends);
    NEXT(MHD_suspend_connection)(connection);
}

void MHD_resume_connection(void *connection);
void MHD_resume_connection(void *connection) {
    count(&resumes);
    NEXT(MHD_resume_connection)(connection);
}

void ccounting_start(void) {
    sqlite3_auto_extension((void (*)(void))opened);
    EnqueueHook *hook = dlsym(RTLD_DEFAULT, "swift_task_enqueueGlobal_hook");
    if (hook) *hook = enqueued;
}

CCounts ccounting_counts(void) {
    return (CCounts){
        .fileSyncs = file_syncs, .logSyncs = log_syncs, .databaseSyncs = database_syncs,
        .syncedCommits = synced_commits, .unsyncedCommits = unsynced_commits,
        .statements = statements, .sharedThreads = shared_threads,
        .fetchWakeUps = fetch_wake_ups, .suspends = suspends, .resumes = resumes,
    };
}
