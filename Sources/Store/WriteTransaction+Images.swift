internal import Foundation
internal import GRDB
internal import Jobs

/// An image and what refers to it.
struct ImageRow {
  var bytes: Int
  var hard: Int
  var soft: Int
  var finishedAt: Int64?
  var isPendingDeletion: Bool
  /// Whether the bytes are in the database too.
  var isEmbedded: Bool
  /// The owner whose jobs refer to it: nil before the first does, empty once jobs of several owners have. It stays like
  /// that: which of them still do is not looked up.
  var owner: Data?

  static let columns = "bytes, hard, soft, finished_at, leaving, embedded, owner"

  init(_ row: Row) {
    (bytes, hard, soft, finishedAt) = (row[0], row[1], row[2], row[3])
    (isPendingDeletion, isEmbedded, owner) = (row[4], row[5], row[6])
  }

  /// The owner of an image to which jobs of both refer.
  static func owner(_ a: Data?, and b: Data?) -> Data? {
    guard let a, let b else { return a ?? b }
    return a == b ? a : Data()
  }
}

/// What taking an image into the database came to.
struct Embedding {
  /// Images that gave way and whose files are to be removed.
  var evicted: [ImageDigest] = []
  /// The image, where there is no row of it: ``WriteTransaction/apply(_:arriving:)`` writes it with its first reference.
  var arriving: EmbeddedImage?
}

/// References to images, and the room that they take.
extension WriteTransaction {
  mutating func reserve(
    _ digest: Data, bytes: Int, as holder: Data, of instance: Instance, limit: Int
  ) throws -> Reservation {
    let known = try image(digest)
    if known?.isPendingDeletion == true { return .pendingDeletion }
    let newlyPinned = known.map { $0.hard > 0 ? 0 : $0.bytes } ?? bytes
    guard counters.pinnedBytes + newlyPinned <= limit else { return .full }
    var evicted: [ImageDigest] = []
    if known == nil {
      let isDone = try makeRoom(within: limit - bytes, for: instance, &evicted)
      guard isDone else { return .noRoomYet(evicted: evicted.map { ImageName($0) }) }
    }
    let added = try execute(
      "INSERT OR IGNORE INTO reservations (holder, digest, instance) VALUES (?, ?, ?)",
      [holder, digest, instance.number])
    if added > 0 { try apply(.reservation(bytes: bytes), to: digest, as: known) }
    // What is there already is reserved first, or it might give way to itself.
    if known != nil { _ = try makeRoom(within: limit, for: instance, &evicted) }
    guard let image = ImageDigest(bytes: digest) else { return .full }
    return .reserved(ImageName(image), evicted: evicted.map { ImageName($0) })
  }

  mutating func leave(_ digest: Data, bytes: Int, for instance: Instance) throws {
    let row = try one(
      """
      UPDATE images SET leaving = 1, leaving_for = ?, soft = 0, finished_at = NULL WHERE digest = ?
      RETURNING owner
      """, [instance.number, digest])
    counters.images -= 1
    counters.addImageBytes(-bytes, of: row?[0] as Data?)
  }

  mutating func removeEmbedded(_ digest: Data, bytes: Int) throws {
    try execute(
      "DELETE FROM contents WHERE number = (SELECT embedded FROM images WHERE digest = ?)", [digest]
    )
    let row = try one("DELETE FROM images WHERE digest = ? RETURNING owner", [digest])
    counters.images -= 1
    counters.addImageBytes(-bytes, of: row?[0] as Data?)
  }

