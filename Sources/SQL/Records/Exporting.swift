package import Jobs

/// Export to another store. Positions of values without a number are those in the order of their keys.
extension SQLJobStore: ExportedStore {
  /// Returns only ids, so that a long queue needs only a few megabytes.
  package func queueOrder() async throws(StoreError) -> [JobID] {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT id FROM queue WHERE state <> 4 ORDER BY priority DESC, rank, id")
      return rows.all.compactMap { rows.id($0, 0) }
    }
  }

  package func keys(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<ExportedKey>] {
    let first = max(0, number)
    return try await read { transaction in
      let rows = try transaction.execute(
        """
        SELECT owner, key, fingerprint, created_at, jobs FROM keys ORDER BY owner, key LIMIT $2 OFFSET $1
        """, [.int(first), .int(Int64(count))])
      return rows.all.map { row in
        Exported(first + Int64(row) + 1) { try ExportedKey(rows, row) }
      }
    }
  }

  /// Returns cache entries in the order of their rows, as searches return the entries of one key.
  package func entries(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<ExportedEntry>] {
    try await read { transaction in
      let rows = try transaction.execute(
        """
        SELECT number, key, selector, resource, digest, bytes, stored, used, record FROM cache
        WHERE number > $1 ORDER BY number LIMIT $2
        """, [.int(number), .int(Int64(count))])
      return rows.all.map { row in
        Exported(rows.int(row, 0) ?? 0) { try ExportedEntry(rows, row) }
      }
    }
  }

  package func batches(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<Batch>] {
    try await read { transaction in
      try transaction.withSnapshot {
        let found = try transaction.execute(
          "SELECT number FROM batches WHERE number > $1 ORDER BY number LIMIT $2",
          [.int(number), .int(Int64(count))])
        let numbers = found.all.compactMap { found.int($0, 0) }
        let rows = try transaction.readableBatchRows("b.number = ANY ($1)", [.ints(numbers)])
        return numbers.map { number in
          Exported(number) {
            guard let row = rows.first(where: { $0.number == number }) else {
              throw StoreError.unreadable(detail: "the batch of row \(number) can't be read")
            }
            return row.batch
          }
        }
      }
    }
  }

  package func rejectedLines(
    of number: Int64, after line: Int64, count: Int
  ) async throws(StoreError) -> [Exported<RejectedLine>] {
    try await read { transaction in
      let rows = try transaction.execute(
        """
        SELECT line, record FROM rejected_lines WHERE batch = $1 AND line > $2 ORDER BY line LIMIT $3
        """, [.int(number), .int(line), .int(Int64(count))])
      return rows.all.map { row in
        Exported(rows.int(row, 0) ?? 0) {
          try StoredJSON.decode(RejectedLine.self, from: rows.bytes(row, 1) ?? [])
        }
      }
    }
  }

  package func messages(
    after number: Int64, count: Int
  ) async throws(StoreError) -> [Exported<WebhookMessage>] {
    let first = max(0, number)
    return try await read { transaction in
      let rows = try transaction.execute(
        "SELECT record FROM messages ORDER BY subject, number LIMIT $2 OFFSET $1",
        [.int(first), .int(Int64(count))])
      return rows.all.map { row in
        Exported(first + Int64(row) + 1) {
          try StoredJSON.decode(WebhookMessage.self, from: rows.bytes(row, 0) ?? [])
        }
      }
    }
  }
}

extension ExportedKey {
  fileprivate init(_ rows: Rows, _ row: Int) throws {
    guard let fingerprint = rows.digest(row, 2) else {
      throw StoreError.unreadable(detail: "an idempotency key has no fingerprint")
    }
    self.init(
      key: IdempotencyKey(
        owner: Owner(bytes: rows.bytes(row, 0) ?? []),
        key: String(decoding: rows.bytes(row, 1) ?? [], as: UTF8.self), fingerprint: fingerprint),
      since: Timestamp(milliseconds: rows.int(row, 3) ?? 0),
      jobs: Transaction.ids(rows.bytes(row, 4) ?? []))
  }
}

extension ExportedEntry {
  fileprivate init(_ rows: Rows, _ row: Int) throws {
    guard let key = Fingerprint(bytes: rows.bytes(row, 1) ?? []),
      let selector = Fingerprint(bytes: rows.bytes(row, 2) ?? []), let image = rows.digest(row, 4)
    else { throw StoreError.unreadable(detail: "a cache entry is invalid") }
    self.init(
      id: CacheEntry.ID(key: key, selector: selector),
      resource: rows.bytes(row, 3).flatMap { Fingerprint(bytes: $0) }, image: image,
      bytes: Int(rows.int(row, 5) ?? 0),
      moments: (
        Timestamp(milliseconds: rows.int(row, 6) ?? 0),
        Timestamp(milliseconds: rows.int(row, 7) ?? 0)
      ), record: rows.bytes(row, 8) ?? [])
  }
}
