internal import Jobs

/// The tables, as numbered steps that create and change them.
///
/// Text from clients is stored as UTF-8 bytes, because the server's text type has no NUL. Times are milliseconds since the
/// epoch, UTC.
enum Schema {
  /// Each step runs once, in this order. A released step never changes: a later change to the tables is a new step at the
  /// end.
  static let steps: [String] = [
    jobs + queue + batches + images + cache + keys + messages + settings + instances
  ]

  /// Ends the leases of earlier instances: no other process uses the database.
  static func endInstances(_ session: Session) throws {
    var isCommitting = false
    try session.transaction(isSynced: false, isCommitting: &isCommitting) {
      _ = try $0.execute("UPDATE instances SET ended = true, lease_until = 0")
    }
  }

  /// Records in the database which image store it uses.
  ///
  /// - Parameter isEmpty: whether the image store is empty. Unknown images would be deleted as unused.
  /// - Throws: `.unavailable` if the database uses another image store, or if it is new and the image store has images.
  static func claimDatabase(
    forImagesIn home: String, isEmpty: Bool, _ session: Session
  ) throws {
    var isCommitting = false
    try session.transaction(isSynced: true, isCommitting: &isCommitting) { transaction in
      let isNew =
        try transaction.execute(
          "INSERT INTO settings (name, value) VALUES ('images', $1) ON CONFLICT DO NOTHING",
          [.bytes(Array(home.utf8))]
        ).changes > 0
      guard !isNew || isEmpty else {
        throw StoreError.unavailable(
          detail:
            "storage.path holds images that this database knows nothing of, and would take for left over: "
            + "start with the jobs that they belong to, or in another folder"
        )
      }
      let kept = try transaction.execute("SELECT value FROM settings WHERE name = 'images'")
      guard kept.bytes(0, 0) == Array(home.utf8) else {
        throw StoreError.unavailable(
          detail:
            "this database's images are in another folder than storage.path: it is another service's"
        )
      }
    }
  }

  /// Runs the missing schema steps. If several instances start at the same time, one runs them and the others wait.
  ///
  /// - Throws: `.unavailable` if a newer release has changed the database.
  static func migrate(_ session: Session, by steps: [String] = Schema.steps) throws {
    var isCommitting = false
    try session.transaction(isSynced: true, isCommitting: &isCommitting) { transaction in
      let (connection, deadline) = (try session.connected(), ContinuousClock.now + .seconds(60))
      try transaction.lock(.schema)
      try transaction.run("CREATE TABLE IF NOT EXISTS versions (number bigint PRIMARY KEY)")
      let version = try appliedSteps(
        transaction.executeAll([applied])[0], atMost: steps.count)
      guard try version > 0 || !connection.hasTable("jobs", by: deadline) else {
        throw StoreError.unavailable(
          detail: "the database has tables of a build before the first release")
      }
      for number in version..<steps.count {
        try transaction.run(steps[number])
        if number == 0 { try complete(transaction, session.settings.database) }
        try transaction.run("INSERT INTO versions (number) VALUES (\(number + 1))")
      }
    }
  }

  /// Adds what the first step does not contain.
  private static func complete(_ transaction: Transaction, _ database: any SQLDatabase) throws {
    try transaction.run(database.additions)
    let name =
      String(UInt64.random(in: .min ... .max), radix: 16)
      + String(UInt64.random(in: .min ... .max), radix: 16)
    try transaction.execute(
      "INSERT INTO settings (name, value) VALUES ('name', $1)", [.bytes(Array(name.utf8))])
  }

  /// The number of the last step that was run; 0 if there are no tables.
  ///
  /// - Throws: `.unavailable` if a newer release has changed the database.
  static func version(_ connection: any SQLConnection) throws -> Int {
    let deadline = ContinuousClock.now + .seconds(60)
    guard try connection.hasTable("versions", by: deadline) else { return 0 }
    return try appliedSteps(connection.execute(Self.applied, by: deadline), atMost: steps.count)
  }

  private static let applied = SQLStatement("SELECT coalesce(max(number), 0) FROM versions")

