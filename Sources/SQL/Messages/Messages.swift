package import Jobs

/// Webhook messages. A message that is being sent names its instance, so that no other instance
/// sends it.
extension SQLJobStore: WebhookOutbox {
  /// Searches along the index of hosts. A lock ensures that only one instance at a time does this,
  /// so that the counts are exact.
  package func claimMessages(_ request: MessageRequest) async throws(StoreError) -> ClaimedMessages
  {
    try await perform(on: messaging, isSynced: false) { transaction in
      try transaction.lock(.messages)
      let moment = try transaction.checkLease(of: request.instance)
      try transaction.releaseUnknownMessages(request)
      return try transaction.claimMessages(request, at: moment)
    }
  }

  /// Stores the result of a try, if the instance still holds the message.
  package func saveResult(_ message: WebhookMessage, by instance: Instance) async throws(StoreError)
  {
    try await perform(on: messaging, isSynced: false) { try $0.saveResult(message, by: instance) }
  }

  /// Searches by the job or batch.
  package func messages(of subject: JobID) async throws(StoreError) -> [WebhookMessage] {
    try await read { transaction in
      let rows = try transaction.execute(
        "SELECT record FROM messages WHERE subject = $1 ORDER BY number DESC LIMIT $2",
        [.id(subject), .int(Int64(WebhookMessage.mostOfSubject))])
      return try rows.all.reversed().map { try WebhookMessage(rows, $0) }
    }
  }

  /// Makes the newest message due. If it is being sent, it is sent again afterwards.
  package func sendAgain(of subject: JobID) async throws(StoreError) -> WebhookMessage? {
    try await write { transaction in
      let rows = try transaction.execute(
        """
        SELECT record, instance, moment($2) FROM messages WHERE subject = $1
        ORDER BY number DESC LIMIT 1 FOR UPDATE
        """, [.id(subject), transaction.moment])
      guard !rows.isEmpty else { return nil }
      var message = try WebhookMessage(rows, 0)
      guard let now = rows.int(0, 2) else { return message }
      if rows.int(0, 1) == nil {
        message.sendAgain(at: Timestamp(milliseconds: now))
        try transaction.writeAndRelease(message)
      } else {
        message.requestAgain()
        try transaction.updateRecord(message)
      }
      return message
    }
  }

  /// Counts by the index of waiting messages; 100,000 at most.
  package func waitingMessages() async throws(StoreError) -> Int {
    try await read { transaction in
      let rows = try transaction.execute(
        """
        SELECT (SELECT count(*) FROM messages WHERE instance IS NOT NULL) + (SELECT count(*) FROM
          (SELECT 1 FROM messages WHERE next_at IS NOT NULL AND instance IS NULL LIMIT 100000) AS m)
        """)
      return Int(rows.int(0, 0) ?? 0)
    }
  }
}

extension SQLJobStore {
  /// Counts by the index of owners.
  package func waitingMessages(
    of owner: Owner, upTo limit: Int
  ) async throws(StoreError) -> Int {
    try await read { transaction in
      let rows = try transaction.execute(
        """
        SELECT count(*) FROM (SELECT 1 FROM messages
          WHERE owner = $1 AND next_at IS NOT NULL LIMIT $2) AS m
        """, [.bytes(Array(owner.name.utf8)), .int(Int64(clamping: limit))])
      return Int(rows.int(0, 0) ?? 0)
    }
  }
}

extension WebhookMessage {
  /// - Parameter row: its first column is a message's record.
  fileprivate init(_ rows: Rows, _ row: Int) throws {
    guard let record = rows.bytes(row, 0) else {
      throw StoreError.unreadable(detail: "a message without a record")
    }
    self = try StoredJSON.decode(WebhookMessage.self, from: record)
  }
}

extension Transaction {
  /// Stores messages about jobs or batches that finish in this transaction. Existing messages stay
  /// unchanged.
  package func addMessages(_ messages: [WebhookMessage]) throws {
    guard !messages.isEmpty else { return }
    try add(
      """
      INSERT INTO messages (subject, number, host, owner, next_at, record)
      SELECT * FROM unnest($1, $2, $3, $4, $5, $6) WHERE true ON CONFLICT DO NOTHING
      """,
      [
        .ids(messages.map(\.id.subject)), .ints(messages.map { Int64($0.id.number) }),
        .byteStrings(messages.map { Array($0.host.utf8) }),
        .byteStrings(messages.map { Array($0.owner.name.utf8) }),
        .ints(messages.map { $0.nextTry?.milliseconds }),
        .byteStrings(try messages.map { try StoredJSON.encode($0) }),
      ])
  }

  /// Deletes a subject's sent messages except the newest. Uses its own index, so the number of
  /// waiting messages does not matter. No instance holds a sent message.
  static let pruneMessages = """
    DELETE FROM messages WHERE subject = $1 AND next_at IS NULL AND number <=
      (SELECT number FROM messages WHERE subject = $1 AND next_at IS NULL
        ORDER BY number DESC LIMIT 1 OFFSET $2)
    """

