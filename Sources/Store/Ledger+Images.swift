internal import Foundation
internal import GRDB
internal import Jobs

/// Who keeps an image without being a finished job: a claim, or 0 for a job about to be submitted.
struct Holder: Sendable {
  let job: Data
  let claim: Int64

  init(job: Data, claim: Int64) { (self.job, self.claim) = (job, claim) }

  init(upcoming job: Data) { self.init(job: job, claim: 0) }

  init(_ holder: ImageHolder) {
    switch holder {
    case .claim(let claim): self.init(job: claim.job.data, claim: claim.number)
    case .upcoming(let id): self.init(upcoming: id.data)
    }
  }
}

/// An image and what refers to it.
private struct ImageRow {
  var bytes: Int
  var hard: Int
  var soft: Int
  var finishedAt: Int64?
  var isLeaving: Bool

  init(_ row: Row) {
    (bytes, hard, soft, finishedAt, isLeaving) = (row[0], row[1], row[2], row[3], row[4])
  }
}

/// How a job's references to one image change.
private struct ReferenceChange {
  var hard = 0
  var soft = 0
  var bytes = 0
  var finishedAt: Int64?
}

/// References to images, and the room that they take.
extension Ledger {
  mutating func reserve(_ digest: Data, bytes: Int, for holder: Holder, limit: Int) throws
    -> Reservation
  {
    if holder.claim != 0 {
      let held = try one("SELECT claim FROM jobs WHERE id = ?", [holder.job])?[0] as Int64?
      guard held == holder.claim else { return .claimLost }
    }
    let image = try image(digest)
    if image?.isLeaving == true { return .leaving }
    let newlyPinned = image.map { $0.hard > 0 ? 0 : $0.bytes } ?? bytes
    guard tallies.pinnedBytes + newlyPinned <= limit else { return .full }
    let added = try execute(
      "INSERT OR IGNORE INTO reservations (job, claim, digest) VALUES (?, ?, ?)",
      [holder.job, holder.claim, digest])
    if added > 0 { try apply(ReferenceChange(hard: 1, bytes: bytes), to: digest) }
    return .reserved(gaveWay: try makeRoom(within: limit))
  }

  private mutating func makeRoom(within limit: Int) throws -> [ImageDigest] {
    var gone: [ImageDigest] = []
    while tallies.imageBytes > limit {
      let found =
        try one(
          """
          SELECT digest, bytes FROM images WHERE hard = 0 AND soft = 0 AND leaving = 0 LIMIT 1
          """)
        ?? one(
          """
          SELECT digest, bytes FROM images WHERE hard = 0 AND soft > 0 AND leaving = 0
          ORDER BY finished_at LIMIT 1
          """)
      guard let found, let digest = ImageDigest(bytes: found[0] as Data) else {
        throw StoreError.unavailable(detail: "the images' bytes were counted wrong")
      }
      try giveWay(digest.data, bytes: found[1])
      gone.append(digest)
    }
    return gone
  }

  /// The jobs' records learn of it when they are next read.
  private mutating func giveWay(_ digest: Data, bytes: Int) throws {
    try execute("UPDATE jobs SET image = NULL WHERE image = ?", [digest])
    try execute("UPDATE jobs SET source = NULL WHERE source = ?", [digest])
    try execute(
      "UPDATE images SET leaving = 1, soft = 0, finished_at = NULL WHERE digest = ?", [digest])
    tallies.images -= 1
    tallies.imageBytes -= bytes
  }

  mutating func endReservations(of holder: Holder) throws {
    let digests = try all(
      "DELETE FROM reservations WHERE job = ? AND claim = ? RETURNING digest",
      [holder.job, holder.claim])
    for row in digests { try apply(ReferenceChange(hard: -1), to: row[0]) }
  }

  mutating func endAllReservations() throws {
    for row in try all("DELETE FROM reservations RETURNING digest") {
      try apply(ReferenceChange(hard: -1), to: row[0])
    }
  }