  private static func appliedSteps(_ rows: Rows, atMost latest: Int) throws -> Int {
    let version = Int(rows.int(0, 0) ?? -1)
    guard 0...latest ~= version else {
      throw StoreError.unavailable(
        detail: "the database was written by a newer release: it has version \(version)")
    }
    return version
  }

  // `phase` is Phase.code, and 0 while the job has a row in `queue`, because a claim writes that narrow row only. `submitted`
  // is the job as it was inserted, as JSON, and never changes. `record` is the changed job as JSON, without what the client
  // asked for; null until the first change. JobRow.job() completes it from the queue and from `image`, which change without the
  // record. `last_claim` is the claim under which a worker moved the job to its phase (for a loading job: to the phase before);
  // null if something else moved it. `defaults` is the digest of a row in batch_defaults. The index jobs_pinned finds the few
  // captured images that an unfinished job needs.
  private static let jobs = """
    CREATE TABLE jobs (
      id uuid PRIMARY KEY,
      owner bytea NOT NULL,
      phase smallint NOT NULL,
      finished_at bigint,
      expires_at bigint,
      image bytea,
      source bytea,
      low boolean NOT NULL DEFAULT false,
      last_claim bigint,
      submitted bytea NOT NULL,
      record bytea,
      batch bigint NOT NULL DEFAULT 0,
      line bigint,
      code bytea,
      defaults bytea
    );
    CREATE INDEX jobs_listing ON jobs (owner, phase, id);
    CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX jobs_image ON jobs (image) WHERE image IS NOT NULL;
    CREATE INDEX jobs_source ON jobs (source) WHERE source IS NOT NULL;
    CREATE INDEX jobs_pinned ON jobs (source) WHERE source IS NOT NULL AND phase = 0;
    CREATE INDEX jobs_image_age ON jobs (finished_at, image) WHERE image IS NOT NULL;
    CREATE INDEX jobs_source_age ON jobs (finished_at, source)
      WHERE source IS NOT NULL AND finished_at IS NOT NULL;
    CREATE INDEX jobs_image_owner ON jobs (owner, finished_at, image) WHERE image IS NOT NULL;
    CREATE INDEX jobs_source_owner ON jobs (owner, finished_at, source)
      WHERE source IS NOT NULL AND finished_at IS NOT NULL;
    CREATE INDEX jobs_low ON jobs (id) WHERE low;
    CREATE INDEX jobs_batch ON jobs (batch, line) WHERE line IS NOT NULL;
    CREATE INDEX jobs_failed ON jobs (batch, code, line) WHERE code IS NOT NULL;
    CREATE TABLE tags (
      owner bytea NOT NULL,
      tag bytea NOT NULL,
      id uuid NOT NULL,
      PRIMARY KEY (owner, tag, id)
    );
    CREATE INDEX tags_job ON tags (id);

    """

  // The unfinished jobs. A row is the right to end its job: the transaction that deletes the row also writes the job's end.
  // `state` is QueueRow.State: 0 ready, 1 waiting for its time, 2 for capacity at its origin, 3 for an equal load at another
  // instance, 4 loading. Thousands of rows are inserted and deleted, so autovacuum runs early.
  //
  // A lane is served in order of arrival: an owner's single jobs, or the jobs of a batch. A claim finds the lanes by the
  // indexes queue_ready and queue_parked, however many jobs each lane has, and then the first job of each.
  //
  // Only loading jobs have a `claim`. The condition of queue_request tests it instead of `state`, because SQLite would otherwise
  // write the job's entry in that index again whenever the job is parked or becomes ready.
  //
  // Of the loading jobs with equal requests, one `leads`. It counts as one transfer at its origin.
  private static let queue = """
    CREATE TABLE queue (
      id uuid PRIMARY KEY,
      owner bytea NOT NULL,
      priority smallint NOT NULL,
      rank bigint NOT NULL,
      state smallint NOT NULL DEFAULT 0,
      places int NOT NULL DEFAULT 1,
      not_before bigint,
      origin bytea,
      request bytea,
      instance bigint,
      claim bigint,
      claimed_at bigint,
      leads boolean NOT NULL DEFAULT false,
      batch bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
    CREATE INDEX queue_ready ON queue (priority, owner, batch, rank) WHERE state = 0;
    CREATE INDEX queue_due ON queue (not_before) WHERE state = 1;
    CREATE INDEX queue_parked ON queue (origin, priority, owner, batch, rank)
      WHERE state = 2;
    CREATE INDEX queue_awaiting ON queue (request) WHERE state = 3;
    CREATE INDEX queue_request ON queue (request, priority DESC, rank)
      WHERE claim IS NULL AND request IS NOT NULL;
    CREATE INDEX queue_loading ON queue (owner, batch, id) WHERE state = 4;
    CREATE INDEX queue_transfers ON queue (origin) WHERE state = 4 AND leads;
    CREATE INDEX queue_leads ON queue (request) WHERE state = 4 AND leads;
    CREATE INDEX queue_carried ON queue (request) WHERE state = 4 AND NOT leads;
    CREATE INDEX queue_batch ON queue (batch) WHERE batch > 0;
    CREATE TABLE tallies (
      name bytea NOT NULL,
      slot smallint NOT NULL,
      n bigint NOT NULL,
      PRIMARY KEY (name, slot)
    ) WITH (fillfactor = 50);

    """

