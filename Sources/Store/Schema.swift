internal import GRDB

/// The tables, and how a database of an earlier release becomes one of this release.
///
/// Texts that come from outside are kept as their UTF-8 bytes: SQLite would end a text at a NUL.
enum Schema {
  static let migrator: DatabaseMigrator = {
    var migrator = DatabaseMigrator()
    migrator.registerMigration("1 jobs and images") { db in
      try db.execute(sql: jobs)
      try db.execute(sql: images)
    }
    migrator.registerMigration("2 origins, equal requests and the cache") { db in
      try db.execute(sql: origins)
      try db.execute(sql: reservations)
      try db.execute(sql: cache)
    }
    migrator.registerMigration("3 small images") { db in
      try db.execute(sql: contents)
    }
    migrator.registerMigration("4 keys that outlive their jobs") { db in
      try db.execute(sql: keys)
      try IdempotencyKeys.nameJobs(db)
    }
    migrator.registerMigration("5 partitions of the cache") { db in
      try db.execute(sql: partitions)
    }
    migrator.registerMigration("6 leases") { db in
      try db.execute(sql: leases)
    }
    migrator.registerMigration("7 small images by number") { db in
      try db.execute(sql: numbered)
    }
    migrator.registerMigration("8 the store's name") { db in
      try db.execute(sql: settings)
    }
    migrator.registerMigration("9 bytes of owners") { db in
      try db.execute(sql: ownerBytes)
    }
    migrator.registerMigration("10 messages") { db in
      try db.execute(sql: messages)
    }
    migrator.registerMigration("11 batches") { db in
      try db.execute(sql: batches)
    }
    migrator.registerMigration("12 owners of messages") { db in
      try db.execute(sql: messageOwners)
    }
    migrator.registerMigration("13 equal requests by the block") { db in
      try db.execute(sql: requests)
    }
    migrator.registerMigration("14 owners' messages by their time") { db in
      try db.execute(sql: dueOfOwners)
    }
    migrator.registerMigration("15 messages that were told") { db in
      try db.execute(sql: told)
    }
    migrator.registerMigration("16 batches by their owner") { db in
      try db.execute(sql: batchOwners)
    }
    migrator.registerMigration("17 defaults of batches") { db in
      try db.execute(sql: batchDefaults)
    }
    migrator.registerMigration("18 owners of images") { db in
      try db.execute(sql: imageOwners)
    }
    return migrator
  }()