  /// Deletes the messages of deleted jobs or batches.
  /// - Parameter includingUnsent: whether to delete unsent messages too.
  func deleteMessages(of subjects: [JobID], includingUnsent: Bool) throws {
    guard !subjects.isEmpty else { return }
    try add(
      "DELETE FROM messages WHERE subject = ANY ($1) AND (next_at IS NULL OR $2)",
      [.ids(subjects), .bool(includingUnsent)])
  }

  /// Releases messages that the instance holds without knowing it, because an answer was lost.
  fileprivate func releaseUnknownMessages(_ request: MessageRequest) throws {
    let held = try execute(
      "SELECT subject, number FROM messages WHERE instance IS NOT NULL AND instance = $1",
      [.int(request.instance.number)])
    let unknown = held.all.compactMap { row -> WebhookMessage.ID? in
      guard let subject = held.id(row, 0), let number = held.int(row, 1) else { return nil }
      let id = WebhookMessage.ID(subject: subject, number: Int(number))
      return request.sending.contains(id) ? nil : id
    }
    try setHolder(of: unknown, to: nil)
  }

  fileprivate func setHolder(of ids: [WebhookMessage.ID], to instance: Instance?) throws {
    guard !ids.isEmpty else { return }
    try add(
      """
      UPDATE messages SET instance = $3 FROM unnest($1, $2) AS n (subject, number)
      WHERE messages.subject = n.subject AND messages.number = n.number
      """,
      [
        .ids(ids.map(\.subject)), .ints(ids.map { Int64($0.number) }), .int(instance?.number),
      ])
  }

  fileprivate func claimMessages(_ request: MessageRequest, at moment: Timestamp) throws
    -> ClaimedMessages
  {
    try makeOverdueMessagesDue(at: moment)
    var taken = ClaimedMessages()
    var owners = request.owners
    let full = owners.full.map { Array($0.name.utf8) }
    guard try hasDueMessages(exceptOwners: full, at: moment) else {
      (taken.after, taken.nextDue) = (request.after, try nextDueMessage(after: moment))
      return taken
    }
    let hosts = try self.hosts(after: request.after)
    let sent = try sentMessages()
    var (found, unreadable): ([WebhookMessage], [WebhookMessage.ID]) = ([], [])
    var rest = hosts[...]
    while !rest.isEmpty, found.count + unreadable.count < request.count {
      // Some hosts per round trip: usually they have enough messages.
      let pages = try executeAll(
        rest.prefix(16).map { host in
          let room = min(request.perHost - (sent[host] ?? 0), request.count)
          return SQLStatement(
            Self.dueMessages,
            [
              .bytes(host), .int(moment.milliseconds), .int(Int64(max(0, room))),
              .byteStrings(full),
            ])
        })
      rest = rest.dropFirst(16)
      for rows in pages {
        for row in rows.all where found.count + unreadable.count < request.count {
          if let message = try? WebhookMessage(rows, row) {
            found.append(message)
          } else if let subject = rows.id(row, 1), let number = rows.int(row, 2) {
            unreadable.append(WebhookMessage.ID(subject: subject, number: Int(number)))
          }
        }
      }
    }
    taken.unreadable = unreadable.count
    try disableUnreadable(unreadable)
    taken.messages = found.filter { owners.acquireSlot(for: $0.owner) }
    try setHolder(of: taken.messages.map(\.id), to: request.instance)
    if found.count + unreadable.count == request.count || taken.messages.count < found.count {
      taken.after = taken.messages.last?.host
    } else if hosts.count == MessageRequest.mostHosts {
      taken.after = hosts.last.map { String(decoding: $0, as: UTF8.self) }
    } else {
      taken.nextDue = try nextDueMessage(after: moment)
    }
    return taken
  }

  /// The number of messages that are being sent, by host.
  private func sentMessages() throws -> [[UInt8]: Int] {
    let rows = try execute(
      "SELECT host, count(*) FROM messages WHERE instance IS NOT NULL GROUP BY host")
    return rows.all.reduce(into: [:]) { counts, row in
      if let host = rows.bytes(row, 0) { counts[host] = Int(rows.int(row, 1) ?? 0) }
    }
  }

  /// The due messages to a host, the oldest first, except those of some owners.
  private static let dueMessages = """
    SELECT record, subject, number FROM messages
    WHERE host = $1 AND next_at <= $2 AND next_at IS NOT NULL AND instance IS NULL AND owner <> ALL ($4)
    ORDER BY next_at LIMIT $3 FOR UPDATE SKIP LOCKED
    """

  /// Makes messages due whose next try is later than any schedule allows. The clock that planned
  /// them was later set back.
  private func makeOverdueMessagesDue(at moment: Timestamp) throws {
    try add(
      """
      UPDATE messages SET next_at = $1 WHERE next_at > $2 AND next_at IS NOT NULL AND instance IS NULL
      """,
      [
        .int(moment.milliseconds), .int((moment + WebhookSchedule.longestWait).milliseconds),
      ])
  }

  private func nextDueMessage(after moment: Timestamp) throws -> Timestamp? {
    try execute(
      """
      SELECT next_at FROM messages
      WHERE next_at > $1 AND next_at IS NOT NULL AND instance IS NULL ORDER BY next_at LIMIT 1
      """, [.int(moment.milliseconds)]
    ).int(0, 0).map { Timestamp(milliseconds: $0) }
  }