  // `stage` is BatchStage. What a batch counts of its jobs is not in its record but in `batch_tallies`: the sum of the rows
  // with a name, or the greatest one for names that begin with `last`. `expires_at` is when to check whether the batch has
  // expired. `batch_defaults` holds the SharedDefaults of batches.
  //
  private static let batches = """
    CREATE TABLE batches (
      number bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
      id uuid NOT NULL UNIQUE,
      owner bytea NOT NULL,
      stage smallint NOT NULL,
      expires_at bigint,
      record bytea NOT NULL
    ) WITH (fillfactor = 50);
    CREATE INDEX batches_stage ON batches (stage, expires_at);
    CREATE TABLE batch_tallies (
      batch bigint NOT NULL,
      name bytea NOT NULL,
      slot smallint NOT NULL,
      n bigint NOT NULL,
      PRIMARY KEY (batch, name, slot)
    ) WITH (fillfactor = 50);
    CREATE TABLE rejected_lines (
      batch bigint NOT NULL,
      line bigint NOT NULL,
      record bytea NOT NULL,
      PRIMARY KEY (batch, line)
    );
    CREATE TABLE batch_defaults (
      batch bigint NOT NULL,
      digest bytea NOT NULL,
      record bytea NOT NULL,
      PRIMARY KEY (batch, digest)
    );

    """

  // Jobs may refer to an image while its row exists and is not `leaving`; while it is, the instance `leaving_for` deletes the
  // bytes. A transaction that adds a reference, or checks whether there is one, locks the row. `cached` counts cache entries.
  // `content` is the row of `contents` with the bytes, null if they are a file. `contents` is found by a number and not by the
  // digest, because with a second index of digests each new image would write one more page. `generation` is
  // ImageName.generation, 0 if the row only marks orphaned bytes for deletion. `owner` is the owner whose jobs refer to the
  // image: null before the first one does, empty once jobs of several owners have. `candidates` lists images that lost a
  // reference and may have none left.
  private static let images = """
    CREATE TABLE images (
      digest bytea PRIMARY KEY,
      bytes bigint NOT NULL,
      leaving boolean NOT NULL DEFAULT false,
      leaving_for bigint,
      content bigint,
      cached int NOT NULL DEFAULT 0,
      generation bigint NOT NULL DEFAULT 0,
      owner bytea
    ) WITH (fillfactor = 90);
    CREATE INDEX images_leaving ON images (leaving_for) WHERE leaving;
    CREATE TABLE contents (
      number bigint PRIMARY KEY,
      bytes bytea NOT NULL
    );
    CREATE TABLE reservations (
      holder uuid NOT NULL,
      digest bytea NOT NULL,
      instance bigint NOT NULL,
      PRIMARY KEY (holder, digest)
    );
    CREATE INDEX reservations_image ON reservations (digest);
    CREATE TABLE candidates (digest bytea PRIMARY KEY);

    """