  // `phase` is Phase.code: 0 queued, 1 loading, 2 success, 3 failure, 4 cancelled.
  // `record` is the job as JSON. `claimed_at`, and `image` where the record says that one is kept, complete it:
  // see JobRow.job(). A queued job is `waiting` until `not_before`; the index of the queue holds the others only,
  // so that retries far in the future don't slow a claim.
  private static let jobs = """
    CREATE TABLE keys (
      number INTEGER PRIMARY KEY,
      owner BLOB NOT NULL,
      key BLOB NOT NULL,
      fingerprint BLOB NOT NULL,
      UNIQUE (owner, key)
    ) STRICT;

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
      key INTEGER REFERENCES keys (number) ON DELETE SET NULL,
      tags BLOB,
      record BLOB NOT NULL
    ) STRICT;
    CREATE INDEX jobs_queue ON jobs (priority DESC, rank) WHERE phase = 0 AND waiting = 0;
    CREATE INDEX jobs_waiting ON jobs (not_before) WHERE phase = 0 AND waiting = 1;
    CREATE INDEX jobs_listing ON jobs (owner, phase, id, expires_at);
    CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX jobs_image ON jobs (image, finished_at) WHERE image IS NOT NULL;
    CREATE INDEX jobs_source ON jobs (source, finished_at) WHERE source IS NOT NULL;
    CREATE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;

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

  // `hard` counts what keeps an image whatever happens (reservations, unfinished jobs), `soft` the finished
  // jobs whose hold ends when room is needed; `finished_at` is the oldest of those jobs'.
  private static let images = """
    CREATE TABLE images (
      digest BLOB PRIMARY KEY,
      bytes INTEGER NOT NULL,
      hard INTEGER NOT NULL,
      soft INTEGER NOT NULL,
      finished_at INTEGER,
      leaving INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX images_yielding ON images (finished_at) WHERE hard = 0 AND soft > 0 AND leaving = 0;
    CREATE INDEX images_abandoned ON images (digest) WHERE hard = 0 AND soft = 0 AND leaving = 0;
    CREATE INDEX images_leaving ON images (digest) WHERE leaving = 1;

    CREATE TABLE reservations (
      job BLOB NOT NULL,
      claim INTEGER NOT NULL,
      digest BLOB NOT NULL,
      PRIMARY KEY (job, claim, digest)
    ) STRICT, WITHOUT ROWID;
    """

  // `waiting` is JobRow.Waiting: since now also 2, parked until its origin has room. `origin` and `request` are of
  // unfinished jobs only. A queued job of the earlier release has neither until it next changes: it is never held
  // back, and shares its transfer with nobody.
  private static let origins = """
    ALTER TABLE jobs ADD COLUMN origin BLOB;
    ALTER TABLE jobs ADD COLUMN request BLOB;
    ALTER TABLE jobs ADD COLUMN low INTEGER;
    CREATE INDEX jobs_parked ON jobs (origin, priority DESC, rank) WHERE phase = 0 AND waiting = 2;
    CREATE INDEX jobs_request ON jobs (request, priority DESC, rank)
      WHERE phase = 0 AND request IS NOT NULL;
    CREATE INDEX jobs_low ON jobs (id) WHERE low = 1;
    """

  // They are no claim's any more. Nobody holds one while the service starts.
  private static let reservations = """
    UPDATE images SET hard = hard -
      (SELECT count(*) FROM reservations WHERE reservations.digest = images.digest);
    DROP TABLE reservations;
    CREATE TABLE reservations (
      holder BLOB NOT NULL,
      digest BLOB NOT NULL,
      PRIMARY KEY (holder, digest)
    ) STRICT, WITHOUT ROWID;
    """

  // The bytes of images that are `embedded`, for as long as the image's row is there: see `numbered`.
  private static let contents = """
    ALTER TABLE images ADD COLUMN embedded INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE contents (
      number INTEGER PRIMARY KEY,
      digest BLOB NOT NULL UNIQUE,
      bytes BLOB NOT NULL
    ) STRICT;
    """

  // An entry is one of its image's `soft` references; `stored` is to it what `finished_at` is to a job.
  private static let cache = """
    CREATE TABLE cache (
      number INTEGER PRIMARY KEY,
      key BLOB NOT NULL,
      selector BLOB NOT NULL,
      digest BLOB NOT NULL,
      bytes INTEGER NOT NULL,
      stored INTEGER NOT NULL,
      used INTEGER NOT NULL,
      record BLOB NOT NULL,
      UNIQUE (key, selector)
    ) STRICT;
    CREATE INDEX cache_used ON cache (used);
    CREATE INDEX cache_image ON cache (digest, stored);
    """

  // `jobs` are the ids in the order given, 16 bytes each. The column jobs.key, by which a job named its key before,
  // is written no more; its index stays for as long as the table's reference to `keys`, which a key's end looks up.
  private static let keys = """
    ALTER TABLE keys ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE keys ADD COLUMN jobs BLOB NOT NULL DEFAULT x'';
    CREATE INDEX keys_created ON keys (created_at);
    """

  // Which instance has reserved an image or is about to remove it; 0: one of an earlier release, which is gone. A claim's
  // number tells its instance (ClaimNumbers), so that jobs need no column for it.
  private static let leases = """
    ALTER TABLE reservations ADD COLUMN instance INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE images ADD COLUMN leaving_for INTEGER NOT NULL DEFAULT 0;
    """

  // `embedded` is the number of the image's bytes, 0 where they are a file. An index of their digests would be the fifth
  // that each new image has a page of its own of.
  private static let numbered = """
    UPDATE images SET embedded =
      ifnull((SELECT number FROM contents WHERE contents.digest = images.digest), 0)
      WHERE embedded = 1;
    ALTER TABLE contents RENAME TO named_contents;
    CREATE TABLE contents (
      number INTEGER PRIMARY KEY,
      bytes BLOB NOT NULL
    ) STRICT;
    INSERT INTO contents SELECT number, bytes FROM named_contents;
    DROP TABLE named_contents;
    """

  // What came from origins for owners whose tokens bound that; `day` is Timestamp.day.
  private static let ownerBytes = """
    CREATE TABLE owner_bytes (
      owner BLOB NOT NULL,
      day INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      PRIMARY KEY (owner, day)
    ) STRICT, WITHOUT ROWID;
    """

  // `name` is the store's own (ImageOwner).
  private static let settings = """
    CREATE TABLE settings (
      name TEXT PRIMARY KEY,
      value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO settings VALUES ('name', lower(hex(randomblob(16))));
    """

  // A message waits while it has a `next_at`; the index of hosts is what each look goes along. `record` is the message as
  // JSON, what it tells of among it.
  private static let messages = """
    CREATE TABLE messages (
      subject BLOB NOT NULL,
      number INTEGER NOT NULL,
      host BLOB NOT NULL,
      next_at INTEGER,
      record BLOB NOT NULL,
      PRIMARY KEY (subject, number)
    ) STRICT;
    CREATE INDEX messages_hosts ON messages (host, next_at) WHERE next_at IS NOT NULL;
    CREATE INDEX messages_due ON messages (next_at) WHERE next_at IS NOT NULL;
    """

  // Whose it is: of those that an earlier release wrote nobody's.
  private static let messageOwners = """
    ALTER TABLE messages ADD COLUMN owner BLOB;
    CREATE INDEX messages_owner ON messages (owner) WHERE next_at IS NOT NULL AND owner IS NOT NULL;
    """

  private static let dueOfOwners = """
    DROP INDEX messages_owner;
    CREATE INDEX messages_owner ON messages (owner, next_at)
      WHERE next_at IS NOT NULL AND owner IS NOT NULL;
    """

  // Those that wait no more, of which the newest are kept: found without a look at however many wait.
  private static let told = """
    CREATE INDEX messages_told ON messages (subject, number) WHERE next_at IS NULL;
    """

  // `stage` is BatchStage. A job's `batch` is its batch's number, 0 where it is of none, and `line` its place there; `code`
  // why it failed. Its indexes hold no other jobs.
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
    CREATE TABLE rejected_lines (
      batch INTEGER NOT NULL,
      line INTEGER NOT NULL,
      record BLOB NOT NULL,
      PRIMARY KEY (batch, line)
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE jobs ADD COLUMN batch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN line INTEGER;
    ALTER TABLE jobs ADD COLUMN code TEXT;
    CREATE INDEX jobs_batch ON jobs (batch, line) WHERE line IS NOT NULL;
    DROP INDEX jobs_queue;
    CREATE INDEX jobs_queue ON jobs (priority DESC, owner, batch, rank)
      WHERE phase = 0 AND waiting = 0;
    DROP INDEX jobs_parked;
    CREATE INDEX jobs_parked ON jobs (origin, priority DESC, owner, batch, rank)
      WHERE phase = 0 AND waiting = 2;
    CREATE INDEX jobs_failed ON jobs (batch, code, line) WHERE code IS NOT NULL;
    """

  // An owner's, by which those in other stages are passed over without a look at their rows.
  private static let batchOwners = """
    CREATE INDEX batches_owner ON batches (owner, id, stage);
    """

  // SharedDefaults of batches. jobs.defaults is the digest.
  private static let batchDefaults = """
    CREATE TABLE batch_defaults (
      batch INTEGER NOT NULL,
      digest BLOB NOT NULL,
      tag_bytes INTEGER NOT NULL,
      record BLOB NOT NULL,
      PRIMARY KEY (batch, digest)
    ) STRICT;
    ALTER TABLE jobs ADD COLUMN defaults BLOB;
    """

  // The owner whose jobs refer to the image. NULL before the first job does; empty once jobs of several owners have.
  private static let imageOwners = """
    ALTER TABLE images ADD COLUMN owner BLOB;
    CREATE INDEX images_owner ON images (owner, finished_at)
      WHERE hard = 0 AND soft > 0 AND leaving = 0;
    """

  // CacheEntry.resource, where it is another one than the key.
  private static let partitions = """
    ALTER TABLE cache ADD COLUMN resource BLOB;
    CREATE INDEX cache_resource ON cache (resource) WHERE resource IS NOT NULL;
    """

  // Digests come in no order, so that each line of a long list would write a page of its own of their index. Ranks come in
  // order: within so many of them (QueuedRequests) the pages are few. Whoever looks a request up compares it as a whole.
  private static let requests = """
    DROP INDEX jobs_request;
    CREATE INDEX jobs_request ON jobs (rank >> 16, substr(request, 1, 6), priority DESC, rank)
      WHERE phase = 0 AND request IS NOT NULL;
    """
}
