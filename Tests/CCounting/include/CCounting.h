#ifndef CCOUNTING_H
#define CCOUNTING_H

// Counts calls of this process to the system and its libraries without changing the sources. The functions of the test
// bundle, such as fsync(), override those of the shared libraries and call them.

typedef struct {
    /// Syncs of images, their folders and partial files.
    long fileSyncs;
    /// Syncs of SQLite's log, and of the database itself when the log is copied into it.
    long logSyncs, databaseSyncs;
    /// Transactions that changed something and ended with the log synced, or without.
    long syncedCommits, unsyncedCommits;
    /// SQL statements, including those of transactions and savepoints.
    long statements;
    /// Swift jobs that were enqueued on the shared threads.
    long sharedThreads;
    /// Commands that woke libcurl's thread.
    long fetchWakeUps;
    /// Suspended and resumed connections of libmicrohttpd.
    long suspends, resumes;
} CCounts;

/// Also counts SQLite statements and jobs of Swift's shared threads, from now on and for the whole process. Call it
/// before any database is opened.
void ccounting_start(void);

/// The counts so far.
CCounts ccounting_counts(void);

#endif