  // `owner` is the owner of the entry's image, null if that has several.
  private static let cache = """
    CREATE TABLE cache (
      number bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
      key bytea NOT NULL,
      selector bytea NOT NULL,
      resource bytea,
      digest bytea NOT NULL,
      bytes bigint NOT NULL,
      stored bigint NOT NULL,
      used bigint NOT NULL,
      record bytea NOT NULL,
      owner bytea,
      UNIQUE (key, selector)
    );
    CREATE INDEX cache_used ON cache (used, number);
    CREATE INDEX cache_image ON cache (digest);
    CREATE INDEX cache_resource ON cache (resource) WHERE resource IS NOT NULL;
    CREATE INDEX cache_owner ON cache (owner, number) WHERE owner IS NOT NULL;

    """

  // `jobs` holds the ids of the submission's jobs in its order, 16 bytes each.
  private static let keys = """
    CREATE TABLE keys (
      owner bytea NOT NULL,
      key bytea NOT NULL,
      fingerprint bytea NOT NULL,
      created_at bigint NOT NULL,
      jobs bytea NOT NULL,
      PRIMARY KEY (owner, key)
    );
    CREATE INDEX keys_age ON keys (created_at);

    """

  // A message waits to be sent while it has a `next_at`; `instance` is the one that is sending it. `record` is the message as
  // JSON, with the job or batch that it reports. The index messages_told finds the newest messages of a subject that are sent
  // or given up.
  private static let messages = """
    CREATE TABLE messages (
      subject uuid NOT NULL,
      number bigint NOT NULL,
      host bytea NOT NULL,
      owner bytea NOT NULL,
      next_at bigint,
      instance bigint,
      record bytea NOT NULL,
      PRIMARY KEY (subject, number)
    ) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
    CREATE INDEX messages_hosts ON messages (host, next_at) WHERE next_at IS NOT NULL AND instance IS NULL;
    CREATE INDEX messages_due ON messages (next_at) WHERE next_at IS NOT NULL AND instance IS NULL;
    CREATE INDEX messages_held ON messages (host) WHERE instance IS NOT NULL;
    CREATE INDEX messages_owner ON messages (owner, next_at) WHERE next_at IS NOT NULL;
    CREATE INDEX messages_told ON messages (subject, number) WHERE next_at IS NULL;

    """

  // The setting `name` identifies the store (ImageOwner). `owner_bytes` counts the bytes that origins sent for owners with a
  // daily limit; `day` is Timestamp.day.
  private static let settings = """
    CREATE TABLE settings (name text PRIMARY KEY, value bytea NOT NULL);
    CREATE TABLE owner_bytes (
      owner bytea NOT NULL,
      day int NOT NULL,
      bytes bigint NOT NULL,
      PRIMARY KEY (owner, day)
    );

    """
}

/// The tables by which instances share the work.
extension Schema {
  // A row is one run of one process; its number is never used again. Once an instance has `ended`, the others release what it
  // held. `name` and `version` are for operators.
  //
  // The remaining columns and `activity` are figures that each instance publishes, so that every instance can show the sums. An
  // instance writes only its own rows, so that one that hangs in a transaction delays no other. The rows of `activity` remain
  // when their instance is gone.
  static let instances = """
    CREATE TABLE instances (
      number bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
      lease_until bigint NOT NULL,
      ended boolean NOT NULL DEFAULT false,
      name bytea,
      version bytea,
      since bigint NOT NULL,
      workers int,
      cache_hits bigint NOT NULL DEFAULT 0,
      cache_revalidations bigint NOT NULL DEFAULT 0,
      cache_misses bigint NOT NULL DEFAULT 0,
      cache_memory bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);
    CREATE TABLE activity (
      step bigint NOT NULL,
      instance bigint NOT NULL,
      queued int NOT NULL,
      loading int NOT NULL,
      succeeded int NOT NULL,
      failed int NOT NULL,
      PRIMARY KEY (step, instance)
    );
    CREATE TABLE origins (origin bytea PRIMARY KEY, next_at bigint NOT NULL);
    CREATE INDEX origins_age ON origins (next_at);

    """
}
