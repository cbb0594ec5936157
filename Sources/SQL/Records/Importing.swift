package import Jobs

/// Import from another store. Each call is one transaction, which skips what exists already.
extension SQLJobStore: ImportingStore {
  /// Searches the indexes of references. Reservations do not count as references here.
  package func unreferenced(_ images: [ImageDigest]) async throws(StoreError) -> Set<ImageDigest> {
    guard !images.isEmpty else { return [] }
    return try await read { transaction in
      let rows = try transaction.execute(
        """
        SELECT n.digest FROM unnest($1) AS n (digest) WHERE NOT (
          EXISTS (SELECT 1 FROM jobs j WHERE j.image = n.digest)
          OR EXISTS (SELECT 1 FROM jobs j WHERE j.source = n.digest)
          OR EXISTS (SELECT 1 FROM cache c WHERE c.digest = n.digest))
        """, [.byteStrings(images.map(\.bytes))])
      return Set(rows.all.compactMap { rows.digest($0, 0) })
    }
  }

  /// Inserts jobs in any phase, without a limit on the queue.
  package func importJobs(
    _ jobs: [Job], _ images: ImportedImages, for instance: Instance
  ) async throws(StoreError) -> Int {
    var request: SubmitRequest
    do { request = try SubmitRequest(jobs, key: nil, capacity: .max) } catch {
      throw StoreError(cause: error)
    }
    let lost = Set(images.lost.map(\.bytes))
    for index in request.rows.indices { request.rows[index].removeReferences(to: lost) }
    return try await write { [request] transaction in
      _ = try transaction.checkLease(of: instance)
      let known = try transaction.knownJobs(request.jobs.map(\.id))
      var new = request
      new.rows = request.rows.filter { !known.contains($0.id) }
      new.jobs = request.jobs.filter { !known.contains($0.id) }
      // A key path through an optional makes the standard library copy memory onto itself, which
      // AddressSanitizer reports.
      let numbers = try transaction.batchNumbers(Set(new.jobs.compactMap { $0.batch?.id }))
      for (index, job) in zip(new.rows.indices, new.jobs) {
        if let number = job.batch.flatMap({ numbers[$0.id] }) {
          new.rows[index].batch = number
        } else if new.rows[index].defaults != nil {
          // The batch does not exist here, so the job stores its defaults itself.
          new.rows[index] = try JobRow(job.withoutSharedDefaults)
          new.rows[index].removeReferences(to: lost)
        }
      }
      let shared = try transaction.lockForReferences(
        new.images.keys, owners: Transaction.owners([new]))
      try transaction.save([new], known: shared, offered: images.offered, areCounted: true)
      return new.jobs.count
    }
  }

  /// Inserts cache entries with their times, in the given order.
  package func importEntries(
    _ entries: [ExportedEntry], _ images: ImportedImages, for instance: Instance
  ) async throws(StoreError) -> Int {
    let rows = entries.filter { !images.lost.contains($0.image) }.map(CacheRow.init)
    let moments = Dictionary(entries.map { ($0.id, $0.moments) }) { first, _ in first }
    return try await write { transaction in
      _ = try transaction.checkLease(of: instance)
      let known = try transaction.knownEntries(rows.map(\.id))
      let new = rows.filter { !known.contains($0.id) }
      let shared = try transaction.lockForReferences(Set(new.map(\.digest)))
      let arriving = images.offered.filter { shared[$0.key] != false }
      let begun = new.filter { arriving[$0.digest] != nil }.map { ($0.digest, $0.bytes) }
      try transaction.addImages(
        Dictionary(begun) { first, _ in first }, known: shared, offered: arriving)
      // One at a time: the entries of a key are searched in the order of insertion.
      for row in new {
        try transaction.saveEntries([row]) { shared[$0] == false || arriving[$0] != nil }
      }
      try transaction.setMoments(of: new.compactMap { row in moments[row.id].map { (row.id, $0) } })
      return new.count
    }
  }

  /// Skips keys that exist, even if they belong to other jobs here.
  package func importKeys(_ keys: [ExportedKey]) async throws(StoreError) -> Int {
    try await write { transaction in
      let known = try transaction.knownKeys(keys.map(\.key))
      let new = keys.filter { known[Transaction.KeyName($0.key)] == nil }
      try transaction.insertKeys(new.map { (key: $0.key, since: $0.since, jobs: $0.jobs) })
      return new.count
    }
  }
}