  /// Marks images that nothing refers to as leaving.
  mutating func abandonedImages(_ count: Int) throws -> [ImageDigest] {
    let rows = try all(
      "SELECT digest, bytes FROM images WHERE hard = 0 AND soft = 0 AND leaving = 0 LIMIT ?",
      [count])
    for row in rows { try giveWay(row[0], bytes: row[1]) }
    return rows.compactMap { ImageDigest(bytes: $0[0] as Data) }
  }

  mutating func forget(_ digest: ImageDigest) throws {
    guard let image = try image(digest.data), image.hard == 0, image.soft == 0 else { return }
    try execute("DELETE FROM images WHERE digest = ?", [digest.data])
    if !image.isLeaving {
      tallies.images -= 1
      tallies.imageBytes -= image.bytes
    }
  }

  /// What a crash left marked counts as abandoned again: its bytes may be there still.
  mutating func stopLeaving() throws {
    for row in try all("UPDATE images SET leaving = 0 WHERE leaving = 1 RETURNING bytes") {
      tallies.images += 1
      tallies.imageBytes += row[0] as Int
    }
  }

  /// Brings the images' counts in step with a job's row, once that is written.
  /// - Parameter job: what `new` holds, for its images' sizes.
  mutating func changeReferences(from old: JobRow?, to new: JobRow?, holding job: Job?) throws {
    var changes: [Data: ReferenceChange] = [:]
    if let old { Self.count(old, by: -1, in: &changes) }
    if let new { Self.count(new, by: 1, in: &changes) }
    if let image = job?.image { changes[image.digest.data]?.bytes = image.bytes }
    if let source = job?.capturedSource { changes[source.digest.data]?.bytes = source.bytes }
    for (digest, change) in changes where change.hard != 0 || change.soft != 0 {
      try apply(change, to: digest)
    }
  }

  private static func count(_ row: JobRow, by step: Int, in changes: inout [Data: ReferenceChange])
  {
    for digest in [row.image, row.source].compactMap(\.self) {
      var change = changes[digest] ?? ReferenceChange()
      if row.phase.isFinished { change.soft += step } else { change.hard += step }
      if step > 0 { change.finishedAt = row.finishedAt }
      changes[digest] = change
    }
  }

  private mutating func apply(_ change: ReferenceChange, to digest: Data) throws {
    guard let old = try image(digest) else { return try add(change, as: digest) }
    guard !old.isLeaving || change.hard + change.soft <= 0 else {
      throw StoreError.unavailable(detail: "an image that is leaving was not reserved")
    }
    var new = old
    new.hard += change.hard
    new.soft += change.soft
    if change.soft < 0 {
      new.finishedAt = try oldestFinish(of: digest)
    } else if change.soft > 0 {
      new.finishedAt = min(old.finishedAt ?? .max, change.finishedAt ?? .max)
    }
    try execute(
      "UPDATE images SET hard = ?, soft = ?, finished_at = ? WHERE digest = ?",
      [new.hard, new.soft, new.finishedAt, digest])
    tallies.pinnedBytes += (new.hard > 0 ? new.bytes : 0) - (old.hard > 0 ? old.bytes : 0)
  }

  private mutating func add(_ change: ReferenceChange, as digest: Data) throws {
    try execute(
      "INSERT INTO images (digest, bytes, hard, soft, finished_at) VALUES (?, ?, ?, ?, ?)",
      [digest, change.bytes, change.hard, change.soft, change.finishedAt])
    tallies.images += 1
    tallies.imageBytes += change.bytes
    if change.hard > 0 { tallies.pinnedBytes += change.bytes }
  }

  private func image(_ digest: Data) throws -> ImageRow? {
    try one(
      "SELECT bytes, hard, soft, finished_at, leaving FROM images WHERE digest = ?", [digest]
    ).map(ImageRow.init)
  }

  private func oldestFinish(of digest: Data) throws -> Int64? {
    let results = try one("SELECT min(finished_at) FROM jobs WHERE image = ?", [digest])
    let sources = try one("SELECT min(finished_at) FROM jobs WHERE source = ?", [digest])
    return [results?[0] as Int64?, sources?[0] as Int64?].compactMap(\.self).min()
  }
}
