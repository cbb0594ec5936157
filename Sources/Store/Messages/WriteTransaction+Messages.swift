internal import Foundation
internal import GRDB
internal import Jobs
internal import Records

/// Webhook messages.
extension WriteTransaction {
  /// Stores the message about a job or batch that finishes in this transaction; does nothing for
  /// `nil`.
  func addMessage(_ message: WebhookMessage?) throws {
    guard let message else { return }
    try execute(
      """
      INSERT INTO messages (subject, number, host, owner, next_at, record) VALUES (?, ?, ?, ?, ?, ?)
      """,
      [
        message.id.subject.data, message.id.number, Data(message.host.utf8), message.owner.data,
        message.nextTry?.milliseconds, MessageRecord.data(of: message),
      ])
  }

  /// Deletes a subject's sent messages except the newest. Uses its own index, so the number of
  /// waiting messages does not matter.
  static let pruneMessages = """
    DELETE FROM messages WHERE subject = ?1 AND next_at IS NULL AND number <=
      (SELECT number FROM messages WHERE subject = ?1 AND next_at IS NULL
        ORDER BY number DESC LIMIT 1 OFFSET ?2)
    """

  /// Deletes the messages of a deleted job or batch.
  /// - Parameter includingUnsent: whether to delete unsent messages too.
  func deleteMessages(of subject: Data, includingUnsent: Bool) throws {
    try execute(
      "DELETE FROM messages WHERE subject = ? AND (next_at IS NULL OR ?)",
      [subject, includingUnsent])
  }

  /// Stores the current state of a message, if it exists. If it is final, the subject's oldest
  /// final messages beyond the limit are deleted.
  func write(_ message: WebhookMessage) throws {
    let (subject, number) = (message.id.subject.data, message.id.number)
    try execute(
      "UPDATE messages SET next_at = ?, record = ? WHERE subject = ? AND number = ?",
      [message.nextTry?.milliseconds, MessageRecord.data(of: message), subject, number])
    guard message.nextTry == nil else { return }
    if try subjectExists(message.subject) {
      try execute(Self.pruneMessages, [subject, WebhookMessage.mostOfSubject])
    } else {
      try execute("DELETE FROM messages WHERE subject = ? AND number = ?", [subject, number])
    }
  }

  /// Stores the result of a try.
  func saveResult(_ told: WebhookMessage, at moment: Timestamp) throws {
    var message = told
    let row = try one(
      "SELECT record FROM messages WHERE subject = ? AND number = ?",
      [message.id.subject.data, message.id.number])
    let asked = try? row.map(MessageRecord.message)
    if asked?.isAskedFor == true { message.sendAgain(at: moment) }
    try write(message)
  }

  private func subjectExists(_ subject: WebhookMessage.Subject) throws -> Bool {
    switch subject {
    case .job(let job): try exists("SELECT 1 FROM jobs WHERE id = ?", [job.id.data])
    case .batch(let batch): try exists("SELECT 1 FROM batches WHERE id = ?", [batch.id.data])
    }
  }

  /// Returns due messages, one host after the other. Owners with a full share are skipped.
  func dueMessages(
    _ request: MessageRequest, at moment: Timestamp, _ held: [WebhookMessage.ID: String]
  ) throws -> ClaimedMessages {
    try makeOverdueMessagesDue(at: moment)
    var taken = ClaimedMessages()
    var owners = request.owners
    taken.after = request.after
    guard try hasDueMessages(owners, at: moment) else {
      taken.nextDue = try nextDueMessage(after: moment)
      return taken
    }
    var host = request.after.map { Data($0.utf8) }
    for _ in 0..<MessageRequest.mostHosts {
      let next = try one(
        """
        SELECT host FROM messages WHERE next_at IS NOT NULL AND host > ? ORDER BY host LIMIT 1
        """, [host ?? Data()])
      guard let next else {
        (taken.after, taken.nextDue) = (nil, try nextDueMessage(after: moment))
        return taken
      }
      let found: Data = next[0]
      host = found
      let name = String(decoding: found, as: UTF8.self)
      let busy = held.values.count { $0 == name }
      let room = min(request.perHost - busy, request.count - taken.messages.count)
      taken.after = name
      guard room > 0 else { continue }
      let rows = try due(to: found, at: moment, room + busy, but: Array(owners.full))
      let end = taken.messages.count + room
      for row in rows where taken.messages.count < end {
        guard owners.hasCapacity(for: Owner(row[1] as Data)) else { continue }
        guard let message = try? MessageRecord.message(row) else {
          taken.unreadable += 1
          try disableUnreadable(row)
          continue
        }
        guard held[message.id] == nil, owners.acquireSlot(for: message.owner) else { continue }
        taken.messages.append(message)
      }
      if taken.messages.count == request.count { break }
      guard try hasDueMessages(owners, at: moment) else { break }
    }
    return taken
  }