  /// Stops sending unreadable messages, so that they do not block others.
  private func disableUnreadable(_ unreadable: [WebhookMessage.ID]) throws {
    guard !unreadable.isEmpty else { return }
    try add(
      """
      UPDATE messages SET next_at = NULL FROM unnest($1, $2) AS n (subject, number)
      WHERE messages.subject = n.subject AND messages.number = n.number
      """,
      [
        .ids(unreadable.map(\.subject)), .ints(unreadable.map { Int64($0.number) }),
      ])
  }

  /// Returns whether a due message belongs to an owner below its share. If not, no host has to be
  /// searched.
  private func hasDueMessages(exceptOwners full: [[UInt8]], at moment: Timestamp) throws -> Bool {
    guard !full.isEmpty else { return true }
    return try !execute(
      """
      WITH RECURSIVE owners (owner) AS (
        SELECT * FROM (SELECT owner FROM messages
          WHERE next_at IS NOT NULL ORDER BY owner LIMIT 1) AS first
        UNION ALL SELECT (SELECT m.owner FROM messages m
            WHERE m.next_at IS NOT NULL AND m.owner > o.owner
            ORDER BY m.owner LIMIT 1)
          FROM owners o WHERE o.owner IS NOT NULL)
      SELECT 1 FROM owners o WHERE o.owner IS NOT NULL AND o.owner <> ALL ($1)
        AND EXISTS (SELECT 1 FROM messages m WHERE m.owner = o.owner AND m.next_at <= $2
          AND m.next_at IS NOT NULL AND m.instance IS NULL) LIMIT 1
      """, [.byteStrings(full), .int(moment.milliseconds)]
    ).isEmpty
  }

  private func hosts(after host: String?) throws -> [[UInt8]] {
    let rows = try execute(
      """
      WITH RECURSIVE hosts (host, place) AS (
        SELECT * FROM (SELECT host, 1 FROM messages
          WHERE next_at IS NOT NULL AND instance IS NULL AND host > $1 ORDER BY host LIMIT 1) AS first
        UNION ALL SELECT (SELECT m.host FROM messages m
            WHERE m.next_at IS NOT NULL AND m.instance IS NULL AND m.host > h.host ORDER BY m.host LIMIT 1),
          place + 1
          FROM hosts h WHERE h.host IS NOT NULL AND place < $2)
      SELECT host FROM hosts WHERE host IS NOT NULL ORDER BY place
      """, [.bytes(Array((host ?? "").utf8)), .int(Int64(MessageRequest.mostHosts))])
    return rows.all.compactMap { rows.bytes($0, 0) }
  }

  fileprivate func saveResult(_ message: WebhookMessage, by instance: Instance) throws {
    let held = try execute(
      """
      SELECT record, moment($4) FROM messages
      WHERE subject = $1 AND number = $2 AND instance = $3 FOR UPDATE
      """,
      [
        .id(message.id.subject), .int(Int64(message.id.number)), .int(instance.number), moment,
      ])
    guard !held.isEmpty else { return }
    let stored = try? WebhookMessage(held, 0)
    // The result was stored already by a call whose answer was lost. The next call of
    // `claimMessages` releases the message.
    if let stored, stored.tries == message.tries { return }
    var message = message
    if stored?.isAskedFor == true, let now = held.int(0, 1) {
      message.sendAgain(at: Timestamp(milliseconds: now))
    }
    try writeAndRelease(message)
  }

  /// Stores the current record of a message that is being sent.
  fileprivate func updateRecord(_ message: WebhookMessage) throws {
    try execute(
      "UPDATE messages SET record = $3 WHERE subject = $1 AND number = $2",
      [
        .id(message.id.subject), .int(Int64(message.id.number)),
        .bytes(try StoredJSON.encode(message)),
      ])
  }

  /// Stores a message and releases it from its instance. If it is final, the subject's oldest final
  /// messages beyond the limit are deleted.
  fileprivate func writeAndRelease(_ message: WebhookMessage) throws {
    let name: [SQLValue] = [.id(message.id.subject), .int(Int64(message.id.number))]
    // The lock orders this transaction with a deletion of the job or batch.
    let table =
      switch message.subject {
      case .job: "jobs"
      case .batch: "batches"
      }
    if message.nextTry == nil,
      try execute("SELECT 1 FROM \(table) WHERE id = $1 FOR KEY SHARE", [name[0]]).isEmpty
    {
      try execute("DELETE FROM messages WHERE subject = $1 AND number = $2", name)
    } else {
      try execute(
        """
        UPDATE messages SET instance = NULL, next_at = $3, record = $4 WHERE subject = $1 AND number = $2
        """,
        name + [
          .int(message.nextTry?.milliseconds), .bytes(try StoredJSON.encode(message)),
        ])
      guard message.nextTry == nil else { return }
      try add(Self.pruneMessages, [name[0], .int(Int64(WebhookMessage.mostOfSubject))])
    }
  }
}
