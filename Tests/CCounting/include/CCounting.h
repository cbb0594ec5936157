#ifndef CCOUNTING_H
#define CCOUNTING_H

// Counts what this process has the system and its libraries do, without a word of it in the sources: the test
// bundle's own fsync() and the like go before those of the shared libraries, and pass on to them.

typedef struct {
    /// Syncs of images, their folders and partial files.
    long fileSyncs;
    /// Syncs of SQLite's log, and of the database itself when the log is copied into it.
    long logSyncs, databaseSyncs;
    /// Transactions that changed something and ended with the log synced, or without.
    long syncedCommits, unsyncedCommits;
    /// SQL statements, those of transactions and savepoints among them.
    long statements;
    /// Jobs of Swift's that went to its shared threads.
    long sharedThreads;
    /// Commands that woke libcurl's thread.
    long fetchWakeUps;
    /// Connections that libmicrohttpd was told to leave alone, and to go on with.
    long suspends, resumes;
} CCounts;

/// Has SQLite's connections and Swift's shared threads counted as well, from now on and for the whole process:
/// before any database is opened.
void ccounting_start(void);

/// The counts so far.
CCounts ccounting_counts(void);

#endif