  /// Makes messages due whose next try is later than any schedule allows. The clock that planned
  /// them was later set back.
  private func makeOverdueMessagesDue(at moment: Timestamp) throws {
    let latest = (moment + WebhookSchedule.longestWait).milliseconds
    guard try exists("SELECT 1 FROM messages WHERE next_at > ?", [latest]) else { return }
    try execute(
      "UPDATE messages SET next_at = ? WHERE next_at > ?", [moment.milliseconds, latest])
  }

  /// Stops sending an unreadable message, so that it does not block others.
  private func disableUnreadable(_ row: Row) throws {
    let name: (subject: Data, number: Int64) = (row[2], row[3])
    try execute(
      "UPDATE messages SET next_at = NULL WHERE subject = ? AND number = ?",
      [name.subject, name.number])
  }

  /// Returns up to `count` due messages to a host, the oldest first.
  /// - Parameter full: owners to skip. Then only the 256 oldest messages are searched, so that an
  ///   owner's thousands of messages do not slow down the query.
  private func due(
    to host: Data, at moment: Timestamp, _ count: Int, but full: [Owner]
  ) throws -> [Row] {
    guard !full.isEmpty else {
      return try all(
        """
        SELECT record, owner, subject, number FROM messages WHERE host = ? AND next_at <= ?
        ORDER BY next_at LIMIT ?
        """, [host, moment.milliseconds, count])
    }
    let marks = full.map { _ in "?" }.joined(separator: ", ")
    var values: [(any DatabaseValueConvertible)?] = [host, moment.milliseconds]
    for owner in full { values.append(owner.data) }
    return try all(
      """
      SELECT m.record, m.owner, m.subject, m.number
      FROM (SELECT rowid AS place FROM messages WHERE host = ? AND next_at <= ?
        ORDER BY next_at LIMIT 256) AS oldest JOIN messages m ON m.rowid = oldest.place
      WHERE m.owner NOT IN (\(marks)) ORDER BY m.next_at LIMIT ?
      """, StatementArguments(values + [count]))
  }

  /// Returns whether a due message belongs to an owner below its share. If not, no host has to be
  /// searched.
  private func hasDueMessages(_ owners: OwnerCapacity, at moment: Timestamp) throws -> Bool {
    guard !owners.full.isEmpty else { return true }
    var least = Data()
    while let row = try one(
      """
      SELECT owner, next_at FROM messages WHERE next_at IS NOT NULL AND owner >= ?
      ORDER BY owner, next_at LIMIT 1
      """, [least])
    {
      let (owner, next): (Data, Int64) = (row[0], row[1])
      if next <= moment.milliseconds, owners.hasCapacity(for: Owner(owner)) { return true }
      // The smallest name greater than this one.
      least = owner
      least.append(0)
    }
    return false
  }

  private func nextDueMessage(after moment: Timestamp) throws -> Timestamp? {
    try one(
      "SELECT next_at FROM messages WHERE next_at > ? ORDER BY next_at LIMIT 1",
      [moment.milliseconds]
    ).map { Timestamp(milliseconds: $0[0]) }
  }
}

extension Owner {
  fileprivate init(_ column: Data) { self.init(String(decoding: column, as: UTF8.self)) }
}

/// The stored form of a message: JSON as `Codable` encodes it.
enum MessageRecord {
  static func data(of message: WebhookMessage) throws -> Data {
    Data(try RecordEncoder.encode(message))
  }

  static func message(from data: Data) throws -> WebhookMessage {
    try RecordDecoder.decode(WebhookMessage.self, from: Array(data))
  }

  /// - Parameter row: its first column is a message's record.
  static func message(_ row: Row) throws -> WebhookMessage { try message(from: row[0]) }
}
