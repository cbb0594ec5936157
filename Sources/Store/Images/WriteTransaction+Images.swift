internal import Foundation
internal import GRDB
internal import HashTreeCollections
internal import Jobs

/// An image and the counts of its references. Hard references keep an image; images with only soft
/// ones can be evicted.
struct ImageRow {
  var bytes: Int
  var hard: Int
  var soft: Int
  var finishedAt: Int64?
  var isPendingDeletion: Bool
  /// Whether the bytes are in the database.
  var isEmbedded: Bool
  /// The owner of the jobs that refer to the image: `nil` before the first job, empty after jobs of
  /// several owners did. It never changes back, because the remaining references are not counted by
  /// owner.
  var owner: Data?

  static let columns = "bytes, hard, soft, finished_at, leaving, embedded, owner"

  init(_ row: Row) {
    (bytes, hard, soft, finishedAt) = (row[0], row[1], row[2], row[3])
    (isPendingDeletion, isEmbedded, owner) = (row[4], row[5], row[6])
  }

  /// Combines the owners of two groups of jobs that refer to an image.
  static func owner(_ a: Data?, and b: Data?) -> Data? {
    guard let a, let b else { return a ?? b }
    return a == b ? a : Data()
  }
}

/// The result of storing an image in the database.
struct Embedding {
  /// Evicted images, whose files are to be removed.
  var evicted: [ImageDigest] = []
  /// The image, if it has no row yet. ``WriteTransaction/apply(_:arriving:)`` writes the row with
  /// the first reference.
  var arriving: EmbeddedImage?
}