extension SQLJobStore {
  /// Inserts batches with their counters.
  package func importBatches(_ batches: [Batch]) async throws(StoreError) -> Int {
    try await write { transaction in
      var new = 0
      for batch in batches {
        let (base, change) = batch.splitCounts()
        let rows = try transaction.execute(
          """
          INSERT INTO batches (id, owner, stage, expires_at, record) VALUES ($1, $2, $3, $4, $5)
          ON CONFLICT (id) DO NOTHING RETURNING number
          """,
          [
            .id(batch.id), .bytes(Array(batch.owner.name.utf8)),
            .int(BatchStage(batch).rawValue), .int(batch.expiresAt?.milliseconds),
            .bytes(try StoredJSON.encode(base)),
          ])
        guard let number = rows.int(0, 0) else { continue }
        transaction.batches.setInitial(number, change)
        new += 1
      }
      return new
    }
  }

  /// Skips lines that exist.
  package func importRejectedLines(
    _ lines: [RejectedLine], of batch: BatchID
  ) async throws(StoreError) {
    try await write { transaction in
      guard let number = try transaction.batchNumbers([batch])[batch] else { return }
      let added = try transaction.execute(
        """
        INSERT INTO rejected_lines (batch, line, record)
        SELECT $1, n.line, n.record FROM unnest($2, $3) AS n (line, record) WHERE true
        ON CONFLICT DO NOTHING RETURNING length(record)
        """,
        [
          .int(number), .ints(lines.map { Int64($0.line) }),
          .byteStrings(try lines.map { try StoredJSON.encode($0) }),
        ])
      let owner = try transaction.execute(
        "SELECT owner FROM batches WHERE number = $1", [.int(number)])
      transaction.tallies[.stored(owner.bytes(0, 0) ?? [])] += added.all.reduce(0) {
        $0 + Transaction.rejectedLineOverhead + Int(added.int($1, 0) ?? 0)
      }
    }
  }

  /// Skips messages that exist, whatever their state.
  package func importMessages(_ messages: [WebhookMessage]) async throws(StoreError) -> Int {
    try await write { try $0.addMessages(messages) }
  }
}

extension ImportedImages {
  fileprivate var offered: [[UInt8]: [UInt8]] {
    Dictionary(embedded.map { ($0.digest.bytes, $0.content) }) { first, _ in first }
  }
}

extension JobRow {
  /// Removes the references to these images; ``job()`` updates the record accordingly.
  fileprivate mutating func removeReferences(to images: Set<[UInt8]>) {
    if let lost = image, images.contains(lost) { (image, hasLowDataImage) = (nil, false) }
    if let lost = source, images.contains(lost) { source = nil }
  }
}

extension CacheRow {
  fileprivate init(_ entry: ExportedEntry) {
    self.init(
      id: entry.id, resource: entry.resource?.bytes, digest: entry.image.bytes, bytes: entry.bytes,
      record: entry.record, limit: .max)
  }
}

extension Transaction {
  fileprivate func batchNumbers(_ ids: Set<BatchID>) throws -> [BatchID: Int64] {
    guard !ids.isEmpty else { return [:] }
    let rows = try execute("SELECT id, number FROM batches WHERE id = ANY ($1)", [.ids(Array(ids))])
    var numbers: [BatchID: Int64] = [:]
    for row in rows.all {
      if let id = rows.id(row, 0) { numbers[id] = rows.int(row, 1) }
    }
    return numbers
  }

  fileprivate func knownEntries(_ ids: [CacheEntry.ID]) throws -> Set<CacheEntry.ID> {
    let rows = try execute(
      """
      SELECT c.key, c.selector FROM unnest($1, $2) AS n (key, selector)
      JOIN cache c ON c.key = n.key AND c.selector = n.selector
      """, [.byteStrings(ids.map(\.key.bytes)), .byteStrings(ids.map(\.selector.bytes))])
    return Set(
      rows.all.compactMap { row in
        guard let key = Fingerprint(bytes: rows.bytes(row, 0) ?? []),
          let selector = Fingerprint(bytes: rows.bytes(row, 1) ?? [])
        else { return nil }
        return CacheEntry.ID(key: key, selector: selector)
      })
  }

  fileprivate func setMoments(
    of entries: [(id: CacheEntry.ID, moments: (stored: Timestamp, used: Timestamp))]
  ) throws {
    try execute(
      """
      UPDATE cache SET stored = n.stored, used = n.used
      FROM unnest($1, $2, $3, $4) AS n (key, selector, stored, used)
      WHERE cache.key = n.key AND cache.selector = n.selector
      """,
      [
        .byteStrings(entries.map(\.id.key.bytes)), .byteStrings(entries.map(\.id.selector.bytes)),
        .ints(entries.map(\.moments.stored.milliseconds)),
        .ints(entries.map(\.moments.used.milliseconds)),
      ])
  }
}
