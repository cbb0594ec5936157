internal import GRDB

/// The tables, as numbered steps that create and change them. A released step never changes: a later change to the tables is
/// a new step at the end.
///
/// Text from clients is stored as UTF-8 bytes, because SQLite would end a text at a NUL. Times are milliseconds since the
/// epoch, UTC.
enum Schema {
  static let migrator: DatabaseMigrator = {
    var migrator = DatabaseMigrator()
    migrator.registerMigration("1") { db in
      for tables in [jobs, keys, batches, images, cache, messages, settings] {
        try db.execute(sql: tables)
      }
    }
    return migrator
  }()

  // `phase` is Phase.code: 0 queued, 1 loading, 2 success, 3 failure, 4 cancelled. `waiting` is JobRow.Waiting.
  // `record` is the job as JSON. JobRow.job() completes it from `claimed_at` and `image`, which change without the record.
  // `origin` and `request` are set while the job is unfinished. `batch` is the number of the job's batch, 0 if it has none,
  // and `line` its line there. `code` is why a job of a batch failed. `defaults` is the digest of a row in batch_defaults.
  //
  // The index jobs_queue leaves out jobs that wait until `not_before`, so that retries far in the future do not slow a claim.
  // Digests of requests have no order: an index of them alone would write one page for each line of a long batch. Ranks have
  // an order, so jobs_request sorts by blocks of them (QueuedRequests) first. A query compares the whole request.
  private static let jobs = """
    CREATE TABLE jobs (
      number INTEGER PRIMARY KEY,
      id BLOB NOT NULL UNIQUE,
      owner BLOB NOT NULL,
      phase INTEGER NOT NULL,
      priority INTEGER NOT NULL,
      rank INTEGER NOT NULL,
      waiting INTEGER NOT NULL,
      not_before INTEGER,
      claim INTEGER,
      claimed_at INTEGER,
      finished_at INTEGER,
      expires_at INTEGER,
      image BLOB,
      source BLOB,
      tags BLOB,
      record BLOB NOT NULL,
      origin BLOB,
      request BLOB,
      low INTEGER,
      batch INTEGER NOT NULL,
      line INTEGER,
      code TEXT,
      defaults BLOB
    ) STRICT;
    CREATE INDEX jobs_queue ON jobs (priority DESC, owner, batch, rank)
      WHERE phase = 0 AND waiting = 0;
    CREATE INDEX jobs_waiting ON jobs (not_before) WHERE phase = 0 AND waiting = 1;
    CREATE INDEX jobs_parked ON jobs (origin, priority DESC, owner, batch, rank)
      WHERE phase = 0 AND waiting = 2;
    CREATE INDEX jobs_request ON jobs (rank >> 16, substr(request, 1, 6), priority DESC, rank)
      WHERE phase = 0 AND request IS NOT NULL;
    CREATE INDEX jobs_listing ON jobs (owner, phase, id, expires_at);
    CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX jobs_image ON jobs (image, finished_at) WHERE image IS NOT NULL;
    CREATE INDEX jobs_source ON jobs (source, finished_at) WHERE source IS NOT NULL;
    CREATE INDEX jobs_low ON jobs (id) WHERE low = 1;
    CREATE INDEX jobs_batch ON jobs (batch, line) WHERE line IS NOT NULL;
    CREATE INDEX jobs_failed ON jobs (batch, code, line) WHERE code IS NOT NULL;

    CREATE TABLE tags (
      owner BLOB NOT NULL,
      tag BLOB NOT NULL,
      phase INTEGER NOT NULL,
      id BLOB NOT NULL,
      expires_at INTEGER,
      PRIMARY KEY (owner, tag, phase, id)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE sequences (
      name TEXT PRIMARY KEY,
      bound INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    """

  // `jobs` holds the ids of the submission's jobs in its order, 16 bytes each.
  private static let keys = """
    CREATE TABLE keys (
      number INTEGER PRIMARY KEY,
      owner BLOB NOT NULL,
      key BLOB NOT NULL,
      fingerprint BLOB NOT NULL,
      created_at INTEGER NOT NULL,
      jobs BLOB NOT NULL,
      UNIQUE (owner, key)
    ) STRICT;
    CREATE INDEX keys_created ON keys (created_at);

    """