  /// Takes in an image whose bytes are kept in the database, also where its room takes several transactions: those that
  /// come next make it. The same operation must begin a reference to it.
  mutating func embed(
    _ image: EmbeddedImage, limit: Int, for instance: Instance
  ) throws -> Embedding {
    let (digest, bytes) = (image.digest.data, image.content.count)
    let known = try self.image(digest)
    if let known, !known.isPendingDeletion { return Embedding() }
    guard counters.pinnedBytes + bytes <= limit else { throw StoreError.full }
    var gone: [ImageDigest] = []
    _ = try makeRoom(within: limit - bytes, for: instance, &gone)
    guard known != nil else { return Embedding(evicted: gone, arriving: image) }
    // Of one that is leaving the file is being removed at this moment; the row stays, as it is referred to again.
    try execute(
      "UPDATE images SET leaving = 0, embedded = ?, bytes = ?, owner = NULL WHERE digest = ?",
      [try insert(contentOf: image), bytes, digest])
    counters.images += 1
    counters.addImageBytes(bytes, of: nil)
    return Embedding(evicted: gone)
  }

  /// - Returns: the number of its bytes.
  private func insert(contentOf image: EmbeddedImage) throws -> Int64 {
    try execute("INSERT INTO contents (bytes) VALUES (?)", [Data(image.content)])
    return db.lastInsertedRowID
  }

  /// Removes an image that was taken in if nothing came to refer to it after all.
  mutating func dropUnused(_ image: EmbeddedImage) throws {
    guard let known = try self.image(image.digest.data), known.isEmbedded, known.hard == 0,
      known.soft == 0
    else { return }
    try removeEmbedded(image.digest.data, bytes: known.bytes)
  }

  /// Notes the end of a holder's reservations.
  mutating func endReservations(of holder: Data, _ references: inout ReferenceChanges) throws {
    for row in try all("DELETE FROM reservations WHERE holder = ? RETURNING digest", [holder]) {
      references.release(row[0])
    }
  }

  mutating func release(_ holder: Data) throws {
    var references = ReferenceChanges()
    try endReservations(of: holder, &references)
    try apply(references)
  }

  /// Ends the reservations that none of the living has.
  mutating func endReservations(exceptOf living: Set<Instance>) throws {
    var references = ReferenceChanges()
    for row in try all("SELECT holder, instance FROM reservations")
    where !living.contains(Instance(number: row[1])) {
      try endReservations(of: row[0], &references)
    }
    try apply(references)
  }

  /// Marks images that nothing refers to as leaving.
  mutating func leave(abandoned count: Int, for instance: Instance) throws -> [ImageDigest] {
    let rows = try all(
      "SELECT digest, bytes FROM images WHERE hard = 0 AND soft = 0 AND leaving = 0 LIMIT ?",
      [count])
    for row in rows { try leave(row[0], bytes: row[1], for: instance) }
    return rows.compactMap { ImageDigest(bytes: $0[0] as Data) }
  }

  /// Marks images that no row tells of as leaving: a row says that nobody may have one now.
  mutating func leave(
    unknown digests: [ImageDigest], for instance: Instance
  ) throws -> [ImageDigest] {
    try digests.filter { digest in
      let added = try execute(
        """
        INSERT OR IGNORE INTO images (digest, bytes, hard, soft, leaving, leaving_for)
        VALUES (?, 0, 0, 0, 1, ?)
        """, [digest.data, instance.number])
      return added > 0
    }
  }

  mutating func forget(_ digest: ImageDigest) throws {
    guard let image = try image(digest.data), image.hard == 0, image.soft == 0 else { return }
    try execute("DELETE FROM images WHERE digest = ?", [digest.data])
    if !image.isPendingDeletion {
      counters.images -= 1
      counters.addImageBytes(-image.bytes, of: image.owner)
    }
  }

  /// What none of the living is about to remove counts as abandoned again: its bytes may be there still.
  mutating func endPendingDeletions(exceptOf living: Set<Instance>) throws {
    for row in try all("SELECT digest, bytes, leaving_for FROM images WHERE leaving = 1")
    where !living.contains(Instance(number: row[2])) {
      let (digest, bytes): (Data, Int) = (row[0], row[1])
      // Of an orphan's bytes it is not known how many they are; the next sweep finds it again.
      guard bytes > 0 else {
        try execute("DELETE FROM images WHERE digest = ?", [digest])
        continue
      }
      let kept = try one(
        "UPDATE images SET leaving = 0 WHERE digest = ? RETURNING owner", [digest])
      counters.images += 1
      counters.addImageBytes(bytes, of: kept?[0] as Data?)
    }
  }