/// References to images, and their deletion.
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
      let isDone = try evictImages(downTo: limit - bytes, for: instance, &evicted)
      guard isDone else { return .incomplete(evicted: evicted.map { ImageName($0) }) }
    }
    let added = try execute(
      "INSERT OR IGNORE INTO reservations (holder, digest, instance) VALUES (?, ?, ?)",
      [holder, digest, instance.number])
    if added > 0 { try apply(.reservation(bytes: bytes), to: digest, as: known) }
    // Reserve an existing image first, so that it is not evicted for itself.
    if known != nil { _ = try evictImages(downTo: limit, for: instance, &evicted) }
    guard let image = ImageDigest(bytes: digest) else { return .full }
    return .reserved(ImageName(image), evicted: evicted.map { ImageName($0) })
  }

  mutating func markPendingDeletion(_ digest: Data, bytes: Int, for instance: Instance) throws {
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

  /// Stores a small image in the database. The image is stored even if freeing the space needs
  /// several transactions; the following ones continue. The same operation must add a reference to
  /// it.
  mutating func embed(
    _ image: EmbeddedImage, limit: Int, for instance: Instance
  ) throws -> Embedding {
    let (digest, bytes) = (image.digest.data, image.content.count)
    let known = try self.image(digest)
    if let known, !known.isPendingDeletion { return Embedding() }
    guard counters.pinnedBytes + bytes <= limit else { throw StoreError.full }
    var gone: [ImageDigest] = []
    _ = try evictImages(downTo: limit - bytes, for: instance, &gone)
    guard known != nil else { return Embedding(evicted: gone, arriving: image) }
    // If the image is pending deletion, its file is being deleted right now. The row stays and now
    // refers to bytes in the database.
    try execute(
      "UPDATE images SET leaving = 0, embedded = ?, bytes = ?, owner = NULL WHERE digest = ?",
      [try insert(contentOf: image), bytes, digest])
    counters.images += 1
    counters.addImageBytes(bytes, of: nil)
    return Embedding(evicted: gone)
  }

  /// - Returns: the number of the row with the bytes.
  private func insert(contentOf image: EmbeddedImage) throws -> Int64 {
    try execute("INSERT INTO contents (bytes) VALUES (?)", [Data(image.content)])
    return db.lastInsertedRowID
  }

  /// Deletes an image that was stored by ``embed(_:limit:for:)`` if no reference was added.
  mutating func deleteUnused(_ image: EmbeddedImage) throws {
    guard let known = try self.image(image.digest.data), known.isEmbedded, known.hard == 0,
      known.soft == 0
    else { return }
    try removeEmbedded(image.digest.data, bytes: known.bytes)
  }

  /// Deletes a holder's reservations and collects the changed references.
  mutating func deleteReservations(of holder: Data, _ references: inout ReferenceChanges) throws {
    for row in try all("DELETE FROM reservations WHERE holder = ? RETURNING digest", [holder]) {
      references.release(row[0])
    }
  }

  mutating func release(_ holder: Data) throws {
    var references = ReferenceChanges()
    try deleteReservations(of: holder, &references)
    try apply(references)
  }

  /// Deletes the reservations of instances without a lease.
  mutating func deleteReservations(exceptOf living: Set<Instance>) throws {
    var references = ReferenceChanges()
    for row in try all("SELECT holder, instance FROM reservations")
    where !living.contains(Instance(number: row[1])) {
      try deleteReservations(of: row[0], &references)
    }
    try apply(references)
  }

  /// Marks unreferenced images as pending deletion.
  mutating func markUnreferenced(_ count: Int, for instance: Instance) throws -> [ImageDigest] {
    let rows = try all(
      "SELECT digest, bytes FROM images WHERE hard = 0 AND soft = 0 AND leaving = 0 LIMIT ?",
      [count])
    for row in rows { try markPendingDeletion(row[0], bytes: row[1], for: instance) }
    return rows.compactMap { ImageDigest(bytes: $0[0] as Data) }
  }

  /// Marks images without a row as pending deletion. The new row prevents that they are referred
  /// to.
  mutating func markUnknown(
    _ digests: [ImageDigest], for instance: Instance
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

  mutating func deleteImage(_ digest: ImageDigest) throws {
    guard let image = try image(digest.data), image.hard == 0, image.soft == 0 else { return }
    try execute("DELETE FROM images WHERE digest = ?", [digest.data])
    if !image.isPendingDeletion {
      counters.images -= 1
      counters.addImageBytes(-image.bytes, of: image.owner)
    }
  }

  /// Images that stopped instances were deleting become unreferenced images again, because their
  /// bytes may still exist.
  mutating func endPendingDeletions(exceptOf living: Set<Instance>) throws {
    for row in try all("SELECT digest, bytes, leaving_for FROM images WHERE leaving = 1")
    where !living.contains(Instance(number: row[2])) {
      let (digest, bytes): (Data, Int) = (row[0], row[1])
      // A row without a size marks an orphaned file. The next sweep finds the file again.
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

  /// Returns whether references to the image may be added: it is stored and not pending deletion.
  func isStored(_ digest: Data) throws -> Bool {
    try image(digest).map { !$0.isPendingDeletion } ?? false
  }

  /// Applies the collected changes to the images' counts, after the rows were written.
  /// - Parameter arriving: an image without a row. It is stored if a reference to it is added.
  mutating func apply(_ references: ReferenceChanges, arriving: EmbeddedImage? = nil) throws {
    for (digest, change) in references.byDigest where change.hasChanges {
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

/// The changes of one operation to the references to images. They are collected first, so that each
/// image's counts are read and written once, however many rows change.
struct ReferenceChanges {
  private(set) var byDigest: [Data: ReferenceChange] = [:]

  init() {}

  /// The change of one job's row; `nil` means the row did not exist before or does not exist
  /// afterwards.
  init(from old: JobRow?, to new: JobRow?, holding job: Job?) {
    self.init()
    recordChange(from: old, to: new, job: job)
  }

  /// Records that a job's row was written.
  /// - Parameter job: the job in `new`, for its images' sizes.
  mutating func recordChange(from old: JobRow?, to new: JobRow?, job: Job?) {
    if let old, let new, old.refersAs(new) { return }
    for digest in old?.references ?? [] {
      byDigest[digest, default: .init()].removeReference(isSoft: old?.phase.isFinished == true)
    }
    for digest in new?.references ?? [] {
      byDigest[digest, default: .init()].addReference(
        isSoft: new?.phase.isFinished == true, at: new?.finishedAt)
      byDigest[digest]?.add(owner: new?.owner)
    }
    if let image = job?.keptImage { byDigest[image.keptDigest.data]?.bytes = image.keptBytes }
    if let source = job?.capturedSource { byDigest[source.digest.data]?.bytes = source.bytes }
  }

  /// Returns whether a reference to the image is added.
  func begins(_ digest: Data) -> Bool { byDigest[digest]?.begins ?? false }

  /// Records that a reservation was released.
  mutating func release(_ digest: Data) {
    byDigest[digest, default: .init()].removeReference(isSoft: false)
  }

  /// Records that a cache entry was stored.
  mutating func addEntry(_ digest: Data, bytes: Int, at moment: Timestamp) {
    byDigest[digest, default: .init()].addReference(isSoft: true, at: moment.milliseconds)
    byDigest[digest]?.bytes = bytes
  }

  /// Records that a cache entry was deleted.
  mutating func deleteEntry(_ digest: Data) {
    byDigest[digest, default: .init()].removeReference(isSoft: true)
  }
}

/// The changes to the references to one image. Hard references keep an image; images with only soft
/// ones can be evicted.
struct ReferenceChange {
  private(set) var hard = 0
  private(set) var soft = 0
  /// The earliest time among the added soft references.
  private(set) var finishedAt: Int64?
  /// Whether soft references were removed, possibly including the oldest one.
  private(set) var endsSoft = false
  /// Whether any reference is added.
  private(set) var begins = false
  /// The image's size in bytes, if a reference was added.
  var bytes = 0
  /// The owner of the jobs that refer to the image; see ``ImageRow/owner``.
  private(set) var owner: Data?

  /// Whether anything about the image changes.
  var hasChanges: Bool { hard != 0 || soft != 0 || endsSoft }

  fileprivate mutating func add(owner: Data?) {
    self.owner = ImageRow.owner(self.owner, and: owner)
  }

  /// The change made by a new reservation.
  static func reservation(bytes: Int) -> ReferenceChange {
    var change = ReferenceChange()
    change.addReference(isSoft: false, at: nil)
    change.bytes = bytes
    return change
  }

  fileprivate mutating func addReference(isSoft: Bool, at moment: Int64?) {
    begins = true
    guard isSoft else { return hard += 1 }
    soft += 1
    finishedAt = [finishedAt, moment].compactMap(\.self).min()
  }

  fileprivate mutating func removeReference(isSoft: Bool) {
    guard isSoft else { return hard -= 1 }
    soft -= 1
    endsSoft = true
  }
}

extension JobRow {
  fileprivate var references: [Data] { [image, source].compactMap(\.self) }

  fileprivate func refersAs(_ other: JobRow) -> Bool {
    image == other.image && source == other.source && finishedAt == other.finishedAt
      && phase.isFinished == other.phase.isFinished
  }
}

/// The bytes of images that belong to one owner alone; see ``ImageRow/owner``.
struct ImageOwners: Sendable, Equatable {
  private struct Share: Comparable, Sendable {
    let bytes: Int
    let owner: Data

    static func < (a: Self, b: Self) -> Bool {
      a.bytes == b.bytes ? a.owner.lexicographicallyPrecedes(b.owner) : a.bytes < b.bytes
    }
  }

  private var bytes: TreeDictionary<Data, Int> = [:]
  private var shares = SortedElements<Share>()

  init() {}

  /// Loads the sums from the database.
  init(counting db: Database) throws {
    let owners = try Row.fetchCursor(
      db, sql: "SELECT owner, sum(bytes) FROM images WHERE leaving = 0 GROUP BY owner")
    while let row = try owners.next() { add(row[1], of: row[0]) }
  }

  static func == (a: Self, b: Self) -> Bool { a.bytes == b.bytes }

  mutating func add(_ count: Int, of owner: Data?) {
    guard let owner, !owner.isEmpty else { return }
    let before = bytes[owner] ?? 0
    if before > 0 { shares.remove(Share(bytes: before, owner: owner)) }
    let after = before + count
    bytes[owner] = after > 0 ? after : nil
    if after > 0 { shares.insert(Share(bytes: after, owner: owner)) }
  }

  /// Returns the owner that uses more than half of `limit`, if other owners have images too.
  /// - Parameter total: the bytes of all images.
  func ownerOverShare(of limit: Int, total: Int) -> Data? {
    guard let most = shares.last, most.bytes > ShareBounds(limit).half, most.bytes < total
    else { return nil }
    return most.owner
  }
}