  // `stage` is BatchStage. `batch_defaults` holds the SharedDefaults of batches.
  private static let batches = """
    CREATE TABLE batches (
      number INTEGER PRIMARY KEY,
      id BLOB NOT NULL UNIQUE,
      owner BLOB NOT NULL,
      stage INTEGER NOT NULL,
      expires_at INTEGER,
      record BLOB NOT NULL
    ) STRICT;
    CREATE INDEX batches_stage ON batches (stage, expires_at);
    CREATE INDEX batches_owner ON batches (owner, id, stage);

    CREATE TABLE rejected_lines (
      batch INTEGER NOT NULL,
      line INTEGER NOT NULL,
      record BLOB NOT NULL,
      PRIMARY KEY (batch, line)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE batch_defaults (
      batch INTEGER NOT NULL,
      digest BLOB NOT NULL,
      tag_bytes INTEGER NOT NULL,
      record BLOB NOT NULL,
      PRIMARY KEY (batch, digest)
    ) STRICT;

    """

  // `hard` counts references that pin an image: reservations and unfinished jobs. `soft` counts references that end when
  // space is needed: finished jobs and cache entries. `finished_at` is the time of the oldest soft reference. `leaving` is 1
  // while the instance `leaving_for` deletes the bytes. `embedded` is the number of the row in `contents` that holds the
  // bytes, 0 if they are a file; `contents` has no index of digests, which would cost each new image another page. `owner` is
  // the owner whose jobs refer to the image: NULL before the first one does, empty once jobs of several owners have.
  private static let images = """
    CREATE TABLE images (
      digest BLOB PRIMARY KEY,
      bytes INTEGER NOT NULL,
      hard INTEGER NOT NULL,
      soft INTEGER NOT NULL,
      finished_at INTEGER,
      leaving INTEGER NOT NULL DEFAULT 0,
      leaving_for INTEGER NOT NULL DEFAULT 0,
      embedded INTEGER NOT NULL DEFAULT 0,
      owner BLOB
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX images_yielding ON images (finished_at) WHERE hard = 0 AND soft > 0 AND leaving = 0;
    CREATE INDEX images_owner ON images (owner, finished_at)
      WHERE hard = 0 AND soft > 0 AND leaving = 0;
    CREATE INDEX images_abandoned ON images (digest) WHERE hard = 0 AND soft = 0 AND leaving = 0;
    CREATE INDEX images_leaving ON images (digest) WHERE leaving = 1;

    CREATE TABLE contents (
      number INTEGER PRIMARY KEY,
      bytes BLOB NOT NULL
    ) STRICT;

    CREATE TABLE reservations (
      holder BLOB NOT NULL,
      digest BLOB NOT NULL,
      instance INTEGER NOT NULL,
      PRIMARY KEY (holder, digest)
    ) STRICT, WITHOUT ROWID;

    """

  // An entry is a soft reference to its image, since `stored`. `resource` is CacheEntry.resource, NULL if that is the key.
  private static let cache = """
    CREATE TABLE cache (
      number INTEGER PRIMARY KEY,
      key BLOB NOT NULL,
      selector BLOB NOT NULL,
      resource BLOB,
      digest BLOB NOT NULL,
      bytes INTEGER NOT NULL,
      stored INTEGER NOT NULL,
      used INTEGER NOT NULL,
      record BLOB NOT NULL,
      UNIQUE (key, selector)
    ) STRICT;
    CREATE INDEX cache_used ON cache (used);
    CREATE INDEX cache_image ON cache (digest, stored);
    CREATE INDEX cache_resource ON cache (resource) WHERE resource IS NOT NULL;

    """

  // A message waits to be sent while it has a `next_at`. `record` is the message as JSON, with the job or batch that it
  // reports. The index messages_told finds the newest messages of a subject that are sent or given up.
  private static let messages = """
    CREATE TABLE messages (
      subject BLOB NOT NULL,
      number INTEGER NOT NULL,
      host BLOB NOT NULL,
      owner BLOB NOT NULL,
      next_at INTEGER,
      record BLOB NOT NULL,
      PRIMARY KEY (subject, number)
    ) STRICT;
    CREATE INDEX messages_hosts ON messages (host, next_at) WHERE next_at IS NOT NULL;
    CREATE INDEX messages_due ON messages (next_at) WHERE next_at IS NOT NULL;
    CREATE INDEX messages_owner ON messages (owner, next_at) WHERE next_at IS NOT NULL;
    CREATE INDEX messages_told ON messages (subject, number) WHERE next_at IS NULL;

    """

  // The setting `name` identifies the store (ImageOwner). `owner_bytes` counts the bytes that origins sent for owners with a
  // daily limit; `day` is Timestamp.day.
  private static let settings = """
    CREATE TABLE settings (
      name TEXT PRIMARY KEY,
      value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO settings VALUES ('name', lower(hex(randomblob(16))));

    CREATE TABLE owner_bytes (
      owner BLOB NOT NULL,
      day INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      PRIMARY KEY (owner, day)
    ) STRICT, WITHOUT ROWID;
    """
}