  /// Whether the image may be referred to: it is kept and not leaving.
  func isKept(_ digest: Data) throws -> Bool {
    try image(digest).map { !$0.isPendingDeletion } ?? false
  }

  /// Brings the images' counts in step with rows, once those are written.
  /// - Parameter arriving: an image of which there is no row yet: it is taken in if anything refers to it.
  mutating func apply(_ references: ReferenceChanges, arriving: EmbeddedImage? = nil) throws {
    for (digest, change) in references.byDigest where change.isOne {
      if let arriving, arriving.digest.data == digest {
        try add(change, as: digest, with: arriving)
      } else {
        try apply(change, to: digest, as: image(digest))
      }
    }
  }

  private mutating func apply(_ change: ReferenceChange, to digest: Data, as known: ImageRow?)
    throws
  {
    guard let old = known else { return try add(change, as: digest) }
    guard !old.isPendingDeletion || change.hard + change.soft <= 0 else {
      throw StoreError.unavailable(detail: "an image that is pending deletion was not reserved")
    }
    var new = old
    new.hard += change.hard
    new.soft += change.soft
    if change.endsSoft {
      new.finishedAt = new.soft > 0 ? try oldestFinish(of: digest) : nil
    } else {
      new.finishedAt = [old.finishedAt, change.finishedAt].compactMap(\.self).min()
    }
    new.owner = ImageRow.owner(old.owner, and: change.owner)
    try execute(
      "UPDATE images SET hard = ?, soft = ?, finished_at = ?, owner = ? WHERE digest = ?",
      [new.hard, new.soft, new.finishedAt, new.owner, digest])
    if new.owner != old.owner, !old.isPendingDeletion {
      counters.addImageBytes(-old.bytes, of: old.owner)
      counters.addImageBytes(old.bytes, of: new.owner)
    }
    counters.pinnedBytes += (new.hard > 0 ? new.bytes : 0) - (old.hard > 0 ? old.bytes : 0)
    if new.isEmbedded, new.hard == 0, new.soft == 0 { try removeEmbedded(digest, bytes: new.bytes) }
  }

  private mutating func add(
    _ change: ReferenceChange, as digest: Data, with image: EmbeddedImage? = nil
  ) throws {
    guard change.hard > 0 || change.soft > 0 else { return }
    let bytes = image?.content.count ?? change.bytes
    let content = try image.map(insert(contentOf:)) ?? 0
    try execute(
      """
      INSERT INTO images (digest, bytes, hard, soft, finished_at, embedded, owner)
      VALUES (?, ?, ?, ?, ?, ?, ?)
      """,
      [digest, bytes, change.hard, change.soft, change.finishedAt, content, change.owner])
    counters.images += 1
    counters.addImageBytes(bytes, of: change.owner)
    if change.hard > 0 { counters.pinnedBytes += bytes }
  }

  func image(_ digest: Data) throws -> ImageRow? {
    try one("SELECT \(ImageRow.columns) FROM images WHERE digest = ?", [digest])
      .map(ImageRow.init)
  }

  func oldestFinish(of digest: Data) throws -> Int64? {
    let results = try one("SELECT min(finished_at) FROM jobs WHERE image = ?", [digest])
    let sources = try one("SELECT min(finished_at) FROM jobs WHERE source = ?", [digest])
    let entries = try one("SELECT min(stored) FROM cache WHERE digest = ?", [digest])
    return [results, sources, entries].compactMap { $0?[0] as Int64? }.min()
  }
}
